-- Operations from Lua: arguments, results and messages. That the numbers are PyTorch's is checked by
-- golden_spec.lua.
local heed = require "heed"
local fails = require "tests.fails"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0

local function tensor(data, dtype) return heed.tensor(data, { dtype = dtype }) end

-- Shape, dtype and elements at once: "float32[2] 1 2".
local function show(x)
  local values = {}
  for i, v in ipairs(x:flatten():tolist()) do
    values[i] = v ~= v and "nan" or type(v) == "number" and ("%.6g"):format(v) or tostring(v)
  end
  return ("%s[%s] %s"):format(x.dtype, table.concat(x.shape, ", "), table.concat(values, " "))
end

local function shows(expected, x) assert.equal(expected, show(x)) end

describe("arithmetic", function()
  local a, b = tensor { 1, 2, 3 }, tensor { 4, 5, 6 }

  it("accepts tensors on both sides", function()
    shows("float32[3] 5 7 9", a + b)
    shows("float32[3] -3 -3 -3", a - b)
    shows("float32[3] 4 10 18", a * b)
    shows("float32[3] 0.25 0.4 0.5", a / b)
    shows("float32[3] 1 32 729", a ^ b)
    shows("float32[3] 0 1 0", b % tensor { 2, 2, 3 })
    shows("float32[3] -1 -2 -3", -a)
  end)

  it("accepts a number on either side", function()
    shows("float32[3] 2 3 4", a + 1)
    shows("float32[3] 2 3 4", 1 + a)
    shows("float32[3] 9 8 7", 10 - a)
    shows("float32[3] 6 3 2", 6 / a)
    shows("float32[3] 2 4 8", 2 ^ a)
    shows("float32[3] 0 1 1", 7 % a)
  end)

  it("broadcasts", function()
    shows("float32[2, 3] 11 12 13 21 22 23", tensor { { 10 }, { 20 } } + a)
    shows("float32[0, 3] ", heed.zeros(0, 3) + a)
  end)

  it("broadcasts as if each operand were repeated, whatever its dimensions and strides", function()
    local shapes = {
      { { 2, 3, 4, 5 }, { 2, 1, 4, 1 }, { 3, 1, 5 } },
      { { 2, 3, 4, 5 }, { 1, 3, 1, 5 }, { 2, 3, 4, 1 } },
      { { 4, 1, 3, 1, 7 }, { 1, 5, 1, 2, 1 }, { 1 } },
      { { 8, 40000 }, { 8, 1 }, { 40000 } }, -- large enough to be divided among threads: by rows
      { { 3, 100000 }, { 3, 1 }, { 1, 1 } }, -- and by parts of rows
      { { 2, 3, 700, 1, 70 }, { 3, 1, 1, 70 }, { 2, 1, 700, 2, 1 } },
    }
    for _, case in ipairs(shapes) do
      local x, y, z = heed.randn(case[1]), heed.randn(case[2]), heed.randn(case[3])
      local shape = (x + y + z).shape
      local function whole(operand) return operand:expand(shape):contiguous() end
      assert.is_true(heed.equal(whole(x) + whole(y), (x + y):expand(shape)))
      assert.is_true(heed.equal(whole(x):gt(whole(y)), x:gt(y):expand(shape)))
      assert.is_true(heed.equal(heed.where(whole(x:gt(y)), whole(y), whole(z)), heed.where(x:gt(y), y, z)))
    end
  end)

  describe("handles views with permuted dimensions like copies:", function()
    local orders = {
      { shape = { 37, 53 }, dims = { 2, 1 } },
      { shape = { 2, 40 }, dims = { 2, 1 } },
      { shape = { 40, 2 }, dims = { 2, 1 } },
      { shape = { 3, 1, 150 }, dims = { 3, 2, 1 } },
      { shape = { 5, 6, 19, 33 }, dims = { 4, 3, 2, 1 } },
      { shape = { 5, 6, 19, 33 }, dims = { 3, 4, 1, 2 } },
      { shape = { 5, 6, 19, 33 }, dims = { 1, 4, 2, 3 } },
      { shape = { 600, 500 }, dims = { 2, 1 } }, -- these are large enough to be divided among threads among threads
      { shape = { 9, 30000 }, dims = { 2, 1 } },
      { shape = { 30000, 9 }, dims = { 2, 1 } },
      { shape = { 4, 300, 2, 170 }, dims = { 4, 2, 1, 3 } },
    }
    for _, order in ipairs(orders) do
      it(("[%s] as (%s)"):format(table.concat(order.shape, ", "), table.concat(order.dims, ", ")), function()
        for threads = 1, 2 do
          heed.set_num_threads(threads)
          local x = heed.randn(order.shape):permute(order.dims)
          local y, packed = heed.randn(x.shape), x:contiguous()
          assert.is_true(heed.equal(packed, heed.tensor(x:tolist())))
          assert.is_true(heed.equal(packed:exp(), x:exp()))
          assert.is_true(heed.equal(packed + y, x + y))
          assert.is_true(heed.equal(packed - packed:neg(), x - x:neg()))
          assert.is_true(heed.equal(packed:gt(y), x:gt(y)))
          assert.is_true(heed.equal(packed:gt(0):logical_and(packed), x:gt(0):logical_and(x)))
          assert.is_true(heed.equal(packed + y:long(), x + y:long()))
          assert.is_true(heed.equal(heed.where(packed:gt(0), packed, y), heed.where(x:gt(0), x, y)))
          assert.is_true(heed.equal(packed:long() * 3, x:long() * 3))
          local into = heed.zeros(order.shape):permute(order.dims)
          assert.is_true(heed.equal(packed, into:copy_(x)))
          assert.is_true(heed.equal(y, into:copy_(y)))
          assert.is_true(heed.equal(y + packed, into:add_(x)))
          assert.is_true(heed.equal(packed * y, x:mul_(y)))
          assert.is_true(heed.equal(packed * y - 1, x:sub_(1)))
        end
        heed.set_num_threads(1)
      end)
    end
  end)

  it("finds the first largest and smallest element in rows of any length, and nan before all others", function()
    local function expected(row, better)
      local at = 1
      for i = 2, #row do
        if row[at] ~= row[at] then break end
        if row[i] ~= row[i] or better(row[i], row[at]) then at = i end
      end
      return at
    end
    local larger, smaller = function(x, best) return x > best end, function(x, best) return x < best end
    for _, n in ipairs { 1, 2, 3, 7, 16, 17, 64, 255, 256, 257, 600, 1025 } do
      local rows = heed.randint(-9, 10, { 6, n }):float()
      rows[2][n] = nan
      rows[3][math.floor(n / 2) + 1], rows[3][n] = nan, nan
      rows[4]:fill_(-inf)
      rows[5]:fill_(inf)
      rows[6]:mul_(0) -- 0 and -0
      for _, x in ipairs { rows, rows.T:contiguous().T } do
        local largest, largest_at = x:max(2)
        local smallest, smallest_at = x:min(2)
        for i, row in ipairs(x:tolist()) do
          local at = expected(row, larger)
          assert.equal(at, largest_at[i])
          assert.equal(tostring(row[at]), tostring(largest[i]))
          at = expected(row, smaller)
          assert.equal(at, smallest_at[i])
          assert.equal(tostring(row[at]), tostring(smallest[i]))
        end
      end
    end
  end)

  it("is available as functions and as methods", function()
    shows("float32[3] 5 7 9", heed.add(a, b))
    shows("float32[3] 5 7 9", a:add(b))
    shows("float32[3] 9 8 7", heed.sub(10, a))
    shows("float32[3] 1 4 9", a:pow(2))
    shows("float32[3] 1 2 2", a:minimum(2))
    shows("float32[3] 2 2 3", heed.maximum(2, a))
  end)

  it("computes in the wider dtype", function()
    local i, t = tensor({ 7, -7 }, "int64"), tensor { true, false }
    shows("int64[2] 8 -6", i + 1)
    shows("float32[2] 7.5 -6.5", i + 0.5)
    shows("float32[2] 3.5 -3.5", i / 2)
    shows("int64[2] 1 2", i % 3)
    shows("int64[2] 49 49", i ^ 2)
    shows("int64[2] 8 -7", i + t)
    shows("float32[2] 2 1", t + tensor { 1, 1 })
    shows("int64[2] 3 0", t * 3)
  end)

  support.where("integers", it, pending)("wraps around for int64", function()
    local x = tensor({ math.maxinteger }, "int64") + 1
    assert.equal(math.mininteger, x[1])
  end)

  it("names an operand that is not a tensor or a number", function()
    fails("add: b is a string ('2'); it must be a tensor or a number", function() return a + "2" end)
    fails("mul: a is a string ('2'); it must be a tensor or a number", function() return "2" * a end)
    fails("sub: b is nil; it must be a tensor or a number", heed.sub, a)
    fails("pow: a is a table; it must be a tensor or a number", heed.pow, {}, a)
    fails("div: a and b are both numbers; one of them must be a tensor", heed.div, 1, 2)
    fails("mul: 3 arguments were given; it takes at most 2", heed.mul, a, b, b)
    fails("add: alpha is a tensor of shape [3] and dtype float32; it must be a number", heed.add, a, b, b)
  end)

  it("names the shapes that do not fit", function()
    local ok, message = pcall(heed.add, heed.ones(2, 3), heed.ones(2))
    assert.is_false(ok)
    assert.matches("^add: ", message)
    assert.matches("[2, 3]", message, 1, true)
    assert.matches("[2]", message, 1, true)
  end)

  it("points at the caller's line", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local ok, message = pcall(function() return a + "2" end)
    assert.is_false(ok)
    assert.matches("ops_spec.lua:" .. line .. ": add: ", message, 1, true)
  end)
end)

