--- User-defined modules: `local Mine = nn.Module.class "Mine"`, `function Mine:init(…)`, `function Mine:forward(x)`.
---
--- A class is a table of methods that inherits from its parent class and finally from Module. All fields of an object
--- are stored in its record (heed.nn.entries), so that every assignment goes through __newindex: parameters, modules
--- and buffers become entries, in the order of first assignment.

local compat = require "heed.compat"
local core = require "heed.core"
local declared = require "heed.nn.declared_points"
local E = require "heed.nn.entries"
local hooks = require "heed.nn.hooks"
local nesting = require "heed.nn.nesting"
local protocol = require "heed.nn.protocol"
local primitives, Parameter = core.modules, core.nn.Parameter
local RECORD, fail, held = E.RECORD, E.fail, compat.held

-- ---- Fields -------------------------------------------------------------------------------------

local ENTRY_KINDS = { parameter = true, buffer = true, module = true }

--- Whether `part`, a module written in Lua, is `module` or inside of it. The flag `inside` saves the walk for modules
--- that were never assigned to another one, as when a model is built from the inside out.
local contains = core.frame(function(module, part)
  if module == part then return true end
  local found = false
  if not E.record(part).inside then return found end
  E.walk(module, "", E.class_name(part), {}, function(each)
    found = found or each == part
    return found or not E.record(each) and not primitives.holds_own(each)
  end)
  return found
end)

