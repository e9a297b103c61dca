--- Sources: Nanda, "Attribution Patching: Activation Patching At Industrial Scale" (2023); Syed et al.,
--- arXiv:2310.10348.

local E = require "heed.nn.entries"
local core = require "heed.core"
local measure = require "heed.interpret.measure"
local models = require "heed.interpret.models"
local places = require "heed.interpret.places"

local METHOD = "attribution_patching"
local OPTIONS = { "point", "metric", "normalized", "layers", "positions", "heads" }

--- attribution_patching(model, clean_ids, corrupted_ids, {point = "resid_pre", metric =, normalized = false, layers =,
--- positions =, heads =}): activation_patching's result to first order, from two runs and one backward pass:
--- corrupted + Σ (clean activation - corrupted activation) · gradient of the metric in the corrupted run.
return function(model, clean_ids, corrupted_ids, ...)
  local point, metric, normalized, layers, positions, heads =
    core.modules.options(METHOD, OPTIONS, 4, model, clean_ids, corrupted_ids, ...)
  E.check_type(metric, "function", METHOD, "metric")
  normalized = E.boolean(normalized, false, METHOD, "normalized")
  local names = places.names(model, point, layers, METHOD)
  local run = models.run(model, clean_ids, names)
  local clean = measure.number(metric, run.result, METHOD)
  local gradients, corrupted, activations = measure.gradients(model, corrupted_ids, names, metric, METHOD)
  places.check_same(names[1], run.list[1], activations[1], METHOD)
  if normalized then places.check_distinct(clean, corrupted, METHOD) end
  local rows = {}
  for i, name in ipairs(names) do
    E.check_cancel(METHOD)
    local effect = (run.list[i] - activations[i]:detach()) * gradients[i]
    local sums = places.sums(name, effect:nan_to_num(0), positions, heads, METHOD) -- masked scores: -inf less -inf
    rows[i] = normalized and sums / (clean - corrupted) or sums + corrupted
  end
  return core.stack(rows), { clean = clean, corrupted = corrupted }
end
