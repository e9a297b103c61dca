--- Objects of heed.utils.data: their values are under a private key, their methods and some values can be read.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local raw = compat.raw

local M = {}

local VALUES, KIND = {}, E.OBJECT_CLASS

--- Whose advice a class takes: all optimisers that of "heed.Optimizer", all schedules that of "heed.Scheduler".
local function owner_of(name)
  return "heed." .. (name:find "^optim%.lr_scheduler%." and "Scheduler" or name:find "^optim%." and "Optimizer" or name)
end

--- A key for messages, with what to write instead, or the nearest of the names, the keys of further arguments.
local function described(name, key, ...)
  if type(key) ~= "string" then return E.what(key) end
  return ("'%s'%s"):format(key, require("heed.suggest").hint(owner_of(name), key, ...))
end

--- A class of objects. name: without "heed."; readable: the names of the values that can be read; methods: called with
--- a colon, given the values instead of the object, framed. Optional methods: `len`, also for #x; `item`, for x[i];
--- `tostring`; `prepare(values, state)`, which checks a state and returns a function that takes it, and cannot fail:
--- load_state_dict calls both.
--- yields: the names of the methods that call user code.
function M.class(name, readable, methods, yields)
  local class = { name = name, meta = { __name = "heed." .. name } }
  local shown = {}
  for _, each in ipairs(readable) do shown[each] = true end
  local calls_out = { len = true }
  for _, each in ipairs(yields or {}) do calls_out[each] = true end

  local function values_of(self, method)
    if raw(self, KIND) ~= class then
      E.reject(method, "self", self, "a heed.%s; call the method with a colon", name)
    end
    return raw(self, VALUES)
  end

  local public, prepare = {}, methods.prepare
  class.prepare = prepare
  if prepare then
    public.load_state_dict = core.frame(function(self, state) prepare(values_of(self, "load_state_dict"), state)() end)
  end
  for key, f in pairs(methods) do
    if key ~= "item" and key ~= "tostring" and key ~= "prepare" then
      public[key] = core.frame(function(self, ...) return f(values_of(self, key), ...) end, calls_out[key])
    end
  end

  local item = methods.item and core.frame(function(self, i) return methods.item(values_of(self, name), i) end, true)
  function class.meta.__index(self, key)
    if public[key] then return public[key] end
    if shown[key] then return values_of(self, key)[key] end
    if type(key) == "number" and item then return item(self, key) end
    if type(key) == "string" and key:find "^_" then return nil end
    if type(key) == "number" and public.iter then
      E.fail("heed.%s: the index is %s; write for x, y in loader:iter() do", name, E.what(key))
    end
    E.fail("heed.%s: there is no method or field %s", name, described(name, key, public, shown))
  end
  class.meta.__newindex = core.frame(function(_, key)
    local given = require("heed.advice").names[owner_of(name)]
    given = given and given[key]
    E.fail("heed.%s: the field %s cannot be set; %s", name,
      type(key) == "string" and ("'%s'"):format(key) or E.what(key), given or "make a new object")
  end)
  if public.iter then -- for x in loader do
    class.meta.__call = core.frame(function()
      E.fail("heed.%s: it is called; write for x, y in loader:iter() do", name)
    end)
    function class.meta.__pairs() -- level 3: whoever called pairs
      error(("heed.%s: pairs is called; write for x, y in loader:iter() do"):format(name), 3)
    end
  end
  if methods.len then class.meta.__len = function(self) return public.len(self) end end
  class.meta.__tostring = core.frame(function(self)
    local values = values_of(self, name)
    return methods.tostring and methods.tostring(values) or "heed." .. name
  end)

  function class.new(values) return compat.object({ [VALUES] = values, [KIND] = class }, class.meta) end
  return class
end

--- The values of an object and its class; nil for anything else.
function M.of(value)
  local values = raw(value, VALUES)
  if values then return values, raw(value, KIND) end
end

--- Whether a value is a table that is no object of heed's.
function M.is_list(value) return E.is_list(value) and not raw(value, VALUES) end

--- The values of an object of that class; nil for anything else.
function M.is(value, class) return raw(value, KIND) == class and raw(value, VALUES) or nil end

-- ---- Arguments ----

--- Raises unless the value is a generator or nil.
function M.check_generator(value, method)
  if value ~= nil and not E.is_generator(value) then
    E.reject(method, "generator", value, "a heed.Generator")
  end
  return value
end

--- Raises unless the value is a state of that generator or nil.
function M.check_state(value, generator, method)
  if value == nil then return end
  if type(value) ~= "string" then E.reject(method, "state.generator", value, "the state of a generator") end
  generator:clone():set_state(value)
end

--- The index from 1 of item i of n; negative indices count from the last.
function M.index(i, n, method)
  local index = type(i) == "number" and i % 1 == 0 and (i < 0 and n + 1 + i or i) or nil
  if not index or index < 1 or index > n then
    if n == 0 then E.fail("%s: index is %s; there are no items", method, E.what(i)) end
    E.reject(method, "index", i, "an integer from 1 to %d, the number of items", n)
  end
  return math.floor(index)
end

return M
