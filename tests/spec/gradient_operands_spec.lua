-- Gradients with unusual operands: masks as numbers, shared gradients, tensors that share their elements.
local heed = require "heed"
local unpack = require("heed.compat").unpack

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

  it("of linear_cross_entropy without features is that of the bias", function()
    local weight, bias = heed.zeros(5, 0):requires_grad_(), heed.zeros(5):requires_grad_()
    local target = heed.tensor({ 1, 2 }, { dtype = "int64" })
    heed.nn.functional.linear_cross_entropy(heed.zeros(2, 0), weight, target, { linear_bias = bias }):backward()
    assert.equal("heed.Size([5, 0])", tostring(weight.grad.shape))
    local bias_alone = heed.zeros(5):requires_grad_()
    heed.nn.functional.cross_entropy(bias_alone:expand(2, 5), target):backward()
    for i, value in ipairs(list(bias_alone.grad)) do assert.near(value, list(bias.grad)[i], 1e-7) end
  end)
end)

describe("operations that write to a copy", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  local index = heed.tensor({ 3, 1 }, { dtype = "int64" })
  local rows = heed.tensor({ { 3, 3 }, { 1, 2 } }, { dtype = "int64" })

  -- The gradients of x and of the source, for the operation and for its form in place on x * 1.
  local function check(name, source, ...)
    local arguments = { ... }
    local function gradients(in_place)
      local x = heed.tensor({ { 1, 2 }, { 3, 4 }, { 5, 6 } }):requires_grad_()
      local from = source:clone():requires_grad_()
      local given = {}
      for i = 1, #arguments do given[i] = arguments[i] == "source" and from or arguments[i] end
      local y
      if in_place then
        y = x * 1
        y[name .. "_"](y, unpack(given))
      else
        y = x[name](x, unpack(given))
      end
      local loss = (y * heed.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }):sum()
      loss:backward()
      return { list(x.grad), list(from.grad), list(y) }
    end
    local copied = gradients(false)
    assert.equal(6, #copied[1], name)
    assert.is_truthy(copied[2], name)
    assert.same(gradients(true), copied, name)
  end

  it("have the gradients of those in place", function()
    local source = heed.tensor { { 7, 8 }, { 9, 10 } }
    check("scatter", source, 1, rows, "source")
    check("scatter_add", source, 1, rows, "source")
    check("index_add", source, 1, index, "source", 2)
    check("index_copy", source, 1, index, "source")
    check("index_put", source, { index }, "source")
  end)

  it("give a gradient to a value that is a tensor", function()
    local value = heed.tensor(2.0)
    local mask = heed.tensor { { true, false }, { false, true }, { true, true } }
    check("masked_fill", value, mask, "source")
    check("index_fill", value, 1, index, "source")
    check("index_fill", value, -1, heed.tensor({ 2 }, { dtype = "int64" }), "source")
  end)
end)

