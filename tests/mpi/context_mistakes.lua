-- Mistakes in context_parallel: every rank says the same, or what differs and where.
local heed = require "heed"
local context = require "tests.context"
local ranks = require "tests.ranks"
local assert = require "luassert"
local tensors = require "tests.tensors"
local dist, rank, size = ranks.dist, ranks.rank, ranks.size
local describe, it, with, message_of = ranks.describe, ranks.it, ranks.with, ranks.message_of
local close = tensors.close

local attention = heed.scaled_dot_product_attention
local mesh, mha, fails, D, B = context.mesh, context.mha, context.fails, context.D, 2

describe("a mistake in context_parallel", function()
  local q, x = heed.randn(1, 1, 4, D), heed.randn(B, 4, D)

  it("gives a sentence", function()
    fails("scaled_dot_product_attention: need_weights is not available in context_parallel; need_lse is",
      function() return attention(q, q, q, { need_weights = true }) end)
    fails("varlen_attention: it is not available in context_parallel; use scaled_dot_product_attention with attn_mask "
      .. "= heed.mask.documents(lengths)", function() return heed.varlen_attention(q[1], q[1], q[1], { 4 }) end)
    fails("steps: it is not available in context_parallel", function() return mha():steps(x) end)
    fails("MultiHeadAttention: lengths are not available in context_parallel; give attn_mask = "
      .. "heed.mask.documents(lengths)", function() return mha()(x[1], { lengths = { 1, 3 } }) end)
    fails("MultiHeadAttention: need_weights is not available in context_parallel; need_lse is",
      function() return mha()(x, { need_weights = true }) end)
    fails('scaled_dot_product_attention: dropout is 0.25 in context_parallel, but the generator is of the kind '
      .. '"mt19937", whose numbers have an order; call heed.manual_seed(seed, "philox") on all ranks, or set dropout '
      .. "to 0, or call eval()", function(shard)
      local own = shard(q, 3)
      return attention(own, own, own, { dropout_p = 0.25 })
    end)
    fails("context_parallel: it runs in a function of context_parallel already",
      function() return dist.context_parallel(mesh, function() end) end)
    fails("MultiHeadAttention: cache is missing; with decode = true only a cache is divided", function()
      return mha()(x)
    end, { decode = true })
    fails("context_parallel: gather and decode are given; with decode = true results are whole already", function() end,
      { gather = 1, decode = true })
    fails("shard: dim is 5; it must be from 1 to 3, or from -3 to -1", function(shard) return shard(x, 5) end)
    assert.are.equal("context_parallel: f is nil; it must be a function", message_of(dist.context_parallel, mesh))
    local m = mha()
    fails("MultiHeadAttention: cache is a cache; it must be one that heed.distributed.context_cache made",
      function(shard) return m(shard(x, 2), { cache = m:new_cache { batch = B } }) end)
    local mask = heed.ones(7, 7)
    local count = dist.context_parallel(mesh, function(shard) return #shard:positions(8) end)
    fails(("scaled_dot_product_attention: attn_mask is a tensor of shape [7, 7] and dtype float32; it must be "
      .. "[..., 8, 8], for the tokens of all ranks, or [..., %d, 8], with this rank's rows"):format(count),
    function(shard)
      local own = shard(heed.zeros(1, 1, 8, 4), 3)
      return attention(own, own, own, { attn_mask = mask })
    end)
    fails("MultiHeadAttention: value is a tensor of shape [2, 5, 16] and dtype float32; it must be of as many tokens "
      .. "as key, 4", function() return mha()(x, { key = x, value = heed.zeros(B, 5, D) }) end)
    fails("scaled_dot_product_attention: element 2 of kv_lengths is 9; it must be from 0 to 8, the keys of all ranks",
      function(shard)
        local own = shard(heed.zeros(2, 1, 8, 4), 3)
        return attention(own, own, own, { kv_lengths = { 8, 9 } })
      end)
    fails("MultiHeadAttention: there are 601 tokens on all ranks; there must be at most 600, the context_length",
      function(shard) return mha()(shard(heed.zeros(1, 601, D), 2)) end)
  end)

  with(2, "names the rank whose tokens are not its shard", function()
    local mine = heed.zeros(1, 1, rank == 2 and 9 or 4, 4)
    local all = 4 * size + 5
    local needed = dist.context_parallel(mesh, function(shard) return shard(heed.zeros(all), 1).shape[1] end)
    local of_first = rank == 1 and needed or nil
    local first = dist.broadcast(heed.tensor({ of_first or 0 }, { dtype = "int64" }), 1)[1]
    fails(("scaled_dot_product_attention: q has 4 tokens on rank 1, and %d on all ranks; cut by shard(x, dim) it would "
      .. "have %d there"):format(all, first), function() return attention(mine, mine, mine) end)
  end)

  with(2, "names the rank with other heads", function()
    fails(("scaled_dot_product_attention: q has %d elements for each token here, and %d on rank %d; the other sizes "
      .. "must be the same"):format(rank == 1 and 8 or 16, rank == 1 and 16 or 8, rank == 1 and 2 or 1), function(shard)
      local own = shard(heed.zeros(1, rank == 1 and 2 or 4, 6, 4), 3)
      return attention(own, own, own)
    end)
  end)

  it("has the sentence of one process for a wrong option", function()
    local whole = heed.zeros(2, 2, 12, 4)
    for _, o in ipairs {
      { window = 3 }, { window = { left = "x" } }, { softcap = -1 }, { is_causal = 3 }, { scale = "x" },
      { sinks = heed.ones(3) }, { sinks = 3 }, { alibi_slopes = 2 }, { attn_mask = 3 }, { generator = 3 },
      { attn_mask = heed.ones(12, 12):long() }, { past_key = heed.ones(2, 2, 3, 4) }, { kv_lengths = { 1, 2, 3 } },
      { past_key = heed.ones(2, 2, 3, 4), past_value = heed.ones(2, 2, 4, 4) }, { need_lse = 4 },
    } do
      fails(message_of(attention, whole, whole, whole, o), function(shard)
        local own = shard(whole, 3)
        return attention(own, own, own, o)
      end)
    end
    fails("MultiHeadAttention: attn_mask is the number 3; it must be a tensor or a heed.Mask",
      function(shard) return mha()(shard(x, 2), { attn_mask = 3 }) end)
    fails("MultiHeadAttention: kv_lengths is a tensor of shape [3] and dtype int64; it must be [2], a length for each "
      .. "item of the batch", function(shard) return mha()(shard(x, 2), { kv_lengths = { 1, 2, 3 } }) end)
  end)

  with(2, "names the rank with other options", function()
    local function differs(text, f)
      fails(("%s here, and has another value on rank %d; it must be the same on all ranks"):format(text,
        rank == 1 and 2 or 1), f)
    end
    for _, case in ipairs {
      { "is_causal is " .. tostring(rank == 1), { is_causal = rank == 1 } },
      { "softcap is " .. (rank == 1 and 3 or 4), { softcap = rank == 1 and 3 or 4 } },
      { "the window's left is " .. (rank == 1 and "2" or "nil"), { window = rank == 1 and { left = 2 } or nil } },
    } do
      differs("scaled_dot_product_attention: " .. case[1], function(shard)
        local own = shard(q, 3)
        return attention(own, own, own, case[2])
      end)
    end
    local m, own = mha(), dist.context_cache(mesh)
    dist.context_parallel(mesh, function(shard) return m(shard(x, 2), { cache = own }) end)
    if rank == 1 then own = dist.context_cache(mesh) end
    differs("MultiHeadAttention: the length of cache is " .. (rank == 1 and 0 or 4),
      function(shard) return m(shard(x, 2), { cache = own }) end)
  end)

  with(2, "names the rank that truncates the cache elsewhere", function()
    local m, own = mha(), dist.context_cache(mesh)
    dist.context_parallel(mesh, function(shard) return m(shard(x, 2), { cache = own }) end)
    local n, other = rank == 1 and 1 or 2, rank == 1 and 2 or 1
    assert.are.equal(("truncate: n is %d here, and %d on rank %d; all ranks must keep the same tokens"):format(n,
      other, other), message_of(own.truncate, own, n))
    assert.are.equal(4, own.length)
  end)

  with(2, "names the rank with another generator", function()
    fails(("scaled_dot_product_attention: the generator of dropout is not that of rank %d; all ranks must give it the "
      .. "same seed, and draw the same from it"):format(rank == 1 and 2 or 1), function(shard)
      local own = shard(heed.zeros(1, 1, 6, 4), 3)
      return attention(own, own, own,
        { dropout_p = 0.5, generator = heed.Generator { seed = rank == 1 and 1 or 2, kind = "philox" } })
    end)
  end)

  it("is a yield, since others would find attention redirected", function()
    local ok, message = coroutine.resume(coroutine.create(function()
      dist.context_parallel(mesh, function() coroutine.yield() end)
    end))
    assert.is_false(ok)
    assert.is_truthy(message:find("yield", 1, true))
    close(attention(q, q, q), attention(q, q, q))
  end)

  it("leaves everything usable", function()
    message_of(dist.context_parallel, mesh, function() error "a mistake" end)
    close(attention(q, q, q), attention(q, q, q))
    assert.are.equal(4, #mha()(x)[1])
  end)
end)

ranks.finish()
