-- The options of scaled_dot_product_attention: combinations, intermediate results, and rejected arguments.
-- (All sizes: tests/c/test_attention_options.c. ONNX's tests: onnx_attention_spec.lua.)
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local attention = heed.scaled_dot_product_attention
local huge, int64 = math.huge, tensors.int64

local function assert_close(wanted, got, tolerance) tensors.close(wanted, got, tolerance or 3e-6) end

-- A naive reference in plain Lua: out, logits, capped, biased, weights as nested tables [b][h][i][j].
local function twin(q, k, v, o)
  local b, hq, l, d = table.unpack(q.shape, 1, 4)
  local hkv, s, dv = k.shape[2], k.shape[3], v.shape[4]
  local result = { out = {}, logits = {}, capped_logits = {}, biased_logits = {}, weights = {} }
  local Q, K, V = q:tolist(), k:float():tolist(), v:float():tolist()
  local mask = o.attn_mask and o.attn_mask:expand(b, hq, l, -1):tolist()
  for item = 1, b do
    for name in pairs(result) do result[name][item] = {} end
    local length = o.kv_lengths and o.kv_lengths[item] or s
    local offset = o.past or o.kv_lengths and length - l or 0
    for h = 1, hq do
      for name in pairs(result) do result[name][item][h] = {} end
      local keys, values = K[item][math.ceil(h * hkv / hq)], V[item][math.ceil(h * hkv / hq)]
      local sink = o.sinks and o.sinks[h]
      for i = 1, l do
        local logits, capped, biased, weights, out = {}, {}, {}, {}, {}
        local most, any = sink or -huge, false
        for j = 1, s do
          local x = 0
          for c = 1, d do x = x + Q[item][h][i][c] * keys[j][c] end
          x = x * (o.scale or 1 / math.sqrt(d))
          logits[j] = x
          if o.softcap then
            local e = math.exp(2 * x / o.softcap)
            x = o.softcap * (e - 1) / (e + 1)
          end
          capped[j] = x
          local position = i + offset
          local window = o.window or {}
          local seen = j <= length and not (o.is_causal and j > position) and
            j >= position - (window.left or huge) and j <= position + (window.right or huge)
          if mask then
            local m = mask[item][h][i][j]
            if m == nil or m == false then seen = false elseif m ~= true then x = x + m end
          end
          if o.alibi_slopes then x = x - o.alibi_slopes[h] * math.abs(position - j) end
          if not seen then x = -huge end
          biased[j] = x
          any = any or x > -huge
          most = math.max(most, x)
        end
        local sum = sink and math.exp(sink - most) or 0
        for j = 1, s do
          weights[j] = any and math.exp(biased[j] - most) or 0
          sum = sum + weights[j]
        end
        for c = 1, dv do out[c] = 0 end
        for j = 1, s do
          weights[j] = any and weights[j] / sum or 0
          for c = 1, dv do out[c] = out[c] + weights[j] * values[j][c] end
        end
        local row = { out = out, logits = logits, capped_logits = capped, biased_logits = biased, weights = weights }
        for name, x in pairs(row) do result[name][item][h][i] = x end
      end
    end
  end
  for name, x in pairs(result) do result[name] = heed.tensor(x) end
  return result
end

describe("attention with options", function()
  local choices = {
    attn_mask = function(b, hq, l, s)
      local fewer = s == 1 and 1 or heed.randint(2, s, { 1 })[1] -- a size of 1 would broadcast to all keys
      if heed.rand(1)[1] < 0.5 then return heed.rand(b, 1, l, fewer):gt(0.3) end
      return heed.randn(hq, l, fewer)
    end,
    is_causal = function() return true end,
    window = function()
      local left, right = heed.randint(0, 5, { 1 })[1], heed.randint(0, 5, { 1 })[1]
      return ({ { left = left }, { right = right }, { left = left, right = right }, {} })[heed.randint(1, 4, { 1 })[1]]
    end,
    softcap = function() return 0.5 + heed.rand(1)[1] end,
    scale = function() return heed.rand(1)[1] end,
    alibi_slopes = function(_, hq) return heed.rand(hq) end,
    sinks = function(_, hq) return heed.randn(hq) end,
    kv_lengths = function(b, _, _, s) return heed.randint(0, s, { b }) end,
  }
  local names = {}
  for name in pairs(choices) do names[#names + 1] = name end
  table.sort(names)

  it("supports every combination, with all taps", function()
    heed.manual_seed(3)
    for turn = 1, 150 do
      local b, hkv, group = heed.randint(1, 2, { 1 })[1], heed.randint(1, 2, { 1 })[1], heed.randint(1, 3, { 1 })[1]
      local hq, l, s = hkv * group, heed.randint(1, 9, { 1 })[1], turn % 5 == 0 and 40 or heed.randint(1, 12, { 1 })[1]
      local q, k, v = heed.randn(b, hq, l, 5), heed.randn(b, hkv, s, 5), heed.randn(b, hkv, s, 3)
      local options = {}
      for _, name in ipairs(names) do
        if heed.rand(1)[1] < 0.4 then options[name] = choices[name](b, hq, l, s) end
      end
      if turn % 4 == 0 then k = k:to "bfloat16" end
      if turn % 7 == 0 then v = v:to "float16" end
      local wanted = twin(q, k, v, options)
      local y = attention(q, k, v, options)
      options.need_weights = true
      local again, taps = attention(q, k, v, options)
      assert_close(wanted.out, y)
      assert.are.equal(y:to_string(), again:to_string())
      for _, name in ipairs { "logits", "capped_logits", "biased_logits", "weights" } do
        assert_close(wanted[name], taps[name])
      end
    end
  end)

  it("concatenates past keys and values before the new ones", function()
    heed.manual_seed(4)
    for _, past in ipairs { 0, 1, 7 } do
      local q, k, v = heed.randn(2, 4, 3, 5), heed.randn(2, 2, 3 + past, 5), heed.randn(2, 2, 3 + past, 6)
      local options = { is_causal = true, window = { left = 4 }, need_weights = true }
      options.past_key, options.past_value = k:narrow(3, 1, past), v:narrow(3, 1, past)
      local y, taps = attention(q, k:narrow(3, past + 1, 3), v:narrow(3, past + 1, 3), options)
      assert_close(twin(q, k, v, { is_causal = true, window = { left = 4 }, past = past }).out, y)
      assert.are.equal(k:to_string(), taps.present_key:to_string())
      assert.are.equal(v:to_string(), taps.present_value:to_string())
    end
  end)

  it("returns present keys and values: views, or with past ones new tensors", function()
    local k = heed.zeros(2, 3)
    local _, taps = attention(k, k, k, { need_weights = true })
    taps.present_key:fill_(1)
    assert.are.equal(6, k:sum():item())
    local _, joined = attention(k, k, k, { past_key = k, past_value = k, need_weights = true })
    joined.present_key:fill_(2)
    assert.are.equal(6, k:sum():item())
    assert.are.equal("heed.Size([2, 2])", tostring(taps.weights.shape))
  end)

  it("gives zeros for a query that sees no key, with a sink too", function()
    local q, k = heed.randn(1, 2, 3, 4), heed.randn(1, 2, 5, 4)
    for _, sinks in ipairs { heed.tensor { 0, 5 }, heed.tensor { huge, 0 / 0 } } do
      local y, taps = attention(q, k, k, { sinks = sinks, kv_lengths = int64 { 0 }, need_weights = true })
      assert.are.equal(0, y:abs():sum():item())
      assert.are.equal(0, taps.weights:abs():sum():item())
      assert.is_true(taps.biased_logits:eq(-huge):all():item())
    end
  end)

  it("ignores the contents of keys and values beyond lengths and windows", function()
    heed.manual_seed(5)
    local q, k, v = heed.randn(2, 2, 4, 8), heed.randn(2, 2, 50, 8), heed.randn(2, 2, 50, 8)
    local options = { kv_lengths = int64 { 40, 10 }, window = { left = 6 } }
    local clean = attention(q, k, v, options)
    for item, length in ipairs { 40, 10 } do
      for _, x in ipairs { k, v } do
        x[{ item, {}, { length + 1, 50 } }] = 0 / 0
        if length > 10 then x[{ item, {}, { 1, length - 10 } }] = huge end
      end
    end
    assert.are.equal(clean:to_string(), attention(q, k, v, options):to_string())
  end)

  it("accepts windows of any size", function()
    local q = heed.randn(3, 4)
    local plain = attention(q, q, q):to_string()
    for _, size in ipairs { 3, 2 ^ 40, math.maxinteger } do
      assert.are.equal(plain, attention(q, q, q, { window = { left = size, right = size } }):to_string())
    end
    assert_close(q, attention(q, q, q, { window = { left = 0, right = 0 } }))
  end)

  it("accepts any softcap above 0", function()
    local q = heed.randn(3, 4)
    assert_close(attention(q, q, q), attention(q, q, q, { softcap = 1e300 }))
    assert_close(attention(q, q, q, { scale = 0 }), attention(q, q, q, { softcap = 1e-300 }))
  end)

  it("gives the same for keys and values in bfloat16 and float16 as for their float32 values", function()
    heed.manual_seed(6)
    for _, size in ipairs { { 2, 5 }, { 1, 300 }, { 40, 90 } } do
      local q, k = heed.randn(2, 4, size[1], 20), heed.randn(2, 2, size[2], 20)
      for _, dtype in ipairs { "bfloat16", "float16" } do
        local small = k:to(dtype)
        assert_close(attention(q, small:float(), small:float()), attention(q, small, small))
      end
    end
  end)

  it("draws the same dropout mask as without options", function()
    local q = heed.randn(2, 6, 4)
    heed.manual_seed(7)
    local _, taps = attention(q, q, q, { softcap = 2, need_weights = true })
    local y = attention(q, q, q, { softcap = 2, dropout_p = 0.5 })
    heed.manual_seed(7)
    assert_close(heed.nn.Dropout(0.5)(taps.weights):matmul(q), y)
  end)
end)

describe("messages about attention", function()
  local q, k = heed.zeros(2, 4, 5, 8), heed.zeros(2, 2, 6, 8)

  local function refuses(message, options)
    raises("scaled_dot_product_attention: " .. message, function() return attention(q, k, k, options) end)
  end

  it("report wrong windows", function()
    refuses("the window's left is -1; it must be at least 0", { window = { left = -1 } })
    refuses("the window's right is -3; it must be at least 0", { window = { left = 2, right = -3 } })
    refuses("window has the key 'lft'; its keys must be left and right", { window = { lft = 1 } })
    refuses("the window's left is the number 1.5; it must be an integer", { window = { left = 1.5 } })
    refuses("window is the number 3; it must be a table {left =, right =}", { window = 3 })
  end)

  it("report wrong lengths", function()
    refuses("kv_lengths of batch item 2 is 7; it must be from 0 to 6, the number of keys",
      { kv_lengths = int64 { 6, 7 } })
    refuses("kv_lengths of batch item 1 is -1; it must be from 0 to 6, the number of keys",
      { kv_lengths = int64 { -1, 7 } })
    refuses("kv_lengths is bool; it must be int64, or float32 with whole values",
      { kv_lengths = heed.ones(2, { dtype = "bool" }) })
    refuses("kv_lengths is [3] and must broadcast to [2]; its size 3 of dimension 1 must be 1 or 2",
      { kv_lengths = int64 { 1, 2, 3 } })
    refuses("kv_lengths and past_key are given; give only one of them, because lengths count the keys of k alone",
      { kv_lengths = int64 { 1, 2 }, past_key = k, past_value = k })
  end)

  it("report wrong past keys and values", function()
    refuses("past_key is given without past_value; give both or none", { past_key = k })
    refuses("past_value is given without past_key; give both or none", { past_value = k })
    refuses("past_key is [2, 4, 5, 8] and k is [2, 2, 6, 8]; all sizes but the second to last must be equal",
      { past_key = q, past_value = k })
    refuses("past_key is [2, 2, 6, 8] and past_value is [2, 2, 5, 8]; their second to last sizes must be equal",
      { past_key = k, past_value = k:narrow(3, 1, 5) })
    refuses("past_key is float16 and k is float32; they must be of one dtype",
      { past_key = k:to "float16", past_value = k })
  end)

  it("report wrong slopes, sinks and softcaps", function()
    refuses("alibi_slopes is [2]; it must be [4], a number for each head of q", { alibi_slopes = heed.ones(2) })
    refuses("sinks is [4, 1]; it must be [4], a number for each head of q", { sinks = heed.ones(4, 1) })
    refuses("sinks is bfloat16; it must be float32: convert with sinks:float()", { sinks = heed.ones(4):to "bfloat16" })
    refuses("softcap is -1; it must be above 0, or 0 for none", { softcap = -1 })
    refuses("softcap is inf; it must be above 0, or 0 for none", { softcap = huge })
  end)

  it("report wrong dtypes", function()
    assert.has_error(function() return attention(q, k:to "int8", k) end)
    assert.has_error(function() return attention(q:to "bfloat16", k, k) end)
    refuses("attn_mask is bfloat16; it must be bool (true is visible) or float32 (added)",
      { attn_mask = heed.zeros(5, 6):to "bfloat16" })
  end)
end)
