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

  it("is copied without its history, and a frozen part stays frozen", function()
    local m = nn.Sequential(nn.Linear(2, 3), Mine())
    m[1].weight:requires_grad_(false)
    m[2].scale:requires_grad_(false)
    heed.set_grad_enabled(true)
    local copy = m:clone()
    local loss = (copy[1](heed.ones(1, 2)) * copy[2].scale + copy[2].part(heed.ones(1, 2))):sum()
    loss:backward()
    heed.set_grad_enabled(false)
    for name, parameter in copy:named_parameters() do
      assert.is_true(parameter.is_leaf, name)
      local frozen = name == "0.weight" or name == "1.scale"
      assert.equal(not frozen, parameter.requires_grad, name)
      assert.equal(not frozen, parameter.grad ~= nil, name)
    end
    for name, parameter in m:named_parameters() do assert.is_nil(parameter.grad, name) end
  end)

  it("has parameters, not results, after a conversion under recording", function()
    heed.set_grad_enabled(true)
    for _, dtype in ipairs { "bfloat16", "float16", "int8" } do
      local m = nn.Linear(32, 3)
      m:to(dtype)
      assert.is_true(m.weight.is_leaf)
      assert.is_false(m.weight.requires_grad)
      m:to "float32"
      assert.is_true(m.weight.is_leaf)
      assert.is_true(m.weight.requires_grad)
      m(heed.ones(1, 32)):sum():backward()
      assert.equal("heed.Size([3, 32])", tostring(m.weight.grad.shape))
    end
    heed.set_grad_enabled(false)
  end)

  it("refuses wrong arguments", function()
    local m = nn.Linear(2, 2)
    raises("requires_grad_: requires_grad is the number 1; it must be a boolean", function() m:requires_grad_(1) end)
    local unknown = "zero_grad: there is no option 'to_none'; the options are set_to_none; did you mean 'set_to_none'?"
    raises(unknown, function() m:zero_grad { to_none = true } end)
    raises("zero_grad: self is nil; it must be a module; call the method with a colon", function() m.zero_grad() end)
  end)
end)

describe("CausalAttention along a dimension that is not the last", function()
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)

  heed.manual_seed(4)
  local input, mask = heed.randn(2, 33, 8), heed.randn(33, 30)

  -- The result, and the sums of the gradients of a module that is called with these options.
  local function results(options, dim, dropout)
    heed.manual_seed(5)
    local m = nn.CausalAttention { d_in = 8, d_out = 8, context_length = 33, dropout = dropout, softmax_dim = dim }
    local x = input:clone():requires_grad_()
    local y, taps = m(x, options)
    local sums = {}
    if y.requires_grad then
      local loss = (y * heed.range(1, y:numel()):view(y.shape)):sum()
      loss:backward()
      sums[1] = x.grad:abs():sum():item()
      for _, parameter in m:named_parameters() do sums[#sums + 1] = parameter.grad:abs():sum():item() end
    end
    return y, sums, taps and taps.weights
  end

  it("has the bits of the forward pass that is not recorded, with dropout and masks", function()
    for dim = 1, 2 do
      for _, dropout in ipairs { 0, 0.4 } do
        for _, options in ipairs { {}, { attn_mask = mask }, { need_weights = true } } do
          local y, sums, weights = results(options, dim, dropout)
          local plain, none, plain_weights = heed.no_grad(results, options, dim, dropout)
          assert.is_true(y:equal(plain))
          assert.equal(4, #sums)
          assert.equal(0, #none)
          if weights then assert.is_true(weights:equal(plain_weights)) end
        end
      end
    end
  end)

  it("has the same gradients where its weights are wanted, too", function()
    local _, sums = results({}, 1, 0.4)
    local _, with_weights = results({ need_weights = true }, 1, 0.4)
    assert.same(sums, with_weights)
  end)

  it("has the gradients of a mask that has fewer keys", function()
    local hidden = mask:new_full({ 33, 3 }, -math.huge)
    local _, sums = results({ attn_mask = mask }, 2, 0)
    local _, wide = results({ attn_mask = heed.cat({ mask, hidden }, 2) }, 2, 0)
    for i, sum in ipairs(sums) do assert.near(wide[i], sum, 1e-4 * wide[i]) end
  end)
end)
