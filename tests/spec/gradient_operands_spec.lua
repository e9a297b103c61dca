-- Gradients with unusual operands: masks as numbers, shared gradients, tensors that share their elements.
local heed = require "heed"

local function list(x) return x and x:flatten():tolist() end

describe("a gradient", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  -- The gradients of f(a, b, mask), with the mask as it is and as float32.
  local function compare_masks(f)
    local mask = heed.tensor { true, false, true, true, false }
    local function gradients(m)
      local a = heed.tensor({ 0.5, 1, 2, -1, 3 }):requires_grad_()
      local b = heed.tensor({ 1, 0.25, -1, 4, 2 }):requires_grad_()
      f(a, b, m):sum():backward()
      return { list(a.grad), list(b.grad) }
    end
    assert.same(gradients(mask:float()), gradients(mask))
  end

  it("reads bool operands as 0 and 1", function()
    compare_masks(function(a, b, m) return a:addcmul(b, m) + b end)
    compare_masks(function(a, b, m) return a / m + b end)
    compare_masks(function(a, b, m) return m / a + b end)
    compare_masks(function(a, b, m) return heed.maximum(a, m) + heed.minimum(m, b) end)
    compare_masks(function(a, b, m) return a:lerp(b, m) end)
    compare_masks(function(a, b, m) return a:addcdiv(m, b) end)
    compare_masks(function(a, b, m) return a * m + m * b end)
  end)

  it("of an extreme element leaves the gradient of the result as it is", function()
    local a, b = heed.tensor({ 1, 1 }):requires_grad_(), heed.tensor({ 2, 3, 3 }):requires_grad_()
    for _, name in ipairs { "amax", "amin" } do
      a.grad, b.grad = nil, nil
      local y = a[name](a) + b[name](-b)
      y:retain_grad()
      y:backward()
      assert.equal(1, y.grad:item())
      assert.same({ 0.5, 0.5 }, list(a.grad))
    end
    local dy = heed.tensor(1.0)
    b:amax():backward(dy)
    assert.equal(1, dy:item())
    local norm = heed.tensor({ 2, -2 }):requires_grad_()
    norm:norm(math.huge):backward(dy)
    assert.equal(1, dy:item())
    assert.same({ 0.5, -0.5 }, list(norm.grad))
  end)
end)
