-- The options of MultiHeadAttention, without a cache: values from a plain implementation, settings, and options that
-- contradict each other.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local cases = require "tests.mha_cases"
local tensors = require "tests.tensors"

local function same(wanted, got, tolerance) tensors.close(wanted, got, tolerance, tolerance) end

describe("MultiHeadAttention gives the same as a plain implementation:", function()
  for _, case in ipairs(dofile "tests/golden/mha.lua") do
    it(case.name, function()
      local m, x, options = cases.build(case)
      local expected = tensors.golden(case.expect)
      if case.chunks then
        for _, dtype in ipairs { "float32", "bfloat16", "float16", "int8" } do
          local y = cases.through(m, x, m:new_cache { batch = case.b, dtype = dtype }, case.chunks, options)
          same(expected, y, ({ float32 = 3e-6, bfloat16 = 0.02, float16 = 0.002, int8 = 0.03 })[dtype])
        end
        return
      end
      local y = m(x, options)
      same(expected, y, 3e-6)
      options.need_weights = true
      local again, info = m(x, options)
      assert.equal(y:to_string(), again:to_string())
      for name, values in pairs(case.internals) do same(tensors.golden(values), info[name], 3e-6) end
    end)
  end
end)

local function config(more) return tensors.merged(tensors.SMALL, more) end

local module = tensors.small_mha

