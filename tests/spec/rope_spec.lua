-- heed.rope and heed.alibi_slopes, compared with reference values in double precision (make_layer_values.py).
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local golden, close = tensors.golden, tensors.close

describe("heed.rope", function()
  for i, case in ipairs(dofile "tests/golden/rope.lua") do
    if case.x then
      it(("gives the reference values, case %d"):format(i), function()
        local positions = case.positions and golden(case.positions)
        close(heed.rope(golden(case.x), positions, case.options), golden(case.y), 1e-6)
      end)
    end
  end

  it("supports any strides", function()
    local wide = heed.randn(5, 2, 16)
    for _, style in ipairs { "half", "interleaved" } do
      local options = { style = style, dims = 6 }
      local rows = wide:transpose(1, 2)
      assert.is_true(heed.rope(rows, options):equal(heed.rope(rows:contiguous(), options)))
      local columns = heed.randn(8, 4).T
      assert.is_true(heed.rope(columns, options):equal(heed.rope(columns:contiguous(), options)))
    end
  end)

  it("leaves its input, and the elements beyond dims, unchanged", function()
    local x = heed.randn(3, 8)
    local before = x:clone()
    local y = x:rope { dims = 4 }
    assert.is_true(x:equal(before))
    assert.is_true(y[{ {}, { 5, 8 } }]:equal(x[{ {}, { 5, 8 } }]))
    assert.is_true(y[1]:equal(x[1]))
  end)

  it("makes the product of a query and a key depend on their distance only", function()
    local q, k = heed.randn(64), heed.randn(64)
    local function score(at, from, options)
      local function turned(x, p)
      return heed.rope(x:view(1, 64), heed.tensor({ p }, { dtype = "int64" }), options)[1]
    end
      return turned(q, at):dot(turned(k, from)):item()
    end
    for _, style in ipairs { "half", "interleaved" } do
      for _, from in ipairs { 2, 100, 4000, 1000001 } do
        assert.is_near(score(8, 1, { style = style }), score(from + 7, from, { style = style }), 1e-4)
      end
    end
  end)

  it("rotates each position independently of the others", function()
    local x, options = heed.randn(300, 10), { base = 300 }
    local all = heed.rope(x, options)
    for _, i in ipairs { 1, 2, 63, 64, 65, 128, 129, 300 } do
      close(heed.rope(x[{ { i, i } }], heed.tensor({ i }, { dtype = "int64" }), options), all[{ { i, i } }], 1e-6)
    end
  end)

  it("does not depend on the number of threads", function()
    local x = heed.randn(2, 3, 700, 64)
    local one = heed.rope(x)
    heed.set_num_threads(4)
    local four = heed.rope(x)
    heed.set_num_threads(1)
    assert.is_true(one:equal(four))
  end)

  it("accepts tensors without elements", function()
    assert.are.same({ 0, 4 }, { table.unpack(heed.rope(heed.zeros(0, 4)).shape) })
    assert.are.same({ 0, 3, 4 },
      { table.unpack(heed.rope(heed.zeros(0, 3, 4), heed.ones(3, { dtype = "int64" })).shape) })
  end)

  it("accepts its options by position, too", function()
    local x = heed.randn(3, 8)
    assert.is_true(heed.rope(x, nil, 100, "interleaved", 4):equal(
      heed.rope(x, { base = 100, style = "interleaved", dims = 4 })))
  end)

  it("names wrong arguments", function()
    local x = heed.ones(2, 4)
    raises("rope: x is [4]; it must be [..., n, d]", function() heed.rope(heed.ones(4)) end)
    raises("rope: x is nil; it must be a tensor", function() heed.rope() end)
    raises("rope: x is int64; it must be float32: convert with x:float()",
      function() heed.rope(heed.ones(2, 4, { dtype = "int64" })) end)
    raises("rope: a head has 3 elements; rope rotates pairs: give an even dims",
      function() heed.rope(heed.ones(2, 3)) end)
    for _, dims in ipairs { 3, 6, -2 } do
      raises(("rope: dims is %d; it must be even, from 2 to 4, the size of a head"):format(dims),
        function() heed.rope(x, { dims = dims }) end)
    end
    raises("rope: dims is 0; it must be even, from 2 to the size of a head", function() heed.rope(x, { dims = 0 }) end)
    for text, base in pairs { ["-1"] = -1, ["0"] = 0, inf = math.huge } do
      raises(("rope: base is %s; it must be positive and finite"):format(text),
        function() heed.rope(x, { base = base }) end)
    end
    raises("rope: style is a string ('whole'); it must be 'half' or 'interleaved'",
      function() heed.rope(x, { style = "whole" }) end)
    raises("rope: there is no option 'basis'; the options are positions, base, style, dims, scaling",
      function() heed.rope(x, { basis = 1 }) end)
    raises("rope: positions contains 0.5; it must have whole numbers: convert with x:long(), which drops fractions "
      .. "(element [1] of positions)", function() heed.rope(x, heed.ones(2) / 2) end)
    raises("rope: positions is [3] and must broadcast to [2]; its size 3 of dimension 1 must be 1 or 2",
      function() heed.rope(x, heed.ones(3, { dtype = "int64" })) end)
    raises("rope: element 2 of positions is 0; it must be at least 1: positions count from 1",
      function() heed.rope(x, heed.tensor({ 1, 0 }, { dtype = "int64" })) end)
    raises("rope: base is a string ('1e4'); it must be a number", function() heed.rope(x, { base = "1e4" }) end)
  end)

  it("names what a scaling needs", function()
    local x = heed.ones(2, 4)
    raises("rope: scaling is the number 3; it must be a table", function() heed.rope(x, { scaling = 3 }) end)
    raises("rope: type of scaling is nil; it must be 'linear', 'ntk', 'yarn', 'llama3' or 'factors'",
      function() heed.rope(x, { scaling = {} }) end)
    raises("rope: scaling is a list; it must be a table of options",
      function() heed.rope(x, { scaling = { "yarn" } }) end)
    raises("rope: factor of scaling is nil; it must be a number",
      function() heed.rope(x, { scaling = { type = "ntk" } }) end)
    raises("rope: factor is 0; it must be positive and finite",
      function() heed.rope(x, { scaling = { type = "linear", factor = 0 } }) end)
    raises("rope: dims is 2; with ntk scaling it must be at least 4",
      function() heed.rope(x, { dims = 2, scaling = { type = "ntk", factor = 2 } }) end)
    for _, kind in ipairs { "yarn", "llama3" } do
      raises("rope: original_context_length is 0; with this scaling it must be the context length of the "
        .. "training", function() heed.rope(x, { scaling = { type = kind, factor = 2 } }) end)
    end
    raises("rope: base is 1; with yarn scaling it must be above 1", function()
      heed.rope(x, { base = 1, scaling = { type = "yarn", factor = 2, original_context_length = 8 } })
    end)
    raises("rope: beta_fast is 1 and beta_slow is 2; they must be positive, and the first not smaller", function()
      local scaling = { type = "yarn", factor = 2, original_context_length = 8, beta_fast = 1, beta_slow = 2 }
      heed.rope(x, { scaling = scaling })
    end)
    raises("rope: attention_factor is -1; it must be positive and finite", function()
      heed.rope(x, { scaling = { type = "yarn", factor = 2, original_context_length = 8, attention_factor = -1 } })
    end)
    raises("rope: low_freq_factor is 4 and high_freq_factor is 4; they must be positive, and the second larger",
      function()
        heed.rope(x, { scaling = { type = "llama3", factor = 2, original_context_length = 8, low_freq_factor = 4 } })
      end)
    raises("rope: there is no option 'beta'; the options are type, factor, original_context_length, beta_fast, "
      .. "beta_slow, attention_factor, low_freq_factor, high_freq_factor, factors",
      function() heed.rope(x, { scaling = { type = "yarn", beta = 2 } }) end)
  end)

  it("names what factors need", function()
    local function refuses(message, scaling)
      scaling.type = "factors"
      raises("rope: " .. message, function() heed.rope(heed.ones(2, 4), { scaling = scaling }) end)
    end
    refuses("factors of scaling is nil; it must be a list of numbers, one for each pair", {})
    refuses("an element of factors is a string ('1'); it must be a number", { factors = { "1", 2 } })
    refuses("factors has 1 element before a 0; it must have 2, one for each pair, and at most 256", { factors = { 1 } })
    refuses("factors has 3 elements before a 0; it must have 2, one for each pair, and at most 256",
      { factors = { 1, 2, 3 } })
    refuses("factors has 1 element before a 0; it must have 2, one for each pair, and at most 256",
      { factors = { 1, 0 } })
    refuses("element 2 of factors is -1; it must be positive and finite", { factors = { 1, -1 } })
    refuses("element 1 of factors is nan; it must be positive and finite", { factors = { 0 / 0, 1 } })
    refuses("attention_factor is -1; it must be positive and finite", { factors = { 1, 2 }, attention_factor = -1 })
    local many = {}
    for i = 1, 257 do many[i] = 1 end
    refuses("factors has 257 elements; it must have one for each pair, and at most 256", { factors = many })
  end)

  it("keeps the factors of a module", function()
    local scaling = { type = "factors", factors = { 1, 2.5 }, attention_factor = 1.5, factor = 4 }
    local m = heed.nn.MultiHeadAttention { d_in = 8, d_out = 8, num_heads = 2, context_length = 8, dropout = 0,
      rope = { scaling = scaling } }
    assert.are.same(scaling, m.rope.scaling)
    assert.truthy(tostring(m):find("scaling=factors", 1, true))
  end)
end)

describe("heed.alibi_slopes", function()
  for _, case in ipairs(dofile "tests/golden/rope.lua") do
    if case.slopes then
      it(("equal those of the paper for %d heads"):format(#case.slopes.data), function()
        close(heed.alibi_slopes(#case.slopes.data), golden(case.slopes), 1e-7)
      end)
    end
  end

  it("need at least one head", function()
    raises("alibi_slopes: num_heads is 0; it must be at least 1", function() heed.alibi_slopes(0) end)
    raises("alibi_slopes: num_heads is a string ('8'); it must be an integer", function() heed.alibi_slopes "8" end)
  end)
end)
