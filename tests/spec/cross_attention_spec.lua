-- Cross attention in MultiHeadAttention: key, value and kv_lengths.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local module, close = tensors.small_mha, tensors.close

before_each(function() heed.manual_seed(123) end)

describe("cross attention", function()
  it("computes keys and values from key, and queries from x", function()
    local m = module { causal = false }
    local x, key = heed.randn(2, 3, 6), heed.randn(2, 5, 6)
    local y, info = m(x, { key = key, need_weights = true })
    assert.equal("heed.Size([2, 3, 8])", tostring(y.shape))
    assert.equal("heed.Size([2, 4, 3, 5])", tostring(info.scores.shape))
    assert.equal("heed.Size([2, 4, 3, 5])", tostring(info.weights.shape))
    assert.equal("heed.Size([2, 4, 3, 2])", tostring(info.queries.shape))
    assert.equal("heed.Size([2, 4, 5, 2])", tostring(info.keys.shape))
    close(m.W_key(key):view(2, 5, 4, 2):transpose(2, 3), info.keys)
    close(m.W_value(key):view(2, 5, 4, 2):transpose(2, 3), info.values)
    close(m.W_query(x):view(2, 3, 4, 2):transpose(2, 3), info.queries)
    local heads = heed.scaled_dot_product_attention(info.queries, info.keys, info.values)
    close(m.out_proj(heads:transpose(2, 3):reshape(2, 3, 8)), y)
  end)

  it("equals self-attention if key is x", function()
    local m, x = module(), heed.randn(2, 5, 6)
    assert.equal(m(x):to_string(), m(x, { key = x }):to_string())
    assert.equal(m(x):to_string(), m(x, { key = x, value = x }):to_string())
  end)

  it("accepts keys and values of other sizes", function()
    local m = module { kdim = 5, vdim = 3, causal = false, num_kv_heads = 2 }
    assert.equal("heed.Size([4, 5])", tostring(m.W_key.weight.shape))
    assert.equal("heed.Size([4, 3])", tostring(m.W_value.weight.shape))
    local y = m(heed.randn(2, 3, 6), { key = heed.randn(2, 4, 5), value = heed.randn(2, 4, 3) })
    assert.equal("heed.Size([2, 3, 8])", tostring(y.shape))
    assert.equal("heed.Size([5, 2])", tostring(m:head(3).W_key.shape))
    assert.equal("heed.Size([3, 2])", tostring(m:head(3).W_value.shape))
  end)

  it("works without a batch", function()
    local m = module { kdim = 5, vdim = 5, causal = false }
    local x, key = heed.randn(3, 6), heed.randn(4, 5)
    local y = m(x, { key = key })
    close(m(x:unsqueeze(1), { key = key:unsqueeze(1) })[1], y)
  end)

  it("compares positions, both counted from 1, if causal", function()
    local _, info = module()(heed.randn(4, 6), { key = heed.randn(3, 6), need_weights = true })
    for i = 1, 4 do
      for j = 1, 3 do
        assert.equal(j > i, info.scores[{ 1, i, j }] == -math.huge)
        assert.equal(j > i, info.weights[{ 1, i, j }] == 0)
      end
    end
  end)

  it("accepts a key without tokens, as if the attention output were zero", function()
    local m, x = module { causal = false }, heed.randn(2, 3, 6)
    close(m.out_proj(heed.zeros(2, 3, 8)), m(x, { key = heed.zeros(2, 0, 6) }))
    assert.equal("heed.Size([2, 0, 8])", tostring(m(heed.zeros(2, 0, 6), { key = x }).shape))
  end)

  it("accepts masks and lengths of the keys", function()
    local m, x, key = module { causal = false }, heed.randn(2, 3, 6), heed.randn(2, 5, 6)
    local padding = heed.tensor { { false, false, false, true, true }, { false, false, false, false, true } }
    local lengths = heed.tensor({ 3, 4 }, { dtype = "int64" })
    local y, info = m(x, { key = key, key_padding_mask = padding, need_weights = true })
    close(y, m(x, { key = key, kv_lengths = lengths }))
    close(y, m(x, { key = key, attn_mask = padding:logical_not():view(2, 1, 1, 5) }))
    assert.equal(0, info.weights[{ 1, 1, 1, 4 }])
    local spoilt = key:clone()
    spoilt[padding] = 0 / 0
    assert.equal(y:to_string(), m(x, { key = spoilt, key_padding_mask = padding }):to_string())
  end)

  it("applies dropout to its weights", function()
    local m = nn.MultiHeadAttention { d_in = 6, d_out = 8, context_length = 12, dropout = 0.5, num_heads = 4 }
    local x, key = heed.randn(2, 3, 6), heed.randn(2, 5, 6)
    local _, info = m(x, { key = key, need_weights = true, generator = heed.Generator(3) })
    assert.equal("heed.Size([2, 4, 3, 5])", tostring(info.dropped_weights.shape))
    local ratio = (info.dropped_weights / info.weights)[{ 1, 1, 3, 1 }]
    assert.is_true(ratio == 0 or math.abs(ratio - 2) < 1e-6)
  end)
end)

