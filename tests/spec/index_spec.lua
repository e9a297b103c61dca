-- x[…] for reading and writing, and the names of fields and methods.
local heed = require "heed"
local support = require "tests.support"
local raises = require "tests.raises"

local function matrix() return heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } } end
local function range(last) return heed.range(1, last) end

describe("reading x[i]", function()
  it("gives a number for a tensor with one dimension", function()
    local x = heed.tensor { 1.5, 2, 3 }
    assert.equal(1.5, x[1])
    assert.equal(3, x[-1])
    assert.equal(2, x[2.0])
    assert.equal(true, heed.tensor({ true, false })[1])
    support.number_is("integer", heed.tensor({ 7 }, { dtype = "int64" })[1])
  end)

  it("gives a view for a tensor with more dimensions", function()
    local x = matrix()
    local row = x[2]
    row[1] = 40
    assert.same({ { 1, 2, 3 }, { 40, 5, 6 } }, x:tolist())
    assert.equal("heed.Size([3])", tostring(x[-2].shape))
    assert.equal(6, x[2][3])
  end)

  it("gives nil after the last element, so that ipairs ends", function()
    local x, seen = matrix(), {}
    assert.is_nil(x[3])
    assert.is_nil(heed.zeros(0)[1])
    for i, row in (support.has.loops and ipairs or heed.ipairs)(x) do seen[i] = row:tolist() end
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, seen)
  end)

  it("rejects indices out of range", function()
    local x = range(6)
    assert.error_matches(function() return x[0] end, "index 0 is out of range for dimension 1 of size 6")
    assert.error_matches(function() return x[8] end, "index 8 is out of range for dimension 1 of size 6")
    assert.error_matches(function() return x[-7] end, "index %-7 is out of range for dimension 1 of size 6")
    assert.error_matches(function() return x[math.mininteger] end, "out of range")
    assert.error_matches(function() return heed.zeros(0)[-1] end, "out of range")
  end)

  it("rejects other values", function()
    local x = matrix()
    raises("index: an index is the number 1.5; it must be an integer", function() return x[1.5] end)
    assert.error_matches(function() return x[0 / 0] end, "index: an index is the number .*; it must be an integer")
    assert.error_matches(function() return x[1e300] end, "index: an index is the number .*; it must be an integer")
    raises("index: the index is a boolean (true); it must be an integer, a table or a tensor", function()
      return x[true]
    end)
    raises("index: the index is nil; it must be an integer, a table or a tensor", function() return x[nil] end)
    raises("index: the index is a userdata; it must be an integer, a table or a tensor", function()
      return x[io.stdout]
    end)
    raises("index: x has no dimensions; x:item() reads its element", function() return heed.tensor(1)[1] end)
  end)
end)

