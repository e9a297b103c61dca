-- Elementwise operations with options, reductions that have more than dim and keepdim, constants and dtypes: arguments
-- and messages. The numbers are checked by operation_values_spec.lua.
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

describe("rounding", function()
  it("keeps int64, and refuses bool", function()
    local i = tensor({ -3, 4 }, "int64")
    for _, name in ipairs { "floor", "ceil", "round", "trunc" } do
      shows("int64[2] -3 4", i[name](i))
      fails(name .. ": x is bool; it must be int64 or float32", heed[name], tensor { true })
    end
    shows("int64[2] -1 1", i:sign())
    shows("int64[2] 9 16", i:square())
  end)

  it("rounds halves to even", function()
    shows("float32[5] -2 -0 0 2 2", tensor { -1.5, -0.5, 0.5, 1.5, 2.5 }:round())
  end)

  it("rounds to decimals", function()
    shows("float32[2] 1.23 -4.57", tensor { 1.2345, -4.5678 }:round(2))
    shows("float32[2] 120 -450", tensor { 123, -451 }:round { decimals = -1 })
    shows("float32[1] 2", tensor { 1.6 }:round { decimals = 0 })
    local x = tensor { 1.26 }
    assert.is_true(x == x:round_(1))
    shows("float32[1] 1.3", x)
  end)

  it("refuses decimals of integers, and too many", function()
    fails("round: x is int64; it must be float32: convert with x:float()", heed.round, tensor({ 1 }, "int64"), 1)
    fails("round: decimals is 39; it must be from -38 to 38", heed.round, heed.ones(1), 39)
    fails("round: decimals is the number 0.5; it must be an integer", heed.round, heed.ones(1), { decimals = 0.5 })
    fails("round: there is no option 'digits'; the options are decimals", heed.round, heed.ones(1), { digits = 1 })
  end)

  it("gives float32 where the function does, and not in place in int64", function()
    local i = tensor({ 0, 3 }, "int64")
    shows("float32[2] 1 8", i:exp2())
    shows("float32[2] 0 0.999978", i:erf())
    assert.is_false(pcall(i.exp2_, i))
    shows("int64[2] 0 3", i)
  end)
end)

describe("division", function()
  local i = tensor({ -7, 7 }, "int64")

  it("rounds down or towards 0", function()
    shows("int64[2] -4 3", i:div(2, { rounding_mode = "floor" }))
    shows("int64[2] -3 3", i:div(2, { rounding_mode = "trunc" }))
    shows("float32[2] -3.5 3.5", i:div(2, { rounding_mode = nil }))
    shows("int64[2] -4 3", i:floor_divide(2))
    shows("float32[2] -4 3", i:floor_divide(2.5 - 0.5 + 1e-9))
    shows("int64[2] -1 1", i:fmod(3))
    shows("int64[2] 2 1", i % 3)
    shows("int64[2] -4 3", i:clone():div_(2, "floor"))
  end)

  support.where("integers", it, pending)("has the operator //", function()
    local divide = assert(load "local a, b = ... return a // b")
    shows("int64[2] -4 3", divide(i, 2))
    shows("float32[2] -3 2", divide(i, 2.5))
  end)

  it("gives inf and nan for 0, unless the numbers are integers", function()
    shows("float32[3] inf -inf nan", tensor { 1, -1, 0 }:floor_divide(0))
    shows("float32[1] nan", tensor { 1 }:fmod(0))
    fails("floor_divide: b contains 0; a divisor of int64 numbers must not be 0", heed.floor_divide, i, 0)
    fails("fmod: b contains 0; a divisor of int64 numbers must not be 0", heed.fmod, i, 0)
    fails("div: b contains 0; a divisor of int64 numbers must not be 0", heed.div, i, 0, "trunc")
    fails("div: b contains 0; a divisor of int64 numbers must not be 0", heed.div, i, 0, "floor")
  end)

  it("refuses two masks, and other modes", function()
    local mask = tensor { true }
    fails("floor_divide: a and b are bool; one must be int64 or float32", heed.floor_divide, mask, mask)
    fails("div: a and b are bool; one must be int64 or float32", heed.div, mask, mask, "trunc")
    fails("div: rounding_mode is a string ('up'); it must be 'floor', 'trunc' or nil", heed.div, i, 2, "up")
    fails("div: rounding_mode is the number 3; it must be 'floor', 'trunc' or nil", heed.div, i, 2, 3)
  end)
end)

