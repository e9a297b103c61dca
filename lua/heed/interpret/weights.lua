--- Reading the arguments of analyses of attention weights.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local activations = require "heed.nn.activation_cache"
local core = require "heed.core"

local weights = {}

local NEEDED = "float32 weights [.., heads, queries, keys] or [queries, keys], a list of them, or a cache "
  .. "of run_with_cache"

local function check(x, method, name)
  local kind = E.kind(x)
  if kind ~= "tensor" and kind ~= "parameter" then E.reject(method, name, x, NEEDED) end
  if x.dtype ~= "float32" or x.ndim < 2 or x:numel() == 0 then
    E.fail("%s: %s is %s %s; it must be %s", method, name, x.dtype, A.text(x.shape), NEEDED)
  end
end

--- The weights of each layer as a list: that of a list or a cache, or of a tensor [layers, .., heads, l, s].
function weights.layers(value, method)
  if E.is_list(value) and not activations.is(value) then
    local list = A.tensors({ n = 1, value }, method, "weights")
    for i, x in ipairs(list) do check(x, method, ("weights[%d]"):format(i)) end
    return list
  end
  local all, list = weights.read(value, method), {}
  if all.ndim < 4 then E.reject(method, "weights", all, "a list of layers' weights, or [layers, .., heads, n, n]") end
  for i = 1, all.shape[1] do list[i] = all:select(1, i) end
  return list
end

--- Weights [.., heads, l, s] or [l, s]. A list or a cache gives [layers, .., heads, l, s].
function weights.read(value, method)
  if activations.is(value) then return value:stack "pattern" end
  if not E.is_list(value) then
    check(value, method, "weights")
    return value
  end
  local list = weights.layers(value, method)
  for i, x in ipairs(list) do
    if A.text(x.shape) ~= A.text(list[1].shape) then
      E.fail("%s: weights[%d] is %s and weights[1] is %s; all layers must have the same shape", method, i,
        A.text(x.shape), A.text(list[1].shape))
    end
  end
  return core.stack(list)
end

--- The sizes l and s; raises if a sequence cannot have them. With l < s, the queries are the last l of s tokens.
function weights.sizes(x, method)
  local l, s = x.shape[x.ndim - 1], x.shape[x.ndim]
  if l > s then
    E.fail("%s: weights are %s; the number of queries (%d) must be at most that of keys (%d): it compares positions of "
      .. "one sequence", method, A.text(x.shape), l, s)
  end
  return l, s
end

return weights
