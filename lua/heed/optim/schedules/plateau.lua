--- ReduceLROnPlateau: lower rates when a measure has stopped improving.

local E = require "heed.nn.entries"
local core = require "heed.core"
local base = require "heed.optim.schedules.base"
local primitives = core.modules

local function is_better(values, measure)
  local down = values.mode == "min"
  local best = values.best or (down and math.huge or -math.huge)
  if values.threshold_mode == "rel" then
    if down then return measure < best * (1 - values.threshold) end
    return measure > best * (values.threshold + 1)
  end
  if down then return measure < best - values.threshold end
  return measure > best + values.threshold
end

local function reduced(values)
  return base.each(values, "step", function(rate, _, i)
    local new = math.max(rate * values.factor, values.min_lr[i])
    return rate - new > values.eps and new or rate
  end)
end

local function read_measure(measure)
  local kind = primitives.kind(measure)
  if (kind == "tensor" or kind == "parameter") and measure:numel() == 1 then return measure:item() end
  return E.number(measure, nil, "step", "metrics", nil, "a number or a tensor of one element, such as the loss")
end

return {
  ReduceLROnPlateau = base.define {
    name = "ReduceLROnPlateau",
    options = {
      base.choice("mode", "min", { "min", "max" }),
      base.number("factor", 0.1, function(value) return value < 1 end, "a number below 1"),
      base.count("patience", 10), base.number("threshold", 1e-4),
      base.choice("threshold_mode", "rel", { "rel", "abs" }),
      base.count("cooldown", 0), base.numbers("min_lr", 0), base.number("eps", 1e-8),
    },
    fields = { "best", "cooldown_counter", "num_bad_epochs" },
    lacks = "best",
    takes = true,
    begin = function(values)
      values.cooldown_counter, values.num_bad_epochs = 0, 0
      base.set(values, base.rates(values, "ReduceLROnPlateau"), 0)
    end,
    step = function(values, ...)
      if select("#", ...) ~= 1 then
        E.fail("step: %d arguments are given; it takes one, the measure, such as the loss", (select("#", ...)))
      end
      local measure, rates = read_measure((...)), base.rates(values, "step")
      local better = is_better(values, measure)
      local bad, wait = better and 0 or values.num_bad_epochs + 1, values.cooldown_counter
      if wait > 0 then wait, bad = wait - 1, 0 end
      if bad > values.patience then rates, wait, bad = reduced(values), values.cooldown, 0 end
      if better then values.best = measure end
      values.num_bad_epochs, values.cooldown_counter = bad, wait
      base.set(values, rates, values.last_epoch + 1)
    end,
  },
}
