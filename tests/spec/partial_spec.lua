-- Attention over parts of the keys, and merging the parts. (Random options and gradients: tests/c/test_partial.c.)
local heed = require "heed"
local fails = require "tests.fails"
local tensors = require "tests.tensors"

local partial, merge, attention = heed.attention_partial, heed.attention_merge, heed.scaled_dot_product_attention
local close = tensors.close

local function keys(x, first, last) return x:narrow(-2, first, last - first + 1) end

--- Attention over keys 1…cut and the others, merged; o: further options of both, sinks of the first.
local function in_two(q, k, v, cut, o, sinks)
  local n = k:size(-2)
  local first = tensors.merged(o, { sinks = sinks })
  local second = tensors.merged(o, { offset = (o.offset or 0) - cut })
  local out1, stats1 = partial(q, keys(k, 1, cut), keys(v, 1, cut), first)
  local out2, stats2 = partial(q, keys(k, cut + 1, n), keys(v, cut + 1, n), second)
  return merge({ out1, out2 }, { stats1, stats2 })
end

describe("attention_partial", function()
  before_each(function() heed.manual_seed(9) end)

  it("gives the bits of scaled_dot_product_attention, and the largest score and the sum of each query", function()
    for _, l in ipairs { 1, 7, 40, 200 } do
      local q, k, v = heed.randn(2, 4, l, 16), heed.randn(2, 2, 200, 16), heed.randn(2, 2, 200, 8)
      local out, stats = partial(q, k, v)
      assert.is_true(out:equal(attention(q, k, v)))
      assert.are.equal("2 4 " .. l .. " 2", table.concat(stats.shape, " "))
      local scores = q:matmul(k:repeat_interleave(2, 2).mT) * 0.25
      local most = scores:amax(-1, { keepdim = true })
      close(most:squeeze(-1), stats:select(-1, 1), 1e-5)
      close((scores - most):exp():sum(-1), stats:select(-1, 2), 1e-4)
    end
  end)

  it("counts a sink as a score, also for queries that see no key", function()
    for _, n in ipairs { 3, 60 } do
      local x = heed.randn(1, 1, n, 4)
      local mask = heed.ones(n, n, { dtype = "bool" })
      mask[2] = false
      local out, stats = partial(x, x, x, { attn_mask = mask, sinks = heed.tensor { 50 } })
      assert.are.same({ 50, 1 }, stats[1][1][2]:tolist())
      assert.are.equal(50, stats[1][1][1][1])
      assert.are.equal(0, out[1][1][2]:abs():sum():item())
      out, stats = partial(x, x, x, { attn_mask = mask })
      assert.are.same({ -math.huge, 0 }, stats[1][1][2]:tolist())
      assert.are.equal(0, out[1][1][2]:abs():sum():item())
    end
  end)

  it("takes the positions of queries from offset, and leaves them where they are with kv_lengths", function()
    local q, k = heed.randn(1, 1, 3, 8), heed.randn(1, 1, 9, 8)
    local out = partial(q, k, k, { is_causal = true, offset = 4, kv_lengths = { 6 } })
    local mask = heed.tensor { { 1, 1, 1, 1, 1, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1, 1, 0, 0, 0 },
      { 1, 1, 1, 1, 1, 1, 0, 0, 0 } }
    close(attention(q, k, k, { attn_mask = mask:bool() }), out)
  end)

  it("puts past keys before the part", function()
    local q, k = heed.randn(1, 1, 3, 8), heed.randn(1, 1, 9, 8)
    local out, stats = partial(q, keys(k, 7, 9), keys(k, 7, 9), { is_causal = true, past_key = keys(k, 1, 6),
      past_value = keys(k, 1, 6) })
    local all, all_stats = partial(q, k, k, { is_causal = true, offset = 6 })
    assert.is_true(out:equal(all) and stats:equal(all_stats))
  end)

  it("reads bfloat16 and float16", function()
    for _, dtype in ipairs { "bfloat16", "float16" } do
      local q, k = heed.randn(1, 2, 5, 8), heed.randn(1, 2, 40, 8):to(dtype)
      local whole = attention(q, k, k)
      close(whole, (in_two(q, k, k, 17, {})), 2e-6)
    end
  end)

  it("refuses an offset that is no integer, unknown options and other shapes", function()
    local x = heed.randn(1, 2, 4, 8)
    fails("attention_partial: offset is the number 1.5; it must be an integer", partial, x, x, x, { offset = 1.5 })
    fails("attention_partial: offset is a string ('a'); it must be an integer", partial, x, x, x, { offset = "a" })
    local found, message = pcall(partial, x, x, x, { need_weights = true })
    assert.is_false(found)
    assert.is_truthy(message:find("attention_partial: there is no option 'need_weights'", 1, true), message)
    found, message = pcall(partial, x, x, keys(x, 1, 3))
    assert.is_false(found)
    assert.is_truthy(message:find("attention_partial: ", 1, true), message)
    found, message = pcall(partial, x, x, x, { offset = 2 ^ 53 * 2 })
    assert.is_false(found)
    assert.is_truthy(message:find("attention_partial: offset is ", 1, true), message)
  end)
end)