describe("comparison and logic", function()
  local a, b = tensor { 1, 2, 3 }, tensor { 3, 2, 1 }
  local p, q = tensor { true, true, false }, tensor { true, false, false }

  it("gives bool", function()
    shows("bool[3] false true false", a:eq(b))
    shows("bool[3] true false true", a:ne(b))
    shows("bool[3] true false false", a:lt(b))
    shows("bool[3] true true false", a:le(2))
    shows("bool[3] false false true", heed.gt(a, 2))
    shows("bool[3] true true false", heed.ge(2, a))
  end)

  it("has logical functions for any dtype", function()
    shows("bool[3] true false true", tensor { 1, 0, 2 }:logical_and(a))
    shows("bool[3] false true false", heed.logical_not(tensor { 1, 0, 2 }))
  end)

  support.where("bit_operators", it, pending)("has logical operators for bool", function()
    local apart = support.compile "local a, b = ... local x = a & b return x"
    local either = support.compile "local a, b = ... local x = a | b return x"
    local differs = support.compile "local a, b = ... local x = a ~ b return x"
    local neither = support.compile "local a = ... local x = ~a return x"
    shows("bool[3] true false false", apart(p, q))
    shows("bool[3] true true false", either(p, q))
    shows("bool[3] false true false", differs(p, q))
    shows("bool[3] false false true", neither(p))
    shows("bool[3] true true false", apart(p, true))
    local what = "a tensor of shape [3] and dtype float32"
    fails("&: an operand is " .. what .. "; it must be a bool tensor", apart, a, p)
    fails("~: an operand is " .. what .. "; it must be a bool tensor", neither, a)
    fails("|: an operand is the number 1; it must be a bool tensor", either, p, 1)
  end)

  it("finds nan and inf", function()
    shows("bool[4] false true false false", tensor { 1, nan, inf, -inf }:isnan())
    shows("bool[4] false false true true", tensor { 1, nan, inf, -inf }:isinf())
  end)

  it("compares whole tensors", function()
    assert.is_true(heed.equal(a, a:clone()))
    assert.is_false(a:equal(b))
    assert.is_false(a:equal(heed.ones(2)))
    assert.is_true(a:allclose(a + 1e-6))
    assert.is_false(a:allclose(a + 1e-3))
    assert.is_true(a:allclose(a + 1e-3, 1e-2))
    assert.is_true(a:allclose(a + 1e-3, { atol = 1e-2 }))
    assert.is_false(tensor { nan }:allclose(tensor { nan }))
    assert.is_true(tensor { nan }:allclose(tensor { nan }, { equal_nan = true }))
    fails("equal: b is the number 1; it must be a tensor", heed.equal, a, 1)
    fails("allclose: there is no option 'tol'; the options are rtol, atol, equal_nan", heed.allclose, a, a, { tol = 1 })
  end)
end)

