-- Generators of the kind "philox", PyTorch's on GPUs. The expected numbers are what torch.cuda prints after a
-- manual_seed, as published in documents and issues. (Divisions of the work, stops and failing allocations:
-- tests/c/test_philox.c, tests/c/test_philox_attention.c.)
local heed = require "heed"
local fails = require "tests.fails"
local tensors = require "tests.tensors"

local nn = heed.nn
local close = tensors.close

local function philox(seed) return heed.Generator { seed = seed, kind = "philox" } end

--- PyTorch prints four digits.
local function printed(got, wanted) close(heed.tensor(wanted), got, 5.1e-5) end

local INSIDE = "; the part must have as many dimensions and lie inside the whole"

local function same(x, y) assert.is_true(heed.equal(x, y)) end

describe("a philox generator", function()
  it("draws the uniform numbers of torch.cuda", function()
    printed(heed.rand(12, { generator = philox(42) }), { 0.6130, 0.0101, 0.3984, 0.0403, 0.1563, 0.4825,
      0.7362, 0.4060, 0.5189, 0.2867, 0.2416, 0.9228 })
  end)

  it("draws the normal numbers of torch.cuda, tensor after tensor", function()
    local g = philox(42)
    printed(heed.randn(2, 5, { generator = g:clone() }), { { 0.1940, 2.1614, -0.1721, 0.8491, -1.9244 },
      { 0.6530, -0.6494, -0.8175, 0.5280, -1.2753 } })
    heed.randn(4, { generator = g })
    printed(heed.randn(4, { generator = g }), { 0.1391, -0.1082, -0.7174, 0.7566 })
    printed(heed.randn(3, { generator = philox(10) }), { -0.1029, 1.6810, -0.2708 })
  end)

  it("drops what torch.cuda drops", function()
    local y = heed.dropout(heed.ones(4096), 0.1, true, { generator = philox(1) })
    same(y:eq(0):nonzero():narrow(1, 1, 3), heed.tensor { { 9 }, { 15 }, { 21 } }:long())
    close(heed.tensor(1 / 0.9), y:max())
  end)

  it("draws integers, choices and orders", function()
    local g = philox(3)
    local whole = heed.randint(-5, 5, { 4000 }, { generator = g })
    assert.are.equal(-5, whole:min():item())
    assert.are.equal(5, whole:max():item())
    assert.is_true(heed.randint(1, 2 ^ 40, { 100 }, { generator = g }):gt(2 ^ 33):any():item())
    local chances = heed.bernoulli(heed.full({ 4000 }, 0.25), { generator = g })
    assert.is_true(math.abs(chances:mean():item() - 0.25) < 0.03)
    same(heed.randperm(50, { generator = g }):sort(), heed.range(1, 50):long())
    assert.are.equal(3, heed.multinomial(heed.ones(5), 3, { generator = g }):numel())
    close(heed.tensor(0.5), heed.empty(1000):uniform_(-2, 3, { generator = g }):mean(), 0.15)
    close(heed.tensor(2), heed.empty(1000):normal_(4, 2, { generator = g }):std(), 0.2)
  end)

  it("moves on by 4 words for each tensor", function()
    local g = philox(7)
    local x = heed.rand(3, { generator = g })
    assert.are.equal(4, g:get_offset())
    local y = heed.rand(300, { generator = g })
    assert.are.equal(8, g:get_offset())
    same(heed.rand(3, { generator = g:set_offset(0) }), x)
    same(heed.rand(300, { generator = g }), y)
    same(heed.rand(3, { generator = g:manual_seed(7) }), x)
  end)

  it("is cloned and restored", function()
    local g = philox(7)
    heed.rand(3, { generator = g })
    local copy, other = g:clone(), philox(1)
    other:set_state(g:get_state())
    local x = heed.randn(5, { generator = g })
    same(heed.randn(5, { generator = copy }), x)
    same(heed.randn(5, { generator = other }), x)
    assert.are.equal("heed.Generator(kind='philox')", tostring(g))
    assert.are.equal("heed.Generator", tostring(heed.Generator(1)))
    assert.are.equal("philox", copy:kind())
    assert.are.equal("mt19937", heed.Generator(1):kind())
    local twister = heed.Generator(4)
    same(heed.rand(5, { generator = twister:clone() }), heed.rand(5, { generator = twister }))
  end)

  it("can be the default generator", function()
    heed.manual_seed(42, { kind = "philox" })
    printed(heed.rand(2), { 0.6130, 0.0101 })
    heed.manual_seed(42)
    printed(heed.rand(2), { 0.6130, 0.0101 })
    heed.manual_seed(42, "mt19937")
    printed(heed.rand(2), { 0.8823, 0.9150 })
  end)
end)

