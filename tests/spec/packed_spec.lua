-- Packed sequences: varlen_attention, pack and unpack, lengths in modules and models. (All options against a twin in
-- double precision, threads and failing allocations: tests/c/test_varlen.c.)
local heed = require "heed"
local raises = require "tests.raises"
local sequences = require "tests.sequences"
local tensors = require "tests.tensors"
local decoders = require "tests.decoder_cases"
local Bert = require "heed.models.bert"

local nn = heed.nn
local close, merged = tensors.close, tensors.merged
local sum, each = sequences.sum, sequences.each

local LENGTHS, KEY_LENGTHS = { 3, 0, 17, 1, 60 }, { 4, 2, 17, 9, 70 }
local HEADS, KEY_HEADS, SIZE, VALUES = 4, 2, 8, 6

local function operands(lengths, keys)
  return heed.randn(sum(lengths), HEADS, SIZE), heed.randn(sum(keys), KEY_HEADS, SIZE),
    heed.randn(sum(keys), KEY_HEADS, VALUES)
end

--- The same by one call for each sequence, joined.
local function one_by_one(q, k, v, options, lengths, keys)
  local parts = {}
  each(lengths, keys, function(i, query, key)
    local own = merged(options)
    if options.attn_mask then
      local mask = options.attn_mask
      if mask.shape[mask.ndim - 1] > 1 then mask = mask:narrow(-2, query, lengths[i]) end
      own.attn_mask = mask:narrow(-1, 1, keys[i])
    end
    if options.is_causal or options.window then own.kv_lengths = tensors.int64 { keys[i] } end
    parts[#parts + 1] = heed.scaled_dot_product_attention(q:narrow(1, query, lengths[i]):transpose(1, 2),
      k:narrow(1, key, keys[i]):transpose(1, 2), v:narrow(1, key, keys[i]):transpose(1, 2), own):transpose(1, 2)
  end)
  return heed.cat(parts, 1)
end

local OPTIONS = {
  ["without options"] = function() return {} end,
  ["causal, aligned at the last key"] = function() return { is_causal = true } end,
  ["with a window"] = function() return { window = { left = 3, right = 2 } } end,
  ["with scale and softcap"] = function() return { scale = 0.4, softcap = 2 } end,
  ["with ALiBi and sinks"] = function()
    return { alibi_slopes = heed.rand(HEADS), sinks = heed.randn(HEADS), is_causal = true }
  end,
  ["with a mask of numbers"] = function(total, s) return { attn_mask = heed.randn(HEADS, total, s) } end,
  ["with a mask that all queries share"] = function(_, s) return { attn_mask = heed.randn(HEADS, 1, s) } end,
  ["with dropout"] = function() return { dropout_p = 0.3 } end,
}

