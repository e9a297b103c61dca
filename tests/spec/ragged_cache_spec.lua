-- Caches whose batch items have different lengths: each item gives what a cache of its own gives.
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local module, close = tensors.small_mha, tensors.close

local DTYPES = { "float32", "bfloat16", "float16", "int8", "int4" }
-- Where keys differ in their last bit, stored ones may round to another step.
local NEAR = { float32 = 1e-6, float16 = 1e-4, bfloat16 = 1e-3, int8 = 3e-3, int4 = 0.05 }
local KINDS = {
  {}, { rope = {}, num_kv_heads = 2 }, { alibi = true, softcap = 1.5 }, { window = { left = 3 }, rope = {} },
  { window = { left = 2, right = 1 }, sinks = true, qk_norm = true }, { out_proj = false, num_kv_heads = 1 },
  { window = { left = 3 }, alibi = true, head_dim = 16 },
}
local LENGTHS = { 3, 9, 0, 6 }

before_each(function() heed.manual_seed(123) end)

-- A cache of items with these lengths, and a cache for each item with the same tokens.
local function ragged(m, dtype, lengths)
  lengths = lengths or LENGTHS
  local cache, singles, parts = m:new_cache { batch = #lengths, dtype = dtype }, {}, {}
  for i, n in ipairs(lengths) do
    singles[i], parts[i] = m:new_cache { dtype = dtype }, heed.randn(n, 6)
    m(parts[i], { cache = singles[i] })
  end
  local y = m(heed.cat(parts, 1), { cache = cache, lengths = lengths })
  return cache, singles, parts, y
end

-- The results of the single caches for x [b, n, 6].
local function one_by_one(m, x, singles)
  local results = {}
  for i, single in ipairs(singles) do results[i] = m(x[i], { cache = single }) end
  return heed.stack(results)
end

describe("a cache whose items differ", function()
  it("takes tokens for each item, and continues each at its own position", function()
    for _, kind in ipairs(KINDS) do
      local m = module(tensors.merged({ context_length = 60 }, kind))
      for _, dtype in ipairs(DTYPES) do
        local cache, singles, parts, y = ragged(m, dtype)
        assert.same(LENGTHS, cache.lengths)
        assert.equal(9, cache.length)
        local first = 1
        for i, part in ipairs(parts) do
          local n = part.shape[1]
          if n > 0 then
            close(m(part, { cache = m:new_cache { dtype = dtype } }), y:narrow(1, first, n), NEAR[dtype])
          end
          first = first + n
          assert.equal(LENGTHS[i], singles[i].length)
        end
        for _, n in ipairs { 1, 1, 5, 1 } do
          local x = heed.randn(4, n, 6)
          close(one_by_one(m, x, singles), m(x, { cache = cache }), NEAR[dtype])
        end
        assert.same({ 11, 17, 8, 14 }, cache.lengths)
      end
    end
  end)

  it("gives the same for few tokens and many keys, and in long chunks", function()
    for _, more in ipairs { { 1, 2 }, { 12, 3 }, { 70, 0 } } do
      for _, kind in ipairs { {}, { window = { left = 40 } } } do
        local m = module(tensors.merged({ context_length = 600, head_dim = 16, rope = {} }, kind))
        local cache, singles = ragged(m, "float32", { 300, 130 })
        local x = heed.randn(more[1] + more[2], 6)
        local y = m(x, { cache = cache, lengths = more })
        close(m(x:narrow(1, 1, more[1]), { cache = singles[1] }), y:narrow(1, 1, more[1]))
        if more[2] > 0 then
          close(m(x:narrow(1, more[1] + 1, more[2]), { cache = singles[2] }), y:narrow(1, more[1] + 1, more[2]))
        end
      end
    end
  end)

  it("gives bit-identical results with several threads, and in slices", function()
    local m = module { context_length = 900, head_dim = 16, rope = {}, num_kv_heads = 2 }
    local cache = ragged(m, "float32", { 700, 30, 400 })
    local x, threads = heed.randn(3, 4, 6), heed.get_num_threads()
    local whole = m(x, { cache = cache:clone() })
    heed.set_num_threads(3)
    local other = m(x, { cache = cache:clone() })
    heed.set_num_threads(threads)
    assert.is_true(whole:equal(other))
    local steps = m:steps(x, { cache = cache, ms = 0 })
    for _ in steps do end
    assert.is_true(whole:equal(steps.result))
    assert.same({ 704, 34, 404 }, cache.lengths)
  end)

  it("becomes different by truncating, and can be reordered and cloned", function()
    for _, kind in ipairs(KINDS) do
      local m = module(tensors.merged({ context_length = 60 }, kind))
      local cache, singles = ragged(m, "float32")
      cache:truncate { 2, 9, 0, 4 }
      singles[1]:truncate(2)
      singles[4]:truncate(4)
      assert.same({ 2, 9, 0, 4 }, cache.lengths)
      cache:truncate(heed.tensor({ 2, 7, 0, 4 }, { dtype = "int64" }))
      singles[2]:truncate(7)
      local copy = cache:clone()
      assert.same(cache.lengths, copy.lengths)
      copy:reorder { 2, 2, 4, 1 }
      assert.same({ 7, 7, 4, 2 }, copy.lengths)
      local x = heed.randn(4, 2, 6)
      close(one_by_one(m, x, { singles[2]:clone(), singles[2]:clone(), singles[4]:clone(), singles[1]:clone() }),
        m(x, { cache = copy }))
      close(one_by_one(m, x, singles), m(x, { cache = cache }))
      cache:truncate(3)
      assert.same({ 3, 3, 2, 3 }, cache.lengths)
    end
  end)

  it("returns the intermediate results of each item, zeros beyond its keys", function()
    for _, kind in ipairs(KINDS) do
      local m = module(tensors.merged({ context_length = 60 }, kind))
      local cache, singles = ragged(m, "float32")
      local x = heed.randn(4, 2, 6)
      local plain = m(x, { cache = cache:clone() })
      local y, info = m(x, { cache = cache, need_weights = true, need_lse = true })
      assert.is_true(plain:equal(y))
      for i = 1, 4 do
        local _, own = m(x[i], { cache = singles[i], need_weights = true, need_lse = true })
        local s = own.keys.shape[2]
        for _, name in ipairs { "keys", "values" } do
          close(own[name], info[name][i]:narrow(2, 1, s))
          assert.is_true(info[name][i]:narrow(2, s + 1, info.keys.shape[3] - s):eq(0):all():item())
        end
        close(own.weights, info.weights[i]:narrow(3, 1, s))
        assert.is_true(info.weights[i]:narrow(3, s + 1, info.keys.shape[3] - s):eq(0):all():item())
        close(own.lse, info.lse[i])
      end
    end
  end)

  it("accepts masks that count the keys of each item", function()
    for _, kind in ipairs { {}, { window = { left = 3 } } } do
      local m = module(tensors.merged({ context_length = 60 }, kind))
      local cache, singles = ragged(m, "float32")
      local x, bias = heed.randn(4, 2, 6), heed.randn(4, 1, 2, 11)
      local padding = heed.zeros(4, 11, { dtype = "bool" })
      padding[{ 2, { 9, 10 } }] = true
      padding[{ 4, 6 }] = true
      local y = m(x, { cache = cache, attn_mask = bias, key_padding_mask = padding })
      for i, single in ipairs(singles) do
        local s = single.length + 2
        local mask = bias[i]:narrow(3, 1, s)
        close(m(x[i], { cache = single, attn_mask = mask, key_padding_mask = padding[i]:narrow(1, 1, s) }), y[i])
      end
    end
  end)

  it("calls hooks, which may change scores and weights", function()
    local m = module { context_length = 60, rope = {} }
    local cache, singles = ragged(m, "float32")
    local x = heed.randn(4, 2, 6)
    local handle = m:add_hook("hook_attn_scores", function(scores) return scores * 2 end)
    local y = m(x, { cache = cache })
    close(one_by_one(m, x, singles), y)
    handle:remove()
    raises("MultiHeadAttention: lengths, cache and need_weights, or a hook on scores or weights, are given; leave " ..
      "one of them out, or call the module once for each item",
      function() m(x[1], { cache = cache, lengths = { 1, 1, 0, 0 }, need_weights = true }) end)
  end)

  it("explains a score at the position of its item", function()
    local m = module { context_length = 60, rope = {}, window = { left = 4 } }:eval()
    local cache, singles = ragged(m, "float32")
    local x = heed.randn(4, 2, 6)
    for i, single in ipairs(singles) do
      local one = m:explain(x, { cache = cache, batch = i, query = 1, head = 2 })
      local other = m:explain(x[i], { cache = single, query = 1, head = 2 })
      assert.equal(#other.keys, #one.keys)
      for j, key in ipairs(other.keys) do
        assert.equal(key.key, one.keys[j].key)
        assert.near(key.weight, one.keys[j].weight, 1e-6)
      end
    end
  end)
end)

describe("a cache whose items differ rejects", function()
  local m, cache, x

  before_each(function()
    m = module()
    cache = ragged(m, "float32", { 3, 9 })
    x = heed.randn(5, 6)
  end)
  after_each(function() assert.same({ 3, 9 }, cache.lengths) end)

  it("tokens beyond the capacity of one item, and changes none", function()
    raises("MultiHeadAttention: item 2 of the cache has 9 tokens and x has 4 for it; together they must be at most " ..
      "12, the capacity", function() m(x, { cache = cache, lengths = { 1, 4 } }) end)
    raises("MultiHeadAttention: item 2 of the cache has 9 tokens and x has 5 for it; together they must be at most " ..
      "12, the capacity", function() m(heed.randn(2, 5, 6), { cache = cache }) end)
  end)

  it("lengths that do not fit", function()
    local function with(lengths, of)
      return function() m(of or x, { cache = cache, lengths = lengths }) end
    end
    raises("MultiHeadAttention: lengths add up to 4 and x is [5, 6]; they must add up to 5, its tokens", with { 1, 3 })
    raises("MultiHeadAttention: element 1 of lengths is -1; it must be at least 0", with { -1, 6 })
    raises("MultiHeadAttention: lengths is [3]; it must be [2], one for each batch item", with { 1, 1, 3 })
    raises("MultiHeadAttention: x is [2, 2, 6] and lengths are given; it must be [total, 6]",
      with({ 2, 2 }, heed.randn(2, 2, 6)))
    assert.has_error(with { 1.5, 3.5 })
    assert.has_error(with "12")
  end)

  it("lengths with masks or need_weights", function()
    raises("MultiHeadAttention: lengths, cache and attn_mask are given; leave one of them out, or call the module " ..
      "once for each item", function() m(x, { cache = cache, lengths = { 2, 3 }, attn_mask = heed.ones(5, 12) }) end)
    assert.has_error(function() m(x, { cache = cache, lengths = { 2, 3 }, need_weights = true }) end)
  end)

  it("truncating an item to more than it has", function()
    raises("truncate: element 1 of lengths is 4; it must be from 0 to 3, the length of that item",
      function() cache:truncate { 4, 2 } end)
    raises("truncate: element 2 of lengths is -1; it must be from 0 to 9, the length of that item",
      function() cache:truncate { 3, -1 } end)
    raises("truncate: lengths is [1]; it must be [2], one for each batch item", function() cache:truncate { 4 } end)
    raises("truncate: n is 10; it must be from 0 to 9, the length", function() cache:truncate(10) end)
  end)
end)

describe("a cancelled call", function()
  after_each(function() heed.limit { seconds = math.huge, memory = math.huge } end)

  local function stopped(f)
    heed.limit { seconds = 0.002 }
    local ok, message = pcall(f)
    heed.limit { seconds = math.huge }
    assert.is_false(ok)
    assert.truthy(tostring(message):find("time limit exceeded", 1, true), message)
  end

  it("changes no item, whether it packs, shares a prefix, joins or unpacks", function()
    local m = heed.nn.MultiHeadAttention { d_in = 256, d_out = 256, context_length = 9000, num_heads = 4, dropout = 0 }
    local prefix = m:new_cache { dtype = "bfloat16" }
    m(heed.randn(1, 4000, 256), { cache = prefix })
    for _, options in ipairs { { dtype = "float32" }, { dtype = "int4" }, { prefix = prefix } } do
      options.batch = 2
      local cache = m:new_cache(options)
      m(heed.randn(5, 256), { cache = cache, lengths = { 4, 1 } })
      local before, x = cache.lengths, heed.randn(4500, 256)
      stopped(function() m(x, { cache = cache, lengths = { 3000, 1500 } }) end)
      assert.same(before, cache.lengths)
      local y = heed.randn(2, 1, 256)
      assert.is_true(m(y, { cache = cache:clone() }):equal(m(y, { cache = cache })))
    end
    local cache = m:new_cache { batch = 2, prefix = prefix }
    stopped(function() m(heed.randn(2, 2000, 256), { cache = cache, attn_mask = heed.zeros(1, 1) }) end)
    assert.same({ 4000, 4000 }, cache.lengths)
  end)
end)
