-- Gradients of views, copies, indexing, joining, products and writes in place.
local heed = require "heed"

--- The formula of scripts/dev/make_view_gradient_values.py.
local function numbers(shape, seed, divisor)
  local count, data = 1, {}
  for i = 1, #shape do count = count * shape[i] end
  for i = 0, count - 1 do data[i + 1] = ((i * (2 * seed + 5) + seed) % 23 - 11) / divisor end
  if count == 0 then return heed.zeros(shape) end
  return heed.tensor(data):reshape(shape)
end

local function I(list) return heed.tensor(list, { dtype = "int64" }) end

local SHAPES = {
  { "x", { 3, 4 } }, { "z", { 2, 3, 4 } }, { "v", { 4 } }, { "w", { 5, 4 } }, { "b", { 5 } }, { "u", { 3, 4 } },
}

--- f must raise an error that contains the text.
local function refused(text, f)
  local ok, message = pcall(f)
  assert.is_false(ok, "no error was raised; expected: " .. text)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

local function inputs()
  local list = {}
  for seed, given in ipairs(SHAPES) do list[seed] = numbers(given[2], seed, 8):requires_grad_() end
  return list
end

--- y = … of the statements, for these inputs.
local function run(code, list)
  local names = {}
  for i, given in ipairs(SHAPES) do names[i] = given[1] end
  local chunk = ("local heed, I, %s = ... local y %s return y"):format(table.concat(names, ", "), code)
  return assert(load(chunk))(heed, I, table.unpack(list))
end

local function backward(y) (y * numbers(y.shape, 7, 16)):sum():backward() end