describe("an elementwise function", function()
  local x = tensor { -1, 0, 4 }

  it("works on each element", function()
    shows("float32[3] 1 0 4", x:abs())
    shows("float32[3] 0 0 4", heed.relu(x))
    shows("float32[3] 0.367879 1 inf", tensor({ -1, 0, 100 }):exp())
    shows("int64[2] 1 2", tensor({ -1, 2 }, "int64"):abs())
    shows("float32[2] 1 2", tensor({ 1, 4 }, "int64"):sqrt())
  end)

  it("has two forms of gelu", function()
    local exact, approximate = heed.gelu(x), x:gelu { approximate = "tanh" }
    assert.is_false(exact:equal(approximate))
    assert.is_true(exact:allclose(approximate, { atol = 1e-3 }))
    assert.is_true(exact:equal(x:gelu "none"))
    fails("gelu: approximate is a string ('erf'); it must be 'none' or 'tanh'", x.gelu, x, "erf")
  end)

  it("clamps to numbers, to tensors and at one end", function()
    shows("float32[3] -0.5 0 0.5", x:clamp(-0.5, 0.5))
    shows("float32[3] 0 0 4", x:clamp { min = 0 })
    shows("float32[3] -1 0 2", x:clamp(nil, 2))
    shows("float32[3] -1 0 3", x:clamp { max = tensor { 1, 2, 3 } })
    shows("float32[3] 0 0 0", x:clamp(1, 0)) -- max takes precedence, as in PyTorch
    shows("int64[3] 2 5 7", tensor({ 1, 5, 9 }, "int64"):clamp(2, 7))
    shows("float32[3] 1.5 5 7", tensor({ 1, 5, 9 }, "int64"):clamp(1.5, 7))
    shows("float32[3] nan 0 1", tensor({ 0 / 0, -1 / 0, 1 / 0 }):clamp(0, 1))
    shows("float32[2, 2] 1 2 1 3", tensor({ 0, 5 }):clamp(1, tensor { { 2 }, { 3 } }))
    fails("clamp: min and max are both nil; one of them must be given", heed.clamp, x)
    fails("clamp: x is [3] and max is [2]; to broadcast, sizes counted from the last must be equal or 1",
      heed.clamp, x, 0, heed.ones(2))
  end)

  it("selects by a mask", function()
    local mask = tensor { true, false, true }
    shows("float32[3] -1 9 4", heed.where(mask, x, 9))
    shows("float32[3] -1 -inf 4", mask:where(x, -inf))
    shows("float32[3] -inf 0 -inf", x:masked_fill(mask, -inf))
    shows("float32[3] 7 0 7", x:masked_fill(mask, tensor(7)))
    shows("float32[2, 3] -1 0 4 -1 0 4", heed.where(tensor { { true }, { true } }, x, 0))
    fails("masked_fill: value is a tensor of shape [3] and dtype float32; it must be a number or a tensor of no " ..
      "dimensions", heed.masked_fill, x, mask, x)
    fails("masked_fill: mask is nil; it must be a tensor", heed.masked_fill, x)
  end)

  it("keeps the lower or upper triangle", function()
    local m = heed.ones(3, 3)
    shows("float32[3, 3] 1 0 0 1 1 0 1 1 1", m:tril())
    shows("float32[3, 3] 0 1 1 0 0 1 0 0 0", heed.triu(m, 1))
    shows("float32[3, 3] 0 0 0 1 0 0 1 1 0", m:tril { diagonal = -1 })
    fails("tril: diagonal is the number 0.5; it must be an integer", m.tril, m, 0.5)
  end)

  it("names a value that is not a tensor", function()
    fails("exp: x is the number 1; it must be a tensor", heed.exp, 1)
    fails("exp: x is nil; it must be a tensor", heed.exp)
    fails("tanh: 2 arguments were given; it takes at most 1", heed.tanh, x, 1)
  end)
end)

