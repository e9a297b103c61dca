-- Finalizers can run in any allocation by Lua. Changes that they make in the middle of a call must not harm it.
local heed = require "heed"
local core = require "heed.core"
local nn = heed.nn
local support = require "tests.support"

-- Runs f(object) repeatedly, with change(object) called in its first allocation, its second, and so on. prepare() makes
-- each object, check receives the results of pcall(f, object). f must make at least `least` allocations.
local function at_each_allocation(least, prepare, change, f, check)
  local number = 0
  local function one(object)
    local function checked(changed, ...)
      check(...)
      return changed
    end
    return checked(support.at_allocation(number, function() change(object) end, f, object))
  end
  repeat number = number + 1 until not one(prepare())
  assert.is_true(number > (support.has.every_allocation and least or 1), "no change came")
end

describe("the entries of a module", function()
  local order = { weight = 1, weight_scale = 2, bias = 3 }

  for _, dtype in ipairs { "int8", "float32" } do
    it("are consistent while a finalizer changes the dtype from " .. dtype, function()
      at_each_allocation(4, function() return nn.Linear(2, 3):to(dtype) end,
        function(m) m:to(dtype == "int8" and "float32" or "int8") end,
        core.modules.entries,
        function(_, entries)
          local last = 0
          for _, entry in ipairs(entries) do
            assert.is_true(order[entry.name] > last, "an entry is listed twice")
            last = order[entry.name]
            assert.equal("parameter", entry.kind)
            assert.equal(entry.name == "bias" and 1 or 2, entry.value.ndim)
          end
          assert.equal(order.bias, last)
        end)
    end)
  end

  it("are not mixed up while a finalizer changes the dtype", function()
    at_each_allocation(2, function() return nn.Linear(2, 3):to "int8" end,
      function(m) m:to "float32" end,
      function(m) return m.bias, m.weight_scale end,
      function(fine, bias, scale)
        assert.is_true(fine)
        assert.equal(1, bias.ndim)
        assert.is_true(scale == nil or scale.ndim == 2)
      end)
  end)

  it("that are modules have a single userdata, however they are accessed first", function()
    local part
    at_each_allocation(1,
      function()
        part = nil
        return nn.SelfAttention(2, 2)
      end,
      function(m) part = m.W_query end,
      function(m) return m.W_query, m.W_query end,
      function(_, first, second)
        assert.equal(first, second)
        assert.is_true(part == nil or part == first)
      end)
  end)

  it("survive the script of issue 21", function()
    local script = [[
      local support, heed = require "tests.support", require "heed"
      local m, n = heed.nn.Linear(2, 2):to "int8", 0
      local function plant()
        support.finalized(function()
          n = n + 1
          m:to(n % 7 % 2 == 1 and "float32" or "int8") -- sometimes the same dtype twice
          plant()
        end)
      end
      local stop = support.collect_always()
      plant()
      for _ = 1, 200 do
        for _ in m:named_parameters() do end
      end
      stop()
      print(n > 100)]]
    local result = support.run(support.heed .. " -", script)
    assert.equal("true\n", result.out)
    assert.equal(0, result.code)
  end)
end)

describe("a part of a module", function()
  it("may be collected while a message about it is composed", function()
    at_each_allocation(2, function() return nn.SelfAttention(2, 2) end,
      function(m)
        m.W_query = nn.Linear(2, 2, { bias = false })
        collectgarbage()
      end,
      function(m) m.W_query = "x" end,
      function(fine, message)
        assert.is_false(fine)
        assert.equal("SelfAttention: W_query is a string ('x'); it must be a module: nn.Linear or one of your own",
          message:match "^.-:%d+: (.*)$")
      end)
  end)
end)

describe("a message", function()
  it("is that of the call, even if finalizers fail in the meantime", function()
    local x = heed.ones(2, 3)
    at_each_allocation(2, function() end,
      function() pcall(heed.zeros, -1) end,
      function() x:matmul(x) end,
      function(fine, message)
        assert.is_false(fine)
        assert.equal("matmul: a is [2, 3] and b is [2, 3]; the last size of a (3) must equal the first size of b (2)",
          message:match "^.-:%d+: (.*)$")
      end)
  end)
end)

describe("limits", function()
  after_each(function() heed.limit { threads = math.huge, seconds = math.huge } end)

  it("set by a finalizer are kept while others are being set", function()
    local options = { seconds = 1000 }
    at_each_allocation(1, function() heed.limit { threads = math.huge, seconds = math.huge } end,
      function() heed.limit { threads = 3 } end,
      function() heed.limit(options) end,
      function(fine)
        assert.is_true(fine)
        assert.equal(1000, heed.limit().seconds)
      end)
    support.at_allocation(1, function() heed.limit { threads = 3 } end, heed.limit, options)
    assert.equal(3, heed.limit().threads)
  end)
end)

describe("a list that is referenced by the call only", function()
  -- Calls f without memory while finalizers, which empty the lists, are pending: the call then collects garbage and
  -- tries again.
  local function without_memory(f, ...)
    local lists, ran, emptied = { ... }, 0, false
    local function empty()
      ran = ran + 1
      if not lists.given or emptied then return end
      emptied = true
      for _, list in ipairs(lists) do list[1], list[2] = nil, nil end
      collectgarbage() -- Luas before 5.4 allow this in a finalizer
    end
    collectgarbage() -- frees everything that could be freed instead
    collectgarbage()
    for _ = 1, 2000 do support.finalized(empty) end
    repeat collectgarbage "step" until ran > 0
    support.finalized(empty)
    heed.limit { memory = heed.info().memory_in_use + 100 }
    lists.given = true
    local fine, message = pcall(f, ...)
    heed.limit { memory = math.huge }
    assert.is_true(emptied)
    assert.is_false(fine)
    -- Before 5.4 a finalizer may also run before the list is copied; the emptied list is then rejected.
    message = tostring(message)
    assert.is_truthy(message:find("memory", 1, true) or message:find("must be", 1, true), message)
  end

  it("of modules is not collected", function()
    without_memory(function(modules) core.modules.store(modules, "bfloat16") end,
      { nn.Linear(500, 500), nn.Linear(500, 500) })
  end)

  it("of tensors is not collected", function()
    without_memory(heed.cat, { heed.ones(100000), heed.ones(100000) })
  end)

  it("of names and tensors being saved is not collected", function()
    support.with_file(function(path)
      without_memory(function(names, tensors, metadata)
        local saved, message = core.files.save(path .. ".safetensors", names, tensors, metadata)
        os.remove(path .. ".safetensors")
        if not saved then error(message, 0) end
      end, { "x" .. path, "y" .. path }, { heed.ones(100000), heed.ones(100000) }, { "key" .. path, "value" .. path })
    end)
  end)
end)

describe("random calls with finalizers that change objects in use", function()
  it("do not crash", function()
    local script = support.quote(support.top .. "/tests/fuzz/finalizer_fuzz.lua")
    local count = support.nightly(2000, 250)
    for seed = 1, 2 do
      local result = support.run(("%s %s %d %d"):format(support.heed, script, seed, count))
      assert.equal(("%d calls\n"):format(count), result.out)
      assert.equal("", result.err)
      assert.equal(0, result.code)
    end
  end)
end)
