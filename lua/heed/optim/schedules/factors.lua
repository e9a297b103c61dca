--- Schedules that multiply the rates. As in PyTorch they go from the rates now, so that several work together.

local E = require "heed.nn.entries"
local base = require "heed.optim.schedules.base"

local M = {}

local factor = base.number
local function above_0(value) return value > 0 and value <= 1 end
local ABOVE_0 = "a number above 0, at most 1"

-- ---- At some steps ----

local function step_rates(values, epoch)
  return base.each(values, "step", function(rate)
    return epoch > 0 and epoch % values.step_size == 0 and rate * values.gamma or rate
  end)
end

M.StepLR = base.define {
  name = "StepLR",
  options = { base.size "step_size", base.number("gamma", 0.1) },
  rates = step_rates,
  closed = function(values, epoch)
    return base.each(values, "step", function(_, first)
      return first * values.gamma ^ math.floor(epoch / values.step_size)
    end)
  end,
}

M.MultiStepLR = base.define {
  name = "MultiStepLR",
  options = { base.milestones "milestones", base.number("gamma", 0.1) },
  rates = function(values, epoch)
    local times = base.passed(values.milestones, epoch) - base.passed(values.milestones, epoch - 1)
    return base.each(values, "step", function(rate) return times > 0 and rate * values.gamma ^ times or rate end)
  end,
  closed = function(values, epoch)
    local times = base.passed(values.milestones, epoch)
    return base.each(values, "step", function(_, first) return first * values.gamma ^ times end)
  end,
}

M.ConstantLR = base.define {
  name = "ConstantLR",
  options = { factor("factor", 1 / 3, above_0, ABOVE_0), base.count("total_iters", 5) },
  rates = function(values, epoch)
    return base.each(values, "step", function(rate)
      if epoch == 0 then return rate * values.factor end
      return epoch == values.total_iters and rate * (1 / values.factor) or rate
    end)
  end,
  closed = function(values, epoch)
    return base.each(values, "step", function(_, first)
      return first * (values.factor + (epoch >= values.total_iters and 1 or 0) * (1 - values.factor))
    end)
  end,
}

-- ---- At every step ----

M.ExponentialLR = base.define {
  name = "ExponentialLR",
  options = { base.number "gamma" },
  rates = function(values, _, is_first)
    return base.each(values, "step", function(rate) return is_first and rate or rate * values.gamma end)
  end,
  closed = function(values, epoch)
    return base.each(values, "step", function(_, first) return first * values.gamma ^ epoch end)
  end,
}

M.LinearLR = base.define {
  name = "LinearLR",
  options = {
    factor("start_factor", 1 / 3, above_0, ABOVE_0), factor("end_factor", 1, E.is_probability, E.PROBABILITY),
    base.size("total_iters", 5),
  },
  rates = function(values, epoch, is_first)
    local from, range, total = values.start_factor, values.end_factor - values.start_factor, values.total_iters
    return base.each(values, "step", function(rate)
      if epoch == 0 then return rate * from end
      if is_first or epoch > total then return rate end
      return rate * (1 + range / (total * from + (epoch - 1) * range))
    end)
  end,
  closed = function(values, epoch)
    local from, range, total = values.start_factor, values.end_factor - values.start_factor, values.total_iters
    return base.each(values, "step", function(_, first)
      return first * (from + range * math.min(total, epoch) / total)
    end)
  end,
}

M.PolynomialLR = base.define {
  name = "PolynomialLR",
  options = { base.size("total_iters", 5), base.number("power", 1) },
  rates = function(values, epoch, is_first)
    local total = values.total_iters
    return base.each(values, "step", function(rate)
      if is_first or epoch > total then return rate end
      return rate * ((1 - epoch / total) / (1 - (epoch - 1) / total)) ^ values.power
    end)
  end,
  closed = function(values, epoch)
    local total = values.total_iters
    return base.each(values, "step", function(_, first)
      return first * (1 - math.min(total, epoch) / total) ^ values.power
    end)
  end,
}

-- ---- By functions of the user ----

local function call(values, i, epoch)
  return E.number(values.lr_lambda[i](epoch), nil, "step", "the result of lr_lambda")
end

M.LambdaLR = base.define {
  name = "LambdaLR",
  options = { base.functions "lr_lambda" },
  functions = "lr_lambda",
  rates = function(values, epoch)
    return base.each(values, "step", function(_, first, i) return first * call(values, i, epoch) end)
  end,
}

M.MultiplicativeLR = base.define {
  name = "MultiplicativeLR",
  options = { base.functions "lr_lambda" },
  functions = "lr_lambda",
  rates = function(values, epoch, is_first)
    return base.each(values, "step", function(rate, _, i) return is_first and rate or rate * call(values, i, epoch) end)
  end,
}

return M