describe("an in-place function", function()
  it("changes the tensor and returns it", function()
    local x = tensor { 1, 4, 9 }
    assert.equal(x, x:sqrt_())
    assert.equal(x, x:add_(1))
    assert.equal(x, heed.mul_(x, tensor { 1, 2, 3 }))
    shows("float32[3] 2 6 12", x)
    shows("float32[3] 2 5 5", x:clamp_(nil, 5))
    shows("float32[3] 2 0 5", x:masked_fill_(tensor { false, true, false }, 0))
    shows("float32[2, 2] 1 0 1 1", heed.ones(2, 2):tril_())
  end)

  it("writes through views as if the inputs had been copied first", function()
    local x = tensor { 1, 2, 3, 4 }
    x:narrow(1, 2, 3):add_(x:narrow(1, 1, 3))
    shows("float32[4] 1 3 5 7", x)
    local m = tensor { { 1, 2 }, { 3, 4 } }
    m:sub_(m:t())
    shows("float32[2, 2] 0 -1 1 0", m)
    m:select(2, 1):add_(10)
    shows("float32[2, 2] 10 -1 11 0", m)
  end)

  it("keeps shape and dtype, or fails and leaves the tensor unchanged", function()
    local i = tensor({ 1, 2 }, "int64")
    shows("int64[2] 3 6", i:mul_(3))
    assert.is_false(pcall(i.add_, i, 0.5))
    assert.is_false(pcall(i.div_, i, 2))
    assert.is_false(pcall(i.add_, i, heed.ones(2, 2)))
    shows("int64[2] 3 6", i)
    shows("float32[2] 1 0", tensor { 1, 5 }:eq_(1))
  end)

  it("rejects a tensor whose elements overlap in memory", function()
    local x = heed.ones(1):expand(3)
    assert.is_false(pcall(x.add_, x, 1))
    shows("float32[3] 1 1 1", x)
  end)

  it("needs a tensor to change", function()
    fails("add_: a is the number 1; it must be a tensor", heed.add_, 1, heed.ones(2))
    fails("exp_: x is nil; it must be a tensor", heed.exp_)
  end)
end)

