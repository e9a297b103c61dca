-- m:check: warnings before a forward pass.
local heed = require "heed"
local cases = require "tests.mha_cases"

local function module(more)
  local config = { d_in = 4, d_out = 4, num_heads = 2, context_length = 8, dropout = 0 }
  for name, value in pairs(more or {}) do config[name] = value end
  return heed.nn.MultiHeadAttention(config)
end

local function warns(text, m, x, options)
  local warnings = m:check(x, options)
  assert.are.equal(1, #warnings)
  assert.is_truthy(warnings[1]:find(text, 1, true), warnings[1])
end

describe("check", function()
  it("is silent about the ordinary cases of golden", function()
    for _, case in ipairs(dofile "tests/golden/mha.lua") do
      local m, x, options = cases.build(case)
      assert.are.same({}, m:check(x, options))
    end
  end)

  it("warns of what goes wrong in practice, with the fix", function()
    local x = heed.randn(1, 3, 4)
    warns("attn_mask:bool()", module(), x, { attn_mask = heed.ones(3, 3):tril() })
    warns("hides every key", module(), x, { attn_mask = heed.zeros(3, 3):bool() })
    warns("rows that hide every key", module(), x, { attn_mask = heed.ones(3, 3):tril(-1):bool() })
    warns("key_padding_mask:logical_not()", module(), x, { key_padding_mask = heed.ones(1, 3):bool() })
    warns("x has nan or inf", module(), x / 0)
    warns("context_length is 8", module(), heed.randn(1, 9, 4))
    warns("m:eval()", module { dropout = 0.5 }, x, { need_weights = true })
    assert.are.same({}, module():check(x))
  end)
end)
