--- Forward passes of built-in modules that call Lua: modules of one's own as parts of attention modules, `mha.W_query =
--- Lora(mha.W_query)`, parts with hooks, and points with listeners.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local heads = require "heed.nn.own_heads"
local hooks = require "heed.nn.hooks"
local nesting = require "heed.nn.nesting"
local norms = require "heed.nn.norm_points"
local points = require "heed.nn.points"
local protocol = require "heed.nn.protocol"
local recorded = require "heed.nn.recorded"
local primitives = core.modules

local own = {}

--- m[name] = value, for a module written in Lua or one that holds such modules.
function own.set(m, name, value)
  local class_name, written = E.class_name(m), E.record(value)
  if not E.is_module(value) then
    E.reject(class_name, name, value, "a module: nn.%s or one of your own", name == "dropout" and "Dropout" or "Linear")
  end
  E.walk(value, "", class_name, {}, function(each)
    if each == m then
      E.fail("%s: %s is a module that contains this one; it must be a module that does not", class_name, name)
    end
  end)
  if written then
    written.inside = true
    primitives.set_own(m, name, value, E.class_name(value))
  else
    primitives.set_part(m, name, value)
  end
end

--- Runs the pass of an attention module to its end. Parts and listeners are called from here, so that they may yield.
local function run(m, pass, wanted, list, past, batched)
  local stop, input = primitives.own_next(pass)
  while stop do
    local y
    if type(stop) == "string" then y = points.call(m, stop, input, list, past, batched) else y = stop(input) end
    stop, input = primitives.own_next(pass, y)
  end
  return primitives.own_result(pass, wanted)
end

--- run, after whose errors the generator has its earlier state and the pass's memory is free.
local function run_or_undo(m, pass, ...)
  if not compat.yields_in_pcall() then return run(m, pass, ...) end
  local result = compat.pack(pcall(run, m, pass, ...))
  if result[1] then return compat.unpack(result, 2, result.n) end
  primitives.own_undo(pass)
  error(result[2], 0)
end

--- Whether nothing inside a built-in module calls Lua: only the module itself has hooks.
local function is_plain(m)
  if points.listeners(m) or primitives.holds_own(m) then return false end
  for _, part in ipairs(E.parts(m)) do
    if primitives.holds_watched(part.value) then return false end
  end
  return true
end

--- m:forward(x, options) of a module with parts in Lua, watched parts or points with listeners, or of any attention
--- module where a function in Lua computes attention.
local function forward(m, x, ...)
  local elsewhere = primitives.redirected()
  if elsewhere and points.are_in(m) then return elsewhere("forward", m, x, ...) end
  if hooks.any(m, "points") then return norms.forward(m, x, ...) end
  if is_plain(m) then return primitives.forward(m, x, ...) end
  if E.class_name(m) == "MultiHeadAttentionWrapper" then return heads.forward(m, x, ...) end
  if core.is_grad_enabled() and points.are_in(m) then return recorded(m, x, ...) end
  local list = points.listeners(m)
  local pass, wanted, past = primitives.own_pass(list and list.read, list and list.edited, m, x, ...)
  if not pass then return primitives.forward(m, x, ...) end
  return run_or_undo(m, pass, wanted, list, past, x.ndim == 3)
end

own.forward = forward

local function call(m, ...) return hooks.call(m, forward, ...) end
local function call_twice_as_deep(m, ...) return nesting.call(m, call, ...) end

--- m(x, options) of such a module, or of one that is watched itself. It takes several levels of C's stack.
function own.call(m, ...) return nesting.call(m, call_twice_as_deep, ...) end

function own.train(m, mode) protocol.train(m, mode) end

return E.with_frames(own, "call", "forward", "set", "train")
