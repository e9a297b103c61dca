-- Making tensors, reading their properties, converting, copying, releasing.
local heed = require "heed"
local support = require "tests.support"
local raises = require "tests.raises"

local huge, nan = math.huge, 0 / 0

local function shape_of(x) return tostring(x.shape):match "%[.*%]" end

describe("heed.tensor", function()
  it("reads numbers, booleans and nested tables", function()
    local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6.5 } }
    assert.equal("[2, 3]", shape_of(x))
    assert.equal("float32", x.dtype)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6.5 } }, x:tolist())
    assert.equal("[]", shape_of(heed.tensor(7)))
    assert.equal(7, heed.tensor(7):item())
    assert.equal("[1, 1, 1]", shape_of(heed.tensor { { { 1 } } }))
  end)

  it("gives bool for booleans only, and float32 for a mixture", function()
    assert.equal("bool", heed.tensor(true).dtype)
    assert.equal("bool", heed.tensor({ { true }, { false } }).dtype)
    local mixed = heed.tensor { true, 2, false }
    assert.equal("float32", mixed.dtype)
    assert.same({ 1, 2, 0 }, mixed:tolist())
  end)

  it("accepts the dtype as an option, by name or by position", function()
    assert.same({ 1, -1, 0 }, heed.tensor({ 1.9, -1.9, 0 }, { dtype = "int64" }):tolist())
    assert.same({ true, false, true }, heed.tensor({ 2, 0, nan }, "bool"):tolist())
    assert.same({ 1, 0 }, heed.tensor({ true, false }, { dtype = "float32" }):tolist())
  end)

  support.where("integers", it, pending)("keeps every bit of int64", function()
    local list = { math.maxinteger, math.mininteger, -1, 9007199254740993 }
    assert.same(list, heed.tensor(list, { dtype = "int64" }):tolist())
  end)

  it("clamps numbers beyond the range of int64", function()
    local x = heed.tensor({ huge, -huge, nan }, { dtype = "int64" })
    assert.same({ support.has.integers and math.maxinteger or 2 ^ 63, math.mininteger, 0 }, x:tolist())
    assert.equal("tensor([ 9223372036854775807, -9223372036854775808,                    0])", tostring(x))
  end)

  it("gives empty tensors for empty tables", function()
    assert.equal("[0]", shape_of(heed.tensor {}))
    assert.equal("[2, 0]", shape_of(heed.tensor { {}, {} }))
    assert.same({ {}, {} }, heed.tensor({ {}, {} }):tolist())
  end)

  it("accepts tensors as elements", function()
    local a, b = heed.tensor { 1, 2 }, heed.tensor { 3, 4 }
    assert.same({ { 1, 2 }, { 3, 4 } }, heed.tensor({ a, b }):tolist())
    assert.same({ 3, 7 }, heed.tensor({ a:sum(), 7 }):tolist())
    assert.same({ { 1, 3 }, { 2, 4 } }, heed.tensor({ heed.tensor({ a, b }).T }):tolist()[1])
  end)

  it("keeps the dtype of tensors", function()
    local i = heed.tensor({ 1, 2 }, { dtype = "int64" })
    assert.equal("int64", heed.tensor({ i, i }).dtype)
    assert.equal("float32", heed.tensor({ i[{ {} }], heed.ones(2) }).dtype)
    assert.equal("bool", heed.tensor({ heed.tensor { true }, heed.tensor { false } }).dtype)
  end)

  it("copies a tensor", function()
    local a = heed.tensor { 1, 2 }
    local b = heed.tensor(a)
    b[1] = 5
    assert.same({ 1, 2 }, a:tolist())
    assert.same({ 5, 2 }, b:tolist())
  end)

  it("reads tables whose rows were set in any order", function()
    local t = {}
    for i = 100, 1, -1 do t[i] = i end
    local x = heed.tensor(t)
    assert.equal(100, #x)
    assert.equal(37, x[37])
  end)

  it("ignores metatables", function()
    local t = setmetatable({ 1, 2 }, { __index = error, __len = error })
    assert.same({ 1, 2 }, heed.tensor(t):tolist())
  end)

  it("names the row of a ragged table", function()
    raises("tensor: data[3] has 2 elements; it must have 3, like the others", function()
      heed.tensor { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8 } }
    end)
    raises("tensor: data[1][2] has 1 element; it must have 2, like the others", function()
      heed.tensor { { { 1, 2 }, { 3 } } }
    end)
    raises("tensor: data[2] has 0 elements; it must have 1, like the others", function()
      heed.tensor { { 1 }, {} }
    end)
  end)

  it("names the position where the types differ", function()
    raises("tensor: data[2] is the number 3; it must be a table of 2 elements, like the others", function()
      heed.tensor { { 1, 2 }, 3 }
    end)
    raises("tensor: data[2] is a table; it must be a number, like the others", function()
      heed.tensor { 1, { 2 } }
    end)
    assert.error_matches(function() heed.tensor { heed.ones(2), heed.ones(3) } end,
      "data%[2%] is a tensor of shape %[3%] and dtype float32; it must be a tensor of shape %[2%], like the others")
    raises("tensor: data[2] is the number 1; it must be a tensor of shape [2], like the others",
      function() heed.tensor { heed.ones(2), 1 } end)
  end)

  it("names the position of a hole", function()
    raises("tensor: data[2] is missing; a table must have no holes", function() heed.tensor { 1, nil, 3 } end)
    raises("tensor: data[1][1] is missing; a table must have no holes", function()
      heed.tensor { { nil, 2 } }
    end)
    raises("tensor: data[3] is missing; a table must have no holes", function()
      heed.tensor { 1, 2, [5] = 1 }
    end)
    raises("tensor: data[1] is missing; a table must have no holes", function() heed.tensor { [2] = 1 } end)
  end)

  it("names the position of a value that is not a number", function()
    raises("tensor: data[2][1] is a string ('7'); it must be a number, a boolean or a tensor", function()
      heed.tensor { { 1 }, { "7" } }
    end)
    raises("tensor: data is a function; it must be a number, a boolean or a tensor", function()
      heed.tensor(print)
    end)
    raises("tensor: data[1] is a string ('abc'); it must be a number, a boolean or a tensor", function()
      heed.tensor { "abc" }
    end)
    raises("tensor: data is nil; it must be a table, a number, a boolean or a tensor", function()
      heed.tensor()
    end)
  end)

  it("rejects keys that are not positive integers", function()
    assert.error_matches(function() heed.tensor { 1, 2, dtype = "int64" } end,
      "tensor: data has the key 'dtype'; options must be in a table of their own")
    raises("tensor: data[1] has the key the number 1.5; options must be in a table of their own",
      function() heed.tensor { { 1, [1.5] = 3 } } end)
  end)

  it("rejects tables that contain themselves", function()
    local t = {}
    t[1] = t
    raises("tensor: data has more than 16 levels of tables, or contains itself; it must have at most 16", function()
      heed.tensor(t)
    end)
    local u = { 1 }
    u[2] = u
    assert.error_matches(function() heed.tensor(u) end,
      "data%[2%] is a table; it must be a number, like the others")
  end)

  it("rejects more than 16 dimensions", function()
    local x = heed.zeros { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }
    raises("tensor: data has 17 dimensions with those of its tensors; it must have at most 16", function()
      heed.tensor { x }
    end)
  end)

  it("lists the options when one is unknown", function()
    raises("tensor: there is no option 'dype'; the options are dtype, requires_grad", function()
      heed.tensor({ 1 }, { dype = "bool" })
    end)
    raises("tensor: dtype is a string ('int32'); " ..
      "it must be 'float32', 'int64', 'bool', 'bfloat16', 'float16' or 'int8'", function()
      heed.tensor({ 1 }, { dtype = "int32" })
    end)
  end)

  it("is fast with large tables", function()
    local t = {}
    for i = 1, 1000000 do t[i] = i end
    local start = os.clock()
    local x = heed.tensor(t)
    local list = x:tolist()
    assert.equal(1000000, list[1000000])
    assert.is_true(os.clock() - start < 5)
  end)
