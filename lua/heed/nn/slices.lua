--- Work of Lua functions in slices of time: slices.new(ms, f, …) gives an object whose :advance(ms) runs f until the
--- time is used up. f runs in a coroutine, which is left between two operations (slices.pause) and within the long ones
--- (slices.call); outside of slices, these two cost a comparison. Results have the bits of a call without slices.

local attached = require "heed.nn.attached"
local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"

local coroutine = coroutine
local clock, redirected, sliced = core.clock, core.modules.redirected, core.modules.sliced

local M = {}

local LONG = 2 ^ 21 -- multiply-adds, some 0.1 ms: a shorter pass is not divided
local DIVIDED = { Linear = true, MultiHeadAttention = true, SelfAttention = true, CausalAttention = true }

-- The thread of the slice that runs, the time of its end, and whether its caller records operations.
local thread, end_at, recording

-- Whether the code that runs may yield: not in finalizers and functions that C calls, such as those of string.gsub. Lua
-- 5.1 and 5.2 cannot tell.
local can_yield = coroutine and rawget(coroutine, "isyieldable") or function() return true end

--- Whether a slice runs this code, and may end here.
local function active() return thread ~= nil and coroutine.running() == thread and can_yield() end
M.active = active

--- Ends the slice if its time is used up.
function M.pause()
  if thread and clock() >= end_at and active() then coroutine.yield() end
end

--- f(…) outside of the slice, in the mode of the slice's caller: for functions of a script, which may use models
--- themselves.
function M.outside(f, ...)
  if not active() then return f(...) end
  local before, until_then, mode_then = thread, end_at, recording
  thread = nil
  local results = compat.pack(pcall(mode.run, recording, nil, f, ...))
  thread, end_at, recording = before, until_then, mode_then
  sliced(true)
  if not results[1] then error(results[2], 0) end
  return compat.unpack(results, 2, results.n)
end

--- The multiply-adds of m(x), roughly.
local function work_of(m, x, class, options)
  if class == "Linear" then return x:numel() * m.weight.shape[1] end
  local keys = options and options.cache and options.cache.length or 0
  return x:numel() * (4 * x.shape[-1] + 2 * (keys + x.shape[-2]))
end

--- Whether a slice may end within m(x, options). Otherwise m calls Lua, or is short.
local function is_divided(m, x, options)
  if E.record(m) or not E.is_tensor(x) or x.ndim < 2 then return false end
  local class = E.class_name(m)
  if not DIVIDED[class] or class == "Linear" and attached(m) or class ~= "Linear" and redirected() then return false end
  return work_of(m, x, class, options) >= LONG
end

--- m(x, options), as m:steps in slices. Returns what m returns.
function M.call(m, x, options)
  if not active() or not is_divided(m, x, options) then
    if options == nil then return m(x) end
    return m(x, options)
  end
  local steps = m:steps(x, options)
  repeat
    local done, total = steps:advance(math.max(0, end_at - clock()) * 1000)
    if done < total then coroutine.yield() end
  until done == total
  if options and options.need_weights then return steps.result, steps.info end
  return steps.result
end

-- ---- The object ---------------------------------------------------------------------------------

local STATE = {}
local Steps, methods = { __name = "heed.ModelSteps" }, {}

local function state_of(self, method)
  local state = type(self) == "table" and rawget(self, STATE)
  if not state then E.reject(method, "self", self, "what a method in slices returns") end
  if state.released then E.fail("%s: the steps have been released", method) end
  return state
end

local function is_time(value) return value >= 0 and value < math.huge end

--- The option ms of a method: milliseconds, 2 by default.
function M.budget(ms, method, default) return E.number(ms, default or 2, method, "ms", is_time, "0 or more") end

--- Begins f(progress, …) in slices of `ms` milliseconds; progress(done, total) is called by it. Nothing runs yet.
function M.new(ms, f, ...)
  local arguments = compat.pack(...)
  local state = { ms = ms, done = 0, total = nil }
  local function progress(done, total) state.done, state.total = done, total end
  local body = core.frame(f, true) -- what it calls is part of the slice, for limits.seconds
  state.thread = coroutine.create(function()
    return body(progress, compat.unpack(arguments, 1, arguments.n))
  end)
  return setmetatable({ [STATE] = state }, Steps)
end

local function resume(state)
  sliced(true)
  local results = compat.pack(coroutine.resume(state.thread))
  sliced(false)
  return results
end

local function advance(state, ms)
  if state.finished then return true end
  if state.running then E.fail "advance: a slice of these steps is running" end
  if thread then E.fail "advance: steps cannot be advanced within a slice of others" end
  state.running = true
  thread, end_at, recording = state.thread, clock() + ms / 1000, core.is_grad_enabled()
  local fine, results = pcall(mode.run, false, nil, resume, state)
  thread, state.running = nil, false
  if not fine then error(results, 0) end -- of the mode itself
  if not results[1] then
    local message = results[2]
    state.finished, state.failed, state.thread = true, message, nil
    -- heed's own messages have no line yet: inside the slice none of its callers are on the stack.
    if type(message) == "string" and not message:find "^[^\n]-:%d+: " then core.raise(message) end
    error(message, 0)
  end
  if coroutine.status(state.thread) ~= "dead" then return false end
  state.finished, state.thread = true, nil
  state.result, state.info = results[2], results[3]
  return true
end

local function run(self, method, ms)
  local state = state_of(self, method)
  if state.failed then E.fail("%s: an earlier slice has failed; begin again", method) end
  local complete = advance(state, ms or state.ms)
  return complete, state.done, state.total
end

--- Runs one slice, of `ms` milliseconds or those that were given at the beginning. Returns whether all is done.
function methods.advance(self, ms)
  if ms ~= nil then M.budget(ms, "advance") end
  return (run(self, "advance", ms))
end

--- Ends the work: what it has changed until now is kept as by a call that failed. Repeated calls do nothing.
function methods.release(self)
  local state = type(self) == "table" and rawget(self, STATE)
  if not state then E.reject("release", "self", self, "what a method in slices returns") end
  if state.running then E.fail "release: a slice of these steps is running" end
  rawset(self, STATE, { released = true })
end

--- In a `for`: one more slice; the progress, or nil when all was done before.
function Steps.__call(self)
  if state_of(self, "steps").finished then return nil end
  local _, done, total = run(self, "steps")
  return done, total
end

local FIELDS = { done = true, total = true, result = true, cache = "info", finished = true }

function Steps.__index(self, key)
  if methods[key] then return methods[key] end
  local state = state_of(self, "steps")
  if FIELDS[key] then
    if key == "finished" then return state.finished == true end
    return state[FIELDS[key] == true and key or FIELDS[key]]
  end
  E.fail("heed.ModelSteps have no field %s; they have result, cache, done, total, finished, advance and release",
    type(key) == "string" and ("'%s'"):format(key) or E.what(key))
end

function Steps.__newindex() E.fail "the fields of heed.ModelSteps cannot be set" end

function Steps.__tostring(self)
  local state = rawget(self, STATE)
  if state.released then return "heed.ModelSteps(released)" end
  return ("heed.ModelSteps(done=%s, total=%s)"):format(state.done, tostring(state.total))
end

Steps.__close = methods.release
E.with_frames(methods, "advance")
Steps.__call = core.frame(Steps.__call, true)

return M
