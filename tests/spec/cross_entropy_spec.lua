-- The losses of classes with their gradients: fused cross entropy, that of a linear map in chunks, and the padding row
-- of an embedding. Values of PyTorch: torch_modules_spec.lua; against double precision: tests/c/test_cross_entropy.c.
local heed = require "heed"
local fails = require "tests.fails"
local F, nn = heed.nn.functional, heed.nn

-- What f returns while operations are recorded.
local function recorded(f)
  local was = heed.set_grad_enabled(true)
  local ok, result = pcall(f)
  heed.set_grad_enabled(was == true)
  assert(ok, result)
  return result
end

local function leaf(...) return heed.randn(...):requires_grad_(true) end

-- The loss f() after its backward pass.
local function backward(f)
  return recorded(function()
    local loss = f()
    loss:backward()
    return loss
  end)
end

local function close(a, b)
  assert.is_true(a:allclose(b, { rtol = 1e-5, atol = 1e-6 }), ("%s\nis not\n%s"):format(tostring(a), tostring(b)))
end

local function copy(x) return x:detach():clone():requires_grad_(true) end

describe("the gradient of cross_entropy", function()
  it("is softmax minus the target, over the number of targets", function()
    local x = leaf(5, 7)
    backward(function() return F.cross_entropy(x, { 1, 7, 3, 3, 2 }) end)
    local one_hot = F.one_hot(heed.tensor({ 1, 7, 3, 3, 2 }, { dtype = "int64" }), 7):float()
    close(x.grad, (x:detach():softmax(-1) - one_hot) / 5)
  end)

  it("is zero for ignored targets", function()
    local x = leaf(3, 4)
    backward(function() return F.cross_entropy(x, { 2, -100, 4 }) end)
    assert.are.equal(0, x.grad[2]:abs():sum():item())
    assert.is_true(x.grad[1]:abs():sum():item() > 0)
  end)

  it("has the shape of [n, c, …] and of [c]", function()
    local deep, flat = leaf(2, 3, 4, 5), leaf(3)
    backward(function() return F.cross_entropy(deep, heed.ones(2, 4, 5, { dtype = "int64" })) end)
    assert.are.equal("heed.Size([2, 3, 4, 5])", tostring(deep.grad.shape))
    close(deep.grad:sum(2), heed.zeros(2, 4, 5))
    backward(function() return F.cross_entropy(flat, 2) end)
    assert.is_true(flat.grad[2] < 0)
  end)

  it("reaches probabilities, too", function()
    local x, p = leaf(3, 4), copy(heed.rand(3, 4):softmax(-1))
    backward(function() return F.cross_entropy(x, p, { reduction = "sum" }) end)
    close(p.grad, -x:detach():log_softmax(-1))
  end)

  it("takes a gradient for each loss without a reduction", function()
    local x, dy = leaf(3, 4), heed.tensor { 1, 0, -2 }
    recorded(function() F.cross_entropy(x, { 1, 2, 3 }, { reduction = "none" }):backward(dy) end)
    assert.are.equal(0, x.grad[2]:abs():sum():item())
    assert.is_true(x.grad[1][1] < 0 and x.grad[3][3] > 0)
  end)

  it("does not exist for the classes' weights, which is said", function()
    local x, weight = leaf(2, 3), heed.ones(3):requires_grad_(true)
    recorded(function()
      fails("cross_entropy: weight requires a gradient, and has none; use weight:detach()",
        F.cross_entropy, x, { 1, 2 }, { weight = weight })
    end)
  end)

  it("says how classes in the last dimension are given", function()
    fails("cross_entropy: input is [2, 5, 3] and target is [2, 5]; target must have the shape of input without "
      .. "dimension 2, the classes; if the classes are last, use input:flatten(1, 2) and target:flatten()",
      F.cross_entropy, heed.ones(2, 5, 3), heed.ones(2, 5):long())
    fails("cross_entropy: input is [2, 5, 3] and target is [5, 2]; target must have the shape of input without "
      .. "dimension 2, the classes", F.cross_entropy, heed.ones(2, 5, 3), heed.ones(5, 2):long())
  end)

  it("is known to have changed logits", function()
    local x = leaf(2, 3)
    recorded(function()
      local logits = x * 2
      local loss = F.cross_entropy(logits, { 1, 2 })
      logits:mul_(2)
      local ok, message = pcall(loss.backward, loss)
      assert.is_false(ok)
      assert.is_truthy(message:find("cross_entropy, was changed in place by mul", 1, true), message)
    end)
  end)
end)

