-- Indices as arguments; x[{…}] with several tensors; operations that read and write by index.
local heed = require "heed"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"

local int64 = tensors.int64
local two_by_three = { { 1, 2, 3 }, { 4, 5, 6 } }
local function matrix() return heed.tensor(two_by_three) end

-- ---- Against PyTorch ----

local function shown(items)
  local parts = {}
  for i, item in ipairs(items) do
    parts[i] = item[1] == "ids" and "[" .. table.concat(item[2].shape, ", ") .. "] " .. item[2].dtype
      or table.concat(item, " ")
  end
  return table.concat(parts, "; ")
end

-- The list of x[{…}] for the items of a case; `convert` is applied to its tensors.
local function key_of(items, convert)
  local key = {}
  for i, item in ipairs(items) do
    local kind = item[1]
    if kind == "at" then
      key[i] = item[2]
    elseif kind == "slice" then
      key[i] = { item[2], item[3], item[4] }
    elseif kind == "all" then
      key[i] = {}
    elseif kind == "ids" then
      key[i] = convert(tensors.golden(item[2]))
    else
      key[i] = kind == "new" and heed.newaxis or "..."
    end
  end
  return key
end

-- The forms in which indices are taken: as they are; as a table, one level deeper; as float32.
local function as_table(t)
  if t.ndim == 0 or t:numel() == 0 then return t end
  return { t:tolist() }
end
local function as_float(t) return t.dtype == "int64" and t:float() or t end
local FORMS = { function(t) return t end, as_table, as_float }

local function same(wanted, got)
  if type(got) ~= "table" and type(got) ~= "userdata" then got = heed.tensor(got, { dtype = wanted.dtype }) end
  assert.equal(tostring(wanted.shape), tostring(got.shape))
  assert.equal(wanted.dtype, got.dtype)
  assert.is_true(heed.equal(wanted, got))
end

local cases = { index = {} }
for _, case in ipairs(dofile "tests/golden/indices.lua") do
  cases[case.kind] = cases[case.kind] or {}
  table.insert(cases[case.kind], case)
end

describe("x[{…}] is PyTorch's", function()
  for number, case in ipairs(cases.index) do
    it(("for %s of [%s], case %d"):format(shown(case.key), table.concat(case.x.shape, ", "), number), function()
      for _, form in ipairs(FORMS) do
        local x, key = tensors.golden(case.x), key_of(case.key, form)
        same(tensors.golden(case.y), x[key])
        x[key] = tensors.golden(case.value)
        same(tensors.golden(case.written), x)
      end
    end)
  end

  it("on views that are not contiguous", function()
    for _, case in ipairs(cases.index) do
      local whole = tensors.golden(case.x)
      local x = heed.stack({ whole, whole }, -1):select(-1, 2)
      local key = key_of(case.key, FORMS[1])
      same(tensors.golden(case.y), x[key])
      x[key] = tensors.golden(case.value)
      same(tensors.golden(case.written), x)
    end
  end)
end)

describe("an operation with indices gives PyTorch's numbers:", function()
  local names, methods = {}, support.tensor_methods()
  for name, list in pairs(cases) do
    if list[1].arguments then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    it(name, function()
      for _, case in ipairs(cases[name]) do
        local arguments = {}
        for i, value in ipairs(case.arguments) do
          arguments[i] = type(value) == "table" and tensors.golden(value) or value
        end
        local x, y = tensors.golden(case.x), tensors.golden(case.y)
        same(y, x[name](x, support.unpack(arguments)))
        same(tensors.golden(case.x), x)
        local in_place = methods[name .. "_"]
        if in_place then
          assert.is_true(in_place(x, support.unpack(arguments)) == x)
          same(y, x)
        end
      end
    end)
  end

  it("unique", function()
    for _, case in ipairs(cases.unique) do
      local x = tensors.golden(case.x)
      local y, inverse, counts = x:unique { return_inverse = true, return_counts = true }
      same(tensors.golden(case.y), y)
      same(tensors.golden(case.inverse), inverse)
      same(tensors.golden(case.counts), counts)
      assert.equal(1, select("#", x:unique()))
      same(counts, (select(2, x:unique(true, false, true))))
    end
  end)

  it("multinomial, and draws after it", function()
    for _, case in ipairs(cases.multinomial) do
      local x = tensors.golden(case.x)
      if case.transposed then x = x.T end
      heed.manual_seed(case.seed)
      same(tensors.golden(case.y), heed.multinomial(x, case.samples, case.replacement))
      same(tensors.golden(case.after), heed.rand(1))
      local g = heed.Generator(case.seed)
      same(tensors.golden(case.y), x:multinomial { num_samples = case.samples, replacement = case.replacement,
        generator = g })
    end
  end)
end)