describe("reading x[{…}]", function()
  it("gives a number if every dimension has an index", function()
    local x = matrix()
    assert.equal(6, x[{ 2, 3 }])
    assert.equal(4, x[{ -1, 1 }])
    assert.equal(3, x.T[{ 3, 1 }])
    assert.equal(5, range(5)[{ 5 }])
    assert.equal(7, heed.tensor(7)[{}])
  end)

  it("gives a view if some dimensions have none", function()
    local x = range(24):view(2, 3, 4)
    assert.same({ 21, 22, 23, 24 }, x[{ 2, 3 }]:tolist())
    assert.same({ 4, 8, 12 }, x[{ 1, {}, 4 }]:tolist())
    assert.is_true(x[{}] == x)
    x[{ 1, 1 }][1] = 100
    assert.equal(100, x[{ 1, 1, 1 }])
  end)

  it("slices with both ends included", function()
    local x = range(6)
    assert.same({ 2, 3, 4 }, x[{ { 2, 4 } }]:tolist())
    assert.same({ 1, 3, 5 }, x[{ { 1, 6, 2 } }]:tolist())
    assert.same({ 5, 6 }, x[{ { -2, -1 } }]:tolist())
    assert.same({ 3 }, x[{ { 3, 3 } }]:tolist())
    assert.same({}, x[{ { 3, 2 } }]:tolist())
    assert.same({ 2 }, x[{ { 2, 6, math.maxinteger } }]:tolist())
    assert.same({ { 2, 3 }, { 5, 6 } }, matrix()[{ {}, { 2, 3 } }]:tolist())
    assert.same({ { 1, 3 } }, matrix()[{ { 1, 1 }, { 1, 3, 2 } }]:tolist())
    assert.same({ { 1, 4 }, { 3, 6 } }, matrix().T[{ { 1, 3, 2 } }]:tolist())
  end)

  it("accepts int64 tensors without dimensions as integers", function()
    local two = heed.tensor(2, { dtype = "int64" })
    assert.equal(5, matrix()[{ two, two }])
    assert.same({ 4, 5, 6 }, matrix()[two]:tolist())
    assert.equal(2, range(6)[two])
  end)

  it("rejects too many indices, and invalid ones", function()
    local x = matrix()
    local fix = "; a list of indices for one is written x[{ {{1, 2, …}} }]"
    raises("index: 3 indices are given; x has 2 dimensions" .. fix, function() return x[{ 1, 2, 3 }] end)
    raises("index: 2 indices are given; x has 1 dimension" .. fix, function() return range(3)[{ 1, 2 }] end)
    raises("index: 3 indices are given; x has 2 dimensions", function() return x[{ {}, 2, 3 }] end)
    assert.error_matches(function() return x[{ 1, 4 }] end,
      "index 4 is out of range for dimension 2 of size 3")
    assert.error_matches(function() return x[{ 0 }] end, "index 0 is out of range for dimension 1 of size 2")
    raises("index: an index is the number 1.5; it must be an integer", function() return x[{ 1, 1.5 }] end)
    raises("index: item 2 of the list is a string ('1'); it must be an integer, a slice {first, last}, indices, "
      .. "a mask, \"...\" or heed.newaxis", function()
      return x[{ 1, "1" }]
    end)
    raises("index: item 2 of the list is a boolean (true); it must be an integer, a slice {first, last}, indices, "
      .. "a mask, \"...\" or heed.newaxis", function() return x[{ 1, true }] end)
    raises("index: the table has keys; it must be a list of integers and slices, one for each dimension", function()
      return x[{ dim = 1 }]
    end)
  end)

  it("rejects invalid slices", function()
    local x = matrix()
    local slice = "index: the slice of dimension %d must be {first, last}, {first, last, step} or {} for all; "
      .. "a list of indices is written {{1, 2, …}}"
    raises(slice:format(2), function() return x[{ 1, { 2 } }] end)
    raises(slice:format(1), function() return x[{ { first = 1 } }] end)
    raises("index: the slice of dimension 1 has a boolean (true); it must have integers", function()
      return x[{ { 1, true } }]
    end)
    assert.error_matches(function() return x[{ { 1, 3 } }] end, "index: .*3.*dimension 1.*2")
    assert.error_matches(function() return x[{ { 0, 1 } }] end, "index: .*0.*dimension 1")
    assert.error_matches(function() return x[{ { 2, 0 } }] end, "index: ")
    assert.error_matches(function() return x[{ { 1, 2, 0 } }] end, "index: .*step")
    assert.error_matches(function() return x[{ { 2, 1, -1 } }] end, "index: .*step")
  end)
end)

describe("reading by a tensor", function()
  it("selects the elements where a mask is true", function()
    local x = matrix()
    assert.same({ 4, 5, 6 }, x[x:gt(3)]:tolist())
    assert.same({ { 4, 5, 6 } }, x[heed.tensor { false, true }]:tolist())
    assert.equal("heed.Size([0])", tostring(x[x:gt(9)].shape))
    assert.error_matches(function() return x[heed.tensor { true, false, true }] end, "mask")
  end)

  it("selects rows by an int64 tensor", function()
    local x = matrix()
    local i = heed.tensor({ 2, 1, -1 }, { dtype = "int64" })
    assert.same({ { 4, 5, 6 }, { 1, 2, 3 }, { 4, 5, 6 } }, x[i]:tolist())
    assert.same({ 20, 10, 30 }, heed.tensor({ 10, 20, 30 })[i]:tolist())
    local square = heed.tensor({ { 1, 2 }, { 2, 2 } }, { dtype = "int64" })
    assert.equal("heed.Size([2, 2, 3])", tostring(x[square].shape))
    assert.same({ { 10, 20 }, { 20, 20 } }, heed.tensor({ 10, 20 })[square]:tolist())
    assert.equal("heed.Size([0, 3])", tostring(x[heed.zeros(0, { dtype = "int64" })].shape))
  end)

  it("gives a copy", function()
    local x = range(3)
    x[heed.tensor({ 1 }, { dtype = "int64" })][1] = 9
    assert.same({ 1, 2, 3 }, x:tolist())
  end)

  it("rejects other dtypes and indices out of range", function()
    local x = matrix()
    raises("index: the index contains 1.5; it must have whole numbers: convert with x:long(), which drops "
      .. "fractions (element [2] of the index)", function() return x[heed.tensor { 1, 1.5 }] end)
    raises("index: the index is float16; it must be int64, or float32 with whole values", function()
      return x[heed.ones(2):to "float16"]
    end)
    assert.error_matches(function() return x[heed.tensor({ 1, 3 }, { dtype = "int64" })] end,
      "3 is out of range")
    assert.error_matches(function() return x[heed.tensor({ 0 }, { dtype = "int64" })] end,
      "0 is out of range")
    assert.error_matches(function() return heed.tensor(1)[heed.tensor({ 1 }, { dtype = "int64" })] end,
      "no dimensions")
  end)
end)

