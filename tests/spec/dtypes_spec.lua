-- The storage dtypes: converting, moving and printing values works, all other functions reject them.
local heed = require "heed"
local support = require "tests.support"
local raises = dofile "tests/raises.lua"

local STORED = { "bfloat16", "float16", "int8" }

-- ---- Twins in double precision ----

--- The value of a bit pattern with these numbers of exponent and fraction bits, by the definition of IEEE 754.
local function decode(bits, exponent_bits, fraction_bits)
  local sign = bits >= 2 ^ (exponent_bits + fraction_bits) and -1.0 or 1.0
  local exponent = math.floor(bits / 2 ^ fraction_bits) % 2 ^ exponent_bits
  local fraction, bias = bits % 2 ^ fraction_bits, 2 ^ (exponent_bits - 1) - 1
  if exponent == 2 ^ exponent_bits - 1 then return fraction == 0 and sign * math.huge or 0 / 0 end
  if exponent == 0 then return sign * fraction * 2.0 ^ (1 - bias - fraction_bits) end
  return sign * (1 + fraction * 2.0 ^ -fraction_bits) * 2.0 ^ (exponent - bias)
end

local FORMATS = { bfloat16 = { 8, 7 }, float16 = { 5, 10 } }

local function number_of(dtype, bits)
  if dtype == "int8" then return bits < 128 and bits or bits - 256 end
  return decode(bits, table.unpack(FORMATS[dtype]))
end

local function same_number(a, b) return a == b and 1 / a == 1 / b or a ~= a and b ~= b end

--- All bit patterns of a dtype as a tensor.
local function all_of(dtype)
  local list, count = {}, dtype == "int8" and 256 or 65536
  for bits = 0, count - 1 do list[bits + 1] = string.pack(dtype == "int8" and "B" or "<I2", bits) end
  return heed.from_string(table.concat(list), dtype, count), count
end

--- The bit pattern of the value nearest to x in a format, ties to even; x must not be nan.
local function nearest(dtype, x)
  local e, f = table.unpack(FORMATS[dtype])
  local low, high = 0, math.floor((2 ^ e - 1) * 2 ^ f) -- the order of patterns is that of the numbers
  local magnitude, sign = math.abs(x), (x < 0 or 1 / x < 0) and math.floor(2 ^ (e + f)) or 0
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if decode(middle, e, f) <= magnitude then low = middle else high = middle end
  end
  local below, above = decode(low, e, f), decode(high, e, f)
  if above == math.huge then above = 2 ^ 2 ^ (e - 1) end -- the next value, if the exponent had no limit
  local down, up = magnitude - below, above - magnitude
  local pattern = (magnitude == math.huge or up < down or (up == down and high % 2 == 0)) and high or low
  return sign + pattern
end