describe("a sum with a factor", function()
  local x, i = tensor { 1, 2 }, tensor({ 3, 4 }, "int64")

  it("multiplies the second operand", function()
    shows("float32[2] 7 10", x:add(i, { alpha = 2 }))
    shows("float32[2] -0.5 0", x:sub(i, 0.5))
    shows("int64[2] 13 14", i:add(5, { alpha = 2 }))
    shows("int64[2] -7 -6", i:sub(5, { alpha = 2 }))
    shows("float32[2] 3 4", x:clone():add_(1, { alpha = 2 }))
    shows("bool[2] true false", tensor { true, false }:add(tensor { true, true }, { alpha = false }))
  end)

  it("refuses a factor that the dtype does not have, and masks to subtract", function()
    fails("add: alpha is 1.5 and the tensors are int64; it must be an integer", heed.add, i, i, 1.5)
    fails("sub_: alpha is 1.5 and the tensors are int64; it must be an integer", heed.sub_, i, i, 1.5)
    fails("sub: b is bool; it must be int64 or float32 (for masks, use logical_xor or logical_not)", heed.sub, x,
      tensor { true, false }, 2)
    fails("add: a is the number 1; it must be a tensor", heed.add, 1, x, 2)
    shows("int64[2] 3 4", i)
  end)

  it("is in addcmul, addcdiv and lerp", function()
    shows("float32[2] 4 6", x:addcmul(x + 2, 1))
    shows("float32[2] 7 10", x:addcmul(i, 1, { value = 2 }))
    shows("int64[2] 12 20", i:addcmul(i, i))
    shows("float32[2] 1.66667 3", x:addcdiv(x, i, { value = 2 }))
    shows("float32[2] 2 3", x:lerp(x + 2, 0.5))
    shows("float32[2] 1 4", x:lerp(x + 2, tensor { 0, 1 }))
    shows("float32[2, 2] 2 1.5 4 3", tensor { { 0 }, { 0 } }:lerp(tensor { 4, 3 }, tensor { { 0.5 }, { 1 } }))
    local y = x:clone()
    assert.is_true(y == y:lerp_(x + 2, 0.5) and y == y:addcmul_(x, x) and y == y:addcdiv_(x, x))
    shows("float32[2] 4 8", y)
  end)

  it("needs fitting arguments there", function()
    fails("lerp: b is int64; it must be float32: convert with b:float()", heed.lerp, x, i, 0.5)
    fails("lerp: weight is nil; it must be a tensor or a number", heed.lerp, x, x)
    fails("lerp: b is the number 1; it must be a tensor", heed.lerp, x, 1, 1)
    fails("addcmul: value is 0.5 and the tensors are int64; it must be an integer", heed.addcmul, i, i, i, 0.5)
    local mask = tensor { true }
    fails("addcmul: x, a and b are bool; one must be int64 or float32", heed.addcmul, mask, mask, mask)
    fails("addcmul_: value is a string ('2'); it must be a number", heed.addcmul_, x, x, x, "2")
    fails("addcdiv: x is [2] and b is [3]; to broadcast, sizes counted from the last must be equal or 1", heed.addcdiv,
      x, 1, heed.ones(3))
    shows("float32[2] 1 2", x)
  end)
end)

