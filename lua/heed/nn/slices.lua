--- Work of Lua functions in slices of time: slices.new(ms, f, …) gives an object whose :advance(ms) runs f until the
--- time is used up. f runs in a coroutine, which slices.pause() leaves between two operations; outside of slices, pause
--- does nothing. Results have the bits of a call without slices, but for what slices.rows() divides.

local attached = require "heed.nn.attached"
local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"

local coroutine = coroutine
local clock = core.clock

local M = {}

local LEAST_ROWS, MOST_ROWS = 4, 64 -- of a pass over a prompt; fewer rows read the weights too often
local HEAD_BYTES = 2 ^ 20 -- of the weight, in a part of the product with the vocabulary

-- The slice that runs: its thread, the time of its end, the time of the last pause, the longest time between two, and
-- the number of rows of a pass, which follows from that.
local thread, end_at, last_at, longest, rows

--- Ends the slice if its time is used up.
function M.pause()
  if not thread or coroutine.running() ~= thread then return end
  local now = clock()
  longest, last_at = math.max(longest, now - last_at), now
  if now >= end_at then coroutine.yield() end
end

--- How many rows a pass over a prompt has: in slices as many as take a small part of one, otherwise nil.
function M.rows()
  return thread and coroutine.running() == thread and rows or nil
end

--- f(…) outside of the slice: for functions of a script, which may use models themselves.
function M.outside(f, ...)
  local before = thread
  thread = nil
  local results = compat.pack(pcall(f, ...))
  thread = before
  if not results[1] then error(results[2], 0) end
  return compat.unpack(results, 2, results.n)
end

--- m(x) of a Linear without hooks, the rows of its weight in several parts if they are many; the bits are the same.
function M.linear(m, x)
  if not M.rows() or E.record(m) or not E.is_tensor(m.weight) or m.weight.dtype == "int8" then return m(x) end
  local weight = m.weight
  local count = weight.shape[1]
  local each = math.max(1, math.floor(HEAD_BYTES / (4 * weight.shape[2])))
  if attached(m) or m.bias or count <= each then return m(x) end
  local parts = {}
  for first = 1, count, each do
    local part = weight:narrow(1, first, math.min(each, count - first + 1))
    parts[#parts + 1] = require("heed.nn.functional").linear(x, part)
    M.pause()
  end
  return core.cat(parts, -1)
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
  local state = { ms = ms, done = 0, total = nil, rows = 8 }
  local function progress(done, total) state.done, state.total = done, total end
  local body = core.frame(f, true) -- what it calls is part of the slice, for limits.seconds
  state.thread = coroutine.create(function()
    return body(progress, compat.unpack(arguments, 1, arguments.n))
  end)
  return setmetatable({ [STATE] = state }, Steps)
end

local function resume(state)
  return compat.pack(coroutine.resume(state.thread))
end

--- The rows of the next slices: an operation should take at most a quarter of one.
local function adapt(state, seconds)
  if longest > seconds / 2 then
    state.rows = math.max(LEAST_ROWS, math.floor(state.rows / 2))
  elseif longest < seconds / 8 then
    state.rows = math.min(MOST_ROWS, state.rows * 2)
  end
end

local function advance(state, ms)
  if state.finished then return true end
  if state.running then E.fail "advance: a slice of these steps is running" end
  if thread then E.fail "advance: steps cannot be advanced within a slice of others" end
  local seconds = ms / 1000
  state.running = true
  thread, last_at, longest, rows = state.thread, clock(), 0, state.rows
  end_at = last_at + seconds
  local fine, results = pcall(mode.run, false, nil, resume, state)
  thread, state.running = nil, false
  if not fine then error(results, 0) end -- of the mode itself
  if not results[1] then
    state.finished, state.failed, state.thread = true, results[2], nil
    error(results[2], 0)
  end
  adapt(state, seconds)
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