describe("parts of a tensor", function()
  it("get the numbers that the whole would", function()
    local g = philox(5)
    local whole = heed.randn(4, 6, 9, { generator = g:clone() })
    local dropped = heed.dropout(whole, 0.3, true, { generator = g:clone() })
    for _, first in ipairs { { 1, 1, 1 }, { 2, 3, 4 }, { 4, 6, 9 } } do
      local function part(x)
        return x:narrow(1, first[1], 5 - first[1]):narrow(2, first[2], 7 - first[2]):narrow(3, first[3], 10 - first[3])
      end
      local own = g:part { whole = { 4, 6, 9 }, first = first }
      same(heed.randn(part(whole).shape, { generator = own:clone() }), part(whole))
      same(heed.dropout(part(whole), 0.3, true, { generator = own }), part(dropped))
    end
    assert.are.equal(0, g:get_offset())
  end)

  it("may be views, which are drawn in row-major order", function()
    local g = philox(5)
    local whole = heed.rand(4, 6, { generator = g:clone() })
    same(heed.empty(6, 2):t():uniform_(0, 1, { generator = g:part { whole = { 4, 6 }, first = { 3, 1 } } }),
      whole:narrow(1, 3, 2))
  end)

  it("are refused where they do not lie inside", function()
    local g = philox(5):part { whole = { 4, 6 }, first = { 3, 1 } }
    local outside = " and the generator draws from [3, 1] on in a whole of [4, 6]" .. INSIDE
    fails("rand: the result is [3, 6]" .. outside, heed.rand, 3, 6, { generator = g })
    fails("dropout: x is [2]" .. outside, heed.dropout, heed.ones(2), 0.5, true, { generator = g })
    local other = ": the generator draws a part of a whole of [4, 6], and this draw has no parts; it must be a "
      .. "generator without a part"
    fails("randperm" .. other, heed.randperm, 3, { generator = g })
    fails("multinomial" .. other, heed.multinomial, heed.ones(3), 2, { generator = g })
  end)
end)

describe("attention with a philox generator", function()
  local B, H, N, D = 2, 4, 40, 8
  local q, k, v, g

  local before

  before_each(function()
    before = heed.set_grad_enabled(true)
    heed.manual_seed(1)
    q, k, v, g = heed.randn(B, H, N, D), heed.randn(B, H, N, D), heed.randn(B, H, N, D), philox(3)
  end)
  after_each(function() heed.set_grad_enabled(before) end)

  local function attend(rows, keys, heads, generator, options)
    local own = { dropout_p = 0.3, generator = generator }
    for name, value in pairs(options or {}) do own[name] = value end
    local function cut(x, tokens) return x:narrow(2, heads[1], heads[2]):narrow(3, tokens[1], tokens[2]) end
    return heed.scaled_dot_product_attention(cut(q, rows), cut(k, keys), cut(v, keys), own)
  end

  it("draws for heads and rows what it draws for all", function()
    local all = { 1, N }
    local y = attend(all, all, { 1, H }, g:clone())
    for first = 1, H, 2 do
      same(attend(all, all, { first, 2 }, g:part { whole = { B, H, N, N }, first = { 1, first, 1, 1 } }),
        y:narrow(2, first, 2))
    end
    same(attend({ 11, 20 }, all, { 1, H }, g:part { whole = { B, H, N, N }, first = { 1, 1, 11, 1 } }),
      y:narrow(3, 11, 20))
  end)

  it("draws for blocks of keys what it draws for all, as a ring of machines does", function()
    local y = attend({ 1, N }, { 1, N }, { 1, H }, g:clone(), { is_causal = true })
    local outs, stats = {}, {}
    for i, first in ipairs { 1, 17 } do
      local n = i == 1 and 16 or 24
      outs[i], stats[i] = heed.attention_partial(q, k:narrow(3, first, n), v:narrow(3, first, n), {
        is_causal = true, offset = 1 - first, dropout_p = 0.3,
        generator = g:part { whole = { B, H, N, N }, first = { 1, 1, 1, first } },
      })
    end
    close(y, (heed.attention_merge(outs, stats)))
  end)

  it("has the gradients of the same weights", function()
    local function gradient(n, generator)
      local x = q:narrow(2, 1, n):clone():requires_grad_(true)
      heed.scaled_dot_product_attention(x, k:narrow(2, 1, n), v:narrow(2, 1, n),
        { dropout_p = 0.3, generator = generator }):sum():backward()
      return x.grad
    end
    same(gradient(2, g:part { whole = { B, H, N, N }, first = { 1, 1, 1, 1 } }),
      gradient(H, g:clone()):narrow(2, 1, 2))
  end)

  it("refuses a part that the weights do not fit into", function()
    fails("scaled_dot_product_attention: the tensor of weights is [2, 4, 40, 40] and the generator draws from "
      .. "[1, 1, 2, 1] on in a whole of [2, 4, 40, 40]" .. INSIDE, attend, { 1, N }, { 1, N }, { 1, H },
      g:part { whole = { B, H, N, N }, first = { 1, 1, 2, 1 } })
    assert.are.equal(0, g:get_offset())
  end)

  it("gives a module in one call, in slices and with listeners the same result", function()
    heed.set_grad_enabled(false)
    local mha = nn.MultiHeadAttention(16, 16, { num_heads = 2, context_length = 50, dropout = 0.2 })
    local x = heed.randn(2, 50, 16)
    local y = mha(x, { generator = g:clone() })
    local steps = mha:steps(x, { ms = 0.01, generator = g:clone() })
    while steps() do end
    same(steps.result, y)
    local hook = mha:register_forward_hook(function() end)
    same(mha(x, { generator = g:clone() }), y)
    hook:remove()
    local _, info = mha(x, { generator = g:clone(), need_weights = true })
    same(info.dropped_weights, heed.dropout(info.weights, 0.2, true, { generator = g:clone() }))
  end)

  it("draws for packed sequences what it draws for padded ones", function()
    local lengths = heed.tensor { 30, 40 }:long()
    local rows = q:transpose(2, 3)
    local packed = heed.pack(rows, lengths)
    local y = heed.varlen_attention(packed, packed, packed, lengths, { dropout_p = 0.3, generator = g:clone() })
    local padded = heed.scaled_dot_product_attention(q, q, q,
      { kv_lengths = lengths, dropout_p = 0.3, generator = g:clone() })
    close(heed.pack(padded:transpose(2, 3), lengths), y)
  end)

  it("draws for a module with a cache", function()
    heed.set_grad_enabled(false)
    local mha = nn.MultiHeadAttention(16, 16, { num_heads = 2, context_length = 50, dropout = 0.2 })
    local x, cache = heed.randn(1, 30, 16), mha:new_cache { batch = 1 }
    local y = mha(x, { cache = cache, generator = g:clone() })
    same(mha(x, { generator = g:clone() }), y)
  end)
end)

