-- Attention modules with parts in Lua, or with listeners, while gradients are recorded: the results and everything that
-- need_weights gives are those of the unrecorded forward pass, the gradients those of a plain module.
local heed = require "heed"
local raises = require "tests.raises"
local nn = heed.nn

local Same = nn.Module.class "Same"
function Same:init(inner) self.inner = inner end
function Same:forward(t) return self.inner(t) end

-- f(…) while gradients are recorded.
local function recorded(f, ...)
  local before = heed.set_grad_enabled(true)
  local results = { pcall(f, ...) }
  heed.set_grad_enabled(before)
  if not results[1] then error(results[2], 0) end
  return results[2], results[3]
end

local function mha(options)
  local all = { d_in = 8, d_out = 8, context_length = 16, dropout = 0, num_heads = 4 }
  for name, value in pairs(options) do all[name] = value end
  return nn.MultiHeadAttention(all)
end

local ALL = { need_weights = true, need_lse = true }

local function with(options)
  return function()
    local given = {}
    for name, value in pairs(ALL) do given[name] = value end
    for name, value in pairs(options) do given[name] = value end
    return given
  end
end

local function with_all() return ALL end
local function bools(values) return heed.tensor(values):bool() end
local drawn = heed.rand(5, 5, { generator = heed.Generator(2) })
local keys = heed.randn(2, 7, 8, { generator = heed.Generator(3) })

-- {name, module, options, input or nil}
local CASES = {
  { "self-attention", function() return nn.SelfAttention(8, 4) end, with_all },
  { "causal attention", function() return nn.CausalAttention(8, 4, 16, 0) end, with_all },
  { "causal attention without a batch", function() return nn.CausalAttention(8, 4, 16, 0) end, with_all,
    heed.randn(5, 8) },
  { "causal attention with a mask", function() return nn.CausalAttention(8, 4, 16, 0) end,
    with { attn_mask = heed.stack { drawn:gt(0.3), drawn:gt(0.6) } } },
  { "several heads", function() return mha {} end, with_all },
  { "several heads without a batch", function() return mha {} end, with_all, heed.randn(5, 8) },
  { "groups of heads", function() return mha { num_kv_heads = 2 } end, with_all },
  { "sinks and padding", function() return mha { sinks = true } end,
    with { key_padding_mask = bools { { 1, 1, 1, 1, 1 }, { 0, 0, 1, 0, 0 } } } },
  { "a soft cap, a window and ALiBi", function() return mha { softcap = 2, window = { left = 1 }, alibi = true } end,
    with_all },
  { "rotary embeddings and norms", function() return mha { rope = {}, qk_norm = true } end, with_all },
  { "other keys", function() return mha { causal = false } end, with { key = keys } },
  { "other keys with lengths", function() return mha {} end, with { key = keys, kv_lengths = { 6, 7 } } },
  { "lengths of 0", function() return mha {} end, with { kv_lengths = { 0, 5 } } },
  { "a bool mask", function() return mha { causal = false } end, with { attn_mask = drawn:gt(0.4) } },
  { "a bool mask for some keys", function() return mha { causal = false } end,
    with { attn_mask = drawn[{ {}, { 1, 3 } }]:gt(0.4) } },
  { "a float mask for some keys", function() return mha { causal = false } end,
    with { attn_mask = drawn[{ {}, { 1, 3 } }] } },
  { "a float mask with -inf", function() return mha { causal = false } end,
    with { attn_mask = drawn:masked_fill(drawn:gt(0.6), -math.huge) } },
  { "one mask for all keys", function() return mha { causal = false } end,
    with { attn_mask = bools { { 1 }, { 0 }, { 1 }, { 1 }, { 1 } } } },
  { "padding with nan", function() return mha { num_kv_heads = 2 } end,
    with { key_padding_mask = bools { { 0, 0, 0, 0, 1 }, { 0, 0, 0, 0, 1 } } },
    heed.cat({ heed.randn(2, 4, 8), heed.full({ 2, 1, 8 }, 0 / 0) }, 2) },
  { "no tokens", function() return mha {} end, with_all, heed.zeros(2, 0, 8) },
  { "chosen results", function() return mha {} end,
    function() return { need_weights = { "weights", "scores", heads = { -1, 2 }, queries = { -2, -1 } } } end },
  { "chosen heads", function() return mha {} end, function() return { need_weights = { heads = { 2 } } } end },
  { "the logarithms of sums alone", function() return mha {} end, function() return { need_lse = true } end },
  { "the logarithms of sums by name", function() return mha {} end,
    function() return { need_weights = { "lse" } } end },
}

-- Both tensors without nan and infinities, where these are in the same elements.
local function finite(a, b)
  assert.are.equal(tostring(b.shape), tostring(a.shape))
  return a:detach():nan_to_num(7, 8, 9), b:detach():nan_to_num(7, 8, 9)
end

local function close(expected, got, name)
  expected, got = finite(expected, got)
  assert.is_true(expected:numel() == 0 or expected:allclose(got, { rtol = 1e-5, atol = 1e-5 }), name)
end

local function names_in(info)
  local names = {}
  for name in pairs(info) do names[#names + 1] = name end
  table.sort(names)
  return table.concat(names, " ")
end

local VARIANTS = {
  ["a part in Lua"] = function(m) m.W_query = Same(m.W_query) end,
  ["a watched part"] = function(m) m.W_value:register_forward_hook(function() end) end,
  ["changed weights"] = function(m)
    if m:class_name() == "MultiHeadAttention" then m:on_weights(function(weights) return weights * 1 end) end
  end,
}

describe("a recorded attention module", function()
  for variant, change in pairs(VARIANTS) do
    for _, case in ipairs(CASES) do
      it(("with %s gives what it gives unrecorded: %s"):format(variant, case[1]), function()
        local m, x = case[2](), case[4] or heed.randn(2, 5, 8)
        local plain = m:clone()
        change(m)
        local expected, all = m(x, case[3]())
        local got, some = recorded(m, x, case[3]())
        close(expected, got)
        assert.are.equal(names_in(all), names_in(some))
        for name, tensor in pairs(all) do close(tensor, some[name], name) end
        if x:isnan():any():item() then return end
        recorded(function()
          got:pow(2):sum():backward()
          plain(x, case[3]()):pow(2):sum():backward()
        end)
        local list = m:parameters()
        for i, p in ipairs(plain:parameters()) do
          if list[i].grad or p.grad then close(p.grad, list[i].grad) end
        end
      end)
    end
  end

  it("with a hook of its own alone runs as without one: it takes lengths, and has the same bits", function()
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 16, dropout = 0, num_heads = 2 }
    local plain, x = m:clone(), heed.randn(7, 8)
    m:register_forward_hook(function(_, _, y) return y * 2 end)
    recorded(function()
      local y, wanted = m(x, { lengths = { 3, 4 } }), plain(x, { lengths = { 3, 4 } }) * 2
      assert.is_true(wanted:equal(y))
      y:sum():backward()
      wanted:sum():backward()
    end)
    assert.is_true(plain.W_key.weight.grad:equal(m.W_key.weight.grad))
  end)

  it("with a part in Lua cannot have its softmax along the queries", function()
    local m = nn.CausalAttention { d_in = 8, d_out = 4, context_length = 16, dropout = 0, softmax_dim = 2 }
    m.W_query:register_forward_hook(function() end)
    raises("CausalAttention: softmax_dim is 2; with hooks or parts in Lua it must be that of the keys, -1 or 3",
      function()
        heed.enable_grad(function() m(heed.randn(2, 5, 8)) end)
      end)
  end)
end)
