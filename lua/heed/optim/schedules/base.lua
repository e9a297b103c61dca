--- What all schedules of learning rates share.
--
-- values of a schedule:
--   optimizer    the object; `groups` are its param_groups
--   last_epoch   the number of steps so far
--   step_count   the number of calls of step, and one more for the first rates
--   base_lrs     the rate of each group at the beginning
--   last_lr      the rate of each group now
--   and its options by name

local E = require "heed.nn.entries"
local core = require "heed.core"
local object = require "heed.utils.data.object"
local optimizer = require "heed.optim.optimizer"
local primitives = core.modules

local M = {}

-- ---- Options ----

-- An option is {name =, check = function(value, method, name, groups), default =}; without a default it must be given.

local function option(name, default, check) return { name = name, default = default, check = check } end

--- A finite number that `fits`, if given; `needed` says which do.
function M.number(name, default, fits, needed)
  return option(name, default, function(value, method, argument)
    return E.number(value, nil, method, argument, function(each)
      return each - each == 0 and (not fits or fits(each))
    end, needed or "a finite number")
  end)
end

function M.size(name, default)
  return option(name, default, function(value, method, argument) return E.size(value, nil, method, argument) end)
end

function M.count(name, default)
  return option(name, default, function(value, method, argument)
    local count = E.integer(value, nil, method, argument, "an integer, at least 0")
    if count < 0 then E.reject(method, argument, value, "an integer, at least 0") end
    return count
  end)
end

function M.flag(name, default)
  return option(name, default, function(value, method, argument) return E.boolean(value, nil, method, argument) end)
end

function M.choice(name, default, choices)
  return option(name, default, function(value, method, argument)
    E.check_choice(value, choices, method, argument)
    return value
  end)
end

