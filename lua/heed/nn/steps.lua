--- m:steps(x, options) of an attention module with hooks, points with listeners, changed heads or parts of one's own:
--- the pass of heed.nn.own in slices of time. Hooks and parts are called within slices, so that they may yield. The
--- object has the fields and methods of the heed.Steps in C (src/binding/lsteps.c).

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local forward_options = require "heed.nn.forward_options"
local hooks = require "heed.nn.hooks"
local points = require "heed.nn.points"
local primitives = core.modules

local STATE = {} -- the key of the fields of an object
local Steps, methods = { __name = "heed.Steps" }, {}

local function state_of(self, method)
  local state = type(self) == "table" and rawget(self, STATE)
  if not state then E.reject(method, "self", self, "a heed.Steps") end
  if state.released then E.fail("%s: self is a released heed.Steps; it must be a heed.Steps", method) end
  return state
end

-- ---- Beginning ----------------------------------------------------------------------------------

--- Begins the pass, after the pre-hooks.
local function begin(state, m, x, ...)
  local list = points.listeners(m)
  state.list, state.x, state.batched = list, x, x.ndim == 3
  state.pass, state.wanted, state.past =
    primitives.own_pass(list and list.read or "", list and list.edited, m, x, ...)
  local _, total = primitives.own_progress(state.pass)
  state.total = math.floor(math.min(total, 2 ^ 52))
end

--- Whether a forward pass would be recorded, which one in slices is not.
local function would_record(m, x)
  if not core.is_grad_enabled() then return false end
  for _, parameter in ipairs(m:parameters()) do
    if parameter.requires_grad then return true end
  end
  return E.is_tensor(x) and x.requires_grad
end

--- m:steps(x, options) for such a module.
local function new(m, x, ...)
  if would_record(m, x) then
    E.fail "steps: gradients are recorded, and a pass in slices has none; call it under no_grad"
  end
  local given = { primitives.read_steps(m, x, ...) }
  local options = forward_options(given)
  local state = { module = m, seconds = given[1], done = 0 }
  hooks.before(m, function(...) begin(state, ...) end, x, next(options) ~= nil and options or nil)
  return setmetatable({ [STATE] = state }, Steps)
end

-- ---- Running slices -----------------------------------------------------------------------------

--- Runs a slice. Returns whether the pass is complete.
local function run(state, seconds)
  local end_at, result = core.clock() + seconds, nil
  while true do
    local stop, input = primitives.own_next(state.pass, result, math.max(0, end_at - core.clock()))
    if stop == false then return false end
    if stop == nil then return true end
    if type(stop) == "string" then
      result = points.call(state.module, stop, input, state.list, state.past, state.batched)
    else
      result = stop(input)
    end
    if state.released then E.fail "steps: the pass was released by one of its own hooks" end
  end
end

--- The hooks of the module, with the results of the pass.
local function finish(state)
  local y, info = hooks.after(state.module, state.x, primitives.own_result(state.pass, state.wanted))
  state.result, state.info, state.pass, state.list, state.x = y, info, nil, nil, nil
end

local function run_and_finish(state, seconds)
  local complete = run(state, seconds)
  if complete then finish(state) end
  return complete
end

--- Ends a pass that has failed: the generator has its earlier state, and the memory is free.
local function fail(state, message)
  state.failed = true
  primitives.own_undo(state.pass)
  state.list, state.x = nil, nil
  error(message, 0)
end

--- Where functions in pcall cannot yield, `running` stays set after an error.
local function advance(state, seconds)
  if state.failed then E.fail "steps: an earlier slice has failed; begin a new pass" end
  if state.running then
    E.fail "steps: a slice of this pass is running, or has failed; a hook cannot advance the pass that calls it"
  end
  if not state.pass then return state.done, state.total end
  state.running = true
  local complete
  if compat.yields_in_pcall() then
    local ok, result = pcall(run_and_finish, state, seconds)
    state.running = false
    if not ok then fail(state, result) end
    complete = result
  else
    complete = run_and_finish(state, seconds)
    state.running = false
  end
  if complete then
    state.done = state.total
  else
    local done, all = primitives.own_progress(state.pass)
    local reached = all > 0 and math.floor(done / all * 0.99 * state.total) or 0
    state.done = math.min(math.max(reached, state.done + 1), state.total - 1)
  end
  return state.done, state.total
end

function Steps.__call(self)
  local state = state_of(self, "steps")
  if state.done == state.total then return nil end
  return advance(state, state.seconds)
end

--- One slice, of that many milliseconds, or of those in the options.
function methods.advance(self, ms)
  local state = state_of(self, "advance")
  if ms == nil then return advance(state, state.seconds) end
  ms = E.number(ms, nil, "advance", "ms")
  if ms < 0 or ms ~= ms then E.fail("advance: ms is %s; it must be 0 or more", tostring(ms)) end
  return advance(state, ms / 1000)
end

--- Frees the memory; does nothing the second time.
function methods.release(self)
  local state = type(self) == "table" and rawget(self, STATE)
  if not state then E.reject("release", "self", self, "a heed.Steps") end
  if state.released then return end
  if state.pass then primitives.own_undo(state.pass) end
  rawset(self, STATE, { released = true })
  state.released, state.result, state.info = true, nil, nil
end

-- ---- Fields -------------------------------------------------------------------------------------

function Steps.__index(self, key)
  if methods[key] then return methods[key] end
  local state = state_of(self, type(key) == "string" and key or "index")
  if key == "done" or key == "total" or key == "result" then return state[key] end
  if key == "info" then
    if state.result ~= nil and state.info == nil then
      E.fail "steps: taps are requested, but need_weights was false"
    end
    return state.info
  end
  E.fail("heed.Steps have no field %s; they have result, info, done, total, advance and release",
    type(key) == "string" and ("'%s'"):format(key) or E.what(key))
end

function Steps.__newindex(_, key)
  E.fail("heed.Steps have no field that can be set, such as %s",
    type(key) == "string" and ("'%s'"):format(key) or E.what(key))
end

function Steps.__tostring(self)
  local state = rawget(self, STATE)
  if state.released then return "heed.Steps(released)" end
  return ("heed.Steps(done=%d, total=%d)"):format(state.done, state.total)
end

E.with_frames(methods, "advance")
Steps.__call = core.frame(Steps.__call, true)
Steps.__close = methods.release

return core.frame(new, true)
