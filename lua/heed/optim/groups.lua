--- What is given to an optimiser: tensors, or groups of tensors with options of their own.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

local M = {}

-- Fields of a group beside the optimiser's options; schedules set initial_lr.
local OTHERS = { params = true, param_names = true, name = true, initial_lr = true }
M.OTHERS = OTHERS

local NEEDED = "tensors: m:parameters(), a list, or a list of groups {params = …, lr = …}"

local function is_tensor(value)
  local kind = primitives.kind(value)
  return kind == "tensor" or kind == "parameter"
end

-- ---- Tensors ----

--- Raises unless the tensor can learn.
local function check_tensor(x, method, what)
  if not is_tensor(x) then
    E.reject(method, what, x, E.is_module(x) and "a tensor; m:parameters() gives those of a module" or "a tensor")
  end
  if x.dtype ~= "float32" then E.fail("%s: %s is %s; it must be float32", method, what, x.dtype) end
  if primitives.placeholder(x) then
    E.fail("%s: %s has no elements yet (skip_init); load the weights before making the optimiser", method, what)
  end
  if not x.is_leaf then
    E.fail("%s: %s is the result of a recorded operation (grad_fn=%s); it must be a leaf; use "
      .. "x:detach():requires_grad_()", method, what, tostring(x.grad_fn))
  end
  if not x.requires_grad and not x.is_parameter then
    E.fail("%s: %s does not require a gradient; use nn.Parameter(x) or x:requires_grad_()", method, what)
  end
end

--- The tensors, and their names or nil, of an iterator (m:parameters(), m:named_parameters()), a tensor or a list.
local function read_tensors(given, method, argument)
  local tensors, names = {}, {}
  local function add(first, second)
    local named = type(first) == "string" and second ~= nil
    tensors[#tensors + 1] = named and second or first
    names[#tensors] = named and first or false
  end
  if type(given) == "function" then
    local first, second = given()
    while first ~= nil do
      E.check_cancel(method)
      add(first, second)
      first, second = given()
    end
  elseif is_tensor(given) then
    add(given)
  elseif E.is_list(given) then
    for i = 1, #given do
      E.check_cancel(method)
      local each = given[i]
      if E.is_list(each) and type(each[1]) == "string" then add(each[1], each[2]) else add(each) end
    end
  else
    E.reject(method, argument, given, E.is_module(given) and NEEDED .. "; use m:parameters()" or NEEDED)
  end
  local named = #names > 0
  for i, each in ipairs(tensors) do
    E.check_cancel(method)
    check_tensor(each, method, names[i] and ("parameter '%s'"):format(names[i]) or ("parameter %d"):format(i))
    named = named and names[i] ~= false
  end
  return tensors, named and names or nil
end

-- ---- Groups ----

--- A new group of the fields of `given`, which have been read, without its options.
local function read_group(kind, given, method, suffix)
  local group, options = {}, {}
  for key, value in next, given do
    if type(key) ~= "string" then
      E.fail("%s: params%s has the key %s; use {params = …}", method, suffix, E.what(key))
    end
    if not OTHERS[key] then options[key] = value end
    group[key] = value
  end
  primitives.options(method, kind.names, 1, options) -- raises for unknown ones
  if group.params == nil then
    E.fail("%s: params%s is nil; it must be m:parameters() or a list of tensors", method, suffix)
  end
  group.params, group.param_names = read_tensors(group.params, method, "params" .. suffix)
  if #group.params == 0 then
    E.fail("%s: params%s is empty; there must be at least one parameter", method, suffix)
  end
  return group
end

--- The groups in what was given to an optimiser, without the options that they do not set.
function M.read(kind, given, method)
  local first = E.is_list(given) and given[1] or nil
  if not (E.is_list(first) and type(first[1]) ~= "string") then
    if E.is_list(given) and given.params ~= nil then return { read_group(kind, given, method, "") } end
    local tensors, names = read_tensors(given, method, "parameters")
    if #tensors == 0 then E.fail("%s: there are no parameters; there must be at least one", method) end
    return { { params = tensors, param_names = names } }
  end
  local groups = {}
  for i = 1, #given do
    local each = given[i]
    if not E.is_list(each) then
      E.reject(method, ("group %d"):format(i), each, "a table such as {params = m:parameters(), lr = 1e-4}")
    end
    groups[i] = read_group(kind, each, method, (" of group %d"):format(i))
  end
  return groups
end

--- One group for add_param_group.
function M.read_one(kind, given, method)
  if not E.is_list(given) then
    E.reject(method, "group", given, "a table such as {params = m:parameters(), lr = 1e-4}")
  end
  return read_group(kind, given, method, "")
end

--- Raises if a parameter is in the list twice, also as another object; `names` has a name or false for each.
function M.check_twice(tensors, names, method)
  local first, second = primitives.find_twice(tensors, method)
  if not first then return end
  local function what(i) return names[i] and ("'%s'"):format(names[i]) or tostring(i) end
  E.fail("%s: parameters %s and %s are the same tensor; each must be listed once", method, what(first), what(second))
end

return M