describe("training with a philox generator", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  it("recomputes checkpointed parts with the same draws", function()
    local checkpoint = require("heed.utils").checkpoint
    local g = philox(2)
    local x = heed.randn(3, 8, { requires_grad = true })
    local function f(y, options) return heed.dropout(y, 0.5, true, { generator = options.generator }):exp() end
    local plain = f(x, { generator = g:clone() })
    plain:sum():backward()
    local wanted = x.grad:clone()
    x.grad = nil
    local y = checkpoint(f, x, { generator = g })
    same(y, plain)
    y:sum():backward()
    same(x.grad, wanted)
    assert.are.equal(4, g:get_offset())
  end)

  it("goes on from a saved checkpoint", function()
    local path = os.tmpname() .. ".safetensors"
    local g, other = philox(2), philox(9)
    heed.rand(5, { generator = g })
    assert.is_true(heed.save(path, { step = 1, generator = g }))
    assert.are.equal(1, heed.utils.load_checkpoint(path, { generator = other }).step)
    same(heed.rand(5, { generator = other }), heed.rand(5, { generator = g }))
    fails("set_state: the state is of a philox generator and this one is mt19937; both must be of one kind",
      heed.utils.load_checkpoint, path, { generator = heed.Generator(1) })
    os.remove(path)
  end)

  it("initialises modules", function()
    local a = nn.Linear(4, 4, { generator = philox(6) })
    same(a.weight, nn.Linear(4, 4, { generator = philox(6) }).weight)
    assert.is_false(heed.equal(a.weight, nn.Linear(4, 4, { generator = heed.Generator(6) }).weight))
  end)
end)

describe("errors of generators", function()
  it("name the argument and what it must be", function()
    fails("Generator: kind is a string ('xorwow'); it must be 'mt19937' or 'philox'", heed.Generator,
      { kind = "xorwow" })
    fails("manual_seed: kind is the number 1; it must be 'mt19937' or 'philox'", heed.manual_seed, 1, { kind = 1 })
    fails("get_offset: the generator is mt19937; it must be philox",
      function() return heed.Generator(1):get_offset() end)
    fails("set_offset: the generator is mt19937; it must be philox", function() heed.Generator(1):set_offset(4) end)
    fails("set_offset: offset is 6; it must be a multiple of 4", function() philox(1):set_offset(6) end)
    fails("part: the generator is mt19937, whose numbers have an order; it must be philox",
      function() heed.Generator(1):part { whole = { 2 }, first = { 1 } } end)
    fails("part: whole is [2, 3] and first is [1, 4]; sizes must be 1 or more, and first from 1 to the size of "
      .. "its dimension", function()
      philox(1):part { whole = { 2, 3 }, first = { 1, 4 } }
    end)
    fails("part: whole has 2 dimensions and first has 1; they must have as many", function()
      philox(1):part { whole = { 2, 3 }, first = { 1 } }
    end)
    fails("part: first is nil; it must be a table with a number for each dimension", function()
      philox(1):part { whole = { 2, 3 } }
    end)
    fails("set_state: the state is of a mt19937 generator and this one is philox; both must be of one kind",
      function() philox(1):set_state(heed.Generator(1):get_state()) end)
  end)
end)
