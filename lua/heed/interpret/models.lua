--- What analyses of models share: their points, a run with a cache, the parts that give logits.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"

local models = {}

--- The names of the model's points that end in `short`, in the order of layers. Raises if there are none.
function models.names(model, short, method)
  E.check_module(model, method, "model")
  local found = {}
  for _, name in ipairs(model:hook_names()) do
    if name == short or name:sub(-#short - 1) == "." .. short then found[#found + 1] = name end
  end
  if #found == 0 then
    E.fail("%s: model is %s; it must have points named '%s' in its layers (hook_names lists them)", method,
      E.what(model), short)
  end
  return found
end

--- model(ids), which stores the tensors of these points: {result =, cache =, list = the tensors in that order}.
function models.run(model, ids, names)
  local results = { model:run_with_cache(ids, { names = names }) }
  local cache, list = results[#results], {}
  for i, name in ipairs(names) do list[i] = cache[name] end
  return { result = results[1], cache = cache, list = list }
end

local function part(model, names)
  for _, each in ipairs(E.parts(model)) do
    for _, name in ipairs(names) do
      if each.name == name then return each.value end
    end
  end
end

--- The norm before the logits, nil if there is none, and the layer that gives them: those of the arguments, or the
--- model's parts norm (or ln_final) and lm_head (or unembed).
function models.unembedding(model, norm, head, method)
  E.check_module(model, method, "model")
  if norm ~= nil then E.check_module(norm, method, "norm") end
  if head ~= nil then E.check_module(head, method, "lm_head") end
  norm, head = norm or part(model, { "norm", "ln_final" }), head or part(model, { "lm_head", "unembed" })
  if not head then
    E.fail("%s: model is %s, without a part lm_head; it must be a model that gives logits, or give the option lm_head, "
      .. "a layer from hidden states to logits", method, E.what(model))
  end
  return norm, head
end

--- A position or a list of them, negative ones from the last of n, as a list from 1; all of them for nil.
function models.positions(value, n, method, name)
  local list = {}
  if value == nil then
    for i = 1, n do list[i] = i end
    return list
  end
  name = name or "positions"
  if E.kind(value) == "tensor" then value = value:flatten():tolist() end
  for i, each in ipairs(A.integer_or_list(value, method, name)) do
    if each == 0 or each > n or each < -n then
      E.reject(method, name, each, "from 1 to %d, or from -1 to -%d", n, n)
    end
    list[i] = each < 0 and each + n + 1 or each
  end
  if #list == 0 then E.fail("%s: %s is empty; it must have at least 1 value", method, name) end
  return list
end

--- The rows of a linear layer's weight, and its bias, for these outputs (int64 [b]) in float32: [b, d], [b].
function models.rows(head, outputs, method)
  if E.class_name(head) ~= "Linear" then E.reject(method, "lm_head", head, "a Linear") end
  local weight = head.weight:index_select(1, outputs):float()
  if head.weight.dtype == "int8" then
    weight = weight * head.weight_scale:index_select(1, outputs):unsqueeze(2)
  end
  return weight, head.bias and head.bias:index_select(1, outputs):float() or core.zeros(#outputs)
end

return models
