-- Masks as values where items differ in length: packed sequences, and caches whose items have different tokens. Each
-- item must give what it gives alone with the same mask in dense form.

local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local sum = require("tests.sequences").sum

local function close(a, b)
  assert.is_true(a.numel == 0 and b.numel == 0 or heed.allclose(a, b, 1e-5, 1e-5))
end

--- Calls f(i, n, first) for the items of these lengths that are not empty; `first` rows are before the item's.
local function each(lengths, f)
  local first = 0
  for i, n in ipairs(lengths) do
    if n > 0 then f(i, n, first) end
    first = first + n
  end
end

--- Rows first + 1 … first + n of x [total, heads, d] as [heads, n, d].
local function item_of(x, first, n) return x:narrow(1, first + 1, n):transpose(1, 2) end

describe("masks as values of packed sequences", function()
  local lengths, key_lengths = { 3, 0, 5, 1 }, { 7, 2, 5, 4 }
  local starts = { 0, 7, 9, 14 } -- of their keys
  local q, k, v = heed.randn(9, 4, 8), heed.randn(18, 2, 8), heed.randn(18, 2, 5)

  local function check(mask, dense_of, options)
    local given = { lengths = lengths, key_lengths = key_lengths, attn_mask = mask, need_lse = true }
    for name, value in pairs(options or {}) do given[name] = value end
    local y, info = heed.varlen_attention(q, k, v, given)
    each(lengths, function(i, n, first)
      local own, own_info = heed.scaled_dot_product_attention(item_of(q, first, n),
        item_of(k, starts[i], key_lengths[i]), item_of(v, starts[i], key_lengths[i]),
        { attn_mask = dense_of(i, n, first), need_lse = true })
      close(item_of(y, first, n), own)
      close(info.lse:narrow(2, first + 1, n), own_info.lse)
    end)
  end

  for name, mask in pairs {
    causal = heed.mask.causal(), window = heed.mask.window(2, 1), prefix = heed.mask.prefix(2),
    ["prefix within a window"] = heed.mask.prefix(2):both(heed.mask.window(3, 0)),
  } do
    it("count positions within each sequence: " .. name, function()
      check(mask, function(i, n) return mask:dense(n, key_lengths[i], key_lengths[i] - n) end)
      check(mask, function(i, n) return mask:dense(n, key_lengths[i], key_lengths[i] - n) end, { need_weights = true })
    end)
  end

  it("intervals have the rows of q, and their keys count within the sequence", function()
    local rows = {}
    each(lengths, function(i, n)
      for j = 1, n do rows[#rows + 1] = { { 1, 1 }, { key_lengths[i] - j % 2, key_lengths[i] } } end
    end)
    local intervals = heed.tensor(rows, { dtype = "int64" })
    check(heed.mask.intervals(intervals), function(i, n, first)
      return heed.mask.intervals(intervals:narrow(1, first + 1, n)):dense(n, key_lengths[i], key_lengths[i] - n)
    end)
  end)

  it("have gradients", function()
    heed.enable_grad(function()
      local a, b, c = heed.randn(9, 2, 4), heed.randn(9, 2, 4), heed.randn(9, 2, 4)
      for _, x in ipairs { a, b, c } do x:requires_grad_(true) end
      local mask = heed.mask.prefix(1):both(heed.mask.window(2, 2))
      assert.is_true(heed.autograd.gradcheck(function(x, y, z)
        return heed.varlen_attention(x, y, z, { lengths = lengths, attn_mask = mask })
      end, { a, b, c }))
    end)
  end)

  it("must fit every sequence", function()
    local function with(mask)
      return function()
        heed.varlen_attention(q, k, v, { lengths = lengths, key_lengths = key_lengths, attn_mask = mask })
      end
    end
    raises("varlen_attention: the lengths of mask.documents add up to 18, and there are 7 keys; these must be equal",
      with(heed.mask.documents { 10, 8 }))
    raises("varlen_attention: mask.tree has 9 nodes, and there are 3 queries; these must be equal",
      with(heed.mask.tree { 0, 1, 2, 3, 4, 5, 6, 7, 8 }))
    raises("varlen_attention: mask.intervals is for 5 queries, and there are 9; make it for that number",
      with(heed.mask.intervals(heed.tensor({ { { 1, 1 } }, { { 1, 1 } }, { { 1, 1 } }, { { 1, 1 } }, { { 1, 1 } } },
        { dtype = "int64" }))))
  end)
end)

describe("masks as values of a cache whose items differ", function()
  local before, added = { 6, 0, 9 }, { 2, 3, 1 }

  local function begun(m)
    local cache, singles, x = m:new_cache { batch = 3, capacity = 20 }, {}, heed.randn(sum(before), 12)
    m(x, { cache = cache, lengths = before })
    for i = 1, 3 do singles[i] = m:new_cache { capacity = 20 } end
    each(before, function(i, n, first) m(x:narrow(1, first + 1, n), { cache = singles[i] }) end)
    return cache, singles
  end

  for name, settings in pairs { ["all keys"] = {}, ["a window"] = { window = { left = 3 } } } do
    local options = { d_in = 12, d_out = 12, num_heads = 2, context_length = 40, dropout = 0, window = settings.window }

    it("apply to the tokens of each item: " .. name, function()
      local m, mask = nn.MultiHeadAttention(options):eval(), heed.mask.prefix(2):both(heed.mask.window(4, 0))
      local cache, singles = begun(m)
      local x = heed.randn(sum(added), 12)
      local y = m(x, { cache = cache, lengths = added, attn_mask = mask })
      each(added, function(i, n, first)
        close(m(x:narrow(1, first + 1, n), { cache = singles[i], attn_mask = mask:dense(n, before[i] + n, before[i]) }),
          y:narrow(1, first + 1, n))
      end)
    end)

    it("a tree of new tokens is that of every item: " .. name, function()
      local m, mask = nn.MultiHeadAttention(options):eval(), heed.mask.tree { 0, 1, 1, 2 }
      local cache, singles = begun(m)
      local x = heed.randn(3, 4, 12)
      local y = m(x, { cache = cache, attn_mask = mask })
      for i = 1, 3 do
        close(m(x[i], { cache = singles[i], attn_mask = mask:dense(4, before[i] + 4, before[i]) }), y[i])
      end
    end)
  end
end)
