--- The optimisers as objects. One step changes all parameters in C, in one pass.
--
-- values of an optimiser:
--   kind           its entry in heed.optim.kinds
--   param_groups   a list of groups, which the user may change: {params = list, lr =, …}
--   sizes          the number of parameters of each group
--   tensors        the parameters of all groups
--   names          the name or false of each
--   steps          how many steps each has made
--   states         for each of the kind's states a list: a tensor, or false before the first step with a gradient

local core = require "heed.core"
local E = require "heed.nn.entries"
local groups = require "heed.optim.groups"
local kinds = require "heed.optim.kinds"
local object = require "heed.utils.data.object"
local state = require "heed.optim.state"
local primitives = core.modules

local M = {}

-- ---- Groups ----

--- Adds groups, which groups.read gave, after checking all of them: all or none.
local function add_groups(values, new, method, numbered)
  local tensors, names, at = {}, {}, #values.tensors
  for i = 1, at do tensors[i], names[i] = values.tensors[i], values.names[i] end
  for g, group in ipairs(new) do
    for _, option in ipairs(values.kind.options) do
      if group[option.name] == nil then group[option.name] = values.defaults[option.name] end
    end
    kinds.check_group(values.kind, group, method, numbered and (" of group %d"):format(g) or "")
    for i, tensor in ipairs(group.params) do
      at = at + 1
      tensors[at], names[at] = tensor, group.param_names and group.param_names[i] or false
    end
  end
  groups.check_twice(tensors, names, method)
  for _, group in ipairs(new) do
    values.param_groups[#values.sizes + 1] = group
    values.sizes[#values.sizes + 1] = #group.params
  end
  for i = #values.tensors + 1, at do
    values.steps[i] = 0
    for _, list in ipairs(values.states) do list[i] = false end
  end
  values.tensors, values.names = tensors, names
end

--- Raises if param_groups is not what the optimiser knows; what may change are the options.
local function check_groups(values, method)
  local list, at = values.param_groups, 0
  if #list ~= #values.sizes then
    E.fail("%s: param_groups has %s; the optimiser has %d: use add_param_group", method, E.count(#list, "group"),
      #values.sizes)
  end
  for g, size in ipairs(values.sizes) do
    local params = type(list[g]) == "table" and rawget(list[g], "params")
    local same = type(params) == "table" and #params == size
    for i = 1, same and size or 0 do same = same and rawequal(rawget(params, i), values.tensors[at + i]) end
    if not same then
      E.fail("%s: the parameters of param_groups[%d] were changed; use add_param_group, or a new optimiser", method, g)
    end
    at = at + size
  end
end

-- ---- Steps ----

local function read_options(values)
  local list, names = {}, nil
  local function add(...)
    for i = 1, names do list[#list + 1] = (select(i, ...)) end
  end
  for g, group in ipairs(values.param_groups) do
    kinds.check_group(values.kind, group, "step", #values.sizes > 1 and (" of group %d"):format(g) or "")
    names = select("#", values.kind.values(group))
    add(values.kind.values(group))
  end
  return list
end

--- States of zeros for parameters that have none: all of them, or none.
local function make_states(values, numbers)
  local group_of, g, last = {}, 0, 0
  for i = 1, #values.tensors do
    while i > last do
      g = g + 1
      last = last + values.sizes[g]
    end
    group_of[i] = values.param_groups[g]
  end
  local made = {}
  for _, i in ipairs(numbers) do
    E.check_cancel "step"
    for s, list in ipairs(values.states) do
      if not list[i] and values.kind.uses[s](group_of[i]) then
        made[#made + 1] = { list = list, i = i, tensor = core.zeros(values.tensors[i].shape) }
      end
    end
  end
  for _, each in ipairs(made) do
    each.list[each.i] = each.tensor
    if values.kind.restarts then values.steps[each.i] = 0 end
  end
end

local NO_STATES = {}

local methods = {}

function methods.step(values, ...)
  local closure, count = (...), select("#", ...)
  if count > 1 then E.fail("step: %d arguments are given; it takes one, a function", count) end
  local loss
  if closure ~= nil then
    E.check_type(closure, "function", "step", "closure")
    loss = closure()
  end
  check_groups(values, "step")
  local list = read_options(values)
  while true do
    local states = values.states
    local missing = primitives.optimizer_step(values.kind.number, list, values.sizes, values.tensors, values.steps,
      states[1] or NO_STATES, states[2] or NO_STATES, states[3] or NO_STATES)
    if not missing then return loss end
    make_states(values, missing)
  end
end

function methods.zero_grad(values, ...)
  local set_to_none = primitives.options("zero_grad", { "set_to_none" }, 1, ...)
  if E.boolean(set_to_none, true, "zero_grad", "set_to_none") then return primitives.forget_grads(values.tensors) end
  for _, x in ipairs(values.tensors) do
    E.check_cancel "zero_grad"
    local grad = x.grad
    if grad then x.grad = core.zeros(grad.shape) end
  end
end

function methods.add_param_group(values, group)
  check_groups(values, "add_param_group")
  add_groups(values, { groups.read_one(values.kind, group, "add_param_group") }, "add_param_group")
end

function methods.state_dict(values)
  check_groups(values, "state_dict")
  return state.get(values)
end

function methods.prepare(values, given)
  check_groups(values, "load_state_dict")
  return state.prepare(values, given)
end

-- ---- Text ----

--- A number as Python writes it.
local function number_text(value)
  if value == math.huge then return "inf" end
  if value % 1 == 0 and math.abs(value) < 1e15 then return ("%d"):format(value) end
  return (E.what(value):gsub("^the number ", ""))
end

local function value_text(value)
  if type(value) == "boolean" then return value and "True" or "False" end
  if type(value) == "number" then return number_text(value) end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for i = 1, #value do parts[i] = value_text(value[i]) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

function methods.tostring(values)
  local lines = { values.kind.name .. " (" }
  for g, group in ipairs(values.param_groups) do
    E.check_cancel "tostring"
    if g > 1 then lines[#lines + 1] = "" end
    lines[#lines + 1] = ("Parameter Group %d"):format(g - 1)
    local keys = {}
    for key in next, group do
      if key ~= "params" and key ~= "param_names" then keys[#keys + 1] = tostring(key) end
    end
    E.sort(keys, "tostring")
    for _, key in ipairs(keys) do lines[#lines + 1] = ("    %s: %s"):format(key, value_text(group[key])) end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

-- ---- Classes ----

for name, kind in pairs(kinds) do
  if type(kind) == "table" then
    local class = object.class("optim." .. name, { "param_groups", "defaults" }, methods,
      { "step", "add_param_group" })
    class.optimizer = true
    M[name] = core.frame(function(parameters, ...)
      local given, defaults = { primitives.options(name, kind.names, 2, parameters, ...) }, {}
      for i, option in ipairs(kind.options) do
        local value = given[i]
        if value == nil then value = option.default end
        defaults[option.name] = option.check(value, name, option.name)
      end
      if kind.check then kind.check(defaults, name, "") end
      local values = { kind = kind, defaults = defaults, param_groups = {}, sizes = {}, tensors = {}, names = {},
        steps = {}, states = {} }
      for s in ipairs(kind.states) do values.states[s] = {} end
      local new = groups.read(kind, parameters, name)
      add_groups(values, new, name, #new > 1)
      return class.new(values)
    end, true)
  end
end

--- The values of an optimiser; nil for anything else.
function M.of(value)
  local values, class = object.of(value)
  return class and class.optimizer and values or nil
end

return M