describe("linear_cross_entropy", function()
  local x, weight, bias = heed.randn(6, 4), heed.randn(9, 4), heed.randn(9)
  local target = { 1, 9, 3, 4, -100, 6 }

  it("is the cross entropy of x · weightᵀ + bias, with its options by name or position", function()
    local options = { linear_bias = bias, label_smoothing = 0.2, weight = heed.rand(9), reduction = "sum" }
    close(F.linear_cross_entropy(x, weight, target, options),
      F.cross_entropy(x:linear(weight, bias), target,
        { label_smoothing = 0.2, weight = options.weight, reduction = "sum" }))
    close(F.linear_cross_entropy(x, weight, target, bias, nil, "none"),
      F.cross_entropy(x:linear(weight, bias), target, { reduction = "none" }))
    close(F.linear_cross_entropy(x, weight, x:linear(weight):softmax(-1)),
      F.cross_entropy(x:linear(weight), x:linear(weight):softmax(-1)))
  end)

  it("has its gradients", function()
    for _, reduction in ipairs { "mean", "sum" } do
      local a, w, b = copy(x), copy(weight), copy(bias)
      backward(function()
        return F.linear_cross_entropy(a, w, target, { linear_bias = b, reduction = reduction }) * 0.5
      end)
      local logits = copy(x:linear(weight, bias))
      backward(function() return F.cross_entropy(logits, target, { reduction = reduction }) * 0.5 end)
      close(a.grad, logits.grad:matmul(weight))
      close(w.grad, logits.grad.T:matmul(x))
      close(b.grad, logits.grad:sum(1))
    end
  end)

  it("has a gradient for each loss without a reduction", function()
    local a, w, dy = copy(x), copy(weight), heed.randn(6)
    recorded(function() F.linear_cross_entropy(a, w, target, { reduction = "none" }):backward(dy) end)
    local logits = copy(x:linear(weight))
    recorded(function() F.cross_entropy(logits, target, { reduction = "none" }):backward(dy) end)
    close(a.grad, logits.grad:matmul(weight))
    close(w.grad, logits.grad.T:matmul(x))
  end)

  it("takes x of more dimensions, and one row", function()
    local ids = heed.randint(1, 9, { 2, 3 })
    close(F.linear_cross_entropy(x:view(2, 3, 4), weight, ids), F.linear_cross_entropy(x, weight, ids:flatten()))
    close(F.linear_cross_entropy(x[1], weight, 3), F.cross_entropy(x[1]:linear(weight), 3))
  end)

  it("can go backward twice, into gradients that were set to zero in between", function()
    local w = copy(weight)
    recorded(function()
      local loss = F.linear_cross_entropy(x, w, target)
      loss:backward(nil, { retain_graph = true })
      local first = w.grad:clone()
      w.grad = nil
      loss:backward()
      assert.is_true(first:equal(w.grad))
    end)
  end)

  it("says what is wrong with its arguments", function()
    fails("linear_cross_entropy: input is a tensor of shape [6, 3] and dtype float32; it must be […, 4], the size " ..
      "of a row of linear_weight", F.linear_cross_entropy, heed.randn(6, 3), weight, target)
    fails("linear_cross_entropy: linear_bias is a tensor of shape [4] and dtype float32; it must be [9], one for " ..
      "each class", F.linear_cross_entropy, x, weight, target, heed.randn(4))
    fails("linear_cross_entropy: x · weightᵀ is [6, 9] and target is [2]; target must have the shape of " ..
      "x · weightᵀ without dimension 2, the classes", F.linear_cross_entropy, x, weight, { 1, 2 })
    fails("linear_cross_entropy: target is a tensor of shape [6, 9] and dtype bool; it must be float32, as it has " ..
      "the shape of the logits: probabilities of the classes", F.linear_cross_entropy, x, weight,
      heed.ones(6, 9):bool())
    fails("linear_cross_entropy: target has the class 10; classes must be from 1 to 9, the size of x · weightᵀ's " ..
      "class dimension", F.linear_cross_entropy, x, weight, { 1, 2, 3, 4, 5, 10 })
    fails("linear_cross_entropy: reduction is a string ('all'); it must be 'none', 'mean' or 'sum'",
      F.linear_cross_entropy, x, weight, target, { reduction = "all" })
    fails("linear_cross_entropy: linear_weight is bfloat16; it must be float32, int64 or bool: convert with " ..
      "linear_weight:float()", F.linear_cross_entropy, x, weight:to "bfloat16", target)
  end)
end)

describe("the padding row of an embedding", function()
  it("gets no gradient", function()
    local weight, ids = leaf(4, 3), { 1, 2, 4, 2 }
    backward(function() return F.embedding(ids, weight, { padding_idx = 2 }):sum() end)
    assert.are.same({ 1, 0, 0, 1 }, weight.grad:select(2, 1):tolist())
    weight.grad = nil
    backward(function() return F.embedding(ids, weight, -1):sum() end)
    assert.are.same({ 1, 2, 0, 0 }, weight.grad:select(2, 1):tolist())
    local m = nn.Embedding(4, 3, 2)
    backward(function() return m(heed.tensor(ids, { dtype = "int64" })):sum() end)
    assert.are.same({ 1, 0, 0, 1 }, m.weight.grad:select(2, 1):tolist())
  end)

  it("must exist", function()
    fails("embedding: padding_idx is the number 5; it must be from 1 to 4, or from -4 to -1", F.embedding, { 1 },
      heed.randn(4, 3), 5)
  end)
end)

describe("the gradient function of a cross entropy", function()
  it("has the name of the last of PyTorch's operations", function()
    local function name(shape, target, options)
      local x = heed.rand(shape):requires_grad_()
      return heed.enable_grad(function() return heed.nn.functional.cross_entropy(x, target, options).grad_fn end)
    end
    local ids, rows = heed.tensor({ 1, 2 }, { dtype = "int64" }), heed.ones(2, 4):long()
    assert.equal("<NllLossBackward0>", name({ 2, 3 }, ids))
    assert.equal("<NllLoss2DBackward0>", name({ 2, 3, 4 }, rows))
    assert.equal("<ViewBackward0>", name({ 2, 3, 4 }, rows, { reduction = "none" }))
    assert.equal("<NllLoss2DBackward0>", name({ 2, 3, 4, 1 }, rows:unsqueeze(-1), { reduction = "none" }))
    assert.equal("<AddBackward0>", name({ 2, 3 }, ids, { label_smoothing = 0.1 }))
    assert.equal("<DivBackward1>", name({ 2, 3 }, heed.rand(2, 3)))
    assert.equal("<NegBackward0>", name({ 2, 3 }, heed.rand(2, 3), { reduction = "sum" }))
  end)
end)
