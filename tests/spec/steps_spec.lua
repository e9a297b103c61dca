-- A resumable forward pass in time slices is bit-identical to a single call, whatever the slices are.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local tensors = require "tests.tensors"

-- Compares a single call with time slices, both with the same random numbers.
local function compare(m, x, options, ms)
  local all = tensors.merged({ ms = ms or 0 }, options)
  heed.manual_seed(7)
  local y, info = m(x, options)
  local next_whole = heed.rand(1):item()
  heed.manual_seed(7)
  local steps = m:steps(x, all)
  local count, last, total = 0, -1, nil
  for done, of in steps do
    assert.is_true(done > last and done <= of)
    assert.is_true(total == nil or total == of)
    count, last, total = count + 1, done, of
  end
  assert.equal(total, last)
  assert.equal(y:to_string(), steps.result:to_string())
  assert.equal(tostring(y.shape), tostring(steps.result.shape))
  assert.equal(next_whole, heed.rand(1):item())
  for name, value in pairs(info or {}) do assert.equal(value:to_string(), steps.info[name]:to_string(), name) end
  return count, steps
end

local BASE = { d_in = 48, d_out = 64, context_length = 512, dropout = 0, num_heads = 4 }
local function mha(more) return nn.MultiHeadAttention(tensors.merged(BASE, more)) end

describe("a forward pass in time slices is bit-identical to a single call", function()
  before_each(function() heed.manual_seed(1) end)
  after_each(function() heed.set_num_threads(1) end)

  for _, shape in ipairs { { 1, 48 }, { 5, 48 }, { 100, 48 }, { 2, 6, 48 }, { 3, 300, 48 }, { 0, 48 }, { 0, 4, 48 } } do
    it("for x with shape [" .. table.concat(shape, ", ") .. "]", function() compare(mha(), heed.rand(shape)) end)
  end

  it("for products computed in blocks", function()
    local m = mha { d_in = 768, d_out = 768, num_heads = 12 }
    assert.is_true(compare(m, heed.rand(400, 768)) > 50)
    for _, ms in ipairs { 0.05, 1, 1000, math.huge } do compare(m, heed.rand(400, 768), nil, ms) end
  end)

  it("with several threads", function()
    for _, threads in ipairs { 2, 3, 5 } do
      heed.set_num_threads(threads)
      compare(mha { d_in = 256, d_out = 256 }, heed.rand(2, 300, 256))
      compare(mha { d_in = 256, d_out = 256 }, heed.rand(2, 300, 256), nil, 0.2)
    end
  end)

  it("if the number of threads changes in between", function()
    local m, x = mha { d_in = 256, d_out = 256 }, heed.rand(2, 300, 256)
    local y, steps, threads = m(x), m:steps(x, { ms = 0 }), 0
    for _ in steps do
      threads = threads % 3 + 1
      heed.set_num_threads(threads)
    end
    assert.equal(y:to_string(), steps.result:to_string())
  end)

  it("with low-precision weights", function()
    for _, dtype in ipairs { "bfloat16", "float16", "int8" } do
      for _, n in ipairs { 3, 40, 200 } do compare(mha():to(dtype), heed.rand(n, 48)) end
    end
  end)

  for name, more in pairs {
    ["grouped heads"] = { num_kv_heads = 2 }, ["a window"] = { window = { left = 9 } }, ["a cap"] = { softcap = 3 },
    slopes = { alibi = true }, sinks = { sinks = true }, norms = { qk_norm = true },
    positions = { rope = {}, qk_norm = true }, ["no output projection"] = { out_proj = false },
    ["no causality"] = { causal = false }, biases = { qkv_bias = true },
  } do
    it("with " .. name, function()
      for _, shape in ipairs { { 2, 7, 48 }, { 300, 48 } } do
        compare(mha(more), heed.rand(shape))
        compare(mha(more), heed.rand(shape), { need_weights = true })
      end
    end)
  end

  it("with masks, padding and lengths", function()
    local m, x = mha(), heed.rand(2, 120, 48)
    compare(m, x, { attn_mask = heed.rand(120, 120):gt(0.3) })
    compare(m, x, { attn_mask = heed.randn(2, 4, 120, 120), key_padding_mask = heed.rand(2, 120):gt(0.8) })
    compare(m, x, { kv_lengths = heed.tensor({ 50, 120 }, { dtype = "int64" }) })
  end)

  it("with cross attention", function()
    local m = mha { kdim = 20, vdim = 24, causal = false }
    compare(m, heed.rand(2, 30, 48), { key = heed.rand(2, 50, 20), value = heed.rand(2, 50, 24) })
    m = mha { causal = false, rope = {} }
    compare(m, heed.rand(30, 48), { key = heed.rand(500, 48) })
  end)

  it("with dropout, which draws the same mask", function()
    for _, stream in ipairs { "native", "mkl" } do
      heed.set_dropout_stream(stream)
      compare(mha { dropout = 0.5 }, heed.rand(2, 100, 48))
      compare(mha { dropout = 0.5 }, heed.rand(6, 48), { need_weights = true })
      local g = heed.Generator(3)
      local m, x = mha { dropout = 0.1 }, heed.rand(90, 48)
      local y, after = m(x, { generator = heed.Generator(3) }), heed.Generator(3)
      local steps = m:steps(x, { ms = 0, generator = g })
      for _ in steps do collectgarbage() end
      assert.equal(y:to_string(), steps.result:to_string())
      m(x, { generator = after })
      assert.equal(heed.rand(4, { generator = after }):to_string(), heed.rand(4, { generator = g }):to_string())
    end
    heed.set_dropout_stream "native"
  end)

  it("for modules with one head", function()
    for _, n in ipairs { 6, 200 } do
      compare(nn.SelfAttention(48, 32), heed.rand(2, n, 48), { need_weights = true })
      compare(nn.CausalAttention(48, 32, 512, 0.2), heed.rand(2, n, 48))
    end
  end)

  it("with a cache, token by token and in chunks", function()
    for _, dtype in ipairs { "float32", "bfloat16", "int8" } do
      for _, more in ipairs { { rope = {}, qk_norm = true }, { window = { left = 40 } } } do
        local m, x = mha(more), heed.rand(2, 300, 48)
        local one, other = m:new_cache { batch = 2, dtype = dtype }, m:new_cache { batch = 2, dtype = dtype }
        local first = 1
        for _, count in ipairs { 1, 180, 1, 5, 100 } do
          local part = x[{ {}, { first, first + count - 1 } }]
          local y = m(part, { cache = one })
          local steps = m:steps(part, { ms = 0, cache = other })
          for done, total in steps do assert.equal(done == total and first + count - 1 or first - 1, other.length) end
          assert.equal(y:to_string(), steps.result:to_string())
          assert.equal(one.length, other.length)
          first = first + count
        end
      end
    end
  end)
end)

