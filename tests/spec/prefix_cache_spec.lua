-- Caches that begin with the tokens of another one, shared by the whole batch: the same numbers as with a cache of its
-- own for each item.
local heed = require "heed"
local files = require "tests.files"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local module, close = tensors.small_mha, tensors.close

local DTYPES = { "float32", "bfloat16", "float16", "int8", "int4" }
-- Where keys differ in their last bit, stored ones may round to another step.
local NEAR = { float32 = 2e-6, float16 = 1e-4, bfloat16 = 1e-3, int8 = 3e-3, int4 = 0.05 }
local KINDS = {
  {}, { rope = {}, num_kv_heads = 2 }, { alibi = true, softcap = 1.5 }, { sinks = true, qk_norm = true, softcap = 2 },
  { out_proj = false, num_kv_heads = 1, head_dim = 16 }, { window = { left = 3 }, rope = {} },
  { causal = false }, { window = { right = 1 } },
}

before_each(function() heed.manual_seed(123) end)

local function new_module(kind)
  local m = module(tensors.merged({ context_length = 300 }, kind))
  if m.sinks then m.sinks:copy_(heed.randn(4)) end
  return m
end

-- A cache of `batch` items that begin with n tokens, and a cache of its own for each.
local function with_prefix(m, dtype, n, batch)
  local prefix, singles, tokens = m:new_cache { dtype = dtype }, {}, heed.randn(1, n, 6)
  m(tokens, { cache = prefix })
  for i = 1, batch do
    singles[i] = m:new_cache { dtype = dtype }
    m(tokens, { cache = singles[i] })
  end
  return m:new_cache { batch = batch, prefix = prefix }, singles, prefix
end

local function one_by_one(m, x, singles, options)
  local results = {}
  for i, single in ipairs(singles) do results[i] = m(x[i], tensors.merged({ cache = single }, options)) end
  return heed.stack(results)
end

describe("a cache with a prefix", function()
  files.in_folders(before_each, after_each)

  it("gives the same as caches with these tokens, for single tokens and chunks", function()
    for _, kind in ipairs(KINDS) do
      local m = new_module(kind)
      for _, dtype in ipairs(DTYPES) do
        for _, n in ipairs { 0, 1, 7, 70 } do
          local cache, singles = with_prefix(m, dtype, n, 3)
          assert.equal(dtype, cache.dtype)
          assert.same({ n, n, n }, cache.lengths)
          for _, more in ipairs { 1, 1, 6, 1 } do
            local x = heed.randn(3, more, 6)
            close(one_by_one(m, x, singles), m(x, { cache = cache }), NEAR[dtype])
          end
          assert.equal(n + 9, cache.length)
        end
      end
    end
  end)

  it("may have items of different lengths, and be truncated, reordered and cloned", function()
    local m = new_module { rope = {} }
    local cache, singles = with_prefix(m, "float32", 20, 3)
    local x = heed.randn(7, 6)
    m(x, { cache = cache, lengths = { 4, 0, 3 } })
    m(x:narrow(1, 1, 4), { cache = singles[1] })
    m(x:narrow(1, 5, 3), { cache = singles[3] })
    cache:truncate { 22, 20, 23 }
    singles[1]:truncate(22)
    local copy = cache:clone():reorder { 3, 1, 1 }
    local y = heed.randn(3, 2, 6)
    close(one_by_one(m, y, { singles[3]:clone(), singles[1]:clone(), singles[1]:clone() }), m(y, { cache = copy }))
    close(one_by_one(m, y, singles), m(y, { cache = cache }))
    assert.same({ 24, 22, 25 }, cache.lengths)
  end)

  it("works with masks, need_weights, hooks and dropout, which need the keys of each item", function()
    local m = new_module { rope = {} }
    local cache, singles = with_prefix(m, "float32", 20, 3)
    local x, bias = heed.randn(3, 2, 6), heed.randn(3, 1, 2, 22)
    local y = m(x, { cache = cache:clone(), attn_mask = bias })
    for i = 1, 3 do close(m(x[i], { cache = singles[i]:clone(), attn_mask = bias[i] }), y[i]) end
    local values = { heed.mask.window(4), heed.mask.documents { 7, 15 },
      heed.mask.intervals { { { 3, 5 }, { 9, 21 } }, { { 1, 0 }, { 2, 22 } } } }
    for _, value in ipairs(values) do
      y = m(x, { cache = cache:clone(), attn_mask = value })
      for i = 1, 3 do close(m(x[i], { cache = singles[i]:clone(), attn_mask = value }), y[i]) end
    end
    local z, info = m(x, { cache = cache, need_weights = true })
    for i = 1, 3 do
      local own, other = m(x[i], { cache = singles[i], need_weights = true })
      close(own, z[i])
      close(other.weights, info.weights[i])
      close(other.keys, info.keys[i])
    end
    assert.same({ 22, 22, 22 }, cache.lengths)
    close(one_by_one(m, x, singles), m(x, { cache = cache })) -- and the copied tokens are in the cache
    local handle = m:add_hook("hook_attn_scores", function(scores) return scores * 2 end)
    close(one_by_one(m, x, singles), m(x, { cache = cache }))
    handle:remove()
    local dropping = module { context_length = 90, dropout = 0.5 }
    cache = with_prefix(dropping, "float32", 20, 3)
    assert.same({ 3, 2, 8 }, { table.unpack(dropping(x, { cache = cache }).shape) })
  end)

  it("does not follow what happens to the other cache later", function()
    local m = new_module { rope = {} }
    local cache, singles, prefix = with_prefix(m, "float32", 20, 2)
    local x = heed.randn(2, 1, 6)
    local before = m(x, { cache = cache:clone() })
    m(heed.randn(1, 5, 6), { cache = prefix }) -- beyond the shared rows
    prefix:truncate(10)
    m(heed.randn(1, 5, 6), { cache = prefix }) -- over them
    assert.equal(15, prefix.length)
    assert.is_true(before:equal(m(x, { cache = cache:clone() })))
    prefix:release()
    close(before, m(x, { cache = cache }))
    close(one_by_one(m, x, singles), before)
  end)

  it("can be a prefix itself, can be saved, and takes the tokens of a file", function()
    local m = new_module { rope = {} }
    local cache, singles = with_prefix(m, "float32", 20, 1)
    local x, path = heed.randn(1, 3, 6), files.path "cache.safetensors"
    m(x, { cache = cache })
    m(x, { cache = singles[1] })
    local more = m:new_cache { prefix = cache, batch = 2 }
    local other = m:new_cache { prefix = singles[1], batch = 2 }
    local y = heed.randn(2, 2, 6)
    close(m(y, { cache = other }), m(y, { cache = more }))
    assert(more:save(path))
    local loaded = m:load_cache(path)
    assert.same({ 25, 25 }, loaded.lengths)
    close(m(y, { cache = other }), m(y, { cache = loaded }))
    cache:save(path)
    loaded = m:new_cache { prefix = m:load_cache(path), batch = 2 }
    assert.equal(23, loaded.length)
    close(m(y, { cache = other:truncate(23) }), m(y, { cache = loaded }))
  end)

  it("shares the memory, and gives bit-identical results with several threads and in slices", function()
    local m = module { context_length = 3000, head_dim = 16, num_kv_heads = 2 }
    local _, _, prefix = with_prefix(m, "float32", 2000, 1)
    local before = heed.info().memory_in_use
    local cache = m:new_cache { batch = 8, prefix = prefix, capacity = 2010 }
    assert.is_true(heed.info().memory_in_use - before < 8 * 10 * 2 * 16 * 2 * 4 + 4000)
    local x, threads = heed.randn(8, 2, 6), heed.get_num_threads()
    local y = m(x, { cache = cache:clone() })
    heed.set_num_threads(3)
    assert.is_true(y:equal(m(x, { cache = cache:clone() })))
    heed.set_num_threads(threads)
    local steps = m:steps(x, { cache = cache, ms = 0 })
    for _ in steps do end
    assert.is_true(y:equal(steps.result))
    assert.equal(2002, cache.length)
  end)
end)