describe("writing", function()
  it("sets elements and rows", function()
    local x = matrix()
    x[1] = 0
    x[{ 2, 3 }] = 60
    x[{ -1, 1 }] = heed.tensor(40)
    x[{ 2, 2 }] = heed.tensor { 50 }
    assert.same({ { 0, 0, 0 }, { 40, 50, 60 } }, x:tolist())
    x[2] = heed.tensor { 7, 8, 9 }
    assert.same({ 7, 8, 9 }, x[2]:tolist())
    x[{}] = 1
    assert.same({ { 1, 1, 1 }, { 1, 1, 1 } }, x:tolist())
    local scalar = heed.tensor(1)
    scalar[{}] = 5
    assert.equal(5, scalar:item())
  end)

  it("sets slices, with broadcasting", function()
    local x = heed.zeros(3, 4)
    x[{ {}, { 2, 3 } }] = heed.tensor { 1, 2 }
    x[{ { 1, 3, 2 }, 4 }] = 9
    x[{ 2, { 1, 1 } }] = heed.ones(1, 1, 1)
    assert.same({ { 0, 1, 2, 9 }, { 1, 1, 2, 0 }, { 0, 1, 2, 9 } }, x:tolist())
    x[{ { 2, 1 } }] = 5 -- no rows
    assert.equal(0, x[{ 1, 1 }])
  end)

  it("handles overlapping values as if they had been copied first", function()
    local x = range(5)
    x[{ { 2, 5 } }] = x[{ { 1, 4 } }]
    assert.same({ 1, 1, 2, 3, 4 }, x:tolist())
    x = range(5)
    x[{ { 1, 4 } }] = x[{ { 2, 5 } }]
    assert.same({ 2, 3, 4, 5, 5 }, x:tolist())
    local m = heed.tensor { { 1, 2 }, { 3, 4 } }
    m[{}] = m.T
    assert.same({ { 1, 3 }, { 2, 4 } }, m:tolist())
  end)

  it("converts to the dtype of the tensor written to", function()
    local i = heed.zeros(4, { dtype = "int64" })
    i[1] = 1.9
    i[2] = -1.9
    i[3] = true
    i[4] = heed.tensor(2.5)
    assert.same({ 1, -1, 1, 2 }, i:tolist())
    i[1] = math.maxinteger
    assert.equal(math.maxinteger, i[1])
    local b = heed.zeros(2, { dtype = "bool" })
    b[1] = 3
    assert.same({ true, false }, b:tolist())
    local f = heed.zeros(2)
    f[1] = true
    assert.same({ 1, 0 }, f:tolist())
  end)

  it("sets the elements where a mask is true", function()
    local x = matrix()
    x[x:gt(4)] = 0
    assert.same({ { 1, 2, 3 }, { 4, 0, 0 } }, x:tolist())
    x[heed.tensor { true, false }] = heed.tensor { 7, 8, 9 }
    assert.same({ 7, 8, 9 }, x[1]:tolist())
    x[x:eq(0)] = heed.tensor { 10, 20 }
    assert.same({ 4, 10, 20 }, x[2]:tolist())
  end)

  it("sets the rows that an int64 tensor names, one after another", function()
    local x = matrix()
    x[heed.tensor({ 2, 1 }, { dtype = "int64" })] = heed.tensor { { 1, 1, 1 }, { 2, 2, 2 } }
    assert.same({ { 2, 2, 2 }, { 1, 1, 1 } }, x:tolist())
    x[heed.tensor({ -1 }, { dtype = "int64" })] = 5
    assert.same({ 5, 5, 5 }, x[2]:tolist())
    local y = range(3)
    y[heed.tensor({ 1, 1 }, { dtype = "int64" })] = heed.tensor { 8, 9 }
    assert.same({ 9, 2, 3 }, y:tolist())
    y[heed.tensor({ 1, 2, 3 }, { dtype = "int64" })] = y[heed.tensor({ 3, 2, 1 }, { dtype = "int64" })]
    assert.same({ 3, 2, 9 }, y:tolist())
  end)

  it("changes nothing if an index is out of range", function()
    local x = range(3)
    assert.error_matches(function() x[heed.tensor({ 1, 4 }, { dtype = "int64" })] = 9 end,
      "4 is out of range")
    assert.same({ 1, 2, 3 }, x:tolist())
  end)

  it("rejects values that do not fit", function()
    local x = matrix()
    assert.error_matches(function() x[1] = heed.ones(2) end, "index: the value is %[2%].*%[3%]")
    assert.error_matches(function() x[{ 1, 1 }] = heed.ones(3) end, "index: the value is %[3%]")
    raises("index: the value is a string ('1'); it must be a tensor or a number", function() x[1] = "1" end)
    raises("index: the value is nil; it must be a tensor or a number", function() x[{ 1, 1 }] = nil end)
    raises("index: the value is a table; it must be a tensor or a number", function() x[1] = { 1, 2, 3 } end)
  end)

  it("rejects indices that do not exist", function()
    local x = matrix()
    assert.error_matches(function() x[3] = 1 end, "index 3 is out of range for dimension 1 of size 2")
    assert.error_matches(function() x[0] = 1 end, "index 0 is out of range")
    raises("index: 3 indices are given; x has 2 dimensions; a list of indices for one is written x[{ {{1, 2, …}} }]",
      function() x[{ 1, 1, 1 }] = 1 end)
    raises("index: x has no dimensions; x:item() reads its element", function() heed.tensor(1)[1] = 1 end)
    raises("index: the index is a boolean (true); it must be an integer, a table or a tensor", function()
      x[true] = 1
    end)
  end)

  it("rejects an expanded tensor", function()
    local x = heed.zeros(3, 1):expand(3, 4)
    raises("index: the tensor that is written has elements that share memory; clone it first",
      function() x[1] = 1 end)
    raises("index: the tensor that is written has elements that share memory; clone it first",
      function() x[{ 1, 1 }] = 1 end)
    raises("index: the tensor that is written has elements that share memory; clone it first",
      function() x[x:eq(0)] = 1 end)
  end)
end)

