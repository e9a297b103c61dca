-- Printed tensors look as in PyTorch, with "heed." for "torch.". Most cases are in tests/golden/printing.lua; here is
-- one for each rule, so that a failure names the rule.
local heed = require "heed"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0

local function text(data, dtype) return tostring(heed.tensor(data, { dtype = dtype })) end

describe("a printed tensor", function()
  describe("of float32", function()
    it("prints integral values with a trailing point", function()
      assert.equal("tensor([1., 2., 3.])", text { 1, 2, 3 })
      assert.equal("tensor([-0., 0.])", text { -1 / math.huge, 0 })
    end)

    it("prints other values with four digits, aligned", function()
      assert.equal("tensor([ 1.5000, -2.2500,  3.0000])", text { 1.5, -2.25, 3 })
    end)

    it("uses scientific notation at a ratio above 1000, above 1e8 and below 1e-4", function()
      assert.equal("tensor([9.9900e-01, 1.0000e+03])", text { 0.999, 1000 })
      assert.equal("tensor([   1.5000, 1000.0000])", text { 1.5, 1000 })
      assert.equal("tensor([   1., 1000.])", text { 1, 1000 })
      assert.equal("tensor([1.0000e+10, 1.0000e+00])", text { 1e10, 1 })
      assert.equal("tensor([1.0000e+08])", text { 100000008 })
      assert.equal("tensor([100000000.])", text { 1e8 })
      assert.equal("tensor([9.9000e-05])", text { 0.000099 })
    end)

    it("ignores nan and inf when it chooses the notation, and aligns them", function()
      assert.equal("tensor([   nan,    inf,   -inf, 1.5000])", text { nan, inf, -inf, 1.5 })
      assert.equal("tensor([nan, 1.])", text { nan, 1 })
      assert.equal("tensor([nan, inf, -inf])", text { nan, inf, -inf })
      assert.equal("tensor([       nan, 1.0000e-10])", text { nan, 1e-10 })
      assert.equal("tensor(nan)", text(-nan))
    end)
  end)

  it("prints the whole range of int64", function()
    assert.equal("tensor([  1, -20, 300])", text({ 1, -20, 300 }, "int64"))
    assert.equal("tensor([-9223372036854775808,  " .. support.digits(math.maxinteger) .. "])",
      text({ math.mininteger, math.maxinteger }, "int64"))
  end)

  it("prints bool like Python", function()
    assert.equal("tensor([ True, False])", text { true, false })
    assert.equal("tensor([True])", text { true })
  end)

  it("prints a value without dimensions without brackets", function()
    assert.equal("tensor(3.5000)", text(3.5))
    assert.equal("tensor(7)", text(7, "int64"))
    assert.equal("tensor(True)", text(true))
  end)

  it("prints shape and dtype if there are no elements", function()
    assert.equal("tensor([])", tostring(heed.zeros(0)))
    assert.equal("tensor([], size=(2, 0))", tostring(heed.zeros(2, 0)))
    assert.equal("tensor([], dtype=heed.int64)", tostring(heed.zeros(0, { dtype = "int64" })))
    assert.equal("tensor([], size=(0, 3), dtype=heed.bool)", tostring(heed.zeros(0, 3, { dtype = "bool" })))
  end)

  it("puts the dtype on a new line if it would pass column 80", function()
    local sizes = { 0, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10 }
    assert.equal("tensor([],\n" ..
      "       size=(0, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10),\n" ..
      "       dtype=heed.int64)", tostring(heed.zeros(sizes, { dtype = "int64" })))
  end)

  it("separates matrices by blank lines, one more for each dimension", function()
    assert.equal([=[
tensor([[[[0., 1.],
          [2., 3.]],

         [[4., 5.],
          [6., 7.]]],


        [[[8., 9.],
          [8., 9.]],

         [[8., 9.],
          [8., 9.]]]])]=],
      tostring(heed.tensor { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9, 8, 9, 8, 9 }:view(2, 2, 2, 2)))
  end)

  it("wraps rows at column 80", function()
    assert.equal([=[
tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000,
        0.5000, 0.5000])]=], tostring(heed.full({ 11 }, 0.5)))
    assert.equal([=[
tensor([[0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000,
         0.5000]])]=], tostring(heed.full({ 1, 10 }, 0.5)))
  end)

  it("is summarized beyond 1000 elements", function()
    assert.equal("tensor([   1,    2,    3,  ..., 1199, 1200, 1201])",
      tostring(heed.range(1, 1201, 1, { dtype = "int64" })))
    assert.equal([=[
tensor([[0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        ...,
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000]])]=], tostring(heed.full({ 40, 40 }, 0.5)))
  end)

  it("chooses the notation of a summary by the elements shown", function()
    local x = heed.ones(1001)
    x[500] = 1e-20
    assert.equal("tensor([1., 1., 1.,  ..., 1., 1., 1.])", tostring(x))
  end)

  it("shows a view, not the underlying memory", function()
    local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.equal("tensor([[1., 4.],\n        [2., 5.],\n        [3., 6.]])", tostring(x:t()))
    assert.equal("tensor([[7., 7., 7.],\n        [7., 7., 7.]])", tostring(heed.tensor(7):expand(2, 3)))
  end)

  it("says that it was released", function()
    local x = heed.ones(2)
    x:release()
    assert.equal("tensor(released)", tostring(x))
  end)

  it("does not depend on the locale", function()
    local before = os.setlocale(nil, "numeric")
    for _, name in ipairs { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8" } do
      if os.setlocale(name, "numeric") then break end
    end
    local got = text { 1.5, 1e-9 }
    os.setlocale(before, "numeric")
    assert.equal("tensor([1.5000e+00, 1.0000e-09])", got)
  end)
end)

describe("the text of a tensor", function()
  it("concatenates with strings, numbers and tensors by ..", function()
    local x = heed.tensor { 1, 2 }
    assert.equal("scores: tensor([1., 2.])", "scores: " .. x)
    assert.equal("tensor([1., 2.]) are scores", x .. " are scores")
    assert.equal("tensor([1., 2.])7", x .. 7)
    assert.equal("tensor([1., 2.])tensor([1., 2.])", x .. x)
    assert.equal("tensor([1., 2.])heed.Size([2])", x .. x.shape)
  end)

  it("does not concatenate with other values", function()
    assert.error_matches(function() return heed.ones(1) .. {} end,
      "concat: a tensor cannot be joined with a table; it must be a string, a number or a value with __tostring")
    assert.error_matches(function() return nil .. heed.ones(1) end, "cannot be joined with nil")
  end)
end)

describe("a tensor of any size", function()
  after_each(function() heed.set_printoptions { profile = "default" } end)

  it("is printed whole, wherever the text has outgrown a buffer", function()
    heed.set_printoptions { threshold = math.huge }
    for _, columns in ipairs { 1, 2 } do
      local row = columns == 1 and "[0.]" or "[0., 0.]"
      local rows = {}
      for n = 1, 400 do
        rows[n] = row
        assert.equal("tensor([" .. table.concat(rows, ",\n        ") .. "])", tostring(heed.zeros(n, columns)))
        assert.equal("tensor([[" .. table.concat(rows, ",\n         ") .. "]])", tostring(heed.zeros(1, n, columns)))
      end
    end
  end)
end)
