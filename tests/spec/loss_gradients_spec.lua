-- Gradients of activations and losses where their formulas change or overflow are PyTorch's:
-- tests/golden/loss_gradients.lua, which scripts/dev/make_loss_gradient_values.py describes and makes.
local heed = require "heed"
local cases = dofile "tests/golden/loss_gradients.lua"

local function build(value)
  return heed.tensor(#value.shape == 0 and value.data[1] or value.data, { dtype = value.dtype })
end

--- Raises unless the elements are within 2e-6 of the largest, each of its own size.
local function close(got, want, what)
  local elements = got:detach():flatten():tolist()
  if type(elements) ~= "table" then elements = { elements } end
  assert.are.equal(#want.data, #elements, what)
  for i, value in ipairs(want.data) do
    local apart = math.abs(elements[i] - value)
    if apart ~= apart or apart > 2e-6 * math.max(1, math.abs(value)) then
      error(("%s: element %d is %s; it must be %s"):format(what, i, elements[i], value))
    end
  end
end

describe("gradients of activations and losses at their borders", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  for number, case in ipairs(cases) do
    it(("are PyTorch's: %s, case %d"):format(case.name, number), function()
      local args = {}
      for i, each in ipairs(case.args) do args[i] = build(each):requires_grad_() end
      local given = { args[1], args[2] }
      if next(case.options) then given[#given + 1] = case.options end
      local y = heed.nn.functional[case.name](table.unpack(given))
      close(y, case.value, "the value");
      (y * build(case.weight)):sum():backward()
      for i, x in ipairs(args) do close(x.grad, case.grads[i], ("gradient %d"):format(i)) end
    end)
  end

  it("are there for modules, and the bits of the value are those without recording", function()
    local x = heed.tensor { -30, -1, 0, 1, 30 }
    for _, class in ipairs { "LogSigmoid", "Softplus", "ELU", "SiLU", "LeakyReLU" } do
      local m, leaf = heed.nn[class](), x:detach():requires_grad_()
      local y = m(leaf)
      y:sum():backward()
      assert.are.same(m(x):tolist(), y:detach():tolist(), class)
      assert.is_not_nil(leaf.grad, class)
    end
  end)
end)
