-- scaled_dot_product_attention in context_parallel: every option, at lengths that do not divide, against one process.
local heed = require "heed"
local context = require "tests.context"
local ranks = require "tests.ranks"
local assert = require "luassert"
local division = require "heed.parallel.division"
local tensors = require "tests.tensors"
local dist, rank, size = ranks.dist, ranks.rank, ranks.size
local describe, it, close = ranks.describe, ranks.it, tensors.close

local attention = heed.scaled_dot_product_attention
local mesh = context.mesh
local LENGTHS = { 1, 2, 5, 8, 13, 37 }
local B, HQ, HKV, D = 2, 4, 2, 8

local function half(n) return math.floor(n / 2) end

local function parents_of(n)
  local parents = {}
  for i = 1, n do parents[i] = half(i) end
  return parents
end

-- The ranges of keys that each query sees: two for each item.
local function two_ranges(n, s)
  local rows = {}
  for i = 1, n do rows[i] = { { 1, math.min(i, half(s)) }, { half(s) + 1, s } } end
  return heed.mask.intervals(heed.tensor({ { rows }, { rows } }, { dtype = "int64" }))
end

-- Options for n queries and s keys. Tensors among them get gradients, except masks of bool.
local OPTIONS = { -- in order: the ranks go through them together
  { "no options", function() return {} end },
  { "is_causal", function() return { is_causal = true } end },
  { "a window", function() return { is_causal = true, window = { left = 4 } } end },
  { "a window to both sides", function() return { window = { left = 3, right = 2 } } end },
  { "softcap", function() return { softcap = 2, is_causal = true } end },
  { "scale", function() return { scale = 0.3 } end },
  { "alibi_slopes", function() return { alibi_slopes = heed.alibi_slopes(HQ) * 0.1, is_causal = true } end },
  { "sinks", function() return { sinks = heed.randn(HQ), is_causal = true } end },
  { "a bool mask", function(n, s) return { attn_mask = heed.rand(B, 1, n, s):lt(0.7) } end },
  { "a float mask", function(n, s) return { attn_mask = heed.randn(HQ, n, s) } end },
  { "a mask of keys", function(_, s) return { attn_mask = heed.randn(1, s) } end },
  { "a mask of queries", function(n) return { attn_mask = heed.randn(n, 1) } end },
  { "a mask of fewer keys", function(n, s) return { attn_mask = heed.rand(n, math.max(1, s - 2)):lt(0.8) } end },
  { "a number as a mask", function() return { attn_mask = heed.tensor(0.5) } end },
  { "documents", function(_, s)
    return { attn_mask = heed.mask.documents { half(s), s - half(s) }, is_causal = true }
  end },
  { "a prefix and a window", function(_, s)
    return { attn_mask = heed.mask.prefix(half(s)):both(heed.mask.window(5, 3)) }
  end },
  { "a tree", function(n) return { attn_mask = heed.mask.tree(parents_of(n)) } end, "same" },
  { "intervals", function(n, s) return { attn_mask = two_ranges(n, s) } end },
  { "kv_lengths", function(_, s) return { kv_lengths = { s, half(s) } } end },
  { "kv_lengths and is_causal", function(_, s) return { kv_lengths = { s, half(s) }, is_causal = true } end },
  { "kv_lengths and a float mask", function(n, s)
    return { kv_lengths = { s, half(s) }, is_causal = true, attn_mask = heed.randn(B, 1, n, s) }
  end },
  { "kv_lengths and a mask value", function(_, s)
    return { kv_lengths = { s - half(s), s }, attn_mask = heed.mask.window(2, 2) }
  end },
  { "kv_lengths and intervals", function(n, s)
    return { kv_lengths = { s, half(s) }, attn_mask = two_ranges(n, s) }
  end },
  { "past keys", function()
    return { past_key = heed.randn(B, HKV, 3, D), past_value = heed.randn(B, HKV, 3, D), is_causal = true }
  end },
  { "past keys and a mask", function(n, s)
    return { past_key = heed.randn(B, HKV, 3, D), past_value = heed.randn(B, HKV, 3, D),
      attn_mask = heed.randn(B, HQ, n, s + 3) }
  end },
}

