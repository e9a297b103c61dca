-- heed.mask: masks as values, against predicates in plain Lua and attention in double precision.
local fails = require "tests.fails"
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local attention, mask, nn = heed.scaled_dot_product_attention, heed.mask, heed.nn

-- ---- Masks and what they show -------------------------------------------------------------------

-- Each is {value, shows(i, j, offset)} for n queries and keys; i and j count from 1.
local makers = {}

function makers.causal() return mask.causal(), function(i, j, offset) return j <= i + offset end end

function makers.window()
  return mask.window(3, 1), function(i, j, offset) return j >= i + offset - 3 and j <= i + offset + 1 end
end

function makers.left() return mask.window(2), function(i, j, offset) return j >= i + offset - 2 end end

function makers.prefix() return mask.prefix(2), function(i, j, offset) return j <= 2 or j <= i + offset end end

function makers.documents(n)
  local lengths, document, left = {}, {}, n
  for d = 1, n do
    lengths[d] = math.min(left, d % 3 * 7) -- some are empty
    left = left - lengths[d]
    for _ = 1, lengths[d] do document[#document + 1] = d end
  end
  lengths[n + 1] = left
  for _ = 1, left do document[#document + 1] = n + 1 end
  return mask.documents(lengths), function(i, j, offset) return document[i + offset] == document[j] end
end

function makers.tree(n)
  local parents = {}
  for i = 1, n do parents[i] = math.max(0, i - 1 - (i * 7) % 4) end
  return mask.tree(parents), function(i, j, offset)
    if j <= offset then return true end
    while i > j - offset do i = parents[i] end
    return i == j - offset
  end
end

function makers.intervals(n)
  local ranges = {}
  for i = 1, n do
    local middle = math.max(2, n - i)
    ranges[i] = { { 1, i % 3 }, { 1 + i % 3, math.max(i % 3, middle - 2) }, { 1, 0 },
      { math.min(middle + 1, n + 1), n } }
  end
  return mask.intervals(ranges), function(i, j)
    for _, range in ipairs(ranges[i]) do
      if j >= range[1] and j <= range[2] then return true end
    end
    return false
  end
end

local function combined(a, b)
  return function(n)
    local one, shows_one = makers[a](n)
    local other, shows_other = makers[b](n)
    return one:both(other), function(...) return shows_one(...) and shows_other(...) end
  end
end
makers.causal_documents = combined("documents", "causal")
makers.window_documents = combined("window", "documents")
makers.intervals_tree = combined("intervals", "tree")
makers.prefix_intervals = combined("prefix", "intervals")

local names = {}
for name in pairs(makers) do names[#names + 1] = name end
table.sort(names)

local function table_of(shows, l, s, offset)
  local rows = {}
  for i = 1, l do
    rows[i] = {}
    for j = 1, s do rows[i][j] = shows(i, j, offset or 0) end
  end
  return rows
end

-- The same as a float32 mask, which attention handles differently.
local function as_bias(shows, l, s, offset)
  return heed.zeros(l, s):masked_fill(heed.tensor(table_of(shows, l, s, offset)):logical_not(), -math.huge)
end

-- softmax(q kᵀ / √d) v over the visible keys, in doubles: q [h, l, d].
local function exact(q, k, v, shows)
  local out = {}
  local Q, K, V = q:tolist(), k:tolist(), v:tolist()
  for h = 1, #Q do
    out[h] = {}
    for i, query in ipairs(Q[h]) do
      local scores, most, sum, row = {}, -math.huge, 0, {}
      for j, key in ipairs(K[h]) do
        local x = 0
        for c = 1, #key do x = x + query[c] * key[c] end
        scores[j] = shows(i, j, 0) and x / math.sqrt(#key) or -math.huge
        most = math.max(most, scores[j])
      end
      for c = 1, #V[h][1] do row[c] = 0 end
      for j, x in ipairs(scores) do
        local weight = most > -math.huge and math.exp(x - most) or 0
        sum = sum + weight
        for c = 1, #row do row[c] = row[c] + weight * V[h][j][c] end
      end
      for c = 1, #row do row[c] = sum > 0 and row[c] / sum or 0 end
      out[h][i] = row
    end
  end
  return heed.tensor(out)
end

-- As tensors.close, faster for many elements.
local function near(wanted, got, tolerance)
  assert.equal(tostring(wanted.shape), tostring(got.shape))
  assert.is_true((wanted - got):abs():max():item() <= tolerance)
end

local function random(...)
  return heed.randn(...), heed.randn(...), heed.randn(...)
end

describe("a mask value", function()
  before_each(function() heed.manual_seed(7) end)

  it("shows in dense the pairs that its rule shows, and counts them in blocks", function()
    for _, name in ipairs(names) do
      for _, n in ipairs { 1, 5, 37 } do
        local m, shows = makers[name](n)
        local dense = m:dense(n, n)
        assert.equal("bool", dense.dtype)
        assert.are.same(table_of(shows, n, n), dense:tolist())
        local counts, blocks = m:blocks(n, n, 8), math.ceil(n / 8)
        assert.equal("int64", counts.dtype)
        assert.are.same({ blocks, blocks }, { counts.shape[1], counts.shape[2] })
        for a = 1, blocks do
          for b = 1, blocks do
            local part = dense[{ { 8 * a - 7, math.min(8 * a, n) }, { 8 * b - 7, math.min(8 * b, n) } }]
            assert.equal(part:long():sum():item(), counts[a][b])
          end
        end
      end
    end
  end)

  it("counts the positions of queries from an offset, as after the tokens of a cache", function()
    for _, name in ipairs { "causal", "window", "prefix", "documents" } do
      local m, shows = makers[name](20)
      assert.are.same(table_of(shows, 4, 20, 16), m:dense(4, 20, 16):tolist())
    end
    local m, shows = makers.tree(6)
    assert.are.same(table_of(shows, 6, 10, 4), m:dense(6, 10, 4):tolist())
  end)

  it("gives attention the keys that its rule shows", function()
    for _, name in ipairs(names) do
      for _, n in ipairs { 1, 3, 12, 33, 70 } do
        local m, shows = makers[name](n)
        local q, k, v = random(2, n, 6)
        tensors.close(exact(q, k, v, shows), attention(q, k, v, { attn_mask = m }), 3e-6)
      end
    end
  end)

  it("computes the same as a dense mask for many keys, with heads in groups and every other option", function()
    local options = {
      {}, { is_causal = true }, { window = { left = 50 } }, { softcap = 3, alibi_slopes = heed.rand(4) },
      { sinks = heed.randn(4) }, { kv_lengths = { 700, 650 } },
    }
    for _, name in ipairs(names) do
      local m, shows = makers[name](700)
      local bias = as_bias(shows, 700, 700)
      for number, option in ipairs(options) do
        local q = heed.randn(2, 4, 700, 16)
        local k, v = heed.randn(2, 2, 700, 16), heed.randn(2, 2, 700, 16)
        if option.kv_lengths and name:find "tree" then break end
        option.attn_mask = m
        local got = attention(q, k, v, option)
        if option.kv_lengths then
          option.attn_mask = heed.stack { bias, as_bias(shows, 700, 700, -50) }:unsqueeze(2)
        else
          option.attn_mask = bias
        end
        near(attention(q, k, v, option), got, number > 3 and 5e-6 or 2e-6)
      end
    end
  end)

  it("gives the bits of the window option for windows, and of a boolean mask for the others", function()
    local q, k, v = random(1, 2, 600, 32)
    local function same(one, other)
      assert.is_true(heed.equal(attention(q, k, v, one), attention(q, k, v, other)))
    end
    same({ attn_mask = mask.causal() }, { is_causal = true })
    same({ attn_mask = mask.window(20, 3) }, { window = { left = 20, right = 3 } })
    for _, name in ipairs(names) do
      local m = makers[name](600)
      same({ attn_mask = m }, { attn_mask = m:dense(600, 600) })
    end
  end)

  it("holds for a few queries on many keys", function()
    local m, shows = makers.documents(900)
    for _, l in ipairs { 1, 3, 8 } do
      local q, k, v = heed.randn(2, 4, l, 16), heed.randn(2, 2, l, 16), heed.randn(2, 2, l, 16)
      local past_key, past_value = heed.randn(2, 2, 900 - l, 16), heed.randn(2, 2, 900 - l, 16)
      local options = { attn_mask = m, past_key = past_key, past_value = past_value }
      local got, taps
      options.need_weights = { "weights" }
      got, taps = attention(q, k, v, options)
      options.attn_mask = as_bias(shows, l, 900, 900 - l)
      local wanted, their = attention(q, k, v, options)
      tensors.close(wanted, got, 2e-6)
      tensors.close(their.weights, taps.weights, 2e-6)
    end
    local parents = { 0, 1, 1, 2, 3, 3 } -- what speculative decoding asks
    local q, k, v = random(1, 2, 6, 16)
    local options = { attn_mask = mask.tree(parents), past_key = heed.randn(1, 2, 300, 16),
      past_value = heed.randn(1, 2, 300, 16) }
    local got = attention(q, k, v, options)
    options.attn_mask = mask.tree(parents):dense(6, 306, 300)
    tensors.close(attention(q, k, v, options), got, 2e-6)
  end)

  it("gives zeros to a query that sees no key, and lets no nan of a hidden key through", function()
    local q, k, v = random(1, 40, 8)
    local m = mask.intervals({ { { 3, 10 }, { 20, 31 } } }):both(mask.window(100))
    k[1][15], v[1][15], k[1][2], v[1][40] = heed.nan, heed.nan, heed.inf, heed.nan
    local out = attention(q, k, v, { attn_mask = m })
    assert.is_true(out:abs():lt(math.huge):all():item())
    local none = mask.intervals { { { 1, 0 } } }
    assert.equal(0, attention(q, k, v, { attn_mask = none }):abs():sum():item())
  end)

  it("has intervals of their own for batch items and heads", function()
    local ranges = heed.stack({ heed.randint(1, 20, { 2, 3, 40, 1 }), heed.randint(20, 40, { 2, 3, 40, 1 }) }, 5):long()
    ranges = ranges:view(2, 3, 40, 1, 2)
    local m = mask.intervals(ranges)
    assert.equal("heed.Size([2, 3, 40, 40])", tostring(m:dense(40, 40).shape))
    local q, k, v = random(2, 3, 40, 8)
    tensors.close(attention(q, k, v, { attn_mask = m:dense() }), attention(q, k, v, { attn_mask = m }), 1e-6)
    local list = ranges:tolist()
    ranges:fill_(1) -- it was copied
    tensors.close(attention(q, k, v, { attn_mask = mask.intervals(list) }), attention(q, k, v, { attn_mask = m }), 0)
  end)

  it("changes with & where Lua has it", function()
    local both = (loadstring or load) "local a, b = ... return a & b" -- luacheck: ignore loadstring
    if both then
      local m = both(mask.causal(), mask.documents { 2, 2 })
      assert.are.same(mask.causal():both(mask.documents { 2, 2 }):dense():tolist(), m:dense():tolist())
      fails("&: the right operand is the number 1; it must be a heed.Mask", both, mask.causal(), 1)
    end
  end)

  it("shows weights, and the rule that hides a key", function()
    local m, shows = makers.causal_documents(12)
    local q, k, v = random(1, 12, 4)
    local _, taps = attention(q, k, v, { attn_mask = m, need_weights = true })
    for i, row in ipairs(taps.weights[1]:tolist()) do
      for j, weight in ipairs(row) do assert.equal(shows(i, j, 0), weight > 0) end
    end
    local mha = nn.MultiHeadAttention(4, 4, 12, 0, 2)
    local record = mha:explain(heed.randn(12, 4), { attn_mask = mask.documents { 6, 6 }, query = 8, key = 2 })
    assert.are.same({ "attn_mask" }, record.hidden_by)
  end)
end)

describe("a mask value in modules", function()
  before_each(function() heed.manual_seed(8) end)

  it("is accepted by every attention module, with hooks, in slices and while gradients are recorded", function()
    local m, shows = makers.window_documents(30)
    local x = heed.randn(2, 30, 8)
    local along = nn.CausalAttention(8, 8, 30, 0, { softmax_dim = 2 })
    local modules = {
      nn.SelfAttention(8, 8), nn.CausalAttention(8, 8, 30, 0), nn.MultiHeadAttention(8, 8, 30, 0, 2),
      nn.MultiHeadAttentionWrapper(8, 4, 30, 0, 2), along,
    }
    for _, module in ipairs(modules) do
      local wanted = module(x, { attn_mask = as_bias(shows, 30, 30) })
      tensors.close(wanted, module(x, { attn_mask = m }), 2e-6)
      tensors.close(wanted, heed.enable_grad(function() return module(x, { attn_mask = m }):detach() end), 2e-6)
      local handle = module:register_forward_hook(function() end)
      tensors.close(wanted, module(x, { attn_mask = m }), 2e-6)
      if module ~= along then
        tensors.close(wanted, heed.enable_grad(function() return module(x, { attn_mask = m }):detach() end), 2e-6)
      end
      handle:remove()
    end
    local steps = modules[3]:steps(x, { ms = 0, attn_mask = mask.window(3, 1):both((makers.documents(30))) })
    collectgarbage()
    for _ in steps do collectgarbage() end
    tensors.close(modules[3](x, { attn_mask = m }), steps.result, 0)
    assert.is_true(modules[3]:eval():verify(x, { attn_mask = m }).ok)
    assert.are.same({}, modules[3]:check(x, { attn_mask = m }))
  end)

  it("has intervals for each head of a wrapper", function()
    local ranges = heed.ones({ 2, 6, 1, 2 }, { dtype = "int64" })
    ranges[{ 2, {}, {}, 2 }] = 4
    local wrapper, x = nn.MultiHeadAttentionWrapper(4, 4, 6, 0, 2), heed.randn(6, 4)
    local m = mask.intervals(ranges)
    tensors.close(wrapper(x, { attn_mask = m:dense(6, 6) }), wrapper(x, { attn_mask = m }), 1e-6)
    fails("MultiHeadAttentionWrapper: the intervals of attn_mask are for 3 heads; they must be for 1 or 2", wrapper, x,
      { attn_mask = mask.intervals(heed.ones({ 3, 6, 1, 2 }, { dtype = "int64" })) })
  end)

  it("covers the keys of a cache, also those that a window has dropped", function()
    for _, window in ipairs { false, { left = 5 } } do
      local mha = nn.MultiHeadAttention(8, 8, 200, 0, 2, { window = window or nil })
      local x = heed.randn(1, 150, 8)
      local lengths = { 40, 70, 40 }
      local whole = mha(x, { attn_mask = mask.documents(lengths) })
      local cache, parts = mha:new_cache(), {}
      for _, range in ipairs { { 1, 100 }, { 101, 101 }, { 102, 120 }, { 121, 150 } } do
        local n = range[2]
        local so_far = { 40, math.min(70, n - 40), math.max(0, n - 110) }
        local new = x:narrow(2, range[1], n - range[1] + 1)
        parts[#parts + 1] = mha(new, { cache = cache, attn_mask = mask.documents(so_far) })
      end
      tensors.close(whole, heed.cat(parts, 2), 2e-6)
    end
  end)

  it("is accepted by PyTorch's MultiheadAttention, where it shows keys as everywhere", function()
    local m = nn.MultiheadAttention(8, 2, { batch_first = true })
    local x, value = heed.randn(2, 12, 8), mask.documents { 5, 7 }
    local hidden = value:dense():logical_not()
    for _, weights in ipairs { true, false } do
      local wanted = m(x, x, x, { attn_mask = hidden, need_weights = weights })
      tensors.close(wanted, (m(x, x, x, { attn_mask = value, need_weights = weights })), 1e-6)
    end
  end)
end)

describe("gradients with a mask value", function()
  it("are those of the dense mask", function()
    heed.manual_seed(9)
    for _, name in ipairs(names) do
      for _, n in ipairs { 9, 250 } do
        local m, shows = makers[name](n)
        local q, k, v = random(2, n, 8)
        local w = heed.randn(2, n, 8)
        local function gradients(option)
          return heed.enable_grad(function()
            local leaves = {}
            for i, x in ipairs { q, k, v } do leaves[i] = x:clone():requires_grad_(true) end
            local y = attention(leaves[1], leaves[2], leaves[3], { attn_mask = option })
            ;(y * w):sum():backward()
            return { leaves[1].grad, leaves[2].grad, leaves[3].grad }
          end)
        end
        local wanted, got = gradients(as_bias(shows, n, n)), gradients(m)
        for i = 1, 3 do near(wanted[i], got[i], 5e-6) end
      end
    end
  end)
end)

describe("a boolean mask", function()
  it("gives the same for any pattern, whether its rows have few runs or many", function()
    heed.manual_seed(10)
    local n = 400
    local q, k, v = random(2, 2, n, 16)
    local patterns = {}
    for _, share in ipairs { 0, 0.002, 0.02, 0.5, 0.99, 1 } do patterns[#patterns + 1] = heed.rand(n, n):lt(share) end
    for _, shape in ipairs { { 1, n }, { n, 1 }, { 2, 1, n, n }, { 2, 2, n, n }, { 2, 1, 1, n } } do
      patterns[#patterns + 1] = heed.rand(shape):lt(0.01)
    end
    patterns[#patterns + 1] = heed.rand(1, 1, n, n):lt(0.01):expand(2, 2, n, n)
    patterns[#patterns + 1] = heed.rand(n, n):lt(0.01).T
    for _, pattern in ipairs(patterns) do
      local bias = heed.zeros(pattern.shape):masked_fill(pattern:logical_not(), -math.huge)
      for _, causal in ipairs { false, true } do
        near(attention(q, k, v, { attn_mask = bias, is_causal = causal }),
          attention(q, k, v, { attn_mask = pattern, is_causal = causal }), 2e-6)
      end
    end
  end)
end)

describe("masks are refused", function()
  it("with values that make no mask", function()
    fails("mask.window: left and right are missing; give at least one of them, as in window(128, 0)", mask.window)
    fails("mask.window: the window's left is -1; it must be at least 0", mask.window, -1)
    fails("mask.window: the window's right is -2; it must be at least 0", mask.window, { right = -2 })
    fails("mask.window: left is the number 1.5; it must be an integer", mask.window, 1.5)
    fails("mask.prefix: n is -1; it must be at least 0", mask.prefix, -1)
    fails("mask.prefix: n is the number 0.5; it must be an integer", mask.prefix, 0.5)
    fails("mask.documents: element 2 of lengths is -3; it must be at least 0", mask.documents, { 4, -3 })
    fails("mask.documents: lengths is [2, 1]; it must be [b], one for each sequence", mask.documents, { { 1 }, { 2 } })
    fails("mask.tree: the parent of node 2 is 3; it must be an earlier node, or 0 for a root", mask.tree, { 0, 3, 1 })
    fails("mask.tree: the parent of node 1 is 1; it must be 0, as the first node is a root", mask.tree, { 1 })
    fails("mask.tree: the parent of node 2 is -1; it must be an earlier node, or 0 for a root", mask.tree, { 0, -1 })
    fails("mask.intervals: t is [2, 2]; it must be [..., queries, intervals, 2], the first and last key of each "
      .. "interval", mask.intervals, { { 1, 2 }, { 3, 4 } })
    fails("mask.intervals: interval 2 of query 1 begins at key 3, and one before it ends at key 4; intervals must be "
      .. "in order and must not overlap", mask.intervals, { { { 1, 4 }, { 3, 5 } } })
    fails("mask.intervals: interval 1 of query 2 is from 5 to 3; its last key must not be before its first (write "
      .. "{1, 0} for an empty one)", mask.intervals, { { { 1, 4 } }, { { 5, 3 } } })
    fails("mask.intervals: interval 1 of query 1 is from 0 to 3; keys count from 1 to at most 2147483647",
      mask.intervals, { { { 0, 3 } } })
    for _, make in ipairs { mask.documents, mask.tree, mask.intervals } do
      assert.is_false((pcall(make, { 1.5 })))
      assert.is_false((pcall(make, "abc")))
      assert.is_false((pcall(make)))
    end
  end)

  it("for other sizes than theirs", function()
    local q, k, v = random(1, 6, 4)
    local function with(m, message)
      raises("scaled_dot_product_attention: " .. message, function() attention(q, k, v, { attn_mask = m }) end)
    end
    with(mask.documents { 2, 3 },
      "the lengths of mask.documents add up to 5, and there are 6 keys; these must be equal")
    with(mask.tree { 0 }, "mask.tree has 1 node, and there are 6 queries; these must be equal")
    with(mask.intervals { { { 1, 1 } }, { { 2, 2 } } },
      "mask.intervals is for 2 queries, and there are 6; make it for that number")
    with(mask.intervals { { { 1, 7 } } }, "mask.intervals has key 7; it must be at most 6, the number of keys")
    with(mask.intervals(heed.ones({ 2, 6, 1, 2 }, { dtype = "int64" })),
      "the leading sizes of mask.intervals are [2]; they must broadcast to [1]")
    with("causal", "attn_mask is a string ('causal'); it must be a tensor or a heed.Mask")
    fails("mask.dense: L is missing; give the number of queries, as this mask is for any", mask.causal().dense,
      mask.causal())
    fails("mask.dense: the number of queries is -1; it must be from 0 to 2147483647", mask.causal().dense,
      mask.causal(), -1, 2)
    fails("mask.dense: the lengths of mask.documents add up to 4, and the last query is at position 5; it must be in a "
      .. "document", mask.documents({ 4 }).dense, mask.documents { 4 }, 3, 4, 2)
    fails("mask.blocks: block is 0; it must be from 1 to 2147483647", mask.causal().blocks, mask.causal(), 4, 4, 0)
    local two, three = heed.ones({ 2, 1, 1, 2 }, { dtype = "int64" }), heed.ones({ 3, 1, 1, 2 }, { dtype = "int64" })
    fails("mask.both: the leading sizes of the two masks' intervals differ; they must broadcast",
      mask.intervals(two).both, mask.intervals(two), mask.intervals(three))
    fails("mask.both: other is nil; it must be a heed.Mask", mask.causal().both, mask.causal())
    local m = nn.MultiHeadAttention(4, 4, 6, 0, 2)
    fails("MultiHeadAttention: the lengths of mask.documents add up to 4, and there are 6 keys; these must be equal", m,
      heed.randn(6, 4), { attn_mask = mask.documents { 4 } })
    assert.are.same({ "attn_mask is for other sizes, the lengths of mask.documents add up to 4, and there are 6 keys; "
      .. "these must be equal: the forward pass will raise an error" },
      m:eval():check(heed.randn(6, 4), { attn_mask = mask.documents { 4 } }))
    fails("Linear: attn_mask is given; only attention modules take it", nn.Linear(4, 4), heed.randn(6, 4),
      { attn_mask = mask.causal() })
  end)

  it("as objects of other kinds", function()
    raises("a heed.Mask has no field 'size'; it has both, dense and blocks", function() return mask.causal().size end)
    raises("a heed.Mask has no field that can be set, such as 'x'", function() mask.causal().x = 1 end)
  end)

  it("without enough memory, and nothing changes", function()
    local parents = heed.arange(0, 100000, { dtype = "int64" })
    local m = mask.tree(parents)
    heed.limit { memory = heed.info().memory_in_use + 2 ^ 20 }
    local ok, message = pcall(m.dense, m)
    heed.limit { memory = math.huge }
    assert.is_false(ok)
    assert.truthy(message:find "mask.dense: ")
  end)
end)