describe("new_cache refuses a prefix", function()
  it("of other sizes, windows, dtypes and batches", function()
    local m = module()
    local prefix = m:new_cache()
    m(heed.randn(1, 5, 6), { cache = prefix })
    raises("new_cache: prefix has num_kv_heads 4 and head_dim 2; they must be 2 and 2",
      function() module { num_kv_heads = 2 }:new_cache { prefix = prefix } end)
    raises("new_cache: prefix is for a window with left -1; it must be that of the module, 3 (-1: none)",
      function() module { window = { left = 3 } }:new_cache { prefix = prefix } end)
    raises("new_cache: prefix is float32; it must be int8, the dtype of the cache",
      function() m:new_cache { prefix = prefix, dtype = "int8" } end)
    raises("new_cache: prefix has a batch of 2; it must be 1",
      function() m:new_cache { prefix = m:new_cache { batch = 2 } } end)
    raises("new_cache: prefix has 5 tokens; it must have at most 4, the capacity",
      function() m:new_cache { prefix = prefix, capacity = 4 } end)
    raises("new_cache: prefix is the number 5; it must be a heed.Cache", function() m:new_cache { prefix = 5 } end)
  end)

  it("and its tokens cannot be truncated", function()
    local m = module()
    local cache = with_prefix(m, "float32", 5, 2)
    raises("truncate: n is 4; it must be at least 5, the tokens of the shared prefix", function() cache:truncate(4) end)
    raises("truncate: n is 0; it must be at least 5, the tokens of the shared prefix", function() cache:truncate(0) end)
    raises("truncate: element 2 of lengths is 3; it must be at least 5, the tokens of the shared prefix",
      function() cache:truncate { 5, 3 } end)
    raises("MultiHeadAttention: the cache has 5 tokens and x has 8; together they must be at most 12, the capacity",
      function() m(heed.randn(2, 8, 6), { cache = cache }) end)
    m(heed.randn(2, 7, 6), { cache = cache })
    assert.equal(12, cache.length)
  end)
end)