describe("nan_to_num, isclose and clip", function()
  it("replace nan and inf", function()
    local x = tensor { nan, inf, -inf, 1 }
    shows("float32[4] 0 3.40282e+38 -3.40282e+38 1", x:nan_to_num())
    shows("float32[4] 2 3 4 1", x:nan_to_num(2, 3, 4))
    shows("float32[4] nan 5 -3.40282e+38 1", x:nan_to_num { nan = nan, posinf = 5 })
    shows("bool[1] true", tensor { true }:nan_to_num())
    shows("int64[1] 7", tensor({ 7 }, "int64"):nan_to_num_(3))
    fails("nan_to_num: nan is a string ('0'); it must be a number", heed.nan_to_num, x, "0")
  end)

  it("compare with a tolerance", function()
    local x = tensor { 1, 1.1, nan, inf }
    shows("bool[4] true false false true", x:isclose(tensor { 1, 1, nan, inf }))
    shows("bool[4] true true true true", x:isclose(tensor { 1, 1, nan, inf }, { rtol = 0.2, equal_nan = true }))
    shows("bool[4] true true false false", x:isclose(1, 0, 0.2))
    fails("isclose: the relative tolerance is -1 and the absolute one 1e-08; neither may be negative or nan",
      heed.isclose, x, x, -1)
  end)

  it("limit", function()
    shows("float32[3] 0 1 2", tensor { -1, 1, 3 }:clip(0, 2))
    shows("float32[3] 0 1 2", tensor { -1, 1, 3 }:clip_ { min = 0, max = 2 })
    fails("clip: min and max are both nil; one of them must be given", heed.clip, heed.ones(1))
    fails("clip_: max is a string ('x'); it must be a tensor or a number", heed.clip_, heed.ones(1), 0, "x")
  end)
end)

describe("messages", function()
  it("begin with the function that was called", function()
    local x = heed.ones(2, 3)
    fails("max: a is [2, 3] and b is [5]; to broadcast, sizes counted from the last must be equal or 1", heed.max, x,
      heed.ones(5))
    fails("mul_: b is nil; it must be a tensor or a number", heed.mul_, x)
    fails("nelement: x is the number 1; it must be a tensor", heed.nelement, 1)
    fails("masked_fill_: mask is float32; it must be bool: convert with mask:bool(), or compare, as x:gt(0) does",
      heed.masked_fill_, x, x, 0)
  end)
end)

describe("a reduction of numbers", function()
  local x = tensor { { 1, -2, 3 }, { 4, 0, -6 } }

  it("multiplies", function()
    shows("float32[] 0", x:prod())
    shows("float32[3] 4 -0 -18", x:prod(1))
    shows("float32[2, 1] -6 -0", x:prod { dim = -1, keepdim = true })
    shows("int64[] 24", tensor({ 2, 3, 4 }, "int64"):prod())
    shows("int64[] 0", tensor({ true, false }):prod())
    shows("float32[] 1", heed.zeros(0):prod())
    shows("float32[2, 3] 1 -2 -6 4 0 -0", x:cumprod(2))
    shows("int64[3] 1 0 0", tensor({ true, false, true }):cumprod(1))
  end)

  it("measures", function()
    shows("float32[] 8.12404", x:norm())
    shows("float32[] 8.12404", x:norm "fro")
    shows("float32[] 16", x:norm(1))
    shows("float32[] 6", x:norm(inf))
    shows("float32[2] 1 0", x:norm(-inf, 2))
    shows("float32[2, 1] 3 2", x:norm { p = 0, dim = 2, keepdim = true })
    shows("float32[] nan", tensor { 1, nan }:norm(inf))
    shows("float32[] 0", heed.zeros(0):norm())
  end)

  it("finds the extremes over several dimensions", function()
    shows("float32[] 4", x:amax())
    shows("float32[3] 4 0 3", x:amax(1))
    shows("float32[1, 1] -6", x:amin({ 1, 2 }, true))
    shows("bool[] true", tensor({ true, false }):amax())
    shows("float32[] nan", tensor({ 1, nan }):amin())
  end)

  it("adds logarithms", function()
    shows("float32[] 1000.69", tensor { 1000, 1000 }:logsumexp(1))
    shows("float32[1] -inf", tensor { -inf, -inf }:logsumexp(1, true))
    shows("float32[] inf", tensor { 1, inf }:logsumexp(1))
    shows("float32[] 4.36361", x:logsumexp { 1, 2 })
    shows("float32[2] -inf -inf", heed.zeros(2, 0):logsumexp(2))
    shows("float32[] 1.31326", tensor { true, false }:logsumexp(1))
  end)

  it("counts", function()
    shows("int64[] 5", x:count_nonzero())
    shows("int64[2] 3 2", x:count_nonzero(2))
    shows("int64[] 5", x:count_nonzero { dim = { 1, 2 } })
  end)

  it("refuses what has no result", function()
    local i = tensor({ 1 }, "int64")
    fails("norm: x is int64; it must be float32: convert with x:float()", heed.norm, i)
    fails("norm: p is a string ('nuc'); it must be a number, heed.inf, -heed.inf or 'fro'", heed.norm, x, "nuc")
    fails("norm: p is nan; it must be a number, inf or -inf", heed.norm, x, nan)
    fails("norm: x is [0]; dimension 1 must have at least 1 element", heed.norm, heed.zeros(0), inf)
    fails("amax: x is [0]; dimension 1 must have at least 1 element", heed.amax, heed.zeros(0))
    fails("amin: dim names dimension 2 twice; it must name it once", heed.amin, x, { 2, -1 })
    fails("prod: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2", heed.prod, x, 3)
    fails("logsumexp: dim is nil; it must be a dimension or a table of them", heed.logsumexp, x)
    fails("logsumexp: x is a table; it must be a tensor", heed.logsumexp, { 1 }, 1)
    fails("count_nonzero: there is no option 'keepdim'; the options are dim", heed.count_nonzero, x, { keepdim = true })
  end)
end)

