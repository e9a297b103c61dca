-- m:explain: the record of an attention weight, against need_weights and against the rules computed here.
local heed = require "heed"
local fails = require "tests.raises"
local naive = require "tests.naive_attention"

local nn = heed.nn

local function chance(p) return heed.rand(1)[1] < p end
local function pick(...) return (select(heed.randint(1, select("#", ...), { 1 })[1], ...)) end
local function near(expected, found)
  local bound = 2e-5 * math.max(1, math.abs(expected))
  assert.is_true(expected == found or math.abs(expected - found) < bound, expected .. " is not " .. found)
end

-- A random module, input and options, with what is needed to compute hidden_by.
local function draw(seed)
  heed.manual_seed(seed)
  local kv, n, s = pick(1, 2, 4), pick(1, 4, 7), nil
  local rules = { causal = chance(0.5), left = chance(0.3) and 2 or nil, right = chance(0.3) and 1 or nil }
  local window = (rules.left or rules.right) and { left = rules.left, right = rules.right } or nil
  local crossed = chance(0.3)
  local kdim, vdim = crossed and chance(0.5) and 5 or 6, nil
  if crossed and chance(0.5) then vdim = 7 end
  local m = nn.MultiHeadAttention {
    kdim = kdim, vdim = vdim, qkv_bias = chance(0.5), d_in = 6, d_out = 16, num_heads = 4, num_kv_heads = kv,
    context_length = 32, dropout = chance(0.3) and 0.4 or 0, causal = rules.causal, window = window,
    softcap = chance(0.3) and 1.5 or nil,
    alibi = chance(0.3), sinks = chance(0.3), qk_norm = chance(0.3), rope = not crossed and chance(0.4) and {} or nil,
  }
  if m.sinks then m.sinks:copy_(heed.randn(4)) end
  local x, options = heed.randn(2, n, 6), {}
  if m.qk_norm then
    m.q_norm.weight:copy_(heed.randn(m.head_dim))
    m.k_norm.weight:copy_(heed.randn(m.head_dim))
  end
  if chance(0.2) then m:to(pick("bfloat16", "float16")) end
  if crossed then
    s = pick(3, 6)
    options.key = heed.randn(2, s, kdim)
    if vdim or kdim ~= 6 then options.value = heed.randn(2, s, vdim or 6) end
  end
  s = s or n
  rules.cross = options.key ~= nil
  if chance(0.3) then options.attn_mask = heed.rand(pick(1, 2), pick(1, 4), pick(1, n), s):lt(0.7) end
  if chance(0.3) and not options.attn_mask then options.attn_mask = heed.randn(pick(1, 4), n, pick(1, s)) end
  if chance(0.3) then options.key_padding_mask = heed.rand(2, s):lt(0.3) end
  if chance(0.3) then options.kv_lengths = heed.randint(0, s, { 2 }) end
  return m, x, options, rules, n, s
end

