--- Source: Abnar and Zuidema, arXiv:2005.00928, section 3.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"
local models = require "heed.interpret.models"
local weights_of = require "heed.interpret.weights"

local OPTIONS = { "residual" }

--- rollout(weights, {residual = 0.5}) or rollout(model, ids, {residual = 0.5}): how much of each input token reaches
--- each position, [.., n, n]: Â_L ··· Â_1 with Â = residual · I + (1 - residual) · (mean of A over heads).
return function(first, ...)
  local residual, layers
  if E.is_module(first) then
    residual = core.modules.options("rollout", OPTIONS, 3, first, ...)
  else
    residual = core.modules.options("rollout", OPTIONS, 2, first, ...)
  end
  residual = E.number(residual, 0.5, "rollout", "residual", E.is_probability, E.PROBABILITY)
  if E.is_module(first) then
    layers = models.run(first, (...), models.names(first, "hook_pattern", "rollout")).list
  else
    layers = weights_of.layers(first, "rollout")
  end
  local rolled
  for i, w in ipairs(layers) do
    E.check_cancel "rollout"
    local n = w.shape[w.ndim]
    if w.shape[w.ndim - 1] ~= n or rolled and rolled.shape[rolled.ndim] ~= n then
      E.fail("rollout: the weights of layer %d are %s; they must be [.., heads, n, n] in all layers", i,
        A.text(w.shape))
    end
    local mixed = residual * core.eye(n) + (1 - residual) * (w.ndim > 2 and w:mean(-3) or w)
    rolled = rolled and mixed:matmul(rolled) or mixed
  end
  return rolled
end