local function is_leaf(x) return heed.is_tensor(x) and x.dtype == "float32" end

-- The output, the log-sums, and the gradients of (output · w) of q, k, v and the tensors in options.
local function gradients(inputs, options, w, f)
  local leaves = { inputs[1], inputs[2], inputs[3] }
  for _, name in ipairs { "attn_mask", "alibi_slopes", "sinks", "past_key", "past_value" } do
    if is_leaf(options[name]) then leaves[#leaves + 1] = options[name] end
  end
  for _, leaf in ipairs(leaves) do
    leaf:requires_grad_(true)
    leaf.grad = nil
  end
  local out, lse = f()
  local found = {}
  heed.enable_grad(function() (out * w):sum():backward() end)
  for i, leaf in ipairs(leaves) do found[i] = leaf.grad or heed.zeros(leaf.shape) end
  return out:detach(), lse:detach(), found
end

local function compare(n, s, make)
  heed.manual_seed(100 * n + s)
  local inputs = { heed.randn(B, HQ, n, D), heed.randn(B, HKV, s, D), heed.randn(B, HKV, s, D) }
  local options, w = make(n, s), heed.randn(B, HQ, n, D)
  options.need_lse = true
  local out, lse, wanted = gradients(inputs, options, w, function()
    return heed.enable_grad(function()
      local y, info = attention(inputs[1], inputs[2], inputs[3], options)
      return y, info.lse
    end)
  end)
  local own, own_lse, found = gradients(inputs, options, w, function()
    return heed.enable_grad(function()
      return dist.context_parallel(mesh, function(shard)
        local y, info = attention(shard(inputs[1], -2), shard(inputs[2], -2), shard(inputs[3], -2), options)
        return shard:gather(y, -2), shard:gather(info.lse, -1)
      end)
    end)
  end)
  close(out, own, 2e-6)
  close(lse, own_lse, 2e-6, 1e-6)
  for i, x in ipairs(found) do
    -- the gradient of slopes is a sum of terms that are multiplied by distances of up to 75, and cancel
    local atol = options.alibi_slopes and i == 4 and 1e-4 or 1e-5
    close(wanted[i], dist.all_reduce(x:contiguous()), atol, 1e-5)
  end
end

describe("context_parallel", function()
  for _, case in ipairs(OPTIONS) do
    it("gives the output, the log-sums and the gradients of one process, with " .. case[1], function()
      for _, n in ipairs(LENGTHS) do
        compare(n, n, case[2])
        if case[3] ~= "same" then compare(n, 2 * n + 1, case[2]) end
      end
    end)
  end

  it("takes the rows of a mask that are the rank's own", function()
    heed.manual_seed(1)
    local x, mask = heed.randn(1, 1, 11, D), heed.rand(11, 11):lt(0.6)
    local y = dist.context_parallel(mesh, function(shard)
      local own = shard(x, 3)
      return attention(own, own, own, { attn_mask = shard(mask, 1) })
    end, { gather = 3 })
    close(attention(x, x, x, { attn_mask = mask }), y)
  end)

  it("takes keys and values in low precision, and tensors without heads", function()
    heed.manual_seed(2)
    local q, k = heed.randn(9, D), heed.randn(9, D):to "bfloat16"
    local y = dist.context_parallel(mesh, function(shard)
      return attention(shard(q, 1), shard(k, 1), shard(k, 1), { is_causal = true })
    end, { gather = 1 })
    close(attention(q, k, k, { is_causal = true }), y)
  end)

  it("keeps scores of some hundreds exact", function()
    heed.manual_seed(3)
    local q, k = heed.randn(1, 2, 40, 16) * 30, heed.randn(1, 2, 40, 16) * 10
    local y = dist.context_parallel(mesh, function(shard)
      return attention(shard(q, 3), shard(k, 3), shard(k, 3), { is_causal = true })
    end, { gather = 3 })
    close(attention(q, k, k, { is_causal = true }), y, 1e-4)
  end)

  it("draws the dropout of one process from a philox generator", function()
    local a, b = heed.Generator { seed = 5, kind = "philox" }, heed.Generator { seed = 5, kind = "philox" }
    for _, n in ipairs { 3, 10, 37 } do
      for _, more in ipairs { {}, { is_causal = true }, { is_causal = true, kv_lengths = { n, half(n) } } } do
        heed.manual_seed(n)
        local inputs = { heed.randn(B, HQ, n, D), heed.randn(B, HKV, n, D), heed.randn(B, HKV, n, D) }
        local w = heed.randn(B, HQ, n, D)
        local function run(generator, f)
          local o = tensors.merged(more, { dropout_p = 0.4, generator = generator })
          return gradients(inputs, {}, w, function()
            return heed.enable_grad(function() return f(o), w end)
          end)
        end
        local out, _, wanted = run(a, function(o) return attention(inputs[1], inputs[2], inputs[3], o) end)
        local own, _, found = run(b, function(o)
          return dist.context_parallel(mesh, function(shard)
            return attention(shard(inputs[1], 3), shard(inputs[2], 3), shard(inputs[3], 3), o)
          end, { gather = 3 })
        end)
        close(out, own, 5e-6)
        for i, x in ipairs(found) do close(wanted[i], dist.all_reduce(x:contiguous()), 1e-5, 1e-5) end
        assert.are.equal(a:get_offset(), b:get_offset())
      end
    end
  end)

  it("sends keys and values once around the ring, and backward with their gradients", function()
    local n = 16 * size
    local q, k = heed.zeros(1, HQ, n, D), heed.zeros(1, HKV, n, D)
    local function sent() return dist.counted().isend and dist.counted().isend.bytes or 0 end
    local before = sent()
    dist.context_parallel(mesh, function(shard) attention(shard(q, 3), shard(k, 3), shard(k, 3)) end)
    local after = sent()
    local message = 16 * HKV * D * 4 + 24 -- with what the other side checks
    assert.are.equal((size - 1) * 2 * message, after - before)
    q:requires_grad_(true)
    heed.enable_grad(function()
      local y = dist.context_parallel(mesh, function(shard)
        return attention(shard(q, 3), shard(k, 3), shard(k, 3))
      end)
      before = sent()
      y:sum():backward()
    end)
    local of_gradients = size > 1 and size or 0
    assert.are.equal((size - 1 + of_gradients) * 2 * message, sent() - before)
  end)
end)

describe("a shard", function()
  it("has two chunks of the tokens, whose sizes differ by at most one", function()
    for _, n in ipairs { 0, 1, 3, 4 * size, 6 * size + 1 } do
      local x = heed.range(1, n, { dtype = "int64" })
      dist.context_parallel(mesh, function(shard)
        local own = shard(x, 1)
        assert.are.equal(division.count(n, size, rank), own.shape[1])
        assert.is_true(own:equal(shard:positions(n)))
        local whole = shard:gather(own, 1)
        assert.is_true(whole:equal(x))
      end)
    end
  end)

  it("gives the rank's tokens of the gradient, and takes them", function()
    local x = heed.randn(7, 2):requires_grad_(true)
    heed.enable_grad(function()
      local y = dist.context_parallel(mesh, function(shard) return shard(x, 1) * 3 end, { gather = 1 });
      (y * heed.range(1, 14):view(7, 2)):sum():backward()
    end)
    local whole = dist.all_reduce(x.grad:contiguous())
    close(heed.range(1, 14):view(7, 2) * 3, whole)
  end)
end)

ranks.finish()
