-- ONNX's node tests of the operator Attention, opsets 23 to 25: one test for each case of
-- tests/golden/onnx_attention.lua, which scripts/dev/onnx_attention_tests.py makes.
local heed = require "heed"
local tensors = require "tests.tensors"

local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local value_of = {}
for i = 1, 64 do value_of[alphabet:sub(i, i)] = i - 1 end

-- The bytes of a base64 text.
local function decode(text)
  local bytes = text:gsub("(.)(.)(.)(.)", function(a, b, c, d)
    local word = ((value_of[a] * 64 + value_of[b]) * 64 + (value_of[c] or 0)) * 64 + (value_of[d] or 0)
    local kept = d ~= "=" and 3 or c ~= "=" and 2 or 1
    return string.char(math.floor(word / 65536), math.floor(word / 256) % 256, word % 256):sub(1, kept)
  end)
  return bytes
end

local function build(x) return heed.from_string(decode(x.data), x.dtype, x.shape) end

--- Equal within the relative tolerance of a case; small numbers within it absolutely.
local function close(got, wanted, tolerance) tensors.close(wanted, got, tolerance / 2, tolerance / 2) end

describe("ONNX's Attention", function()
  for _, case in ipairs(dofile(os.getenv "HEED_ONNX_CASES" or "tests/golden/onnx_attention.lua")) do
    it(("%s of opset %d"):format(case.name:gsub("^test_attention_", ""), case.opset), function()
      local q, k, v, options = build(case.q), build(case.k), build(case.v), {}
      for name, value in pairs(case.options) do
        options[name] = type(value) == "table" and value.dtype and build(value) or value
      end
      local y = heed.scaled_dot_product_attention(q, k, v, options)
      options.need_weights = true
      local again, taps = heed.scaled_dot_product_attention(q, k, v, options)
      close(y, build(case.expect), case.tolerance)
      assert.are.equal(y:to_string(), again:to_string())
      for name, wanted in pairs(case.taps or {}) do close(taps[name], build(wanted), case.tolerance) end
      local past = options.past_key
      assert.are.equal((past and heed.cat({ past, k }, -2) or k):to_string(), taps.present_key:to_string())
    end)
  end
end)
