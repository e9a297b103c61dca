-- heed.limit{work = n}: a budget of operations, the same on every machine. stops_spec.lua tests which calls it reaches.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local loads = require "tests.work_loads"
local raises = require "tests.raises"
local support = require "tests.support"

describe("a limit of work #limits", function()
  after_each(function()
    heed.limit { work = math.huge, seconds = math.huge }
    heed.set_num_threads(1)
    for _ = 1, 2 do collectgarbage() end
  end)

  it("counts an element that is read or written, a multiplication of a product, and 1 for each call", function()
    local x, y = heed.rand(20, 30), heed.rand(30, 40)
    assert.equal(20 * 30 + 1, loads.units(function() return heed.zeros(20, 30) end))
    assert.equal(2 * 20 * 30 + 1, loads.units(function() return x:relu() end))
    assert.equal(20 * 30 * 40 + 20 * 30 + 30 * 40 + 20 * 40 + 1, loads.units(function() return x:matmul(y) end))
    assert.equal(0, loads.units(function() return x:view(600), x.T, x[1], x.shape end))
  end)

  it("bounds all that follows, is readable, and begins anew when it is set", function()
    heed.limit { work = 250 }
    local x = heed.zeros(10, 10)
    assert.equal(250 - 101, heed.limit().work)
    support.number_is("integer", heed.limit().work)
    heed.limit { seconds = 60 }
    assert.equal(250 - 101, heed.limit().work)
    heed.limit { work = 202 }
    x:relu()
    assert.equal(1, heed.limit().work)
    raises("relu: work limit exceeded: 201 units were needed and 1 were left", function() return x:relu() end)
    assert.equal(0, heed.limit().work)
    raises("zeros: work limit exceeded: 2 units were needed and 0 were left", function() return heed.zeros(1) end)
    heed.limit { work = 202 }
    assert.equal(100, x:add(1):numel())
    heed.limit { work = math.huge }
    assert.equal(math.huge, heed.limit().work)
  end)

  it("rejects what is no number of units", function()
    for _, value in ipairs { 0, -1, 0.5, 2 ^ 54, "1", {} } do
      local fine, message = pcall(heed.limit, { work = value })
      assert.is_false(fine)
      assert.matches("limit: work is .*; it must be a number of units from 1 to 2%^53, or math.huge$", message)
    end
    assert.equal(math.huge, heed.limit().work)
  end)

  for _, row in ipairs(loads) do
    it("is met exactly by " .. row.name, function()
      for threads = 1, 2 do
        heed.set_num_threads(threads)
        local units, message = loads.units(row.make())
        assert.is_nil(message)
        assert.is_true(units > 0)
        local f = row.make()
        heed.limit { work = units }
        assert.equal(true, (pcall(f)))
        assert.equal(0, heed.limit().work)
        heed.limit { work = math.huge }
        f = row.make()
        heed.limit { work = units - 1 }
        local fine, failure = pcall(f)
        heed.limit { work = math.huge }
        assert.is_false(fine)
        assert.matches("work limit exceeded", tostring(failure))
        assert.is_nil(select(2, loads.units(f))) -- it works again
      end
    end)
  end

  it("is the same with each kernel table and any number of threads", function()
    local function printed(table, threads)
      local result = support.run(("HEED_CPU=%s %s tests/work_loads.lua %d"):format(table, support.heed, threads))
      return result.code == 0 and result.out or nil
    end
    local want, compared = assert(printed("scalar", 1)), 0
    assert.equal(#loads, select(2, want:gsub("\n", "")))
    for _, table in ipairs { "scalar", "avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_bf16" } do
      local got = printed(table, 2) -- nil: does not run here
      if got then
        assert.equal(want, got)
        compared = compared + 1
      end
    end
    assert.is_true(compared >= 1)
  end)

  it("is the same for slices of any length", function()
    local ids, texts = {}, {}
    for i = 1, 80 do ids[i], texts[i] = i, "your journey starts with step " .. i end
    local bert = assert(heed.models.load "tests/golden/tiny_bert")
    local gpt2 = cases.load "gpt2"
    for _, make in ipairs {
      function(ms) return bert:encode_steps(texts, { ms = ms }) end,
      function(ms) return gpt2:generate_steps(ids, { ms = ms, max_new_tokens = 5 }) end,
    } do
      local function units(ms)
        return loads.units(function()
          local steps = make(ms)
          repeat until steps:advance()
        end)
      end
      assert.equal(units(1e6), units(0))
    end
  end)

  it("counts 3 to 64 for each element that is quantized to blocks, as the dtype needs", function()
    local x = heed.rand(4, 256)
    local units = { q4_0 = 6, q4_1 = 3, q5_0 = 6, q5_1 = 3, q8_0 = 4, q4_k = 64, q5_k = 64, q6_k = 64 }
    for dtype, each in pairs(units) do
      assert.equal(each * 4 * 256 + 1, loads.units(function() return x:to(dtype) end))
    end
  end)

  it("counts 64 for each element that is printed", function()
    local x, long = heed.rand(10, 10), heed.rand(2000)
    assert.equal(64 * 100 + 1, loads.units(function() return tostring(x) end))
    assert.equal(64 * 6 + 1, loads.units(function() return tostring(long) end)) -- the edges
    heed.limit { work = 6400 }
    local fine, message = pcall(tostring, x)
    assert.is_false(fine)
    assert.equal("tostring: work limit exceeded: 6401 units were needed and 6400 were left", message)
  end)

  it("ends load_state_dict before it copies anything", function()
    local m = heed.nn.Linear(50, 40)
    local before, state = m.weight:clone(), { weight = m.weight + 1, bias = m.bias + 1 }
    local units = loads.units(function() m:load_state_dict { weight = before, bias = m.bias:clone() } end)
    assert.is_true(units >= 2 * (50 * 40 + 40))
    heed.limit { work = 2 * 50 * 40 }
    local fine, message = pcall(m.load_state_dict, m, state)
    assert.is_false(fine)
    assert.matches("^load_state_dict: work limit exceeded: 4082 units were needed and %d+ were left$", message)
    heed.limit { work = math.huge }
    assert.is_true(heed.equal(before, m.weight))
  end)

  it("counts a new cache and what reorder moves, and truncate is free", function()
    local m = heed.nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 16, dropout = 0, num_heads = 2 }
    local cache
    assert.equal(2 * 3 * 16 * 8 + 1, loads.units(function() cache = m:new_cache { batch = 3 } end))
    m(heed.rand(3, 5, 8), { cache = cache })
    local order = heed.tensor({ 2, 1, 3 }, { dtype = "int64" })
    assert.equal(1 + 2 * 3 + 2 * 2 * (2 * 5 * 8), loads.units(function() cache:reorder(order) end))
    assert.equal(0, loads.units(function() cache:truncate(4) end))
    heed.limit { work = 100 }
    local fine, message = pcall(cache.reorder, cache, order)
    assert.is_false(fine)
    assert.matches("^reorder: work limit exceeded: 263 units were needed and 100 were left$", message)
  end)

  it("counts the rows that a cache copies: of prefixes, of a window, for a file, and to grow", function()
    local sizes = { d_in = 8, d_out = 8, context_length = 16, dropout = 0, num_heads = 2 }
    local m, x, row = heed.nn.MultiHeadAttention(sizes), heed.rand(5, 8), 2 * 8
    local first, second, third = m:new_cache(), nil, nil
    m(x, { cache = first })
    assert.equal(11 * row + 1, loads.units(function() second = m:new_cache { prefix = first } end)) -- it is shared
    m(x, { cache = second })
    assert.equal(2 * 6 * row + 1 + 2 * 10 * row + 1, loads.units(function()
      third = m:new_cache { prefix = second, batch = 2 }
    end))
    assert.equal(10, third.length)

    local whole = m:new_cache()
    m(x, { cache = whole })
    m(x, { cache = whole })
    support.with_file(function(path)
      local function saved(cache) return function() assert(cache:save(path .. ".safetensors")) end end
      assert.equal(loads.units(saved(whole)) + 2 * 10 * row + 1, loads.units(saved(second)))
      local loaded = assert(m:load_cache(path .. ".safetensors"))
      os.remove(path .. ".safetensors")
      local function continued(cache) return function() m(x, { cache = cache }) end end
      assert.equal(loads.units(continued(whole)) + 2 * 10 * row + 1, loads.units(continued(loaded)))
    end)

    sizes.window, sizes.context_length = { left = 3 }, 500
    m = heed.nn.MultiHeadAttention(sizes)
    first = m:new_cache()
    m(x, { cache = first })
    local empty = loads.units(function() m:new_cache { batch = 3 } end)
    assert.equal(empty + 2 * 3 * 5 * row + 1, loads.units(function() m:new_cache { batch = 3, prefix = first } end))
    m(heed.rand(3 + 2 * 64 - 6, 8), { cache = first }) -- one row is free: the next ones move what is kept
    local one, two = heed.rand(1, 8), heed.rand(2, 8)
    local twin = first:clone()
    local function added(cache, tokens) return loads.units(function() m(tokens, { cache = cache }) end) end
    local stays, fresh = added(first, one), m:new_cache()
    m(heed.rand(20, 8), { cache = fresh })
    local moves, plain = added(twin, two), added(fresh, two)
    assert.is_true(stays < plain)
    assert.equal(plain + 2 * (67 + 67) * row + 1, moves)
  end)

  it("leaves the statistics of BatchNorm as they were, wherever its forward pass ends", function()
    local m, x = heed.nn.BatchNorm1d(4), heed.rand(10, 4)
    local total = loads.units(function() heed.nn.BatchNorm1d(4)(x) end)
    for units = 1, total, 7 do
      heed.limit { work = units }
      local fine = pcall(m, x)
      heed.limit { work = math.huge }
      if fine then break end
      assert.equal(0, m.num_batches_tracked:item())
      assert.equal(0, m.running_mean:abs():sum():item())
      assert.equal(4, m.running_var:sum():item())
    end
    assert.is_true(pcall(m, x))
    assert.is_true(m.num_batches_tracked:item() > 0)
  end)

  it("is not taken by a misspelled name, whose message comes even when nothing is left", function()
    local function misspelled() return pcall(function() return heed.softmaxx end) end
    assert.equal(0, loads.units(misspelled))
    heed.limit { work = 1 }
    pcall(heed.zeros, 10)
    assert.equal(0, heed.limit().work)
    assert.matches("did you mean 'softmax'", select(2, misspelled()))
  end)

  it("is not raised by scripts once limits are final, nor refilled", function()
    local result = support.with_script([[
      local heed = require "heed"
      heed.limit { work = 1000, final = true }
      print((pcall(heed.limit, { work = 1001 })), (pcall(heed.limit, { work = math.huge })))
      print((pcall(heed.limit, { work = 500 })), heed.limit().work)
      print((pcall(heed.zeros, 1000)), heed.limit().work)
      print(select(2, pcall(heed.limit, { work = 1 })))
      print((pcall(heed.zeros, 1)))
    ]], function(path) return support.run(support.heed .. " " .. support.quote(path)) end)
    assert.equal("false\tfalse\ntrue\t500\nfalse\t0\nlimit: work is the number 1; the limits are final and nothing is "
      .. "left of it\nfalse\n", result.out)
  end)
end)
