-- Operations on shapes, and products that are composed of others: PyTorch's results for random shapes and views, and
-- messages.
local heed = require "heed"
local support = require "tests.support"
local tensors = require "tests.tensors"
local raises = dofile "tests/raises.lua"

local function int64(list) return heed.tensor(list, { dtype = "int64" }) end

-- ---- PyTorch's results ----

-- The view that scripts/dev/make_shape_values.py describes; other values as they are.
local function argument(value)
  if type(value) ~= "table" then return value end
  if not value.of then
    local list = {}
    for key, each in pairs(value) do list[key] = argument(each) end
    return list
  end
  local count = 1
  for _, size in ipairs(value.of) do count = count * size end
  local x = (heed.arange(count) % 7 - 3):to(value.dtype):view(value.of):permute(value.order)
  return value.wide and x:expand(value.wide) or x
end

local cases_of = {}
for _, case in ipairs(dofile "tests/golden/shapes.lua") do
  cases_of[case.name] = cases_of[case.name] or {}
  table.insert(cases_of[case.name], case)
end

local function text_of(case)
  local parts = {}
  for i, value in ipairs(case.given) do
    parts[i] = type(value) == "table" and value.of and ("%s of [%s]"):format(value.dtype, table.concat(value.of, ", "))
      or type(value) == "table" and "{" .. (select(2, pcall(table.concat, value, ", "))) .. "}"
      or tostring(value)
  end
  return ("%s(%s)"):format(case.name, table.concat(parts, ", "))
end