describe("tensors that share their elements", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  it("have gradients of their own where one was detached", function()
    local x = heed.tensor({ 1, 2, 3 }):requires_grad_()
    local y = x:detach()
    assert.is_false(y.requires_grad)
    y:requires_grad_()
    local sum = (y * 2 + x):sum()
    sum:backward()
    assert.same({ 2, 2, 2 }, list(y.grad))
    assert.same({ 1, 1, 1 }, list(x.grad))
    y:requires_grad_(false)
    assert.is_true(x.requires_grad)
  end)

  it("have gradients of their own where they are views of each other", function()
    local x = heed.ones(2, 3):requires_grad_()
    local turned = heed.no_grad(function() return x:t() end):requires_grad_()
    local flat = heed.no_grad(function() return x:view(6) end):requires_grad_()
    local weights = heed.range(1, 6)
    local sum = (turned * weights:view(3, 2)):sum() + (flat * weights):sum()
    sum:backward()
    assert.is_nil(x.grad)
    assert.equal("heed.Size([3, 2])", tostring(turned.grad.shape))
    assert.same({ 1, 2, 3, 4, 5, 6 }, list(turned.grad))
    assert.same({ 1, 2, 3, 4, 5, 6 }, list(flat.grad))
  end)

  it("have gradients of their own where they are parameters of other shapes", function()
    local data = heed.ones(2, 3)
    local a, b = heed.nn.Parameter(data), heed.nn.Parameter(data:view(6))
    local same = heed.nn.Parameter(data)
    b:sum():backward()
    assert.is_nil(a.grad)
    assert.equal("heed.Size([6])", tostring(b.grad.shape))
    a:sum():backward()
    assert.same({ 1, 1, 1, 1, 1, 1 }, list(same.grad))
  end)

  it("do not keep the gradients of detached ones", function()
    local x = heed.ones(1000):requires_grad_()
    local function use() (x:detach():requires_grad_() * 2):sum():backward() end
    use()
    collectgarbage()
    local before = heed.info().memory_in_use
    for _ = 1, 10 do use() end
    collectgarbage()
    assert.equal(before, heed.info().memory_in_use)
  end)

  it("give a leaf its gradient where a detached one is written", function()
    local x = heed.tensor({ 2, 3 }):requires_grad_()
    local base = x:detach()
    base:pow_(x)
    base:sum():backward()
    assert.same({ 4, 27 }, list(base))
    assert.near(4 * math.log(2), list(x.grad)[1], 1e-5)
    assert.near(27 * math.log(3), list(x.grad)[2], 1e-5)
  end)

  it("are written where reshape and flatten have copied", function()
    for _, name in ipairs { "reshape", "flatten" } do
      local x = heed.tensor({ { 1, 2 }, { 3, 4 } }):requires_grad_()
      local y = x * 1
      local copy = name == "reshape" and y:t():reshape(4) or y:t():flatten()
      copy:mul_(heed.tensor { 1, 2, 3, 4 })
      copy[{ 1 }] = 0
      local loss = (copy + y:t():reshape(4)):sum()
      loss:backward()
      assert.same({ 1, 4, 3, 5 }, list(x.grad))
      local view = name == "reshape" and y:reshape(4) or y:flatten()
      local ok, message = pcall(view.mul_, view, 2)
      assert.is_false(ok)
      assert.truthy(message:find("is a view of a recorded tensor", 1, true), message)
    end
  end)

  it("keep the gradient of the one result for which it was asked", function()
    local Both = heed.autograd.Function("Both", {
      forward = function(_, v) return v * 2, v * 3 end,
      backward = function(_, a, b) return a * 2 + b * 3 end,
    })
    local x = heed.tensor({ 1, 2 }):requires_grad_()
    local a, b = Both(x)
    b:retain_grad()
    local loss = (a + b):sum()
    loss:backward()
    assert.is_nil(a.grad)
    assert.same({ 1, 1 }, list(b.grad))
    assert.same({ 5, 5 }, list(x.grad))
  end)

  it("keep the gradient of what they are after a write", function()
    local x = heed.tensor({ 1, 2 }):requires_grad_()
    local y = x * 3
    y:retain_grad()
    y:mul_(2)
    local loss = (y * y):sum()
    loss:backward()
    assert.same({ 12, 24 }, list(y.grad))
    local z = x * 3
    z:retain_grad()
    z:sum():backward { retain_graph = true }
    z[{ 1 }] = 5
    assert.same({ 1, 1 }, list(z.grad))
    z:sum():backward()
    assert.same({ 2, 2 }, list(z.grad))
  end)

  it("are not written where one is a leaf, not even with its own elements", function()
    local x = heed.ones(3):requires_grad_()
    local ok, message = pcall(x.copy_, x, x)
    assert.is_false(ok)
    assert.truthy(message:find("copy_: the tensor that is written is a leaf that requires a", 1, true), message)
    assert.is_true(x.is_leaf)
  end)
end)