describe("the settings of a MultiHeadAttention", function()
  it("can be read", function()
    local m = module {
      kdim = 5, vdim = 3, window = { left = 3 }, softcap = 2.5, alibi = true, sinks = true, qk_norm = true,
      rope = { base = 100, style = "interleaved", dims = 2,
               scaling = { type = "yarn", factor = 4, original_context_length = 64 } },
    }
    assert.equal(5, m.kdim)
    assert.equal(3, m.vdim)
    assert.are.same({ left = 3 }, m.window)
    assert.equal(2.5, m.softcap)
    assert.is_true(m.alibi)
    assert.is_true(m.qk_norm)
    assert.equal("Parameter containing:\ntensor([0., 0., 0., 0.])", tostring(m.sinks))
    assert.equal("RMSNorm((2,), eps=1e-06, elementwise_affine=True)", tostring(m.q_norm))
    assert.equal("RMSNorm((2,), eps=1e-06, elementwise_affine=True)", tostring(m.k_norm))
    assert.are.same({
      base = 100.0, style = "interleaved", dims = 2,
      scaling = { type = "yarn", factor = 4.0, original_context_length = 64, beta_fast = 32.0, beta_slow = 1.0 },
    }, m.rope)
    local twin = module { rope = m.rope, window = m.window }
    assert.are.same(m.rope, twin.rope)
  end)

  it("have defaults: nil, or PyTorch's", function()
    local m = module()
    for _, name in ipairs { "window", "softcap", "rope", "sinks", "q_norm", "k_norm" } do assert.is_nil(m[name]) end
    assert.equal(6, m.kdim)
    assert.equal(6, m.vdim)
    assert.is_false(m.alibi)
    assert.is_false(m.qk_norm)
    assert.are.same({ base = 10000.0, style = "half" }, module { rope = {} }.rope)
    assert.is_false(module { qk_norm = false }.qk_norm)
    assert.is_nil(module { softcap = 0 }.softcap)
  end)

  it("do not change when a table that was read from them is changed", function()
    local m = module { window = { left = 3, right = 1 } }
    m.window.left = 7
    assert.are.same({ left = 3, right = 1 }, m.window)
  end)

  it("draw no additional random numbers", function()
    heed.manual_seed(5)
    local plain = module()
    heed.manual_seed(5)
    local m = module { sinks = true, qk_norm = true, rope = {}, alibi = true, softcap = 1, window = { left = 1 } }
    for _, name in ipairs { "W_query", "W_key", "W_value", "out_proj" } do
      assert.equal(plain[name].weight:to_string(), m[name].weight:to_string())
    end
  end)

  it("put sinks first into the state dict, and the norms last, as PyTorch does", function()
    local names = {}
    for name in heed.pairs(module { sinks = true, qk_norm = true }:state_dict()) do names[#names + 1] = name end
    assert.equal("sinks W_query.weight W_key.weight W_value.weight out_proj.weight out_proj.bias " ..
      "q_norm.weight k_norm.weight", table.concat(names, " "))
  end)

  it("appear as parts in the text", function()
    assert.equal([[
MultiHeadAttention(
  num_heads=4, num_kv_heads=2, context_length=12
  (W_query): Linear(in_features=6, out_features=8, bias=False)
  (W_key): Linear(in_features=5, out_features=4, bias=False)
  (W_value): Linear(in_features=3, out_features=4, bias=False)
  (out_proj): Linear(in_features=8, out_features=8, bias=True)
  (dropout): Dropout(p=0, inplace=False)
  (q_norm): RMSNorm((2,), eps=0.5, elementwise_affine=True)
  (k_norm): RMSNorm((2,), eps=0.5, elementwise_affine=True)
)]], (tostring(module { kdim = 5, vdim = 3, num_kv_heads = 2, qk_norm = { eps = 0.5 } }):gsub("p=0.0", "p=0")))
  end)

  it("appear in the text where they differ from the defaults, after the heads and the context", function()
    local function line(more)
      more = more or {}
      return tostring(module(more)):match "^MultiHeadAttention%(\n  ([^\n]*)\n  %(W_query"
    end
    assert.equal("num_heads=4, context_length=12", line())
    assert.equal("num_heads=4, num_kv_heads=1, head_dim=6, context_length=12, causal=False",
      line { num_kv_heads = 1, head_dim = 6, causal = false })
    assert.equal("num_heads=4, context_length=12, scale=0.25, window=(left=2, right=0), softcap=30.0, alibi=True, "
      .. "sinks=True",
      line { scale = 0.25, window = { left = 2, right = 0 }, softcap = 30, alibi = true, sinks = true })
    assert.equal("num_heads=4, context_length=12, scale=0.0, window=(left=2), rope=(base=10000.0)",
      line { scale = 0, window = { left = 2 }, rope = {} })
    assert.equal("num_heads=4, context_length=12, window=(right=3), rope=(base=500.0, style=interleaved, dims=2, "
      .. "scaling=linear)", line { window = { right = 3 }, rope = {
        base = 500, style = "interleaved", dims = 2, scaling = { type = "linear", factor = 2 } } })
    local m = nn.CausalAttention(6, 4, 5, 0)
    assert.equal("CausalAttention(\n  (W_query)", tostring(m):sub(1, 28))
    m.scale, m.softmax_dim = 1, 2
    assert.equal("CausalAttention(\n  scale=1.0, softmax_dim=2\n  (W_query)", tostring(m):sub(1, 55))
  end)

  it("must have known names", function()
    raises("MultiHeadAttention: there is no option 'windw'; the options are d_in, d_out, context_length, dropout, " ..
      "num_heads, qkv_bias, causal, num_kv_heads, head_dim, out_proj, out_bias, scale, generator, kdim, vdim, " ..
      "window, softcap, rope, alibi, sinks, qk_norm", function() nn.MultiHeadAttention { windw = 3 } end)
    local m = module()
    raises("MultiHeadAttention has no field 'windw'; it has W_query, W_key, W_value, out_proj, dropout, d_in, " ..
      "d_out, context_length, num_heads, num_kv_heads, head_dim, scale, causal, kdim, vdim, softcap, alibi, " ..
      "qk_norm, " ..
      "window, rope, training", function() return m.windw end)
  end)
end)

describe("MultiHeadAttention rejects", function()
  local function refused(message, more)
    local c = config(more)
    raises(message, function() nn.MultiHeadAttention(c) end)
  end

  it("sizes below 1", function()
    refused("MultiHeadAttention: kdim is 0; it must be at least 1", { kdim = 0 })
    refused("MultiHeadAttention: vdim is -3; it must be at least 1", { vdim = -3 })
  end)

  it("invalid windows", function()
    refused("MultiHeadAttention: the window's left is -1; it must be at least 0", { window = { left = -1 } })
    refused("MultiHeadAttention: the window's right is -2; it must be at least 0", { window = { right = -2 } })
    refused("MultiHeadAttention: window has the key 'lft'; its keys must be left and right", { window = { lft = 1 } })
    refused("MultiHeadAttention: the window's left is the number 1.5; it must be an integer",
      { window = { left = 1.5 } })
    refused("MultiHeadAttention: window is the number 3; it must be a table {left =, right =}", { window = 3 })
  end)

  it("negative, infinite and nan softcaps", function()
    refused("MultiHeadAttention: softcap is -1; it must be above 0, or 0 for none", { softcap = -1 })
    refused("MultiHeadAttention: softcap is inf; it must be above 0, or 0 for none", { softcap = math.huge })
    refused("MultiHeadAttention: softcap is nan; it must be above 0, or 0 for none", { softcap = math.abs(0 / 0) })
  end)

  it("invalid qk_norm options", function()
    refused("MultiHeadAttention: qk_norm is the number 1; it must be a boolean or {eps =}", { qk_norm = 1 })
    refused("MultiHeadAttention: there is no option 'epsilon'; the options are eps", { qk_norm = { epsilon = 1 } })
    refused("MultiHeadAttention: qk_norm's eps is -1; it must be at least 0, and finite", { qk_norm = { eps = -1 } })
    refused("MultiHeadAttention: qk_norm is a list; it must be a boolean or {eps =}", { qk_norm = { 1 } })
  end)

  it("a split into heads that cannot compute the same", function()
    for more, reason in pairs {
      [{ window = { left = 3 } }] = "has a window",
      [{ softcap = 3 }] = "has a softcap",
      [{ alibi = true }] = "has alibi",
      [{ sinks = true }] = "has sinks",
      [{ qk_norm = true }] = "has qk_norm",
      [{ rope = {} }] = "has rope",
      [{ vdim = 3 }] = "makes keys or values from other tokens",
    } do
      local m = module(more)
      raises(("split: the module %s; it must be causal, with scale 1/√head_dim and no other option")
        :format(reason), function() m:split() end)
    end
  end)
end)

describe("rope in a module", function()
  it("rejects settings that do not fit", function()
    local c = config { rope = { bse = 1 } }
    raises("MultiHeadAttention: there is no option 'bse'; the options are base, style, dims, scaling",
      function() nn.MultiHeadAttention(c) end)
    assert.has_error(function() module { rope = { dims = 3 } } end)
    assert.has_error(function() module { head_dim = 3, rope = {} } end)
    assert.has_error(function() module { rope = { base = -1 } } end)
    assert.has_error(function() module { rope = { scaling = { type = "what" } } } end)
    assert.has_error(function() module { rope = "half" } end)
  end)

  it("rotates like heed.rope", function()
    local m = module { rope = { base = 50 }, causal = false }
    local x = heed.randn(2, 5, 6)
    local _, info = m(x, { need_weights = true })
    local _, plain = (function()
      local other = module { causal = false }
      other:load_state_dict(m:state_dict())
      return other(x, { need_weights = true })
    end)()
    assert.is_true((heed.rope(plain.keys, nil, { base = 50 }) - info.keys):abs():max():item() <= 1e-6)
    assert.is_true((heed.rope(plain.queries, nil, { base = 50 }) - info.queries):abs():max():item() <= 1e-6)
    assert.equal(plain.values:to_string(), info.values:to_string())
  end)
end)
