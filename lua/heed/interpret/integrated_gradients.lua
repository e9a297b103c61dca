--- Source: Sundararajan et al., "Axiomatic Attribution for Deep Networks", arXiv:1703.01365.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"
local measure = require "heed.interpret.measure"
local models = require "heed.interpret.models"

local METHOD, OPTIONS = "integrated_gradients", { "metric", "baseline", "steps", "point" }

--- The activation from which the path starts, for that of the input, x: zeros, a tensor like x, or that of other ids.
local function baseline_of(model, baseline, name, x)
  if baseline == nil then return x:zeros_like() end
  local given = E.kind(baseline) == "tensor" and baseline.dtype == "float32" and baseline.ndim == x.ndim
  local start = given and baseline or models.run(model, baseline, { name }).list[1]
  if A.text(start.shape) ~= A.text(x.shape) then
    E.reject(METHOD, "baseline", baseline, "ids of the same shape, or a tensor [%s] like the activations of '%s'",
      table.concat(x.shape, ", "), name)
  end
  return start
end

--- integrated_gradients(model, ids, {metric =, baseline =, steps = 50, point = "hook_embed"}): how much each token adds
--- to metric(logits), [.., n]: (x - baseline) · the mean gradient on the straight line from the baseline to x, the
--- activation of the point, summed over its last dimension. The line is divided into `steps` equal parts, of which
--- the middles count. Second result: {metric =, baseline =, error = what the sum lacks of their difference}.
return function(model, ids, ...)
  local metric, baseline, steps, point = core.modules.options(METHOD, OPTIONS, 3, model, ids, ...)
  E.check_type(metric, "function", METHOD, "metric")
  steps = E.size(steps, 50, METHOD, "steps")
  if point == nil then point = "hook_embed" end
  E.check_type(point, "string", METHOD, "point")
  local name = models.names(model, point, METHOD)[1]
  local run = models.run(model, ids, { name })
  local x = run.list[1]
  local start = baseline_of(model, baseline, name, x)
  local way, total = x - start, x:zeros_like()
  for step = 1, steps do
    E.check_cancel(METHOD)
    local at = start + way * ((step - 0.5) / steps)
    local gradients = measure.gradients(model, ids, { name }, metric, METHOD, function() return at end)
    total:add_(gradients[1])
  end
  local values = (way * total / steps):sum(-1)
  local whole = measure.number(metric, run.result, METHOD)
  local begun = measure.number(metric, (model:run_with_hooks(ids, { [name] = function() return start end })), METHOD)
  return values, { metric = whole, baseline = begun, error = whole - begun - values:sum():item() }
end