describe("tensors in low precision", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  local F = heed.nn.functional

  -- The gradient of x, whose elements low precision does not round, through f of x in that precision.
  local function gradient_through(dtype, f)
    local x = heed.tensor({ { 1, 2, 3 }, { 4, 5, 6 }, { -1, 0.5, 0.25 } }):requires_grad_()
    local y = f(x:to(dtype)):float()
    local loss = (y * heed.range(1, y:numel()):view(y.shape)):sum()
    loss:backward()
    return list(x.grad)
  end

  local function has_the_gradients_of_float32(functions)
    for name, f in pairs(functions) do
      local wanted = gradient_through("float32", f)
      for _, dtype in ipairs { "bfloat16", "float16" } do
        assert.same(wanted, gradient_through(dtype, f), name .. " of " .. dtype)
      end
    end
  end

  local index = heed.tensor({ 1, 3, 1 }, { dtype = "int64" })

  it("have the gradients of float32 through views and copies", function()
    has_the_gradients_of_float32 {
      to = function(x) return x end,
      clone = function(x) return x:t():contiguous():clone() end,
      views = function(x) return x:t():reshape(3, 3, 1)[{ { 1, 2 } }]:expand(2, 3, 2) end,
      joins = function(x) return heed.stack({ heed.cat({ x, x:flip(1) }, 1), heed.cat({ x, x }, 1) }, 2) end,
      selections = function(x) return x:index_select(1, index)[{ index }]:gather(2, index:view(3, 1)) end,
      copy_ = function(x)
        local y = heed.zeros(3, 3, { dtype = x.dtype })
        y:copy_(x)
        y[{ 1 }] = x[{ 2 }]
        y[{ index }] = x
        return y
      end,
    }
  end)

  it("have the gradients of float32 as weights, keys and values", function()
    local queries = heed.tensor { { 0.1, 0.2, 0.3 }, { 1, -1, 0.5 } }
    has_the_gradients_of_float32 {
      linear = function(x) return F.linear(queries, x) end,
      embedding = function(x) return F.embedding(index, x) end,
      attention = function(x) return F.scaled_dot_product_attention(queries, x, x) end,
    }
  end)

  it("can be retained, passed to functions, and computed again", function()
    local x = heed.tensor({ 1, 2 }):requires_grad_()
    local y = x:to("bfloat16")
    assert.equal("<ToCopyBackward0>", y.grad_fn)
    y:retain_grad()
    local Halve = heed.autograd.Function("Halve", {
      forward = function(_, v) return (v:float() / 2):to(v.dtype) end,
      backward = function(_, dv) return dv / 2 end,
    })
    local z = heed.utils.checkpoint(function(v) return (v:float() * 3):to "float16" end, Halve(y))
    assert.equal("float16", z.dtype)
    z:float():sum():backward()
    assert.same({ 1.5, 1.5 }, list(x.grad))
    assert.equal("float32", y.grad.dtype)
    assert.same({ 1.5, 1.5 }, list(y.grad))
  end)

  it("lead to no gradient where they are integers", function()
    local x = heed.ones(2):requires_grad_()
    assert.is_false(x:long().requires_grad)
    assert.is_false(x:to("bfloat16"):long().requires_grad)
  end)
end)

describe("functions with two branches", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  local F = heed.nn.functional
  local values = { -1000, -100, -20.5, -1, -0.5, 0, 0.5, 1, 20.5, 89, 100, 1000 }
  local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

  -- Where the branch that is not taken overflows, and where the branches meet, as well.
  local function has_the_slope(f, slope)
    local x = heed.tensor(values):requires_grad_()
    f(x):sum():backward()
    for i, gradient in ipairs(list(x.grad)) do
      assert.near(slope(values[i]), gradient, 2e-7, ("at %g"):format(values[i]))
    end
  end

  it("have the gradient of the branch that is taken", function()
    has_the_slope(F.softplus, sigmoid)
    has_the_slope(function(x) return F.softplus(x, 2, 10) end, function(x) return sigmoid(2 * x) end)
    has_the_slope(F.logsigmoid, function(x) return sigmoid(-x) end)
    has_the_slope(F.elu, function(x) return x > 0 and 1 or math.exp(x) end)
    has_the_slope(function(x) return F.elu(x * 1, 0.5, true) end,
      function(x) return x > 0 and 1 or 0.5 * math.exp(x) end)
  end)

  it("have a finite gradient where a probability is 0 or 1", function()
    local probabilities, targets = { 0, 1, 1, 0.5, 0.25 }, { 0.25, 0.25, 1, 1, 0 }
    local x, target = heed.tensor(probabilities):requires_grad_(), heed.tensor(targets):requires_grad_()
    local plain = heed.no_grad(F.binary_cross_entropy, x, target, { reduction = "none" })
    local loss = F.binary_cross_entropy(x, target, { reduction = "none" })
    assert.is_true(loss:equal(plain))
    loss:sum():backward()
    for i, p in ipairs(probabilities) do
      local slope = (p - targets[i]) / math.max((1 - p) * p, 1e-12)
      assert.near(slope, list(x.grad)[i], 1e-6 * math.abs(slope) + 1e-7)
      local of_target = math.max(math.log(1 - p), -100) - math.max(math.log(p), -100)
      assert.near(of_target, list(target.grad)[i], 1e-5)
    end
  end)

  it("have the gradient of the loss where a score is 0", function()
    for _, target in ipairs { 0, 0.3, 1 } do
      local targets = heed.full({ #values }, target)
      has_the_slope(function(x) return F.binary_cross_entropy_with_logits(x, targets, { reduction = "sum" }) end,
        function(x) return sigmoid(x) - target end)
      has_the_slope(function(x)
        return F.binary_cross_entropy_with_logits(x, targets, { reduction = "sum", pos_weight = heed.tensor(3.0) })
      end, function(x) return sigmoid(x) * (1 + 2 * target) - 3 * target end)
    end
  end)
end)