describe("attention of packed sequences", function()
  before_each(function() heed.manual_seed(7) end)
  after_each(function() heed.set_grad_enabled(false) end)

  -- Few queries on many keys are computed another way.
  local few, many = { 1, 0, 3, 2 }, { 300, 5, 70, 2 }
  for name, make in pairs(OPTIONS) do
    local function check(lengths, key_lengths, longest)
      local q, k, v = operands(lengths, key_lengths)
      local options = make(sum(lengths), longest)
      local inputs = { q, k, v, options.attn_mask, options.alibi_slopes or options.attn_mask and nil, options.sinks }
      local wanted = {}
      for i = 1, 6 do
        if inputs[i] then wanted[#wanted + 1] = inputs[i]:requires_grad_() end
      end
      heed.set_grad_enabled(true)
      if options.dropout_p then options.generator = heed.Generator(3) end
      local packed = heed.varlen_attention(q, k, v, merged(options, { lengths = lengths, key_lengths = key_lengths }))
      if options.dropout_p then options.generator = heed.Generator(3) end
      local alone = one_by_one(q, k, v, options, lengths, key_lengths)
      close(alone, packed, 2e-6)
      local dy = heed.randn(packed.shape)
      local expected = heed.autograd.grad((alone * dy):sum(), wanted)
      for i, gradient in ipairs(heed.autograd.grad((packed * dy):sum(), wanted)) do
        close(expected[i], gradient, 2e-5)
      end
    end

    it("gives what each sequence gives alone, and so do its gradients, " .. name, function()
      check(LENGTHS, KEY_LENGTHS, 70)
      check(few, many, 300)
    end)
  end

  it("uses lengths for the keys as well, and takes tensors and whole float32 numbers", function()
    local q, k, v = operands(LENGTHS, LENGTHS)
    local y = heed.varlen_attention(q, k, v, { lengths = LENGTHS })
    close(one_by_one(q, k, v, {}, LENGTHS, LENGTHS), y, 2e-6)
    assert.is_true(heed.equal(y, heed.varlen_attention(q, k, v, tensors.int64(LENGTHS), tensors.int64(LENGTHS))))
    assert.is_true(heed.equal(y, q:varlen_attention(k, v, { lengths = heed.tensor(LENGTHS) })))
  end)

  it("gives the taps with rows of the largest key length, and keeps the bits of the output", function()
    local q, k, v = operands(LENGTHS, KEY_LENGTHS)
    local options = { lengths = LENGTHS, key_lengths = KEY_LENGTHS, is_causal = true }
    local y, taps = heed.varlen_attention(q, k, v, merged(options, { need_weights = true, need_lse = true }))
    assert.is_true(heed.equal(y, heed.varlen_attention(q, k, v, options)))
    assert.equal("heed.Size([4, 81, 70])", tostring(taps.weights.shape))
    assert.equal("heed.Size([4, 81])", tostring(taps.lse.shape))
    each(LENGTHS, KEY_LENGTHS, function(i, query)
      local behind = 70 - KEY_LENGTHS[i]
      local rows = taps.weights:narrow(2, query, LENGTHS[i])
      if behind > 0 then
        assert.equal(0, rows:narrow(3, KEY_LENGTHS[i] + 1, behind):sum():item())
        assert.equal(-math.huge, taps.biased_logits[1][query][70])
      end
      local biased, lse = taps.biased_logits:narrow(2, query, LENGTHS[i]), taps.lse:narrow(2, query, LENGTHS[i])
      close(heed.logsumexp(biased, -1), lse, 2e-6)
    end)
  end)

  it("gives the maps of some heads and queries", function()
    local q, k, v = operands(LENGTHS, KEY_LENGTHS)
    local options = { lengths = LENGTHS, key_lengths = KEY_LENGTHS }
    local _, all = heed.varlen_attention(q, k, v, merged(options, { need_weights = { "weights" } }))
    local _, some = heed.varlen_attention(q, k, v,
      merged(options, { need_weights = { "weights", heads = { 3, 1 }, queries = { 2, 21, 4, 81 } } }))
    local rows = all.weights:index_select(2, tensors.int64 { 2, 21, 4, 81 })
    close(rows:index_select(1, tensors.int64 { 3, 1 }), some.weights)
  end)

  it("takes no sequences at all", function()
    local q, k, v = operands({}, {})
    assert.equal("heed.Size([0, 4, 6])", tostring(heed.varlen_attention(q, k, v, { lengths = heed.zeros(0) }).shape))
    q = heed.randn(2, HEADS, SIZE)
    local y = heed.varlen_attention(q, k, v, { lengths = { 2 }, key_lengths = { 0 } })
    assert.equal(0, y:abs():max():item()) -- queries without keys
  end)

  it("refuses lengths that do not fit", function()
    local q, k, v = operands({ 5 }, { 5 })
    local function refuses(message, options)
      raises("varlen_attention: " .. message, function() heed.varlen_attention(q, k, v, options) end)
    end
    refuses("lengths is nil; it must be a tensor or a table of integers", {})
    refuses("lengths add up to 4 and q is [5, 4, 8]; they must add up to 5, its tokens", { lengths = { 1, 3 } })
    refuses("key_lengths add up to 6 and k is [5, 2, 8]; they must add up to 5, its tokens",
      { lengths = { 1, 4 }, key_lengths = { 1, 5 } })
    refuses("lengths is [2] and key_lengths is [3]; their sizes must be equal",
      { lengths = { 1, 4 }, key_lengths = { 1, 2, 2 } })
    refuses("element 2 of lengths is -1; it must be at least 0", { lengths = { 6, -1 } })
    refuses("lengths[1] is the number 2.5; it must be an integer", { lengths = { 2.5, 2.5 } })
    refuses("lengths is bool; it must be int64, or float32 with whole values",
      { lengths = heed.ones(5, { dtype = "bool" }) })
    refuses("lengths is [1, 1]; it must be [b], one for each sequence", { lengths = { { 5 } } })
    refuses("lengths and kv_lengths are given; give only one of them, because packed sequences have no padding and " ..
      "no past", { lengths = { 5 }, kv_lengths = { 5 } })
    refuses("attn_mask is [5, 4] and must broadcast to [4, 5, 3]; its size 4 of dimension 2 must be 1 or 3",
      { lengths = { 3, 2 }, attn_mask = heed.ones(5, 4) })
    raises("varlen_attention: q is [1, 5, 4, 8]; it must be [tokens, heads, size]",
      function() heed.varlen_attention(q:unsqueeze(1), k, v, { lengths = { 5 } }) end)
    raises("varlen_attention: q is [5, 3, 8] and k is [5, 2, 8]; the heads of q (second size) must be a multiple of " ..
      "the heads of k", function() heed.varlen_attention(q:narrow(2, 1, 3), k, v, { lengths = { 5 } }) end)
  end)

  it("stops at a limit of time, and leaves the generator as it was", function()
    local q = heed.randn(40000, 4, 64)
    local g = heed.Generator(1)
    local before = g:get_state()
    heed.limit { seconds = 0.01 }
    local ok, message = pcall(heed.varlen_attention, q, q, q,
      { lengths = { 20000, 20000 }, dropout_p = 0.5, generator = g })
    heed.limit { seconds = math.huge }
    assert.is_false(ok)
    assert.truthy(tostring(message):find("varlen_attention: ", 1, true))
    assert.equal(before, g:get_state())
  end)
end)

describe("pack and unpack", function()
  local t = { 5, 0, 2 }

  it("leave out padding and put it back as zeros", function()
    local x = heed.randn(3, 5, 2, 2)
    local rows = x:pack(t)
    assert.equal("heed.Size([7, 2, 2])", tostring(rows.shape))
    assert.is_true(heed.equal(heed.cat({ x[1], x[3]:narrow(1, 1, 2) }, 1), rows))
    local again = rows:unpack(t)
    assert.is_true(heed.equal(rows, again:pack(t)))
    assert.equal(0, again[2]:abs():sum():item() + again[3]:narrow(1, 3, 3):abs():sum():item())
    assert.equal("heed.Size([3, 8, 2, 2])", tostring(rows:unpack(t, 8).shape))
    assert.equal("heed.Size([3, 8, 2, 2])", tostring(rows:unpack { lengths = t, n = 8 }.shape))
  end)

  it("take every dtype, and views", function()
    for _, dtype in ipairs { "int64", "bool", "bfloat16", "float16", "float32" } do
      local x = heed.randint(0, 1, { 5, 3 }):to(dtype).T
      assert.is_true(heed.equal(x:pack(t):float(), x:pack(t):unpack(t):pack(t):float()))
      assert.equal(dtype, x:pack(t):unpack(t).dtype)
    end
  end)

  it("have gradients", function()
    heed.set_grad_enabled(true)
    local x = heed.randn(3, 5, 2):requires_grad_()
    local w = heed.randn(3, 6, 2)
    local y = x:pack(t):unpack(t, 6)
    assert.equal("UnpackBackward0", tostring(y.grad_fn):match "%w+")
    local gradient = heed.autograd.grad((y * w):sum(), x)
    heed.set_grad_enabled(false)
    close(w:narrow(2, 1, 5) * heed.ones(7, 2):unpack(t), gradient)
  end)

  it("refuse lengths that do not fit", function()
    local x = heed.randn(3, 5, 2)
    raises("pack: x is [3, 5, 2] and lengths is [2]; their first sizes must be equal", function() x:pack { 1, 2 } end)
    raises("pack: element 3 of lengths is 6; it must be at most 5", function() x:pack { 1, 2, 6 } end)
    raises("pack: lengths[3] is the number 1.5; it must be an integer", function() x:pack { 1, 2, 1.5 } end)
    raises("pack: x is [3]; it must be [b, n, ...]", function() heed.ones(3):pack { 1 } end)
    raises("unpack: lengths add up to 6 and x is [7, 2]; they must add up to 7, its tokens",
      function() x:pack(t):unpack { 5, 0, 1 } end)
    raises("unpack: element 1 of lengths is 5; it must be at most 3", function() x:pack(t):unpack(t, 3) end)
    raises("unpack: n is 0; it must be at least 1, or nil for the largest length",
      function() x:pack(t):unpack(t, 0) end)
    assert.equal("heed.Size([2, 0, 3])", tostring(heed.zeros(0, 3):unpack({ 0, 0 }, 0).shape))
  end)
end)

-- ---- Modules ------------------------------------------------------------------------------------

local MHA = { d_in = 12, d_out = 16, context_length = 200, dropout = 0, num_heads = 4 }
local MODULES = {
  SelfAttention = function() return nn.SelfAttention(12, 16) end,
  CausalAttention = function() return nn.CausalAttention(12, 16, 200, 0) end,
  MultiHeadAttentionWrapper = function() return nn.MultiHeadAttentionWrapper(12, 8, 200, 0, 3) end,
  MultiHeadAttention = function() return nn.MultiHeadAttention(MHA) end,
  ["MultiHeadAttention with rotary positions, norms, groups, a window and sinks"] = function()
    return nn.MultiHeadAttention(merged(MHA, {
      num_kv_heads = 2, rope = { base = 10000 }, qk_norm = true, window = { left = 9 }, sinks = true,
    }))
  end,
  ["MultiHeadAttention with ALiBi and softcap, without out_proj"] = function()
    return nn.MultiHeadAttention(merged(MHA, { alibi = true, causal = false, softcap = 5, out_proj = false }))
  end,
}

describe("lengths in modules", function()
  local lengths = { 7, 0, 150, 1, 30 }
  local x
  before_each(function()
    heed.manual_seed(5)
    x = heed.randn(sum(lengths), 12)
  end)
  after_each(function() heed.set_grad_enabled(false) end)

  for name, make in pairs(MODULES) do
    it("give each sequence its own result, recorded and not: " .. name, function()
      local m = make()
      local y, info = m(x, { lengths = lengths, need_weights = true })
      assert.is_true(heed.equal(y, m(x, { lengths = lengths })))
      each(lengths, lengths, function(i, first)
        local alone, own = m(x:narrow(1, first, lengths[i]), { need_weights = true })
        close(alone, y:narrow(1, first, lengths[i]), 2e-6)
        close(own.weights, info.weights:narrow(-2, first, lengths[i]):narrow(-1, 1, lengths[i]), 2e-6)
        close(own.scores, info.scores:narrow(-2, first, lengths[i]):narrow(-1, 1, lengths[i]), 1e-5)
      end)
      heed.set_grad_enabled(true)
      x:requires_grad_()
      local recorded = m(x, { lengths = lengths })
      assert.is_true(heed.equal(y, recorded:detach()))
      local parts = {}
      each(lengths, lengths, function(i, first) parts[#parts + 1] = m(x:narrow(1, first, lengths[i])) end)
      local dy = heed.randn(y.shape)
      close(heed.autograd.grad((heed.cat(parts, 1) * dy):sum(), x), heed.autograd.grad((recorded * dy):sum(), x), 2e-5)
    end)
  end

  it("give the same in slices, and through hooks", function()
    local m = nn.MultiHeadAttention(merged(MHA, { rope = { base = 10000 } }))
    local y = m(x, { lengths = lengths })
    local steps = m:steps(x, { ms = 0.05, lengths = lengths })
    local count = 0
    for _ in steps do count = count + 1 end
    assert.is_true(count >= 1)
    assert.is_true(heed.equal(y, steps.result))
    local seen
    m.W_query:register_forward_hook(function(_, _, out) seen = out.shape end)
    assert.is_true(heed.equal(y, m(x, { lengths = lengths })))
    assert.equal("heed.Size([188, 16])", tostring(seen))
  end)

  it("align cross attention at the last keys", function()
    local m = nn.MultiHeadAttention(merged(MHA, { kdim = 6, vdim = 6, rope = { base = 10000 } }))
    local key, queries = heed.randn(9, 6), x:narrow(1, 1, 7)
    local y = m(queries, { lengths = { 3, 4 }, key = key, key_lengths = { 7, 2 } })
    local alone = m(queries:narrow(1, 1, 3):unsqueeze(1),
      { key = key:narrow(1, 1, 7):unsqueeze(1), kv_lengths = { 7 } })
    close(alone[1], y:narrow(1, 1, 3), 2e-6)
  end)

  it("exclude padding and batches", function()
    local m = nn.MultiHeadAttention(merged(MHA, { context_length = 100 }))
    local few = x:narrow(1, 1, 7)
    local function refuses(message, input, options)
      raises("MultiHeadAttention: " .. message, function() m(input, options) end)
    end
    refuses("lengths add up to 6 and x is [7, 12]; they must add up to 7, its tokens", few, { lengths = { 3, 3 } })
    refuses("x is [1, 7, 12] and lengths are given; it must be [total, 12]", few:unsqueeze(1), { lengths = { 7 } })
    refuses("a sequence of x has 150 tokens; it must have at most 100, the context_length", x, { lengths = lengths })
    refuses("lengths and kv_lengths are given; give only one of them, because packed sequences have no padding", few,
      { lengths = { 7 }, kv_lengths = { 7 } })
    refuses("lengths and key are given without key_lengths; give both", few, { lengths = { 7 }, key = few })
    refuses("key_lengths are given without lengths; give both", few, { key_lengths = { 7 } })
    raises("Linear: lengths is given; only attention modules take it",
      function() nn.Linear(12, 2)(few, { lengths = { 7 } }) end)
    raises("CausalAttention: lengths are given and softmax_dim is 1; it must be that of the keys, -1 or 2", function()
      local c = nn.CausalAttention { d_in = 12, d_out = 4, context_length = 9, dropout = 0, softmax_dim = 1 }
      c(few, { lengths = { 7 } })
    end)
  end)

  it("are refused where one sequence is meant, and by hooks while gradients are recorded", function()
    local m = nn.MultiHeadAttention(MHA)
    for _, method in ipairs { "explain", "check", "verify" } do
      raises(method .. ": lengths are given; give the tokens of one sequence alone, as x:narrow(1, first, n)",
        function() m[method](m, x, { lengths = lengths }) end)
    end
    m.W_query:register_forward_hook(function() end)
    heed.set_grad_enabled(true)
    raises("MultiHeadAttention: lengths are given while gradients are recorded and modules or hooks in Lua take " ..
      "part; call it under no_grad, or for each sequence", function() m(x, { lengths = lengths }) end)
  end)

  it("refuse hooks that change scores or weights", function()
    local m = nn.MultiHeadAttention(MHA)
    raises("MultiHeadAttention: lengths are given and hooks change the scores or weights, which packed sequences do " ..
      "not allow; call the module for each sequence, or unpack x", function()
        m:run_with_hooks(x, { hook_pattern = function(weights) return weights * 2 end }, { lengths = lengths })
      end)
  end)
end)

-- ---- Models -------------------------------------------------------------------------------------

describe("texts of different lengths", function()
  local ids = { { 2, 5, 9, 4, 3, 8 }, { 7, 6, 1, 1, 1, 1 }, { 9, 3, 4, 2, 1, 1 } }
  local lengths, packed = { 6, 2, 4 }, { 2, 5, 9, 4, 3, 8, 7, 6, 9, 3, 4, 2 }

  for _, kind in ipairs { "gpt2", "llama" } do
    it("give a decoder's logits without padding: " .. kind, function()
      local m = decoders.load(kind)
      local y, direct = m(ids, { kv_lengths = lengths }), m(packed, { lengths = lengths })
      assert.is_true(heed.equal(direct, y:pack(lengths)))
      for i, n in ipairs(lengths) do
        close(m(heed.tensor(ids[i], { dtype = "int64" }):narrow(1, 1, n)), y[i]:narrow(1, 1, n), 2e-5)
      end
      local last = m(packed, { lengths = lengths, logits_to_keep = 2 })
      close(heed.cat({ y[1]:narrow(1, 5, 2), y[2]:narrow(1, 1, 2), y[3]:narrow(1, 3, 2) }, 1), last, 2e-5)
      local name = kind == "gpt2" and "GPT2" or "Llama"
      raises(name .. ": logits_to_keep is the number 3; it must be an integer from 1 to the length of the shortest " ..
        "text, 2", function() m(packed, { lengths = lengths, logits_to_keep = 3 }) end)
      raises(name .. ": lengths and kv_lengths are both given; packed texts have no padding",
        function() m(packed, { lengths = lengths, kv_lengths = lengths }) end)
    end)
  end

  it("give BERT's hidden states without padding", function()
    local m = assert(Bert.load "tests/golden/tiny_bert")
    local padded = m(ids, { kv_lengths = lengths, need_weights = true }) -- with padding, for the weights
    local y = m(ids, { kv_lengths = lengths })
    for i, n in ipairs(lengths) do close(padded[i]:narrow(1, 1, n), y[i]:narrow(1, 1, n), 1e-5) end
    assert.equal(0, y[2]:narrow(1, 3, 4):abs():max():item())
    local mask = heed.range(1, 6):le(tensors.int64(lengths):unsqueeze(2))
    assert.is_true(heed.equal(y, m(ids, { attention_mask = mask:long() })))
    assert.is_true(heed.equal(y:pack(lengths), m(packed, { lengths = lengths })))
    local _, info = m(packed, { lengths = lengths, need_weights = true })
    assert.equal("heed.Size([12, 6])", tostring(info.layers[1].weights[1].shape))
    raises("Bert: lengths add up to 11; they must add up to 12, the number of ids",
      function() m(packed, { lengths = { 6, 5 } }) end)
    raises("Bert: ids have the shape [3, 6] and lengths are given; they must be [total], one sequence after another",
      function() m(ids, { lengths = lengths }) end)
  end)

  it("keep their padding where listeners see it, or it is not at the end", function()
    local m = assert(Bert.load "tests/golden/tiny_bert")
    local seen
    local handle = m.layers[1]:register_forward_hook(function(_, _, y) seen = y.shape end)
    m(ids, { kv_lengths = lengths })
    assert.equal("heed.Size([3, 6, 24])", tostring(seen))
    handle:remove()
    local Adapted = nn.Module.class "Adapted"
    function Adapted:init(base) self.base = base end
    function Adapted:forward(x) return self.base(x) end
    local query = m.layers[2].attention.W_query
    m.layers[2].attention.W_query = Adapted(query)
    heed.set_grad_enabled(true)
    local recorded = m(ids, { kv_lengths = lengths })
    heed.set_grad_enabled(false)
    m.layers[2].attention.W_query = query
    close(m(ids, { kv_lengths = lengths }):pack(lengths), recorded:pack(lengths):detach(), 1e-5)
    local mask = heed.ones(3, 6)
    mask[2][1] = 0
    local y = m(ids, { attention_mask = mask })
    assert.is_true(y[2][1]:abs():max():item() > 0)
  end)
end)
