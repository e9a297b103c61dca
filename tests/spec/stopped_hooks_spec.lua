-- Attention modules with hooks and changed heads under limits, in coroutines, and with dropout.
local heed = require "heed"
local nn = heed.nn
local points = require "heed.nn.points"
local support = require "tests.support"
local tensors = require "tests.tensors"
local close = tensors.close

local x = heed.randn(2, 60, 24, { generator = heed.Generator(1) })

local function mha(more)
  heed.manual_seed(7)
  return nn.MultiHeadAttention(tensors.merged(
    { d_in = 24, d_out = 32, context_length = 200, dropout = 0, num_heads = 4 }, more or {}))
end

local CHANGES = {
  ["ablated heads"] = function(m) return m:ablate { 1, 3 } end,
  ["a patched head"] = function(m) return m:patch(2, heed.ones(60, 60) / 60) end,
  ["changed weights"] = function(m)
    return m:on_weights(function(weights) return weights * 2 end)
  end,
  ["changed scores"] = function(m)
    return points.add(m, "attn_scores", function(scores) return scores * 2 end)
  end,
  ["changed keys"] = function(m)
    return points.add(m, "k", function(k) return k * 2 end)
  end,
  ["a hook of a part"] = function(m)
    return m.W_value:register_forward_hook(function(_, _, v) return v * 2 end)
  end,
}

-- Calls f, which must raise an error that contains `message`.
local function fails(message, f)
  local fine, got = pcall(f)
  heed.limit { memory = math.huge, seconds = math.huge }
  assert.is_false(fine)
  assert.is_truthy(tostring(got):find(message, 1, true), tostring(got))
end

for change, apply in pairs(CHANGES) do
  describe("a module with " .. change, function()
    after_each(function() heed.limit { memory = math.huge, seconds = math.huge } end)

    it("fails without an effect if memory runs out, wherever that is", function()
      local m = mha { dropout = 0.5 }
      apply(m)
      local cache, g = m:new_cache { batch = 2 }, heed.Generator(5)
      local y = m(x, { generator = heed.Generator(5) })
      local failures = 0
      for i = 0, 16 do
        collectgarbage()
        collectgarbage()
        heed.limit { memory = heed.info().memory_in_use + math.floor(400 * 2 ^ (i / 2)) }
        local fine, message = pcall(m, x, { cache = cache, generator = g })
        heed.limit { memory = math.huge }
        if fine then break end
        failures = failures + 1
        assert.is_truthy(message:find("memory limit exceeded", 1, true), message)
        assert.are.equal(0, cache.length)
      end
      assert.is_true(failures > 3)
      cache = m:new_cache { batch = 2 }
      g = heed.Generator(5)
      assert.are.equal(y:to_string(), m(x, { cache = cache, generator = g }):to_string())
    end)

    it("fails without an effect if a hook exceeds the time limit", function()
      local m = mha { dropout = 0.5 }
      apply(m)
      local cache, g, long = m:new_cache { batch = 2 }, heed.Generator(5), heed.ones(1):expand(2 ^ 33)
      local y = m(x, { generator = heed.Generator(5) })
      for _, point in ipairs { "q", "pattern", "z" } do
        local handle = points.read(m, point, function() long:dot(long) end)
        heed.limit { seconds = 0.02 }
        fails("time limit exceeded", function() return m(x, { cache = cache, generator = g }) end)
        handle:remove()
        assert.are.equal(0, cache.length)
      end
      assert.are.equal(y:to_string(), m(x, { cache = cache, generator = g }):to_string())
    end)

    it("works under limits that are large enough, without files", function()
      local m = mha()
      apply(m)
      local y = m(x)
      heed.limit { memory = heed.info().memory_in_use + 2 ^ 24, seconds = 60 }
      for _ = 1, 3 do assert.are.equal(y:to_string(), m(x):to_string()) end
    end)
  end)
end

