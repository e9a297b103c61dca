-- m:steps of attention modules with hooks, listeners at points, changed heads and parts of one's own.
local heed = require "heed"
local nn = heed.nn
local points = require "heed.nn.points"
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local function mha(more)
  heed.manual_seed(7)
  return nn.MultiHeadAttention(tensors.merged(
    { d_in = 48, d_out = 64, context_length = 600, dropout = 0, num_heads = 4 }, more or {}))
end

local x = heed.randn(2, 150, 48, { generator = heed.Generator(1) })

local Scaled = nn.Module.class "Scaled"
function Scaled:init(base) self.base = base end
function Scaled:forward(input) return self.base(input) * 0.5 end

-- What happens in a pass of m, in order: names of hooks and points.
local function recorded(m, run)
  local names, handles = {}, {}
  local function add(handle) handles[#handles + 1] = handle end
  add(m:register_forward_pre_hook(function() names[#names + 1] = "before" end))
  add(m:register_forward_hook(function() names[#names + 1] = "after" end))
  add(m.W_key:register_forward_hook(function() names[#names + 1] = "W_key" end))
  for _, point in ipairs(points.NAMES) do
    add(points.add(m, point, function() names[#names + 1] = point end))
  end
  run()
  for _, handle in ipairs(handles) do handle:remove() end
  return table.concat(names, " ")
end

-- Compares one call with slices, both with the same random numbers.
local function compare(m, input, options)
  for _, ms in ipairs { 0, 0.2, math.huge } do
    heed.manual_seed(3)
    local y, info = m(input, options)
    local drawn = heed.rand(1):item()
    heed.manual_seed(3)
    local steps = m:steps(input, tensors.merged({ ms = ms }, options))
    assert.is_nil(steps.result)
    local last, total, count = -1, steps.total, 0
    for done, of in steps do
      assert.is_true(done > last and done <= of)
      assert.are.equal(total, of)
      assert.are.equal(done, steps.done)
      last, count = done, count + 1
    end
    assert.are.equal(total, last)
    assert.is_true(count > (ms == 0 and 10 or 0))
    assert.are.equal(y:to_string(), steps.result:to_string())
    assert.are.equal(drawn, heed.rand(1):item())
    for name, value in pairs(info or {}) do
      assert.are.equal(value:to_string(), steps.info[name]:to_string(), name)
    end
  end
end

local CHANGES = {
  ["a hook of the module"] = function(m)
    m:register_forward_pre_hook(function(_, input) return input * 2 end)
    m:register_forward_hook(function(_, _, y) return y + 1 end)
  end,
  ["hooks of its parts"] = function(m)
    m.W_query:register_forward_pre_hook(function(_, input) return input * 2 end)
    m.W_value:register_forward_hook(function(_, _, y) return y:neg() end)
    if m:class_name() == "MultiHeadAttention" and m.out_proj then
      m.out_proj:register_forward_hook(function(_, _, y) return y * 3 end)
    end
  end,
  ["ablated heads"] = function(m) m:ablate(-1) end,
  ["changed weights"] = function(m)
    m:on_weights(function(weights) return weights * 0.5 end)
  end,
  ["changed scores"] = function(m)
    points.add(m, "attn_scores", function(scores) return scores * 2 end)
  end,
  ["weights that are only looked at"] = function(m) points.read(m, "pattern", function() end) end,
  ["changed queries and values"] = function(m)
    points.add(m, "rot_q", function(q) return q * 2 end)
    points.add(m, "v", function(v) return v:neg() end)
  end,
  ["parts of one's own"] = function(m)
    m.W_query = Scaled(m.W_query)
    m.dropout = Scaled(m.dropout)
  end,
}

local MODULES = {
  ["a plain module"] = function() return mha() end,
  ["a module with grouped heads, norms and rotation"] = function()
    return mha { num_kv_heads = 2, qk_norm = true, rope = {}, window = { left = 40 } }
  end,
  ["a module with sinks, slopes and without projection"] = function()
    return mha { sinks = true, alibi = true, out_proj = false }
  end,
  ["a CausalAttention"] = function() return nn.CausalAttention(48, 32, 512, 0.2) end,
  ["a SelfAttention"] = function() return nn.SelfAttention(48, 32) end,
}

for module, make in pairs(MODULES) do
  describe("the steps of " .. module, function()
    for change, apply in pairs(CHANGES) do
      if not (module == "a SelfAttention" and change:find "own") then
        it("give the bits of one call, with " .. change, function()
          heed.manual_seed(2)
          local m = make()
          apply(m)
          compare(m, x)
          compare(m, x[1], { need_weights = true })
        end)
      end
    end

    it("call hooks and points in the order of one call", function()
      local m = make()
      local once = recorded(m, function() m(x) end)
      assert.are.equal(once, recorded(m, function()
        for _ in m:steps(x, { ms = 0 }) do collectgarbage "step" end
      end))
      assert.is_truthy(once:find "pattern")
    end)
  end)
end

describe("the steps of a module with hooks", function()
  it("give the bits of one call with several threads, masks and low precision", function()
    local m = mha():to "bfloat16"
    m:on_weights(function(weights) return weights:flip(2) end)
    heed.set_num_threads(2)
    compare(m, x, { attn_mask = heed.rand(150, 150):gt(0.2) })
    heed.set_num_threads(1)
    compare(m, x, { kv_lengths = tensors.int64 { 20, 150 }, need_weights = { "weights", heads = { 2 } } })
  end)

  it("call hooks between slices: none runs before its stage", function()
    local m, calls = mha(), 0
    m:on_weights(function() calls = calls + 1 end)
    local steps = m:steps(x, { ms = 0 })
    assert.are.equal(0, calls)
    steps()
    assert.are.equal(0, calls)
    for _ in steps do assert.is_true(calls <= 1) end
    assert.are.equal(1, calls)
  end)

  it("draw the dropout of one call, and nothing if they end early", function()
    local m = mha { dropout = 0.5 }
    for _, change in ipairs { "pattern", "q", "z" } do
      local handle = points.add(m, change, function(t) return t * 2 end)
      compare(m, x)
      local g = heed.Generator(5)
      local steps = m:steps(x, { ms = 0, generator = g })
      for _ = 1, 20 do steps() end
      steps:release()
      assert.are.equal(heed.rand(3, { generator = heed.Generator(5) }):to_string(),
        heed.rand(3, { generator = g }):to_string())
      handle:remove()
    end
    m:eval():ablate(1)
    compare(m, x)
  end)

  it("leave the generator to draws in between", function()
    local m = mha { dropout = 0.5 }
    m:ablate(1)
    local y = m(x, { generator = heed.Generator(5) })
    local g, other = heed.Generator(5), heed.Generator(5)
    local steps, slices = m:steps(x, { ms = 0, generator = g }), 0
    for _ in steps do
      slices = slices + 1
      -- by now the weights are being drawn
      if steps.done > 0.5 * steps.total and other then
        heed.rand(2, { generator = g })
        heed.rand(2, { generator = other })
        other = nil
      end
    end
    assert.is_true(slices > 20)
    assert.are.equal(y:to_string(), steps.result:to_string())
  end)

  it("append to a cache at the end, what a hook changed", function()
    local m = mha { rope = {} }
    points.add(m, "k", function(k) return k * 2 end)
    local one, other, first = m:new_cache { batch = 2 }, m:new_cache { batch = 2 }, 1
    for _, count in ipairs { 1, 100, 3 } do
      local part = x[{ {}, { first, first + count - 1 } }]
      local y = m(part, { cache = one })
      local steps = m:steps(part, { ms = 0, cache = other })
      for done, total in steps do
        assert.are.equal(done == total and first + count - 1 or first - 1, other.length)
      end
      assert.are.equal(y:to_string(), steps.result:to_string())
      first = first + count
    end
  end)

  it("keep the listeners, the weights and the input of the beginning", function()
    local m = mha()
    local handle = m:ablate(2)
    local input = x:clone()
    local y = m(input)
    local steps = m:steps(input, { ms = 0 })
    steps()
    m:patch(1, heed.zeros(150, 150))
    m.W_value, m.out_proj = nn.Linear(48, 64, false), nn.Linear(64, 64)
    input:release()
    for _ in steps do collectgarbage "step" end
    assert.are.equal(y:to_string(), steps.result:to_string())
    handle:remove()
  end)

  it("can alternate, and run inside a hook of another pass", function()
    local m = mha()
    m:ablate(2)
    local y, other, again = m(x), m(x[1]), nil
    local one, two = m:steps(x, { ms = 0 }), m:steps(x[1], { ms = 0 })
    local first, second = true, true
    while first or second do first, second = one(), two() end
    assert.are.equal(y:to_string(), one.result:to_string())
    assert.are.equal(other:to_string(), two.result:to_string())

    local nested = false
    m:on_weights(function()
      if nested then return end
      nested = true
      again = m:steps(x[1], { ms = 0 })
      for _ in again do collectgarbage "step" end
    end)
    one = m:steps(x)
    one:advance(math.huge)
    assert.are.equal(y:to_string(), one.result:to_string())
    assert.are.equal(other:to_string(), again.result:to_string())
  end)

  it("pass on what hooks yield", function()
    local m = mha()
    local y = m(x)
    m:on_weights(function() coroutine.yield "weights" end)
    m.W_key:register_forward_hook(function() coroutine.yield "W_key" end)
    local steps, seen = nil, {}
    local run = coroutine.wrap(function()
      steps = m:steps(x, { ms = 0 })
      repeat local done, total = steps:advance() until done == total
      return "end"
    end)
    local fine, message = pcall(function()
      repeat seen[#seen + 1] = run() until seen[#seen] == "end"
    end)
    if not fine then -- where a C function is in between
      assert.is_truthy(tostring(message):find("yield", 1, true))
      return
    end
    assert.are.equal("W_key weights end", table.concat(seen, " "))
    assert.are.equal(y:to_string(), steps.result:to_string())
  end)
end)

describe("an error during the steps of a module with hooks", function()
  local m, cache, g
  before_each(function()
    m = mha { dropout = 0.5 }
    cache, g = m:new_cache { batch = 2 }, heed.Generator(5)
    m(x[{ {}, { 1, 20 } }], { cache = cache, generator = heed.Generator(1) })
  end)

  -- The pass has ended, and nothing has changed.
  local function check_unchanged(steps)
    assert.are.equal(20, cache.length)
    assert.are.equal(heed.rand(3, { generator = heed.Generator(5) }):to_string(),
      heed.rand(3, { generator = g }):to_string())
    assert.is_nil(steps.result)
    raises("steps: an earlier slice has failed; begin a new pass", function() steps() end)
    raises("steps: an earlier slice has failed; begin a new pass", function() steps:advance(1) end)
  end

  local function begin(ms) return m:steps(x, { ms = ms or 0, cache = cache, generator = g }) end
  local function finish(steps)
    for _ in steps do collectgarbage "step" end
  end

  it("in a hook ends them with that error", function()
    for _, point in ipairs(points.NAMES) do
      local handle = points.add(m, point, function() error("no " .. point, 0) end)
      local steps = begin()
      local fine, message = pcall(finish, steps)
      assert.are.same({ false, "no " .. point }, { fine, message })
      check_unchanged(steps)
      handle:remove()
      g = heed.Generator(5)
    end
    m.W_value:register_forward_hook(function() error { "a value" } end)
    local steps = begin()
    local _, message = pcall(finish, steps)
    assert.are.same({ "a value" }, message)
    check_unchanged(steps)
  end)

  it("names the point whose hook gave something else", function()
    points.add(m, "z", function(z) return z[1] end)
    local steps = begin()
    raises("MultiHeadAttention: the result of the hook on z is a tensor of shape [150, 4, 16] and dtype float32; it "
      .. "must be nil or a float32 tensor [2, 150, 4, 16]", function() steps:advance(math.huge) end)
    check_unchanged(steps)
  end)

  it("is raised if the cache was used by another call", function()
    m:ablate(1)
    local steps = begin()
    for _ = 1, 3 do steps() end
    m(x[{ {}, { 1, 1 } }], { cache = cache })
    local fine, message = pcall(finish, steps)
    assert.is_false(fine)
    assert.is_truthy(message:find("the cache was used by another call", 1, true))
    assert.are.equal(21, cache.length)
  end)

  it("is raised if a hook advances or releases the pass that calls it", function()
    local steps
    local handle = m:on_weights(function() steps:advance(1) end)
    steps = begin()
    local _, message = pcall(finish, steps)
    assert.is_truthy(message:find("a hook cannot advance the pass that calls it", 1, true), message)
    check_unchanged(steps)
    handle:remove()
    m:on_weights(function() steps:release() end)
    steps = begin()
    _, message = pcall(finish, steps)
    assert.is_truthy(message:find("the pass was released by one of its own hooks", 1, true), message)
    assert.are.equal("heed.Steps(released)", tostring(steps))
    assert.are.equal(20, cache.length)
  end)

  it("is raised by limits of memory and seconds, in a slice or in a hook", function()
    m:on_weights(function(weights) return weights * 2 end)
    local steps = begin(math.huge)
    heed.limit { memory = heed.info().memory_in_use + 100000 }
    local _, message = pcall(finish, steps)
    heed.limit { memory = math.huge }
    assert.is_truthy(message:find("memory limit exceeded", 1, true), message)
    check_unchanged(steps)

    local long = heed.ones(1):expand(2 ^ 33)
    local handle = points.read(m, "q", function() long:dot(long) end)
    g = heed.Generator(5)
    steps = begin(math.huge)
    heed.limit { seconds = 0.05 }
    _, message = pcall(finish, steps)
    heed.limit { seconds = math.huge }
    assert.is_truthy(message:find("time limit exceeded", 1, true), message)
    check_unchanged(steps)
    handle:remove()
  end)
end)

describe("heed.Steps of a module with hooks", function()
  local m
  before_each(function()
    m = mha()
    m:ablate(1)
  end)

  it("have the fields, the text and the errors of other steps", function()
    local steps = m:steps(x)
    assert.are.equal(0, steps.done)
    assert.are.equal(("heed.Steps(done=0, total=%d)"):format(steps.total), tostring(steps))
    local done, total = steps:advance(math.huge)
    assert.are.equal(total, done)
    assert.is_nil(steps())
    assert.are.equal(total, steps:advance(0))
    raises("steps: taps are requested, but need_weights was false", function() return steps.info end)
    raises("heed.Steps have no field 'nothing'; they have result, info, done, total, advance and release",
      function() return steps.nothing end)
    raises("heed.Steps have no field that can be set, such as 'result'", function() steps.result = 1 end)
    raises("advance: ms is -1; it must be 0 or more", function() steps:advance(-1) end)
    raises("advance: ms is a string ('a'); it must be a number", function() steps:advance "a" end)
    raises("advance: self is nil; it must be a heed.Steps", function() steps.advance() end)
    raises("steps: ms is -1; it must be 0 or more", function() m:steps(x, { ms = -1 }) end)
    raises("steps: x is nil; it must be a tensor", function() m:steps() end)
    assert.is_false(pcall(m.steps, m, x, { milliseconds = 2 }))
    assert.is_false(pcall(m.steps, m, heed.rand(2, 47)))
  end)

  it("free their memory when they are released", function()
    local steps = m:steps(x)
    local held = heed.info().memory_in_use
    steps:advance(0)
    steps:release()
    steps:release()
    assert.is_true(heed.info().memory_in_use <= held)
    assert.are.equal("heed.Steps(released)", tostring(steps))
    raises("steps: self is a released heed.Steps; it must be a heed.Steps", function() steps() end)
    raises("result: self is a released heed.Steps; it must be a heed.Steps", function() return steps.result end)
  end)

  it("are those of time slices in C once the hooks are gone", function()
    local plain = mha()
    local handle = plain:ablate(1)
    assert.are.equal("table", type(plain:steps(x)))
    handle:remove()
    assert.are.equal("userdata", type(plain:steps(x)))
  end)

end)