-- ---- Forms of indices ----

describe("indices", function()
  local m = heed.nn.Embedding(5, 3)
  local takers = {
    ["heed.embedding"] = function(ids) return heed.embedding(ids, m.weight) end,
    ["nn.Embedding"] = function(ids) return m(ids) end,
    ["x[ids]"] = function(ids) return m.weight[type(ids) == "table" and { { ids } } or ids] end,
    index_select = function(ids) return m.weight:index_select(1, ids) end,
    gather = function(ids) return heed.range(1, 5):gather(1, ids) end,
    take_along_dim = function(ids) return heed.range(1, 5):take_along_dim(ids, 1) end,
    index_fill = function(ids) return m.weight:index_fill(1, ids, 0) end,
    scatter = function(ids) return heed.zeros(5):scatter(1, ids, 1) end,
    one_hot = function(ids) return heed.one_hot(ids, 5) end,
    bincount = function(ids) return heed.bincount(ids) end,
    rope = function(ids) return heed.rope(heed.ones(3, 4), ids) end,
    kv_lengths = function(ids)
      local q = heed.ones(3, 1, 5, 2)
      return heed.scaled_dot_product_attention(q, q, q, { kv_lengths = ids })
    end,
  }
  for name, take in pairs(takers) do
    it(("of %s are int64, whole float32, or a table of integers"):format(name), function()
      local wanted = take(int64 { 4, 1, 4 })
      same(wanted, take { 4, 1, 4 })
      same(wanted, take(heed.tensor { 4, 1, 4 }))
      same(wanted, take { heed.tensor(4, { dtype = "int64" }), 1.0, 4 })
      local ok, message = pcall(take, heed.tensor { 4, 1.5, 4 })
      assert.is_false(ok)
      assert.truthy(message:find("contains 1.5; it must have whole numbers: convert with x:long(), which drops "
        .. "fractions (element [2] of", 1, true), message)
      ok, message = pcall(take, { 4, 1.5, 4 })
      assert.is_false(ok)
      assert.truthy(message:find("[2] is the number 1.5; it must be an integer", 1, true), message)
      ok, message = pcall(take, heed.tensor { 4, 0 / 0, 4 })
      assert.is_false(ok)
      assert.truthy(message:find("must have whole numbers", 1, true), message)
      ok, message = pcall(take, heed.ones(3):to "float16")
      assert.is_false(ok)
      assert.truthy(message:find("is float16; it must be int64, or float32 with whole values", 1, true), message)
      assert.is_false(pcall(take, { 4, { 1 }, 4 }))
      assert.is_false(pcall(take, { 4, "1", 4 }))
      assert.is_false(pcall(take, io.stdout))
    end)
  end

  it("may be nested tables, and their error names the element", function()
    same(heed.embedding(int64 { { 1, 2 }, { 3, 5 } }, m.weight), m { { 1, 2 }, { 3, 5 } })
    raises("Embedding: id 6 is out of range; weight has rows 1 to 5 (element [2, 1] of ids)",
      function() return m { { 1, 2 }, { 6, 5 } } end)
    raises("Embedding: ids[2][1] is a string ('a'); it must be an integer", function() return m { { 1 }, { "a" } } end)
    raises("Embedding: ids[2] has 1 element; it must have 2, like the others",
      function() return m { { 1, 2 }, { 3 } } end)
    raises("gather: index 4 is out of range for dimension 2 of size 3; it must be from 1 to 3, or from -1 to -3 "
      .. "(element [2, 1] of index)", function() return matrix():gather(2, { { 1 }, { 4 } }) end)
    raises("Embedding: ids is the number 3; it must be a tensor or a table of integers", function() return m(3) end)
  end)

  it("stay exact beyond the integers of float32", function()
    local many = heed.ones(1):expand(2 ^ 24 + 2)
    assert.equal(1, heed.gather(many, 1, { 2 ^ 24 + 1 }):item())
    assert.equal(2 ^ 24 + 2, #many)
  end)
end)

-- ---- Lists ----

describe("a list of indices", function()
  it("selects by tables in a table, by masks, and by what nonzero gives", function()
    local x = matrix()
    assert.same({ 3, 4 }, x[{ { { 1, 2 } }, { { 3, 1 } } }]:tolist())
    assert.same({ { 1, 3 }, { 4, 6 } }, x[{ {}, { { true, false, true } } }]:tolist())
    assert.same({ 5, 6 }, x[x:gt(4):nonzero(true)]:tolist())
    assert.same({ { 1, 1 }, { 4, 4 } }, x[{ { { { 1 }, { 2 } } }, { { 1, 1 } } }]:tolist())
    assert.same({ { 3, 6 } }, x[{ heed.newaxis, "...", 3 }]:tolist())
  end)

  it("without tensors of indices gives a view", function()
    local x = matrix()
    x[{ "...", 1 }][2] = 40
    x[{ "newaxis", {}, { 2, 3 } }][{ 1, 1, 2 }] = 30
    assert.same({ { 1, 2, 30 }, { 40, 5, 6 } }, x:tolist())
    assert.equal("heed.Size([1, 2, 1, 3, 1])", tostring(x[{ "newaxis", {}, "newaxis", {}, "newaxis" }].shape))
    assert.equal(30, x[{ "...", 1, 3 }])
    assert.equal(5, x[{ 2, 2, "..." }])
  end)

  it("is assigned in order: of several values for one element the last stays", function()
    local x = heed.zeros(3, 2)
    x[{ { { 1, 3, 1 } }, { { 2, 1, 2 } } }] = heed.tensor { 7, 8, 9 }
    assert.same({ { 0, 9 }, { 0, 0 }, { 8, 0 } }, x:tolist())
    x[{ { { 3, 2 } } }] = heed.tensor { { 1 }, { 2 } }
    assert.same({ { 0, 9 }, { 2, 2 }, { 1, 1 } }, x:tolist())
    x[{ heed.newaxis, 1 }] = 5
    assert.same({ 5, 5 }, x[1]:tolist())
    x[{ "...", { { 1, 2 } } }] = x[{ "...", { { 2, 1 } } }]
    assert.same({ { 5, 5 }, { 2, 2 }, { 1, 1 } }, x:tolist())
    local i = int64 { 1, 2, 3 }
    i[{ i }] = int64 { 3, 2, 1 }
    assert.same({ 3, 2, 1 }, i:tolist())
  end)

  it("converts what is assigned", function()
    local x = heed.zeros(3, { dtype = "int64" })
    x[{ { { 1, 2 } } }] = heed.tensor { 1.9, -1.9 }
    x[{ { { 3 } } }] = true
    assert.same({ 1, -1, 1 }, x:tolist())
    local half = heed.zeros(3):to "bfloat16"
    half[{ { { 1, 3 } } }] = heed.tensor { 2, 3 }
    assert.same({ 2, 0, 3 }, half:float():tolist())
  end)

  it("says what is wrong with it, and then changes nothing", function()
    local x = matrix()
    local function both(message, key)
      raises(message, function() return x[key] end)
      raises(message, function() x[key] = 9 end)
    end
    both("index: 3 indices are given; x has 2 dimensions", { "...", 1, 2, 3 })
    both('index: items 1 and 3 are both "..."; there can be only one', { "...", 1, "..." })
    both("index: item 1 of the list is a string ('all'); it must be an integer, a slice {first, last}, indices, "
      .. 'a mask, "..." or heed.newaxis', { "all", { { 1 } } })
    both("index: item 2 of the list is a table of 2 tables; it must be one table of indices in a table: {{1, 2, …}}",
      { 1, { { 1, 2 }, { 3, 4 } } })
    both("index: index 5 is out of range for dimension 2 of size 3; it must be from 1 to 3, or from -1 to -3 "
      .. "(element [2] of indices[2])", { 1, { { 1, 5 } } })
    both("index: index 3 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2",
      { 3, "..." })
    both("index: indices[2] is [3] and those before it are [2]; they must broadcast together",
      { { { 1, 2 } }, { { 1, 2, 3 } } })
    both("index: indices[1] is a mask of shape [3]; its dimension 1 must have size 2, like dimension 1 of x",
      { heed.tensor { true, false, true }, 1 })
    both("index: indices[2][1] is the number 1.5; it must be an integer", { 1, { { 1.5 } } })
    both("index: indices[1] contains 0.5; it must have whole numbers: convert with x:long(), which drops fractions "
      .. "(element [2] of indices[1])", { heed.tensor { 1, 0.5 } })
    raises("index: value is [3] and must broadcast to [2]; its size 3 of dimension 1 must be 1 or 2",
      function() x[{ { { 1, 2 } }, { { 1, 2 } } }] = heed.ones(3) end)
    assert.same(two_by_three, x:tolist())
    raises("index: the tensor that is written has elements that share memory; clone it first",
      function() heed.ones(1):expand(3)[{ { { 1 } } }] = 2 end)
    local deep = heed.ones(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    raises("index: the result has more than 16 dimensions", function() return deep[{ "newaxis", "..." }] end)
  end)
end)

-- ---- Operations ----

describe("writing by index", function()
  it("converts numbers, and refuses tensors whose values x cannot hold", function()
    local x = heed.zeros(2, 3, { dtype = "int64" })
    assert.same({ { 1, 0, 0 }, { 0, 0, 1 } }, x:scatter(2, { { 1 }, { 3 } }, 1.5):tolist())
    assert.same({ { true, false, false } },
      heed.zeros(1, 3, { dtype = "bool" }):scatter_(2, { { 1 } }, 1):tolist())
    assert.same({ 1, 0, 3 }, heed.zeros(3):index_copy(1, { 1, 3 }, int64 { 1, 3 }):tolist())
    raises("scatter: src is float32 and x is int64, which cannot hold it; convert one of them",
      function() return x:scatter(2, { { 1 } }, heed.ones(1, 1)) end)
    raises("index_add_: source is float32 and x is int64, which cannot hold it; convert one of them",
      function() x:index_add_(1, { 1 }, heed.ones(1, 3)) end)
    raises("index_put_: value is float32 and x is int64, which cannot hold it; convert one of them",
      function() x:index_put_({ { 1 }, { 1 } }, heed.ones(1)) end)
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, x:tolist())
  end)

  it("adds and multiplies booleans as or and and", function()
    local x = heed.tensor { false, true }
    local src = heed.tensor { true, false }
    assert.same({ true, true }, x:scatter_add(1, { 1, 2 }, src):tolist())
    assert.same({ false, false }, x:scatter(1, { 1, 2 }, src, "multiply"):tolist())
  end)

  it("takes options by name", function()
    assert.same({ 3, 0 }, heed.zeros(2):index_add_(1, { 1 }, heed.ones(1), { alpha = 3 }):tolist())
    assert.same({ 5, 0 }, heed.zeros(2):scatter_(1, { 1 }, { value = 5 }):tolist())
    assert.same({ 1, 5 }, heed.ones(2):scatter(1, { 2 }, { src = heed.tensor { 4 }, reduce = "add" }):tolist())
    assert.same({ 3, 0 },
      heed.zeros(2):index_put({ { 1, 1 } }, heed.tensor { 1, 2 }, { accumulate = true }):tolist())
  end)

  it("reads what it writes as it was before", function()
    local x = heed.tensor { 1, 2, 3 }
    assert.same({ 3, 2, 1 }, x:scatter_(1, { 3, 2, 1 }, x):tolist())
    assert.same({ 4, 4, 4 }, x:index_add_(1, { 3, 2, 1 }, x):tolist())
    local i = int64 { 2, 3, 1 }
    assert.same({ 1, 2, 3 }, i:scatter_(1, i, int64 { 2, 3, 1 }):tolist())
  end)

  it("says what is wrong, and then changes nothing", function()
    local x = heed.zeros(2, 3)
    local ones = heed.ones(2, 3)
    raises("scatter_: index is [1] and x is [2, 3]; they must have the same number of dimensions",
      function() x:scatter_(1, { 1 }, 1) end)
    raises("scatter_: index is [1, 4] and x is [2, 3]; except for dimension 1, index must not be larger than x",
      function() x:scatter_(1, { { 1, 1, 1, 1 } }, 1) end)
    raises("scatter_: index is [1, 3] and src is [1, 2]; index must not be larger than src",
      function() x:scatter_(1, { { 1, 1, 1 } }, heed.ones(1, 2)) end)
    raises("scatter_: reduce is a string ('mean'); it must be 'add', 'multiply' or nil",
      function() x:scatter_(1, { { 1 } }, 1, "mean") end)
    raises("scatter_: src is nil; it must be a tensor or a number", function() x:scatter_(1, { { 1 } }) end)
    raises("scatter: src and value are both given; give one of them",
      function() return x:scatter(1, { { 1 } }, 1, { value = 2 }) end)
    raises("scatter_add_: src is the number 1; it must be a tensor", function() x:scatter_add_(1, { { 1 } }, 1) end)
    raises("scatter_add_: index 3 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2 "
      .. "(element [1, 2] of index)", function() x:scatter_add_(1, { { 1, 3, 1 } }, ones) end)
    raises("index_add: source is [2, 3]; it must be [1, 3], for x [2, 3] and 1 index of dimension 1",
      function() return x:index_add(1, { 1 }, ones) end)
    raises("index_copy_: index is [1, 1]; it must have 1 dimension", function() x:index_copy_(1, { { 1 } }, ones) end)
    raises("index_fill_: value is a tensor of shape [2] and dtype float32; it must be a number or a tensor of no "
      .. "dimensions", function() x:index_fill_(1, { 1 }, heed.ones(2)) end)
    raises("index_fill_: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2",
      function() x:index_fill_(3, { 1 }, 1) end)
    raises("index_put_: indices has 0 items; it must have 1 to 16, one for each dimension",
      function() x:index_put_({}, 1) end)
    raises("index_put_: the indices are for 3 dimensions; x has 2",
      function() x:index_put_({ { 1 }, { 1 }, { 1 } }, 1) end)
    raises("index_add_: x is float16; it must be float32, int64 or bool: convert with x:float()",
      function() x:to("float16"):index_add_(1, { 1, 2 }, ones) end)
    raises("scatter_: the tensor that is written has elements that share memory; clone it first",
      function() heed.ones(1):expand(3):scatter_(1, { 1 }, 2) end)
    assert.is_true(heed.equal(heed.zeros(2, 3), x))
  end)

  it("does the same on tensors without elements or dimensions", function()
    assert.equal(0, heed.zeros(0):scatter(1, {}, 1):numel())
    assert.equal(5, heed.tensor(1):scatter(1, int64 { 1 }, 5):item())
    assert.equal(3, heed.tensor(1):index_add(1, { 1 }, heed.tensor { 2 }):item())
    assert.equal("heed.Size([1, 0])", tostring(heed.tensor(3):nonzero().shape))
    assert.equal("heed.Size([0, 0])", tostring(heed.tensor(0):nonzero().shape))
    assert.equal("heed.Size([0, 2])", tostring(heed.zeros(3, 0):argwhere().shape))
    assert.equal("heed.Size([2, 0, 4])", tostring(heed.one_hot(heed.zeros(2, 0, { dtype = "int64" }), 4).shape))
    assert.same({}, heed.bincount({}):tolist())
    assert.same({ 0, 0 }, heed.bincount({}, { minlength = 2 }):tolist())
  end)
end)

describe("counting and sampling", function()
  it("one_hot infers the number of classes, and refuses ids beyond a given one", function()
    local y = heed.one_hot { 2, 1, 3 }
    assert.equal("int64", y.dtype)
    assert.same({ { 0, 1, 0 }, { 1, 0, 0 }, { 0, 0, 1 } }, y:tolist())
    raises("one_hot: ids contains 3 and num_classes is 2; it must be at least 3",
      function() return heed.one_hot({ 3 }, 2) end)
    raises("one_hot: ids contains 0; it must contain integers from 1 on", function() return heed.one_hot { 0 } end)
    raises("one_hot: ids has no elements; num_classes must be given", function() return heed.one_hot {} end)
    raises("one_hot: num_classes is the number 1.5; it must be an integer, 0 or more",
      function() return heed.one_hot({ 1 }, 1.5) end)
  end)

  it("bincount and unique say what they take", function()
    raises("bincount: ids contains -1; it must contain integers from 1 on", function() return heed.bincount { -1 } end)
    raises("bincount: weights has 1 element and ids has 2; there must be a weight for each id",
      function() return heed.bincount({ 1, 2 }, heed.ones(1)) end)
    raises("unique: return_counts is the number 1; it must be a boolean",
      function() return heed.unique(matrix(), { return_counts = 1 }) end)
    raises("take_along_dim: indices has size 3 and x has size 2 in dimension 1; they must be equal, or 1",
      function() return matrix():take_along_dim({ { 1 }, { 1 }, { 1 } }, 2) end)
    raises("take_along_dim: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2",
      function() return matrix():take_along_dim({ { 1 } }, 3) end)
    assert.same({ 2, 6 }, matrix():take_along_dim({ 2, 6 }):tolist())
  end)

  it("searchsorted and bucketize take numbers, other dtypes and views, and put nan last", function()
    local sorted = heed.tensor { 1, 3, 3, 5 }
    assert.equal(2, sorted:searchsorted(3):item())
    assert.equal(4, sorted:searchsorted(3, { side = "right" }):item())
    assert.equal(5, sorted:searchsorted(0 / 0):item())
    assert.same({ 2, 5 }, heed.tensor({ { 3, 9 }, { 8, 8 } }, { dtype = "int64" })[1]:bucketize(sorted):tolist())
    local columns = heed.tensor { { 1, 2 }, { 9, 8 } } -- sorted from top to bottom
    assert.same({ { 1, 2 }, { 3, 3 } }, columns.T:searchsorted(heed.tensor { { 1, 2 }, { 9, 9 } }):tolist())
    raises("searchsorted: sorted is [2, 2] and values is [3]; sorted must have 1 dimension, or the sizes of values "
      .. "except for the last one", function() return heed.ones(2, 2):searchsorted(heed.ones(3)) end)
    raises("searchsorted: side is a string ('up'); it must be 'left' or 'right'",
      function() return sorted:searchsorted(1, { side = "up" }) end)
    raises("searchsorted: right is true and side is 'left'; give one of them",
      function() return sorted:searchsorted(1, { right = true, side = "left" }) end)
    raises("bucketize: boundaries is a tensor of shape [1, 1] and dtype float32; it must be a tensor of 1 dimension",
      function() return sorted:bucketize(heed.ones(1, 1)) end)
    raises("bucketize: values is float16; it must be float32, int64 or bool: convert with values:float()",
      function() return sorted:to("float16"):bucketize(sorted) end)
  end)

  it("masks of no dimensions are refused, however many there are", function()
    local x, mask = heed.ones(2), heed.tensor(true)
    for _, count in ipairs { 1, 17, 33 } do
      local list = {}
      for i = 1, count do list[i] = mask end
      raises("index: indices[1] is a mask of no dimensions; it must have at least 1", function() return x[list] end)
      raises("index: indices[1] is a mask of no dimensions; it must have at least 1", function() x[list] = 1 end)
    end
  end)

  it("multinomial refuses weights that it cannot sample, and then draws nothing", function()
    local w = heed.tensor { 1, 2, 0 }
    local g = heed.Generator(1)
    local before = g:get_state()
    raises("multinomial: weights contain -1 (element 2 of 2); they must be finite and not negative",
      function() return heed.multinomial(heed.tensor { 1, -1 }, 1, { generator = g }) end)
    raises("multinomial: weights contain inf (element 2, 1); they must be finite and not negative",
      function() return heed.multinomial(heed.tensor { { 1, 1 }, { math.huge, 1 } }, 1, { generator = g }) end)
    raises("multinomial: row 1 of weights has 2 positive weights; it must have at least 3, the number of samples "
      .. "without replacement", function() return w:multinomial(3, { generator = g }) end)
    raises("multinomial: row 1 of weights has 0 positive weights; it must have at least 1",
      function() return heed.zeros(3):multinomial(2, true, { generator = g }) end)
    raises("multinomial: num_samples is 4 and there are 3 weights; without replacement it must be at most their "
      .. "number: set replacement = true", function() return w:multinomial(4) end)
    raises("multinomial: num_samples is 0; it must be at least 1", function() return w:multinomial(0) end)
    raises("multinomial: num_samples is nil; it must be an integer", function() return w:multinomial() end)
    raises("multinomial: weights is [1, 1, 1]; it must have 1 or 2 dimensions",
      function() return heed.ones(1, 1, 1):multinomial(1) end)
    raises("multinomial: weights is int64; it must be float32: convert with weights:float()",
      function() return w:long():multinomial(1) end)
    assert.equal(before, g:get_state())
  end)
end)
