--- The state of an optimiser as a table of tensors and plain values, and back.

local E = require "heed.nn.entries"
local kinds = require "heed.optim.kinds"
local groups = require "heed.optim.groups"
local core = require "heed.core"
local primitives = core.modules

local M = {}

local function copy_value(value)
  if type(value) ~= "table" or E.kind(value) then return value end
  local copy = {}
  for i = 1, #value do copy[i] = copy_value(value[i]) end
  return copy
end

-- ---- Saving ----

--- As PyTorch's: state[i] of parameter i, counted from 1 over all groups, and param_groups, where params are numbers.
--- The tensors are those of the optimiser, not copies.
function M.get(values)
  local state, param_groups, number = {}, {}, 0
  for g, group in ipairs(values.param_groups) do
    E.check_cancel "state_dict"
    local copy = {}
    for key, value in next, group do
      if key ~= "params" then copy[key] = copy_value(value) end
    end
    copy.params = {}
    for i = 1, values.sizes[g] do copy.params[i] = number + i end
    number = number + values.sizes[g]
    param_groups[g] = copy
  end
  for i = 1, #values.tensors do
    local entry
    for s, name in ipairs(values.kind.states) do
      local tensor = values.states[s][i]
      if tensor then
        entry = entry or { step = values.steps[i] }
        entry[name] = tensor
      end
    end
    state[i] = entry
  end
  return { state = state, param_groups = param_groups }
end

-- ---- Loading ----

local METHOD = "load_state_dict"
local MOST_PROBLEMS = 20