describe("tensors of storage dtypes", function()
  it("read every bit pattern as the number that it represents", function()
    for _, dtype in ipairs(STORED) do
      local x, count = all_of(dtype)
      local wide, list = x:float(), x:tolist()
      for i = 1, count do
        local wanted = number_of(dtype, i - 1)
        if not (same_number(wide[i], wanted) and same_number(list[i], wanted)) then
          error(("%s %x: %g and %g instead of %g"):format(dtype, i - 1, wide[i], list[i], wanted))
        end
      end
    end
  end)

  it("give Lua integers for int8 and floats for the others", function()
    support.number_is("integer", heed.zeros(1, { dtype = "int8" }):item())
    support.number_is("float", heed.zeros(1, { dtype = "bfloat16" })[1])
    support.number_is("float", heed.zeros(1, { dtype = "float16" }):item())
  end)

  it("keep every bit pattern when copied, or converted to float32 and back", function()
    for _, dtype in ipairs(STORED) do
      local x = all_of(dtype)
      assert.are.equal(x:to_string(), x:clone():to_string())
      local numbers = {}
      local wide, back = x:float(), x:float():to(dtype)
      for i = 1, #x do
        if wide[i] ~= wide[i] then
          assert.is_true(back[i] ~= back[i])
        else
          numbers[#numbers + 1] = i
        end
      end
      local index = heed.tensor(numbers, { dtype = "int64" })
      assert.are.equal(x[index]:to_string(), back[index]:to_string())
    end
  end)

  it("round to nearest, ties to even", function()
    heed.manual_seed(3)
    local list = { 0.0, -0.0, 65504, 65519.996, 65520, -65520, 1e30, 3.4e38, 2 ^ -24, 2 ^ -25, 2 ^ -25 * 1.0001,
      2 ^ -126, 2 ^ -149, math.huge, -math.huge, 1 + 2 ^ -8, 1 + 3 * 2 ^ -8, 1 + 2 ^ -11, 1 + 3 * 2 ^ -11 }
    local random = heed.randn(2000) * heed.exp(heed.randn(2000) * 8)
    local x = heed.cat { heed.tensor(list), random }
    for dtype in pairs(FORMATS) do
      local y = x:to(dtype):to_string()
      for i = 1, #x do
        local got = string.unpack("<I2", y, 2 * i - 1)
        assert.are.equal(nearest(dtype, x[i]), got, ("%s of %.9g"):format(dtype, x[i]))
      end
    end
  end)

  it("truncate fractions, clamp to the range and turn nan into 0 for int8", function()
    local x = heed.tensor { 1.9, -1.9, 127.9, 128, 300, -128.9, -129, 1 / 0, -1 / 0, 0 / 0 }
    assert.are.same({ 1, -1, 127, 127, 127, -128, -128, 127, -128, 0 }, x:to("int8"):tolist())
    local whole = heed.tensor({ 127, 128, -129, math.maxinteger, math.mininteger }, { dtype = "int64" })
    assert.are.same({ 127, 127, -128, 127, -128 }, whole:to("int8"):tolist())
    assert.are.same({ 1, 0 }, heed.tensor { true, false }:to("int8"):tolist())
  end)

  it("convert between each other by value", function()
    local x = heed.tensor({ 1.5, -300, 70000, 0 / 0 }, { dtype = "bfloat16" })
    assert.are.same({ 1.5, -300, 1 / 0 }, x:to("float16")[{ { 1, 3 } }]:tolist())
    assert.are.same({ 1, -128, 127, 0 }, x:to("int8"):tolist())
    assert.are.same({ 1, -300, 70144, 0 }, x:long():tolist())
    assert.are.same({ true, true, true, true }, x:bool():tolist())
    assert.are.same({ -3.0, 0.0 }, heed.tensor({ -3, 0 }, { dtype = "int8" }):to("bfloat16"):tolist())
  end)

  it("are created like other tensors", function()
    for _, dtype in ipairs(STORED) do
      local options = { dtype = dtype }
      for _, x in ipairs {
        heed.zeros(2, options), heed.ones(2, options), heed.empty(2, options), heed.full({ 2 }, 3, options),
        heed.eye(2, options), heed.range(1, 2, options), heed.linspace(0, 1, 2, options),
        heed.tensor({ 1, 2 }, options), heed.zeros_like(heed.ones(2), options), heed.randint(1, 5, { 2 }, options),
      } do
        assert.are.equal(dtype, x.dtype)
      end
      assert.are.same({ 3, 3 }, heed.full({ 2 }, 3, options):tolist())
      assert.are.same({ { 1, 0 }, { 0, 1 } }, heed.eye(2, options):tolist())
      assert.are.same({ 2, 4, 6 }, heed.range(2, 7, 2, options):tolist())
      assert.are.equal(dtype, heed.ones_like(heed.zeros(1, options)).dtype)
    end
    assert.are.same({ 0, 3, 6, 10 }, heed.linspace(0, 10.5, 4, { dtype = "int8" }):tolist())
    assert.are.same({ 0.10009765625 }, heed.tensor({ 0.1 }, { dtype = "bfloat16" }):tolist())
  end)

  it("can be viewed, indexed and assigned to", function()
    for _, dtype in ipairs(STORED) do
      local x = heed.range(1, 24, { dtype = dtype }):view(2, 3, 4)
      local wide = heed.range(1, 24):view(2, 3, 4)
      assert.are.same(wide:transpose(1, 3):tolist(), x:transpose(1, 3):clone():tolist())
      assert.are.same(wide:permute(3, 1, 2):tolist(), x:permute(3, 1, 2):contiguous():tolist())
      assert.are.same(wide[{ {}, { 1, 3, 2 }, 2 }]:tolist(), x[{ {}, { 1, 3, 2 }, 2 }]:tolist())
      assert.are.equal(17, x[{ 2, 2, 1 }])
      x[{ 2, 2, 1 }] = 100.0
      x[1] = heed.tensor { 9.0, 8, 7, 6 }
      x[{ 2, 1, {} }] = heed.tensor({ 5, 4, 3, 2 }, { dtype = "int64" })
      assert.are.same({ 9, 8, 7, 6 }, x[{ 1, 3 }]:tolist())
      assert.are.same({ 5, 4, 3, 2 }, x[{ 2, 1 }]:tolist())
      assert.are.equal(100, x[{ 2, 2, 1 }])
      x:fill_(2.5)
      assert.are.equal(dtype == "int8" and 2 or 2.5, x[{ 1, 1, 1 }])
      x:copy_(heed.full({ 4 }, 7)):zero_()
      assert.are.equal(0, x[{ 2, 3, 4 }])
    end
  end)

  it("can be selected from and joined", function()
    for _, dtype in ipairs(STORED) do
      local x = heed.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = dtype })
      local index = heed.tensor({ 2, 1, 2 }, { dtype = "int64" })
      assert.are.same({ { 4, 5, 6 }, { 1, 2, 3 }, { 4, 5, 6 } }, x:index_select(1, index):tolist())
      assert.are.same({ { 2, 1, 2 } }, x[{ { 1, 1 } }]:gather(2, index:view(1, 3)):tolist())
      assert.are.same({ 4, 5, 6 }, x[heed.tensor { false, true }]:view(-1):tolist())
      local mask = heed.tensor { { false, true, false }, { false, false, true } }
      assert.are.same({ 2, 6 }, x:masked_select(mask):tolist())
      assert.are.same({ 1, 1, 2, 2 }, x[{ 1, { 1, 2 } }]:repeat_interleave(2):tolist())
      assert.are.equal(dtype, heed.cat { x, x }.dtype)
      assert.are.same({ { { 1, 2, 3 }, { 4, 5, 6 } }, { { 1, 2, 3 }, { 4, 5, 6 } } }, heed.stack { x, x }:tolist())
      x[heed.tensor { true, false }] = 0
      x[heed.tensor({ 2 }, { dtype = "int64" })] = heed.tensor { 9.0, 8, 7 }
      assert.are.same({ { 0, 0, 0 }, { 9, 8, 7 } }, x:tolist())
      local parts = heed.split(x, 2, 2)
      assert.are.same({ { 0, 0 }, { 9, 8 } }, parts[1]:tolist())
    end
  end)

  it("can be rearranged and repeated, with the dtype that they have", function()
    local calls = {
      flip = { 1 }, roll = { 1, 1 }, tile = { 2 }, ["repeat"] = { 1, 2 }, unbind = {}, movedim = { 1, 2 },
      moveaxis = { 1, 2 }, swapaxes = { 1, 2 }, swapdims = { 1, 2 }, broadcast_to = { 2, 2, 2 },
      expand_as = { heed.ones(2, 2) }, view_as = { heed.ones(4) }, reshape_as = { heed.ones(1, 4) },
      unflatten = { 1, { 1, 2 } }, pad = { { 1, 1 } }, diagonal = {}, diag = {}, diag_embed = {}, diagflat = {},
      unfold = { 1, 1, 1 }, new_zeros = { 2 }, new_ones = { 2 }, new_empty = { 2 }, new_full = { 2, 3 },
      new_tensor = { { 1, 2 } },
    }
    for _, dtype in ipairs(STORED) do
      local wide = heed.tensor { { 1, 2 }, { 3, 4 } }
      local x = wide:to(dtype)
      for name, arguments in pairs(calls) do
        local got, wanted = x[name](x, table.unpack(arguments)), wide[name](wide, table.unpack(arguments))
        if name == "unbind" then got, wanted = got[2], wanted[2] end
        assert.are.equal(dtype, got.dtype, name)
        assert.are.same(wanted:tolist(), got:tolist(), name)
      end
    end
  end)

  it("are promoted to a common dtype when joined with others", function()
    local one = {}
    for _, dtype in ipairs { "bool", "int64", "float32", "bfloat16", "float16", "int8" } do
      one[dtype] = heed.ones(1, { dtype = dtype })
    end
    for pair, wanted in pairs {
      ["bfloat16 float16"] = "float32", ["bfloat16 float32"] = "float32", ["bfloat16 int64"] = "bfloat16",
      ["int8 float16"] = "float16", ["int8 bool"] = "int8", ["int8 int64"] = "int64", ["bool float16"] = "float16",
    } do
      local a, b = pair:match "(%w+) (%w+)"
      assert.are.equal(wanted, heed.cat { one[a], one[b] }.dtype, pair)
      assert.are.equal(wanted, heed.stack { one[b], one[a] }.dtype, pair)
      assert.are.equal(wanted, heed.tensor { one[a], one[b] }.dtype, pair)
    end
  end)

  it("convert to strings of bytes and back", function()
    local x = heed.tensor({ 1, -2.5 }, { dtype = "bfloat16" })
    assert.are.equal("\128\063\032\192", x:to_string())
    assert.are.equal("\000\060\000\193", x:to("float16"):to_string())
    assert.are.equal("\001\254", x:to("int8"):to_string())
    assert.are.same({ 1, -2.5 }, heed.from_string("\128\063\032\192", "bfloat16", 2):tolist())
    raises("from_string: bytes has 3 bytes; it must have 4 for shape [2] of float16",
      function() heed.from_string("abc", "float16", 2) end)
  end)

  -- PyTorch's output, with "heed." instead of "torch.".
  it("print as in PyTorch, with their dtype", function()
    local function of(dtype, data) return tostring(heed.tensor(data, { dtype = dtype })) end
    assert.are.equal("tensor([ 1.0000, -2.5000,  0.1001], dtype=heed.bfloat16)", of("bfloat16", { 1, -2.5, 0.1 }))
    assert.are.equal("tensor([ 1.0000, -2.5000,  0.1000], dtype=heed.float16)", of("float16", { 1, -2.5, 0.1 }))
    assert.are.equal("tensor([  1, -20, 100], dtype=heed.int8)", of("int8", { 1, -20, 100 }))
    assert.are.equal("tensor(3., dtype=heed.bfloat16)", of("bfloat16", 3))
    assert.are.equal("tensor([6.5536e+04, 1.0014e-05], dtype=heed.bfloat16)", of("bfloat16", { 65536, 1e-5 }))
    assert.are.equal("tensor([], size=(2, 0), dtype=heed.int8)", tostring(heed.zeros(2, 0, { dtype = "int8" })))
    assert.are.equal("tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],\n       dtype=heed.int8)",
      tostring(heed.zeros(18, { dtype = "int8" })))
    local weight = heed.nn.Linear(1, 1):to("bfloat16").weight
    weight:fill_(2)
    assert.are.equal("Parameter containing:\ntensor([[2.]], dtype=heed.bfloat16)", tostring(weight))
  end)