describe("compared with PyTorch for random shapes and views,", function()
  local names = {}
  for name in pairs(cases_of) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    it(name .. " gives the same elements, shape and dtype", function()
      for _, case in ipairs(cases_of[name]) do
        local given = argument(case.given)
        local ok, got = pcall(heed[name], support.unpack(given, 1, #case.given))
        if not ok then error(text_of(case) .. ": " .. got) end
        if not case.several then got = { got } end
        assert.are.equal(#case.want, #got, text_of(case))
        for i, want in ipairs(case.want) do
          local wanted = tensors.golden(want)
          if tostring(wanted.shape) ~= tostring(got[i].shape) or wanted.dtype ~= got[i].dtype
            or not heed.equal(wanted, got[i]) then
            error(("%s: result %d is %s and must be %s"):format(text_of(case), i, tostring(got[i]), tostring(wanted)))
          end
        end
      end
    end)
  end
end)

-- ---- arange ----

describe("arange", function()
  it("counts from 0, or from start, up to but excluding end", function()
    assert.are.equal("tensor([0, 1, 2, 3, 4])", tostring(heed.arange(5)))
    assert.are.equal("tensor([2, 3, 4])", tostring(heed.arange(2, 5)))
    assert.are.equal("tensor([5, 3, 1])", tostring(heed.arange(5, 0, -2)))
    assert.are.equal("tensor([], dtype=heed.int64)", tostring(heed.arange(0)))
    assert.are.equal("tensor([0.0000, 0.5000, 1.0000])", tostring(heed.arange(0, 1.2, 0.5)))
    assert.are.equal("tensor([1.0000, 1.1000, 1.2000])", tostring(heed.arange(1, 1.25, 0.1)))
  end)

  it("gives int64 for integers and float32 otherwise, or the dtype that is asked for", function()
    assert.are.equal("int64", heed.arange(3).dtype)
    assert.are.equal("float32", heed.arange(2.5).dtype)
    assert.are.equal("float32", heed.arange(0, 3, 0.5).dtype)
    assert.are.equal("float32", heed.arange(3, { dtype = "float32" }).dtype)
    assert.are.equal("tensor([1., 3.])", tostring(heed.arange(1, 5, 2, { dtype = "float32" })))
    assert.are.equal("tensor([1, 2])", tostring(heed.arange { start = 1, ["end"] = 3 }))
    assert.are.equal("tensor([0, 3])", tostring(heed.arange(0, 6, { step = 3 })))
  end)

  it("gives ids: rows of an embedding", function()
    local weight = heed.range(1, 6):view(3, 2)
    assert.are.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, heed.embedding(heed.arange(1, 4), weight):tolist())
    raises("embedding: id 0 is out of range; weight has rows 1 to 3 (element [1] of ids); ids count from 1, as "
      .. "arange(1, n + 1) does", function() heed.embedding(heed.arange(3), weight) end)
  end)

  it("rejects ends and steps that make no sense", function()
    raises("arange: end is nil; it must be a number", function() heed.arange() end)
    raises("arange: end is nil; it must be a number", function() heed.arange(1, nil) end)
    raises("arange: start is a string ('0'); it must be a number", function() heed.arange("0", 3) end)
    raises("arange: 4 arguments were given; it takes at most 3", function() heed.arange(1, 2, 3, 4) end)
    raises("arange: step is given twice, by position and by name", function() heed.arange(1, 2, 3, { step = 1 }) end)
    raises("arange: there is no option 'stop'; the options are start, end, step, dtype, requires_grad",
      function() heed.arange { stop = 1 } end)
    raises("arange: step is 0; it must not be 0", function() heed.arange(1, 2, 0) end)
    raises("arange: start is 5, end 2 and step 1; end must not be less than start, or step must be negative",
      function() heed.arange(5, 2) end)
    raises("arange: start is 0, end 2 and step -0.5; end must not be greater than start, or step must be positive",
      function() heed.arange(0, 2, -0.5) end)
    raises("arange: start is 0, end inf and step 1; they must be finite", function() heed.arange(math.huge) end)
    raises("arange: dtype is bool; it must be float32 or int64", function() heed.arange(2, { dtype = "bool" }) end)
  end)
end)

-- ---- Views ----

describe("views", function()
  local x = heed.arange(24):view(2, 3, 4)

  it("share the elements of the tensor that they come from", function()
    local y = heed.zeros(3, 3)
    y:diagonal():fill_(2)
    assert.are.equal(6, y:sum():item())
    y:unbind(2)[1]:fill_(1)
    assert.are.same({ 1, 1, 1 }, y:select(2, 1):tolist())
    y:movedim(1, 2)[{ 3, 1 }] = 7
    assert.are.equal(7, y[{ 1, 3 }])
    y:unflatten(1, { 3, 1 })[{ 2, 1, 2 }] = 5
    assert.are.equal(5, y[{ 2, 2 }])
    y:unfold(1, 2, 2)[{ 1, 1, 1 }] = 9
    assert.are.equal(9, y[{ 1, 1 }])
  end)

  it("take PyTorch's names of options", function()
    assert.are.equal("heed.Size([2, 3])", tostring(x:diagonal { dim1 = 2, dim2 = 3 }.shape))
    assert.are.equal("heed.Size([3, 4, 2])", tostring(x:movedim { source = 1, destination = -1 }.shape))
    assert.are.equal("heed.Size([2, 3])", tostring(heed.zeros(2, 1, 3, 1):squeeze { dim = { 2, 4 } }.shape))
    assert.are.equal("heed.Size([2, 3, 2, 2])", tostring(x:unflatten { dim = 3, sizes = { 2, 2 } }.shape))
    assert.are.equal("heed.Size([3, 2, 4])", tostring(x:permute { dims = { 2, 1, 3 } }.shape))
  end)

  it("reject dimensions that do not exist or stand twice", function()
    raises("diagonal: dim1 and dim2 are both 1; they must differ", function() x:diagonal(0, 1, -3) end)
    raises("diagonal: x is [4]; it must have at least 2 dimensions", function() heed.ones(4):diagonal() end)
    raises("diagonal: dim is 4 and the tensor has 3 dimensions; it must be from 1 to 3, or from -1 to -3",
      function() x:diagonal(0, 1, 4) end)
    raises("flip: dim names dimension 2 twice; it must name it once", function() x:flip(2, -2) end)
    raises("flip: dims is missing; it must be the dimensions to reverse", function() x:flip() end)
    raises("squeeze: dim names dimension 1 twice; it must name it once", function() x:squeeze { 1, 1 } end)
    raises("movedim: source names dimension 1 twice; it must name it once",
      function() x:movedim({ 1, 1 }, { 1, 2 }) end)
    raises("moveaxis: destination names dimension 2 twice; it must name it once",
      function() x:moveaxis({ 1, 2 }, { 2, -2 }) end)
    raises("movedim: source has 2 dimensions and destination 1 dimension; there must be as many",
      function() x:movedim({ 1, 2 }, 1) end)
    raises("movedim: destination is nil; it must be an integer", function() x:movedim(1) end)
    raises("unbind: dim is 0 and the tensor has 3 dimensions; it must be from 1 to 3, or from -1 to -3",
      function() x:unbind(0) end)
    raises("unbind: x has no dimensions; it must have at least 1", function() heed.tensor(1):unbind() end)
    raises("permute: dims is given twice, by position and by name", function() x:permute(1, 2, { dims = { 3 } }) end)
  end)

  it("reject sizes that do not fit", function()
    raises("unfold: size is 5; it must be from 0 to 4, the size of dimension 3", function() x:unfold(3, 5, 1) end)
    raises("unfold: step is 0; it must be at least 1", function() x:unfold(3, 2, 0) end)
    raises("unflatten: dimension 3 has size 4 and sizes is [3, -1]; their product must be 4",
      function() x:unflatten(3, { 3, -1 }) end)
    raises("unflatten: sizes is [-1, -1]; it must have sizes of 0 or more and at most one of -1",
      function() x:unflatten(3, { -1, -1 }) end)
    raises("unflatten: sizes is nil; it must be a table of sizes", function() x:unflatten(3) end)
    raises("expand_as: other is a table; it must be a tensor", function() x:expand_as { 2, 3, 4 } end)
    raises("copy_: the tensor that is written has elements that share memory; clone it first",
      function() x:unfold(3, 2, 1):copy_(0) end)
  end)
end)

-- ---- Copies ----

describe("roll, tile, repeat and pad", function()
  local x = int64 { { 1, 2, 3 }, { 4, 5, 6 } }

  it("do what PyTorch does for the usual calls", function()
    assert.are.same({ { 3, 1, 2 }, { 6, 4, 5 } }, x:roll(1, -1):tolist())
    assert.are.same({ { 6, 1, 2 }, { 3, 4, 5 } }, x:roll(1):tolist())
    assert.are.same({ { 1, 2, 3, 1, 2, 3 }, { 4, 5, 6, 4, 5, 6 } }, heed.tile(x, 2):tolist())
    assert.are.equal("heed.Size([4, 3])", tostring(x["repeat"](x, 2, 1).shape))
    assert.are.equal("heed.Size([2, 2, 3])", tostring(heed["repeat"](x, { 2, 1, 1 }).shape))
    assert.are.same({ { 0, 1, 2, 3 }, { 0, 4, 5, 6 } }, x:pad({ 1, 0 }):tolist())
    assert.are.same({ { 2, 3, 9 }, { 5, 6, 9 } }, x:pad({ -1, 1 }, { value = 9 }):tolist())
    assert.are.same({ { 3, 2, 1, 2, 3 }, { 6, 5, 4, 5, 6 } }, x:pad({ 2, 0 }, "reflect"):tolist())
    assert.are.same({ { 3, 1, 2, 3, 1 }, { 6, 4, 5, 6, 4 } }, x:pad { pad = { 1, 1 }, mode = "circular" }:tolist())
  end)

  it("have relatives: repeat_interleave, also with a number for each slice", function()
    assert.are.same({ 1, 1, 2, 2, 2 }, heed.arange(1, 3):repeat_interleave({ 2, 3 }):tolist())
    assert.are.same({ { 1, 1, 3 }, { 4, 4, 6 } }, x:repeat_interleave(int64 { 2, 0, 1 }, 2):tolist())
    assert.are.same({ { 4, 5, 6 } }, x:repeat_interleave({ 0, 1 }, { dim = 1 }):tolist())
    assert.are.same({ 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6 }, x:repeat_interleave(int64 { 2 }):tolist())
    assert.are.equal("heed.Size([0, 3])", tostring(x:repeat_interleave({ 0, 0 }, 1).shape))
    raises("repeat_interleave: repeats is [2]; it must have one number for each of the 3 elements of dimension 2, or "
      .. "one for all", function() x:repeat_interleave({ 1, 2 }, 2) end)
    raises("repeat_interleave: repeats[2] is -1; it must be 0 or more",
      function() x:repeat_interleave({ 1, -1 }, 1) end)
  end)

  it("never return the tensor itself", function()
    for _, y in ipairs { x:roll(0, 1), x:roll(3, 2), x:tile(1), x:tile(1, 1, 1), x:pad { 0, 0 }, x:flip {},
      x:pad({ 0, 0 }, "reflect") } do
      y:fill_(7)
      assert.are.equal(1, x[{ 1, 1 }])
    end
  end)

  it("keep the order of elements of large tensors, on several threads as well", function()
    local n = 600
    local y = heed.arange(n * n):view(n, n)
    for threads = 1, 2 do
      heed.set_num_threads(threads)
      assert.is_true(heed.equal(y, y:flip(1):flip(2):flip(1, 2)))
      assert.is_true(heed.equal((n * n - 1) - y, y:flip(1, 2)))
      assert.is_true(heed.equal(y.T:flip(1), y:flip(2).T))
      assert.is_true(heed.equal(y.T:flip(2), y:flip(1).T))
      assert.is_true(heed.equal(y:float().T:flip(2), y:float():flip(1).T))
    end
    heed.set_num_threads(1)
  end)

  it("reject lists of other lengths", function()
    raises("roll: shifts has 2 values and dims 1 value; there must be one shift for each dimension",
      function() x:roll({ 1, 2 }, 1) end)
    raises("roll: shifts has 2 values and dims is nil; dims must name as many dimensions",
      function() x:roll { 1, 2 } end)
    raises("roll: shifts is nil; it must be an integer", function() x:roll() end)
    raises("repeat: repeats has 1 value and x has 2 dimensions; there must be at least as many: use tile, which adds "
      .. "ones in front", function() x["repeat"](x, 2) end)
    raises("tile: repeats[2] is -1; it must be 0 or more", function() x:tile(1, -1) end)
    raises("tile: repeats is the number 1.5; it must be an integer", function() x:tile(1.5) end)
    raises("tile: x is [2, 3] and repeats is [1, 4503599627370496]; the result would be too large",
      function() x:tile(1, 2 ^ 52) end)
    raises("pad: pad has 1 number; it must have two for each dimension", function() x:pad { 1 } end)
    raises("pad: pad has 6 numbers and x has 2 dimensions; it must have at most two for each dimension",
      function() x:pad { 1, 1, 1, 1, 1, 1 } end)
    raises("pad: pad is the number 1; it must be a table {before, after, …}, from the last dimension on",
      function() x:pad(1, 1) end)
    raises("pad: mode is a string ('mirror'); it must be 'constant', 'reflect', 'replicate' or 'circular'",
      function() x:pad({ 1, 1 }, "mirror") end)
    raises("pad: dimension 2 is padded by 3 and has size 3; mode 'reflect' takes less than the size",
      function() x:pad({ 3, 0 }, "reflect") end)
    raises("pad: dimension 2 has size 3 and pads of 4611686018427387904 and 4611686018427387904; the result would be "
      .. "too large", function() heed.ones(2, 3):pad { 2 ^ 62, 2 ^ 62 } end)
    raises("pad: dimension 2 has size 3 and pads of -2 and -2; elements to remove must exist",
      function() x:pad { -2, -2 } end)
    raises("pad: value is given; mode 'reflect' takes none", function() x:pad({ 1, 1 }, "reflect", 0) end)
  end)
end)

-- ---- Joining ----

describe("joining", function()
  local x = heed.range(1, 6):view(2, 3)

  it("refuses values and indices together in one list", function()
    local rest = "the indices of these values; for the values alone, put the call in parentheses: {(x:max(1))}"
    raises("stack: tensors[2] is the second result of the call that gave tensors[1], " .. rest,
      function() heed.stack { x:max(-1) } end)
    raises("cat: tensors[3] is the second result of the call that gave tensors[2], " .. rest,
      function() heed.cat { x, x:sort(-1) } end)
    raises("tensor: data[2] is the second result of the call that gave the tensor before it, " .. rest,
      function() heed.tensor { x:topk(1) } end)
    raises("stack: tensors[2] is the second result of the call that gave tensors[1], " .. rest,
      function() heed.stack { x:median(1) } end)
    assert.are.equal("heed.Size([1, 2])", tostring(heed.stack { (x:max(-1)) }.shape))
  end)

  it("appends indices to ids, as a loop that generates does", function()
    local _, best = x:max(-1, true)
    assert.are.same({ { 1, 3 }, { 1, 3 } }, heed.cat({ int64 { { 1 }, { 1 } }, best }, 2):tolist())
  end)

  it("refuses tensors outside of a table, options inside, and holes", function()
    raises("stack: tensors is a tensor of shape [2, 3] and dtype float32; it must be a table of tensors, as in {a, b}",
      function() heed.stack(x, x, x) end)
    raises("cat: the table of tensors has the key 'dim'; options must be in a table of their own",
      function() heed.cat { x, x, dim = 2 } end)
    raises("cat: tensors[2] is nil; it must be a tensor: a list must have no holes",
      function() heed.cat(support.pack(x, nil)) end)
    raises("hstack: tensors[2] is nil; it must be a tensor: a list must have no holes",
      function() heed.hstack(support.pack(x, nil)) end)
    raises("vstack: the table of tensors has the key 'dim'; options must be in a table of their own",
      function() heed.vstack { x, dim = 1 } end)
    raises("dstack: tensors[2] is nil; it must be a tensor", function() heed.dstack(x, nil) end)
    raises("column_stack: tensors is empty; it must have at least 1 tensor", function() heed.column_stack() end)
    assert.are.equal("heed.Size([4, 3])", tostring(heed.cat(support.pack(x, x)).shape))
    assert.are.equal("heed.Size([4, 3])", tostring(heed.vstack(support.pack(x, x)).shape))
  end)

  it("makes grids of tensors of one dimension", function()
    local grid = heed.meshgrid({ heed.arange(2), heed.arange(3) }, { indexing = "xy" })
    assert.are.same({ { 0, 1 }, { 0, 1 }, { 0, 1 } }, grid[1]:tolist())
    assert.are.same({ { 0, 0 }, { 1, 1 }, { 2, 2 } }, grid[2]:tolist())
    raises("meshgrid: tensors[2] is a tensor of shape [2, 3] and dtype float32; it must be a tensor of at most "
      .. "1 dimension",
      function() heed.meshgrid(x[1], x) end)
    raises("meshgrid: tensors[2] is int64 and the first is float32; the dtypes must be equal",
      function() heed.meshgrid(x[1], heed.arange(3)) end)
    raises("meshgrid: indexing is a string ('yx'); it must be 'ij' or 'xy'",
      function() heed.meshgrid(x[1], { indexing = "yx" }) end)
  end)
end)

-- ---- New tensors of another shape ----

describe("new tensors", function()
  local ids = int64 { 1, 2 }

  it("have the dtype of the tensor that makes them", function()
    assert.are.equal("tensor([[0, 0, 0]])", tostring(ids:new_zeros(1, 3)))
    assert.are.equal("tensor([1, 1])", tostring(ids:new_ones { 2 }))
    assert.are.equal("tensor([7, 7])", tostring(ids:new_full({ 2 }, 7)))
    assert.are.equal("tensor([1, 2])", tostring(ids:new_tensor { 1.5, 2 }))
    assert.are.equal("int64", ids:new_empty(2, 3).dtype)
    assert.are.equal("tensor([0., 0.])", tostring(ids:new_zeros(2, { dtype = "float32" })))
    assert.are.equal("tensor([True])", tostring(ids:new_tensor({ 3 }, { dtype = "bool" })))
  end)

  it("are spaced evenly in the exponent by logspace", function()
    tensors.close(heed.tensor { 0.01, 1, 100 }, heed.logspace(-2, 2, 3), 1e-6, 1e-6)
    tensors.close(heed.tensor { 1, 2, 4, 8 }, heed.logspace(0, 3, 4, 2), 0, 1e-6)
    tensors.close(heed.tensor { 2, 4 }, heed.logspace(1, 2, 2, { base = 2 }), 0, 1e-6)
    assert.are.equal("int64", heed.logspace(0, 1, 2, 10, { dtype = "int64" }).dtype)
    raises("logspace: end is nil; it must be a number", function() heed.logspace(1) end)
    raises("logspace: steps is the number -1; it must be 0 or more", function() heed.logspace(0, 1, -1) end)
  end)

  it("need a shape", function()
    raises("new_full: size is nil; it must be a number or a table of numbers", function() ids:new_full(nil, 1) end)
    raises("new_full: fill_value is nil; it must be a number", function() ids:new_full { 2 } end)
    raises("new_zeros: a size is nil; it must be an integer", function() ids:new_zeros(nil) end)
    raises("new_zeros: x is the number 2; it must be a tensor", function() heed.new_zeros(2, 3) end)
  end)
end)

-- ---- Diagonals and triangles ----

describe("diag and its relatives", function()
  it("put blocks along the diagonal: a mask of documents", function()
    local mask = heed.block_diag(heed.ones(1, 1), heed.ones(2, 2)):bool()
    assert.are.same({ { true, false, false }, { false, true, true }, { false, true, true } }, mask:tolist())
    raises("block_diag: tensors[2] is a tensor of shape [1, 1, 1] and dtype float32; it must be a tensor of at most 2 "
      .. "dimensions", function() heed.block_diag { heed.ones(1), heed.ones(1, 1, 1) } end)
  end)

  it("reject what has no diagonal", function()
    raises("diag: x is a tensor of shape [1, 1, 1] and dtype float32; it must be a tensor of 1 or 2 dimensions (use "
      .. "diagonal or diag_embed)", function() heed.ones(1, 1, 1):diag() end)
    raises("trace: x is a tensor of shape [2] and dtype float32; it must be a tensor of 2 dimensions",
      function() heed.ones(2):trace() end)
    raises("diag_embed: dim1 and dim2 are both 1; they must differ", function() heed.ones(2):diag_embed(0, 1, 1) end)
    raises("tril_indices: row is the number -1; it must be 0 or more", function() heed.tril_indices(-1, 2) end)
    raises("triu_indices: col is nil; it must be an integer", function() heed.triu_indices(2) end)
  end)

  it("give indices that select the triangle", function()
    local x = heed.range(1, 9):view(3, 3)
    local at = heed.tril_indices(3, 3, -1)
    assert.are.same({ { 2, 3, 3 }, { 1, 1, 2 } }, at:tolist())
    local flat = (at[1] - 1) * 3 + at[2]
    assert.are.same({ 4, 7, 8 }, x:flatten():index_select(1, flat):tolist())
  end)
end)

-- ---- Products ----

describe("products", function()
  local a, b = heed.ones(2, 3), heed.ones(3, 4)

  it("name their arguments if shapes do not fit", function()
    raises("bmm: x is a tensor of shape [2, 3] and dtype float32; it must be a tensor of 3 dimensions",
      function() a:bmm(b) end)
    raises("bmm: x is [1, 2, 3] and mat2 is [2, 3, 4]; the first sizes must be equal (1 and 2)",
      function() a:view(1, 2, 3):bmm(heed.ones(2, 3, 4)) end)
    raises("mv: x is [2, 3] and vec is [2]; the last size of x (3) must equal the first size of vec (2)",
      function() a:mv(heed.ones(2)) end)
    raises("addmm: mat1 is [3, 4] and mat2 is [2, 3]; the last size of mat1 (4) must equal the first size of mat2 (2)",
      function() heed.ones(1):addmm(b, a) end)
    raises("addmm: x is [3, 4] and the product is [2, 4]; x must broadcast to the product",
      function() b:addmm(a, b) end)
    raises("addmm: alpha is a string ('2'); it must be a number",
      function() heed.ones(4):addmm(a, b, { alpha = "2" }) end)
    raises("addmm: there is no option 'gamma'; the options are beta, alpha",
      function() heed.ones(4):addmm(a, b, { gamma = 1 }) end)
    raises("inner: x is [2, 3] and other is [3, 4]; the last sizes must be equal (3 and 4)", function() a:inner(b) end)
    raises("tensordot: x is [2, 3] and other is [3, 4]; dimension 1 of x and 1 of other must have equal sizes",
      function() a:tensordot(b) end)
    raises("tensordot: dims is 3; it must be from 0 to 2, the number of dimensions that both have",
      function() a:tensordot(b, 3) end)
    raises("tensordot: dims names 1 dimension of x and 2 of other; there must be as many",
      function() a:tensordot(b, { { 1 }, { 1, 2 } }) end)
    raises("cross: x is [2, 2] and other is [2, 2]; a dimension of both must have size 3",
      function() heed.ones(2, 2):cross(heed.ones(2, 2)) end)
  end)

  it("ignore x if beta is 0, even where it is nan", function()
    local y = heed.full({ 2, 4 }, 0 / 0)
    assert.are.same({ { 3, 3, 3, 3 }, { 3, 3, 3, 3 } }, y:addmm(a, b, { beta = 0 }):tolist())
    assert.are.same({ { 5, 5, 5, 5 }, { 5, 5, 5, 5 } }, heed.ones(4):addmm(a, b, 2, 1):tolist())
  end)
end)

-- ---- einsum ----

describe("einsum", function()
  local a, b = heed.randn(2, 3), heed.randn(3, 4)

  it("computes attention's scores and the mix of values", function()
    heed.manual_seed(1)
    local q, k, v = heed.randn(2, 5, 3, 4), heed.randn(2, 6, 3, 4), heed.randn(2, 6, 3, 4) -- b, n, h, d
    local function heads(x) return x:transpose(2, 3) end
    local scores = heed.einsum("bqhd,bkhd->bhqk", q, k)
    tensors.close(heads(q):matmul(heads(k):transpose(3, 4)), scores)
    local y = heed.einsum("bhqk, bkhd -> bqhd", scores:softmax(-1), v)
    tensors.close(heads(scores:softmax(-1):matmul(heads(v))), y)
  end)

  it("takes the operands in a table, and blanks", function()
    assert.is_true(heed.equal(a:matmul(b), heed.einsum(" ij , jk -> ik ", { a, b })))
  end)

  it("names the operand and the letter that do not fit", function()
    raises("einsum: letter 'j' is 3 in operand 1 and 2 in operand 2; the sizes must be equal, or one of them 1",
      function() heed.einsum("ij,jk", a, a) end)
    raises("einsum: operand 2 is [3, 4] and its subscripts are 'jkl'; it must have 3 dimensions",
      function() heed.einsum("ij,jkl", a, b) end)
    raises("einsum: operand 1 is [2, 3] and its subscripts are '...ijk'; it must have at least 3 dimensions",
      function() heed.einsum("...ijk", a) end)
    raises("einsum: letter 'i' is 2 and 3 in operand 1; the sizes of a repeated letter must be equal",
      function() heed.einsum("ii", a) end)
    raises("einsum: a dimension of '...' is 2 in operand 1 and 3 in operand 2; the sizes must be equal, or one of "
      .. "them 1",
      function() heed.einsum("...,...", a, b) end)
  end)

  it("rejects equations that it cannot read", function()
    raises("einsum: equation is a tensor of shape [2, 3] and dtype float32; it must be a string such as 'ij,jk->ik'",
      function() heed.einsum(a, "ij") end)
    raises("einsum: equation is 'ij,jk'; it has 2 operands and 1 tensor is given; there must be as many",
      function() heed.einsum("ij,jk", a) end)
    raises("einsum: equation is 'ij->iz'; letter 'z' of the output must be in an operand",
      function() heed.einsum("ij->iz", a) end)
    raises("einsum: equation is 'ij->ii'; letter 'i' must stand once in the output",
      function() heed.einsum("ij->ii", a) end)
    raises("einsum: equation is 'i1'; it has '1', and must be of letters, ',', '->' and '...'",
      function() heed.einsum("i1", a) end)
    raises("einsum: equation is '...i...'; '...' must stand once in each operand and in the output",
      function() heed.einsum("...i...", a) end)
    raises("einsum: operands[2] is nil; it must be a tensor", function() heed.einsum("ij,jk", a, nil) end)
    raises("einsum: operands[1] is bool; it must be float32 or int64: convert with operands[1]:float()",
      function() heed.einsum("ij,jk", a:bool(), b:bool()) end)
    raises("einsum: equation has 5000 characters; it must have at most 4096",
      function() heed.einsum(("i"):rep(5000), a) end)
  end)
end)

-- ---- Limits and finalizers ----

describe("composed operations", function()
  local calls = {
    roll = function(x) return x:roll({ 1, 2 }, { 1, 2 }) end,
    tile = function(x) return x:tile(2, 3) end,
    pad = function(x) return x:pad { 1, 1, 1, 1 } end,
    ["pad, reflect"] = function(x) return x:pad({ 1, 1, 1, 1 }, "reflect") end,
    diag_embed = function(x) return x:diag_embed() end,
    einsum = function(x) return heed.einsum("ij,kj->ik", x, x) end,
    tensordot = function(x) return x:tensordot(x, { 2, 2 }) end,
    cross = function(x) return x[{ {}, { 1, 3 } }]:cross(x[{ {}, { 1, 3 } }], 2) end,
    addmm = function(x) return x:addmm(x, x) end,
    vstack = function(x) return heed.vstack { x, x } end,
    meshgrid = function(x) return heed.meshgrid { x[1], x[2] }[1] end,
  }

  it("count in the memory limit, and work as before after it was exceeded", function()
    local x = heed.ones(300, 300)
    local wanted = {}
    for name, f in pairs(calls) do wanted[name] = f(x):sum():item() end
    for name, f in pairs(calls) do
      if name ~= "meshgrid" and name ~= "cross" then -- whose results are small
        for _ = 1, 2 do collectgarbage() end
        heed.limit { memory = heed.info().memory_in_use + 100 * 1000 }
        local ok, message = pcall(f, x)
        heed.limit { memory = math.huge }
        assert.is_false(ok, name)
        assert.truthy(message:find("memory limit exceeded", 1, true), message)
      end
      assert.are.equal(wanted[name], f(x):sum():item())
    end
  end)

  support.where("every_allocation", it, pending)("survive finalizers that release what they use", function()
    for name, f in pairs(calls) do
      local number, reached = 0, true
      while reached and number < 20 do
        number = number + 1
        local x = heed.ones(4, 4)
        local ok, message
        reached, ok, message = support.at_allocation(number, function() x:release() end, f, x)
        if not ok then assert.truthy(tostring(message):find("released", 1, true), name .. ": " .. tostring(message)) end
      end
    end
  end)
end)