end)

describe("constructors", function()
  it("accept the shape as numbers or as a table", function()
    assert.equal("[2, 3]", shape_of(heed.zeros(2, 3)))
    assert.equal("[2, 3]", shape_of(heed.zeros { 2, 3 }))
    assert.equal("[2, 3]", shape_of(heed.ones(heed.zeros(2, 3).shape)))
    assert.equal("[]", shape_of(heed.ones {}))
    assert.equal("[2, 0]", shape_of(heed.empty(2, 0)))
  end)

  it("fill with a value", function()
    assert.same({ { 0, 0 }, { 0, 0 } }, heed.zeros(2, 2):tolist())
    assert.same({ 1, 1 }, heed.ones(2):tolist())
    assert.same({ 2.5, 2.5 }, heed.full(2, 2.5):tolist())
    assert.equal("[2, 2]", shape_of(heed.full({ 2, 2 }, 7)))
    assert.equal("[3]", shape_of(heed.empty(3)))
  end)

  it("accept a dtype", function()
    assert.same({ 1, 1 }, heed.ones(2, { dtype = "int64" }):tolist())
    assert.same({ true }, heed.ones({ 1 }, { dtype = "bool" }):tolist())
    assert.equal("float32", heed.full(2, 7).dtype)
    assert.equal("bool", heed.full(2, true).dtype)
    assert.same({ 7, 7 }, heed.full(2, 7.9, { dtype = "int64" }):tolist())
  end)

  it("make an identity matrix", function()
    assert.same({ { 1, 0 }, { 0, 1 } }, heed.eye(2):tolist())
    assert.same({ { 1, 0, 0 }, { 0, 1, 0 } }, heed.eye(2, 3):tolist())
    assert.same({ { true, false } }, heed.eye(1, 2, { dtype = "bool" }):tolist())
  end)

  it("count like a Lua for", function()
    assert.same({ 1, 2, 3, 4 }, heed.range(1, 4):tolist())
    assert.same({ 5, 3, 1 }, heed.range(5, 0.5, -2):tolist())
    assert.same({}, heed.range(2, 1):tolist())
    assert.same({ 1, 2 }, heed.range(1, 2, { dtype = "int64" }):tolist())
    assert.same({ 0, 10, 20 }, heed.range(0, 20, 10, "int64"):tolist())
    raises("range: first is a boolean (true); it must be a number", function() heed.range(true, 4) end)
    assert.error_matches(function() heed.range(1, 4, 0) end, "range: step")
  end)

  it("give equally spaced values", function()
    assert.same({ 0, 0.25, 0.5, 0.75, 1 }, heed.linspace(0, 1, 5):tolist())
    assert.same({ 3 }, heed.linspace(3, 9, 1):tolist())
    assert.same({}, heed.linspace(3, 9, 0):tolist())
  end)

  it("copy shape and dtype from another tensor", function()
    local x = heed.tensor({ { 1, 2 } }, { dtype = "int64" })
    assert.same({ { 0, 0 } }, heed.zeros_like(x):tolist())
    assert.same({ { 1, 1 } }, x:ones_like():tolist())
    assert.same({ { 3, 3 } }, x:full_like(3):tolist())
    assert.equal("int64", heed.empty_like(x).dtype)
    assert.equal("float32", heed.zeros_like(x, { dtype = "float32" }).dtype)
  end)

  it("reject invalid sizes", function()
    raises("zeros: the shape is [2, -1]; its sizes must not be negative", function() heed.zeros(2, -1) end)
    raises("zeros: a size is the number 1.5; it must be an integer", function() heed.zeros(1.5) end)
    raises("ones: a size is a string ('2'); it must be an integer", function() heed.ones("2") end)
    assert.error_matches(function() heed.zeros(2 ^ 40, 2 ^ 40) end,
      "zeros: the shape is %[1099511627776, 1099511627776%]")
    raises("zeros: the table of sizes has the key 'dtype'; options must be in a table of their own", function()
      heed.zeros { 2, 3, dtype = "int64" }
    end)
    raises("zeros: a tensor has at most 16 dimensions", function()
      heed.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    end)
    raises("zeros: there is no option 'type'; the options are dtype, requires_grad", function()
      heed.zeros(2, { type = "bool" })
    end)
  end)

  it("report insufficient memory #plain", function()
    raises("zeros: out of memory (128.0 TiB requested)", function() heed.zeros(2 ^ 45) end)
    assert.equal(0, heed.zeros(1):item())
  end)
end)

