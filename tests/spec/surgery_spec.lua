-- Points of attention modules, and changes of their heads: ablate, patch, on_weights.
local heed = require "heed"
local nn = heed.nn
local points = require "heed.nn.points"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local close = tensors.close

local function mha(more)
  heed.manual_seed(7)
  return nn.MultiHeadAttention(tensors.merged(
    { d_in = 6, d_out = 8, context_length = 12, dropout = 0, num_heads = 4 }, more or {}))
end

local modules = {
  plain = function() return mha() end,
  grouped = function() return mha { num_kv_heads = 2, causal = false } end,
  rotary = function() return mha { rope = {}, qk_norm = true, window = { left = 1 } } end,
  biased = function() return mha { alibi = true, sinks = true, softcap = 2, qkv_bias = true } end,
  unprojected = function() return mha { out_proj = false, head_dim = 3 } end,
  wrapper = function() return nn.MultiHeadAttentionWrapper(6, 2, 12, 0, 3) end,
  causal = function() return nn.CausalAttention(6, 4, 12, 0) end,
  self = function() return nn.SelfAttention(6, 4) end,
}
local x = heed.randn(2, 5, 6, { generator = heed.Generator(1) })

for name, make in pairs(modules) do
  describe("the points of a module, " .. name .. ",", function()
    it("show four dimensions and change no bit of the result", function()
      local m = make()
      local expected, info = m(x, { need_weights = true })
      local unbatched = m(x[1]):to_string()
      local shown, listeners = {}, {}
      for _, point in ipairs(points.NAMES) do
        for _, add in ipairs { "read", "add" } do
          listeners[#listeners + 1] = points[add](m, point, function(t) shown[point] = t:clone() end)
        end
      end
      local y, found = m(x, { need_weights = true })
      assert.are.equal(expected:to_string(), y:to_string())
      for key, value in pairs(info) do close(value, found[key]) end
      for _, point in ipairs(points.NAMES) do assert.are.equal(4, shown[point].ndim, point) end
      if name ~= "wrapper" then close(info.weights:reshape(shown.pattern.shape), shown.pattern) end
      assert.are.equal(unbatched, m(x[1]):to_string())
      for _, handle in ipairs(listeners) do handle:remove() end
      assert.is_false(require "heed.core".modules.holds_watched(m))
    end)

    it("go on with what a listener returns", function()
      local m = make()
      local expected, info = m(x, { need_weights = true, need_lse = true })
      for _, point in ipairs(points.NAMES) do
        local handle = points.add(m, point, function(t) return t + 0 end)
        local y, found = m(x, { need_weights = true, need_lse = true })
        close(expected, y)
        for key, value in pairs(info) do close(value, found[key]) end
        handle:remove()
      end
    end)
  end)
end

describe("a listener of a point", function()
  it("changes the values, and with them the output", function()
    local m = mha()
    local expected, bias = m(x), m.out_proj.bias
    points.add(m, "v", function(v) return v * 2 end)
    close((expected - bias) * 2 + bias, m(x))
  end)

  it("changes the scores before softmax, where -inf hides a key", function()
    local m = mha { causal = false }
    points.add(m, "attn_scores", function(scores)
      return scores:masked_fill(heed.ones(5, 5):bool():triu(1), -math.huge)
    end)
    close(mha()(x), m(x))
  end)

  it("changes the keys before they are cached", function()
    local m, plain = mha { rope = {} }, mha { rope = {} }
    points.add(m, "k", function(k) return k * 2 end)
    plain.W_key.weight = plain.W_key.weight * 2
    local cache, expected = m:new_cache {}, plain:new_cache {}
    for i = 1, 5 do close(plain(x[1][{ { i, i } }], { cache = expected }), m(x[1][{ { i, i } }], { cache = cache })) end
  end)

  it("sees all keys of a cache, and the positions of the queries", function()
    local m, seen = mha(), {}
    points.add(m, "pattern", function(pattern, context)
      seen[#seen + 1] = ("%d: %d-%d"):format(pattern.shape[4], context.queries[1], context.queries[2])
    end)
    local cache = m:new_cache {}
    m(x[1][{ { 1, 3 } }], { cache = cache })
    m(x[1][{ { 4, 4 } }], { cache = cache })
    assert.are.same({ "3: 1-3", "4: 4-4" }, seen)
  end)

  it("cannot let nan of a hidden key through", function()
    local m, y = mha { causal = false }, x:clone()
    y[{ {}, 5 }] = 0 / 0
    local padding = heed.zeros(2, 5, { dtype = "bool" })
    padding[{ {}, 5 }] = true
    local expected = m(x, { key_padding_mask = padding })
    points.add(m, "pattern", function(pattern) return pattern * 1 end)
    close(expected[{ {}, { 1, 4 } }], m(y, { key_padding_mask = padding })[{ {}, { 1, 4 } }])
  end)

  it("may call the module again, remove itself and release its tensor", function()
    local m, calls = mha(), 0
    local expected = m(x)
    local handle
    handle = points.add(m, "z", function(z)
      calls = calls + 1
      handle:remove()
      assert.are.equal(expected:to_string(), m(x):to_string())
      z:release()
    end)
    points.add(m, "z", function(z) assert(z:sum():item()) end)
    assert.are.equal(expected:to_string(), m(x):to_string())
    m(x)
    assert.are.equal(1, calls)
  end)

  it("that fails leaves cache and generator as they were", function()
    local m = mha { dropout = 0.5 }
    local cache = m:new_cache { batch = 2 }
    local g = heed.Generator(3)
    local before = tostring(g:get_state())
    points.add(m, "z", function() error("no", 0) end)
    assert.has_error(function() m(x, { cache = cache, generator = g }) end, "no")
    assert.are.equal(0, cache.length)
    assert.are.equal(before, tostring(g:get_state()))
  end)

  it("that fails in a later head of a wrapper leaves the generator as it was", function()
    local m = nn.MultiHeadAttentionWrapper { d_in = 6, d_out = 4, context_length = 8, dropout = 0.5, num_heads = 3 }
    local input = heed.randn(1, 4, 6)
    local g = heed.Generator(3)
    local before = tostring(g:get_state())
    local handle = m.heads[2]:register_forward_hook(function() error("no", 0) end)
    assert.has_error(function() m(input, { generator = g }) end, "no")
    assert.are.equal(before, tostring(g:get_state()))
    heed.manual_seed(5)
    pcall(m, input) -- the default generator
    handle:remove()
    local y = m(input)
    heed.manual_seed(5)
    assert.is_true(y:equal(m(input)))
  end)

  it("draws the dropout of a pass that nobody changes", function()
    local m = mha { dropout = 0.5 }
    local expected = m(x, { generator = heed.Generator(3) })
    points.add(m, "pattern", function(pattern) return pattern + 0 end)
    close(expected, m(x, { generator = heed.Generator(3) }))
  end)

  it("must return a tensor of the same shape", function()
    local m = mha()
    local value
    points.add(m, "pattern", function() return value end)
    value = heed.zeros(2, 4)
    raises("MultiHeadAttention: the result of the hook on pattern is a tensor of shape [2, 4] and dtype float32; it "
      .. "must be nil or a float32 tensor [2, 4, 5, 5]", function() m(x) end)
    value = 3
    raises("MultiHeadAttention: the result of the hook on pattern is the number 3; it must be nil or a float32 tensor "
      .. "[2, 4, 5, 5]", function() m(x) end)
    value = nil
    m(x)
    raises("add: name is a string ('w'); it must be one of q, k, v, rot_q, rot_k, attn_scores, pattern, z, result",
      function() points.add(m, "w", print) end)
    raises("add: self is a module (Linear); it must be an attention module", function()
      points.add(m.W_query, "q", print)
    end)
  end)
end)

describe("ablate", function()
  for name, make in pairs(modules) do
    it("takes heads out: " .. name, function()
      local m, z = make(), nil
      local plain = m(x):to_string()
      local handle = m:ablate { -1 }
      local reader = points.read(m, "z", function(t) z = t:select(3, -1):clone() end)
      local y = m(x)
      assert.are.equal(0, z:abs():max():item())
      assert.are_not.equal(plain, y:to_string())
      reader:remove()
      handle:remove()
      handle:remove()
      assert.are.equal(plain, m(x):to_string())
    end)
  end

  it("leaves the other heads as they are, and takes a value", function()
    local m = mha { out_proj = false, head_dim = 2 }
    local expected = m(x)
    m:ablate { 2, 4, value = heed.tensor { 5, 6 } }
    local y = m(x)
    assert.are.equal(expected[{ {}, {}, { 1, 2 } }]:to_string(), y[{ {}, {}, { 1, 2 } }]:to_string())
    assert.are.same({ 5, 6 }, y[1][1][{ { 7, 8 } }]:tolist())
  end)

  it("refuses what is no head", function()
    local m = mha()
    raises("ablate: heads is the number 5; it must be an integer from 1 to 4, or from -4 to -1",
      function() m:ablate(5) end)
    raises("ablate: value is a string ('a'); it must be a number or a tensor that broadcasts to [b, n, d]",
      function() m:ablate { 1, value = "a" } end)
    raises("ablate: there is no option mean; the known one is value", function() m:ablate { 1, mean = true } end)
    raises("ablate: self is a module (Linear); it must be an attention module", function() m.W_query:ablate(1) end)
  end)
end)

describe("PyTorch's MultiheadAttention", function()
  it("has the same points", function()
    heed.manual_seed(2)
    local m = nn.MultiheadAttention(6, 3, { batch_first = true }):eval()
    local padding = heed.zeros(2, 5, { dtype = "bool" })
    padding[{ 2, { 4, 5 } }] = true
    local options = { key_padding_mask = padding, need_weights = false }
    local expected = m(x, x, x, options)
    for _, name in ipairs { "q", "k", "v", "attn_scores", "pattern", "z", "result" } do
      local read = points.read(m, name, function(t) assert.are.equal(4, t.ndim) end)
      assert.are.equal(expected:to_string(), m(x, x, x, options):to_string())
      read:remove()
      local handle = points.add(m, name, function(t) return t + 0 end)
      close(expected, (m(x, x, x, options)))
      handle:remove()
    end
    m:patch(2, heed.full({ 5, 5 }, 0.2))
    local _, weights = m(x, x, x, { average_attn_weights = false })
    close(heed.full({ 2, 5, 5 }, 0.2), weights:select(2, 2))
  end)
end)

describe("patch and on_weights", function()
  it("replace weights, in the order in which they were made", function()
    local m = mha { causal = false }
    local uniform = heed.full({ 5, 5 }, 0.2)
    local seen
    m:on_weights(function(weights) return weights * 0 end)
    m:patch(2, uniform)
    local last = m:on_weights(function(weights, context)
      seen = weights:sum():item()
      assert.are.equal(m, context.module)
      assert.are.same({ 1, 4 }, context.heads)
    end)
    local y, info = m(x, { need_weights = true })
    assert.is_true(math.abs(seen - 10) < 1e-5)
    close(info.weights:select(2, 2)[1], uniform)
    local z = info.weights:matmul(info.values):transpose(2, 3):reshape(2, 5, 8)
    close(z:linear(m.out_proj.weight, m.out_proj.bias), y)
    last:remove()
  end)

  it("refuse weights of another shape", function()
    local m = mha()
    m:patch(1, heed.zeros(4, 5))
    raises("patch: weights is a tensor of shape [4, 5] and dtype float32; it must be [5, 5] or [2, 5, 5], as the "
      .. "weights of head 1 are in this pass", function() m(x) end)
    raises("patch: weights is a tensor of shape [4] and dtype float32; it must be a float32 tensor [n, s] or [b, n, s]",
      function() m:patch(1, heed.zeros(4)) end)
  end)

  it("see the weights of every layer of a model", function()
    local model = require "heed.models.gpt2" {
      vocab_size = 11, hidden_size = 8, num_hidden_layers = 3, num_attention_heads = 2,
    }
    model:eval()
    local before, layers = model { 1, 5, 2 }, {}
    local handle = model:on_weights(function(weights, context)
      layers[#layers + 1] = context.layer
      assert.are.equal(model.layers[context.layer].attention, context.module)
      assert.are.equal("heed.Size([1, 2, 3, 3])", tostring(weights.shape))
      if context.layer == 2 then return weights * 0 end
    end)
    assert.is_false(before:equal(model { 1, 5, 2 }))
    assert.are.same({ 1, 2, 3 }, layers)
    handle:remove()
    assert.is_true(before:equal(model { 1, 5, 2 }))
    assert.are.equal(3, #layers)
    raises("on_weights: f is nil; it must be a function", function() model:on_weights() end)
    raises("on_weights: self is a module (Sequential); it must be a module with attention modules of heed in it",
      function() nn.Sequential(nn.Linear(2, 2)):on_weights(print) end)
  end)

  it("refuse values that are no numbers, or of another shape", function()
    local m = mha()
    raises("ablate: value is a string ('x'); it must be a number or a tensor that broadcasts to [b, n, d]",
      function() m:ablate(1, { value = "x" }) end)
    local handle = m:ablate(1, { value = heed.zeros(3, 1, 1) })
    raises("ablate: value is a tensor of shape [3, 1, 1] and dtype float32; it must be a number or a tensor that "
      .. "broadcasts to [2, 5, 2] in this pass", function() m(x) end)
    handle:remove()
    m:ablate(1, { value = heed.zeros(2, 1, 1) })
    m(x)
  end)
end)

describe("heads that are changed while gradients are recorded", function()
  local input, module, plain
  before_each(function()
    heed.set_grad_enabled(true)
    heed.manual_seed(4)
    module = nn.MultiHeadAttention(8, 8, 16, 0, 2)
    input = heed.randn(2, 5, 8)
    plain = heed.no_grad(module, input)
  end)
  after_each(function() heed.set_grad_enabled(false) end)

  it("get no gradient if they are ablated", function()
    local handle = module:ablate { 1 }
    local y = module(input)
    local expected = heed.no_grad(module, input)
    y:sum():backward()
    handle:remove()
    assert.is_true(y:allclose(expected, 1e-5, 1e-6))
    assert.is_false(y:allclose(plain, 1e-5, 1e-6))
    local gradient = module.W_value.weight.grad
    assert.are.equal(0, gradient:narrow(1, 1, 4):abs():max():item())
    assert.is_true(gradient:narrow(1, 5, 4):abs():max():item() > 0)
  end)

  it("get one through their values alone if their weights are given", function()
    local handle = module:patch(2, heed.eye(5))
    local y = module(input)
    local expected = heed.no_grad(module, input)
    y:sum():backward()
    handle:remove()
    assert.is_true(y:allclose(expected, 1e-5, 1e-6))
    assert.are.equal(0, module.W_query.weight.grad:narrow(1, 5, 4):abs():max():item())
    assert.is_true(module.W_query.weight.grad:narrow(1, 1, 4):abs():max():item() > 0)
    assert.is_true(module.W_value.weight.grad:narrow(1, 5, 4):abs():max():item() > 0)
  end)
end)