describe("a reduction", function()
  local x = tensor { { 1, 2, 3 }, { 4, 5, 9 } }

  it("accepts one dimension, several, or none", function()
    shows("float32[] 24", x:sum())
    shows("float32[3] 5 7 12", x:sum(1))
    shows("float32[2] 6 18", heed.sum(x, -1))
    shows("float32[2, 1] 2 6", x:mean(2, true))
    shows("float32[2, 1] 2 6", x:mean { dim = 2, keepdim = true })
    shows("float32[1, 1] 4", x:mean({ 1, 2 }, true))
    shows("float32[1, 1] 24", x:sum { keepdim = true })
    shows("int64[] 2", tensor({ true, true, false }):sum())
    shows("bool[3] true true false", tensor { { 1, 0, 0 }, { 1, 2, 0 } }:any(1))
    shows("bool[] false", tensor { 1, 0 }:all())
  end)

  it("divides by n - 1 in var and std by default", function()
    shows("float32[2] 1 7", x:var(2))
    shows("float32[2, 1] 1 2.64575", x:std(2, true))
    shows("float32[] 1.25", tensor { 1, 2, 3, 4 }:var { unbiased = false })
    shows("float32[] 1.25", tensor { 1, 2, 3, 4 }:var { correction = 0 })
    fails("std: correction and unbiased are both given; give one of them", x.std, x,
      { correction = 1, unbiased = true })
  end)

  it("gives values and indices, the total maximum, or the larger of two in max and min", function()
    local values, indices = x:max(1)
    shows("float32[3] 4 5 9", values)
    shows("int64[3] 2 2 2", indices)
    values, indices = heed.min(x, { dim = -1, keepdim = true })
    shows("float32[2, 1] 1 4", values)
    shows("int64[2, 1] 1 1", indices)
    shows("float32[] 9", x:max())
    shows("float32[2, 3] 3 3 3 4 5 9", x:max(tensor { 3, 3, 3 }))
    shows("int64[] 6", x:argmax())
    shows("int64[2] 3 3", x:argmax(-1))
    shows("int64[1, 3] 1 1 1", x:argmin(1, true))
  end)

  it("names a dimension that does not exist", function()
    local ok, message = pcall(x.sum, x, 3)
    assert.is_false(ok)
    assert.matches("^sum: ", message)
    fails("sum: dim is 0; it must be at least 1, or at most -1 (the last)", x.sum, x, 0)
    fails("max: dim is 0; it must be at least 1, or at most -1 (the last)", x.max, x, 0)
    fails("sum: dim is the number 1.5; it must be an integer", x.sum, x, 1.5)
    fails("mean: keepdim is the number 1; it must be a boolean", x.mean, x, 1, 1)
    fails("sum: there is no option 'dims'; the options are dim, keepdim", x.sum, x, { dims = 1 })
    fails("sum: dim is given twice, by position and by name", x.sum, x, 1, { dim = 1 })
  end)
end)

describe("a function along a dimension", function()
  local x = tensor { { 3, 1, 2 }, { 4, 6, 5 } }

  it("needs the dimension in softmax and cumsum", function()
    shows("float32[2] 0.5 0.5", heed.softmax(heed.zeros(2), 1))
    shows("float32[2] nan nan", tensor { -inf, -inf }:softmax(-1))
    shows("float32[2, 3] 3 4 6 4 10 15", x:cumsum(2))
    shows("float32[2, 3] 3 1 2 7 7 7", x:cumsum { dim = 1 })
    fails("softmax: dim is nil; it must be an integer", x.softmax, x)
  end)

  it("sorts, and gives the indices", function()
    local values, indices = x:sort()
    shows("float32[2, 3] 1 2 3 4 5 6", values)
    shows("int64[2, 3] 2 3 1 1 3 2", indices)
    shows("float32[2, 3] 4 6 5 3 1 2", (x:sort(1, true)))
    shows("int64[2, 3] 1 3 2 2 3 1", x:argsort { descending = true })
    values, indices = x:topk(2)
    shows("float32[2, 2] 3 2 6 5", values)
    shows("int64[2, 2] 1 3 2 3", indices)
    shows("float32[1, 3] 3 1 2", (heed.topk(x, { k = 1, dim = 1, largest = false })))
    fails("topk: k is nil; it must be an integer", x.topk, x)
  end)

  it("normalizes", function()
    shows("float32[2] -0.999995 0.999995", heed.layer_norm(tensor { 1, 3 }))
    shows("float32[2] 1.00001 2.99999", heed.layer_norm(tensor { 1, 3 }, heed.ones(2), tensor { 2, 2 }))
    shows("float32[2] 0.632456 1.26491", heed.rms_norm(tensor { 1, 2 }, { eps = 0 }))
    shows("float32[2] 0.607072 0.809429", heed.rms_norm(tensor { 3e-4, 4e-4 })) -- PyTorch's, with the default eps
  end)
end)