local function at(mask, ...)
  local index, given = {}, { ... }
  for dim = 1, mask.ndim do
    local want = given[#given - mask.ndim + dim]
    index[dim] = mask.shape[dim] == 1 and 1 or want
  end
  return mask[index]
end

local function hidden_by(rules, options, b, h, i, j, n)
  local names, row = {}, i
  if rules.cross and options.kv_lengths then row = i + options.kv_lengths[b] - n end
  if rules.causal and j > row then names[#names + 1] = "causal" end
  if rules.left and row - j > rules.left or not rules.causal and rules.right and j - row > rules.right then
    names[#names + 1] = "window"
  end
  if options.attn_mask and at(options.attn_mask, b, h, i, j) == false then names[#names + 1] = "attn_mask" end
  if options.key_padding_mask and options.key_padding_mask[{ b, j }] then names[#names + 1] = "key_padding_mask" end
  if options.kv_lengths and j > options.kv_lengths[b] then names[#names + 1] = "kv_lengths" end
  return names
end

-- Compares a row with the naive one.
local function compare(m, x, options, rules, row, b, h, i, n)
  local key = options.key or x
  local value = options.value or key
  local shift = rules.cross and options.kv_lengths and options.kv_lengths[b] - n or 0
  local function hidden(j) return #hidden_by(rules, options, b, h, i, j, n) > 0 end
  local function bias(j)
    local mask = options.attn_mask
    return mask and mask.dtype == "float32" and at(mask, b, h, i, j) or 0
  end
  local expected = naive.row(m, x[b]:tolist(), key[b]:tolist(), value[b]:tolist(), h, i, i + shift, hidden, bias)
  near(expected.row_max, row.row_max)
  near(expected.row_sum, row.row_sum)
  for _, each in ipairs(row.keys) do
    for _, name in ipairs { "dot", "scaled", "capped", "biased", "weight" } do
      near(expected[name][each.key], each[name])
    end
    local weight = each.dropped_weight or each.weight
    for c, element in ipairs(each.contribution:tolist()) do
      near(hidden(each.key) and 0 or expected.value[each.key][c] * weight, element)
    end
  end
end

describe("explain", function()
  it("agrees with the forward pass and names the rules that hid a key", function()
    for seed = 1, 100 do
      local m, x, options, rules, n, s = draw(seed)
      local b, h, i = pick(1, 2), pick(1, 2, 3, 4), heed.randint(1, n, { 1 })[1]
      options.generator = heed.Generator(seed)
      options.batch, options.head, options.query = b, h, i
      local row = m:explain(x, options)
      compare(m, x, options, rules, row, b, h, i, n)
      options.batch, options.head, options.query, options.need_weights = nil, nil, nil, true
      local _, info = m(x, options) -- with the same generator: explain put its state back
      local sum = heed.zeros(4)
      assert.are.equal(s, #row.keys)
      for _, each in ipairs(row.keys) do
        local j = each.key
        near(info.weights[{ b, h, i, j }], each.weight)
        if info.dropped_weights then near(info.dropped_weights[{ b, h, i, j }], each.dropped_weight) end
        assert.are.same(hidden_by(rules, options, b, h, i, j, n), each.hidden_by, "seed " .. seed)
        sum = sum + each.contribution
      end
      local weights = (info.dropped_weights or info.weights)[{ b, h, i }]
      local values = info.values[{ b, math.ceil(h * m.num_kv_heads / 4) }]
      local z = weights:reshape(1, s):matmul(values):reshape(4)
      assert.is_true((z - sum):abs():max():item() < 1e-4)
    end
  end)

  it("explains modules of one head, the wrapper, and softmax over another dimension", function()
    for _, m in ipairs { nn.SelfAttention(4, 4), nn.CausalAttention(4, 4, 9, 0.2),
      nn.CausalAttention { d_in = 4, d_out = 4, context_length = 9, dropout = 0.2, softmax_dim = 1 },
      nn.MultiHeadAttentionWrapper(4, 4, 10, 0.1, 3) } do
      local x = heed.randn(2, 5, 4)
      local _, info = m(x, { need_weights = true, generator = heed.Generator(3) })
      local weights = info.weights.ndim == 3 and info.weights:unsqueeze(2) or info.weights
      for h = 1, weights.shape[2] do
        for j = 1, 5 do
          local record = m:explain(x, { batch = 2, head = h, query = 4, key = j, generator = heed.Generator(3) })
          near(weights[{ 2, h, 4, j }], record.weight)
        end
      end
    end
  end)

  it("counts the keys of a cache and leaves it as it was", function()
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 64, dropout = 0, num_heads = 4, rope = {} }
    local cache, x = m:new_cache(), heed.randn(1, 2, 8)
    m(heed.randn(1, 5, 8), { cache = cache })
    local record = m:explain(x, { cache = cache, head = 2, query = 1, key = -1 })
    assert.are.equal(7, record.key)
    assert.are.same({ "causal" }, record.hidden_by)
    assert.are.equal(5, cache.length)
    local row = m:explain(x, { cache = cache, head = 2, query = 1 })
    local _, info = m(x, { cache = cache, need_weights = true })
    for _, each in ipairs(row.keys) do near(info.weights[{ 1, 2, 1, each.key }], each.weight) end
  end)

  it("follows the module's own parts, its heads and their hooks", function()
    local Twice = nn.Module.class "Twice"
    function Twice:init(inner) self.inner = inner end
    function Twice:forward(x) return self.inner(x) * 2 end
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 64, dropout = 0, num_heads = 4 }
    local x = heed.randn(2, 5, 8)
    local plain = m:explain(x, { head = 2, query = 3, key = 1 })
    m.W_key = Twice(m.W_key)
    near(2 * plain.dot, m:explain(x, { head = 2, query = 3, key = 1 }).dot)
    local handle = m.W_query:register_forward_hook(function(_, _, y) return y * 3 end)
    near(6 * plain.dot, m:explain(x, { head = 2, query = 3, key = 1 }).dot)
    handle:remove()
    near(2 * plain.dot, m:explain(x, { head = 2, query = 3, key = 1 }).dot)
  end)

  it("takes weights in int8, and inputs without a batch", function()
    local m = nn.MultiHeadAttention { d_in = 80, d_out = 16, context_length = 64, dropout = 0, num_heads = 4 }:to "int8"
    local x = heed.randn(5, 80)
    local _, info = m(x, { need_weights = true })
    for _, each in ipairs(m:explain(x, { head = 3, query = -2 }).keys) do
      near(info.weights[{ 3, 4, each.key }], each.weight)
    end
  end)

  it("raises what the forward pass raises", function()
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 4, dropout = 0, num_heads = 4 }
    local function same(x, options)
      local _, wanted = pcall(m.forward, m, x, options)
      local _, found = pcall(m.explain, m, x, options)
      assert.are.equal(tostring(wanted), tostring(found))
    end
    local x = heed.randn(2, 3, 8)
    same(heed.randn(2, 5, 8))
    same(heed.randn(2, 3, 7))
    same(heed.zeros(2, 3, 8, { dtype = "int64" }))
    same(x, { attn_mask = heed.zeros(2, 3):bool() })
    same(x, { key_padding_mask = heed.zeros(3, 3):bool() })
    same(x, { kv_lengths = heed.tensor({ 1, 4 }, { dtype = "int64" }) })
    same(x, { kv_lengths = { 1, 4 } })
    same(x, { need = true })
    assert.has_error(function() m:explain(x, { generator = 3 }) end)
  end)

  it("stops at the limits and changes nothing", function()
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 2 ^ 20, dropout = 0, num_heads = 4 }
    local cache, x = m:new_cache { capacity = 16 }, heed.randn(1, 2, 8)
    m(heed.randn(1, 5, 8), { cache = cache })
    local long = heed.randn(1, 200000, 8)
    heed.limit { seconds = 0.01 }
    local ok, problem = pcall(m.explain, m, long, { query = -1 })
    heed.limit { seconds = math.huge }
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("time limit exceeded", 1, true), tostring(problem))
    heed.limit { memory = 1 }
    ok, problem = pcall(m.explain, m, x, { cache = cache })
    heed.limit { memory = math.huge }
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("memory limit exceeded", 1, true), tostring(problem))
    assert.are.equal(5, cache.length)
    assert.are.equal(7, #m:explain(x, { cache = cache }).keys)
  end)

  it("reads as a derivation", function()
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 64, dropout = 0, num_heads = 4 }
    local x = heed.randn(3, 8)
    assert.is_truthy(tostring(m:explain(x, { query = 1, key = 2 })):find("hidden by causal", 1, true))
    assert.is_truthy(tostring(m:explain(x, { query = 2 })):find("weight", 1, true))
  end)

  it("refuses positions that do not exist", function()
    local m, x = nn.SelfAttention(4, 4), heed.randn(3, 4)
    fails("explain: key is the number 4; it must be an integer from 1 to 3, or from -3 to -1",
      function() m:explain(x, { key = 4 }) end)
    fails("explain: query is the number 0; it must be an integer from 1 to 3, or from -3 to -1",
      function() m:explain(x, { query = 0 }) end)
    fails("explain: self is a module (Linear); it must be an attention module",
      function() nn.Linear(2, 2):explain(x) end)
  end)
end)