describe("a product in time slices is bit-identical to a single call", function()
  before_each(function() heed.manual_seed(1) end)
  after_each(function() heed.set_num_threads(1) end)

  for _, dtype in ipairs { "float32", "bfloat16", "float16", "int8", "q8_0" } do
    it("for a Linear in " .. dtype, function()
      for _, bias in ipairs { true, false } do
        local m = nn.Linear(256, 320, bias):to(dtype)
        for _, shape in ipairs { { 256 }, { 1, 256 }, { 2, 7, 256 }, { 0, 256 } } do compare(m, heed.rand(shape)) end
        for _, ms in ipairs { 0, 0.2, math.huge } do compare(m, heed.rand(700, 256), nil, ms) end
      end
    end)
  end

  it("with several threads, and has several slices", function()
    heed.set_num_threads(3)
    for _, dtype in ipairs { "float32", "int8" } do
      assert.is_true(compare(nn.Linear(512, 4096):to(dtype), heed.rand(300, 512)) > 10)
    end
  end)

  it("if the Linear is changed and released in between", function()
    local m, x = nn.Linear(512, 2048), heed.rand(300, 512)
    local y = m(x):to_string()
    local steps = m:steps(x, { ms = 0 })
    steps()
    m.weight = heed.zeros(2048, 512)
    m:to "bfloat16"
    m, x = nil, x:release() -- luacheck: ignore 311
    collectgarbage()
    for _ in steps do collectgarbage "step" end
    assert.equal(y, steps.result:to_string())
  end)
end)

