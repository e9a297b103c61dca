-- Settings of built-in modules that can be changed after construction.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local function mha(more)
  local options = { d_in = 6, d_out = 8, context_length = 12, dropout = 0, num_heads = 4 }
  for name, value in pairs(more or {}) do options[name] = value end
  heed.manual_seed(7)
  return nn.MultiHeadAttention(options)
end

local x = heed.randn(2, 5, 6, { generator = heed.Generator(1) })

describe("a setting that is changed", function()
  for name, value in pairs {
    scale = 0.3, causal = false, window = { left = 2, right = 1 }, softcap = 4, rope = { base = 500 },
    context_length = 5,
  } do
    it("gives what the constructor gives with it: " .. name, function()
      local changed, made = mha(), mha { [name] = value }
      changed[name] = value
      assert.are.equal(made(x):to_string(), changed(x):to_string())
      assert.are.equal(tostring(made), tostring(changed))
    end)
  end

  it("reads as it was set, and nil selects the default", function()
    local m, default = mha(), mha().scale
    m.scale, m.softcap, m.window, m.rope = 0.5, 3, { left = 2 }, { base = 7 }
    assert.are.same({ 0.5, 3, 2, 7 }, { m.scale, m.softcap, m.window.left, m.rope.base })
    m.scale, m.softcap, m.window, m.rope = nil, nil, nil, nil
    assert.are.equal(default, m.scale)
    assert.is_nil(m.softcap)
    assert.is_nil(m.window)
    assert.is_nil(m.rope)
    assert.are.equal(mha()(x):to_string(), m(x):to_string())
  end)

  it("makes all scores equal with a scale of 0", function()
    local m = mha { causal = false }
    m.scale = 0
    local _, info = m(x, { need_weights = true })
    tensors.close(heed.full(info.weights.shape, 1 / 5), info.weights)
  end)

  it("is the probability of a dropout, of an attention as well", function()
    local m = mha()
    m.dropout.p = 0.5
    assert.are.equal(0.5, m.dropout.p)
    assert.are.equal("Dropout(p=0.5, inplace=False)", tostring(m.dropout))
    local made = mha { dropout = 0.5 }
    assert.are.equal(made(x, { generator = heed.Generator(3) }):to_string(),
      m(x, { generator = heed.Generator(3) }):to_string())
    m.dropout.p = 0
    assert.are.equal(mha()(x):to_string(), m(x):to_string())
  end)

  it("is the epsilon of a norm", function()
    local norm, wide = nn.LayerNorm(6), nn.LayerNorm(6, 0.5)
    norm.eps = 0.5
    assert.are.equal(wide(x):to_string(), norm(x):to_string())
    local rms = nn.RMSNorm(6)
    rms.eps = 0.25
    assert.are.equal(nn.RMSNorm(6, 0.25)(x):to_string(), rms(x):to_string())
  end)

  it("is scale and softmax_dim of modules with one head", function()
    local m = nn.CausalAttention(6, 4, 5, 0)
    m.scale, m.softmax_dim = 1, 2
    assert.are.same({ 1, 2 }, { m.scale, m.softmax_dim })
    local _, info = m(x, { need_weights = true })
    assert.is_true(info.weights:sum(2):allclose(heed.ones(2, 5)))
    local simple = nn.SelfAttention(6, 4)
    simple.scale = 0
    tensors.close(simple.W_value(x):mean(2, true):expand(2, 5, 4), simple(x))
  end)

  it("applies to the heads of a wrapper", function()
    local m = nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 2)
    local before = m(x)
    m.heads[2].scale = 0
    local after = m(x)
    assert.are.equal(before[{ {}, {}, { 1, 4 } }]:to_string(), after[{ {}, {}, { 1, 4 } }]:to_string())
    assert.is_false(before:allclose(after))
  end)

  it("leaves a forward in slices that has begun as it was", function()
    heed.manual_seed(3)
    local long = heed.randn(1, 700, 64)
    local m = nn.MultiHeadAttention {
      d_in = 64, d_out = 64, context_length = 700, dropout = 0, num_heads = 4, rope = {}, window = { left = 90 },
    }
    local expected = m(long)
    local steps = m:steps(long, { ms = 0 })
    steps()
    m.rope, m.scale, m.causal, m.softcap, m.window = { base = 3 }, 2, false, 1, nil
    for _ = 1, 3 do steps() end
    m.rope = nil
    for _ in steps do end
    assert.are.equal(expected:to_string(), steps.result:to_string())
  end)

  it("makes a module refuse caches for another window", function()
    local m = mha { window = { left = 2 } }
    local cache = m:new_cache { batch = 2 }
    m.window = { left = 3 }
    raises("MultiHeadAttention: the cache is for a window with left 2; it must be that of the module, 3 (-1: none)",
      function() m(x, { cache = cache }) end)
    assert.are.equal(0, cache.length)
  end)
end)

describe("a refused value", function()
  local function refused(message, change, more)
    local m = mha(more)
    local before = m(x)
    local ok, got = pcall(change, m)
    assert.is_false(ok)
    assert.are.equal(message, (got:gsub("^[^ ]*:%d+: ", "")))
    assert.are.equal(before:to_string(), m(x):to_string())
  end

  it("changes nothing, and the message names the module and the setting", function()
    refused("Dropout: p is 2; it must be from 0 to 1", function(m) m.dropout.p = 2 end)
    refused("Dropout: p is nan; it must be from 0 to 1", function(m) m.dropout.p = 0 / 0 end)
    refused("Dropout: p is nil; it must be a number", function(m) m.dropout.p = nil end)
    refused("MultiHeadAttention: scale is inf; it must be finite", function(m) m.scale = math.huge end)
    refused("MultiHeadAttention: scale is a string ('x'); it must be a number", function(m) m.scale = "x" end)
    refused("MultiHeadAttention: causal is the number 1; it must be a boolean", function(m) m.causal = 1 end)
    refused("MultiHeadAttention: causal is nil; it must be a boolean", function(m) m.causal = nil end)
    refused("MultiHeadAttention: the window's left is -1; it must be at least 0",
      function(m) m.window = { left = -1 } end, { window = { left = 1 } })
    refused("MultiHeadAttention: window has the key 'lef'; its keys must be left and right",
      function(m) m.window = { lef = 1 } end)
    refused("MultiHeadAttention: softcap is -1; it must be above 0, or 0 for none", function(m) m.softcap = -1 end)
    refused("MultiHeadAttention: rope's base is -1; it must be positive and finite",
      function(m) m.rope = { base = -1 } end, { rope = {} })
    refused("MultiHeadAttention: context_length is 0; it must be at least 1", function(m) m.context_length = 0 end)
    raises("CausalAttention: softmax_dim is 4; it must be from 1 to 3, or from -3 to -1",
      function() nn.CausalAttention(6, 4, 5, 0).softmax_dim = 4 end)
    raises("LayerNorm: eps is -1; it must be at least 0, and finite", function() nn.LayerNorm(3).eps = -1 end)
  end)

  it("of a setting that cannot be changed is answered with those that can", function()
    raises("MultiHeadAttention: 'num_heads' cannot be set; the fields that can be set are W_query, W_key, W_value, "
      .. "out_proj, dropout, context_length, scale, causal, softcap, window, rope, training",
      function() mha().num_heads = 2 end)
    raises("Dropout: 'q' cannot be set; the fields that can be set are p, training",
      function() nn.Dropout().q = 2 end)
  end)
end)
