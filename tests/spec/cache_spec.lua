-- heed.Cache: single tokens, chunks and all tokens at once; truncate, reorder, clone; windows; rejected arguments,
-- which leave the cache unchanged.
local heed = require "heed"
local support = require "tests.support"
local nn = heed.nn
local raises = require "tests.raises"
local cases = require "tests.mha_cases"
local tensors = require "tests.tensors"
local module, close = tensors.small_mha, tensors.close

local DTYPES = { "float32", "bfloat16", "float16", "int8" }
-- Error bounds of results of about 1, due to rounding of the stored values: half a unit of 8 or 11 bits, or 1 / 254.
local BOUNDS = { float32 = 1e-6, bfloat16 = 0.02, float16 = 0.002, int8 = 0.03 }


before_each(function() heed.manual_seed(123) end)

describe("a cache", function()
  it("has fields and a text that describe it", function()
    local m = module()
    local cache = m:new_cache { batch = 2, capacity = 10, dtype = "int8" }
    assert.equal(0, cache.length)
    assert.equal(10, cache.capacity)
    assert.equal(2, cache.batch)
    assert.equal("int8", cache.dtype)
    m(heed.randn(2, 3, 6), { cache = cache })
    assert.equal(3, cache.length)
    assert.equal("heed.Cache(length=3, capacity=10, batch=2, dtype=int8)", tostring(cache))
    cache = m:new_cache()
    assert.equal("heed.Cache(length=0, capacity=12, batch=1, dtype=float32)", tostring(cache))
    assert.equal(math.huge, module { window = { left = 2 } }:new_cache().capacity)
    assert.equal(12, module { window = { right = 2 } }:new_cache().capacity)
    assert.equal(12, module { window = { left = 12 } }:new_cache().capacity)
    raises("a heed.Cache has no field 'len'; it has length, lengths, capacity, batch, dtype, truncate, reorder, " ..
      "clone, save and release", function() return cache.len end)
    raises("a heed.Cache has no field that can be set, such as 'length'", function() cache.length = 3 end)
  end)

  it("gives the same result for single tokens, chunks and all tokens at once, with every option", function()
    local function one_of(...) return (select(math.random(select("#", ...)), ...)) end
    math.randomseed(7)
    for _ = 1, 150 do
      local kv, batched = one_of(1, 2, 4), math.random(2) == 1
      local m = module {
        head_dim = one_of(2, 4, 16), num_kv_heads = kv, qkv_bias = one_of(true, false),
        window = one_of(nil, { left = 0 }, { left = 3 }, { left = 2, right = 1 }, { right = 0 }),
        softcap = one_of(nil, 1.5), alibi = one_of(true, false), sinks = one_of(true, false),
        qk_norm = one_of(true, false), out_proj = one_of(true, false),
        rope = one_of(nil, {}, { style = "interleaved", base = 30 }, { dims = 2 }),
      }
      if m.sinks then m.sinks:copy_(heed.randn(4)) end
      local n = math.random(1, 12)
      local x = heed.randn(batched and 2 or 1, n, 6)
      local whole = m(x)
      for _, dtype in ipairs(DTYPES) do
        local cache, chunks, left = m:new_cache { batch = batched and 2 or 1, dtype = dtype }, {}, n
        while left > 0 do
          chunks[#chunks + 1] = math.random(1, left)
          left = left - chunks[#chunks]
        end
        local y = cases.through(m, x, cache, chunks)
        close(whole, y, BOUNDS[dtype])
        assert.equal(n, cache.length)
      end
    end
  end)

  it("gives the same result for few queries and many keys", function()
    local sizes = { d_in = 64, d_out = 64, context_length = 340, num_heads = 4, dropout = 0, head_dim = 32 }
    for _, more in ipairs {
      {}, { num_kv_heads = 2, rope = {} }, { num_kv_heads = 1, window = { left = 100 }, softcap = 3 },
      { num_kv_heads = 4, alibi = true, sinks = true, qk_norm = true },
    } do
      for name, value in pairs(sizes) do more[name] = value end
      local m, x = nn.MultiHeadAttention(more), heed.randn(2, 330, 64)
      local whole = m(x)
      for _, dtype in ipairs(DTYPES) do
        local cache = m:new_cache { batch = 2, dtype = dtype }
        m(x[{ {}, { 1, 200 } }], { cache = cache })
        m(x[{ {}, { 201, 320 } }], { cache = cache })
        local clone, rows = cache:clone(), {}
        for i = 321, 330 do rows[#rows + 1] = m(x[{ {}, { i, i } }], { cache = cache }) end
        local y = heed.cat(rows, 2)
        close(whole[{ {}, { 321, 330 } }], y, BOUNDS[dtype])
        close(y, m(x[{ {}, { 321, 330 } }], { cache = clone }), BOUNDS[dtype]) -- values may be rounded differently
      end
    end
  end)

  it("gives bit-identical results with several threads", function()
    local c = { d_in = 64, d_out = 64, context_length = 700, num_heads = 4, dropout = 0, rope = {} }
    local m = nn.MultiHeadAttention(c)
    local x = heed.randn(1, 650, 64)
    for _, dtype in ipairs(DTYPES) do
      local results = {}
      for threads = 1, 3 do
        heed.set_num_threads(threads)
        results[threads] = cases.through(m, x, m:new_cache { dtype = dtype }, { 600, 1, 1, 48 }):to_string()
      end
      heed.set_num_threads(1)
      assert.equal(results[1], results[2])
      assert.equal(results[1], results[3])
    end
  end)

  it("accepts x without a batch if its batch size is 1", function()
    local m, x = module { rope = {}, window = { left = 3 } }, heed.randn(8, 6)
    for _, dtype in ipairs(DTYPES) do
      local cache = m:new_cache { dtype = dtype }
      local first, second = m(x[{ { 1, 5 } }], { cache = cache }), m(x[{ { 6, 8 } }], { cache = cache })
      close(m(x), heed.cat({ first, second }, 1), BOUNDS[dtype])
    end
  end)

  it("accepts an input without tokens", function()
    local m = module()
    local cache = m:new_cache()
    assert.equal("heed.Size([1, 0, 8])", tostring(m(heed.zeros(1, 0, 6), { cache = cache }).shape))
    assert.equal(0, cache.length)
    local y = m(heed.ones(1, 2, 6), { cache = cache })
    close(m(heed.ones(1, 2, 6)), y)
  end)

  it("accepts masks over all keys, both cached ones and those of x", function()
    for _, window in ipairs { { right = 0 }, { left = 3 }, { left = 1 } } do
      local m, x = module { alibi = true, window = window, context_length = 300 }, heed.randn(2, 10, 6)
      local bool, float = heed.rand(2, 4, 10, 10):ge(0.3), heed.randn(4, 10, 10)
      local short, padding = heed.randn(10, 7), heed.rand(2, 10):ge(0.7)
      for _, chunks in ipairs { { 4, 3, 3 }, { 1, 8, 1 }, { 9, 1 } } do
        local ways = {
          function(f, l) return { attn_mask = bool[{ {}, {}, { f, l }, { 1, l } }] } end,
          function(f, l) return { attn_mask = float[{ {}, { f, l }, { 1, l } }] } end,
          function(f, l) return { attn_mask = short[{ { f, l }, { 1, math.min(l, 7) } }] } end,
          function(_, l) return { key_padding_mask = padding[{ {}, { 1, l } }] } end,
        }
        local whole = {
          { attn_mask = bool }, { attn_mask = float }, { attn_mask = short }, { key_padding_mask = padding },
        }
        for i, way in ipairs(ways) do
          local cache, at, rows = m:new_cache { batch = 2 }, 0, {}
          for k, size in ipairs(chunks) do
            local options = way(at + 1, at + size)
            options.cache = cache
            rows[k] = m(x[{ {}, { at + 1, at + size } }], options)
            at = at + size
          end
          close(m(x, whole[i]), heed.cat(rows, 2))
        end
      end
    end
  end)

  it("returns all keys and values, and the intermediate results, with need_weights", function()
    local m, x = module { num_kv_heads = 2, rope = {} }, heed.randn(2, 7, 6)
    local _, whole = m(x, { need_weights = true })
    for _, dtype in ipairs(DTYPES) do
      local cache = m:new_cache { batch = 2, dtype = dtype }
      m(x[{ {}, { 1, 5 } }], { cache = cache })
      local again = cache:clone()
      local y, info = m(x[{ {}, { 6, 7 } }], { cache = cache, need_weights = true })
      assert.equal(m(x[{ {}, { 6, 7 } }], { cache = again }):to_string(), y:to_string())
      close(whole.keys, info.keys, BOUNDS[dtype])
      close(whole.values, info.values, BOUNDS[dtype])
      close(whole.queries[{ {}, {}, { 6, 7 } }], info.queries)
      close(whole.weights[{ {}, {}, { 6, 7 } }], info.weights, BOUNDS[dtype])
      assert.is_true(info.scores[{ {}, {}, 1, 7 }]:eq(-math.huge):all():item())
      local seen = info.scores[{ {}, {}, 2 }]
      close(whole.scores[{ {}, {}, 7 }], seen, 4 * BOUNDS[dtype])
      m(x[{ {}, { 1, 2 } }], { cache = cache:truncate(3) }) -- overwrites the memory that the results were read from
      close(whole.keys, info.keys, BOUNDS[dtype])
    end
  end)

  it("returns the keys within the window, with need_weights", function()
    local m, x = module { window = { left = 3 } }, heed.randn(1, 9, 6)
    local _, whole = m(x, { need_weights = true })
    local cache = m:new_cache()
    m(x[{ {}, { 1, 7 } }], { cache = cache })
    local _, info = m(x[{ {}, { 8, 9 } }], { cache = cache, need_weights = true })
    close(whole.keys[{ {}, {}, { 5, 9 } }], info.keys)
    close(whole.weights[{ {}, {}, { 8, 9 }, { 5, 9 } }], info.weights)
  end)

  it("works with dropout; a pass that fails draws no random numbers", function()
    local m, x = module { context_length = 6 }, heed.randn(1, 4, 6)
    local g = heed.Generator(4)
    local dropping = nn.MultiHeadAttention { d_in = 6, d_out = 8, context_length = 6, dropout = 0.5, num_heads = 4 }
    local cache = dropping:new_cache()
    local _, info = dropping(x, { cache = cache, generator = g, need_weights = true })
    assert.is_not_nil(info.dropped_weights)
    local state = g:get_state()
    assert.has_error(function() dropping(x, { cache = cache, generator = g }) end)
    assert.equal(state, g:get_state())
    assert.equal(4, cache.length)
    assert.equal(0, m:new_cache().length)
  end)

  it("stores nan, which affects only the queries that see it", function()
    local m, x = module { window = { left = 2 } }, heed.randn(1, 9, 6)
    x[{ 1, 3 }] = 0 / 0
    for _, dtype in ipairs(DTYPES) do
      local y = cases.through(m, x, m:new_cache { dtype = dtype }, { 2, 1, 3, 1, 1, 1 })
      for i = 1, 9 do assert.equal(i >= 3 and i <= 5, y[{ 1, i }]:isnan():all():item()) end
    end
  end)
end)

describe("a cache with a sliding window", function()
  -- The same weights with a context_length that is never reached.
  local function pair(more)
    local m = module(more)
    more.context_length = 5000
    local long = module(more)
    long:load_state_dict(m:state_dict())
    return m, long
  end

  it("continues beyond context_length in constant memory", function()
    for _, dtype in ipairs(DTYPES) do
      local m, long = pair { window = { left = 3 }, rope = {}, alibi = true, num_kv_heads = 2, head_dim = 4 }
      local x, cache = heed.randn(2, 700, 6), m:new_cache { batch = 2, dtype = dtype }
      local chunks, left = {}, 700
      while left > 0 do
        chunks[#chunks + 1] = math.min(left, math.random(1, 12))
        left = left - chunks[#chunks]
      end
      close(long(x), cases.through(m, x, cache, chunks), BOUNDS[dtype])
      assert.equal(700, cache.length)
    end
    local m = module { window = { left = 3 } }
    local cache, token = m:new_cache(), heed.randn(1, 1, 6)
    m(token, { cache = cache })
    collectgarbage()
    local before = heed.info().memory_in_use
    for _ = 1, 1000 do m(token, { cache = cache }):release() end
    assert.equal(before, heed.info().memory_in_use)
  end)

  it("accepts chunks that are larger than the window", function()
    local _, long = pair { window = { left = 3 }, rope = { style = "interleaved" } }
    local x = heed.randn(1, 1500, 6)
    for _, dtype in ipairs(DTYPES) do
      local y = cases.through(long, x, long:new_cache { dtype = dtype }, { 1, 400, 1, 1, 600, 130, 367 })
      close(long(x), y, BOUNDS[dtype])
    end
  end)

  it("can have a capacity", function()
    local m = module { window = { left = 3 } }
    local cache, token = m:new_cache { capacity = 150 }, heed.randn(1, 1, 6)
    for _ = 1, 150 do m(token, { cache = cache }) end
    raises("MultiHeadAttention: the cache has 150 tokens and x has 1; together they must be at most 150, the capacity",
      function() m(token, { cache = cache }) end)
  end)

  it("can be truncated by a few tokens, and to 0", function()
    local m, long = pair { window = { left = 3 }, rope = {} }
    local x, cache = heed.randn(1, 600, 6), m:new_cache()
    for i = 1, 590, 10 do m(x[{ {}, { i, i + 9 } }], { cache = cache }) end
    assert.equal(590, cache.length)
    cache:truncate(526)
    local y = m(x[{ {}, { 527, 532 } }], { cache = cache })
    close(long(x)[{ {}, { 527, 532 } }], y)
    assert.has_error(function() cache:truncate(200) end)
    assert.equal(532, cache.length)
    y = m(x[{ {}, { 1, 5 } }], { cache = cache:truncate(0) })
    close(long(x)[{ {}, { 1, 5 } }], y)
  end)

  it("refuses to truncate to a length whose keys were dropped, and names the smallest possible length", function()
    local m = module { window = { left = 3 }, context_length = 1000 }
    local cache = m:new_cache()
    m(heed.randn(1, 300, 6), { cache = cache })
    local ok, message = pcall(cache.truncate, cache, 10)
    assert.is_false(ok)
    local least = tonumber(message:match "it must be at least (%d+)")
    assert.is_true(least <= 300 - 64)
    raises(("truncate: n is %d; it must be at least %d, or 0: the window would see tokens that the cache has " ..
      "dropped"):format(least - 1, least), function() cache:truncate(least - 1) end)
    assert.equal(least, cache:truncate(least).length)
  end)

  it("keeps the tokens that a failed pass would have dropped", function()
    local m, long = pair { window = { left = 3 } }
    local x, cache = heed.randn(1, 140, 6), m:new_cache()
    for i = 1, 131 do m(x[{ {}, { i, i } }], { cache = cache }) end
    for _ = 1, 3 do
      assert.has_error(function()
        m(x[{ {}, { 132, 140 } }], { cache = cache, attn_mask = heed.ones(9, 141) })
      end)
    end
    assert.equal(131, cache.length)
    close(long(x)[{ {}, { 132, 140 } }], m(x[{ {}, { 132, 140 } }], { cache = cache:clone() }))
    close(long(x)[{ {}, { 6, 7 } }], m(x[{ {}, { 6, 7 } }], { cache = cache:truncate(5) }))
  end)

  it("expects masks for all keys, including those it has dropped", function()
    local m, x = module { window = { left = 3 } }, heed.randn(1, 2, 6)
    local cache = m:new_cache()
    for _ = 1, 100 do m(x, { cache = cache }) end
    raises("MultiHeadAttention: attn_mask is [2, 203]; its last size must be at most 202, the number of keys in " ..
      "the cache and x", function() m(x, { cache = cache, attn_mask = heed.ones(2, 203) }) end)
    raises("MultiHeadAttention: key_padding_mask is [1, 5]; its last size must be 202, the number of keys in the " ..
      "cache and x",
      function() m(x, { cache = cache, key_padding_mask = heed.zeros(1, 5, { dtype = "bool" }) }) end)
    assert.equal(200, cache.length)
    local all = heed.zeros(2, 202)
    all[{ {}, { 1, 198 } }] = -math.huge -- hidden by the window anyway, except the third key of the first token
    local _, info = m(x, { cache = cache:clone(), attn_mask = all, need_weights = true })
    assert.equal("heed.Size([1, 4, 2, 5])", tostring(info.weights.shape))
    assert.equal(0, info.weights[{ 1, 1, 1, 1 }])
    local one = heed.ones(2, 199, { dtype = "bool" }) -- hides all visible keys but one
    _, info = m(x, { cache = cache:clone(), attn_mask = one, need_weights = true })
    assert.are.same({ { 0.5, 0.5, 0, 0, 0 }, { 0, 1, 0, 0, 0 } }, info.weights[{ 1, 1 }]:gt(0):float():mul(
      heed.tensor { { 0.5, 0.5, 9, 9, 9 }, { 9, 1, 9, 9, 9 } }):tolist())
  end)
end)

describe("truncate", function()
  it("keeps the first n tokens", function()
    local m, x = module { rope = {} }, heed.randn(2, 9, 6)
    for _, dtype in ipairs(DTYPES) do
      local cache = m:new_cache { batch = 2, dtype = dtype }
      m(x[{ {}, { 1, 4 } }], { cache = cache })
      local clone = cache:clone()
      m(heed.randn(2, 3, 6), { cache = cache })
      assert.equal(4, cache:truncate(4).length)
      local rest = x[{ {}, { 5, 9 } }]
      assert.equal(m(rest, { cache = clone }):to_string(), m(rest, { cache = cache }):to_string())
    end
  end)

  it("rejects invalid lengths", function()
    local m = module()
    local cache = m:new_cache()
    m(heed.randn(1, 3, 6), { cache = cache })
    raises("truncate: n is 4; it must be from 0 to 3, the length", function() cache:truncate(4) end)
    raises("truncate: n is -1; it must be from 0 to 3, the length", function() cache:truncate(-1) end)
    raises("truncate: n is a string ('2'); it must be an integer", function() cache:truncate "2" end)
    raises("truncate: self is the number 3; it must be a heed.Cache", function() cache.truncate(3) end)
    raises("truncate: n is nil; it must be an integer", function() cache:truncate() end)
    assert.equal(3, cache.length)
    assert.equal(3, cache:truncate(3).length)
    assert.equal(0, cache:truncate(0).length)
  end)
end)

describe("reorder", function()
  it("replaces each item by a copy of another", function()
    local m, x = module { rope = {}, num_kv_heads = 2 }, heed.randn(3, 8, 6)
    for _, dtype in ipairs(DTYPES) do
      for _, order in ipairs { { 1, 2, 3 }, { 2, 3, 1 }, { 3, 3, 1 }, { 2, 2, 2 }, { 2, 1, 3 } } do
        local cache = m:new_cache { batch = 3, dtype = dtype }
        m(x[{ {}, { 1, 5 } }], { cache = cache })
        local index = heed.tensor(order, { dtype = "int64" })
        assert.equal(5, cache:reorder(math.random(2) == 1 and order or index).length)
        local other = m:new_cache { batch = 3, dtype = dtype }
        m(x[{ {}, { 1, 5 } }]:index_select(1, index), { cache = other })
        local rest = x[{ {}, { 6, 8 } }]
        assert.equal(m(rest, { cache = other }):to_string(), m(rest, { cache = cache }):to_string())
      end
    end
  end)

  it("reads indices from a tensor that is not contiguous", function()
    local m, x = module(), heed.randn(2, 4, 6)
    local cache = m:new_cache { batch = 2 }
    m(x, { cache = cache })
    local twins = cache:clone():reorder { 2, 1 }
    cache:reorder(heed.tensor({ { 2, 7 }, { 1, 7 } }, { dtype = "int64" })[{ {}, 1 }])
    assert.equal(m(x, { cache = twins }):to_string(), m(x, { cache = cache }):to_string())
  end)

  it("rejects invalid indices, and changes nothing", function()
    local m, x = module(), heed.randn(2, 4, 6)
    local cache = m:new_cache { batch = 2 }
    m(x, { cache = cache })
    local clone = cache:clone()
    raises("reorder: element 2 of indices is 3; it must be from 1 to 2, the batch size",
      function() cache:reorder { 2, 3 } end)
    raises("reorder: element 1 of indices is 0; it must be from 1 to 2, the batch size",
      function() cache:reorder { 0, 1 } end)
    raises("reorder: indices is [3]; it must be [2], one for each batch item", function() cache:reorder { 1, 2, 1 } end)
    raises("reorder: indices is [0]; it must be [2], one for each batch item", function() cache:reorder {} end)
    raises("reorder: indices is bool; it must be int64, or float32 with whole values",
      function() cache:reorder(heed.tensor { true, false }) end)
    raises("reorder: indices[2] is a string ('a'); it must be an integer", function() cache:reorder { 1, "a" } end)
    raises("reorder: indices is nil; it must be a tensor or a table of integers", function() cache:reorder() end)
    assert.equal(m(x, { cache = clone }):to_string(), m(x, { cache = cache }):to_string())
  end)
end)

describe("clone", function()
  it("gives an independent cache", function()
    local m, x = module { window = { left = 4 } }, heed.randn(2, 6, 6)
    for _, dtype in ipairs(DTYPES) do
      local cache = m:new_cache { batch = 2, dtype = dtype, capacity = 200 }
      for _ = 1, 25 do m(x, { cache = cache }) end
      local clone = cache:clone()
      assert.equal("heed.Cache(length=150, capacity=200, batch=2, dtype=" .. dtype .. ")", tostring(clone))
      local y = m(x, { cache = clone })
      assert.equal(150, cache.length)
      clone:release()
      assert.equal(y:to_string(), m(x, { cache = cache }):to_string())
    end
  end)
end)

describe("a full cache", function()
  it("rejects more tokens, and stays unchanged", function()
    local m, x = module(), heed.randn(1, 5, 6)
    local cache = m:new_cache { capacity = 8 }
    m(x, { cache = cache })
    local clone = cache:clone()
    raises("MultiHeadAttention: the cache has 5 tokens and x has 5; together they must be at most 8, the capacity",
      function() m(x, { cache = cache }) end)
    assert.equal(5, cache.length)
    local last = x[{ {}, { 1, 3 } }]
    assert.equal(m(last, { cache = clone }):to_string(), m(last, { cache = cache }):to_string())
    assert.equal(8, cache.length)
    raises("MultiHeadAttention: the cache has 8 tokens and x has 1; together they must be at most 8, the capacity",
      function() m(x[{ {}, { 1, 1 } }], { cache = cache }) end)
  end)

  it("may have a larger capacity than the module's context_length", function()
    local m, x = module(), heed.randn(1, 7, 6)
    local cache = m:new_cache { capacity = 100 }
    m(x, { cache = cache })
    raises("MultiHeadAttention: the cache has 7 tokens and x has 7; together they must be at most 12, the " ..
      "context_length",
      function() m(x, { cache = cache }) end)
    raises("MultiHeadAttention: x has 13 tokens; it must have at most 12, the context_length",
      function() m(heed.randn(1, 13, 6), { cache = cache }) end)
    assert.equal(7, cache.length)
  end)
end)

describe("new_cache", function()
  it("rejects invalid options", function()
    local m = module()
    raises("new_cache: batch is 0; it must be at least 1", function() m:new_cache { batch = 0 } end)
    raises("new_cache: capacity is -1; it must be at least 1", function() m:new_cache { capacity = -1 } end)
    for _, dtype in ipairs { "int64", "int5" } do
      raises("new_cache: dtype is a string ('" .. dtype
        .. "'); it must be 'float32', 'bfloat16', 'float16', 'int8' or 'int4'",
        function() m:new_cache { dtype = dtype } end)
    end
    raises("new_cache: dtype is the number 4; it must be 'float32', 'bfloat16', 'float16', 'int8' or 'int4'",
      function() m:new_cache { dtype = 4 } end)
    raises("new_cache: there is no option 'size'; the options are batch, capacity, dtype, prefix",
      function() m:new_cache { size = 3 } end)
    raises("new_cache: the module is a Linear; it must be a MultiHeadAttention",
      function() m.W_query:new_cache() end)
    raises("new_cache: self is the number 3; it must be a MultiHeadAttention", function() m.new_cache(3) end)
    assert.has_error(function() m:new_cache { capacity = math.maxinteger } end)
    assert.has_error(function() m:new_cache { batch = math.maxinteger } end)
    assert.has_error(function() m:new_cache { dtype = "float64" } end)
  end)

  it("allocates its memory immediately, and frees it on release", function()
    local m = module { context_length = 1000 }
    for dtype, bytes in pairs { float32 = 4, bfloat16 = 2, float16 = 2, int8 = 1 + 4 / 2 } do
      collectgarbage()
      local before = heed.info().memory_in_use
      local cache = m:new_cache { batch = 3, dtype = dtype }
      local taken = heed.info().memory_in_use - before
      local needed = 2 * 3 * 4 * 1000 * 2 * bytes
      assert.is_true(taken >= needed and taken < needed + 16384)
      cache:release()
      assert.equal(before, heed.info().memory_in_use)
      cache:release()
    end
  end)

  support.where("close", it, pending)("is released by <close>", function()
    local m = module { context_length = 1000 }
    local before, while_open = heed.info().memory_in_use, nil
    support.compile [[
      local m, check = ...
      local scoped <close> = m:new_cache { batch = 3 }
      check(scoped)]](m, function(scoped)
      while_open = heed.info().memory_in_use
      assert.equal(0, scoped.length)
    end)
    assert.is_true(while_open > before)
    assert.equal(before, heed.info().memory_in_use)
  end)

  it("reports its memory to the garbage collector", function()
    local m = module { context_length = 1000 }
    collectgarbage()
    local before = heed.info().memory_in_use
    for _ = 1, 300 do m:new_cache { batch = 20 } end -- 1.3 MB each
    assert.is_true(heed.info().memory_in_use - before < 100e6)
  end)
end)

describe("forward with a cache rejects", function()
  local m, x, cache

  before_each(function()
    m, x = module(), heed.randn(2, 3, 6)
    cache = m:new_cache { batch = 2 }
    m(x, { cache = cache })
  end)
  after_each(function() assert.equal(3, cache.length) end)

  it("a cache for other heads, windows or batch sizes", function()
    raises("MultiHeadAttention: the cache has num_kv_heads 4 and head_dim 2; they must be 2 and 2",
      function() module { num_kv_heads = 2 }(x, { cache = cache }) end)
    raises("MultiHeadAttention: the cache has num_kv_heads 4 and head_dim 2; they must be 4 and 3",
      function() module { head_dim = 3 }(x, { cache = cache }) end)
    raises("MultiHeadAttention: the cache is for a window with left -1; it must be that of the module, 3 " ..
      "(-1: none)", function() module { window = { left = 3 } }(x, { cache = cache }) end)
    raises("MultiHeadAttention: the cache has a batch of 2; it must be 3, that of x",
      function() m(heed.randn(3, 2, 6), { cache = cache }) end)
    raises("MultiHeadAttention: the cache has a batch of 2; it must be 1, that of x",
      function() m(heed.randn(2, 6), { cache = cache }) end)
  end)

  it("key, value and kv_lengths together with it", function()
    raises("MultiHeadAttention: key and cache are given; give only one of them, because a cache holds the keys of x",
      function() m(x, { cache = cache, key = x }) end)
    raises("MultiHeadAttention: value is given without key; give key as well",
      function() m(x, { cache = cache, value = x }) end)
    raises("MultiHeadAttention: kv_lengths and cache are given; with a cache, use key_padding_mask to hide keys",
      function() m(x, { cache = cache, kv_lengths = heed.tensor({ 1, 1 }, { dtype = "int64" }) }) end)
  end)

  it("masks and inputs of wrong shapes", function()
    assert.has_error(function() m(x, { cache = cache, attn_mask = heed.ones(3, 7) }) end)
    assert.has_error(function() m(x, { cache = cache, key_padding_mask = heed.zeros(2, 3, { dtype = "bool" }) }) end)
    assert.has_error(function() m(heed.randn(2, 3, 5), { cache = cache }) end)
    assert.has_error(function() m(heed.ones(2, 3, 6, { dtype = "int64" }), { cache = cache }) end)
  end)

  it("other values, and released caches", function()
    raises("MultiHeadAttention: cache is a table; it must be a heed.Cache", function() m(x, { cache = { 1 } }) end)
    raises("MultiHeadAttention: cache is a module (Linear); it must be a heed.Cache",
      function() m(x, { cache = m.W_query }) end)
    local gone = m:new_cache { batch = 2 }
    gone:release()
    assert.equal("heed.Cache(released)", tostring(gone))
    raises("MultiHeadAttention: cache is a released cache; it must be a heed.Cache",
      function() m(x, { cache = gone }) end)
    raises("__index: self is a released cache; it must be a heed.Cache", function() return gone.length end)
    raises("truncate: self is a released cache; it must be a heed.Cache", function() cache.truncate(gone, 0) end)
    raises("reorder: the cache is missing; call it as cache:reorder(…)", function() cache.reorder(nil, { 1 }) end)
  end)
end)

it("caches outlive their module, and work with another one of the same shape", function()
  local x = heed.randn(1, 3, 6)
  local m = module()
  local cache, twin = m:new_cache(), module()
  twin:load_state_dict(m:state_dict())
  m(x, { cache = cache })
  m = nil -- luacheck: ignore
  collectgarbage()
  close(twin(heed.cat({ x, x }, 2))[{ {}, { 4, 6 } }], twin(x, { cache = cache }))
end)