end)

-- ---- What refuses ----

local long = { dtype = "int64" }

--- Functions that support x of a storage dtype, tested in this file or in to_spec.lua, or in a test of their own;
--- and methods that do not access elements.
local WORK = {}
for name in ([[argwhere bool broadcast_to cat chunk clone concat concatenate contiguous copy_ dequantize_int8
  detach detach_ diag diag_embed diagflat diagonal dim element_size embedding empty_like expand
  expand_as fill_ flatten flip float full_like gather index_copy index_copy_ index_fill index_fill_
  index_put index_put_ index_select is_contiguous is_released item iter linear long masked_select
  moveaxis movedim narrow nelement new_empty new_full new_ones new_tensor new_zeros nonzero numel
  ones_like pack pad permute release repeat repeat_interleave reshape reshape_as roll scatter scatter_
  select size split squeeze stack stride swapaxes swapdims t take_along_dim tile to to_string tolist
  transpose type_as unbind unflatten unfold unpack unsqueeze view view_as zero_ zeros_like]]):gmatch "%S+" do
  WORK[name] = true
end

--- Further arguments of functions that need some; tensors in them are float32.
local ARGUMENTS = {
  allclose = { heed.ones(2, 2) }, bernoulli = {}, clamp = { 0, 1 }, clamp_ = { 0, 1 }, cumsum = { 1 },
  dot = { heed.ones(2) }, outer = { heed.ones(2) }, mv = { heed.ones(2) }, bmm = { heed.ones(1, 2, 2) },
  inner = { heed.ones(2, 2) }, tensordot = { heed.ones(2, 2) }, cross = { heed.ones(2, 2) },
  addmm = { heed.ones(2, 2), heed.ones(2, 2) }, addmv = { heed.ones(2, 2), heed.ones(2) },
  baddbmm = { heed.ones(1, 2, 2), heed.ones(1, 2, 2) }, equal = { heed.ones(2, 2) }, layer_norm = {},
  log_softmax = { 1 },
  masked_fill = { heed.ones(2, 2, { dtype = "bool" }), 0 },
  masked_fill_ = { heed.ones(2, 2, { dtype = "bool" }), 0 }, rope = {},
  scaled_dot_product_attention = { heed.ones(2, 2), heed.ones(2, 2) },
  attention_partial = { heed.ones(2, 2), heed.ones(2, 2) },
  linear_attention = { heed.ones(1, 1, 2, 2), heed.ones(1, 1, 2, 2) }, causal_conv = { heed.ones(2, 2) },
  varlen_attention = { heed.ones(2, 2), heed.ones(2, 2), { lengths = { 2 } } }, softmax = { 1 }, topk = { 1 },
  clip = { 0, 1 }, clip_ = { 0, 1 }, cumprod = { 1 }, isclose = { heed.ones(2, 2) }, logsumexp = { 1 },
  quantile = { 0.5 }, addcmul = { 1, 1 }, addcmul_ = { 1, 1 }, addcdiv = { 1, 1 }, addcdiv_ = { 1, 1 },
  lerp = { heed.ones(2, 2), 1 }, lerp_ = { heed.ones(2, 2), 1 },
  searchsorted = { heed.ones(2, 2) }, bucketize = { heed.ones(2) },
  multinomial = { 1 }, scatter_add = { 1, { { 1, 1 } }, heed.ones(1, 2) },
  scatter_add_ = { 1, { { 1, 1 } }, heed.ones(1, 2) },
  index_add = { 1, { 1 }, heed.ones(1, 2) }, index_add_ = { 1, { 1 }, heed.ones(1, 2) },
  linear_int8 = { heed.ones(2, 2, { dtype = "int8" }), heed.ones(2, 1) },
}
for name in ([[add div eq floor_divide fmod ge gt le logical_and logical_or logical_xor lt matmul maximum minimum mm mul
  ne pow remainder sub]]):gmatch "%S+" do
  ARGUMENTS[name], ARGUMENTS[name .. "_"] = { heed.ones(2, 2) }, { heed.ones(2, 2) }
