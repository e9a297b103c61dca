-- nn.utils: norms of gradients, and limits on them. The expected values in tests/golden/optim.lua are PyTorch's.
local heed = require "heed"
local fails = require "tests.fails"
local tensors = require "tests.tensors"
local nn, utils = heed.nn, heed.nn.utils
local close = tensors.close

local function parameters_of(gradients)
  local list = {}
  for i, gradient in ipairs(gradients) do
    list[i] = nn.Parameter(heed.zeros(gradient.shape))
    list[i].grad = gradient
  end
  return list
end

describe("limits on gradients", function()
  for number, case in ipairs(dofile "tests/golden/optim.lua") do
    if case.kind == "clip" then
      it(("are PyTorch's: case %d, norm of order %s, at most %s"):format(number, case.norm_type, case.max_norm),
        function()
        local gradients = {}
        for i, record in ipairs(case.gradients) do gradients[i] = tensors.golden(record) end
        close(heed.tensor(case.norm), utils.get_total_norm(gradients, case.norm_type), 0, 1e-6)
        local list = parameters_of(gradients)
        local norm = utils.clip_grad_norm_(list, case.max_norm, { norm_type = case.norm_type })
        close(heed.tensor(case.norm), norm, 0, 1e-6)
        for i, record in ipairs(case.expect) do close(tensors.golden(record), list[i].grad, 1e-7, 1e-6) end
      end)
    end
  end

  it("take an iterator, a list or one tensor, and leave out what has no gradient", function()
    local m = nn.Linear(2, 1)
    m.weight.grad = heed.tensor { { 3, 4 } }
    assert.are.equal(5, utils.clip_grad_norm_(m:parameters(), 10):item())
    assert.are.equal(5, utils.clip_grad_norm_({ m.weight, m.bias }, 2.5):item())
    close(heed.tensor { { 1.5, 2 } }, m.weight.grad)
    close(heed.tensor(2), utils.clip_grad_norm_(m.weight, 9, "inf"))
    assert.are.equal(0, utils.clip_grad_norm_({ m.bias }, 1):item())
  end)

  it("limit the elements, and keep nan", function()
    local list = parameters_of { heed.tensor { -3, -0.5, 0 / 0 }, heed.tensor { { 7 } } }
    utils.clip_grad_value_(list, 1)
    close(heed.tensor { -1, -0.5, 0 / 0 }, list[1].grad)
    close(heed.tensor { { 1 } }, list[2].grad)
  end)

  it("write strided gradients, and give expanded ones elements of their own", function()
    local base, one = heed.ones(3, 2), heed.ones(1)
    local list = parameters_of { base.T, one:expand(4) }
    utils.clip_grad_value_(list, 0.5)
    close(heed.full({ 2, 3 }, 0.5), list[1].grad)
    close(heed.full({ 3, 2 }, 0.5), base)
    close(heed.full({ 4 }, 0.5), list[2].grad)
    close(heed.ones(1), one)
  end)

  it("of many elements have a norm as in double precision, with any number of threads", function()
    local threads = heed.get_num_threads()
    local x = heed.randn(100000, { generator = heed.Generator(1) })
    local sum = 0
    for _, value in ipairs(x:tolist()) do sum = sum + value * value end
    local first = utils.get_total_norm({ x, x }):item()
    assert.is_true(math.abs(first / math.sqrt(2 * sum) - 1) < 1e-7)
    for count = 1, 3 do
      heed.set_num_threads(count)
      assert.are.equal(first, utils.get_total_norm({ x, x }):item())
    end
    heed.set_num_threads(threads)
  end)

  it("can refuse norms that are not finite, and then change nothing", function()
    local list = parameters_of { heed.tensor { 3, 0 / 0 } }
    fails("clip_grad_norm_: the norm of the gradients is nan; error_if_nonfinite is set, so nothing was changed",
      utils.clip_grad_norm_, list, 1, 2, true)
    close(heed.tensor { 3, 0 / 0 }, list[1].grad)
    utils.clip_grad_norm_(list, 1)
    assert.is_true(list[1].grad[1] ~= list[1].grad[1])
    local infinite = parameters_of { heed.tensor { 3, 1 / 0 } }
    fails("get_total_norm: the norm of the gradients is inf; error_if_nonfinite is set, so nothing was changed",
      utils.get_total_norm, { infinite[1].grad }, { error_if_nonfinite = true })
  end)

  it("refuse wrong arguments", function()
    local list = parameters_of { heed.ones(2) }
    fails("clip_grad_norm_: max_norm is nil; it must be a number, at least 0", utils.clip_grad_norm_, list)
    fails("clip_grad_norm_: max_norm is the number -1; it must be a number, at least 0", utils.clip_grad_norm_, list,
      -1)
    fails("clip_grad_norm_: norm_type is the number 0; it must be a number above 0, or math.huge for the largest "
      .. "magnitude", utils.clip_grad_norm_, list, 1, 0)
    fails("clip_grad_norm_: tensor 1 is the number 1; it must be a tensor", utils.clip_grad_norm_, { 1 }, 1)
    fails("clip_grad_norm_: parameters is a module (Linear); it must be tensors: m:parameters(), a list or one tensor",
      utils.clip_grad_norm_, nn.Linear(1, 1), 1)
    fails("clip_grad_norm_: parameters is a heed.optim.SGD; it must be tensors: m:parameters(), a list or one tensor",
      utils.clip_grad_norm_, heed.optim.SGD(list), 1)
    fails("clip_grad_value_: clip_value is the number nan; it must be a number, at least 0", utils.clip_grad_value_,
      list, 0 / 0)
  end)
end)
