-- Caches in int4: rows turned by a Hadamard matrix and rounded to 15 steps.
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local module, close = tensors.small_mha, tensors.close

before_each(function() heed.manual_seed(123) end)

-- The Hadamard matrix of the largest power of two that divides d, in blocks, [d, d]; its inverse is itself.
local function hadamard(d)
  local n = 1
  while d % (2 * n) == 0 do n = 2 * n end
  local rows = {}
  for i = 0, d - 1 do
    rows[i + 1] = {}
    for j = 0, d - 1 do
      local sign, a, b = 1, i % n, j % n
      while a > 0 and b > 0 do
        if a % 2 == 1 and b % 2 == 1 then sign = -sign end
        a, b = math.floor(a / 2), math.floor(b / 2)
      end
      rows[i + 1][j + 1] = math.floor(i / n) == math.floor(j / n) and sign / math.sqrt(n) or 0
    end
  end
  return heed.tensor(rows)
end

describe("a cache in int4", function()
  it("describes itself, and takes half of the memory of int8", function()
    local m = module { context_length = 1000, head_dim = 64 }
    local function memory_of(dtype)
      local before = heed.info().memory_in_use
      local cache = m:new_cache { dtype = dtype }
      return heed.info().memory_in_use - before, cache
    end
    local taken, cache = memory_of "int4"
    assert.is_true(taken < 0.55 * memory_of "int8")
    assert.equal("heed.Cache(length=0, capacity=1000, batch=1, dtype=int4)", tostring(cache))
    assert.equal("int4", cache.dtype)
  end)

  it("is off by at most half a step of each turned row", function()
    for _, d in ipairs { 1, 2, 3, 6, 16, 64, 80 } do
      local m = module { context_length = 40, head_dim = d, num_kv_heads = 2 }
      local x = heed.randn(1, 30, 6)
      local _, exact = m(x, { need_weights = true })
      local _, stored = m(x, { cache = m:new_cache { dtype = "int4" }, need_weights = true })
      local turn = hadamard(d)
      for _, name in ipairs { "keys", "values" } do
        local turned, got = exact[name]:matmul(turn), stored[name]:matmul(turn)
        local step = turned:abs():max(-1, true) / 7
        local off = ((turned - got):abs() / step):max():item()
        assert.is_true(off <= 0.5 + 1e-4, "off by " .. off)
      end
      close(exact.queries, stored.queries)
    end
  end)

  it("gives the attention of the rows that it stores", function()
    for _, kind in ipairs { {}, { rope = {}, num_kv_heads = 2 }, { alibi = true, softcap = 1.5 },
      { window = { left = 3 }, sinks = true, qk_norm = true }, { out_proj = false, head_dim = 6 } } do
      local m = module(tensors.merged({ context_length = 60 }, kind))
      local cache = m:new_cache { batch = 2, dtype = "int4" }
      m(heed.randn(2, 9, 6), { cache = cache })
      local x = heed.randn(2, 3, 6)
      local y = m(x, { cache = cache:clone() })
      local z, info = m(x, { cache = cache, need_weights = true })
      assert.is_true(y:equal(z))
      local values = info.values:repeat_interleave(4 / info.values.shape[2], 2)
      local heads = info.weights:matmul(values):transpose(2, 3):flatten(3)
      close(m.out_proj and m.out_proj(heads) or heads, y, 2e-6)
    end
  end)

  it("gives the same for single tokens, chunks and all at once", function()
    for _, kind in ipairs { {}, { rope = {}, num_kv_heads = 2 }, { window = { left = 3 }, head_dim = 5 } } do
      local m = module(tensors.merged({ context_length = 300 }, kind))
      local x = heed.randn(2, 250, 6)
      local whole = m(x, { cache = m:new_cache { batch = 2, dtype = "int4" } })
      local cache, first = m:new_cache { batch = 2, dtype = "int4" }, 1
      for _, n in ipairs { 1, 7, 100, 1, 1, 140 } do
        close(whole:narrow(2, first, n), m(x:narrow(2, first, n), { cache = cache }), 0.02) -- some round differently
        first = first + n
      end
      cache:truncate(245):reorder { 2, 1 }
      local y = m(heed.stack { x[2], x[1] }:narrow(2, 246, 5), { cache = cache })
      close(heed.stack { whole[2], whole[1] }:narrow(2, 246, 5), y, 0.02)
    end
  end)

  it("is better for the turning where a few channels are large", function()
    local m = module { context_length = 80, head_dim = 64, num_heads = 1 }
    local scale = heed.ones(64)
    scale[3], scale[40] = 60, 40
    m.W_key.weight:mul_(scale:unsqueeze(2))
    local x = heed.randn(1, 80, 6)
    local _, exact = m(x, { need_weights = true })
    local _, stored = m(x, { cache = m:new_cache { dtype = "int4" }, need_weights = true })
    local keys = exact.keys
    local step = keys:abs():max(-1, true) / 7
    local plain = (keys / step):round() * step -- the same steps without turning
    local function off(other) return ((other - keys):norm() / keys:norm()):item() end
    assert.is_true(off(stored.keys) < 0.15)
    local small = heed.ones(64)
    small[3], small[40] = 0, 0
    local function off_small(other) return ((other * small - keys * small):norm() / (keys * small):norm()):item() end
    assert.is_true(off_small(plain) > 0.9)
  end)

  it("stores nan, which affects only the queries that see it", function()
    local m, x = module { window = { left = 2 } }, heed.randn(1, 9, 6)
    x[{ 1, 3 }] = 0 / 0
    local cache = m:new_cache { dtype = "int4" }
    for i = 1, 9 do
      assert.equal(i >= 3 and i <= 5, m(x:narrow(2, i, 1), { cache = cache }):isnan():all():item())
    end
  end)

  it("calls hooks, works in slices, and gives the same bits with several threads", function()
    local m = module { context_length = 400, head_dim = 16, rope = {} }
    local cache = m:new_cache { batch = 2, dtype = "int4" }
    m(heed.randn(2, 300, 6), { cache = cache })
    local x, threads = heed.randn(2, 3, 6), heed.get_num_threads()
    local y = m(x, { cache = cache:clone() })
    local handle = m:add_hook("hook_pattern", function(weights) return weights * 1 end)
    close(y, m(x, { cache = cache:clone() }))
    handle:remove()
    heed.set_num_threads(3)
    assert.is_true(y:equal(m(x, { cache = cache:clone() })))
    heed.set_num_threads(threads)
    local steps = m:steps(x, { cache = cache, ms = 0 })
    for _ in steps do end
    assert.is_true(y:equal(steps.result))
    assert.equal(303, cache.length)
  end)

  it("is a dtype of caches alone", function()
    local m = module()
    raises("new_cache: prefix is int4; it must be int8, the dtype of the cache",
      function() m:new_cache { dtype = "int8", prefix = m:new_cache { dtype = "int4" } } end)
    assert.has_error(function() m:new_cache { dtype = "int5" } end)
    assert.has_error(function() heed.zeros(2, { dtype = "int4" }) end)
  end)
end)
