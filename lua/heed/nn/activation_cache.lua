--- What model:run_with_cache returns last: tensors by the names of points, in the order in which they came.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local named = require "heed.nn.named_points"

local HELD = {} -- the key of {names = a list, tensors = by name}
local Cache, methods = { __name = "heed.ActivationCache" }, {}

local function held(self, method)
  local own = compat.raw(self, HELD)
  if not own then E.reject(method, "self", self, "a heed.ActivationCache; call the method with a colon") end
  return own
end

local function fail_unknown(method, name, own)
  local list = {}
  for i, each in ipairs(own.names) do list[i] = { name = each } end
  E.fail("%s: the cache has no '%s'%s", method, name, named.hint(name, list, "names"))
end

function Cache.__index(self, name)
  if methods[name] then return methods[name] end
  local own = held(self, "heed.ActivationCache")
  local x = own.tensors[name]
  if x ~= nil then return x end
  if type(name) ~= "string" then E.reject("heed.ActivationCache", "the name", name, "a string") end
  if name:sub(1, 1) == "_" then return nil end -- libraries look for such names
  fail_unknown("heed.ActivationCache", name, own)
end

function Cache.__newindex() E.fail "heed.ActivationCache: it cannot be changed" end

function Cache.__len(self) return #held(self, "#").names end

--- Names and tensors in the order in which they came.
function Cache.__pairs(self)
  local own, i = held(self, "pairs"), 0
  return function()
    i = i + 1
    local name = own.names[i]
    return name, own.tensors[name]
  end
end

local SHOWN = 100 -- names

function Cache.__tostring(self)
  local own = held(self, "tostring")
  local lines = { ("heed.ActivationCache with %d activation%s"):format(#own.names, #own.names == 1 and "" or "s") }
  for i = 1, math.min(#own.names, SHOWN) do
    local name = own.names[i]
    lines[i + 1] = ("  %s [%s]"):format(name, table.concat(own.tensors[name].shape, ", "))
  end
  if #own.names > SHOWN then lines[#lines + 1] = ("  … %d more"):format(#own.names - SHOWN) end
  return table.concat(lines, "\n")
end

--- Whether `name` is "pattern", "hook_pattern" or "attn.hook_pattern" for "blocks.0.attn.hook_pattern".
local function ends_in(name, short)
  for _, ending in ipairs { short, "." .. short, ".hook_" .. short, "hook_" .. short } do
    if name == ending or ending:sub(1, 1) == "." and name:sub(-#ending) == ending then return true end
  end
  return false
end

--- The names that end in `short`, of that layer if it is not nil.
local function find(own, short, layer, method)
  E.check_type(short, "string", method, "name")
  local found = {}
  for _, name in ipairs(own.names) do
    E.check_cancel(method)
    if ends_in(name, short) and (not layer or named.layer_of(name) == layer) then found[#found + 1] = name end
  end
  return found
end

--- The activation whose name ends in `name`, such as "pattern", in a layer, counted from 1.
function methods.get(self, name, layer)
  local own = held(self, "get")
  if layer ~= nil then layer = E.integer(layer, nil, "get", "layer") end
  local found = find(own, name, layer, "get")
  if #found == 1 then return own.tensors[found[1]] end
  if #found > 1 then
    E.fail("get: '%s' stands for %d activations, '%s' and '%s' among them; give %s", name, #found, found[1], found[2],
      layer and "more of the name" or "the layer")
  end
  if layer and #find(own, name, nil, "get") > 0 then
    E.fail("get: layer is %d; the cache has no '%s' of it (layers count from 1)", layer, name)
  end
  fail_unknown("get", name, own)
end

--- The activations of all layers whose name ends in `name`, as one tensor [layers, …].
function methods.stack(self, name)
  local own = held(self, "stack")
  local found, list = find(own, name, nil, "stack"), {}
  if #found == 0 then fail_unknown("stack", tostring(name), own) end
  for i, each in ipairs(found) do list[i] = own.tensors[each] end
  return require("heed.core").stack(list)
end

--- All names, in order.
function methods.names(self)
  local list = {}
  for i, name in ipairs(held(self, "names").names) do list[i] = name end
  return list
end

E.with_frames(methods)

local M = {}

function M.new() return compat.object({ [HELD] = { names = {}, tensors = {} } }, Cache) end

--- Stores a tensor; a later one of the same name replaces it.
function M.put(cache, name, x)
  local own = compat.raw(cache, HELD)
  if not own.tensors[name] then own.names[#own.names + 1] = name end
  own.tensors[name] = x
end

--- Whether a value is such a cache.
function M.is(value) return compat.raw(value, HELD) ~= nil end

--- The tensor of that name, or nil.
function M.peek(cache, name) return compat.raw(cache, HELD).tensors[name] end

return M
