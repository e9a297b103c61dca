--- The base class of Sequential and ModuleList: modules named "0", "1", … in state dicts, indexed from 1 in Lua.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local fail = E.fail

local Container = Module.class "Container"

local modules = E.parts

--- The position from 1 that a key stands for; negative keys count from the end. count + 1, one past the end, is valid.
local function position(self, key, count)
  if not compat.is_integer(key) then E.reject(E.class_name(self), "an index", key, "an integer") end
  local i = key < 0 and count + 1 + key or key
  if i < 1 or i > count + 1 then
    fail("%s: index %d is out of range; there %s %s, counted from 1", E.class_name(self), key,
      count == 1 and "is" or "are", E.count(count, "module"))
  end
  return i
end


--- Appends an element of the constructor's list: a module, or {name, module}, which PyTorch has in an OrderedDict.
local function add(self, value, i)
  local pair = type(value) == "table" and not E.is_module(value) and #value == 2 and type(value[1]) == "string"
  if not pair then return Container.append(self, value) end
  E.check_module(value[2], E.class_name(self), ("element %d, '%s',"):format(i, value[1]))
  if self[value[1]] ~= nil then
    fail("%s: the name '%s' is taken, by another element or a method; use another name", E.class_name(self), value[1])
  end
  self[value[1]] = value[2]
end

--- Container(a, b, …), Container{a, b, …}, or with names Container{{"a", a}, {"b", b}, …}.
function Container:init(...)
  E.check_self(self, "init")
  local first, list, count = (...), { ... }, select("#", ...)
  if count == 1 and type(first) == "table" and not E.is_module(first) then list, count = first, #first end
  for key in pairs(list) do
    E.check_cancel(E.class_name(self))
    if not compat.is_integer(key) or key < 1 or key > count then
      E.reject(E.class_name(self), "a key of the list", key, "an index from 1 to the length, %d", count)
    end
  end
  for i = 1, count do
    E.check_cancel(E.class_name(self))
    add(self, list[i], i)
  end
end

function Container:__len() return #modules(self) end

function Container:__index(key)
  local list = modules(self)
  local entry = list[position(self, key, #list)]
  return entry and entry.value
end

function Container:__newindex(key, value)
  local list = modules(self)
  local i = position(self, key, #list)
  E.check_module(value, E.class_name(self), ("element %d"):format(key))
  self[list[i] and list[i].name or tostring(i - 1)] = value
end

function Container:append(value)
  E.check_self(self, "append")
  if type(value) == "function" then
    E.reject(E.class_name(self), "the appended value", value, "a module; a constructor is called: nn.ReLU()")
  end
  E.check_module(value, E.class_name(self), "the appended value")
  self[tostring(#self)] = value
  return self
end

--- Appends all modules of a table or of another container.
function Container:extend(list)
  E.check_self(self, "extend")
  if type(list) ~= "table" and not E.is_module(list) then
    E.reject("extend", "list", list, "a list of modules")
  end
  for i = 1, #list do
    E.check_cancel "extend"
    self:append(list[i])
  end
  return self
end

--- Raises unless self is a container written in Lua: the module lists of built-in modules are fixed.
local function check_list(self, method)
  E.check_self(self, method)
  if not E.record(self) then
    E.reject(method, "self", self, "made by nn.ModuleList or nn.Sequential")
  end
end

--- Moves the module at `from` to `to`, and those in between by one. All of them are in the list already, so there is
--- nothing to check and nothing can fail halfway.
local function move(self, list, from, to)
  local fields, value, step = E.record(self).fields, list[from].value, from < to and 1 or -1
  for at = from, to - step, step do
    local entry, moved = list[at], list[at + step].value
    entry.value, fields[entry.name] = moved, moved
  end
  list[to].value, fields[list[to].name] = value, value
end

--- Inserts a module before the one at index i.
function Container:insert(i, value)
  check_list(self, "insert")
  i = position(self, i, #modules(self))
  E.check_module(value, E.class_name(self), "the inserted value")
  self:append(value)
  local list = modules(self)
  move(self, list, #list, i)
  return self
end

--- Removes the module at index i (by default the last) and returns it.
function Container:pop(i)
  check_list(self, "pop")
  local list = modules(self)
  i = position(self, i or -1, #list)
  if not list[i] then fail("%s: there is no module at index %d to remove", E.class_name(self), i) end
  move(self, list, i, #list)
  local last = list[#list]
  self[last.name] = nil
  return last.value
end

return E.with_frames(Container)
