--- What is recorded while a function runs: heed.no_grad, enable_grad and inference_mode, and detect_anomaly of
--- heed.autograd. Each calls a function and gives what it returns; the modes are then what they were, also after an
--- error.
--
-- In a coroutine the function runs in a coroutine of its own, so that it may yield: whoever resumed finds the modes as
-- they were before, and the function finds its own when it goes on. One that is never resumed leaves nothing behind.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules
local modes = primitives.modes
local coroutine = coroutine

local mode = {}

local function in_coroutine()
  if not coroutine then return false end
  local thread, is_main = coroutine.running()
  return thread ~= nil and not is_main
end

local go_on

--- After a resume: the modes of whoever resumed, then the results, the error, or the next yield.
local function pass_on(thread, outer_recording, outer_anomaly, ok, ...)
  local recording, anomaly = modes(outer_recording, outer_anomaly)
  if not ok then error((...), 0) end
  if coroutine.status(thread) == "dead" then return ... end
  return go_on(thread, recording, anomaly, coroutine.yield(...))
end

function go_on(thread, recording, anomaly, ...)
  local outer_recording, outer_anomaly = modes(recording, anomaly)
  return pass_on(thread, outer_recording, outer_anomaly, coroutine.resume(thread, ...))
end

local function is_callable(value)
  if type(value) == "function" or E.is_module(value) then return true end
  local meta = type(value) == "table" and getmetatable(value)
  return type(meta) == "table" and type(rawget(meta, "__call")) == "function"
end

--- f(…) with these modes; nil leaves one as it is.
function mode.run(recording, anomaly, f, ...)
  local callable = f
  local function call(...) return callable(...) end -- for modules, and for 5.1: coroutines of Lua functions only
  if in_coroutine() then return go_on(coroutine.create(call), recording, anomaly, ...) end
  return primitives.with_modes(recording, anomaly, type(f) == "function" and f or call, ...)
end

local function check_callable(value, method)
  if not is_callable(value) then
    E.reject(method, "f", value, "a function: %s(function() ... end)", method == "detect_anomaly"
      and "heed.autograd.detect_anomaly" or "heed." .. method)
  end
end

--- no_grad(f, …): f(…) while nothing is recorded.
function mode.no_grad(f, ...)
  check_callable(f, "no_grad")
  return mode.run(false, nil, f, ...)
end

--- The same, by another of PyTorch's names.
function mode.inference_mode(f, ...)
  check_callable(f, "inference_mode")
  return mode.run(false, nil, f, ...)
end

--- enable_grad(f, …): f(…) while operations are recorded.
function mode.enable_grad(f, ...)
  check_callable(f, "enable_grad")
  return mode.run(true, nil, f, ...)
end

--- detect_anomaly(f, …): f(…) while backward passes raise where an operation gives the first nan. detect_anomaly(b)
--- turns this on or off; returns what it was.
function mode.detect_anomaly(f, ...)
  if type(f) == "boolean" then
    local _, was = modes(nil, f)
    return was
  end
  if not is_callable(f) then E.reject("detect_anomaly", "f", f, "a function, or a boolean") end
  return mode.run(nil, true, f, ...)
end

return mode
