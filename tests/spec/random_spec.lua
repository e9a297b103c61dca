-- Seeds, generators and draws: arguments and messages. Most numbers are in tests/golden/random.lua and dropout.lua.
-- The expected numbers are those of PyTorch 2.13.
local heed = require "heed"
local raises = require "tests.raises"

local function near(expected, list)
  assert.equal(#expected, #list)
  for i, v in ipairs(expected) do
    assert.is_true(math.abs(v - list[i]) <= 1e-6 * math.abs(v), ("element %d is %.9g"):format(i, list[i]))
  end
end

describe("the default generator", function()
  before_each(function() heed.manual_seed(42) end)

  it("gives PyTorch's numbers", function()
    near({ 0.882269263, 0.915003955, 0.38286376, 0.959305644 }, heed.rand(4):tolist())
    near({ 0.234462366, 0.23033303, -1.12285638 }, heed.randn(3):tolist())
  end)

  it("restarts at manual_seed", function()
    local first = heed.rand(5):tolist()
    heed.manual_seed(42)
    assert.same(first, heed.rand(5):tolist())
    heed.manual_seed(42 + (2 ^ 32)) -- only the low 32 bits matter
    assert.same(first, heed.rand(5):tolist())
    heed.manual_seed(42.0)
    assert.same(first, heed.rand(5):tolist())
  end)

  it("accepts negative seeds", function()
    heed.manual_seed(-1)
    local first = heed.rand(2):tolist()
    heed.manual_seed(0xffffffff)
    assert.same(first, heed.rand(2):tolist())
  end)

  it("rejects invalid seeds", function()
    raises("manual_seed: seed is the number 1.5; it must be an integer", function() heed.manual_seed(1.5) end)
    raises("manual_seed: seed is nil; it must be an integer", function() heed.manual_seed() end)
    raises("manual_seed: seed is a string ('1'); it must be an integer", function() heed.manual_seed "1" end)
  end)
end)

describe("a generator", function()
  it("is independent of others", function()
    local g, h = heed.Generator(7), heed.Generator(7)
    heed.manual_seed(1)
    local before = heed.rand(3):tolist()
    heed.manual_seed(1)
    local x = heed.rand(3, { generator = g })
    assert.same(before, heed.rand(3):tolist())
    assert.same(x:tolist(), heed.rand({ 3 }, { generator = h }):tolist())
    assert.same(heed.randn(3, { generator = g }):tolist(), heed.randn(3, { generator = h }):tolist())
    assert.same(heed.randperm(9, { generator = g }):tolist(), heed.randperm(9, { generator = h }):tolist())
    local from_g, from_h = heed.randint(1, 9, { 4 }, { generator = g }), heed.randint(9, { 4 }, { generator = h })
    assert.same(from_g:tolist(), from_h:tolist())
  end)

  it("has PyTorch's default seed if none is given", function()
    near({ 0.267295241, 0.872528315 }, heed.rand(2, { generator = heed.Generator() }):tolist())
  end)

  it("can be seeded again", function()
    local g = heed.Generator(1)
    heed.rand(5, { generator = g })
    assert.is_true(rawequal(g, g:manual_seed(1)))
    assert.same(heed.rand(2, { generator = heed.Generator(1) }):tolist(), heed.rand(2, { generator = g }):tolist())
  end)

  it("can be restored to a state", function()
    local g = heed.Generator(5)
    heed.randn(3, { generator = g }) -- an odd number of draws leaves a spare value in the generator
    local state = g:get_state()
    local first = heed.randn(3, { generator = g }):tolist()
    assert.equal("string", type(state))
    g:set_state(state)
    assert.same(first, heed.randn(3, { generator = g }):tolist())
    local h = heed.Generator(0)
    assert.is_true(rawequal(h, h:set_state(state)))
    assert.same(first, heed.randn(3, { generator = h }):tolist())
  end)

  it("rejects invalid states", function()
    local g = heed.Generator(5)
    assert.error_matches(function() g:set_state "abc" end, "set_state: ")
    assert.error_matches(function() g:set_state(("\0"):rep(#g:get_state())) end, "set_state: ")
    raises("set_state: state is nil; it must be a string that get_state gave", function() g:set_state() end)
  end)

  it("prints its name", function()
    assert.equal("heed.Generator", tostring(heed.Generator(1)))
  end)

  it("must be a generator", function()
    raises("rand: generator is the number 1; it must be a heed.Generator", function()
      heed.rand(2, { generator = 1 })
    end)
    raises("randn: generator is a tensor of shape [1] and dtype float32; it must be a heed.Generator", function()
      heed.randn(2, { generator = heed.ones(1) })
    end)
    raises("get_state: generator is a table; it must be a heed.Generator", function()
      heed.Generator(1).get_state {}
    end)
    assert.error_matches(function() heed.Generator(1).get_state() end, "get_state: the generator is missing")
    raises("Generator: seed is a string ('x'); it must be an integer", function() heed.Generator "x" end)
  end)
end)

describe("draws", function()
  before_each(function() heed.manual_seed(123) end)

  it("have the given shape", function()
    assert.equal("heed.Size([2, 3])", tostring(heed.rand(2, 3).shape))
    assert.equal("heed.Size([2, 3])", tostring(heed.randn({ 2, 3 }).shape))
    assert.equal("heed.Size([])", tostring(heed.rand({}).shape))
    assert.equal("heed.Size([0])", tostring(heed.randn(0).shape))
  end)

  it("reject dtypes other than float32", function()
    assert.equal("float32", heed.rand(2, { dtype = "float32" }).dtype)
    raises("rand: dtype is 'int64'; it must be 'float32'", function() heed.rand(2, { dtype = "int64" }) end)
    raises("randn_like: dtype is 'bool'; it must be 'float32'", function()
      heed.randn_like(heed.ones(2):bool())
    end)
    raises("rand: there is no option 'seed'; the options are generator, dtype, requires_grad", function()
      heed.rand(2, { seed = 1 })
    end)
    assert.error_matches(function() heed.rand(-1) end,
      "rand: the shape is %[%-1%]; its sizes must not be negative")
  end)

  it("include both ends of randint", function()
    local x = heed.randint(1, 3, { 1000 })
    assert.equal("int64", x.dtype)
    assert.equal(1, (x:min():item()))
    assert.equal(3, (x:max():item()))
    assert.same({ 5, 5 }, heed.randint(5, 5, 2):tolist())
    assert.equal("heed.Size([2, 3])", tostring(heed.randint(1, 6, 2, 3).shape))
    assert.equal("heed.Size([])", tostring(heed.randint(1, 6, {}).shape))
    assert.equal("heed.Size([])", tostring(heed.randint(6, {}).shape))
    assert.equal(1, (heed.randint(2, { 100 }):min():item()))
    assert.equal("float32", heed.randint(1, 6, { 2 }, { dtype = "float32" }).dtype)
    near({ 1, 1 }, heed.randint(1, { 2 }):tolist())
  end)

  it("reject a randint without a shape or with low above high", function()
    raises("randint: the shape is missing; it must be the last argument, as a table if low is left out", function()
      heed.randint(1, 6)
    end)
    assert.error_matches(function() heed.randint(6, 1, { 2 }) end, "randint: .*high")
    raises("randint: low is the number 1.5; it must be an integer", function() heed.randint(1.5, 6, { 2 }) end)
    raises("randint: high is a table; it must be an integer", function() heed.randint({ 2 }) end)
  end)

  it("copy the shape of another tensor", function()
    local x = heed.zeros(2, 3)
    assert.equal("heed.Size([2, 3])", tostring(heed.rand_like(x).shape))
    assert.equal("heed.Size([2, 3])", tostring(x:randn_like().shape))
    assert.equal("float32", heed.randint_like(x, 5).dtype)
    assert.equal("int64", heed.randint_like(x, 2, 5, { dtype = "int64" }).dtype)
    assert.is_true(heed.randint_like(x, 2, 5):ge(2):all():item())
  end)

  it("permute", function()
    local seen = {}
    for _, i in heed.randperm(100):iter() do seen[i] = true end
    assert.equal(100, #seen)
    assert.same({}, heed.randperm(0):tolist())
    assert.error_matches(function() heed.randperm(-1) end, "randperm: ")
  end)

  it("fill in place", function()
    local x = heed.zeros(2, 50)
    assert.is_true(rawequal(x, x:uniform_(2, 3)))
    assert.is_true(x:ge(2):all():item() and x:lt(3):all():item())
    assert.is_true(rawequal(x, x:normal_ { mean = 100, std = 0.5 }))
    assert.is_true(x:gt(90):all():item())
    heed.manual_seed(123)
    local y = heed.zeros(3):uniform_():tolist()
    heed.manual_seed(123)
    assert.same(y, heed.rand(3):tolist())
    assert.error_matches(function() x:normal_(0, -1) end, "std")
    assert.error_matches(function() x:long():uniform_() end, "int64")
    local wrong = { { 3, 2 }, { 0 / 0, 1 }, { 0, 0 / 0 }, { 0, math.huge }, { -math.huge, 0 }, { -3e38, 3e38 } }
    for _, ends in ipairs(wrong) do
      assert.error_matches(function() x:uniform_(ends[1], ends[2]) end, "^uniform_: from is .* from at most to$")
    end
    assert.same({ 2, 2 }, heed.zeros(2):uniform_(2, 2):tolist())
  end)

  it("include Bernoulli draws", function()
    assert.same({ 0, 1, 0, 1 }, heed.bernoulli(heed.tensor { 0, 1, 0, 1 }):tolist())
    assert.same({ 1 }, heed.ones(1):bernoulli { generator = heed.Generator(1) }:tolist())
    assert.error_matches(function() heed.bernoulli(heed.tensor { 0.5, 2 }) end, "bernoulli: ")
    raises("bernoulli: p is the number 0.5; it must be a tensor", function() heed.bernoulli(0.5) end)
  end)
end)

describe("dropout", function()
  after_each(function() heed.set_dropout_stream "native" end)

  it("zeroes with probability p and scales the rest", function()
    heed.manual_seed(123)
    local x = heed.dropout(heed.ones(1000), 0.25)
    for _, v in x:iter() do assert.is_true(v == 0 or math.abs(v - 4 / 3) < 1e-6) end
    local kept = x:ne(0):sum():item()
    assert.is_true(kept > 700 and kept < 800)
    assert.same({ 0, 0 }, heed.dropout(heed.ones(2), 1):tolist())
  end)

  it("draws nothing in evaluation mode and at p = 0", function()
    heed.manual_seed(1)
    local first = heed.rand(1)[1]
    heed.manual_seed(1)
    assert.same({ 1, 1 }, heed.dropout(heed.ones(2), 0.5, false):tolist())
    assert.same({ 1, 1 }, heed.ones(2):dropout({ p = 0 }):tolist())
    assert.equal(first, heed.rand(1)[1])
  end)

  it("has two random streams", function()
    heed.manual_seed(123)
    local native = heed.dropout(heed.ones(6, 6), 0.5):tolist()
    heed.set_dropout_stream "mkl"
    heed.manual_seed(123)
    local mkl = heed.dropout(heed.ones(6, 6), 0.5):tolist()
    heed.set_dropout_stream "native"
    heed.manual_seed(123)
    assert.same(native, heed.dropout(heed.ones(6, 6), 0.5):tolist())
    assert.is_false(pcall(assert.same, native, mkl))
  end)

  it("rejects invalid streams and probabilities", function()
    raises("set_dropout_stream: stream is a string ('intel'); it must be 'native' or 'mkl'", function()
      heed.set_dropout_stream "intel"
    end)
    raises("set_dropout_stream: stream is nil; it must be 'native' or 'mkl'", function()
      heed.set_dropout_stream()
    end)
    raises("dropout: p is 1.5; it must be from 0 to 1", function() heed.dropout(heed.ones(2), 1.5) end)
    assert.error_matches(function() heed.dropout(heed.ones(2):long(), 0.5) end, "dropout: .*int64")
  end)
end)

describe("heed.default_generator", function()
  local generator = heed.default_generator

  it("is what manual_seed seeds and functions draw from", function()
    heed.manual_seed(5)
    local expected = { heed.rand(3):tolist(), heed.randperm(4):tolist() }
    generator:manual_seed(5)
    assert.same(expected, { heed.rand(3, { generator = generator }):tolist(), heed.randperm(4):tolist() })
    assert.equal("heed.Generator", tostring(generator))
  end)

  it("has a state that can be restored", function()
    heed.manual_seed(6)
    heed.randn(3)
    local state = generator:get_state()
    local expected = heed.randn(5):tolist()
    heed.rand(100)
    generator:set_state(state)
    assert.same(expected, heed.randn(5):tolist())
    assert.equal(state, heed.Generator(1):set_state(state):get_state())
  end)
end)
