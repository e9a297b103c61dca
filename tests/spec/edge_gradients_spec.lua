-- Gradients of activations and losses where their formulas have corners, overflow or a logarithm of 0: against the
-- formulas of PyTorch's derivatives, in double precision.
local heed = require "heed"
local F = heed.nn.functional

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

-- The gradient of the sum of f(x) at these points.
local function gradients(f, points)
  return heed.enable_grad(function()
    local x = heed.tensor(points, { requires_grad = true })
    f(x):sum():backward()
    return x.grad:tolist()
  end)
end

local function check(f, derivative, points)
  for i, got in ipairs(gradients(f, points)) do
    local wanted = derivative(points[i], i)
    local fits = math.abs(got - wanted) <= 1e-6 * math.max(1, math.abs(wanted)) -- not so for nan
    assert.is_true(fits, ("at %g the gradient is %g; it must be %g"):format(points[i], got, wanted))
  end
end

local POINTS = { 0, -0.5, 0.5, 1, -1, 30, -30, 88, 100, -100, 1e4, -1e4 }

describe("the gradient", function()
  it("of logsigmoid is right at 0 and far from it", function()
    check(F.logsigmoid, function(x) return sigmoid(-x) end, POINTS)
    check(heed.nn.LogSigmoid(), function(x) return sigmoid(-x) end, POINTS)
  end)

  it("of softplus is right where e^x overflows", function()
    check(F.softplus, function(x) return x > 20 and 1 or sigmoid(x) end, POINTS)
    check(function(x) return F.softplus(x, 2, 1) end, function(x) return 2 * x > 1 and 1 or sigmoid(2 * x) end, POINTS)
  end)

  it("of elu is right where e^x overflows", function()
    check(F.elu, function(x) return x > 0 and 1 or math.exp(x) end, POINTS)
    check(function(x) return F.elu(x, 0.5) end, function(x) return x > 0 and 1 or 0.5 * math.exp(x) end, POINTS)
  end)

  local targets = {}
  for i = 1, #POINTS do targets[i] = (i % 3) / 2 end

  it("of binary_cross_entropy_with_logits is right at logits of 0", function()
    local t = heed.tensor(targets)
    check(function(x) return F.binary_cross_entropy_with_logits(x, t, { reduction = "sum" }) end,
      function(x, i) return sigmoid(x) - targets[i] end, POINTS)
    local options = { reduction = "sum", pos_weight = heed.tensor(3) }
    check(function(x) return F.binary_cross_entropy_with_logits(x, t, options) end, function(x, i)
      return (1 - targets[i]) * sigmoid(x) - 3 * targets[i] * sigmoid(-x)
    end, POINTS)
  end)

  it("of binary_cross_entropy is finite at probabilities of 0 and 1", function()
    local points, t = { 0, 0, 1, 1, 0.5, 0.25, 0, 1 }, { 0, 1, 0, 1, 0.25, 1, 0.5, 0.5 }
    local function loss(x) return F.binary_cross_entropy(x, heed.tensor(t), { reduction = "sum" }) end
    check(loss, function(x, i) return (x - t[i]) / math.max(x * (1 - x), 1e-12) end, points)
    local x = heed.tensor(points, { requires_grad = true })
    local recorded = heed.enable_grad(F.binary_cross_entropy, x, heed.tensor(t), { reduction = "none" })
    local plain = F.binary_cross_entropy(heed.tensor(points), heed.tensor(t), { reduction = "none" })
    assert.is_true(plain:equal(recorded))
    assert.are.equal(100, plain:max():item())
  end)

  it("of binary_cross_entropy reaches the target", function()
    local points = { 0.25, 0.5, 1 }
    check(function(target) return F.binary_cross_entropy(heed.tensor(points), target, { reduction = "sum" }) end,
      function(_, i)
        local rest = points[i] == 1 and -100 or math.log(1 - points[i])
        return rest - math.log(points[i])
      end, { 0, 0.5, 1 })
  end)
end)

describe("the gradient", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  it("of an empty tensor that cat skips is empty", function()
    local empty, x = heed.ones(0):requires_grad_(), heed.ones(2):requires_grad_()
    heed.cat({ empty, x }):sum():backward()
    assert.same({}, empty.grad:tolist())
    assert.same({ 1, 1 }, x.grad:tolist())
  end)

  it("of packed sequences without tokens is 0", function()
    local none = heed.tensor({ 0, 0 }, { dtype = "int64" })
    local rows, x = heed.rand(0, 4):requires_grad_(), heed.rand(2, 3, 4):requires_grad_()
    rows:unpack(none, 3):sum():backward()
    assert.same({}, rows.grad:tolist())
    x:pack(none):sum():backward()
    assert.equal(0, x.grad:abs():sum():item())
  end)

  it("of a repeated tensor of 8 dimensions has them, too", function()
    local x = heed.rand(1, 1, 1, 1, 1, 1, 1, 2):requires_grad_()
    x:repeat_interleave(2, 8):sum():backward()
    assert.same({ 2, 2 }, x.grad:flatten():tolist())
  end)

  it("of a product in int8 has the name of the same product in float32", function()
    local x, b = heed.rand(3, 4):requires_grad_(), heed.rand(3)
    local bytes, scale = heed.quantize_int8(heed.rand(3, 4))
    assert.equal("<MmBackward0>", x:linear_int8(bytes, scale).grad_fn)
    assert.equal("<AddmmBackward0>", x:linear_int8(bytes, scale, b).grad_fn)
  end)

  it("cannot be asked for by a hook while a pass is running", function()
    local x, messages = heed.rand(2):requires_grad_(), {}
    local y = x * 2
    y:register_hook(function()
      for _, name in ipairs { "grad", "backward", "backward_steps" } do
        local f = name == "grad" and heed.autograd.grad or heed[name]
        messages[#messages + 1] = select(2, pcall(f, (x * x):sum(), name == "grad" and x or nil)):gsub("^.-:%d+: ", "")
      end
    end)
    y:sum():backward()
    local why = ": a backward pass is running; a hook or a function must not begin another one"
    assert.same({ "grad" .. why, "backward" .. why, "backward_steps" .. why }, messages)
  end)
end)
