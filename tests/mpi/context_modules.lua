-- Attention modules and models in context_parallel, and caches that are divided.
local heed = require "heed"
local context = require "tests.context"
local ranks = require "tests.ranks"
local assert = require "luassert"
local oracle = require "heed.nn.oracle"
local tensors = require "tests.tensors"
local dist, size, nn = ranks.dist, ranks.size, heed.nn
local describe, it, message_of = ranks.describe, ranks.it, ranks.message_of
local close = tensors.close

local mesh, mha, fails, D, B = context.mesh, context.mha, context.fails, context.D, 2

local function masks(n) return heed.rand(B, n):lt(0.3) end

-- A module, and the options of its call for n tokens.
local MODULES = { -- in order: the ranks go through them together
  { "a MultiHeadAttention", function() return mha() end },
  { "rotary positions, norms and grouped heads", function()
    return mha { num_kv_heads = 2, rope = {}, qk_norm = true, qkv_bias = true }
  end },
  { "other rotary positions and a window", function()
    return mha { rope = { style = "interleaved", dims = 2, base = 100 }, window = { left = 3 } }
  end },
  { "ALiBi, sinks and a soft cap", function() return mha { alibi = true, sinks = true, softcap = 3 } end },
  { "padding", function() return mha { causal = false } end, function(n) return { key_padding_mask = masks(n) } end },
  { "kv_lengths", function() return mha { causal = false } end, function(n) return { kv_lengths = { n, 1 } } end },
  { "padding and a mask value", function() return mha() end, function(n)
    return { key_padding_mask = masks(n), attn_mask = heed.mask.documents { 1, n - 1 } }
  end },
  { "padding and a float mask", function() return mha() end, function(n)
    return { key_padding_mask = masks(n), attn_mask = heed.randn(B, 4, n, n) }
  end },
  { "a SelfAttention", function() return nn.SelfAttention(D, D) end },
  { "a CausalAttention with a mask", function() return nn.CausalAttention(D, D, 600, 0):eval() end, function(n)
    return { attn_mask = heed.rand(B, n, n):lt(0.6) }
  end },
}

local CROSS = {
  { "keys of other tokens", function() return mha { causal = false, rope = {} } end },
  { "keys of other tokens and their lengths", function() return mha { rope = {} } end, function(_, s)
    return { kv_lengths = { s, 2 } }
  end },
}