describe("attention_merge", function()
  before_each(function() heed.manual_seed(10) end)

  it("joins parts over disjoint keys to the whole, with all options", function()
    local slopes, sinks = heed.tensor { 0.5, 0.25 }, heed.tensor { 0.5, -1 }
    for _, o in ipairs { {}, { is_causal = true, offset = 3 }, { window = { left = 5, right = 2 }, offset = 8 },
      { softcap = 2, scale = 0.7 }, { alibi_slopes = slopes, is_causal = true, offset = 10 } } do
      for _, cut in ipairs { 1, 20, 49 } do
        local q, k, v = heed.randn(2, 2, 30, 8), heed.randn(2, 2, 50, 8), heed.randn(2, 2, 50, 8)
        local out, stats = partial(q, k, v, tensors.merged(o, { sinks = sinks }))
        local merged, merged_stats = in_two(q, k, v, cut, o, sinks)
        close(out, merged, 2e-6)
        close(stats, merged_stats, 1e-5, 1e-5)
      end
    end
  end)

  it("joins parts with scores of some hundreds", function()
    local q, k, v = heed.randn(1, 2, 20, 16) * 100, heed.randn(1, 2, 60, 16) * 4, heed.randn(1, 2, 60, 8)
    local whole, stats = partial(q, k, v)
    assert.is_true(stats:select(-1, 1):amax():item() > 300)
    close(whole, (in_two(q, k, v, 30, {})), 2e-4)
  end)

  it("merges what it has merged, in any grouping", function()
    local q, k = heed.randn(1, 1, 4, 8), heed.randn(1, 1, 40, 8)
    local outs, stats = {}, {}
    for i = 1, 40 do outs[i], stats[i] = partial(q, keys(k, i, i), keys(k, i, i)) end
    local whole = attention(q, k, k)
    close(whole, (merge(outs, stats)), 1e-6) -- more than are merged at once
    local out, sums = outs[1], stats[1]
    for i = 2, 40 do out, sums = merge({ out, outs[i] }, { sums, stats[i] }) end
    close(whole, out, 2e-6)
    local same, same_stats = merge({ out }, { sums })
    assert.is_true(same:equal(out) and same_stats:equal(sums))
  end)

  it("keeps nan of a part that has it, in its query alone", function()
    local q, k = heed.randn(1, 1, 3, 8), heed.randn(1, 1, 10, 8)
    q[{ 1, 1, 2, 1 }] = heed.nan
    local out = in_two(q, k, k, 4, {})
    assert.are.equal(8, out[1][1][2]:isnan():long():sum():item())
    close(attention(q[{ {}, {}, { 1, 1 } }], k, k), out[{ {}, {}, { 1, 1 } }])
  end)

  it("has the gradients of the whole", function()
    heed.enable_grad(function()
      local function whole(q, k, v, sinks)
        return (partial(q, k, v, { is_causal = true, offset = 2, sinks = sinks }))
      end
      local function parts(q, k, v, sinks)
        local out, stats = in_two(q, k, v, 3, { is_causal = true, offset = 2 }, sinks)
        return out, stats:select(-1, 1) + stats:select(-1, 2):log()
      end
      local inputs = { heed.randn(2, 2, 5, 4), heed.randn(2, 1, 7, 4), heed.randn(2, 1, 7, 3), heed.randn(2) }
      for _, x in ipairs(inputs) do x:requires_grad_() end
      assert.is_true(heed.autograd.gradcheck(parts, inputs))
      local w = heed.randn(2, 2, 5, 3)
      local one = heed.autograd.grad((whole(table.unpack(inputs)) * w):sum(), inputs)
      local two = heed.autograd.grad(((parts(table.unpack(inputs))) * w):sum(), inputs)
      for i = 1, 4 do close(one[i], two[i], 5e-6) end
      assert.are.equal("<AttentionPartialBackward0>", whole(table.unpack(inputs)).grad_fn)
    end)
  end)

  it("has gradients with many parts, queries that see no key, and dropout", function()
    heed.enable_grad(function()
      local function in_many(q, k)
        local outs, stats = {}, {}
        for i = 1, 20 do
          outs[i], stats[i] = partial(q, keys(k, i, i), keys(k, i, i), { is_causal = true, offset = 1 - i })
        end
        return (merge(outs, stats))
      end
      local q, k = heed.randn(1, 1, 20, 4):requires_grad_(), heed.randn(1, 1, 20, 4):requires_grad_()
      local w = heed.randn(1, 1, 20, 4)
      local many = heed.autograd.grad((in_many(q, k) * w):sum(), { q, k })
      local one = heed.autograd.grad((attention(q, k, k, { is_causal = true }) * w):sum(), { q, k })
      for i = 1, 2 do close(one[i], many[i], 5e-6) end

      local function dropped(x)
        return partial(x, k, k, { dropout_p = 0.5, generator = heed.Generator(3) })
      end
      assert.is_true(heed.autograd.gradcheck(function(x)
        local out, stats = dropped(x)
        return out, stats:select(-1, 1) + stats:select(-1, 2):log()
      end, { q }))
    end)
  end)

  it("refuses the gradient of the largest score alone, and leaves all gradients as they were", function()
    heed.enable_grad(function()
      local x = heed.randn(1, 1, 4, 8):requires_grad_()
      local _, stats = partial(x, x, x)
      local found, message = pcall(function() stats:select(-1, 1):sum():backward() end)
      assert.is_false(found)
      assert.is_truthy(message:find("only functions of row_max + log(row_sum), such as attention_merge, have gradients",
        1, true), message)
      assert.is_nil(x.grad)
    end)
  end)

  it("refuses lists that do not fit", function()
    local x = heed.randn(1, 2, 4, 8)
    local out, stats = partial(x, x, x)
    local function refuses(text, ...) fails("attention_merge: " .. text, merge, ...) end
    refuses("outs has 0 tensors and stats has 0; the numbers must be equal and at least 1", {}, {})
    refuses("outs has 2 tensors and stats has 1; the numbers must be equal and at least 1", { out, out }, { stats })
    refuses("stats[2] is nil; it must be a tensor", { out, out, out }, { stats, nil, stats })
    refuses("outs[1] is the number 1; it must be a tensor", { 1 }, { stats })
    refuses("stats[1] is [1, 2, 4, 8] and outs[1] is [1, 2, 4, 8]; the sizes must be equal, but the last of stats "
      .. "must be 2", { out }, { out })
    refuses("outs[2] is [2, 4, 8] and outs[1] is [1, 2, 4, 8]; the shapes must be equal", { out, out[1] },
      { stats, stats[1] })
    refuses("stats[1] is int64; it must be float32", { out }, { stats:long() })
    assert.is_false(pcall(merge, out, stats))
  end)
end)

