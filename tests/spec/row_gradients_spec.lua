-- The fused gradients of functions of rows, seen from Lua: the same as those of what they are composed of. Against
-- double precision: tests/c/test_grad_rows.c.
local heed = require "heed"
local nn, F = heed.nn, heed.nn.functional
local unpack = require("heed.compat").unpack

-- The gradients of inputs through sum(f(inputs…) * weights), with weights that depend on the shape alone.
local function gradients(f, ...)
  local inputs, given = {}, { ... }
  for i, x in ipairs(given) do inputs[i] = x:detach():clone():requires_grad_(true) end
  local was = heed.set_grad_enabled(true)
  local ok, message = pcall(function()
    local y = f(unpack(inputs))
    local weights = heed.range(1, y:numel()):view(y.shape):sin()
    y:mul(weights):sum():backward()
  end)
  heed.set_grad_enabled(was == true)
  assert(ok, message)
  local found = {}
  for i, x in ipairs(inputs) do found[i] = x.grad end
  return found
end

local function assert_same(wanted, got)
  assert.are.equal(#wanted, #got)
  for i = 1, #wanted do
    assert.is_true(wanted[i]:allclose(got[i], { rtol = 1e-4, atol = 1e-5 }),
      ("gradient %d: %s\nis not\n%s"):format(i, tostring(got[i]), tostring(wanted[i])))
  end
end

describe("the gradient of", function()
  local x = heed.randn(3, 4, 5)

  local function normalized(y, dims, eps)
    local centred = y - y:mean(dims, true)
    return centred * ((centred * centred):mean(dims, true) + eps):rsqrt()
  end

  it("layer_norm, over one size or several, with a weight and a bias", function()
    local weight, bias = heed.randn(4, 5), heed.randn(4, 5)
    assert_same(gradients(function(a, w, b) return normalized(a, { 2, 3 }, 1e-5) * w + b end, x, weight, bias),
      gradients(function(a, w, b) return F.layer_norm(a, { 4, 5 }, w, b) end, x, weight, bias))
    assert_same(gradients(function(a) return normalized(a, { 3 }, 0.1) end, x),
      gradients(function(a) return F.layer_norm(a, 5, { eps = 0.1 }) end, x))
    local m = nn.LayerNorm { normalized_shape = { 4, 5 } }
    assert_same(gradients(function(a) return normalized(a, { 2, 3 }, 1e-5) end, x), gradients(m, x))
    assert.are.equal("heed.Size([4, 5])", tostring(m.weight.grad.shape))
  end)

  it("rms_norm", function()
    local weight = heed.randn(4, 5)
    local function plain(a, w) return a * ((a * a):mean({ 2, 3 }, true) + 1e-3):rsqrt() * w end
    assert_same(gradients(plain, x, weight),
      gradients(function(a, w) return F.rms_norm(a, { 4, 5 }, { weight = w, eps = 1e-3 }) end, x, weight))
  end)

  it("softmax and log_softmax, along each dimension, also of a transposed tensor", function()
    for dim = 1, 3 do
      local function plain(a) return a:exp() / a:exp():sum(dim, true) end
      assert_same(gradients(plain, x), gradients(function(a) return a:softmax(dim) end, x))
      assert_same(gradients(function(a) return plain(a):log() end, x),
        gradients(function(a) return a:log_softmax(dim) end, x))
      assert_same(gradients(function(a) return plain(a:transpose(1, 3)) end, x),
        gradients(function(a) return a:transpose(1, 3):softmax(dim) end, x))
    end
  end)

  it("gelu and silu", function()
    local function gelu(a) return a * 0.5 * ((a * math.sqrt(0.5)):erf() + 1) end
    local function tanh_gelu(a) return a * 0.5 * (((a + a * a * a * 0.044715) * math.sqrt(2 / math.pi)):tanh() + 1) end
    assert_same(gradients(gelu, x), gradients(heed.gelu, x))
    assert_same(gradients(tanh_gelu, x), gradients(function(a) return a:gelu "tanh" end, x))
    assert_same(gradients(function(a) return a * a:sigmoid() end, x), gradients(heed.silu, x))
  end)

  it("rope: the gradient is turned back", function()
    local queries, positions = heed.randn(2, 5, 8), heed.tensor({ 9, 3, 3, 1, 100 }, { dtype = "int64" })
    for _, style in ipairs { "half", "interleaved" } do
      local function turn(a) return heed.rope(a, positions, { style = style, dims = 6 }) end
      local there = turn(gradients(turn, queries)[1])
      assert.is_true(there:allclose(heed.range(1, 80):view(2, 5, 8):sin(), { atol = 1e-5 }))
    end
  end)

  it("an embedding: the rows of an id that is repeated are summed", function()
    local weight = heed.randn(4, 3)
    local ids = heed.tensor({ { 2, 4 }, { 2, 2 } }, { dtype = "int64" })
    assert_same(gradients(function(w) return F.one_hot(ids, 4):float():matmul(w) end, weight),
      gradients(function(w) return ids:embedding(w) end, weight))
  end)
end)