describe("kv_lengths", function()
  it("aligns the last query of a causal module with the last key", function()
    local m, x, key = module(), heed.randn(2, 2, 6), heed.randn(2, 6, 6)
    local _, info = m(x, { key = key, kv_lengths = heed.tensor({ 4, 6 }, { dtype = "int64" }), need_weights = true })
    for b, length in ipairs { 4, 6 } do
      for i = 1, 2 do
        for j = 1, 6 do assert.equal(j <= i + length - 2, info.weights[{ b, 1, i, j }] > 0) end
      end
    end
  end)

  it("are accepted by all attention modules", function()
    local lengths, x = heed.tensor({ 4, 2 }, { dtype = "int64" }), heed.randn(2, 4, 6)
    local padding = heed.tensor { { false, false, false, false }, { false, false, true, true } }
    local m = nn.SelfAttention(6, 8)
    close(m(x, { key_padding_mask = padding }), m(x, { kv_lengths = lengths }))
    close(m(x, { key_padding_mask = padding }), m(x, { kv_lengths = { 4, 2 } }))
    close(m(x, { key_padding_mask = padding }), m(x, { kv_lengths = lengths:float() }))
    for _, each in ipairs {
      nn.CausalAttention(6, 8, 4, 0), nn.MultiHeadAttentionWrapper(6, 4, 4, 0, 2), module(),
      module { window = { left = 1 }, alibi = true, rope = {} },
      nn.CausalAttention { d_in = 6, d_out = 8, context_length = 4, dropout = 0, softmax_dim = 1 },
    } do
      local y, info = each(x, { kv_lengths = lengths, need_weights = true })
      local rows = info.scores:view(2, -1, 4, 4)[2][1]
      for i = 1, 4 do
        for j = 3, 4 do assert.equal(-math.huge, rows[{ i, j }]) end
      end
      close(each(x, { key_padding_mask = padding }), y)
      close(each(x, { kv_lengths = lengths }), y)
      if each:class_name() ~= "CausalAttention" or each.softmax_dim == -1 then
        close(each(x[2][{ { 1, 2 } }]), y[2][{ { 1, 2 } }]) -- as without the padding
      end
    end
  end)

  it("mean in modules what they mean in scaled_dot_product_attention of the tokens without padding", function()
    local m = module()
    local lengths = heed.tensor({ 4, 2 }, { dtype = "int64" })
    local _, info = m(heed.randn(2, 4, 6), { kv_lengths = lengths, need_weights = true })
    for b, length in ipairs { 4, 2 } do -- the real tokens alone: as many queries as keys, so that the offset is 0
      local function real(t) return t[b][{ {}, { 1, length } }] end
      local _, alone = heed.scaled_dot_product_attention(real(info.queries), real(info.keys), real(info.values),
        { is_causal = true, kv_lengths = { length }, need_weights = true })
      close(alone.weights, info.weights[b][{ {}, { 1, length }, { 1, length } }])
    end
  end)

  it("must be valid lengths", function()
    local m, x = module(), heed.randn(2, 4, 6)
    assert.has_error(function() m(x, { kv_lengths = heed.tensor({ 5, 1 }, { dtype = "int64" }) }) end)
    raises("MultiHeadAttention: kv_lengths contains 1.5; it must have whole numbers: convert with x:long(), which "
      .. "drops fractions (element [2] of kv_lengths)", function() m(x, { kv_lengths = heed.tensor { 1, 1.5 } }) end)
    raises("MultiHeadAttention: kv_lengths[2] is the number 1.5; it must be an integer",
      function() m(x, { kv_lengths = { 1, 1.5 } }) end)
    raises("MultiHeadAttention: kv_lengths of batch item 2 is 5; it must be from 0 to 4, the number of keys",
      function() m(x, { kv_lengths = { 1, 5 } }) end)
    assert.has_error(function() m(x, { kv_lengths = heed.tensor({ 1, 1, 1 }, { dtype = "int64" }) }) end)
  end)
end)

