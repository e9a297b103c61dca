-- Each call of tests/calls.lua with each argument and each option replaced by values of all kinds, without memory and
-- without time: it succeeds, or its message follows the grammar of messages and has the caller's position.
local heed = require "heed"
local calls = require "tests.calls"
local support = require "tests.support"

local unpack = support.unpack

-- ---- Values of all kinds --------------------------------------------------------------------------

local WRONG = {
  ["nil"] = function() return nil end,
  ["true"] = function() return true end,
  ["0"] = function() return 0 end,
  ["-1"] = function() return -1 end,
  ["99"] = function() return 99 end,
  ["1.5"] = function() return 1.5 end,
  ["2^53"] = function() return 2 ^ 53 end,
  ["-1e300"] = function() return -1e300 end,
  ["inf"] = function() return math.huge end,
  ["nan"] = function() return 0 / 0 end,
  ["an empty string"] = function() return "" end,
  ["a string"] = function() return "wrong" end,
  ["bytes"] = function() return "\0\255" end,
  ["an empty table"] = function() return {} end,
  ["a list"] = function() return { 1, 2 } end,
  ["a list of strings"] = function() return { "a" } end,
  ["a list of lists"] = function() return { { 1 }, { 1, 2 } } end,
  ["a list of many"] = function()
    local list = {}
    for i = 1, 20 do list[i] = i end
    return list
  end,
  ["a list of tensors"] = function() return { heed.ones(2), heed.ones(3) } end,
  ["a table with a wrong key"] = function() return { wrong = 1 } end,
  ["a function"] = function() return print end,
  ["a coroutine"] = function() return coroutine.create(function() end) end,
  ["a scalar tensor"] = function() return heed.tensor(1) end,
  ["another shape"] = function() return heed.ones(2, 5, 1) end,
  ["an empty tensor"] = function() return heed.ones(0, 3) end,
  ["integers"] = function() return heed.tensor({ { 7, 0, -9 } }, { dtype = "int64" }) end,
  ["booleans"] = function() return heed.ones(3, 4):gt(0) end,
  ["low precision"] = function() return heed.ones(3, 4):to "float16" end,
  ["many dimensions"] = function() return heed.ones(1, 1, 1, 1, 1, 1, 1, 1) end,
  ["expanded"] = function() return heed.ones(1, 1):expand(3, 4) end,
  ["nan in a tensor"] = function() return heed.full({ 3, 4 }, 0 / 0) end,
  ["a released tensor"] = function()
    local x = heed.ones(2)
    x:release()
    return x
  end,
  ["a module"] = function() return heed.nn.GELU() end,
  ["a generator"] = function() return heed.Generator(1) end,
  ["a mask"] = function() return heed.mask.causal() end,
  ["a size"] = function() return heed.Size(3, 4) end,
}

local function sorted(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end
local kinds = sorted(WRONG)

-- ---- Trying a call --------------------------------------------------------------------------------

local HERE = debug.getinfo(1, "S").short_src

-- What is wrong with an error; nil if it is a message "name: …" at a line of this file.
local function fault(problem)
  if type(problem) ~= "string" then return "the error is a " .. type(problem) end
  local file, text = problem:match "^([^\n]-):%d+: (.*)$"
  text = text or problem
  if file and file ~= HERE and not file:find("tests/calls.lua", 1, true) then return "is located in " .. file end
  if not text:find "^[%a_][%w_.]*: ." then return "does not begin with a name" end
  if text:find "attempt to" or text:find "bad argument" or text:find "%%%a" then return "is not heed's own" end
  if text:find "table: 0x" or text:find "userdata" then return "shows an address" end
end

local function try(call, arguments)
  local fine, problem = pcall(function()
    local a, b = call.f(unpack(arguments, 1, arguments.n))
    return a, b
  end)
  return fine, problem
end

-- State that calls change.
local function restore()
  heed.limit { memory = math.huge, seconds = math.huge, threads = math.huge, files = true }
  heed.set_grad_enabled(false)
  heed.set_num_threads(1)
  heed.set_matmul_precision "highest"
  heed.set_dropout_stream "native"
  heed.set_printoptions { profile = "default" }
end

local threads
setup(function() threads = heed.get_num_threads() end)
teardown(function()
  restore()
  heed.set_num_threads(threads)
end)

-- Tries the call after change(arguments), and adds what is wrong to `faults`.
local function changed(call, faults, what, change)
  local arguments = call.arguments()
  change(arguments)
  local fine, problem = try(call, arguments)
  local wrong = not fine and fault(problem)
  if wrong then faults[#faults + 1] = ("%s with %s: %s: %s"):format(call.text, what, wrong, tostring(problem)) end
  restore()
end

describe("a call of every function", function()
  it("succeeds with valid arguments", function()
    local faults = {}
    for _, call in ipairs(calls) do
      local fine, problem = try(call, call.arguments())
      if not fine then faults[#faults + 1] = call.text .. ": " .. tostring(problem) end
      restore()
    end
    assert.same({}, faults)
  end)

  it("gives a message for arguments of a wrong kind, or succeeds", function()
    local faults = {}
    for _, call in ipairs(calls) do
      for i = call.method and 2 or 1, call.arguments().n + 1 do
        for _, kind in ipairs(kinds) do
          changed(call, faults, ("%s as argument %d"):format(kind, i), function(arguments)
            arguments[i] = WRONG[kind]()
            arguments.n = math.max(arguments.n, i)
          end)
        end
      end
    end
    assert.same({}, faults)
  end)

  it("gives a message for options of a wrong kind, or succeeds", function()
    local faults = {}
    for _, call in ipairs(calls) do
      local given = call.arguments()
      local options = given[given.n]
      if type(options) ~= "table" or getmetatable(options) then options = {} end
      for _, name in ipairs(sorted(options)) do
        for _, kind in ipairs(kinds) do
          changed(call, faults, ("%s = %s"):format(name, kind), function(arguments)
            arguments[arguments.n][name] = WRONG[kind]()
          end)
        end
      end
    end
    assert.same({}, faults)
  end)

  it("gives a message for too few and too many arguments, or succeeds", function()
    local faults = {}
    for _, call in ipairs(calls) do
      for n = call.method and 1 or 0, call.arguments().n - 1 do
        changed(call, faults, n .. " arguments", function(arguments) arguments.n = n end)
      end
      changed(call, faults, "ten more arguments", function(arguments)
        for i = 1, 10 do arguments[arguments.n + i] = i end
        arguments.n = arguments.n + 10
      end)
    end
    assert.same({}, faults)
  end)

  -- Under a limit that stops the call at its first check, or lets it take `left` more bytes.
  local function limited(what, limits_of)
    local faults = {}
    for _, call in ipairs(calls) do
      local arguments = call.arguments()
      if what == "memory limit" then collectgarbage() end -- or that in a failing call would free memory for it
      heed.limit(limits_of())
      local fine, problem = try(call, arguments)
      restore()
      local wrong = not fine and (fault(problem) or not problem:find(what, 1, true) and "is not about the " .. what)
      if wrong then faults[#faults + 1] = call.text .. ": " .. wrong .. ": " .. tostring(problem) end
    end
    return faults
  end

  it("gives a message about the time that is exceeded, or succeeds", function()
    assert.same({}, limited("time limit", function() return { seconds = 1e-9 } end))
  end)

  for _, left in ipairs { 0, 600 } do
    it(("gives a message about the memory of which %d bytes are left, or succeeds"):format(left), function()
      assert.same({}, limited("memory limit", function() return { memory = heed.info().memory_in_use + left } end))
    end)
  end
end)
