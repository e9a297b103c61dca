--- heed.StateCache: what a module with a recurrent state remembers of the tokens so far. Unlike a heed.Cache it has one
--- size however long the sequence is, and cannot go back to an earlier token.

local core = require "heed.core"
local E = require "heed.nn.entries"

local StateCache = { __name = "heed.StateCache" }
local methods = {}
local FIELDS = { length = true, batch = true, conv_state = true, state = true }
local VALUES = {} -- key of the raw field with the values of these

--- A cache of `batch` sequences without tokens.
local function new(batch, conv_state, state, length)
  local values = { length = length or 0, batch = batch, conv_state = conv_state, state = state }
  return setmetatable({ [VALUES] = values }, StateCache)
end

local function is_cache(value) return type(value) == "table" and getmetatable(value) == StateCache end

local function values_of(self, method)
  if not is_cache(self) then E.reject(method, "self", self, "a heed.StateCache; call the method with a colon") end
  return rawget(self, VALUES)
end

function StateCache.__index(self, name)
  if FIELDS[name] then return values_of(self, StateCache.__name)[name] end
  local method = methods[name]
  if method == nil then
    E.fail("a heed.StateCache has no field %s; it has length, batch, conv_state, state, clone, reset and reorder",
      type(name) == "string" and ("'%s'"):format(name) or E.what(name))
  end
  return method
end

function StateCache.__newindex(_, name)
  E.fail("the field %s of a heed.StateCache cannot be set; all of its fields are read-only",
    type(name) == "string" and ("'%s'"):format(name) or E.what(name))
end

function StateCache.__tostring(self)
  local values = rawget(self, VALUES)
  return ("heed.StateCache(length=%d, batch=%d)"):format(values.length, values.batch)
end

--- A cache with the same contents, which continues on its own. States are never written in place, so it is free.
function methods.clone(self)
  local values = values_of(self, "clone")
  return new(values.batch, values.conv_state, values.state, values.length)
end

--- Forgets all tokens.
function methods.reset(self)
  local values = values_of(self, "reset")
  values.length, values.conv_state, values.state = 0, nil, nil
  return self
end

--- Item i becomes a copy of item indices[i], as beam search needs it; the batch may get another size.
function methods.reorder(self, indices)
  local values = values_of(self, "reorder")
  local index = core.modules.indices(indices, "reorder", "indices")
  if index.ndim ~= 1 or index:numel() == 0 then
    E.reject("reorder", "indices", index, "a list of items of the batch")
  end
  for i, item in ipairs(index:tolist()) do
    if item < 1 or item > values.batch then
      E.fail("reorder: element %d of indices is %d; it must be from 1 to %d, the batch size", i, item, values.batch)
    end
  end
  local conv_state, state = values.conv_state, values.state
  if state then conv_state, state = conv_state:index_select(1, index), state:index_select(1, index) end
  values.conv_state, values.state, values.batch = conv_state, state, index:numel()
  return self
end

--- Replaces the states after a call on `count` tokens. Cannot fail.
local function advance(cache, count, conv_state, state)
  local values = rawget(cache, VALUES)
  values.length, values.conv_state, values.state = values.length + count, conv_state, state
end

E.with_frames(methods)
return { new = new, is_cache = is_cache, advance = advance }
