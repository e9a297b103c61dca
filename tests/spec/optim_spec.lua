-- heed.optim: optimisers. The expected values in tests/golden/optim.lua are PyTorch's.
local heed = require "heed"
local fails = require "tests.fails"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"
local nn, optim = heed.nn, heed.optim
local close = tensors.close

local function cases(kind)
  local list = {}
  for _, case in ipairs(dofile "tests/golden/optim.lua") do
    if case.kind == kind then list[#list + 1] = case end
  end
  return list
end

local function parameter(...) return nn.Parameter(heed.tensor { ... }) end

-- A parameter whose gradient is all ones.
local function with_gradient(...)
  local p = parameter(...)
  p.grad = heed.ones(p.shape)
  return p
end

local CLASSES = { "SGD", "Adam", "AdamW", "RMSprop" }
local MOMENTUM = { SGD = { momentum = 0.9 }, Adam = { amsgrad = true }, AdamW = {}, RMSprop = { centered = true } }

describe("an optimiser", function()
  for number, case in ipairs(cases "optimiser") do
    it(("makes PyTorch's steps: %s, case %d"):format(case.class, number), function()
      local parameters = {}
      for i, record in ipairs(case.parameters) do parameters[i] = nn.Parameter(tensors.golden(record)) end
      local optimiser = optim[case.class](parameters, case.config)
      for step, gradients in ipairs(case.gradients) do
        for i, record in ipairs(gradients) do parameters[i].grad = record and tensors.golden(record) or nil end
        optimiser:step()
        for i, record in ipairs(case.expect[step]) do close(tensors.golden(record), parameters[i], 2e-6, 2e-6) end
      end
    end)
  end

  it("takes an iterator, named parameters, a list, a tensor or groups", function()
    local m = nn.Linear(3, 2)
    for _, given in ipairs { m:parameters(), m:named_parameters(), { m.weight, m.bias },
      { { "w", m.weight }, { "b", m.bias } },
      { { params = m.weight }, { params = { m.bias } } }, { params = m:parameters() } } do
      m.weight.grad, m.bias.grad = heed.ones(2, 3), heed.ones(2)
      local before = m.weight:clone()
      local optimiser = optim.SGD(given, { lr = 0.5 })
      optimiser:step()
      close(before - 0.5, m.weight)
    end
    assert.are.equal(1, #optim.SGD(m.weight).param_groups[1].params)
  end)

  it("takes options by position, too", function()
    local group = optim.SGD({ parameter(1) }, 0.5, 0.9).param_groups[1]
    assert.are.same({ 0.5, 0.9, 0 }, { group.lr, group.momentum, group.weight_decay })
  end)

  it("has options for each group", function()
    local a, b = with_gradient(1), with_gradient(1)
    local optimiser = optim.SGD({ { params = { a }, lr = 0.5 }, { params = { b }, name = "b" } }, { lr = 0.25 })
    optimiser:step()
    assert.are.same({ 0.5, 0.75 }, { a[1], b[1] })
    optimiser.param_groups[2].lr = 1
    optimiser:step()
    assert.are.same({ 0, -0.25 }, { a[1], b[1] })
    local c = with_gradient(2)
    optimiser:add_param_group { params = { c }, lr = 2 }
    optimiser:step()
    assert.are.same({ -0.5, -1.25, 0 }, { a[1], b[1], c[1] })
  end)

  it("leaves parameters without a gradient, also if none has one", function()
    for _, class in ipairs(CLASSES) do
      local a, b = with_gradient(1, 2), parameter(3, 4)
      local optimiser = optim[class]({ a, b }, { lr = 0.1 })
      optimiser:step()
      assert.are_not.equal(1, a[1])
      close(heed.tensor { 3, 4 }, b)
      local before = a:clone()
      a.grad = nil
      optimiser:step()
      close(before, a)
    end
  end)

  it("removes the gradients, or sets them to zero", function()
    local p = with_gradient(1, 2)
    local optimiser = optim.SGD({ p })
    optimiser:zero_grad { set_to_none = false }
    close(heed.zeros(2), p.grad)
    optimiser:zero_grad()
    assert.is_nil(p.grad)
  end)

  it("calls a closure first and returns its result", function()
    local p = parameter(1)
    local optimiser = optim.SGD({ p }, { lr = 0.5 })
    assert.are.equal("loss", optimiser:step(function()
      p.grad = heed.ones(1)
      return "loss"
    end))
    assert.are.equal(0.5, p[1])
    assert.is_nil(optimiser:step())
    fails("stop", optimiser.step, optimiser, function() error("stop", 0) end)
    assert.are.equal(0, p[1])
  end)

  it("knows a parameter by its elements, whichever object it comes as", function()
    local m = nn.Linear(2, 2, false)
    local optimiser = optim.SGD({ m.weight }, { lr = 1, momentum = 0.5 })
    local before = m.weight:clone()
    for _ = 1, 2 do
      m.weight.grad = heed.ones(2, 2)
      optimiser:step()
      collectgarbage()
    end
    close(before - 2.5, m.weight)
  end)

  it("changes strided parameters and takes strided gradients", function()
    for _, class in ipairs(CLASSES) do
      local start, slope = heed.randn(37, 11), heed.randn(37, 11)
      local plain, strided = nn.Parameter(start:clone()), nn.Parameter(start.T:contiguous().T)
      local a, b = optim[class]({ plain }, MOMENTUM[class]), optim[class]({ strided }, MOMENTUM[class])
      for _ = 1, 3 do
        plain.grad, strided.grad = slope, slope.T:contiguous().T
        a:step()
        b:step()
      end
      assert.are.equal(plain:contiguous():to_string(), strided:contiguous():to_string())
      plain.grad = heed.tensor { { 2 } }:expand(37, 11)
      a:step()
    end
  end)

  it("gives the same bits with any number of threads", function()
    local threads = heed.get_num_threads()
    local shapes = { { 300, 401 }, { 7 }, { 65536 }, { 3, 5 } }
    for _, class in ipairs(CLASSES) do
      local found
      for count = 1, 3 do
        heed.set_num_threads(count)
        local g, list = heed.Generator(3), {}
        for i, shape in ipairs(shapes) do list[i] = nn.Parameter(heed.randn(shape, { generator = g })) end
        local optimiser = optim[class](list, MOMENTUM[class])
        for _ = 1, 2 do
          for _, p in ipairs(list) do p.grad = heed.randn(p.shape, { generator = g }) end
          optimiser:step()
        end
        local texts = {}
        for i, p in ipairs(list) do texts[i] = p:to_string() end
        local bits = table.concat(texts)
        assert.is_true(not found or found == bits)
        found = bits
      end
    end
    heed.set_num_threads(threads)
  end)

  it("is stopped by a limit before it changes anything", function()
    local a, b = with_gradient(1), with_gradient(2)
    local optimiser = optim.AdamW({ a, b }, { lr = 0.1 })
    optimiser:step()
    local before = { a[1], b[1], optimiser:state_dict().state[1].step }
    heed.limit { seconds = 0.01 }
    local ok, message = pcall(optimiser.step, optimiser, function()
      local from = heed.clock()
      while heed.clock() - from < 0.02 do end -- luacheck: ignore 542
    end)
    heed.limit { seconds = math.huge }
    if not ok then
      assert.matches("time limit", message)
      assert.are.same(before, { a[1], b[1], optimiser:state_dict().state[1].step })
    end
  end)

  it("prints as PyTorch's", function()
    assert.are.equal([[
SGD (
Parameter Group 0
    dampening: 0
    lr: 1e-05
    maximize: False
    momentum: 0.9
    nesterov: False
    weight_decay: 0

Parameter Group 1
    dampening: 0
    lr: 0.001
    maximize: False
    momentum: 0.9
    nesterov: False
    weight_decay: 0
)]], tostring(optim.SGD({ { params = { parameter(1) }, lr = 1e-5 }, { params = { parameter(1) } } },
  { momentum = 0.9 })))
    assert.matches("    betas: %(0%.9, 0%.999%)\n", tostring(optim.Adam { parameter(1) }))
  end)
end)

describe("training", function()
  -- The loss before and after steps of training a line through points of y = 2 x + 1.
  local function train(class, options, steps)
    local m = nn.Linear(1, 1, { generator = heed.Generator(1) })
    local x = heed.linspace(-1, 1, 20):view(20, 1)
    local y = x * 2 + 1
    local optimiser = optim[class](m:parameters(), options)
    local schedule = optim.lr_scheduler.CosineAnnealingLR(optimiser, { T_max = steps })
    local first, last
    local before = heed.set_grad_enabled(true)
    for _ = 1, steps do
      last = optimiser:step(function()
        optimiser:zero_grad()
        local loss = nn.functional.mse_loss(m(x), y)
        loss:backward()
        nn.utils.clip_grad_norm_(m:parameters(), 10)
        return loss:item()
      end)
      first = first or last
      schedule:step()
    end
    heed.set_grad_enabled(before)
    return first, last
  end

  for class, options in pairs { SGD = { lr = 0.3, momentum = 0.5 }, Adam = { lr = 0.2 },
    AdamW = { lr = 0.2, weight_decay = 0 }, RMSprop = { lr = 0.1 } } do
    it("lowers the loss: " .. class, function()
      local first, last = train(class, options, 100)
      assert.is_true(first > 0.1 and last < 1e-3, last)
    end)
  end

  it("leaves the graph of a step in which the parameters changed unusable, with a message", function()
    local p = parameter(1, 2)
    local optimiser = optim.SGD { p }
    local before = heed.set_grad_enabled(true)
    local loss = (p * p):sum()
    loss:backward { retain_graph = true }
    optimiser:step()
    local ok, message = pcall(loss.backward, loss)
    heed.set_grad_enabled(before)
    assert.is_false(ok)
    assert.matches("step", message)
  end)
end)

describe("the state of an optimiser", function()
  -- A model, its optimiser, and a step with random gradients.
  local function training(class, seed)
    local g = heed.Generator(seed)
    local m = nn.Linear(3, 2, { generator = g })
    local optimiser = optim[class](m:named_parameters(), MOMENTUM[class])
    return m, optimiser, function(generator)
      for p in m:parameters() do p.grad = heed.randn(p.shape, { generator = generator }) end
      optimiser:step()
    end
  end

  for _, class in ipairs(CLASSES) do
    it("continues bit for bit: " .. class, function()
      local m, optimiser, step = training(class, 1)
      for i = 1, 3 do step(heed.Generator(i)) end
      local other, copy, other_step = training(class, 2)
      other:load_state_dict(m:state_dict())
      copy:load_state_dict(optimiser:state_dict())
      step(heed.Generator(9))
      other_step(heed.Generator(9))
      assert.are.equal(m.weight:to_string(), other.weight:to_string())
      assert.are.equal(m.bias:to_string(), other.bias:to_string())
    end)
  end

  it("is PyTorch's, counted from 1", function()
    local p = with_gradient(1)
    local optimiser = optim.Adam({ { params = { parameter(1) } }, { params = { p }, lr = 0.5 } })
    optimiser:step()
    local state = optimiser:state_dict()
    assert.are.same({ 2 }, state.param_groups[2].params)
    assert.are.equal(0.5, state.param_groups[2].lr)
    assert.is_nil(state.state[1])
    assert.are.equal(1, state.state[2].step)
    close(heed.tensor { 0.1 }, state.state[2].exp_avg)
    close(heed.tensor { 0.001 }, state.state[2].exp_avg_sq)
  end)

  it("of another model is refused, with the names, and nothing changes", function()
    local m = nn.Linear(2, 3)
    local optimiser = optim.SGD(m:named_parameters(), { momentum = 0.9 })
    m.weight.grad, m.bias.grad = heed.ones(3, 2), heed.ones(3)
    optimiser:step()
    local other = optim.SGD(nn.Linear(3, 2):named_parameters(), { momentum = 0.5, lr = 0.25 })
    fails("load_state_dict: the state is of another model or optimiser:\n"
      .. "  momentum_buffer of parameter 'weight' is [3, 2]; it must be [2, 3]\n"
      .. "  momentum_buffer of parameter 'bias' is [3]; it must be [2]",
      other.load_state_dict, other, optimiser:state_dict())
    assert.are.same({}, other:state_dict().state)
    assert.are.equal(0.25, other.param_groups[1].lr)
    local less = optim.SGD({ { "weight", m.weight } }, { momentum = 0.9 })
    fails("load_state_dict: the state is of another model or optimiser:\n"
      .. "  group 1 has 2 parameters, in the optimiser 1",
      less.load_state_dict, less, optimiser:state_dict())
    local adam = optim.Adam(m:named_parameters())
    fails("load_state_dict: the state is of another model or optimiser:\n"
      .. "  parameter 'weight' has no exp_avg\n  parameter 'weight' has no exp_avg_sq\n"
      .. "  parameter 'weight' has momentum_buffer, which Adam does not use\n"
      .. "  parameter 'bias' has no exp_avg\n  parameter 'bias' has no exp_avg_sq\n"
      .. "  parameter 'bias' has momentum_buffer, which Adam does not use",
      adam.load_state_dict, adam, optimiser:state_dict())
    local renamed = optim.SGD({ { "w", m.weight }, { "bias", m.bias } }, { momentum = 0.9 })
    fails("load_state_dict: the state is of another model or optimiser:\n"
      .. "  parameter 1 of group 1 is 'weight', in the optimiser 'w'",
      renamed.load_state_dict, renamed, optimiser:state_dict())
    fails("load_state_dict: state is the number 1; it must be a table that state_dict of an optimiser gave, with state "
      .. "and param_groups", adam.load_state_dict, adam, 1)
  end)
end)

describe("an optimiser refuses", function()
  it("what cannot learn", function()
    raises("SGD: parameter 1 is int64; it must be float32", function()
      local optimiser = optim.SGD { heed.tensor({ 1 }, { dtype = "int64" }) }
      return optimiser
    end)
    fails("SGD: parameter 1 does not require a gradient; use nn.Parameter(x) or x:requires_grad_()", optim.SGD,
      { heed.zeros(2) })
    fails("SGD: parameters is a module (Linear); it must be tensors: m:parameters(), a list, or a list of groups "
      .. "{params = …, lr = …}; use m:parameters()", optim.SGD, nn.Linear(2, 2))
    fails("SGD: parameter 2 is the number 5; it must be a tensor", optim.SGD, { parameter(1), 5 })
    local m = nn.utils.skip_init(nn.Linear, 2, 2)
    fails("SGD: parameter 1 has no elements yet (skip_init); load the weights before making the optimiser", optim.SGD,
      m:parameters())
    local before = heed.set_grad_enabled(true)
    local y = parameter(1) * 2
    heed.set_grad_enabled(before)
    fails("SGD: parameter 1 is the result of a recorded operation (grad_fn=<MulBackward0>); it must be a leaf; use "
      .. "x:detach():requires_grad_()", optim.SGD, { y })
  end)

  it("no parameters, and the same one twice", function()
    fails("Adam: there are no parameters; there must be at least one", optim.Adam, {})
    fails("Adam: params of group 1 is empty; there must be at least one parameter", optim.Adam, { { params = {} } })
    fails("Adam: params of group 1 is nil; it must be m:parameters() or a list of tensors", optim.Adam, { { lr = 1 } })
    local m = nn.Linear(2, 2)
    fails("Adam: parameters 1 and 3 are the same tensor; each must be listed once", optim.Adam,
      { m.weight, m.bias, m.weight })
    fails("Adam: parameters 'weight' and 3 are the same tensor; each must be listed once", optim.Adam,
      { { params = m:named_parameters() }, { params = { m.weight } } })
    local optimiser = optim.Adam(m:parameters())
    fails("add_param_group: parameters 1 and 3 are the same tensor; each must be listed once",
      optimiser.add_param_group, optimiser, { params = { m.weight } })
    assert.are.equal(1, #optimiser.param_groups)
  end)

  it("options that are unknown or out of range", function()
    local p = { parameter(1) }
    fails("SGD: lr is the number -1; it must be a finite number, at least 0", optim.SGD, p, -1)
    fails("SGD: lr is the number nan; it must be a finite number, at least 0", optim.SGD, p, { lr = 0 / 0 })
    fails("SGD: lr is a string ('1'); it must be a finite number, at least 0", optim.SGD, p, { lr = "1" })
    fails("SGD: there is no option 'momentun'; the options are lr, momentum, dampening, weight_decay, nesterov, "
      .. "maximize",
      optim.SGD, p, { momentun = 1 })
    fails("SGD: there is no option 'lrr'; the options are lr, momentum, dampening, weight_decay, nesterov, maximize",
      optim.SGD, { { params = p, lrr = 1 } })
    fails("SGD: nesterov is set with momentum 0 and dampening 0; it needs a momentum above 0 and no dampening",
      optim.SGD, p, { nesterov = true })
    fails("Adam: betas[2] is the number 1; it must be a number from 0 to less than 1", optim.Adam, p,
      { betas = { 0.9, 1 } })
    fails("Adam: betas has 1 element; it must have two numbers", optim.Adam, p, { betas = { 0.9 } })
    fails("RMSprop: centered is the number 1; it must be a boolean", optim.RMSprop, p, { centered = 1 })
    fails("SGD: lr of group 2 is the number -1; it must be a finite number, at least 0", optim.SGD,
      { { params = p }, { params = { parameter(2) }, lr = -1 } })
  end)

  it("a step when its groups were damaged, and changes nothing", function()
    local p, q = with_gradient(1), with_gradient(2)
    local optimiser = optim.SGD({ { params = { p } }, { params = { q } } }, { lr = 0.5 })
    optimiser.param_groups[2].lr = 0 / 0
    raises("step: lr of group 2 is the number nan; it must be a finite number, at least 0",
      function() optimiser:step() end)
    optimiser.param_groups[2].lr = 1
    optimiser.param_groups[1].params[2] = q
    fails("step: the parameters of param_groups[1] were changed; use add_param_group, or a new optimiser",
      optimiser.step, optimiser)
    assert.are.same({ 1, 2 }, { p[1], q[1] })
    optimiser.param_groups[1].params[2] = nil
    optimiser.param_groups[3] = {}
    fails("step: param_groups has 3 groups; the optimiser has 2: use add_param_group", optimiser.step, optimiser)
  end)

  it("calls with a dot, and arguments that it does not take", function()
    local optimiser = optim.SGD { parameter(1) }
    fails("step: self is nil; it must be a heed.optim.SGD; call the method with a colon", optimiser.step)
    fails("step: closure is the number 1; it must be a function", optimiser.step, optimiser, 1)
    fails("heed.optim has no function or field 'Adm'; did you mean 'Adam'?", function() return optim.Adm end)
  end)
end)

describe("an optimiser and the memory", function()
  it("a step that runs out of memory changes nothing, and can be made again", function()
    local list = {}
    for i = 1, 3 do
      list[i] = nn.Parameter(heed.zeros(50000))
      list[i].grad = heed.ones(50000)
    end
    local optimiser = optim.AdamW(list, { lr = 0.5 })
    collectgarbage()
    heed.limit { memory = heed.info().memory_in_use + 700000 }
    local ok, message = pcall(optimiser.step, optimiser)
    heed.limit { memory = math.huge }
    assert.is_false(ok)
    assert.matches("memory limit", message)
    for i = 1, 3 do assert.are.equal(0, list[i]:abs():sum():item()) end
    assert.are.same({}, optimiser:state_dict().state)
    optimiser:step()
    close(heed.full({ 50000 }, -0.5), list[3], 1e-6)
  end)

  support.where("every_allocation", it, pending)("a finalizer may change gradients at any allocation of a step",
    function()
    for number = 1, 400, 4 do
      local a, b = with_gradient(1, 2), with_gradient(3, 4)
      local optimiser = optim.Adam({ a, b }, { lr = 0.5 })
      local reached, ok, problem = support.at_allocation(number, function()
        a.grad = nil
        b.grad = heed.ones(2)
        optimiser.param_groups[1].lr = 0.25
      end, optimiser.step, optimiser)
      assert.is_true(ok, problem)
      local moved = { 3 - b[1], 4 - b[2] }
      assert.is_true(math.abs(moved[1] - moved[2]) < 1e-6 and moved[1] > 0.2)
      if not reached then return end
    end
  end)
end)