describe("a module with hooks near the limit of memory", function()
  after_each(function() heed.limit { memory = math.huge } end)

  it("collects garbage before it fails", function()
    local m = mha()
    m:on_weights(function(weights) return weights * 0.5 end)
    local y = m(x)
    collectgarbage()
    collectgarbage()
    heed.limit { memory = heed.info().memory_in_use + 2 ^ 20 }
    for _ = 1, 50 do assert.are.equal(y:to_string(), m(x):to_string()) end
    for _ = 1, 5 do
      local steps = m:steps(x, { ms = 0 })
      for done in steps do assert(done) end
    end
  end)
end)

describe("dropout of a module with hooks", function()
  it("follows the changed weights, and draws what it draws without hooks", function()
    local m = mha { dropout = 0.5 }
    local y, info = m(x, { need_weights = true, generator = heed.Generator(5) })
    local handle = m:on_weights(function(weights) return weights * 2 end)
    local g = heed.Generator(5)
    local doubled, found = m(x, { need_weights = true, generator = g })
    close(info.weights * 2, found.weights)
    local kept = found.dropped_weights:ne(0):to_string() -- two draws of the same numbers
    assert.are.equal(kept, select(2, m(x, { need_weights = true, generator = heed.Generator(5) }))
      .dropped_weights:ne(0):to_string())
    local z = found.dropped_weights:matmul(found.values):transpose(2, 3):reshape(2, 60, 32)
    close(z:linear(m.out_proj.weight, m.out_proj.bias), doubled, 1e-5)
    handle:remove()
    assert.are.equal(y:to_string(), m(x, { generator = heed.Generator(5) }):to_string())
  end)

  it("is off in eval mode, with and without hooks", function()
    local m = mha { dropout = 0.5 }:eval()
    local y = m(x)
    local handle = m:on_weights(function(weights) return weights + 0 end)
    close(y, m(x), 1e-5)
    handle:remove()
    m:ablate(1, { value = 3 })
    assert.are.equal(m(x):to_string(), m(x):to_string())
  end)

  it("draws nothing that stays if a hook fails", function()
    local m, g = mha { dropout = 0.5 }, heed.Generator(5)
    for _, point in ipairs(points.NAMES) do
      local handle = points.add(m, point, function() error("no", 0) end)
      fails("no", function() return m(x, { generator = g }) end)
      handle:remove()
    end
    assert.are.equal(m(x, { generator = heed.Generator(5) }):to_string(), m(x, { generator = g }):to_string())
  end)
end)

describe("a hook that yields", function()
  local function collect(m, run)
    local seen = {}
    local co = coroutine.create(run)
    while true do
      local fine, value = coroutine.resume(co)
      if not fine then
        assert.is_falsy(support.has.frames, tostring(value))
        assert.is_truthy(tostring(value):find("yield", 1, true), tostring(value))
        return nil
      end
      if coroutine.status(co) == "dead" then return table.concat(seen, " "), value end
      seen[#seen + 1] = value
      m(x[1], { generator = heed.Generator(1) }) -- another pass in between: its hooks must not yield
    end
  end

  it("suspends the pass, which another one may overtake", function()
    local m = mha()
    local y = m(x)
    local function pause(what, t)
      return t.shape[1] == 2 and coroutine.yield(what) or nil
    end
    for _, point in ipairs(points.NAMES) do
      points.add(m, point, function(t) return pause(point, t) end)
    end
    m.W_key:register_forward_hook(function(_, input) pause("W_key", input) end)
    local seen, got = collect(m, function() return m(x) end)
    if not seen then return end
    assert.are.equal("q W_key k v rot_q rot_k attn_scores pattern z result", seen)
    close(y, got, 1e-5)
  end)

  it("may never be resumed; the module is as before", function()
    local m = mha()
    local y, cache = m(x), m:new_cache { batch = 2 }
    local handle = m:on_weights(function() coroutine.yield() end)
    local co = coroutine.create(function() return m(x, { cache = cache }) end)
    coroutine.resume(co)
    co = nil -- luacheck: ignore 311
    collectgarbage()
    collectgarbage()
    handle:remove()
    assert.are.equal(0, cache.length)
    assert.are.equal(y:to_string(), m(x, { cache = cache }):to_string())
  end)
end)
