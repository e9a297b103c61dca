--- nn.ParameterList and nn.ParameterDict: parameters that a module holds by number or by name.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local names = require "heed.nn.named_items"
local Parameter = core.nn.Parameter

--- "  (0): Parameter containing: [torch.float32 of size 2x3]", as PyTorch prints a list of them.
local function line(name, parameter, type_text)
  local sizes = {}
  for i = 1, parameter.ndim do sizes[i] = ("%d"):format(parameter.shape[i]) end
  return ("  (%s): Parameter containing: [torch.%s of size %s]"):format(name, type_text, table.concat(sizes, "x"))
end

local function lines_of(self, type_text)
  E.check_self(self, "extra_repr")
  local lines = {}
  for i, entry in ipairs(E.entries(self)) do
    E.check_cancel "tostring"
    lines[i] = line(entry.name, entry.value, type_text or entry.value.dtype)
  end
  return table.concat(lines, "\n")
end

-- ---- ParameterList ------------------------------------------------------------------------------

local ParameterList = Module.class "ParameterList"

--- Whether a value is a table of elements or another ParameterList.
local function is_source(value)
  return E.is_list(value) or E.is_module(value) and E.class_name(value) == "ParameterList"
end

function ParameterList:init(...)
  E.check_self(self, "init")
  local first, list = (...), { ... }
  if select("#", ...) == 1 and is_source(first) then list = first end
  ParameterList.extend(self, list)
end

local function as_parameter(value, argument)
  E.check_tensor(value, "ParameterList", argument)
  return Parameter(value)
end

--- The number from 1 of an element; negative ones count from the end.
local function position(self, key)
  local count = #E.entries(self)
  if not compat.is_integer(key) then E.reject("ParameterList", "an index", key, "an integer") end
  local i = key < 0 and count + 1 + key or key
  if i < 1 or i > count + 1 then
    E.fail("ParameterList: index %d is out of range; there %s %s, counted from 1", key, count == 1 and "is" or "are",
      E.count(count, "parameter"))
  end
  return i
end

function ParameterList:__len() return #E.entries(self) end

function ParameterList:__index(key)
  local entry = E.entries(self)[position(self, key)]
  return entry and entry.value
end

function ParameterList:__newindex(key, value)
  self[("%d"):format(position(self, key) - 1)] = as_parameter(value, ("element %d"):format(key))
end

function ParameterList:append(value)
  E.check_self(self, "append")
  self[("%d"):format(#E.entries(self))] = as_parameter(value, "the appended value")
  return self
end

--- Appends all tensors of a list; if one is refused, none is appended.
function ParameterList:extend(list)
  E.check_self(self, "extend")
  if not is_source(list) then E.reject("extend", "list", list, "a list of tensors") end
  local added = {}
  for i = 1, #list do
    E.check_cancel "extend"
    added[i] = as_parameter(list[i], ("element %d"):format(i))
  end
  for _, parameter in ipairs(added) do ParameterList.append(self, parameter) end
  return self
end

function ParameterList:forward() E.fail("ParameterList has no forward; use its parameters by number") end

function ParameterList:extra_repr() return lines_of(self) end

-- ---- ParameterDict ------------------------------------------------------------------------------

local ParameterDict = Module.class "ParameterDict"

names.add_methods(ParameterDict, "parameter", function(value, name)
  E.check_tensor(value, "ParameterDict", ("'%s'"):format(name))
  return Parameter(value)
end)

function ParameterDict:forward() E.fail("ParameterDict has no forward; use its parameters by name") end

function ParameterDict:extra_repr() return lines_of(self, "FloatTensor") end

return { ParameterList = E.with_frames(ParameterList), ParameterDict = E.with_frames(ParameterDict) }
