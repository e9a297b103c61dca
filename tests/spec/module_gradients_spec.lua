-- m:requires_grad_ and m:zero_grad.
local heed = require "heed"
local raises = require "tests.raises"
local nn = heed.nn

--- A module of one's own with a built-in part, which it holds twice.
local Mine = nn.Module.class "Mine"
function Mine:init()
  self.part = nn.Linear(2, 3)
  self.again = self.part
  self.scale = nn.Parameter(heed.ones(3))
  self:register_buffer("mean", heed.zeros(3))
end

describe("a module", function()
  it("freezes its parameters, and asks for their gradients again", function()
    local m = Mine()
    assert.are.equal(m, m:requires_grad_(false))
    for _, parameter in m:named_parameters() do assert.is_false(parameter.requires_grad) end
    m:requires_grad_()
    for _, parameter in m:named_parameters() do assert.is_true(parameter.requires_grad) end
    assert.is_false(m.mean.requires_grad)
    m:requires_grad_ { requires_grad = false }
    assert.is_false(m.scale.requires_grad)
  end)

  it("forgets gradients, or sets them to 0", function()
    local m = Mine()
    m.scale.grad = heed.ones(3)
    m:zero_grad(false)
    assert.is_true(m.scale.grad:equal(heed.zeros(3)))
    assert.is_nil(m.part.weight.grad)
    m:zero_grad()
    assert.is_nil(m.scale.grad)
  end)

  it("leaves low-precision weights without a gradient", function()
    local m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3))
    m[2]:to "int8"
    m:requires_grad_(false)
    raises("requires_grad_: 1.weight is a tensor of shape [3, 3] and dtype int8; it must be float32", function()
      m:requires_grad_(true)
    end)
    assert.is_false(m[1].weight.requires_grad) -- nothing changed
  end)

  it("refuses wrong arguments", function()
    local m = nn.Linear(2, 2)
    raises("requires_grad_: requires_grad is the number 1; it must be a boolean", function() m:requires_grad_(1) end)
    local unknown = "zero_grad: there is no option 'to_none'; the options are set_to_none; did you mean 'set_to_none'?"
    raises(unknown, function() m:zero_grad { to_none = true } end)
    raises("zero_grad: self is nil; it must be a module; call the method with a colon", function() m.zero_grad() end)
  end)
end)
