--- SequentialLR: one schedule after the other.

local E = require "heed.nn.entries"
local base = require "heed.optim.schedules.base"

local SCHEDULERS = { name = "schedulers", check = function(value, method, argument)
  if not E.is_list(value) then E.reject(method, argument, value, "a list of schedules") end
  local list = {}
  for i = 1, #value do
    list[i] = value[i]
    local own, class = base.of(list[i])
    if not own then
      E.reject(method, ("%s[%d]"):format(argument, i), list[i], "a schedule, such as LinearLR(optimizer, …)")
    end
    local kind = class.definition.name
    if kind == "ReduceLROnPlateau" or kind == "SequentialLR" then
      E.fail("%s: %s[%d] is a schedule %s, which cannot be one of several", method, argument, i, kind)
    end
  end
  if #list == 0 then E.fail("%s: %s is empty; there must be at least one schedule", method, argument) end
  return list
end }

--- Takes back the steps that the schedules made when they were created.
local function undo(values, change)
  for _, part in ipairs(values.schedulers) do
    local own = base.of(part)
    own.last_epoch = own.last_epoch + change
  end
end

local function begin(part)
  local own, class = base.of(part)
  if class.definition.begin then class.definition.begin(own) else base.begin(own, class.definition) end
end

--- The first rates of all: those of the first schedule; after an error everything is as before.
local function begin_first(values)
  local rates = base.rates(values, "SequentialLR")
  for i, group in ipairs(values.groups) do group.lr = values.base_lrs[i] end
  undo(values, -1)
  local first = values.schedulers[base.passed(values.milestones, 0) + 1]
  local done, problem = pcall(begin, first)
  if not done then
    undo(values, 1)
    for i, group in ipairs(values.groups) do group.lr = rates[i] end
    error(problem, 0)
  end
  values.last_epoch, values.step_count, values.last_lr = values.last_epoch + 1, 1, first:get_last_lr()
end

--- Its first rates, from the rates at the beginning.
local function begin_at(part)
  local own, class = base.of(part)
  local rates, apply = (class.definition.closed or class.definition.rates)(own, 0, false)
  base.set(own, rates, 0)
  if apply then apply() end
end

return {
  SequentialLR = base.define {
    name = "SequentialLR",
    options = { SCHEDULERS, base.milestones("milestones", {}) },
    parts = true,
    start = function(values)
      if #values.milestones ~= #values.schedulers - 1 then
        E.fail("SequentialLR: there are %s and %s; there must be one milestone less than schedules",
          E.count(#values.schedulers, "schedule"), E.count(#values.milestones, "milestone"))
      end
      for i, part in ipairs(values.schedulers) do
        if not rawequal(base.of(part).optimizer, values.optimizer) then
          E.fail("SequentialLR: schedulers[%d] is for another optimiser", i)
        end
      end
    end,
    begin = begin_first,
    step = function(values)
      local epoch = values.last_epoch + 1
      local passed = base.passed(values.milestones, epoch)
      local part = values.schedulers[passed + 1]
      if passed > 0 and values.milestones[passed] == epoch then begin_at(part) else part:step() end
      values.last_epoch, values.step_count, values.last_lr = epoch, values.step_count + 1, part:get_last_lr()
    end,
  },
}