describe("a product", function()
  local a = tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }

  it("multiplies matrices", function()
    shows("float32[3, 3] 5 11 17 11 25 39 17 39 61", a:matmul(a:t()))
    shows("float32[3, 3] 5 11 17 11 25 39 17 39 61", heed.mm(a, a.T))
    shows("float32[3] 3 7 11", a:matmul(heed.ones(2)))
    shows("float32[] 5", heed.dot(a[1], a[1]))
    shows("float32[3, 1] 4 8 12", heed.linear(a, heed.ones(1, 2), heed.ones(1)))
  end)

  it("names the sizes that do not fit", function()
    fails("matmul: a is [6, 3] and b is [2, 3]; the last size of a (3) must equal the first size of b (2)",
      heed.matmul, heed.ones(6, 3), heed.ones(2, 3))
    fails("matmul: b is the number 2; it must be a tensor", heed.matmul, a, 2)
  end)
end)

describe("scaled_dot_product_attention", function()
  local q, k = heed.ones(4, 2, 3), heed.ones(2, 2, 3)
  local v = tensor { { { 1 }, { 2 } }, { { 3 }, { 4 } } }

  it("accepts options by name or by position", function()
    local mask = tensor { { true, false }, { true, true } }
    shows("float32[4, 2, 1] 1 1.5 1 1.5 3 3.5 3 3.5", heed.scaled_dot_product_attention(q, k, v, { attn_mask = mask }))
    shows("float32[4, 2, 1] 1 1.5 1 1.5 3 3.5 3 3.5", heed.scaled_dot_product_attention(q, k, v, mask))
    shows("float32[4, 2, 1] 1 1.5 1 1.5 3 3.5 3 3.5", heed.scaled_dot_product_attention(q, k, v, { is_causal = true }))
    shows("float32[4, 2, 1] 1.5 1.5 1.5 1.5 3.5 3.5 3.5 3.5", q:scaled_dot_product_attention(k, v))
  end)

  it("accepts a scale of 0", function()
    local x = tensor { { 1, 0 }, { 0, 100 } }
    shows("float32[2, 1] 1.5 1.5", heed.scaled_dot_product_attention(x, x, tensor { { 1 }, { 2 } }, { scale = 0 }))
  end)

  it("rejects groups of heads if enable_gqa is false", function()
    fails("scaled_dot_product_attention: q has 4 heads, k has 2 and v has 2; with enable_gqa = false these " ..
      "numbers must be equal", heed.scaled_dot_product_attention, q, k, v, { enable_gqa = false })
  end)

  it("lists its options", function()
    fails("scaled_dot_product_attention: there is no option 'mask'; the options are attn_mask, dropout_p, is_causal, "
      .. "scale, enable_gqa, generator, window, softcap, kv_lengths, past_key, past_value, alibi_slopes, sinks, "
      .. "need_weights, need_lse", heed.scaled_dot_product_attention, q, k, v, { mask = 1 })
  end)
end)