--- A number for each group; one number stands for all of them.
function M.numbers(name, default)
  return option(name, default, function(value, method, argument, groups)
    local list = {}
    if not E.is_list(value) then
      E.number(value, nil, method, argument, nil, "a number, or a list of one for each group")
      for i = 1, #groups do list[i] = value end
      return list
    end
    for i = 1, #value do list[i] = E.number(value[i], nil, method, ("%s[%d]"):format(argument, i)) end
    if #list ~= #groups then
      E.fail("%s: %s has %s, and the optimiser %s", method, argument, E.count(#list, "number"),
        E.count(#groups, "group"))
    end
    return list
  end)
end

--- Integers in ascending order.
function M.milestones(name, default)
  return option(name, default, function(value, method, argument)
    if not E.is_list(value) then E.reject(method, argument, value, "a list of integers") end
    local list = {}
    for i = 1, #value do
      E.check_cancel(method)
      list[i] = E.integer(value[i], nil, method, ("%s[%d]"):format(argument, i))
    end
    E.sort(list, method)
    return list
  end)
end

--- Functions of the number of steps, one for each group; one function stands for all.
function M.functions(name)
  return option(name, nil, function(value, method, argument, groups)
    local list = {}
    if type(value) == "function" then
      for i = 1, #groups do list[i] = value end
      return list
    end
    if not E.is_list(value) then E.reject(method, argument, value, "a function, or a list of one for each group") end
    for i = 1, #value do
      list[i] = value[i]
      E.check_type(list[i], "function", method, ("%s[%d]"):format(argument, i))
    end
    if #list ~= #groups then
      E.fail("%s: %s has %s, and the optimiser %s", method, argument, E.count(#list, "function"),
        E.count(#groups, "group"))
    end
    return list
  end)
end

-- ---- Rates ----

--- The rates of all groups now.
function M.rates(values, method)
  local rates = {}
  if #values.groups ~= #values.base_lrs then
    E.fail("%s: the optimiser has %s; when the schedule was made it had %d", method,
      E.count(#values.groups, "group"), #values.base_lrs)
  end
  for i, group in ipairs(values.groups) do
    rates[i] = E.number(group.lr, nil, method, ("lr of param_groups[%d]"):format(i))
  end
  return rates
end

--- Rates f(rate now, base rate, i).
function M.each(values, method, f)
  local rates = M.rates(values, method)
  for i, rate in ipairs(rates) do rates[i] = f(rate, values.base_lrs[i], i) end
  return rates
end

--- Sets the rates; nothing here can fail.
function M.set(values, rates, epoch)
  for i, group in ipairs(values.groups) do group.lr = rates[i] end
  values.last_lr, values.last_epoch = rates, epoch
end

--- The number of sorted milestones that are at most `epoch`.
function M.passed(milestones, epoch)
  local count = 0
  while milestones[count + 1] and milestones[count + 1] <= epoch do count = count + 1 end
  return count
end

-- ---- Classes ----

--- The first rates, of epoch 0 (or later, with the option last_epoch).
function M.begin(values, definition)
  local epoch = values.last_epoch + 1
  local rates, apply = definition.rates(values, epoch, true)
  M.set(values, rates, epoch)
  if apply then apply() end
  values.step_count = 1
end

local function step(values, definition, ...)
  if select("#", ...) > 0 and not definition.takes then E.fail "step: an argument is given; it takes none" end
  if definition.step then return definition.step(values, ...) end
  local epoch = values.last_epoch + 1
  local rates, apply = definition.rates(values, epoch, false)
  M.set(values, rates, epoch)
  if apply then apply() end
  values.step_count = values.step_count + 1
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local list = {}
  for i = 1, #value do list[i] = value[i] end
  return list
end

local SHARED = { "last_epoch", "base_lrs", "last_lr", "step_count" }

local function fields_of(definition)
  local fields = {}
  for _, name in ipairs(SHARED) do fields[#fields + 1] = name end
  for _, each in ipairs(definition.options) do
    if not definition.functions or each.name ~= definition.functions then fields[#fields + 1] = each.name end
  end
  for _, name in ipairs(definition.fields or {}) do fields[#fields + 1] = name end
  return fields
end

local function state_dict(values, definition)
  local state = {}
  for _, name in ipairs(fields_of(definition)) do
    if name ~= "schedulers" then state[name] = copy(values[name]) end
  end
  if definition.parts then
    state.schedulers = {}
    for i, part in ipairs(values.schedulers) do state.schedulers[i] = part:state_dict() end
  end
  return state
end

--- Whether a value can replace the one of a field: of its type; a list with as many numbers.
local function fits(old, new)
  if old == nil then return new == nil or type(new) == "number" end
  if type(old) ~= "table" then return type(old) == type(new) end
  if type(new) ~= "table" or E.kind(new) or #new ~= #old then return false end
  for i = 1, #new do
    if type(new[i]) ~= "number" then return false end
  end
  return true
end

--- What load_state_dict is to set, by field, and those of the parts; raises if the state is of another schedule.
local function read_state(values, definition, state)
  local method, read, known = "load_state_dict", {}, { schedulers = definition.parts }
  if not E.is_list(state) then E.reject(method, "state", state, "a table that state_dict of a schedule gave") end
  for _, name in ipairs(fields_of(definition)) do
    known[name] = true
    local value = rawget(state, name)
    if name ~= "schedulers" then
      if not fits(values[name], value) and not (value == nil and definition.lacks == name) then
        E.fail("%s: the state is of another schedule than %s: %s is %s, here %s", method, definition.name, name,
          E.what(value), E.what(values[name]))
      end
      read[name] = copy(value)
    end
  end
  for key in next, state do
    if not known[key] then
      E.fail("%s: the state is of another schedule than %s, which has no %s", method, definition.name, tostring(key))
    end
  end
  if not definition.parts then return read end
  local parts = rawget(state, "schedulers")
  if not E.is_list(parts) or #parts ~= #values.schedulers then
    E.reject(method, "schedulers", parts, "a list of %s", E.count(#values.schedulers, "state"))
  end
  local read_parts = {}
  for i, part in ipairs(values.schedulers) do
    local own, class = M.of(part)
    read_parts[i] = { values = own, read = { read_state(own, class.definition, parts[i]) } }
  end
  return read, read_parts
end

local function set_state(values, read, parts)
  for name, value in next, read do values[name] = value end
  for _, part in ipairs(parts or {}) do set_state(part.values, part.read[1], part.read[2]) end
end

local function text_of(values, definition)
  local parts = {}
  for _, each in ipairs(definition.options) do
    local value = values[each.name]
    if type(value) == "number" then
      parts[#parts + 1] = each.name .. "=" .. E.what(value):gsub("^the number ", "")
    elseif type(value) == "boolean" then
      parts[#parts + 1] = each.name .. "=" .. (value and "True" or "False")
    elseif type(value) == "string" then
      parts[#parts + 1] = ("%s='%s'"):format(each.name, value)
    end
  end
  return ("%s(%s)"):format(definition.name, table.concat(parts, ", "))
end

--- The values of a schedule and its class; nil for anything else.
function M.of(value)
  local values, class = object.of(value)
  if class and class.definition then return values, class end
end

--- A function that makes schedules of a new class. definition:
--   name, options
--   rates(values, epoch, is_first)  the rates of that epoch, and perhaps a function that sets more, which cannot fail
--   closed(values, epoch)           the same without a look at the rates now; nil: rates
--   start(values)                   before the first rates: checks, and sets further values; nil: nothing
--   begin(values)                   in place of the first rates; step(values, …) in place of a step
--   fields                          values beside the options that belong to the state
--   lacks                           the field that may be nil
--   functions                       the option that does not, since it holds functions
--   takes                           step takes an argument
function M.define(definition)
  local name = definition.name
  local names = {}
  for i, each in ipairs(definition.options) do names[i] = each.name end
  names[#names + 1] = "last_epoch"
  local class = object.class("optim.lr_scheduler." .. name, { "optimizer", "last_epoch", "base_lrs" }, {
    step = function(values, ...) return step(values, definition, ...) end,
    get_last_lr = function(values) return copy(values.last_lr) end,
    state_dict = function(values) return state_dict(values, definition) end,
    prepare = function(values, state)
      local read, parts = read_state(values, definition, state)
      return function() set_state(values, read, parts) end
    end,
    tostring = function(values) return text_of(values, definition) end,
  }, { "step" })
  class.definition = definition
  return core.frame(function(given, ...)
    local read = { primitives.options(name, names, 2, given, ...) }
    local own = optimizer.of(given)
    if not own then E.reject(name, "optimizer", given, "an optimiser, such as heed.optim.SGD(m:parameters(), …)") end
    local last_epoch = E.integer(read[#names], -1, name, "last_epoch", "an integer, -1 or more")
    if last_epoch < -1 then E.reject(name, "last_epoch", last_epoch, "an integer, -1 or more") end
    local values = { optimizer = given, groups = own.param_groups, defaults = own.defaults, last_epoch = last_epoch,
      base_lrs = {}, step_count = 0 }
    for i, each in ipairs(definition.options) do
      local value = read[i]
      if value == nil then value = each.default end
      if value ~= nil or not each.optional then
        values[each.name] = each.check(value, name, each.name, values.groups)
      end
    end
    for i, group in ipairs(values.groups) do
      local rate = group.initial_lr
      if rate == nil and last_epoch >= 0 then
        E.fail("%s: param_groups[%d] has no initial_lr, which last_epoch = %d needs; load the optimiser's state first",
          name, i, last_epoch)
      end
      if rate == nil then rate = group.lr end
      values.base_lrs[i] = E.number(rate, nil, name, ("lr of param_groups[%d]"):format(i))
    end
    if definition.start then definition.start(values) end
    if definition.begin then definition.begin(values) else M.begin(values, definition) end
    for i, group in ipairs(values.groups) do group.initial_lr = values.base_lrs[i] end
    return class.new(values)
  end, true)
end

return M