describe("median and quantile", function()
  local x = tensor { { 5, 1, 3, 2 }, { 9, 8, 7, 7 } }

  it("take the lower of two elements in the middle", function()
    shows("float32[] 5", x:median())
    local values, indices = x:median(2)
    shows("float32[2] 2 7", values)
    assert.equal("int64", indices.dtype)
    shows("float32[2] 2 7", tensor { x[{ 1, indices[1] }], x[{ 2, indices[2] }] })
    shows("float32[1, 4] 5 1 3 2", (x:median(1, true)))
    shows("int64[] 2", tensor({ 3, 2, 1 }, "int64"):median())
  end)

  it("are nan where there is one", function()
    local y = tensor { { 5, nan, nan, 2 }, { 9, 8, 7, 6 } }
    shows("float32[] nan", y:median())
    local values, indices = y:median { dim = 2 }
    shows("float32[2] nan 7", values)
    shows("int64[2] 2 3", indices)
    shows("float32[2] nan 7.5", y:quantile(0.5, 2))
    shows("float32[] nan", heed.zeros(0):median())
  end)

  it("interpolate", function()
    local y = tensor { 1, 2, 4 }
    shows("float32[] 1.5", y:quantile(0.25))
    shows("float32[2] 1 4", y:quantile { 0, 1 })
    shows("float32[] 1", y:quantile(0.25, { interpolation = "lower" }))
    shows("float32[] 2", y:quantile(0.25, { interpolation = "higher" }))
    shows("float32[] 1", y:quantile(0.25, { interpolation = "nearest" }))
    shows("float32[] 3", y:quantile(0.6, { interpolation = "midpoint" }))
    shows("float32[2, 2] 1.75 7 3.5 8.25", x:quantile(tensor { 0.25, 0.75 }, 2))
    shows("float32[1, 2, 1] 2.5 7.5", x:quantile({ 0.5 }, 2, true))
    shows("float32[1, 1] 6", x:quantile { q = 0.5, keepdim = true })
    shows("float32[0] ", y:quantile(heed.zeros(0)))
  end)

  it("refuse what has none", function()
    fails("median: x is bool; it must be float32 or int64", heed.median, tensor { true })
    fails("median: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2",
      heed.median, x, 3)
    fails("median: keepdim is given without dim; give both or none", heed.median, x, { keepdim = true })
    fails("median: x is [0, 2]; dimension 1 must have at least 1 element", heed.median, heed.zeros(0, 2), 1)
    fails("quantile: x is int64; it must be float32: convert with x:float()", heed.quantile, x:long(), 0.5)
    fails("quantile: q is nil; it must be a number from 0 to 1, or a table or tensor [n] of them", heed.quantile, x)
    fails("quantile: q is the number 1.5; it must be from 0 to 1", heed.quantile, x, { 0.5, 1.5 })
    fails("quantile: q is the number nan; it must be from 0 to 1", heed.quantile, x, nan)
    fails("quantile: q is a tensor of shape [2, 4] and dtype float32; it must be a number, or a table or tensor [n] of "
      .. "them", heed.quantile, x, x)
    fails("quantile: interpolation is a string ('cubic'); it must be 'linear', 'lower', 'higher', 'midpoint' or "
      .. "'nearest'", heed.quantile, x, 0.5, { interpolation = "cubic" })
    fails("quantile: x is [0]; it must have at least 1 element", heed.quantile, heed.zeros(0), 0.5)
  end)
end)

