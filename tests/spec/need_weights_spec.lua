-- need_weights as a table, and need_lse. (All options against the scalar kernel: tests/c/test_taps.c.)
local heed = require "heed"
local fails = require "tests.raises"
local tensors = require "tests.tensors"

local nn, close = heed.nn, tensors.close
local attention = heed.scaled_dot_product_attention

local function names_in(info)
  local names = {}
  for name in pairs(info) do names[#names + 1] = name end
  table.sort(names)
  return table.concat(names, " ")
end

local function multi_head(more) return nn.MultiHeadAttention(tensors.merged({ d_in = 6, d_out = 8, num_heads = 4,
  context_length = 64, dropout = 0 }, more or {})) end

-- The rows of a map [b, h, n, s] for some heads and queries.
local function part(map, heads, queries)
  if heads then map = map:index_select(-3, heed.tensor(heads, { dtype = "int64" })) end
  if queries then map = map:index_select(-2, heed.tensor(queries, { dtype = "int64" })) end
  return map
end

-- The ways to choose, and the heads and queries of 9 that they mean.
local CHOICES = {
  { {}, nil, nil },
  { { heads = { 3 } }, { 3 }, nil },
  { { heads = { -1, 2 } }, { 4, 2 }, nil },
  { { queries = { -1, -1 } }, nil, { 9 } },
  { { queries = { 2, -6 } }, nil, { 2, 3, 4 } },
  { { queries = { 5 } }, nil, { 5 } },
  { { queries = { 9, -9, 4, 4 } }, nil, { 9, 1, 4, 4 } },
  { { heads = { 2, 1 }, queries = { 1, 2, 8 } }, { 2, 1 }, { 1, 2, 8 } },
}

describe("need_weights as a table", function()
  local x

  before_each(function()
    heed.manual_seed(11)
    x = heed.randn(2, 9, 6)
  end)

  it("returns the results that are named, and keeps the output's bits", function()
    local m = multi_head()
    local y, all = m(x, { need_weights = true })
    for _, names in ipairs { { "weights" }, { "scores" }, { "keys", "queries" }, { "values", "weights" } } do
      local wanted = {}
      for i, name in ipairs(names) do wanted[i] = name end
      local again, info = m(x, { need_weights = wanted })
      table.sort(names)
      assert.are.equal(table.concat(names, " "), names_in(info))
      assert.is_true(again:equal(y))
      for _, name in ipairs(names) do close(all[name], info[name], 1e-6) end
    end
  end)

  it("returns all of them without names", function()
    local _, info = multi_head()(x, { need_weights = { heads = { 1 } } })
    assert.are.equal("keys queries scores values weights", names_in(info))
    assert.are.same({ 2, 1, 9, 9 }, { table.unpack(info.weights.shape, 1, 4) })
    assert.are.same({ 2, 4, 9, 2 }, { table.unpack(info.queries.shape, 1, 4) })
  end)

  it("returns the heads and queries that are chosen, in their order", function()
    for _, module in ipairs { multi_head(), multi_head { causal = true, num_kv_heads = 2 },
      nn.MultiHeadAttentionWrapper(6, 2, 64, 0.0, 4) } do
      local y, all = module(x, { need_weights = true })
      for _, case in ipairs(CHOICES) do
        local again, info = module(x, { need_weights = tensors.merged(case[1], { "weights", "scores" }) })
        assert.is_true(again:equal(y))
        assert.are.equal("scores weights", names_in(info))
        close(part(all.weights, case[2], case[3]), info.weights, 1e-6)
        close(part(all.scores, case[2], case[3]), info.scores, 1e-5)
      end
    end
  end)

  it("works on modules of one head, and along the queries", function()
    for _, m in ipairs { nn.SelfAttention(6, 4), nn.CausalAttention(6, 4, 64, 0.0),
      nn.CausalAttention { d_in = 6, d_out = 4, context_length = 64, dropout = 0, softmax_dim = 2 } } do
      local y, all = m(x, { need_weights = true })
      local again, info = m(x, { need_weights = { "weights", heads = { 1 }, queries = { 3, 5 } } })
      assert.is_true(again:equal(y))
      assert.are.equal("weights", names_in(info))
      close(all.weights[{ {}, { 3, 5 } }], info.weights, 1e-6)
    end
  end)

  it("has the dropped weights that the output was computed from", function()
    local m = multi_head { dropout = 0.5 }
    local _, all = m(x, { need_weights = true, generator = heed.Generator(5) })
    local _, info = m(x, { need_weights = { "dropped_weights", heads = { 2 }, queries = { 3, 8 } },
      generator = heed.Generator(5) })
    assert.are.equal("dropped_weights", names_in(info))
    assert.is_true(part(all.dropped_weights, { 2 }, { 3, 4, 5, 6, 7, 8 }):equal(info.dropped_weights))
    local wrapper = nn.MultiHeadAttentionWrapper(6, 2, 64, 0.5, 4)
    _, all = wrapper(x, { need_weights = true, generator = heed.Generator(5) })
    _, info = wrapper(x, { need_weights = { "dropped_weights", heads = { 4 } }, generator = heed.Generator(5) })
    assert.are.equal("dropped_weights", names_in(info))
    close(part(all.dropped_weights, { 4 }), info.dropped_weights, 1e-6)
  end)

  it("reads the tokens of a cache", function()
    local m = multi_head { causal = true }
    local _, all = m(x, { need_weights = true })
    for _, dtype in ipairs { "float32", "bfloat16", "int8" } do
      local cache = m:new_cache { batch = 2, dtype = dtype }
      m(x[{ {}, { 1, 8 } }], { cache = cache })
      local copy = cache:clone()
      local y = m(x[{ {}, { 9, 9 } }], { cache = cache })
      local again, info = m(x[{ {}, { 9, 9 } }], { cache = copy, need_weights = { "weights", heads = { 4 } },
        need_lse = true })
      assert.is_true(again:equal(y))
      assert.are.equal("lse weights", names_in(info))
      close(all.weights[{ {}, { 4, 4 }, { 9, 9 } }], info.weights, dtype == "float32" and 1e-6 or 0.02)
    end
  end)

  it("works in slices", function()
    local m = multi_head()
    local y, all = m(x, { need_weights = true, need_lse = true })
    local steps = m:steps(x, { ms = 0, need_weights = { "weights", heads = { 2 }, queries = { -2, -1 } } })
    for _ in steps do collectgarbage() end
    assert.is_true(steps.result:equal(y))
    assert.are.equal("weights", names_in(steps.info))
    close(part(all.weights, { 2 }, { 8, 9 }), steps.info.weights, 1e-6)
    steps = m:steps(x, { ms = 0, need_lse = true })
    for _ in steps do end
    assert.are.equal("lse", names_in(steps.info))
    assert.is_true(steps.info.lse:equal(all.lse))
  end)

  it("works with parts of one's own", function()
    local Twice = nn.Module.class "Twice"
    function Twice:init(inner) self.inner = inner end
    function Twice:forward(t) return self.inner(t) * 2 end
    local m = multi_head()
    m.W_query = Twice(m.W_query)
    local y, all = m(x, { need_weights = true })
    for _, case in ipairs(CHOICES) do
      local again, info = m(x, { need_weights = tensors.merged(case[1], { "weights" }), need_lse = true })
      assert.is_true(again:equal(y))
      assert.are.equal("lse weights", names_in(info))
      close(part(all.weights, case[2], case[3]), info.weights, 1e-6)
    end
  end)

  it("works in the function", function()
    local q, k = heed.randn(2, 4, 9, 8), heed.randn(2, 2, 70, 8)
    for _, options in ipairs { {}, { is_causal = true }, { softcap = 2, past_key = k, past_value = k } } do
      local y, all = attention(q, k, k, tensors.merged(options, { need_weights = true }))
      for _, case in ipairs(CHOICES) do
        local wanted = tensors.merged(case[1], { "logits", "capped_logits", "biased_logits", "weights" })
        local again, info = attention(q, k, k, tensors.merged(options, { need_weights = wanted }))
        assert.is_true(again:equal(y))
        assert.is_nil(info.present_key)
        for _, name in ipairs(wanted) do close(part(all[name], case[2], case[3]), info[name], 1e-5) end
      end
    end
  end)

  it("refuses what it does not have", function()
    local m = multi_head()
    local function wrong(message, wanted)
      fails("MultiHeadAttention: " .. message, function() return m(x, { need_weights = wanted }) end)
    end
    wrong("need_weights contains a string ('weight'); its names must be among scores, weights, dropped_weights, "
      .. "queries, keys, values, lse", { "weight" })
    wrong("need_weights contains the number 3; its names must be among scores, weights, dropped_weights, "
      .. "queries, keys, values, lse", { 3 })
    wrong("need_weights contains a string ('logits'); its names must be among scores, weights, dropped_weights, "
      .. "queries, keys, values, lse", { "logits" })
    wrong("need_weights has the field 'head'; its fields are heads and queries", { "weights", head = { 1 } })
    wrong("need_weights is a list with gaps; its names must be at 1, 2, …", { [2] = "weights" })
    wrong("need_weights is a list with gaps; its names must be at 1, 2, …", { "weights", [0.5] = "scores" })
    wrong("need_weights.heads is the number 1; it must be a list of integers", { heads = 1 })
    wrong("need_weights.queries is a string ('last'); it must be a list of integers", { queries = "last" })
    wrong("need_weights.heads is the number 1.5; it must be an integer", { heads = { 1.5 } })
    wrong("need_weights asks for one of the heads, 5; it must be from 1 to 4, or from -4 to -1", { heads = { 5 } })
    wrong("need_weights asks for head 4 twice", { heads = { 4, -1 } })
    wrong("need_weights asks for one of the queries, 10; it must be from 1 to 9, or from -9 to -1",
      { queries = { 1, 10 } })
    wrong("need_weights asks for queries from 9 to 1; the first must not be after the last", { queries = { -1, 1 } })
    fails("scaled_dot_product_attention: need_weights contains a string ('scores'); its names must be among logits, "
      .. "capped_logits, biased_logits, weights, present_key, present_value, lse", function()
      return attention(x, x, x, { need_weights = { "scores" } })
    end)
    fails("MultiHeadAttention: need_lse is the number 1; it must be a boolean", function()
      return m(x, { need_lse = 1 })
    end)
  end)
end)

describe("need_lse", function()
  it("is the logarithm of the sum of e^score, and keeps the output's bits", function()
    heed.manual_seed(12)
    for _, l in ipairs { 1, 3, 40, 200 } do
      local q, k = heed.randn(2, 3, l, 16), heed.randn(2, 3, 200, 16)
      local y = attention(q, k, k)
      local again, info = attention(q, k, k, { need_lse = true })
      assert.is_true(again:equal(y))
      assert.are.equal("lse", names_in(info))
      close(heed.logsumexp(q:matmul(k.mT) * 0.25, -1), info.lse, 1e-5)
    end
  end)

  it("is -inf for a query that sees no key", function()
    for _, n in ipairs { 2, 50 } do
      local q = heed.randn(1, 1, n, 4)
      local mask = heed.ones(n, n, { dtype = "bool" })
      mask[2] = false
      local _, info = attention(q, q, q, { attn_mask = mask, need_lse = true, need_weights = { "weights" },
        sinks = heed.tensor { 1 } })
      assert.are.equal(-math.huge, info.lse[{ 1, 1, 2 }])
      assert.are.equal(0, info.weights[1][1][2]:sum():item())
      assert.is_true(info.lse[{ 1, 1, 1 }] > -math.huge)
    end
  end)

  it("is the same where the weights are changed on the way: a sink alone is no key", function()
    local m, x = multi_head { sinks = true }, heed.randn(2, 3, 6)
    local given = { key_padding_mask = heed.tensor({ { 1, 1, 1 }, { 0, 0, 1 } }):bool(), need_lse = true }
    local _, plain = m(x, given)
    local handle = m:on_weights(function(weights) return weights * 0.5 end)
    local _, changed = m(x, given)
    handle:remove()
    assert.are.equal(-math.huge, changed.lse[1]:max():item())
    close(plain.lse[2], changed.lse[2], 1e-6)
  end)

  it("comes with all intermediate results", function()
    local _, info = multi_head()(heed.randn(5, 6), { need_weights = true, need_lse = true })
    assert.are.equal("keys lse queries scores values weights", names_in(info))
    assert.are.same({ 4, 5 }, { info.lse.shape[1], info.lse.shape[2] })
    close(heed.logsumexp(info.scores / math.sqrt(2), -1), info.lse, 1e-5)
  end)
end)
