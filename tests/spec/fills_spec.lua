-- Random fills of views: PyTorch fills a tensor in the order of its elements in memory. The expected bits in
-- tests/golden/fills.lua are PyTorch's.
local heed = require "heed"

local function apply(x, operation)
  local kind, dim = operation[1], operation[2]
  if kind == "T" then return x.T end
  if kind == "slice" then
    local index = {}
    for d = 1, x.ndim do index[d] = d == dim and { table.unpack(operation, 3) } or {} end
    return x[index]
  end
  return x[kind](x, table.unpack(operation, 2))
end

-- range(1, n) in the given shape, and the view of it.
local function base_and_view(shape, operations)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  local base = heed.range(1, count):view(shape)
  local x = base
  for _, operation in ipairs(operations) do x = apply(x, operation) end
  return base, x
end

local in_place = {
  uniform = function(x) return x:uniform_() end,
  uniform_ends = function(x) return x:uniform_(-0.5, 2) end,
  normal = function(x) return x:normal_() end,
  normal_scaled = function(x) return x:normal_(0.5, 2) end,
}
local new = {
  rand_like = heed.rand_like,
  randn_like = heed.randn_like,
  randint_like = function(x) return heed.randint_like(x, 1000) end,
  bernoulli = function(x) return heed.bernoulli(x / 64) end,
  dropout = function(x) return heed.dropout(x, 0.25) end,
  dropout_twice = function(x) return heed.dropout(heed.dropout(x, 0.25), 0.5) end,
  filled_zeros_like = function(x) return heed.zeros_like(x):uniform_() end,
  filled_rand_like = function(x) return heed.rand_like(x):normal_() end,
}

local function bits(x)
  return (x:contiguous():to_string():gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

local function described(case)
  local parts = {}
  for i, operation in ipairs(case.operations) do parts[i] = table.concat(operation, " ") end
  local of = ("[%s]"):format(table.concat(case.shape, ", "))
  return #parts > 0 and ("%s of %s"):format(table.concat(parts, ", "), of) or of
end

describe("a random draw is bit-identical to PyTorch's", function()
  for _, case in ipairs(dofile "tests/golden/fills.lua") do
    for _, draw in ipairs(case.draws) do
      local name, seed, expected = draw[1], draw[2], draw[3]
      it(("for %s on %s"):format(name, described(case)), function()
        local base, x = base_and_view(case.shape, case.operations)
        heed.manual_seed(seed)
        if not expected then
          local before = bits(base)
          assert.error_matches(function() in_place[name](x) end, "share memory; clone it first")
          assert.equal(before, bits(base))
          return
        end
        local result = (new[name] or in_place[name])(x)
        assert.equal(expected, bits(new[name] and result or base) .. bits(heed.rand(1)) .. bits(heed.randn(1)))
      end)
    end

    it(("in a result with the memory layout of %s"):format(described(case)), function()
      local _, x = base_and_view(case.shape, case.operations)
      for name in pairs { rand_like = 1, randint_like = 1, zeros_like = 1, dropout = 1 } do
        local made = name == "randint_like" and x:randint_like(5) or x[name](x)
        local stride = made:stride()
        for d, size in ipairs(made.shape) do
          if size > 1 and made:numel() > 0 then assert.equal(case.stride[d], stride[d], name) end
        end
      end
    end)
  end
end)

describe("a large view", function()
  local threads = heed.get_num_threads()
  after_each(function()
    heed.set_num_threads(threads)
    heed.set_dropout_stream "native"
  end)

  -- f(x) with this number of threads, from the same seed
  local function drawn(count, f, x)
    heed.set_num_threads(count)
    heed.manual_seed(7)
    return bits(f(x))
  end

  it("is filled in the order of its memory, with any number of threads", function()
    for _, count in ipairs { 1, 3 } do
      local tall, wide = heed.zeros(300, 200), heed.zeros(300, 200)
      drawn(count, in_place.uniform, tall.T)
      drawn(count, in_place.uniform, wide)
      assert.equal(bits(wide), bits(tall))
    end
    local gaps = heed.zeros(300, 400)[{ {}, { 1, 400, 2 } }].T
    assert.equal(drawn(1, in_place.normal, gaps), drawn(3, in_place.normal, gaps))
  end)

  it("gets its dropout in row-major order with the mkl stream", function()
    heed.set_dropout_stream "mkl"
    local x = heed.range(1, 6000):view(60, 100).T
    for _, count in ipairs { 1, 3 } do
      assert.equal(drawn(count, new.dropout, x:contiguous()), drawn(count, new.dropout, x))
    end
  end)
end)