--- Within 2e-6 of the largest. Where PyTorch has zeros, there may be no gradient.
local function same(list, want, code)
  local most = 0
  for i = 1, #(want or {}) do most = math.max(most, math.abs(want[i])) end
  if most == 0 and list == nil then return end
  if want == nil then error(("%s: there must be no gradient"):format(code)) end
  if #(list or {}) ~= #want then
    error(("%s: there are %d elements; there must be %d"):format(code, #(list or {}), #want))
  end
  for i = 1, #want do
    if list[i] ~= list[i] or math.abs(list[i] - want[i]) > 2e-6 * most then
      error(("%s: element %d is %s; it must be %s"):format(code, i, tostring(list[i]), tostring(want[i])))
    end
  end
end

describe("gradients of views, indexing, joining, products and writes", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  it("are PyTorch's, and have its names", function()
    for _, case in ipairs(dofile "tests/golden/view_gradients.lua") do
      local list = inputs()
      local ok, problem = pcall(function()
        local y = run(case.code, list)
        if case.name then assert.are.equal("<" .. case.name .. ">", y.grad_fn, case.code) end
        backward(y)
      end)
      if not ok then error(case.code .. ": " .. tostring(problem)) end
      for i, given in ipairs(SHAPES) do
        local grad = list[i].grad
        same(grad and grad:flatten():tolist(), case.grads[given[1]], case.code .. ": " .. given[1])
      end
    end
  end)

  it("of parts of tensors whose elements share memory are right", function()
    local x = heed.tensor({ 1, 2, 3 }, { requires_grad = true })
    local wide = x:expand(2, 3)
    local y = wide[2] * heed.tensor { 1, 10, 100 } + wide[{ 1, {} }] + wide[{ {}, { 1, 3 } }]:sum(1)
    y:sum():backward()
    assert.are.same({ 4, 13, 103 }, x.grad:tolist())
    x.grad = nil
    local windows = x:unfold(1, 2, 1)
    ;(windows[1] * 2 + windows[2] * 3):sum():backward()
    assert.are.same({ 2, 5, 3 }, x.grad:tolist())
  end)

  it("reach the tensor whose copy is written, as they do in place", function()
    local source, index = numbers({ 2, 4 }, 2, 8), I { { 1, 2, 3, 1 }, { 3, 3, 1, 2 } }
    for name, arguments in pairs {
      scatter = { 1, index, source }, scatter_add = { 1, index, source }, index_add = { 1, I { 3, 3 }, source, 0.5 },
      index_copy = { 1, I { 3, 1 }, source }, index_fill = { 2, I { 4 }, 2 },
    } do
      local gradients = {}
      for _, in_place in ipairs { false, true } do
        local x = numbers({ 3, 4 }, 1, 8):requires_grad_()
        local from = heed.is_tensor(arguments[3]) and source:clone():requires_grad_() or arguments[3]
        local target = in_place and x:clone() or x
        local given = { arguments[1], arguments[2], from, arguments[4] }
        backward(target[in_place and name .. "_" or name](target, table.unpack(given)))
        gradients[#gradients + 1] = { x.grad:tolist(), heed.is_tensor(from) and from.grad:tolist() or 0 }
      end
      assert.are.same(gradients[2], gradients[1], name)
    end
    local x = numbers({ 3, 4 }, 1, 8):requires_grad_()
    backward(x:index_add(1, I { 3, 3 }, x:narrow(1, 1, 2))) -- both at once
    local dy = numbers({ 3, 4 }, 7, 16)
    dy:narrow(1, 1, 2):add_(dy[3]:clone())
    assert.are.same(dy:tolist(), x.grad:tolist())
  end)

  it("reach a source that is larger than the index of scatter_", function()
    local source = heed.ones(2, 3):requires_grad_()
    local y = heed.zeros(2, 3):scatter_(2, I { { 3 } }, source * 2)
    y:sum():backward()
    assert.are.same({ { 2, 0, 0 }, { 0, 0, 0 } }, source.grad:tolist())
  end)

  it("go through the low-precision weights of linear", function()
    local x, weight = numbers({ 2, 3 }, 1, 8):requires_grad_(), numbers({ 4, 3 }, 2, 8)
    for _, dtype in ipairs { "bfloat16", "float16" } do
      x.grad = nil
      backward(heed.linear(x, weight:to(dtype)))
      assert.are.same(heed.matmul(numbers({ 2, 4 }, 7, 16), weight):tolist(), x.grad:tolist())
    end
  end)

  it("are not recorded where nothing wants one, or recording is off", function()
    local x, plain = heed.ones(2, 2):requires_grad_(), heed.zeros(2, 2)
    plain[1] = 3
    plain[{ 2, 1 }] = 4
    assert.is_nil(plain.grad_fn)
    assert.is_nil(plain[1].grad_fn)
    heed.no_grad(function()
      plain[1] = x[1]
      x[2] = 5
      assert.is_nil(x[1].grad_fn)
      assert.is_nil(x.T.grad_fn)
    end)
    assert.is_nil(plain.grad_fn)
    assert.are.same({ { 1, 1 }, { 5, 5 } }, x:tolist())
    assert.are.same({ { 1, 1 }, { 4, 0 } }, plain:tolist())
  end)

  it("are 0 for a tensor that is written again", function()
    local x, buffer = heed.ones(2):requires_grad_(), heed.zeros(2, 2)
    for i = 1, 3 do
      buffer:zero_()
      buffer[1] = x * i
      buffer:sum():backward()
    end
    assert.are.same({ 6, 6 }, x.grad:tolist())
    buffer:zero_()
    assert.is_false(buffer.requires_grad)
  end)
end)

describe("a write in place that would lose gradients", function()
  local before, x
  before_each(function()
    before = heed.set_grad_enabled(true)
    x = numbers({ 3, 4 }, 1, 8):requires_grad_()
  end)
  after_each(function() heed.set_grad_enabled(before) end)

  it("to a leaf is refused, and changes nothing", function()
    local was = x:tolist()
    for _, write in ipairs {
      function() x[1] = 0 end, function() x[{ 1, 2 }] = 0 end, function() x[{ {}, { 1, 2 } }] = x[{ {}, { 3, 4 } }] end,
      function() x[x:gt(0)] = 0 end, function() x[I { 1 }] = 0 end, function() x[{ {}, I { 1 } }] = 0 end,
      function() x:index_add_(1, I { 1 }, heed.ones(1, 4)) end, function() x:zero_() end, function() x:fill_(1) end,
      function() x:copy_(heed.ones(3, 4)) end, function() x:scatter_(1, I { { 1 } }, 3) end,
    } do
      refused("the tensor that is written is a leaf that requires a gradient; write to it under no_grad", write)
      assert.are.same(was, x:tolist())
    end
  end)

  it("to a view of a recorded tensor is refused, and changes nothing", function()
    local y = x * 2
    local was = y:tolist()
    for _, view in ipairs { y[1], y.T, y:view(12), y[{ {}, { 1, 2 } }], y:narrow(1, 1, 2), y:select(2, 1) } do
      refused("is a view of a recorded tensor; write to that tensor (x[i] = value), or to a clone",
        function() view:mul_(2) end)
      refused("is a view of a recorded tensor", function() view[1] = 0 end)
      assert.are.same(was, y:tolist())
    end
  end)

  it("makes other tensors on the same elements unusable", function()
    local y = heed.zeros(3, 4)
    local row = y[1]
    y[1] = x[1]
    refused("the elements of a tensor [4] were changed through another one that shares them, by index",
      function() return row * 2 end)
    assert.are.same(x[1]:tolist(), row:detach():tolist())
    local other = heed.zeros(3, 4)
    other[2]:copy_(x[2])
    refused("were changed through another one that shares them, by copy_", function() return other:sum() end)
  end)

  it("of what a gradient needs makes the pass fail, and names both operations", function()
    local y = x * 1
    local z = y * y
    y[1] = 0
    refused("of mul, was changed in place by index", function() z:sum():backward() end)
    assert.is_nil(x.grad)
  end)

  it("that fails itself changes nothing", function()
    local y = x * 1
    local z = y * y
    for _, write in ipairs {
      function() y[4] = 0 end, function() y[{ 1, 9 }] = 0 end, function() y[1] = heed.ones(5) end,
      function() y[I { 9 }] = 0 end, function() y[heed.ones(2, { dtype = "bool" })] = 0 end,
      function() y:index_add_(1, I { 9 }, heed.ones(1, 4)) end, function() y:scatter_(1, I { { 9 } }, 1) end,
      function() y:copy_(heed.ones(5)) end,
    } do
      assert.is_false((pcall(write)))
    end
    z:sum():backward()
    assert.are.same((x * 2):tolist(), x.grad:tolist())
  end)

  it("to a copy has the gradients of one in place, for x and for what is written", function()
    local rows, places = I { 1, 3, 1 }, I { { 1, 2 }, { 3, 4 }, { 4, 1 } }
    for _, case in ipairs {
      { "scatter", 2, places, "s" }, { "scatter", 2, places, 5 }, { "scatter_add", 2, places, "s" },
      { "index_add", 1, rows, "s" }, { "index_add", 1, rows, "s", 2 }, { "index_copy", 1, I { 2, 1, 3 }, "s" },
      { "index_fill", 1, rows, 2 }, { "index_put", { rows }, "s", true }, { "index_put", { I { 2, 1, 3 } }, "s" },
    } do
      local found = {}
      for k, name in ipairs { case[1] .. "_", case[1] } do
        local a, s = x:detach():requires_grad_(), numbers({ 3, 4 }, 4, 8):requires_grad_()
        local arguments = {}
        for i = 2, #case do arguments[i - 1] = case[i] == "s" and s or case[i] end
        local target = k == 1 and a * 1 or a
        local y = target[name](target, table.unpack(arguments))
        backward(y)
        found[k] = { y.grad_fn, y:detach():tolist(), a.grad:tolist(), s.grad and s.grad:tolist() }
        assert.are.same(x:detach():tolist(), a:detach():tolist())
      end
      assert.are.same(found[1], found[2], case[1])
    end
  end)

  it("of a value of no dimensions gives it the sum of its gradients", function()
    local mask = x:detach():gt(0)
    for name, write in pairs {
      masked_fill = function(a, value) return a:masked_fill(mask, value) end,
      ["masked_fill in place"] = function(a, value) return (a * 1):masked_fill_(mask, value) end,
      index_fill = function(a, value) return a:index_fill(-1, I { 4, 2 }, value) end,
      ["index_fill in place"] = function(a, value) return (a * 1):index_fill_(2, I { 4, 2 }, value) end,
    } do
      local a, value = x:detach():requires_grad_(), heed.tensor(0.5, { requires_grad = true })
      local y = write(a, value)
      local plain = heed.no_grad(write, a, 0.5)
      assert.are.same(plain:tolist(), y:detach():tolist(), name)
      backward(y)
      local all, kept = numbers(y.shape, 7, 16), a.grad
      local is_written = name:find "masked" and mask or heed.zeros(3, 4):index_fill(2, I { 2, 4 }, 1):bool()
      assert.are.same((all * is_written:logical_not():float()):tolist(), kept:tolist(), name)
      assert.are.equal((all * is_written:float()):sum():item(), value.grad:item(), name)
    end
    local a, value = x * 1, heed.tensor(0.5, { requires_grad = true })
    refused("index_fill: dim is 3 and the tensor has 2 dimensions", function() a:index_fill(3, I { 1 }, value) end)
    refused("index_fill: index 9 is out of range", function() a:index_fill(1, I { 9 }, value) end)
    assert.are.equal(2, heed.tensor(1):index_fill(1, I { 1 }, value + 1.5):item())
  end)

  it("is refused where no gradient is known", function()
    local y = x * 1
    local was = y:tolist()
    refused("scatter_: no gradient is known for it; use it under no_grad, or on x:detach()",
      function() y:scatter_(1, I { { 1 } }, 3, { reduce = "multiply" }) end)
    assert.are.same(was, y:tolist())
    refused("quantize_int8: no gradient is known for it", function() heed.quantize_int8(x) end)
  end)
end)
