-- A limit of seconds cancels every call of tests/long_calls.lua, and so does a limit of work. The delay depends on the
-- load of the machine and is measured by scripts/dev/check_stops.lua; here only this process's CPU time counts.
local heed = require "heed"
local nn = heed.nn
local calls = require "tests.long_calls"
local support = require "tests.support"

-- Seconds of CPU time, of the best of three attempts: a busy machine slows single ones. The slowest takes 0.04, and ten
-- times that with sanitizers or with the counters of `make coverage`.
local BOUND = (os.getenv "ASAN_OPTIONS" or os.getenv "GCOV_ERROR_FILE") and 5 or 0.15

describe("a limit of seconds or of work stops #plain #limits", function()
  after_each(function()
    heed.limit { seconds = math.huge, work = math.huge }
    for _ = 1, 2 do collectgarbage() end
  end)

  for _, row in ipairs(calls) do
    local it = row.frames and support.where("frames", it, pending) or it
    it(row.name, function()
      local best, f = math.huge, nil
      for _ = 1, 3 do
        f = row.make()
        heed.limit { seconds = row.seconds }
        local start = os.clock()
        local fine, message = pcall(f)
        best = math.min(best, os.clock() - start)
        heed.limit { seconds = math.huge }
        assert.is_false(fine)
        assert.truthy(tostring(message):find("time limit exceeded: ", 1, true), tostring(message))
        if best < BOUND then break end
      end
      assert.is_true(best < BOUND, ("stopped after %.2f seconds"):format(best))
      heed.limit { seconds = 20, work = 3000 } -- a call that charged no work would meet the limit of seconds
      local fine, message = pcall(f)
      heed.limit { seconds = math.huge, work = math.huge }
      assert.is_false(fine)
      assert.truthy(tostring(message):find("work limit exceeded: ", 1, true), tostring(message))
    end)
  end
end)

describe("linear time, not quadratic, is taken by", function()
  -- The ratio of the times of f for `count` and for an eighth of it: 8 if f is linear, 64 if quadratic. The minimum of
  -- three runs, in CPU time.
  local function ratio(f, count)
    local function time(n)
      local best = math.huge
      for _ = 1, 3 do
        local run = f(n)
        collectgarbage()
        local start = os.clock()
        run()
        best = math.min(best, os.clock() - start)
      end
      return best
    end
    local short = time(count / 8)
    return time(count) / short
  end

  it("removing modules from the front of a list", function()
    local count = 4000
    local list = {}
    for i = 1, count do list[i] = nn.ReLU() end
    local modules, start = nn.ModuleList(list), os.clock()
    for i = 1, count do assert.equal(list[i], modules:pop(1)) end
    assert.equal(0, #modules)
    assert.is_true(os.clock() - start < 5) -- 0.4 s, compared with 11 s if each step lists all modules again
  end)

  it("appending to a list", function()
    local relu = nn.ReLU()
    local function append(n)
      local list = nn.ModuleList()
      return function() for _ = 1, n do list:append(relu) end end
    end
    assert.is_true(ratio(append, 16000) < 24)
  end)

  it("nesting modules in modules", function()
    local function wrap(n)
      return function()
        local module = nn.ReLU()
        for _ = 1, n do module = nn.Sequential(module) end
        return module
      end
    end
    assert.is_true(ratio(wrap, 8000) < 24)
  end)

  it("finding the longest piece at the beginning of a word", function()
    local pieces = require("heed.core").text.vocabulary("a\n" .. ("b"):rep(512) .. "\n")
    local function find(n)
      local word = ("a"):rep(n)
      return function() for _ = 1, 2000 do assert(pieces:longest(word, 1, "") == 1) end end
    end
    assert.is_true(ratio(find, 512) < 24)
  end)

  it("loading a state dict with a long name", function()
    local module = nn.Linear(1, 1)
    local start = os.clock()
    local result = module:load_state_dict({ [("a"):rep(100000) .. ".b"] = heed.zeros(1) }, { strict = false })
    assert.equal(1, #result.unexpected_keys)
    assert.is_true(os.clock() - start < 1) -- a minute if a pattern backtracks from each byte to the end
  end)
end)

describe("a cancelled call", function()
  after_each(function() heed.limit { seconds = math.huge } end)

  it("leaves a module unchanged: no mode of it is set", function()
    local list = {}
    for i = 1, 200000 do list[i] = nn.ReLU() end
    local module = nn.ModuleList(list)
    heed.limit { seconds = 0.005 }
    assert.is_false(pcall(module.eval, module))
    heed.limit { seconds = math.huge }
    assert.is_true(module.training)
    for i = 1, #list, 1000 do assert.is_true(list[i].training) end
    assert.is_true(list[1].training and list[#list].training)
  end)

  it("leaves a file unchanged", function()
    support.with_file(function(path)
      local file = path .. ".safetensors"
      assert(heed.save(file, { x = heed.ones(1) }))
      local before, state, x = support.read(file), {}, heed.zeros(1)
      for i = 1, 100000 do state["name" .. i] = x end
      heed.limit { seconds = 0.02 }
      local fine = pcall(heed.save, file, state)
      heed.limit { seconds = math.huge }
      local after = support.read(file)
      os.remove(file)
      assert.is_false(fine)
      assert.equal(before, after)
    end)
  end)
end)