describe("cross attention rejects", function()
  local m, small, x

  before_each(function()
    m, small, x = module(), module { kdim = 5, vdim = 3 }, heed.randn(2, 3, 6)
  end)

  it("a missing key or value that x or key cannot replace because of its size", function()
    raises("MultiHeadAttention: key is missing; it must be given, since d_in is 6, kdim 5 and vdim 3",
      function() small(x) end)
    raises("MultiHeadAttention: value is missing; it must be given, since kdim is 5 and vdim 3",
      function() small(x, { key = heed.randn(2, 4, 5) }) end)
    raises("MultiHeadAttention: value is given without key; give key as well",
      function() m(x, { value = x }) end)
  end)

  it("mismatched sizes", function()
    raises("MultiHeadAttention: key is [2, 4, 6]; it must be [n, 5] or [b, n, 5], since kdim is 5",
      function() small(x, { key = heed.randn(2, 4, 6), value = heed.randn(2, 4, 3) }) end)
    raises("MultiHeadAttention: value is [2, 4, 6]; it must be [n, 3] or [b, n, 3], since vdim is 3",
      function() small(x, { key = heed.randn(2, 4, 5), value = heed.randn(2, 4, 6) }) end)
    raises("MultiHeadAttention: x is [2, 3, 6] and key is [3, 4, 6]; their sizes of the batch must be equal",
      function() m(x, { key = heed.randn(3, 4, 6) }) end)
    raises("MultiHeadAttention: x is [2, 3, 6] and key is [4, 6]; their sizes of the batch must be equal",
      function() m(x, { key = heed.randn(4, 6) }) end)
    raises("MultiHeadAttention: key is [2, 4, 6] and value is [2, 5, 6]; their sizes but the last must be equal",
      function() m(x, { key = heed.randn(2, 4, 6), value = heed.randn(2, 5, 6) }) end)
  end)

  it("more tokens than context_length", function()
    raises("MultiHeadAttention: key has 13 tokens; it must have at most 12, the context_length",
      function() m(x, { key = heed.randn(2, 13, 6) }) end)
    raises("MultiHeadAttention: x has 13 tokens; it must have at most 12, the context_length",
      function() m(heed.randn(2, 13, 6), { key = x }) end)
  end)

  it("anything but float32 tensors", function()
    raises("MultiHeadAttention: key is the number 3; it must be a tensor", function() m(x, { key = 3 }) end)
    raises("MultiHeadAttention: key is int64; it must be float32: convert with key:float()",
      function() m(x, { key = heed.ones(2, 3, 6, { dtype = "int64" }) }) end)
  end)

  it("options of other modules", function()
    raises("CausalAttention: key is given; only MultiHeadAttention takes it",
      function() nn.CausalAttention(6, 8, 4, 0)(x, { key = x }) end)
    raises("SelfAttention: value is given; only MultiHeadAttention takes it",
      function() nn.SelfAttention(6, 8)(x, { value = x }) end)
    raises("MultiHeadAttentionWrapper: cache is given; only MultiHeadAttention takes it",
      function() nn.MultiHeadAttentionWrapper(6, 8, 4, 0, 2)(x, { cache = m:new_cache() }) end)
    raises("Linear: kv_lengths is given; only attention modules take it",
      function() nn.Linear(6, 8)(x, { kv_lengths = heed.tensor({ 1, 1 }, { dtype = "int64" }) }) end)
    raises("Linear: cache is given; only MultiHeadAttention takes it",
      function() nn.Linear(6, 8)(x, { cache = m:new_cache() }) end)
  end)
end)