describe("need_lse", function()
  before_each(function() heed.manual_seed(11) end)

  --- The logarithms of sums that follow from the weights' scores.
  local function of_scores(info, head_dim) return heed.logsumexp(info.scores / math.sqrt(head_dim), -1) end

  it("works in every attention module, with and without a batch, as a whole and in slices", function()
    local nn = heed.nn
    for i, m in ipairs { nn.SelfAttention(6, 4), nn.CausalAttention(6, 4, 16, 0.0),
      nn.MultiHeadAttentionWrapper(6, 4, 16, 0.0, 2), nn.MultiHeadAttention(6, 8, 16, 0.0, 2) } do
      for _, x in ipairs { heed.randn(10, 6), heed.randn(3, 10, 6) } do
        local y = m(x)
        local again, info = m(x, { need_lse = true, need_weights = { "scores" } })
        assert.is_true(again:equal(y))
        close(of_scores(info, 4), info.lse, 1e-5)
        if i ~= 3 then -- the wrapper has no slices
          local steps = m:steps(x, { ms = 0, need_lse = true })
          local done, total = 0, 1
          while done < total do done, total = steps:advance() end
          assert.is_true(steps.result:equal(y))
          assert.is_true(steps.info.lse:equal(info.lse))
        end
      end
    end
  end)

  it("works with a cache, token by token and for a prompt", function()
    local m = heed.nn.MultiHeadAttention(6, 8, 60, 0.0, 2)
    local x = heed.randn(1, 50, 6)
    local _, info = m(x, { need_lse = true })
    local cache = m:new_cache { capacity = 60 }
    local _, prompt = m(x[{ {}, { 1, 40 } }], { cache = cache, need_lse = true })
    close(info.lse[{ {}, {}, { 1, 40 } }], prompt.lse, 1e-5)
    for i = 41, 50 do
      local _, one = m(x[{ {}, { i, i } }], { cache = cache, need_lse = true })
      close(info.lse[{ {}, {}, { i, i } }], one.lse, 1e-5)
    end
  end)
end)
