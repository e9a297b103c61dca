--- Source: Meng et al., arXiv:2202.05262 (causal tracing); Zhang and Nanda, arXiv:2309.16042.

local E = require "heed.nn.entries"
local core = require "heed.core"
local measure = require "heed.interpret.measure"
local models = require "heed.interpret.models"
local places = require "heed.interpret.places"

local METHOD, OPTIONS = "activation_patching", { "point", "metric", "normalized", "layers", "positions", "heads" }

--- activation_patching(model, clean_ids, corrupted_ids, {point = "resid_pre", metric =, normalized = false, layers =,
--- positions =, heads =}): metric(logits) of the corrupted run in which a point has, at one layer and position (or
--- head), the value of the clean run: [layers, positions] or [layers, heads]. Second result: {clean =, corrupted =}.
return function(model, clean_ids, corrupted_ids, ...)
  local point, metric, normalized, layers, positions, heads =
    core.modules.options(METHOD, OPTIONS, 4, model, clean_ids, corrupted_ids, ...)
  E.check_type(metric, "function", METHOD, "metric")
  normalized = E.boolean(normalized, false, METHOD, "normalized")
  local names = places.names(model, point, layers, METHOD)
  local run, other = models.run(model, clean_ids, names), models.run(model, corrupted_ids, { names[1] })
  local clean, corrupted = measure.number(metric, run.result, METHOD), measure.number(metric, other.result, METHOD)
  places.check_same(names[1], run.list[1], other.list[1], METHOD)
  if normalized then places.check_distinct(clean, corrupted, METHOD) end
  local list, rows = places.of(names[1], run.list[1], positions, heads, METHOD), {}
  for i, name in ipairs(names) do
    rows[i] = {}
    for j, copy in ipairs(list) do
      E.check_cancel(METHOD)
      local logits = model:run_with_hooks(corrupted_ids, { [name] = function(x) return copy(x, run.list[i]) end })
      rows[i][j] = measure.number(metric, logits, METHOD)
      if normalized then rows[i][j] = (rows[i][j] - corrupted) / (clean - corrupted) end
    end
  end
  return core.tensor(rows), { clean = clean, corrupted = corrupted }
end