--- Raises one error with all problems, each a text.
local function refuse(problems)
  local more = #problems - MOST_PROBLEMS
  if more > 0 then
    for i = #problems, MOST_PROBLEMS + 1, -1 do problems[i] = nil end
    problems[#problems + 1] = ("and %d more"):format(more)
  end
  E.fail("%s: the state is of another model or optimiser:\n  %s", METHOD, table.concat(problems, "\n  "))
end

local function what_of(values, i) return values.names[i] and ("'%s'"):format(values.names[i]) or tostring(i) end

local function shape_text(x)
  local sizes = {}
  for d = 1, x.ndim do sizes[d] = tostring(x.shape[d]) end
  return "[" .. table.concat(sizes, ", ") .. "]"
end

local function is_tensor(value)
  local kind = primitives.kind(value)
  return kind == "tensor" or kind == "parameter"
end

--- The new tensor of a state, or false, after adding to the problems what is wrong with it.
local function read_tensor(values, i, name, value, problems)
  local x = values.tensors[i]
  local what = ("%s of parameter %s"):format(name, what_of(values, i))
  if not is_tensor(value) then
    problems[#problems + 1] = ("%s is %s; it must be a tensor"):format(what, E.what(value))
  elseif shape_text(value) ~= shape_text(x) then
    problems[#problems + 1] = ("%s is %s; it must be %s"):format(what, shape_text(value), shape_text(x))
  elseif value.dtype ~= "float32" then
    problems[#problems + 1] = ("%s is %s; it must be float32"):format(what, value.dtype)
  else
    return value
  end
  return false
end

--- The state of parameter i: its number of steps, and its tensors by number, false where there is none.
local function read_entry(values, group, i, entry, problems)
  local step, tensors = 0, {}
  for s in ipairs(values.kind.states) do tensors[s] = false end
  if entry == nil then return step, tensors end
  if not E.is_list(entry) then
    problems[#problems + 1] = ("the state of parameter %s is %s; it must be a table"):format(what_of(values, i),
      E.what(entry))
    return step, tensors
  end
  local known = { step = true }
  for s, name in ipairs(values.kind.states) do
    known[name] = true
    local value = rawget(entry, name)
    if value ~= nil then
      tensors[s] = read_tensor(values, i, name, value, problems)
    elseif values.kind.uses[s](group) then
      problems[#problems + 1] = ("parameter %s has no %s"):format(what_of(values, i), name)
    end
  end
  local unknown = {}
  for key in next, entry do
    if not known[key] then unknown[#unknown + 1] = tostring(key) end
  end
  if #unknown > 0 then
    E.sort(unknown, METHOD)
    problems[#problems + 1] = ("parameter %s has %s, which %s does not use"):format(what_of(values, i),
      table.concat(unknown, ", "), values.kind.name)
  end
  step = rawget(entry, "step")
  if step == nil and values.kind.restarts then step = 1 end -- PyTorch's SGD has none
  if is_tensor(step) and step:numel() == 1 then step = step:item() end
  if type(step) ~= "number" or step % 1 ~= 0 or step < 0 or step > 2 ^ 53 then
    problems[#problems + 1] = ("step of parameter %s is %s; it must be an integer, at least 0"):format(
      what_of(values, i), E.what(step))
    return 0, tensors
  end
  return math.floor(step), tensors
end

--- The new groups: their options, checked, with the optimiser's own parameters.
local function read_groups(values, given, problems)
  if #given ~= #values.sizes then
    problems[#problems + 1] = ("it has %s, the optimiser has %d"):format(E.count(#given, "group"), #values.sizes)
    return nil
  end
  local new = {}
  for g = 1, #given do
    local each, group = given[g], {}
    local suffix = (" of group %d"):format(g)
    if not E.is_list(each) then E.reject(METHOD, ("param_groups[%d]"):format(g), each, "a table") end
    local params, names = rawget(each, "params"), rawget(each, "param_names")
    local count = E.is_list(params) and #params or -1
    local own = values.param_groups[g]
    if count ~= values.sizes[g] then
      problems[#problems + 1] = ("group %d has %s, in the optimiser %d"):format(g, E.count(count, "parameter"),
        values.sizes[g])
    elseif E.is_list(names) and own.param_names then
      for i = 1, count do
        if names[i] ~= own.param_names[i] then
          problems[#problems + 1] = ("parameter %d of group %d is '%s', in the optimiser '%s'"):format(i, g,
            tostring(names[i]), own.param_names[i])
        end
      end
    end
    for _, option in ipairs(values.kind.options) do
      local value = rawget(each, option.name)
      if value == nil then value = own[option.name] end
      group[option.name] = copy_value(value)
    end
    for key in next, groups.OTHERS do
      if key ~= "params" and key ~= "param_names" then group[key] = copy_value(rawget(each, key)) end
    end
    kinds.check_group(values.kind, group, METHOD, suffix)
    new[g] = group
  end
  return new
end

--- Checks a state and copies its tensors; returns a function that takes it, and cannot fail.
function M.prepare(values, given)
  if not E.is_list(given) or not E.is_list(rawget(given, "state")) or not E.is_list(rawget(given, "param_groups")) then
    E.reject(METHOD, "state", given, "a table that state_dict of an optimiser gave, with state and param_groups")
  end
  local state, problems = rawget(given, "state"), {}
  local new = read_groups(values, rawget(given, "param_groups"), problems)
  if not new or #problems > 0 then refuse(problems) end
  local entries = {}
  for key, entry in next, state do
    local i = tonumber(key)
    if not i or i % 1 ~= 0 or i < 1 or i > #values.tensors then
      problems[#problems + 1] = ("it has a state of parameter %s; the optimiser has %s"):format(tostring(key),
        E.count(#values.tensors, "parameter"))
    else
      entries[i] = entry
    end
  end
  local steps, states, i = {}, {}, 0
  for s in ipairs(values.kind.states) do states[s] = {} end
  for g, size in ipairs(values.sizes) do
    for _ = 1, size do
      i = i + 1
      E.check_cancel(METHOD)
      local step, tensors = read_entry(values, new[g], i, entries[i], problems)
      steps[i] = step
      for s, tensor in ipairs(tensors) do states[s][i] = tensor end
    end
  end
  if #problems > 0 then refuse(problems) end
  for _, list in ipairs(states) do
    for k, tensor in ipairs(list) do
      E.check_cancel(METHOD)
      list[k] = tensor and tensor:detach():clone() or false
    end
  end
  return function()
    for g, group in ipairs(new) do
      local own = values.param_groups[g]
      for key in next, groups.OTHERS do
        if key ~= "params" and key ~= "param_names" then own[key] = group[key] end
      end
      for _, option in ipairs(values.kind.options) do own[option.name] = group[option.name] end
    end
    values.steps, values.states = steps, states
  end
end

return M
