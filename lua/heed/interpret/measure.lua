--- What a metric says about logits, as a number or for its gradient; and recorded runs of a model.

local E = require "heed.nn.entries"
local heed = require "heed"

local measure = {}

--- metric(logits) as a number.
function measure.number(metric, logits, method)
  local value = metric(logits)
  if E.kind(value) == "tensor" and value:numel() == 1 then value = value:item() end
  if type(value) ~= "number" then E.reject(method, "the result of metric", value, "a number") end
  return value
end

--- metric(logits) as a tensor that has a gradient.
local function differentiable(metric, logits, method)
  local value = metric(logits)
  if E.kind(value) ~= "tensor" or value:numel() ~= 1 or not value.requires_grad then
    E.reject(method, "the result of metric", value, "a tensor of 1 element that depends on the logits; select and "
      .. "narrow give one, logits[{i, j}] a number")
  end
  return value
end

--- The gradients of metric(logits) at points of model(ids), in the order of `names`, and the metric as a number.
--- replace(x, i), if given, returns what takes the place of the activation of point i. The parameters' own gradients
--- stay as they are.
function measure.gradients(model, ids, names, metric, method, replace)
  local seen, hooks = {}, {}
  for i, name in ipairs(names) do
    hooks[name] = function(x)
      if replace then x = replace(x, i) end
      -- a new tensor, so that the model goes on with the one whose gradient is wanted
      seen[i] = x.requires_grad and x:clone() or x:detach():clone():requires_grad_(true)
      return seen[i]
    end
  end
  return heed.enable_grad(function()
    local value = differentiable(metric, (model:run_with_hooks(ids, hooks)), method)
    local gradients = heed.autograd.grad(value, seen, { allow_unused = true })
    for i, x in ipairs(seen) do gradients[i] = gradients[i] or x:zeros_like() end
    return gradients, value:item(), seen
  end)
end

return measure
