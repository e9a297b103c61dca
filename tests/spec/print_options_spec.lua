-- heed.set_printoptions: the texts are PyTorch's, from scripts/dev/make_print_values.py.
local heed = require "heed"
local fails = require "tests.fails"

local function build(value)
  local options = { dtype = value.dtype }
  if #value.shape == 0 then return heed.tensor(value.data[1], options) end
  return heed.tensor(value.data, options):reshape(value.shape)
end

describe("set_printoptions", function()
  local set = heed.set_printoptions
  after_each(function() set { profile = "default" } end)

  it("prints what PyTorch prints", function()
    for number, case in ipairs(dofile "tests/golden/print_options.lua") do
      set { profile = "default" }
      set(case.options or {})
      assert.equal(case.text, tostring(build(case.x)), "case " .. number)
    end
  end)

  it("takes the options by position, too", function()
    set(2, 10, 1)
    assert.equal("tensor([0.50,  ..., 1.50])", tostring(heed.linspace(0.5, 1.5, 20)))
  end)

  it("keeps what is not given, except sci_mode", function()
    set { precision = 1, sci_mode = true }
    assert.equal("tensor([1.5e+00])", tostring(heed.tensor { 1.5 }))
    set { linewidth = 100 }
    assert.equal("tensor([1.5])", tostring(heed.tensor { 1.5 }))
    set()
    assert.equal("tensor([1.5])", tostring(heed.tensor { 1.5 }))
  end)

  it("prints every element for the threshold heed.inf", function()
    set { threshold = heed.inf }
    assert.is_nil(tostring(heed.zeros(2000)):find("...", 1, true))
  end)

  it("refuses other values, and changes nothing then", function()
    fails("set_printoptions: precision is 51; it must be from 0 to 50", set, { precision = 51, edgeitems = 1 })
    fails("set_printoptions: precision is the number 1.5; it must be an integer", set, { precision = 1.5 })
    fails("set_printoptions: edgeitems is 0; it must be from 1 to 2147483647", set, { edgeitems = 0 })
    fails("set_printoptions: linewidth is 0; it must be from 1 to 2147483647", set, { linewidth = 0 })
    fails("set_printoptions: profile is a string ('long'); it must be 'default', 'short' or 'full'", set,
      { precision = 1, profile = "long" })
    fails("set_printoptions: sci_mode is a string ('yes'); it must be a boolean", set, { sci_mode = "yes" })
    fails("set_printoptions: there is no option 'digits'; the options are precision, threshold, edgeitems, linewidth, "
      .. "profile, sci_mode", set, { digits = 1 })
    assert.equal("tensor([1.5000])", tostring(heed.tensor { 1.5 }))
  end)

  it("prints the largest number with 50 digits", function()
    set { precision = 50, sci_mode = false }
    local text = tostring(heed.tensor { -3.4028234663852886e38, 0.5 })
    assert.matches("-340282346638528859811704183484516925440." .. ("0"):rep(50), text, 1, true)
  end)
end)