describe("a view", function()
  local x = heed.range(1, 6):view(2, 3)

  it("accepts sizes as numbers or as one table", function()
    shows("float32[3, 2] 1 2 3 4 5 6", x:view(3, 2))
    shows("float32[3, 2] 1 2 3 4 5 6", x:reshape { 3, -1 })
    shows("float32[3, 2] 1 2 3 4 5 6", x:reshape(x.T.shape))
    shows("float32[2, 2, 3] 1 2 3 4 5 6 1 2 3 4 5 6", x:expand(2, -1, -1))
    shows("float32[3, 2] 1 4 2 5 3 6", x:permute(2, 1))
    shows("float32[3, 2] 1 4 2 5 3 6", heed.permute(x, { 2, 1 }))
  end)

  it("reorders, slices and adds dimensions", function()
    shows("float32[3, 2] 1 4 2 5 3 6", x:transpose(1, -1))
    shows("float32[3, 2] 1 4 2 5 3 6", x:t())
    shows("float32[2, 2] 2 3 5 6", x:narrow(2, 2, 2))
    shows("float32[2] 3 6", x:select(2, -1))
    shows("float32[2, 1, 3] 1 2 3 4 5 6", x:unsqueeze(2))
    shows("float32[2, 3, 1] 1 2 3 4 5 6", x:unsqueeze(-1))
    shows("float32[2, 3] 1 2 3 4 5 6", x:unsqueeze(1):squeeze())
    shows("float32[2, 3] 1 2 3 4 5 6", x:squeeze(1))
    shows("float32[6] 1 2 3 4 5 6", x:flatten())
    shows("float32[2, 3] 1 2 3 4 5 6", x:view(2, 3, 1):flatten(2))
    shows("float32[2, 3] 1 2 3 4 5 6", x:view(2, 1, 3):flatten { start_dim = 2, end_dim = 3 })
  end)

  it("shares its elements", function()
    local base = heed.zeros(2, 3)
    base:t():select(1, 2):add_(1)
    base:view(6):narrow(1, 1, 1):add_(5)
    shows("float32[2, 3] 5 1 0 0 1 0", base)
  end)

  it("names wrong arguments", function()
    fails("t: x is [1, 2, 3]; it must have at most 2 dimensions (transpose takes more)", heed.t, heed.ones(1, 2, 3))
    fails("narrow: length is nil; it must be an integer", heed.narrow, x, 1, 1)
    fails("squeeze: dim is 0; it must be at least 1, or at most -1 (the last)", heed.squeeze, x, 0)
    fails("select: index is the number 1.5; it must be an integer", heed.select, x, 1, 1.5)
    fails("view: x is nil; it must be a tensor", heed.view)
    for _, call in ipairs {
      function() return x:view(4, 2) end, function() return x:view(-1, -1) end, function() return x:view(4, -1) end,
      function() return x:t():view(6) end, function() return x:expand(2, 4) end, function() return x:permute(1, 1) end,
      function() return x:permute(1) end, function() return x:permute(0, 1) end, function() return x:unsqueeze(0) end,
      function() return x:transpose(1, 3) end, function() return x:select(1, 3) end,
      function() return x:narrow(2, 2, 3) end, function() return x:flatten(2, 1) end,
      function() return x:view(math.maxinteger, math.maxinteger) end,
      function() return heed.permute(x, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) end,
    } do
      local ok, message = pcall(call)
      assert.is_false(ok)
      assert.matches(support.has.places and "^[^:]+:%d+: %a+: %w" or "%a+: %w", message)
    end
  end)
end)