-- The result, the log-sums, and the gradients of (result · w) of x and the parameters.
local function gradients(m, x, w, f)
  x:requires_grad_(true)
  x.grad = nil
  m:zero_grad()
  local y, lse = heed.enable_grad(f)
  heed.enable_grad(function() (y * w):sum():backward() end)
  local found = { x.grad or heed.zeros(x.shape) }
  for _, p in ipairs(m:parameters()) do found[#found + 1] = p.grad and p.grad:clone() or heed.zeros(p.shape) end
  return y:detach(), lse, found
end

local function compare(make, options, n, s)
  heed.manual_seed(10 * n)
  local m, x = make(), heed.randn(B, n, D)
  local key, w = s and heed.randn(B, s, D), heed.randn(B, n, D)
  local o = tensors.merged({ need_lse = true, key = key }, options and options(n, s))
  local y, lse, wanted = gradients(m, x, w, function()
    local out, info = m(x, o)
    return out, info.lse
  end)
  local own, own_lse, found = gradients(m, x, w, function()
    return dist.context_parallel(mesh, function(shard)
      local out, info = m(shard(x, 2), tensors.merged(o, { key = key and shard(key, 2) }))
      return out, shard:gather(info.lse, -1)
    end, { gather = -2 })
  end)
  close(y, own, 2e-6)
  close(lse, own_lse, 2e-6)
  for i, each in ipairs(found) do close(wanted[i], dist.all_reduce(each:contiguous()), 1e-5, 1e-5) end
end

describe("a module in context_parallel", function()
  for _, case in ipairs(MODULES) do
    it("gives what it gives in one process, and the gradients: " .. case[1], function()
      for _, n in ipairs { 2, 5, 13 } do compare(case[2], case[3], n) end
    end)
  end

  for _, case in ipairs(CROSS) do
    it("gives what it gives in one process, and the gradients: " .. case[1], function()
      for _, n in ipairs { 2, 5, 13 } do compare(case[2], case[3], n, n + 3) end
    end)
  end

  it("is as exact as one process", function()
    heed.manual_seed(4)
    local m, x = mha { rope = {}, num_kv_heads = 2 }, heed.randn(1, 33, D)
    local rows = x[1]:tolist()
    local exact = heed.tensor { oracle.pass(m, m, {}, nil, 1, rows, rows, rows, {}).y }
    local one = (m(x) - exact):abs():max():item()
    local y = dist.context_parallel(mesh, function(shard) return m(shard(x, 2)) end, { gather = 2 })
    assert.is_true((y - exact):abs():max():item() <= 2 * one)
  end)

  it("may be a wrapper of heads, nn.MultiheadAttention or a layer", function()
    heed.manual_seed(5)
    local x = heed.randn(B, 9, D)
    local wrapper = nn.MultiHeadAttentionWrapper(D, 4, 600, 0.0, 4):eval()
    local torch = nn.MultiheadAttention(D, 4, { batch_first = true }):eval()
    local layer = nn.TransformerEncoderLayer(D, 4, 32, { batch_first = true }):eval()
    for _, f in ipairs {
      function(own) return wrapper(own) end, function(own) return layer(own) end,
      function(own) return (torch(own, own, own, { need_weights = false })) end,
    } do
      close(f(x), dist.context_parallel(mesh, function(shard) return f(shard(x, 2)) end, { gather = 2 }))
    end
  end)

  it("calls hooks and parts in Lua with shards", function()
    heed.manual_seed(6)
    local m, x, seen = mha(), heed.randn(B, 9, D), {}
    local y = m(x)
    local hooks = {
      m:register_forward_hook(function(_, input) seen.input = input.shape[2] end),
      m:add_hook("hook_z", function(z)
        seen.z = z.shape[2]
        return z * 2
      end),
    }
    local doubled = dist.context_parallel(mesh, function(shard)
      seen.own = shard(x, 2).shape[2]
      return m(shard(x, 2))
    end, { gather = 2 })
    for _, hook in ipairs(hooks) do hook:remove() end
    close((y - m.out_proj.bias) * 2 + m.out_proj.bias, doubled, 5e-6)
    assert.are.equal(seen.own, seen.input)
    assert.are.equal(seen.own, seen.z)
  end)

  it("draws dropout in training from a philox generator", function()
    heed.manual_seed(7)
    local m, x = nn.MultiHeadAttention(D, D, 64, 0.5, 4):train(), heed.randn(B, 9, D)
    local y = m(x, { generator = heed.Generator { seed = 1, kind = "philox" } })
    close(y, dist.context_parallel(mesh, function(shard)
      return m(shard(x, 2), { generator = heed.Generator { seed = 1, kind = "philox" } })
    end, { gather = 2 }), 5e-6)
  end)
end)

describe("a model in context_parallel", function()
  for _, name in ipairs { "llama", "gpt2" } do
    it("gives its logits, token by token, too: " .. name, function()
      local model = assert(require("heed.models." .. name).load("tests/golden/decoders/" .. name))
      local ids = heed.tensor({ { 5, 17, 9, 3, 40, 11, 2, 8, 33, 21, 7 } }, { dtype = "int64" })
      local cache, own = model:new_cache { capacity = 32 }, dist.context_cache(mesh)
      local y = dist.context_parallel(mesh, function(shard)
        return model(shard(ids, 2), { cache = own })
      end, { gather = 2 })
      close(model(ids, { cache = cache }), y, 2e-5)
      for i = 1, 3 do
        local id = ids:narrow(2, i, 1)
        close(model(id, { cache = cache }), dist.context_parallel(mesh, function()
          return model(id, { cache = own })
        end, { decode = true }), 2e-5)
      end
      assert.are.equal(cache.length, own.length)
    end)
  end

  local MODELS = { { "llama", "decoders/llama" }, { "gpt2", "decoders/gpt2" }, { "bert", "tiny_bert" } }
  for _, case in ipairs(MODELS) do
    it("may have fewer tokens than ranks: " .. case[1], function()
      local model = assert(require("heed.models." .. case[1]).load("tests/golden/" .. case[2]))
      for n = 1, size do
        local ids = heed.range(2, n + 1, { dtype = "int64" })
        close(model(ids), dist.context_parallel(mesh, function(shard) return model(shard(ids, 1)) end, { gather = 1 }),
          2e-5)
      end
    end)

    it("refuses more tokens than it has positions, on all ranks alike: " .. case[1], function()
      local model = assert(require("heed.models." .. case[1]).load("tests/golden/" .. case[2]))
      local most = model.config.max_position_embeddings
      local ids = heed.ones(most + 1, { dtype = "int64" })
      local message = message_of(dist.context_parallel, mesh, function(shard) return model(shard(ids, 1)) end)
      assert.is_truthy(message:find(("ids have %d tokens on all ranks; together they must be at most %d, "):format(
        most + 1, most), 1, true), message)
    end)
  end

  it("counts the tokens in a divided cache, too", function()
    local model = assert(require("heed.models.gpt2").load "tests/golden/decoders/gpt2")
    local most, own = model.config.max_position_embeddings, dist.context_cache(mesh)
    local function read(n)
      return dist.context_parallel(mesh, function(shard)
        return model(shard(heed.ones(n, { dtype = "int64" }), 1), { cache = own })
      end)
    end
    read(most - 1)
    local text = ("cache has %d tokens and ids have 2 tokens on all ranks"):format(most - 1)
    assert.is_truthy(message_of(read, 2):find(text, 1, true))
    read(1)
    assert.are.equal(most, own.length)
  end)

  it("has the gradients of one process, with fewer tokens than ranks, too", function()
    local model = assert(require("heed.models.gpt2").load "tests/golden/decoders/gpt2")
    for _, n in ipairs { 1, 3, 7 } do
      local ids, wanted = heed.range(2, n + 1, { dtype = "int64" }), {}
      local function backward(f)
        model:zero_grad()
        heed.enable_grad(function() return (f() ^ 2):mean() end):backward()
      end
      backward(function() return model(ids) end)
      for name, p in model:named_parameters() do wanted[name] = p.grad and p.grad:clone() end
      backward(function()
        return dist.context_parallel(mesh, function(shard) return model(shard(ids, 1)) end, { gather = 1 })
      end)
      for name, p in model:named_parameters() do
        if wanted[name] then
          close(wanted[name], dist.all_reduce(p.grad and p.grad:clone() or heed.zeros(p.shape)), 5e-5)
        end
      end
    end
  end)

  it("refuses logits_to_keep, since the last tokens are not those of each rank", function()
    local model = assert(require("heed.models.gpt2").load "tests/golden/decoders/gpt2")
    fails("GPT2: logits_to_keep is not available in context_parallel; use shard:gather(logits, dim), then narrow",
      function(shard) return model(shard(heed.ones(9, { dtype = "int64" }), 1), { logits_to_keep = 1 }) end)
    local own = dist.context_cache(mesh)
    local id = heed.ones(1, { dtype = "int64" })
    assert.are.equal(1, #dist.context_parallel(mesh, function()
      return model(id, { cache = own, logits_to_keep = 1 })
    end, { decode = true }))
  end)

  it("gives the hidden states of BERT, also with padding", function()
    local bert = assert(require("heed.models.bert").load "tests/golden/tiny_bert")
    local ids = heed.tensor({ { 2, 7, 9, 3, 5, 4, 6 }, { 2, 8, 3, 1, 1, 1, 1 } }, { dtype = "int64" })
    local y = dist.context_parallel(mesh, function(shard)
      return bert(shard(ids, 2), { kv_lengths = { 7, 3 } })
    end, { gather = 2 })
    local wanted = bert(ids, { kv_lengths = { 7, 3 } })
    close(wanted[1], y[1], 5e-6)
    close(wanted[2]:narrow(1, 1, 3), y[2]:narrow(1, 1, 3), 5e-6)
  end)
end)

