-- Modules in Lua in the heads of a MultiHeadAttentionWrapper, which C calls.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"

local function wrapper()
  heed.manual_seed(3)
  return nn.MultiHeadAttentionWrapper(4, 2, 6, 0, 2)
end

--- A part whose forward calls f, and applies the part that it replaces.
local function part(base, f)
  local class = nn.Module.class "Part"
  function class:init() self.base = base end
  function class:forward(x)
    f()
    return self.base(x)
  end
  return class()
end

describe("a module in Lua in a head", function()
  local inputs = heed.rand(2, 3, 5, 4, { generator = heed.Generator(1) })

  it("may release the tensors that its wrapper was called with", function()
    local w, plain = wrapper(), wrapper()
    local x, mask = inputs[1], heed.ones(1, 5, 5):bool()[1]
    local expected = plain(x, { attn_mask = mask })
    w.heads[1].W_query = part(w.heads[1].W_query, function()
      x:release()
      mask:release()
      for _ = 1, 20 do heed.zeros(3, 5, 4) end
    end)
    assert.are.equal(expected:to_string(), w(x, { attn_mask = mask }):to_string())
    assert.is_true(x:is_released() and mask:is_released())
  end)

  it("may replace the heads of its wrapper, which run to the end", function()
    local w, x = wrapper(), inputs[1]
    local expected = w(x)
    w.heads[1].W_query = part(w.heads[1].W_query, function()
      w.heads = nn.MultiHeadAttentionWrapper(4, 2, 6, 0, 2).heads
      collectgarbage()
      collectgarbage()
    end)
    assert.are.equal(expected:to_string(), w(x, { need_weights = true }):to_string())
  end)
end)

describe("a head with a hook", function()
  it("takes masks for each head, and mask values of packed sequences", function()
    local w = nn.MultiHeadAttentionWrapper(4, 2, 6, 0, 2)
    local x, packed = heed.randn(5, 4), { lengths = { 3, 2 }, attn_mask = heed.mask.prefix(2) }
    local of_heads = heed.mask.intervals(heed.tensor({ { { { 1, 2 } } }, { { { 2, 5 } } } }, { dtype = "int64" }))
    local calls, expected = { packed, { attn_mask = of_heads }, { attn_mask = of_heads:dense(5, 5) } }, {}
    for i, options in ipairs(calls) do expected[i] = w(x, options):to_string() end
    w.heads[2]:register_forward_hook(function() end)
    for i, options in ipairs(calls) do assert.are.equal(expected[i], w(x, options):to_string()) end
    assert.has_error(function() w(x, { attn_mask = heed.ones(3, 5, 5):bool() }) end)
  end)
end)

describe("a forward pass with modules in Lua", function()
  it("that has failed cannot go on", function()
    local primitives = require "heed.core".modules
    local m, x = nn.MultiHeadAttention(4, 4, 6, 0, 2), heed.rand(1, 2, 4)
    m.W_query = part(m.W_query, function() end)
    local cache = m:new_cache { batch = 1, capacity = 6 }
    m(x, { cache = cache })
    local pass = primitives.own_pass(nil, nil, m, x, { cache = cache })
    local _, input = primitives.own_next(pass)
    cache:truncate(1)
    raises("MultiHeadAttention: the cache was used by another call during the forward pass; give each call a cache of "
      .. "its own", function() primitives.own_next(pass, input) end)
    raises("MultiHeadAttention: the forward pass has ended with an error", function() primitives.own_next(pass) end)
  end)
end)