describe("x:iter", function()
  it("gives index and row", function()
    local seen = {}
    for i, row in matrix():iter() do seen[i] = row:sum():item() end
    assert.same({ 6, 15 }, seen)
  end)

  it("gives numbers for a tensor with one dimension", function()
    local sum = 0
    for i, v in range(4):iter() do sum = sum + i * v end
    assert.equal(30, sum)
    for _ in heed.zeros(0):iter() do error "there is nothing" end
  end)

  it("needs a dimension", function()
    raises("iter: x has no dimensions; it must have at least 1", function() heed.tensor(1):iter() end)
  end)
end)

describe("names", function()
  local x = matrix()

  it("are fields and methods", function()
    assert.equal(2, x.ndim)
    assert.equal("float32", x.dtype)
    assert.same({ { 1, 4 }, { 2, 5 }, { 3, 6 } }, x.T:tolist())
    assert.is_false(x.is_parameter)
    assert.equal("function", type(x.numel))
    assert.equal("heed.Size([4, 3, 2])", tostring(heed.zeros(2, 3, 4).T.shape))
    assert.equal(5, heed.tensor(5).T:item())
  end)

  it("that are unknown raise an error that suggests the nearest known name", function()
    raises("Tensor has no field or method 'shpae'; did you mean 'shape'?", function() return x.shpae end)
    raises("Tensor has no field or method 'tolst'; did you mean 'tolist'?", function() return x:tolst() end)
    raises("Tensor has no field or method 'nothing_like_it'", function() return x.nothing_like_it end)
    raises("Tensor has no field or method ''", function() return x[""] end)
    assert.error_matches(function() return x[("x"):rep(1000)] end, "no field or method a string of 1000 bytes")
  end)

  it("cannot be set", function()
    raises("index: fields of a tensor cannot be set ('name')", function() x.name = 1 end)
  end)
end)