-- ---- Caches -------------------------------------------------------------------------------------

local CACHED = {
  { "a MultiHeadAttention" }, { "rotary positions", { num_kv_heads = 2, rope = {}, qk_norm = true } },
  { "a window and ALiBi", { window = { left = 3 }, alibi = true } }, { "sinks", { sinks = true, softcap = 2 } },
  { "no causality", { causal = false } },
}

describe("a divided cache", function()
  for _, case in ipairs(CACHED) do
    it("gives what a cache gives: " .. case[1], function()
      heed.manual_seed(8)
      local m = mha(case[2])
      for _, chunks in ipairs { { 7, 1, 1, 1 }, { 9, 4, 2, 1, 1 }, { 300, 1, 5, 1 } } do
        local cache, own = m:new_cache { batch = B, capacity = 600 }, dist.context_cache(mesh)
        for i, n in ipairs(chunks) do
          local x = heed.randn(B, n, D)
          local y
          if i < 3 and n > 1 then
            y = dist.context_parallel(mesh, function(shard) return m(shard(x, 2), { cache = own }) end, { gather = 2 })
          else
            y = dist.context_parallel(mesh, function() return m(x, { cache = own }) end, { decode = true })
          end
          close(m(x, { cache = cache }), y, 2e-6)
        end
        assert.are.equal(cache.length, own.length)
      end
    end)
  end

  it("takes masks over all its tokens, in decoding, too", function()
    heed.manual_seed(9)
    local m = mha()
    local cache, own = m:new_cache { batch = B, capacity = 64 }, dist.context_cache(mesh)
    local x, next_x = heed.randn(B, 8, D), heed.randn(B, 2, D)
    local documents, longer = heed.mask.documents { 3, 5 }, heed.mask.documents { 3, 7 }
    local padding = heed.zeros({ B, 10 }, { dtype = "bool" })
    padding[{ 1, { 4, 6 } }] = true
    m(x, { cache = cache, attn_mask = documents })
    dist.context_parallel(mesh, function(shard) m(shard(x, 2), { cache = own, attn_mask = documents }) end)
    local options = { attn_mask = longer, key_padding_mask = padding }
    local y = dist.context_parallel(mesh, function()
      return m(next_x, tensors.merged(options, { cache = own }))
    end, { decode = true })
    close(m(next_x, tensors.merged(options, { cache = cache })), y, 2e-6)
  end)

  it("keeps the first tokens, and grows from there", function()
    heed.manual_seed(10)
    local m = mha { rope = {} }
    local cache, own = m:new_cache { batch = B, capacity = 64 }, dist.context_cache(mesh)
    local function step(x)
      close(m(x, { cache = cache }), dist.context_parallel(mesh, function() return m(x, { cache = own }) end,
        { decode = true }), 2e-6)
    end
    local x = heed.randn(B, 11, D)
    m(x, { cache = cache })
    dist.context_parallel(mesh, function(shard) m(shard(x, 2), { cache = own }) end)
    step(heed.randn(B, 1, D))
    cache:truncate(5)
    own:truncate(5)
    step(heed.randn(B, 3, D))
    step(heed.randn(B, 1, D))
    assert.are.equal(9, own.length)
  end)

  it("is in half the memory with bfloat16", function()
    heed.manual_seed(11)
    local m = mha()
    local cache, own = m:new_cache { batch = B, capacity = 64 }, dist.context_cache(mesh, { dtype = "bfloat16" })
    local x, next_x = heed.randn(B, 11, D), heed.randn(B, 1, D)
    m(x, { cache = cache })
    dist.context_parallel(mesh, function(shard) m(shard(x, 2), { cache = own }) end)
    local y = dist.context_parallel(mesh, function() return m(next_x, { cache = own }) end, { decode = true })
    close(m(next_x, { cache = cache }), y, 5e-3)
    assert.are.equal("bfloat16", own.dtype)
  end)

  it("gathers the outputs and statistics of a step once for each layer", function()
    heed.manual_seed(12)
    local m, own, x = mha(), dist.context_cache(mesh), heed.randn(1, 8 * size, D)
    dist.context_parallel(mesh, function(shard) m(shard(x, 2), { cache = own }) end)
    local function sent() return dist.counted().all_gather or { bytes = 0, calls = 0 } end
    local before = sent()
    dist.context_parallel(mesh, function() m(x:narrow(2, 1, 1), { cache = own }) end, { decode = true })
    local after = sent()
    if size > 1 then
      assert.are.equal(4 * (4 + 2) * 4 * (size - 1), after.bytes - before.bytes)
    end
  end)

  it("is as it was after a step that failed", function()
    local m, own, x = mha(), dist.context_cache(mesh), heed.randn(B, 6, D)
    dist.context_parallel(mesh, function(shard) m(shard(x, 2), { cache = own }) end)
    local message = message_of(dist.context_parallel, mesh, function()
      m(x, { cache = own })
      error("a mistake", 0)
    end, { decode = true })
    assert.are.equal("a mistake", message)
    assert.are.equal(6, own.length)
    close(m(x:narrow(2, 1, 6)), dist.context_parallel(mesh, function(shard)
      own:truncate(0)
      return m(shard(x, 2), { cache = own })
    end, { gather = 2 }), 2e-6)
  end)
end)

ranks.finish()
