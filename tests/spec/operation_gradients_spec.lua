-- Gradients of operations where the reference values say nothing: in place, by dropout, by numbers, of copies that
-- were changed, when memory runs out.
local heed = require "heed"

local function list(x) return x and x:flatten():tolist() end

-- A leaf, and a computed tensor of the same elements.
local function pair(...)
  local x = heed.tensor({ ... }):requires_grad_()
  return x, x * 1
end

local function fails(wanted, f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  assert.truthy(tostring(message):find(wanted, 1, true), tostring(message))
end

describe("gradients of operations", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  describe("in place", function()
    local function gradient_of(change)
      local x, y = pair(1, 2, 0.5)
      change(y)
      y:sum():backward()
      return list(x.grad)
    end

    it("are those of the elements before", function()
      assert.same({ 3, 4, 2 }, gradient_of(function(y) y:mul_(heed.tensor { 3, 4, 2 }) end))
      assert.same({ 1, 0.5, 2 }, gradient_of(function(y) y:log_() end))
      assert.same({ 2, 4, 1 }, gradient_of(function(y) y:square_() end))
      assert.same({ 3, 12, 0.75 }, gradient_of(function(y) y:pow_(3) end))
      assert.same({ 1, 0, 1 }, gradient_of(function(y) y:clamp_(0, 1) end))
      assert.same({ 2, 4, 1 }, gradient_of(function(y) y:mul_(y) end))
      assert.same({ 0, 0, 0 }, gradient_of(function(y) y:floor_() end))
    end)

    it("are those of the results", function()
      assert.same({ 1, 0, 1 }, gradient_of(function(y)
        y:sub_(heed.tensor { 0, 2, 0 })
        y:relu_()
      end))
      assert.same({ 1, 1, 1 }, gradient_of(function(y) y:square_():sqrt_() end))
    end)

    it("reach a tensor that is added to one without a gradient", function()
      local w, total = heed.tensor({ 1, 2 }):requires_grad_(), heed.zeros(2)
      for _ = 1, 3 do total:addcmul_(w, w) end
      total:sum():backward()
      assert.same({ 6, 12 }, list(w.grad))
    end)

    it("end where elements are replaced by comparisons and draws", function()
      local _, y = pair(1, 2)
      y:gt_(1)
      assert.is_false(y.requires_grad)
      local _, z = pair(1, 2)
      z:uniform_()
      assert.is_false(z.requires_grad)
      assert.is_nil(z.grad_fn)
    end)

    it("are refused where another operation needs the old elements", function()
      local _, y = pair(1, 2)
      local product = y * y
      y:add_(1)
      fails("input 1, [2] of mul, was changed in place by add", function() product:sum():backward() end)
      local e = y:exp()
      e:mul_(2)
      fails("result 1, [2] of exp, was changed in place by mul", function() e:sum():backward() end)
    end)

    it("do not mind changes of what they do not need", function()
      local x, y = pair(1, 2)
      local sum = y + 1
      y:mul_(5)
      sum:sum():backward()
      assert.same({ 1, 1 }, list(x.grad))
    end)

    it("are refused for leaves, and for tensors whose elements were changed through another", function()
      fails("leaf that requires a gradient", function() heed.tensor({ 1, 2 }):requires_grad_():mul_(2) end)
      local x, w = heed.zeros(2), heed.tensor({ 1, 2 }):requires_grad_()
      local other = x:view(2)
      x:add_(w)
      fails("changed through another one that shares them", function() other:mul_(2) end)
    end)

    it("are refused when the indices of selected elements were changed", function()
      local values, indices = heed.tensor({ 3, 1, 2 }):requires_grad_():topk(2)
      indices:add_(1)
      fails("input 2, [2] of topk, was changed in place by add", function() values:sum():backward() end)
    end)
  end)

  it("are the same for operands of bool, int64 and float32", function()
    local values = { 1, 0, 1, 1, 0 }
    local operations = {
      add = function(x, b) return x + b end, mul = function(x, b) return x * b end,
      sub = function(x, b) return b * 2 - x end, div = function(x, b) return x / (b + 0) + x / b end,
      pow = function(x, b) return x ^ b end, power_of = function(x, b) return b ^ x end,
      maximum = function(x, b) return x:maximum(b) end, minimum = function(x, b) return x:minimum(b) end,
      remainder = function(x, b) return x % b end, fmod = function(x, b) return x:fmod(b) end,
      lerp = function(x, b) return x:lerp(x * 2, b) end, clamp = function(x, b) return x:clamp(b, b * 2) end,
      addcmul = function(x, b) return x:addcmul(x, b) end, addcdiv = function(x, b) return x:addcdiv(x, b) end,
      lerp_end = function(x, b) return x:lerp(b, x) end, where = function(x, b) return heed.where(x:gt(0.6), x, b) end,
    }
    for name, f in pairs(operations) do
      local wanted
      for _, dtype in ipairs { "float32", "int64", "bool" } do
        local x, b = heed.tensor({ 0.5, 0.6, 0.75, -1.25, 1.5 }):requires_grad_(), heed.tensor(values):to(dtype)
        local fine, problem = pcall(function() f(x, b):sum():backward() end)
        if fine then
          local got = x.grad:nan_to_num(-1e9):tolist() -- nan and infinities are equal, too
          wanted = wanted or got
          assert.same(wanted, got, name .. " " .. dtype)
        else -- an operation that has no such operands
          assert.truthy(problem:find "is %w+; it must be" and not problem:find "backward: ", problem)
        end
      end
      assert.is_table(wanted, name)
    end
  end)

  it("of a median are shared by the elements that have its value", function()
    local x = heed.tensor({ { 1, 3, 3 }, { 3, 9, -math.huge } }):requires_grad_()
    local y = x:median()
    y:backward(heed.tensor(6))
    assert.equal(3, y:item())
    assert.same({ 0, 2, 2, 2, 0, 0 }, list(x.grad))
    local single = heed.tensor({ 4, 1, 2 }):requires_grad_()
    single:median():backward()
    assert.same({ 0, 0, 1 }, list(single.grad))
  end)

  describe("of dropout", function()
    it("are the factors of the draw, also where x is 0", function()
      local x = heed.zeros(1000):requires_grad_()
      heed.manual_seed(3)
      heed.dropout(x, 0.25):sum():backward()
      heed.set_grad_enabled(false)
      heed.manual_seed(3)
      assert.same(list(heed.dropout(heed.ones(1000), 0.25)), list(x.grad))
    end)

    it("leave the draws and the results as they were, in both streams and any layout", function()
      local x = heed.randn(7, 5, 3)
      for _, stream in ipairs { "native", "mkl" } do
        heed.set_dropout_stream(stream)
        for _, form in ipairs { x, x:permute(3, 1, 2), x:select(2, 2), x:narrow(1, 2, 1):expand(4, 5, 3) } do
          heed.manual_seed(5)
          heed.set_grad_enabled(false)
          local plain, after = heed.dropout(form, 0.3), heed.rand(3)
          heed.set_grad_enabled(true)
          heed.manual_seed(5)
          local recorded = heed.dropout(form:detach():requires_grad_(), 0.3)
          assert.same(plain:stride(), recorded:stride())
          assert.is_true(heed.equal(plain, recorded:detach()))
          assert.is_true(heed.equal(after, heed.rand(3)))
        end
      end
      heed.set_dropout_stream "native"
    end)

    it("are all of it for p = 0, and nothing for p = 1", function()
      for p, wanted in pairs { [0] = { 1, 1 }, [1] = { 0, 0 } } do
        local x = heed.tensor({ 1, 2 }):requires_grad_()
        heed.dropout(x, p):sum():backward()
        assert.same(wanted, list(x.grad))
      end
    end)
  end)

  it("do not exist for whole numbers and masks", function()
    local x, whole = heed.tensor({ 1, 2 }):requires_grad_(), heed.tensor({ 2, 3 }, { dtype = "int64" })
    local y = heed.where(x:gt(1), x * whole, whole)
    y:sum():backward()
    assert.same({ 0, 3 }, list(x.grad))
    assert.is_nil(whole.grad)
    assert.is_false(x:gt(1).requires_grad)
    assert.is_false(x:argmax().requires_grad)
    local _, indices = x:sort()
    assert.is_false(indices.requires_grad)
  end)

  it("have PyTorch's names where an operand is a number", function()
    local x = heed.tensor({ 1, 2 }):requires_grad_()
    local names = {}
    for i, y in ipairs { 1 - x, x - 1, 2 / x, x / 2, x ^ 2, x ^ x, 2 ^ x, x % 2, x % x, x:lerp(x, 0.5), x:lerp(x, x),
      x:clamp(0, 1), x:clamp(x, x), x:max(), (x:max(1)), x:mean(), x:mean(1) } do
      names[i] = tostring(y.grad_fn):match "%w+"
    end
    assert.same({ "RsubBackward1", "SubBackward0", "MulBackward0", "DivBackward0", "PowBackward0", "PowBackward1",
      "PowBackward2", "RemainderBackward0", "RemainderBackward1", "LerpBackward0", "LerpBackward1", "ClampBackward1",
      "ClampBackward0", "MaxBackward1", "MaxBackward0", "MeanBackward0", "MeanBackward1" }, names)
  end)

  it("need only what they use", function()
    local x = heed.tensor({ 1, 2 }):requires_grad_()
    local y, z = x * 1, x * 1
    local sum, largest = y + z, (y:max(1))
    y:fill_(7)
    z:fill_(7)
    local loss = sum:sum() + largest
    loss:backward()
    assert.same({ 2, 3 }, list(x.grad))
  end)

  it("are all there or as before when memory runs out", function()
    local n = 200000
    local x = heed.rand(n):requires_grad_()
    local operations = {
      function(y) return y:sin() end, function(y) return y:pow(2.5) end, function(y) return y:clamp(y * 0.5, y) end,
      function(y) return y:var() end, function(y) return y:cumprod(1) end, function(y) return y:amax() end,
      function(y) return y:sort() end, function(y) return (y * 1e-5 + 1):prod() end, function(y) return y:max() end,
      function(y) return y:div(y + 1) end, function(y) return heed.dropout(y, 0.5) end,
    }
    for i, operation in ipairs(operations) do
      x.grad = heed.ones(n)
      local loss, failures = operation(x * 1):sum(), 0
      for room = 0, 20 do
        for _ = 1, 2 do collectgarbage() end
        heed.limit { memory = heed.info().memory_in_use + room * 400000 }
        local ok, message = pcall(loss.backward, loss)
        heed.limit { memory = math.huge }
        if ok then break end
        failures = failures + 1
        assert.truthy(tostring(message):find("memory", 1, true), tostring(message))
        assert.are.equal(n, x.grad:sum():item(), i)
      end
      assert.is_true(failures > 0, i)
      assert.is_false(heed.equal(x.grad, heed.ones(n)), i)
    end
  end)
end)