end

--- Functions with a message of their own; false: without this error.
local OTHERWISE = {
  normal_ = "the result is float32 and the tensor that is written is %s, which cannot hold it",
  uniform_ = "the result is float32 and the tensor that is written is %s, which cannot hold it",
  rand_like = "dtype is '%s'; it must be 'float32'",
  randn_like = "dtype is '%s'; it must be 'float32'",
  where = "condition is %s; it must be bool: convert with condition:bool(), or compare, as x:gt(0) does",
  bincount = "ids is %s; it must be int64, or float32 with whole values",
  one_hot = "ids is %s; it must be int64, or float32 with whole values",
  backward = "does not require a gradient", backward_steps = "does not require a gradient",
  retain_grad = "x does not require a gradient", register_hook = "f is nil",
  attention_merge = "outs is a tensor of shape [2, 2] and dtype %s; it must be a table of tensors, as in {a, b}",
  randint_like = false, -- draws integers of any dtype
}

describe("functions without support for storage dtypes", function()
  local methods = support.tensor_methods()

  it("reject them", function()
    for name in pairs(methods) do
      if not WORK[name] and OTHERWISE[name] ~= false then
        for _, dtype in ipairs(STORED) do
          local x = heed.ones(2, 2, { dtype = dtype })
          local is_vector = name == "dot"
          if is_vector then x = x[1] end
          local arguments = ARGUMENTS[name] or {}
          if name == "where" then arguments = { heed.ones(2), heed.ones(2) } end
          local ok, message = pcall(methods[name], x, table.unpack(arguments))
          local wanted = OTHERWISE[name] or "is %s; it must be float32"
          assert.is_false(ok, name .. " works on " .. dtype)
          assert.truthy(message:find(wanted:format(dtype), 1, true), name .. ": " .. message)
          assert.are.same({ 1, 1 }, (is_vector and x or x[1]):tolist())
        end
      end
    end
  end)

  it("reject them as second operands", function()
    local x, half = heed.ones(2, 2), heed.ones(2, 2, { dtype = "float16" })
    for _, name in ipairs { "add", "div", "eq", "logical_and", "maximum", "pow", "matmul", "allclose", "equal" } do
      raises(name .. ": b is float16; it must be float32, int64 or bool: convert with b:float()",
        function() methods[name](x, half) end)
    end
    raises("clamp: max is float16; it must be float32, int64 or bool: convert with max:float()",
      function() x:clamp(nil, half) end)
    raises("where: a is float16; it must be float32, int64 or bool: convert with a:float()",
      function() heed.where(x:bool(), half, x) end)
    raises("where: b is float16; it must be float32, int64 or bool: convert with b:float()",
      function() heed.where(x:bool(), 1, half) end)
    raises("layer_norm: weight is float16; it must be float32: convert with weight:float()",
      function() heed.layer_norm(x, half[1]) end)
    raises("linear: bias is float16; it must be float32: convert with bias:float()",
      function() heed.linear(x, x, half[1]) end)
    raises("add: b is float16; it must be float32, int64 or bool: convert with b:float()",
      function() return x + half end)
    raises("index: the index is int8; it must be int64, or float32 with whole values",
      function() return x[heed.ones(1, { dtype = "int8" })] end)
  end)

  it("say how to convert them", function()
    raises("exp: x is bfloat16; it must be float32, int64 or bool: convert with x:float()",
      function() heed.exp(heed.ones(2, { dtype = "bfloat16" })) end)
    raises("Parameter: data is int8; it must be float32",
      function() heed.nn.Parameter(heed.ones(2, { dtype = "int8" })) end)
  end)
end)

