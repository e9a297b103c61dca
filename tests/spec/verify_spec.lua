-- m:verify: a forward pass against double precision.
local heed = require "heed"
local cases = require "tests.mha_cases"
local fails = require "tests.raises"

local nn = heed.nn

local function is_ok(m, x, options, name)
  local result = m:verify(x, options)
  assert.is_true(result.ok, (name or "") .. ": " .. tostring(result))
  return result
end

local function module(more)
  local config = { d_in = 6, d_out = 8, num_heads = 4, context_length = 16, dropout = 0, qkv_bias = true }
  for name, value in pairs(more or {}) do config[name] = value end
  return nn.MultiHeadAttention(config):eval()
end

describe("verify", function()
  it("accepts sound kernels on the cases of golden", function()
    for _, case in ipairs(dofile "tests/golden/mha.lua") do
      local m, x, options = cases.build(case)
      m:eval()
      local result = is_ok(m, x, options, case.name)
      assert.are.equal(m.num_heads, #result.heads)
    end
  end)

  it("accepts modules of one head and the wrapper, with and without a batch", function()
    local x = heed.randn(2, 5, 4)
    for _, m in ipairs { nn.SelfAttention(4, 3), nn.CausalAttention(4, 3, 8, 0),
      nn.MultiHeadAttentionWrapper(4, 3, 8, 0, 3) } do
      m:eval()
      is_ok(m, x)
      is_ok(m, x[1])
    end
  end)

  it("accepts every way of scaling rotary positions", function()
    for _, rope in ipairs { {}, { style = "interleaved" }, { scaling = { type = "linear", factor = 4 } },
      { scaling = { type = "llama3", factor = 8, original_context_length = 8 } },
      { scaling = { type = "factors", factors = { 1, 2.5 }, attention_factor = 1.5 } } } do
      is_ok(module { rope = rope, d_out = 16 }, heed.randn(2, 9, 6))
    end
    for _, type in ipairs { "ntk", "yarn" } do
      local scaling = { type = type, factor = 4, original_context_length = type == "yarn" and 8 or nil }
      is_ok(module { rope = { scaling = scaling }, d_out = 32 }, heed.randn(1, 9, 6))
    end
  end)

  it("takes stored weights of low precision as the truth", function()
    for _, dtype in ipairs { "bfloat16", "float16", "int8" } do
      is_ok(module { d_in = 80 }:to(dtype), heed.randn(1, 5, 80), nil, dtype)
    end
  end)

  it("takes the results of a module's own parts as they are", function()
    local Twice = nn.Module.class "Twice"
    function Twice:init(inner) self.inner = inner end
    function Twice:forward(x) return self.inner(x) * 2 end
    local m = module()
    m.W_query, m.out_proj = Twice(m.W_query), Twice(m.out_proj)
    is_ok(m, heed.randn(2, 4, 6))
  end)

  it("says wrong for errors above the tolerance", function()
    local result = module():verify(heed.randn(9, 6), { tolerance = 0 })
    assert.is_false(result.ok)
    assert.is_true(result.max_error > 0 and result.mean_error > 0)
    local text = tostring(result)
    assert.is_truthy(text:find("wrong", 1, true) and text:find("head 1", 1, true))
  end)

  it("refuses what it cannot compare", function()
    local m, x = module(), heed.randn(2, 6)
    fails("verify: cache is given; leave it out, and give all tokens as x",
      function() m:verify(x, { cache = m:new_cache() }) end)
    fails("verify: the module is in training mode; call m:eval() first, because dropout would draw",
      function() module():train():verify(x) end)
    fails("verify: tolerance is the number -1; it must be a number, at least 0",
      function() m:verify(x, { tolerance = -1 }) end)
    fails("verify: softmax_dim is not -1; it must be -1", function()
      nn.CausalAttention { d_in = 6, d_out = 6, context_length = 9, dropout = 0, softmax_dim = 1 }:eval():verify(x)
    end)
    local handle = m:register_forward_hook(function() end)
    fails("verify: the module has hooks, which may change what it computes; remove them first",
      function() m:verify(x) end)
    handle:remove()
    is_ok(m, x)
  end)

  it("stops when the time of limits is over", function()
    local m, x = module { context_length = 4096 }, heed.randn(1, 700, 6)
    heed.limit { seconds = 0.3 }
    local ok, problem = pcall(m.verify, m, x)
    heed.limit { seconds = math.huge }
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("time limit exceeded", 1, true), tostring(problem))
  end)

  it("takes no tokens", function()
    is_ok(module(), heed.randn(0, 6))
    is_ok(module(), heed.randn(2, 0, 6))
  end)
end)
