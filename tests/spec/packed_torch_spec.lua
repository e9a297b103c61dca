-- lengths in nn.MultiheadAttention and the encoders: packed sequences, each against a call of its own.
local heed = require "heed"
local raises = require "tests.raises"
local sequences = require "tests.sequences"
local tensors = require "tests.tensors"

local nn = heed.nn
local close, merged = tensors.close, tensors.merged
local sum, each = sequences.sum, sequences.each

describe("lengths in PyTorch's modules", function()
  local lengths, keys = { 7, 0, 15, 1, 9 }, { 7, 2, 11, 3, 9 }
  local x
  before_each(function()
    heed.manual_seed(6)
    x = heed.randn(sum(lengths), 16)
  end)
  after_each(function() heed.set_grad_enabled(false) end)

  local ENCODERS = {
    TransformerEncoderLayer = function() return nn.TransformerEncoderLayer(16, 4, 24) end,
    ["TransformerEncoderLayer with norm_first"] = function()
      return nn.TransformerEncoderLayer { d_model = 16, nhead = 2, dim_feedforward = 24, norm_first = true }
    end,
    TransformerEncoder = function() return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24), 2) end,
  }
  for name, make in pairs(ENCODERS) do
    it("give each sequence its own result and gradients: " .. name, function()
      local m = make():eval()
      heed.set_grad_enabled(true)
      x:requires_grad_()
      for _, causal in ipairs { false, true } do
        local y, parts = m(x, { lengths = lengths, is_causal = causal }), {}
        each(lengths, lengths, function(i, first)
          parts[#parts + 1] = m(x:narrow(1, first, lengths[i]), { is_causal = causal })
        end)
        local alone, dy = heed.cat(parts, 1), heed.randn(y.shape)
        close(alone:detach(), y:detach(), 3e-6)
        close(heed.autograd.grad((alone * dy):sum(), x), heed.autograd.grad((y * dy):sum(), x), 3e-5)
      end
    end)
  end

  it("take other keys, masks and mask values, and dropout: MultiheadAttention", function()
    local m = nn.MultiheadAttention(16, 4, 0.5)
    local key = heed.randn(sum(keys), 16)
    local function matches(options, own)
      local generator = heed.default_generator:get_state()
      local y, weights = m(x, key, key, merged({ lengths = lengths, key_lengths = keys }, options))
      heed.default_generator:set_state(generator)
      assert.is_nil(weights)
      each(lengths, keys, function(i, first, first_key)
        local alone = m(x:narrow(1, first, lengths[i]), key:narrow(1, first_key, keys[i]),
          key:narrow(1, first_key, keys[i]), merged({ need_weights = false }, own(i, first)))
        close(alone, y:narrow(1, first, lengths[i]), 3e-6)
      end)
    end
    local function nothing() return {} end
    matches({}, nothing)
    m:eval()
    matches({}, nothing)
    local bool, float = heed.rand(sum(lengths), 11):gt(0.7), heed.randn(sum(lengths), 11)
    for _, mask in ipairs { bool, float } do
      matches({ attn_mask = mask }, function(i, first)
        return { attn_mask = mask:narrow(1, first, lengths[i]):narrow(2, 1, keys[i]) }
      end)
    end
    key, keys = heed.randn(sum(lengths), 16), lengths
    local window = { attn_mask = heed.mask.window(2, 1) }
    matches(window, function() return window end)
  end)

  it("refuse what packed sequences do not have", function()
    local m = nn.MultiheadAttention(16, 4)
    local few = x:narrow(1, 1, 5)
    local function refuses(message, options, input)
      input = input or few
      raises("MultiheadAttention: " .. message, function() m(input, input, input, options) end)
    end
    refuses("lengths add up to 4; they must add up to 5, the tokens of query", { lengths = { 1, 3 } })
    refuses("key_lengths add up to 6; they must add up to 5, the tokens of key",
      { lengths = { 5 }, key_lengths = { 6 } })
    refuses("key_lengths are given without lengths; give both", { key_lengths = { 5 } })
    refuses("element 2 of lengths is -1; it must be at least 0", { lengths = { 6, -1 } })
    refuses("lengths[1] is the number 2.5; it must be an integer", { lengths = { 2.5, 2.5 } })
    refuses("lengths and need_weights are both given; packed sequences do not have it",
      { lengths = { 5 }, need_weights = true })
    refuses("lengths and key_padding_mask are both given; packed sequences do not have it",
      { lengths = { 5 }, key_padding_mask = heed.zeros(5, { dtype = "bool" }) })
    refuses("lengths are given and query has a batch; it must be [total, 16]", { lengths = { 5 } }, few:unsqueeze(2))
    m = nn.MultiheadAttention(16, 4, { add_zero_attn = true })
    refuses("lengths are given; the module must have neither add_bias_kv nor add_zero_attn", { lengths = { 5 } })
    m = nn.MultiheadAttention(16, 4)
    m:add_hook("hook_pattern", function() end)
    refuses("lengths are given and hooks take the scores or weights; call the module for each sequence",
      { lengths = { 5 } })
  end)
end)
