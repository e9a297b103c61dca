--- What Sequential and ModuleList share: modules under the names "0", "1", …, counted from 1 in Lua.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local fail = E.fail

local Container = Module.class "Container"

local modules = E.parts

--- The place that a key means; count + 1 is allowed, for what comes behind the last.
local function place(self, key, count)
  if not compat.is_integer(key) then
    fail("%s: an index must be an integer, got %s", E.class_name(self), E.what(key))
  end
  local i = key < 0 and count + 1 + key or key
  if i < 1 or i > count + 1 then
    fail("%s: index %d is out of range; there %s %s, counted from 1", E.class_name(self), key,
      count == 1 and "is" or "are", E.count(count, "module"))
  end
  return i
end

local function check_module(self, value, role)
  if not E.is_module(value) then
    fail("%s: %s must be a module, got %s", E.class_name(self), role, E.what(value))
  end
  return value
end

--- Container(a, b, …) or Container{a, b, …}
function Container:init(...)
  E.check_self(self, "init")
  local first, list, count = (...), { ... }, select("#", ...)
  if count == 1 and type(first) == "table" and not E.is_module(first) then list, count = first, #first end
  for key in pairs(list) do
    E.look(E.class_name(self))
    if not compat.is_integer(key) or key < 1 or key > count then
      fail("%s: the modules must be a list, got one at %s", E.class_name(self), E.what(key))
    end
  end
  for i = 1, count do
    E.look(E.class_name(self))
    Container.append(self, list[i])
  end
end

function Container:__len() return #modules(self) end

function Container:__index(key)
  local list = modules(self)
  local entry = list[place(self, key, #list)]
  return entry and entry.value
end

function Container:__newindex(key, value)
  local list = modules(self)
  local i = place(self, key, #list)
  self[list[i] and list[i].name or tostring(i - 1)] = check_module(self, value, ("element %d"):format(key))
end

function Container:append(value)
  E.check_self(self, "append")
  self[tostring(#self)] = check_module(self, value, "what is appended")
  return self
end

--- Appends all modules of a table or of another container.
function Container:extend(list)
  E.check_self(self, "extend")
  if type(list) ~= "table" and not E.is_module(list) then
    fail("%s: extend needs a list of modules, got %s", E.class_name(self), E.what(list))
  end
  for i = 1, #list do
    E.look "extend"
    self:append(list[i])
  end
  return self
end

--- Raises unless self is a list whose modules can be moved: those of built-in ones stay where they are.
local function check_list(self, method)
  E.check_self(self, method)
  if not E.record(self) then
    fail("%s: self must be made by nn.ModuleList or nn.Sequential, got %s", method, E.what(self))
  end
end

--- Moves the module at `from` to `to`, and those between by one. They are in the list already: there is nothing to
--- check, and nothing fails on the way.
local function move(self, list, from, to)
  local fields, value, step = E.record(self).fields, list[from].value, from < to and 1 or -1
  for at = from, to - step, step do
    local entry, moved = list[at], list[at + step].value
    entry.value, fields[entry.name] = moved, moved
  end
  list[to].value, fields[list[to].name] = value, value
end

--- Puts a module before the one at index i; those from there on move up.
function Container:insert(i, value)
  check_list(self, "insert")
  i = place(self, i, #modules(self))
  check_module(self, value, "what is inserted")
  self:append(value)
  local list = modules(self)
  move(self, list, #list, i)
  return self
end

--- Takes the module at index i (the last) out and returns it; those behind move down.
function Container:pop(i)
  check_list(self, "pop")
  local list = modules(self)
  i = place(self, i or -1, #list)
  if not list[i] then fail("%s: there is no module at index %d to take out", E.class_name(self), i) end
  move(self, list, i, #list)
  local last = list[#list]
  self[last.name] = nil
  return last.value
end

return E.with_frames(Container)
