--- Deep copies of modules: m:clone().

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives, Parameter = core.modules, core.nn.Parameter
local RECORD = E.RECORD

--- Whether a table can be copied with its metatable. Objects with a protected metatable are shared.
local function is_plain(value)
  if type(value) ~= "table" or E.record(value) then return false end
  local metatable = getmetatable(value)
  return metatable == nil or type(metatable) == "table" and rawget(metatable, "__metatable") == nil
end

--- A deep copy of a module. Tensors that share all their elements, parts, and tables that occur several times inside
--- the module are copied once. Everything else in the fields of modules written in Lua is shared: functions,
--- generators, caches, classes. Iterative, so that depth is unbounded: a copy is made empty and filled later.
local function clone(module)
  local copies, tensors = {}, {} -- original → copy; the identity of a tensor's elements → copy
  local queue, count = {}, 0 -- functions that fill copies

  local function later(fill)
    count = count + 1
    queue[count] = fill
  end

  --- Makes a copy want a gradient if the original does, unless it was computed.
  local function take_wish(new, original)
    local wants = original.is_leaf and original.requires_grad
    if new.requires_grad ~= wants then new:requires_grad_(wants) end
  end

  --- A new tensor object on the copy of a tensor's elements, without what computed it.
  local function copy_tensor(tensor, kind)
    if primitives.placeholder(tensor) then return tensor end
    local _, identity = primitives.identity(tensor)
    if not tensors[identity] then tensors[identity] = tensor:detach():clone() end
    local new = (kind == "parameter" and Parameter or primitives.plain)(tensors[identity])
    take_wish(new, tensor)
    return new
  end

  local copy

  --- A copy of a module written in Lua.
  local function copy_own(original, own)
    local new = { class = own.class, fields = {}, list = {}, named = {}, inside = original ~= module or nil }
    copies[original] = compat.object({ [RECORD] = new }, own.class[RECORD].metatable)
    later(function()
      for i, entry in ipairs(own.list) do
        if i % 1024 == 0 then E.check_cancel "clone" end
        local value = copy(entry.value, entry.kind)
        local fresh = { name = entry.name, kind = entry.kind, persistent = entry.persistent, value = value }
        new.list[i], new.named[entry.name], new.fields[entry.name] = fresh, fresh, value
      end
      new.parts = nil -- which another module may have computed before
      for name, value in pairs(own.fields) do
        if not new.named[name] then new.fields[name] = copy(value) end
      end
    end)
    return copies[original]
  end

  --- A copy of a built-in module.
  local function copy_built_in(original)
    local new = primitives.shallow_copy(original)
    copies[original] = new
    later(function()
      for i, entry in ipairs(E.entries(original)) do
        if i % 1024 == 0 then E.check_cancel "clone" end
        if entry.kind == "module" then
          new[entry.name] = copy(entry.value)
        elseif not primitives.placeholder(entry.value) then
          primitives.put(new, entry.name, copy_tensor(entry.value))
          take_wish(new[entry.name], entry.value)
        end
      end
    end)
    return new
  end

  local function copy_table(original)
    local new = {}
    copies[original] = new
    later(function()
      local seen = 0
      for key, value in next, original do
        seen = seen + 1
        if seen % 1024 == 0 then E.check_cancel "clone" end
        new[copy(key)] = copy(value)
      end
      local metatable = getmetatable(original)
      if metatable then setmetatable(new, metatable) end
    end)
    return new
  end

  function copy(value, kind)
    if copies[value] then return copies[value] end
    local own, found = E.record(value), E.kind(value)
    if found == "module" then return own and copy_own(value, own) or copy_built_in(value) end
    if found then return copy_tensor(value, kind == "buffer" and "tensor" or found) end
    return is_plain(value) and copy_table(value) or value
  end

  local result = copy(module)
  local done = 0
  while done < count do
    E.check_cancel "clone"
    done = done + 1
    queue[done]()
    queue[done] = nil
  end
  return result
end

return clone
