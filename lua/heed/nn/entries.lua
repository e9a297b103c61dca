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
--   parts   those of its entries that are modules, once E.parts was called
--   inside  whether it was ever set into another module

local compat = require "heed.compat"
local core = require "heed.core"
local primitives = core.modules

local RECORD = {}

--- E.look(method) raises if the call is to stop: for loops over what a script may make large.
local E = { RECORD = RECORD, look = core.look }

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

--- Those of the module's entries (which a caller may have at hand) that are modules, in order. Not to be changed.
function E.parts(module, entries)
  local own = record(module)
  if own and own.parts then return own.parts end
  local parts = {}
  for _, entry in ipairs(entries or E.entries(module)) do
    if entry.kind == "module" then parts[#parts + 1] = entry end
  end
  if own then own.parts = parts end
  return parts
end

--- Calls visit(module, prefix) for `module` and all modules in it, depth first; `prefix` is the path, "" or with a dot
--- at its end. With `seen`, a table, a module that is in several places is visited once; without it is visited there
--- each time, which can be 2^n times in n levels: the call may be stopped. Where visit returns true, what is in the
--- module is left out; otherwise a second result may be the module's entries, if visit has made them. Without
--- recursion, so that no depth is too deep.
function E.walk(module, prefix, method, seen, visit)
  local lists, paths, at, depth = {}, {}, {}, 0 -- the parts of those that the walk is in, and how many were seen
  while true do
    E.look(method)
    if not (seen and seen[module]) then
      if seen then seen[module] = true end
      local leave_out, entries = visit(module, prefix)
      if not leave_out then
        depth = depth + 1
        lists[depth], paths[depth], at[depth] = E.parts(module, entries), prefix, 0
      end
    end
    while depth > 0 and at[depth] >= #lists[depth] do -- more, if a finalizer took some out
      lists[depth], paths[depth], at[depth] = nil, nil, nil
      depth = depth - 1
    end
    if depth == 0 then return end
    at[depth] = at[depth] + 1
    local part = lists[depth][at[depth]]
    module, prefix = part.value, paths[depth] .. part.name .. "."
  end
end

--- Sorts a list of strings, or by less(a, b).
function E.sort(list, method, less)
  local compared = 0
  table.sort(list, function(a, b)
    compared = compared + 1
    if compared % 4096 == 0 then E.look(method) end
    if less then return less(a, b) end
    return a < b
  end)
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
--- they are, and a limit of seconds is for all that they do. The names are those of functions that call code of a
--- script's, which may yield.
function E.with_frames(methods, ...)
  local yields = {}
  for _, name in ipairs { ... } do yields[name] = true end
  for name, f in pairs(methods) do
    if type(f) == "function" and name:sub(1, 2) ~= "__" then methods[name] = core.frame(f, yields[name]) end
  end
  return methods
end

return E