local function remove_entry(own, entry)
  local parts = own.parts
  own.named[entry.name] = nil
  if parts and parts[#parts] == entry then parts[#parts] = nil else own.parts = nil end
  for i = #own.list, 1, -1 do -- usually it is the last
    if own.list[i] == entry then return table.remove(own.list, i) end
  end
end

--- Stores value under a name as an entry of that kind. An existing entry of the same kind keeps its position.
local function put_entry(own, name, kind, value)
  local entry = own.named[name]
  if entry and entry.kind ~= kind then
    remove_entry(own, entry)
    entry = nil
  end
  if not entry then
    if name == "" or name:find(".", 1, true) then
      fail("%s: the name of a %s is '%s'; it must not be empty or contain a dot", own.class[RECORD].name, kind, name)
    end
    entry = { name = name, kind = kind }
    own.list[#own.list + 1], own.named[name] = entry, entry
    if own.parts and kind == "module" then own.parts[#own.parts + 1] = entry end
  end
  entry.value, own.fields[name] = value, value
  return entry
end

--- The assignment m.name = value.
local function set_field(self, name, value)
  local own = E.record(self)
  local class_name = own.class[RECORD].name
  local entry, kind = own.named[name], E.kind(value)
  if entry and kind == "tensor" and entry.kind ~= "module" then
    kind = entry.kind
    if kind == "parameter" then value = Parameter(value) end
  end
  if kind == "module" and contains(value, self) then
    fail("%s: %s is a module that contains this one; it must be a module that does not", class_name, name)
  end
  if ENTRY_KINDS[kind] then
    local part = kind == "module" and E.record(value)
    if part then part.inside = true end
    put_entry(own, name, kind, value)
  elseif entry and value ~= nil then
    E.reject(class_name, name, value, "a %s, which it was before, or nil", entry.kind)
  else
    if entry then remove_entry(own, entry) end
    own.fields[name] = value
  end
end

--- self:forward(...), without a frame of its own: the call has one.
local function forward_of(self, ...)
  local forward = self.forward
  return (E.unframed[forward] or forward)(self, ...)
end

local function call_with_hooks(self, ...) return hooks.call(self, forward_of, ...) end

--- The metatable of a class's objects. String keys are fields. A class may define __index(self, key) and
--- __newindex(self, key, value) for other keys, __len(self) and __pairs(self).
local function object_metatable(class)
  return {
    __name = class[RECORD].name,
    __metatable = class,

    __index = function(self, key)
      local value = (held and held(self) or self)[RECORD].fields[key]
      if value == nil then value = class[key] end
      if value == nil and type(key) ~= "string" and class.__index then return class.__index(self, key) end
      return value
    end,

    __newindex = function(self, key, value)
      if key == "training" then
        E.check_type(value, "boolean", class[RECORD].name, "training")
        self:train(value)
      elseif type(key) == "string" then
        set_field(self, key, value)
      elseif class.__newindex then
        class.__newindex(self, key, value)
      elseif key == nil or key ~= key then
        fail("%s: a field's name is %s; it must not be nil or nan", class[RECORD].name, tostring(key))
      else
        E.record(self).fields[key] = value
      end
    end,

    __call = core.frame(function(self, ...)
      local attached = (held and held(self) or self)[RECORD].attached
      return nesting.call(self, attached and attached.hooks and call_with_hooks or forward_of, ...)
    end, true),
    __tostring = function(self) return self:__tostring() end,
    __pairs = function(self)
      if class.__pairs then return class.__pairs(self) end
      return next, E.record(self).fields, nil
    end,

    __len = function(self)
      if not class.__len then fail("len: %s has no length", class[RECORD].name) end
      return class.__len(self)
    end,
  }
end

-- ---- Classes ------------------------------------------------------------------------------------

local function construct(class, ...)
  local own = { class = class, fields = { training = true }, list = {}, named = {} }
  local object = compat.object({ [RECORD] = own }, class[RECORD].metatable)
  object:init(...)
  return object
end

local function new_class(name, parent)
  local class = { [RECORD] = { name = name } }
  class[RECORD].metatable = object_metatable(class)
  return setmetatable(class, {
    __name = "heed.Class",
    __index = parent,
    __call = core.frame(construct, true),
    __tostring = function() return ("class %s"):format(name) end,
  })
end

local Module = new_class "Module"

--- A new class of modules, derived from `parent` (by default Module).
function Module.class(name, parent)
  E.check_type(name, "string", "class", "name")
  local record = E.record(parent)
  if parent ~= nil and not (record and record.metatable) then
    E.reject("class", "parent", parent, "a class made by nn.Module.class")
  end
  return new_class(name, parent or Module)
end

function Module:init(...)
  E.check_self(self, "init")
  if select("#", ...) > 0 then
    local name = E.class_name(self)
    fail("%s takes no arguments; define `function %s:init(...) ... end` to accept some", name, name)
  end
end

function Module:forward()
  E.check_self(self, "forward")
  local name = E.class_name(self)
  fail("%s has no forward; define `function %s:forward(x) ... end`", name, name)
end

local BUFFER_OPTIONS = { "persistent" }

--- Registers a tensor that belongs to the module's state without being a parameter.
function Module:register_buffer(name, tensor, ...)
  local own = E.record(self)
  if not (own and own.fields) then
    E.reject("register_buffer", "self", self, "a module written in Lua")
  end
  local persistent = primitives.options("register_buffer", BUFFER_OPTIONS, 4, self, name, tensor, ...)
  E.check_type(name, "string", "register_buffer", "name")
  persistent = E.boolean(persistent, true, "register_buffer", "persistent")
  local kind, entry = E.kind(tensor), own.named[name]
  if kind ~= "tensor" and kind ~= "parameter" then
    E.reject("register_buffer", "tensor", tensor, "a tensor")
  end
  if own.fields[name] ~= nil and not (entry and entry.kind == "buffer") then
    fail("register_buffer: %s already has a field '%s'; use another name", E.class_name(self), name)
  end
  put_entry(own, name, "buffer", tensor).persistent = persistent
end

--- The name and own record for a method that registers something on a module written in Lua.
local function check_register(self, name, method)
  local own = E.record(self)
  if not (own and own.fields) then E.reject(method, "self", self, "a module written in Lua") end
  E.check_type(name, "string", method, "name")
  return own
end

--- Registers a module as the part self[name], as an assignment does.
function Module:add_module(name, module)
  check_register(self, name, "add_module")
  if module ~= nil then E.check_module(module, "add_module", "module") end
  set_field(self, name, module)
end
Module.register_module = Module.add_module

--- Registers a tensor as the parameter self[name], as an assignment of nn.Parameter(tensor) does.
function Module:register_parameter(name, tensor)
  check_register(self, name, "register_parameter")
  if tensor ~= nil then
    E.check_tensor(tensor, "register_parameter", "tensor")
    tensor = Parameter(tensor)
  end
  set_field(self, name, tensor)
end

E.with_frames(Module)

--- x, which is the value of the point `name` of the class's `points`, or what the listeners of the point change it to.
--- Without a frame, since every forward calls it.
function Module:point(name, x)
  local own = E.record(self)
  local attached = own and own.attached
  if attached and attached.points then return declared.point(self, name, x, attached.points) end
  if not (own and own.fields) then E.reject("point", "self", self, "a module written in Lua") end
  return x
end

for name, method in pairs(protocol) do Module[name] = method end -- these have frames already
primitives.install(protocol)

-- Methods whose file is loaded when one of them is first called.
local late, LATE = {}, {
  ablate = "surgery", patch = "surgery", on_weights = "surgery",
  explain = "explain", check = "check", verify = "verify",
}
for name, file in pairs(LATE) do
  late[name] = function(...) return require("heed.nn." .. file)[name](...) end
end
primitives.install(E.with_frames(late, "explain", "verify"))

return Module