describe("a tensor gives", function()
  local x = heed.zeros(2, 6, 3)

  it("its shape", function()
    assert.equal("heed.Size([2, 6, 3])", tostring(x.shape))
    assert.equal(6, x.shape[2])
    assert.equal(3, x.shape[-1])
    assert.equal(3, #x.shape)
    assert.equal("heed.Size([2, 6, 3])", tostring(x:size()))
    assert.equal(2, x:size(1))
    assert.equal(3, x:size(-1))
    assert.equal(36, x:numel())
    assert.equal(2, #x)
    assert.equal(3, x.ndim)
    assert.equal(3, x:dim())
  end)

  it("its dtype", function()
    assert.equal("float32", x.dtype)
    assert.equal("bool", x:bool().dtype)
  end)

  it("its strides", function()
    assert.same({ 18, 3, 1 }, x:stride())
    assert.equal(3, x:stride(2))
    assert.same({ 1, 3, 18 }, x.T:stride())
    assert.is_true(x:is_contiguous())
    assert.is_false(x.T:is_contiguous())
  end)

  it("its element, if it has exactly one", function()
    assert.equal(2.5, heed.tensor({ { 2.5 } }):item())
    assert.equal(true, heed.tensor(true):item())
    support.number_is("integer", heed.tensor(3, { dtype = "int64" }):item())
    raises("item: x has 36 elements (shape [2, 6, 3]); it must have exactly one", function() x:item() end)
  end)

  it("its elements as a table", function()
    assert.equal(4, heed.tensor(4):tolist())
    assert.same({ { 1, 3 }, { 2, 4 } }, heed.tensor({ { 1, 2 }, { 3, 4 } }).T:tolist())
  end)

  it("whether a value is a tensor", function()
    assert.is_true(heed.is_tensor(x))
    assert.is_false(heed.is_tensor {})
    assert.is_false(heed.is_tensor(io.stdout))
    assert.is_false(heed.is_tensor())
  end)

  it("an error for a wrong dimension", function()
    assert.error_matches(function() x:size(4) end, "size: dim is 4 and the tensor has 3 dimensions")
    assert.error_matches(function() x:size(0) end, "size: dim is 0 and the tensor has 3 dimensions")
    raises("size: dim is the number 1.5; it must be an integer", function() x:size(1.5) end)
    raises("size: dim is 1 and the tensor has no dimensions", function() heed.tensor(1):size(1) end)
    raises("length: x has no dimensions; it must have at least 1", function() return #heed.tensor(1) end)
  end)
end)

describe("functions and methods", function()
  it("are the same", function()
    local x = heed.tensor { 1, 2 }
    assert.equal(2, heed.numel(x))
    assert.same({ 1, 2 }, heed.tolist(x))
    assert.equal("int64", heed.to(x, "int64").dtype)
    assert.equal(2, heed.size(x, 1))
  end)

  it("check that the first argument is a tensor", function()
    raises("numel: x is nil; it must be a tensor", function() heed.numel() end)
    raises("item: x is the number 3; it must be a tensor", function() heed.item(3) end)
    raises("clone: x is a userdata; it must be a tensor", function() heed.clone(io.stdout) end)
  end)
end)

describe("copies and conversions", function()
  it("convert dtypes", function()
    local x = heed.tensor { 1.7, -1.7, 0 }
    assert.same({ 1, -1, 0 }, x:long():tolist())
    assert.same({ true, true, false }, x:bool():tolist())
    assert.same({ 1, 0 }, heed.tensor({ true, false }):float():tolist())
    assert.equal("int64", x:to("int64").dtype)
    assert.equal("int64", x:to({ dtype = "int64" }).dtype)
    raises("to: dtype is nil; it must be 'bool', 'int64', 'float32', 'bfloat16', 'float16', 'int8', " ..
      "'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k' or 'q6_k'",
      function() x:to() end)
  end)

  it("share the memory if nothing changes", function()
    local x = heed.tensor { 1, 2 }
    x:float()[1] = 5
    x:contiguous()[2] = 6
    x:clone()[1] = 7
    assert.same({ 5, 6 }, x:tolist())
    assert.is_true(x == x:float())
    assert.is_true(x == x:contiguous())
    assert.is_false(x == x:clone())
    assert.is_false(x == x.T:bool())
    assert.is_true(heed.eye(2):is_contiguous())
  end)

  it("are row-major", function()
    local t = heed.tensor({ { 1, 2 }, { 3, 4 } }).T
    assert.is_true(t:contiguous():is_contiguous())
    assert.is_true(t:clone():is_contiguous())
    assert.same({ { 1, 3 }, { 2, 4 } }, t:contiguous():tolist())
  end)

  it("write in place and return the tensor", function()
    local x = heed.zeros(2, 2)
    assert.is_true(rawequal(x, x:copy_(heed.tensor { 1, 2 })))
    assert.same({ { 1, 2 }, { 1, 2 } }, x:tolist())
    assert.is_true(rawequal(x, x:fill_(3)))
    assert.same({ { 3, 3 }, { 3, 3 } }, x:tolist())
    assert.is_true(rawequal(x, x:zero_()))
    assert.same({ { 0, 0 }, { 0, 0 } }, x:tolist())
    assert.error_matches(function() x:copy_(heed.ones(3)) end, "%[3%].*%[2, 2%]")
    raises("fill_: value is a string ('1'); it must be a number", function() x:fill_("1") end)
  end)
end)

describe("equality", function()
  it("means the same elements of the same memory", function()
    local x = heed.tensor { { 1, 2 }, { 3, 4 } }
    assert.is_true(x[1] == x[1])
    assert.is_false(x[1] == x[2])
    assert.is_false(x == heed.tensor { { 1, 2 }, { 3, 4 } })
    assert.is_true(x.T.T == x)
    assert.is_false(x.T == x)
    assert.is_false(x == io.stdout)
    assert.is_false(x == 1)
  end)
end)

describe("bytes", function()
  it("are little-endian and row-major", function()
    local x = heed.tensor { { 1, 2 }, { 3, 4 } }
    assert.equal(string.pack("<ffff", 1, 2, 3, 4), x:to_string())
    assert.equal(string.pack("<ffff", 1, 3, 2, 4), x.T:to_string())
    local integers = heed.tensor({ -1, 2 ^ 40 }, { dtype = "int64" })
    assert.equal(string.pack("<i8i8", -1, 2 ^ 40), integers:to_string())
    assert.equal("\1\0", heed.tensor({ true, false }):to_string())
    assert.equal("", heed.zeros(0):to_string())
  end)

  it("convert back", function()
    local bytes = string.pack("<ffffff", 1, 2, 3, 4, 5, 6.5)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6.5 } }, heed.from_string(bytes, "float32", { 2, 3 }):tolist())
    assert.same({ { 1, 2, 3 }, { 4, 5, 6.5 } }, heed.from_string(bytes, "float32", 2, 3):tolist())
    assert.equal(7, heed.from_string(string.pack("<i8", 7), "int64", {}):item())
    assert.equal("\1\1\0", heed.from_string("\1\255\0", "bool", 3):to_string())
  end)

  it("must match the shape in number", function()
    raises("from_string: bytes has 3 bytes; it must have 8 for shape [2] of float32", function()
      heed.from_string("abc", "float32", 2)
    end)
    raises("from_string: an argument is missing; it takes bytes, dtype and shape", function()
      heed.from_string("abc", "float32")
    end)
    raises("from_string: bytes is the number 1; it must be a string", function()
      heed.from_string(1, "float32", 1)
    end)
    assert.error_matches(function() heed.from_string("", "float32", { 2 ^ 40, 2 ^ 40, 0 }) end,
      "from_string: the shape is")
  end)
end)