describe("a constant", function()
  it("is a number", function()
    assert.equal(math.huge, heed.inf)
    assert.is_true(heed.nan ~= heed.nan)
    assert.equal(math.pi, heed.pi)
    assert.equal(math.exp(1), heed.e)
  end)

  it("is a dtype, wherever one is taken", function()
    for _, name in ipairs { "float32", "int64", "bfloat16", "float16", "int8" } do
      assert.equal(name, heed[name])
      assert.equal(name, heed.zeros(2, { dtype = heed[name] }).dtype)
    end
    assert.equal("float16", heed.half)
    assert.equal("int64", heed.ones(2):to(heed.int64).dtype)
    assert.equal("bfloat16", heed.nn.Linear(2, 2):to(heed.bfloat16).weight.dtype)
  end)

  it("may be a function that converts, since these have the names of dtypes", function()
    assert.equal("int64", heed.zeros(2, { dtype = heed.long }).dtype)
    assert.equal("bool", heed.ones(2):to(heed.bool).dtype)
    assert.equal("float32", heed.tensor({ 1 }, heed.float).dtype)
    fails("zeros: dtype is a function; it must be 'float32', 'int64', 'bool', 'bfloat16', 'float16' or 'int8'",
      heed.zeros, 2, { dtype = heed.exp })
  end)
end)

describe("a tensor", function()
  it("takes the dtype of another one", function()
    local x, i = heed.ones(2), tensor({ 1, 2 }, "int64")
    shows("int64[2] 1 1", x:to(i))
    shows("float32[2] 1 2", i:type_as(x))
    fails("type_as: other is a string ('int64'); it must be a tensor", heed.type_as, x, "int64")
    fails("to: dtype is a string ('cuda'); it must be " ..
      "'bool', 'int64', 'float32', 'bfloat16', 'float16', 'int8', " ..
      "'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k' or 'q6_k'; " ..
      "heed computes on the processor: leave it out", heed.to, x, "cuda")
  end)

  it("tells how many elements it has, and their size", function()
    assert.equal(6, heed.ones(2, 3):nelement())
    assert.equal(4, heed.ones(2):element_size())
    assert.equal(8, tensor({ 1 }, "int64"):element_size())
    assert.equal(1, tensor({ true }):element_size())
  end)

  it("has its matrices transposed as mT", function()
    local x = heed.rand(2, 3, 4)
    assert.is_true(heed.equal(x:transpose(2, 3), x.mT))
    x.mT[{ 1, 1, 1 }] = 5
    assert.equal(5, x[{ 1, 1, 1 }])
    fails("mT: x has 1 dimension; it must have at least 2", function() return heed.ones(2).mT end)
  end)
end)