describe("the steps of a forward pass", function()
  local m, x
  before_each(function()
    heed.manual_seed(1)
    m, x = mha { d_in = 256, d_out = 256 }, heed.rand(2, 300, 256)
  end)

  it("may yield in coroutines", function()
    local y, turns = m(x), 0
    local run = coroutine.wrap(function()
      local steps = m:steps(x, { ms = 0 })
      for done, total in steps do coroutine.yield(done, total) end
      return steps.result
    end)
    local got
    repeat got, turns = run(), turns + 1 until type(got) == "userdata"
    assert.is_true(turns > 10)
    assert.equal(y:to_string(), got:to_string())
  end)

  it("can alternate with those of another forward pass of the same module", function()
    local z = heed.rand(250, 256)
    local one, other = m:steps(x, { ms = 0 }), m:steps(z, { ms = 0 })
    local first, second = true, true
    while first or second do first, second = one(), other() end
    assert.equal(m(x):to_string(), one.result:to_string())
    assert.equal(m(z):to_string(), other.result:to_string())
  end)

  it("have a result only at the end, and stay finished", function()
    local steps = m:steps(x)
    assert.is_nil(steps.result)
    assert.equal(0, steps.done)
    local done, total = steps:advance(math.huge)
    assert.equal(total, done)
    assert.equal(steps.total, steps.done)
    assert.is_nil(steps())
    assert.equal(total, steps:advance(0))
    assert.equal(m(x):to_string(), steps.result:to_string())
    assert.equal(("heed.Steps(done=%d, total=%d)"):format(total, total), tostring(steps))
  end)

  it("are freed when they are no longer referenced", function()
    local function use()
      for _ = 1, 20 do
        local steps = m:steps(x, { ms = 0, need_weights = true })
        for _ = 1, 5 do steps() end
      end
    end
    use()
    collectgarbage()
    collectgarbage()
    local before = heed.info().memory_in_use
    use()
    collectgarbage()
    collectgarbage()
    assert.equal(before, heed.info().memory_in_use)
  end)

  it("can be released, and raise an error afterwards", function()
    local steps = m:steps(x)
    steps()
    local held = heed.info().memory_in_use
    steps:release()
    steps:release()
    assert.is_true(heed.info().memory_in_use < held)
    assert.equal("heed.Steps(released)", tostring(steps))
    raises("steps: self is a released heed.Steps; it must be a heed.Steps", function() steps() end)
    raises("result: self is a released heed.Steps; it must be a heed.Steps", function() return steps.result end)
  end)

  it("keep the weights and the input of the beginning", function()
    local y = m(x)
    local steps = m:steps(x, { ms = 0 })
    for _ = 1, 3 do steps() end
    m.W_query = nn.Linear(256, 256, false)
    m:to "int8"
    x:release()
    collectgarbage()
    for _ in steps do collectgarbage "step" end
    assert.equal(y:to_string(), steps.result:to_string())
  end)

  it("keep the parts of the beginning", function()
    local normed = mha { d_in = 256, d_out = 256, qk_norm = true }
    local y = normed(x)
    local steps = normed:steps(x, { ms = 0 })
    steps()
    local other = mha { d_in = 256, d_out = 256, qk_norm = true }
    for _, part in ipairs { other.q_norm, other.k_norm } do part.weight:fill_(5) end
    for _, name in ipairs { "W_query", "W_key", "W_value", "q_norm", "k_norm", "out_proj" } do
      normed[name] = other[name]
    end
    collectgarbage()
    local fresh = {} -- new tensors that reuse the freed memory
    for i = 1, 20 do fresh[i] = nn.Dropout(0.5) end
    for _ in steps do collectgarbage "step" end
    assert.equal(20, #fresh)
    assert.equal(y:to_string(), steps.result:to_string())
  end)

  it("outlive their module and cache", function()
    local cache = m:new_cache { batch = 2 }
    local y = m(x)
    local steps = m:steps(x, { ms = 0, cache = cache })
    cache:release()
    m, cache = nil, nil -- luacheck: ignore 311
    collectgarbage()
    for _ in steps do collectgarbage "step" end
    assert.equal(y:to_string(), steps.result:to_string())
  end)

  it("fail permanently if something else uses their cache", function()
    for _, use in ipairs {
      function(c) m(x, { cache = c }) end, function(c) c:truncate(c.length) end,
      function(c) c:reorder { 2, 1 } end, function(c) m:steps(x, { cache = c }) end,
    } do
      local cache = m:new_cache { batch = 2, capacity = 900 }
      m = mha { d_in = 256, d_out = 256, context_length = 900 }
      m(x, { cache = cache })
      local steps = m:steps(x[{ {}, { 1, 100 } }], { ms = 0, cache = cache })
      steps()
      use(cache)
      local length = cache.length
      raises("steps: the cache was used by another call between two slices; give each call a cache of its "
        .. "own, or finish one before the other", function() steps() end)
      raises("steps: an earlier slice has failed; begin a new pass", function() steps() end)
      assert.is_nil(steps.result)
      assert.equal(length, cache.length)
    end
  end)

  it("that end early leave cache and generator unchanged", function()
    m = mha { d_in = 256, d_out = 256, dropout = 0.5 }
    local cache, g = m:new_cache { batch = 2 }, heed.Generator(5)
    do
      local steps = m:steps(x, { ms = 0, cache = cache, generator = g })
      for _ = 1, 40 do steps() end
      steps:release()
    end
    assert.equal(0, cache.length)
    local as_new = heed.Generator(5)
    assert.equal(heed.rand(3, { generator = as_new }):to_string(), heed.rand(3, { generator = g }):to_string())
  end)

  it("report errors at the line of the caller", function()
    raises("steps: ms is -1; it must be 0 or more", function() m:steps(x, { ms = -1 }) end)
    raises("steps: ms is a string ('2'); it must be a number", function() m:steps(x, { ms = "2" }) end)
    assert.is_false(pcall(m.steps, m, x, { ms = 0 / 0 }))
    raises("steps: x is nil; it must be a tensor", function() m:steps() end)
    for _, wrong in ipairs {
      { "steps: there is no option 'milliseconds'", function() m:steps(x, { milliseconds = 2 }) end },
      { "MultiHeadAttention: x is [2, 255]", function() m:steps(heed.rand(2, 255)) end },
      { "steps: the module is a LayerNorm; it must be a MultiHeadAttention, a SelfAttention, a CausalAttention or a "
          .. "Linear", function() nn.LayerNorm(2):steps(heed.rand(2, 2)) end },
      { "Linear: x is [2, 3] and weight is [2, 2]", function() nn.Linear(2, 2):steps(heed.rand(2, 3)) end },
      { "Linear: need_weights", function() nn.Linear(2, 2):steps(heed.rand(2, 2), { need_weights = true }) end },
      { "steps: softmax_dim of the CausalAttention is 1; it must be that of the keys, -1 or 2",
        function()
          nn.CausalAttention({ d_in = 2, d_out = 2, context_length = 4, dropout = 0, softmax_dim = 1 })
            :steps(heed.rand(2, 2))
        end },
      { "CausalAttention: cache is given; only MultiHeadAttention takes it",
        function() nn.CausalAttention(2, 2, 4, 0):steps(heed.rand(2, 2), { cache = m:new_cache() }) end },
      { "advance: ms is -1", function() m:steps(x):advance(-1) end },
      { "have no field 'nothing'", function() return m:steps(x).nothing end },
      { "no field that can be set", function() m:steps(x).result = 1 end },
      { "need_weights was false",
        function()
          local steps = m:steps(x)
          steps:advance(math.huge)
          return steps.info
        end },
      { "self is a released heed.Steps; it must be a heed.Steps",
        function()
          local steps = m:steps(x)
          steps:release()
          for _ in steps do collectgarbage() end
        end },
    } do
      local _, message = pcall(wrong[2])
      assert.truthy(message:find(wrong[1], 1, true), message)
      assert.truthy(message:find("steps_spec.lua:", 1, true), message)
    end
  end)
end)

describe("a forward pass in time slices, while gradients are recorded,", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  local refusal = "steps: gradients are recorded, and a pass in slices has none; call it under no_grad"

  it("is refused, with parts in C or in Lua", function()
    local m, x = mha(), heed.rand(3, 48)
    raises(refusal, function() m:steps(x) end)
    m:register_forward_hook(function() end)
    raises(refusal, function() m:steps(x) end)
  end)

  it("runs under no_grad, and where nothing wants a gradient", function()
    local m, x = mha(), heed.rand(3, 48)
    heed.no_grad(function() compare(m, x) end)
    m:requires_grad_(false)
    local expected = m(x)
    m:register_forward_hook(function() end)
    local steps = m:steps(x)
    steps:advance(math.huge)
    assert.equal(expected:to_string(), steps.result:to_string())
    raises(refusal, function() m:steps(x:requires_grad_()) end)
  end)
end)