describe("joining and splitting", function()
  local x = heed.range(1, 6):view(2, 3)

  it("joins along a dimension", function()
    shows("float32[4, 3] 1 2 3 4 5 6 1 2 3 4 5 6", heed.cat { x, x })
    shows("float32[2, 4] 1 2 3 0 4 5 6 0", heed.concat({ x, heed.zeros(2, 1) }, -1))
    shows("float32[2, 2] 1 2 1 2", heed.stack { x[1]:narrow(1, 1, 2), x[1]:narrow(1, 1, 2) })
    shows("float32[3, 2] 1 1 2 2 3 3", heed.stack({ x[1], x[1] }, { dim = -1 }))
  end)

  it("joins any number of tensors", function()
    local count = 2 ^ 17 + 3
    local whole, list = heed.range(1, count, 1, { dtype = "int64" }), {}
    for i, part in ipairs(whole:split(1)) do list[i] = part end
    assert.is_true(heed.cat(list):equal(whole))
    list[2 ^ 16 + 1] = "a"
    fails("cat: tensors[65537] is a string ('a'); it must be a tensor", heed.cat, list)
  end)

  it("names an element that is not a tensor", function()
    fails("cat: tensors is a tensor of shape [2, 3] and dtype float32; it must be a table of tensors, as in {a, b}",
      heed.cat, x, x)
    fails("stack: tensors[2] is the number 3; it must be a tensor", heed.stack, { x, 3 })
    local released = heed.ones(1)
    released:release()
    fails("cat: tensors[1] is a released tensor; it must be a tensor", heed.cat, { released })
    assert.is_false(pcall(heed.cat, {}))
    assert.is_false(pcall(heed.cat, { x, heed.ones(3, 2) }))
  end)

  it("splits into views of one size or of several", function()
    local parts = heed.range(1, 5):split(2)
    assert.equal(3, #parts)
    shows("float32[2] 1 2", parts[1])
    shows("float32[1] 5", parts[3])
    parts = x:split({ 1, 0, 2 }, 2)
    shows("float32[2, 1] 1 4", parts[1])
    shows("float32[2, 0] ", parts[2])
    shows("float32[2, 2] 2 3 5 6", parts[3])
    assert.equal(3, #heed.range(1, 5):chunk(3))
    assert.equal(3, #heed.range(1, 6):chunk(4))
    assert.equal(2, #x:chunk(2, -1))
    assert.equal(3, #heed.zeros(0, 2):chunk(3))
    local y = heed.zeros(4)
    y:chunk(2)[2]:add_(1)
    shows("float32[4] 0 0 1 1", y)
  end)

  it("names sizes that do not add up", function()
    fails("split: size is 0; it must be at least 1", x.split, x, 0)
    fails("split: size[2] is 3; it must be from 0 to 2, the rest of dimension 2", x.split, x, { 1, 3 }, 2)
    fails("split: the sizes add up to 2; dimension 2 has 3 elements", x.split, x, { 1, 1 }, 2)
    fails("chunk: chunks is 0; it must be at least 1", x.chunk, x, 0)
    fails("split: the result would be 2000000 pieces; it must be at most 1048576", heed.split,
      heed.ones(1):expand(2000000), 1)
    local digits = support.digits(math.maxinteger)
    fails(("chunk: the result would be %s pieces; it must be at most 1048576"):format(digits), heed.chunk,
      heed.zeros(0),
      math.maxinteger)
    fails("split: x has no dimensions; it must have at least 1", heed.split, tensor(1), 1)
    assert.is_false(pcall(x.split, x, 1, 3))
  end)
end)

describe("selecting", function()
  local x = heed.range(1, 6):view(2, 3)

  it("counts from 1, and backwards from -1", function()
    shows("float32[2, 2] 3 1 6 4", x:index_select(2, tensor({ 3, 1 }, "int64")))
    shows("float32[1, 3] 4 5 6", x:index_select(1, tensor({ -1 }, "int64")))
    shows("float32[2, 1] 2 6", x:gather(2, tensor({ { 2 }, { 3 } }, "int64")))
    shows("float32[3] 4 5 6", heed.masked_select(x, x:gt(3)))
    shows("float32[4] 1 1 2 2", tensor { 1, 2 }:repeat_interleave(2))
    shows("float32[2, 2] 1 1 2 2", tensor { { 1 }, { 2 } }:repeat_interleave(2, 2))
  end)

  it("rejects indices out of range", function()
    for _, i in ipairs { 0, 4, -4 } do
      assert.is_false(pcall(x.index_select, x, 2, tensor({ i }, "int64")))
      assert.is_false(pcall(x.gather, x, 2, tensor({ { i } }, "int64")))
    end
    fails("gather: index is a boolean (true); it must be a tensor or a table of integers", x.gather, x, 2, true)
    assert.is_false(pcall(x.repeat_interleave, x, -1))
  end)

  it("index_select selects slices along any dimension, of any dtype, from views", function()
    local whole = heed.randint(-99, 99, { 5, 4, 3, 6 })
    local indices = tensor({ 3, 0, -1, 0, 1, 0, 3, 0, 2, 0 }, "int64"):view(5, 2):select(2, 1) -- every second element
    for _, dtype in ipairs { "float32", "int64", "bool", "bfloat16", "float16" } do
      for _, view in ipairs { whole:to(dtype), whole:to(dtype):permute(4, 2, 1, 3) } do
        for dim = 1, 4 do
          local found = view:index_select(dim, indices)
          for i = 1, #indices do
            assert.are.same(view:select(dim, indices[i]):tolist(), found:select(dim, i):tolist())
          end
        end
      end
    end
  end)

  it("gather selects elements along any dimension, with an index smaller than the tensor", function()
    local whole = heed.randn(5, 4, 6)
    for _, view in ipairs { whole, whole:permute(3, 1, 2) } do
      for dim = 1, 3 do
        local shape = view.shape
        local most = shape[dim]
        shape = { math.max(shape[1] - 1, 1), shape[2], shape[3] - 1 }
        shape[dim] = 7
        local index = heed.randint(1, most, shape)
        local found = view:gather(dim, index)
        for i = 1, shape[1] do
          for j = 1, shape[2] do
            for k = 1, shape[3] do
              local at = { i, j, k }
              at[dim] = index[{ i, j, k }]
              assert.equal(view[at], found[{ i, j, k }])
            end
          end
        end
      end
    end
  end)
end)

describe("a stolen metamethod", function()
  it("does not accept another value as a tensor", function()
    local metatable = debug.getmetatable(heed.ones(1))
    for _, name in ipairs { "__add", "__unm", "__band", "__bnot", "__tostring" } do
      for _, value in ipairs { io.stdout, {}, "x", 1, heed.Generator(1) } do
        assert.is_false(pcall(metatable[name], value, value))
      end
      assert.is_false(pcall(metatable[name]))
    end
  end)
end)
