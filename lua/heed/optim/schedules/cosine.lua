--- Schedules along a half cosine: CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR.

local E = require "heed.nn.entries"
local base = require "heed.optim.schedules.base"

local M = {}
local cos, pi = math.cos, math.pi

-- ---- Annealing. Source: arXiv:1608.03983 ----

local function annealed(values, epoch)
  return base.each(values, "step", function(_, first)
    return values.eta_min + (first - values.eta_min) * (1 + cos(pi * epoch / values.T_max)) / 2
  end)
end

M.CosineAnnealingLR = base.define {
  name = "CosineAnnealingLR",
  options = { base.size "T_max", base.number("eta_min", 0) },
  rates = function(values, epoch, is_first)
    local T, least = values.T_max, values.eta_min
    return base.each(values, "step", function(rate, first)
      if is_first then return rate end
      if (epoch - 1 - T) % (2 * T) == 0 then return rate + (first - least) * (1 - cos(pi / T)) / 2 end
      return (1 + cos(pi * epoch / T)) / (1 + cos(pi * (epoch - 1) / T)) * (rate - least) + least
    end)
  end,
  closed = annealed,
}

-- ---- Annealing that starts again ----

local function restarted(values, position, period)
  return base.each(values, "step", function(_, first)
    return values.eta_min + (first - values.eta_min) * (1 + cos(pi * position / period)) / 2
  end)
end

--- The position in its period, and the period, of an epoch that the user gives.
local function find_period(values, epoch)
  local first, times = values.T_0, values.T_mult
  if epoch < first then return epoch, first end
  if times == 1 then return epoch % first, first end
  local n = math.floor(math.log(epoch / first * (times - 1) + 1) / math.log(times))
  return epoch - first * (times ^ n - 1) / (times - 1), first * times ^ n
end

local function restart_to(values, epoch, position, period)
  base.set(values, restarted(values, position, period), math.floor(epoch))
  values.T_cur, values.T_i = position, period
  values.step_count = values.step_count + 1
end

M.CosineAnnealingWarmRestarts = base.define {
  name = "CosineAnnealingWarmRestarts",
  options = { base.size "T_0", base.size("T_mult", 1), base.number("eta_min", 0) },
  fields = { "T_cur", "T_i" },
  takes = true,
  begin = function(values)
    values.T_cur, values.T_i = values.last_epoch, values.T_0
    local epoch = math.max(values.last_epoch + 1, 0)
    restart_to(values, epoch, find_period(values, epoch))
  end,
  step = function(values, ...)
    local epoch = ...
    if epoch ~= nil then
      E.number(epoch, nil, "step", "epoch", function(value) return value >= 0 and value < math.huge end,
        "a finite number, at least 0")
      return restart_to(values, epoch, find_period(values, epoch))
    end
    local position, period = values.T_cur + 1, values.T_i
    if position >= period then position, period = position % period, period * values.T_mult end
    restart_to(values, values.last_epoch + 1, position, period)
  end,
  closed = function(values) return restarted(values, values.T_cur, values.T_i) end,
}

-- ---- One cycle. Source: arXiv:1708.07120 ----

local function optional(option)
  option.optional = true
  return option
end

local ANNEAL = {
  cos = function(from, to, part) return to + (from - to) / 2 * (cos(pi * part) + 1) end,
  linear = function(from, to, part) return (to - from) * part + from end,
}

--- The phases: when each ends, and between what the rate and the momentum go.
local function phases_of(values)
  local warm = values.pct_start * values.total_steps
  local up = { warm - 1, "base_lrs", "max_lr", "max_momentum", "base_momentum" }
  if not values.three_phase then
    return { up, { values.total_steps - 1, "max_lr", "min_lrs", "base_momentum", "max_momentum" } }
  end
  return { up, { 2 * warm - 2, "max_lr", "base_lrs", "base_momentum", "max_momentum" },
    { values.total_steps - 1, "base_lrs", "min_lrs", "max_momentum", "max_momentum" } }
end

--- The phase of an epoch, and how much of it has passed.
local function phase_at(values, epoch)
  local from, phases = 0, phases_of(values)
  for i, phase in ipairs(phases) do
    if epoch <= phase[1] or i == #phases then return phase, (epoch - from) / (phase[1] - from) end
    from = phase[1]
  end
end

local function one_cycle(values, epoch)
  if epoch > values.total_steps then
    E.fail("step: the schedule has %s, which were made", E.count(values.total_steps, "step"))
  end
  local phase, part = phase_at(values, epoch)
  local anneal, momenta = ANNEAL[values.anneal_strategy], {}
  local rates = base.each(values, "step", function(_, _, i)
    momenta[i] = anneal(values[phase[4]][i], values[phase[5]][i], part)
    return anneal(values[phase[2]][i], values[phase[3]][i], part)
  end)
  return rates, function()
    for i, group in ipairs(values.groups) do
      if values.cycle_momentum and values.defaults.betas then
        group.betas = { momenta[i], type(group.betas) == "table" and group.betas[2] or values.defaults.betas[2] }
      elseif values.cycle_momentum then
        group.momentum = momenta[i]
      end
    end
  end
end

M.OneCycleLR = base.define {
  name = "OneCycleLR",
  options = {
    base.numbers "max_lr", optional(base.size "total_steps"), optional(base.size "epochs"),
    optional(base.size "steps_per_epoch"), base.number("pct_start", 0.3, E.is_probability, E.PROBABILITY),
    base.choice("anneal_strategy", "cos", { "cos", "linear" }), base.flag("cycle_momentum", true),
    base.numbers("base_momentum", 0.85), base.numbers("max_momentum", 0.95), base.number("div_factor", 25),
    base.number("final_div_factor", 1e4), base.flag("three_phase", false),
  },
  fields = { "min_lrs" },
  start = function(values)
    if not values.total_steps and not (values.epochs and values.steps_per_epoch) then
      E.fail "OneCycleLR: total_steps is nil; give it, or both epochs and steps_per_epoch"
    end
    values.total_steps = values.total_steps or values.epochs * values.steps_per_epoch
    values.min_lrs = {}
    for i, most in ipairs(values.max_lr) do
      if values.last_epoch < 0 then values.base_lrs[i] = most / values.div_factor end
      values.min_lrs[i] = values.base_lrs[i] / values.final_div_factor
    end
  end,
  rates = one_cycle,
}

return M
