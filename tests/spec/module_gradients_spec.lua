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

function Mine:forward(x) return self.again(self.part(x):narrow(-1, 1, 2)) * self.scale end

describe("the gradients of MultiHeadAttention", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  --- The module's formula, by operations of tensors.
  local function formula(m, x, options)
    local b, n = x.shape[1], x.shape[2]
    local function heads(part, count) return part(x):view(b, n, count, m.head_dim):transpose(2, 3) end
    local q, k, v = heads(m.W_query, 4), heads(m.W_key, m.num_kv_heads), heads(m.W_value, m.num_kv_heads)
    if options.qk_norm then q, k = m.q_norm(q), m.k_norm(k) end
    if options.rope then q, k = q:rope(options.rope), k:rope(options.rope) end
    local y = heed.scaled_dot_product_attention(q, k, v, {
      is_causal = m.causal, enable_gqa = m.num_kv_heads < 4, scale = options.scale, softcap = options.softcap,
      window = options.window, sinks = options.sinks and m.sinks or nil,
      alibi_slopes = options.alibi and heed.alibi_slopes(4) or nil,
    })
    return m.out_proj(y:transpose(2, 3):reshape(b, n, 8))
  end

  for name, options in pairs {
    ["no option"] = {}, causal = { causal = false }, softcap = { softcap = 1.5 }, alibi = { alibi = true },
    ["alibi, not causal"] = { alibi = true, causal = false }, window = { window = { left = 2 } },
    sinks = { sinks = true }, num_kv_heads = { num_kv_heads = 2 }, qk_norm = { qk_norm = true },
    scale = { scale = 0.3 }, rope = { rope = {} }, qkv_bias = { qkv_bias = true },
    all = { alibi = true, sinks = true, num_kv_heads = 2, softcap = 2, window = { left = 3 }, rope = {},
      qk_norm = true, qkv_bias = true },
  } do
    it("are those of its formula: " .. name, function()
      heed.manual_seed(25)
      local m = nn.MultiHeadAttention(8, 8, 9, 0, 4, options)
      heed.no_grad(function()
        for _, p in m:named_parameters() do p:add_(heed.randn(p.shape) * 0.3) end
      end)
      local weight, found = heed.randn(2, 6, 8), {}
      local x = heed.randn(2, 6, 8)
      for i, f in ipairs { function(a) return m(a) end, function(a) return formula(m, a, options) end } do
        local input = x:detach():requires_grad_()
        m:zero_grad();
        (f(input) * weight):sum():backward()
        found[i] = { x = input.grad }
        for key, p in m:named_parameters() do found[i][key] = p.grad end
      end
      for key, want in pairs(found[2]) do
        local apart, most = (want - found[1][key]):abs():max():item(), want:abs():max():item()
        if apart ~= apart or apart > 4e-6 * math.max(1, most) then error(("%s: %g apart"):format(key, apart)) end
      end
    end)
  end
end)

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

  it("stays frozen in copies, and when other tensors are loaded", function()
    local m = Mine()
    m.scale.requires_grad = false
    m.part.weight.requires_grad = false
    local function frozen(module)
      local names = {}
      for name, parameter in module:named_parameters() do
        if not parameter.requires_grad then names[#names + 1] = name end
      end
      table.sort(names)
      return names
    end
    assert.are.same({ "part.weight", "scale" }, frozen(m))
    local copy = m:clone()
    assert.are.same({ "part.weight", "scale" }, frozen(copy))
    copy.scale.requires_grad = true
    assert.are.same({ "part.weight", "scale" }, frozen(m))
    m:load_state_dict(Mine():state_dict(), { assign = true })
    assert.is_false(m.scale.requires_grad)
  end)

  it("keeps the gradients of tied parameters together in copies", function()
    local before = heed.set_grad_enabled(true)
    local m = Mine():clone()
    local other = nn.Sequential(nn.Linear(3, 3, false), nn.Linear(3, 3, false))
    other[2].weight = other[1].weight
    other = other:clone()
    other(heed.ones(3)):sum():backward()
    m(heed.ones(2)):sum():backward()
    heed.set_grad_enabled(before)
    assert.is_true(other[1].weight.grad:equal(other[2].weight.grad))
    assert.is_true(m.part.weight.grad:equal(m.again.weight.grad))
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
