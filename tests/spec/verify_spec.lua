-- m:verify: attention weights against double precision.
local heed = require "heed"
local cases = require "tests.mha_cases"

describe("verify", function()
  it("accepts sound kernels on the cases of golden", function()
    for _, case in ipairs(dofile "tests/golden/mha.lua") do
      local m, x, options = cases.build(case)
      m:eval()
      local result = m:verify(x, options)
      assert.is_true(result.ok, case.name .. ": " .. tostring(result))
      assert.are.equal(m.num_heads, #result.heads)
    end
  end)

  it("says wrong for errors above the tolerance", function()
    local m = heed.nn.SelfAttention(4, 4)
    local result = m:verify(heed.randn(9, 4), { tolerance = 0 })
    assert.are.equal(result.max_error <= 0, result.ok)
    assert.is_truthy(tostring(result):find("head 1", 1, true))
  end)
end)