-- ---- Products ----

describe("products with low-precision weights", function()
  before_each(function() heed.manual_seed(5) end)

  --- The converted weight, its scale, and its values as float32.
  local function stored(weight, dtype)
    if dtype ~= "int8" then
      local small = weight:to(dtype)
      return small, nil, small:float()
    end
    local small, scale = heed.quantize_int8(weight)
    return small, scale, heed.dequantize_int8(small, scale)
  end

  it("equal those with the same weights in float32", function()
    for _, dtype in ipairs(STORED) do
      for _, sizes in ipairs { { 1, 1, 1 }, { 1, 64, 64 }, { 3, 65, 5 }, { 20, 130, 67 }, { 60, 200, 131 } } do
        local m, d_in, d_out = table.unpack(sizes)
        local x, bias = heed.randn(2, m, d_in), heed.randn(d_out)
        local small, scale, wide = stored(heed.randn(d_out, d_in), dtype)
        local y
        if scale then y = heed.linear_int8(x, small, scale, bias) else y = heed.linear(x, small, bias) end
        assert.are.equal("float32", y.dtype)
        assert.is_true(heed.allclose(y, heed.linear(x, wide, bias), 1e-5, 1e-5 * d_in ^ 0.5))
      end
    end
  end)

  it("stay within the error bound in heed.h", function()
    local bounds = { bfloat16 = 0.0025, float16 = 0.0003, int8 = 0.009 }
    local x, weight = heed.randn(16, 1024), heed.randn(512, 1024)
    local y = heed.linear(x, weight)
    for dtype, bound in pairs(bounds) do
      local small, scale = stored(weight, dtype)
      local z
      if scale then z = heed.linear_int8(x, small, scale) else z = heed.linear(x, small) end
      local error = ((z - y) ^ 2):mean():item() ^ 0.5 / (y ^ 2):mean():item() ^ 0.5
      assert.is_true(error < bound and error > bound / 2, ("%s: %g"):format(dtype, error))
    end
  end)

  it("accept empty inputs", function()
    for _, dtype in ipairs(STORED) do
      local small, scale = stored(heed.randn(3, 4), dtype)
      local y
      if scale then y = heed.linear_int8(heed.ones(0, 4), small, scale) else y = heed.linear(heed.ones(0, 4), small) end
      assert.are.same({ 0, 3 }, { y:size(1), y:size(2) })
    end
    local none = heed.linear(heed.ones(2, 0), heed.ones(3, 0, { dtype = "float16" }), heed.tensor { 1, 2, 3 })
    assert.are.same({ { 1, 2, 3 }, { 1, 2, 3 } }, none:tolist())
    local weight, scale = heed.quantize_int8(heed.ones(3, 0))
    assert.are.same({ 3, 0 }, { scale:size(1), scale:size(2) })
    assert.are.same({ { 0, 0, 0 } }, heed.linear_int8(heed.ones(1, 0), weight, scale):tolist())
  end)

  it("select rows of an embedding as float32", function()
    local ids = heed.tensor({ { 3, 1 }, { 2, 3 } }, long)
    local weight = heed.randn(3, 70)
    for _, dtype in ipairs { "float32", "bfloat16", "float16" } do
      local small = weight:to(dtype)
      local y = heed.embedding(ids, small)
      assert.are.equal("float32", y.dtype)
      for i = 1, 2 do
        for j = 1, 2 do
          assert.is_true(heed.equal(y[{ i, j }], small[ids[{ i, j }]]:float()))
        end
      end
      assert.is_true(heed.equal(heed.embedding(ids.T, small), y:transpose(1, 2)))
      assert.is_true(heed.equal(heed.embedding(ids, small[{ {}, { 1, 70, 3 } }]), y[{ {}, {}, { 1, 70, 3 } }]))
    end
    assert.are.same({ 0, 70 }, { heed.embedding(heed.zeros(0, long), weight):size(1), 70 })
    raises("embedding: id 4 is out of range; weight has rows 1 to 3 (element [2] of ids)",
      function() heed.embedding(heed.tensor({ 1, 4, 5 }, long), weight) end)
    raises("embedding: ids is bool; it must be int64, or float32 with whole values",
      function() heed.embedding(heed.ones(1):bool(), weight) end)
    raises("embedding: weight is int8; it must be float32, bfloat16 or float16",
      function() heed.embedding(ids, weight:to "int8") end)
  end)
end)