describe("a released tensor", function()
  it("cannot be used, and raises an error", function()
    local x = heed.ones(2)
    assert.is_false(x:is_released())
    x:release()
    x:release()
    assert.is_true(x:is_released())
    assert.is_true(heed.is_tensor(x))
    raises("numel: x is a released tensor; it must be a tensor", function() x:numel() end)
    raises("shape: x is a released tensor; it must be a tensor", function() return x.shape end)
    raises("index: x is a released tensor; it must be a tensor", function() return x[1] end)
    raises("index: x is a released tensor; it must be a tensor", function() x[1] = 2 end)
    assert.is_false(x == heed.ones(2))
    assert.error_matches(function() heed.tensor { x } end, "a released tensor")
  end)

  it("leaves views of its memory valid", function()
    local x = heed.tensor { { 1, 2 }, { 3, 4 } }
    local row = x[2]
    x:release()
    assert.same({ 3, 4 }, row:tolist())
  end)

  support.where("close", it, pending)("is the result of <close>", function()
    local kept, count = support.compile [[
      local x <close> = require("heed").ones(3)
      return x, x:numel()]]()
    assert.equal(3, count)
    assert.is_true(kept:is_released())
  end)
end)

describe("the collector", function()
  it("accounts for tensor memory #plain", function()
    -- 2000 tensors of 1 MiB, too many to keep. In a new process, since the peak size of this one is larger already.
    local result = support.run(support.heed .. " -", [[
      local heed = require "heed"
      for _ = 1, 2000 do heed.zeros(2 ^ 18) end
      local status = io.open "/proc/self/status"
      print(status and status:read("*a"):match "VmHWM:%s*(%d+) kB" or 0)]])
    assert.equal(0, result.code)
    local peak = tonumber(result.out)
    assert.is_true(peak < 1000 * 1024, ("the peak was %d MiB"):format(math.floor(peak / 1024)))
  end)

  it("may run finalizers that release tensors in use", function()
    local x = heed.range(1, 1000):view(10, 100)
    for _ = 1, 200 do
      support.finalized(function() x:release() end)
      pcall(function() return x:tolist(), x[3], x:to_string(), x.T, x:clone(), x[{ { 1, 2 } }] end)
      x = heed.range(1, 1000):view(10, 100)
    end
    collectgarbage()
  end)

  it("does not accept other values as tensors, even through stolen metamethods", function()
    local meta = debug.getmetatable(heed.ones(1))
    assert.is_nil(meta.__gc(io.stdout))
    assert.is_nil(meta.__gc {})
    assert.error_matches(function() meta.__index(io.stdout, 1) end,
      "index: x is a userdata; it must be a tensor")
    assert.error_matches(function() meta.__index({}, "shape") end, "index: x is a table; it must be a tensor")
    assert.error_matches(function() meta.__newindex(io.stdout, 1, 1) end, "index: x is a userdata; it must be a tensor")
    assert.error_matches(function() meta.__len {} end, "length: x is a table; it must be a tensor")
    assert.error_matches(function() meta.__close(io.stdout) end, "release: x is a userdata; it must be a tensor")
    assert.is_false(meta.__eq(io.stdout, {}))
  end)
end)
