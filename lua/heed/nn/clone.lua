--- Deep copies of modules: m:clone().

local compat = require "heed.compat"
local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local primitives, Parameter = core.modules, core.nn.Parameter
local RECORD = E.RECORD

--- Whether a table can be copied with its metatable. Objects with a protected metatable are shared.
local function is_plain(value)
  if type(value) ~= "table" or E.record(value) then return false end
  local metatable = getmetatable(value)
  return metatable == nil or type(metatable) == "table" and rawget(metatable, "__metatable") == nil
end

--- Gives a copy the requires_grad of its original: a frozen parameter stays frozen. Returns the copy.
local function keep_flag(original, copied)
  local wanted = original.requires_grad and original.is_leaf and original.dtype == "float32"
  if copied.requires_grad ~= wanted then copied:requires_grad_(wanted) end
  return copied
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

  --- The copy of a tensor's elements.
  local function copy_elements(tensor)
    local _, identity = primitives.identity(tensor)
    -- detached: the copy of a parameter is a parameter, not a result of the original
    if not tensors[identity] then tensors[identity] = tensor:detach():clone() end
    return tensors[identity]
  end

  --- A new tensor object on it.
  local function copy_tensor(tensor, kind)
    if primitives.placeholder(tensor) then return tensor end
    return keep_flag(tensor, (kind == "parameter" and Parameter or primitives.plain)(copy_elements(tensor)))
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
          primitives.put(new, entry.name, primitives.plain(copy_elements(entry.value)))
          keep_flag(entry.value, new[entry.name])
        end
      end
      local kept = attached(original)
      if kept and kept.parallel then
        attached(new, true).parallel = kept.parallel
        if kept.parallel.connect then kept.parallel.connect(new) end
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
