--- What a module consists of, whether it is built in or written in Lua: the ground that everything else
--- stands on.
--
-- An entry is {name =, kind =, value =}; kind is "parameter", "buffer" (which may have persistent = false)
-- or "module". A module written in Lua is an object with one raw field, its record, under a key that only
-- heed knows:
--   class   its class
--   fields  all of its fields by name
--   list    its entries, in the order in which they were first set
--   named   its entries by name

local compat = require "heed.compat"
local core = require "heed.core"
local primitives = core.modules

local RECORD = {}

local E = { RECORD = RECORD }

--- Raises an error that points at the user's line. The message is formatted when there are more arguments.
function E.fail(message, ...)
  core.raise(select("#", ...) == 0 and message or message:format(...))
end

--- "1 token", "2 tokens".
function E.count(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

--- The record of a module written in Lua, else nil. A class has one too: {name =, metatable =}.
local function record(value) return compat.raw(value, RECORD) end
E.record = record

--- "parameter", "tensor" or "module"; nil for everything else, classes too.
function E.kind(value)
  local own = record(value)
  if own then return own.fields and "module" end
  return primitives.kind(value)
end

function E.is_module(value) return E.kind(value) == "module" end

--- The module's entries, in order. Not to be changed.
function E.entries(module)
  local own = record(module)
  return own and own.list or primitives.entries(module)
end

--- "Linear", "Mine".
function E.class_name(module)
  local own = record(module)
  return own and own.class[RECORD].name or primitives.class_name(module)
end

--- What a value is, for messages: "a string ('abc')", "a module (Mine)".
function E.what(value)
  local own = record(value)
  if not own then return primitives.what(value) end
  return own.fields and ("a module (%s)"):format(E.class_name(value)) or ("the class %s"):format(own.name)
end

--- Raises unless `self` is a module: a method that was called with a dot gets something else.
function E.check_self(self, method)
  if not E.is_module(self) then
    E.fail("%s: self must be a module, got %s (methods are called with a colon)", method, E.what(self))
  end
end

--- Raises unless the value has that type ("boolean", "string", "function").
function E.check_type(value, wanted, method, argument)
  if type(value) ~= wanted then
    E.fail("%s: %s must be a %s, got %s", method, argument, wanted, E.what(value))
  end
end

--- The table with its functions, but for metamethods, made such that errors in them point at a caller whose last call
--- they are.
function E.with_frames(methods)
  for name, f in pairs(methods) do
    if type(f) == "function" and name:sub(1, 2) ~= "__" then methods[name] = core.frame(f) end
  end
  return methods
end

return E
