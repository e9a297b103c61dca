-- The scripts of the notebooks print the notebooks' output.
local support = require "tests.support"

local notebooks = {
  "simple_attention", "coding_attention", "production_attention", "step_by_step", "weight_split",
}

--- Compares what the script prints with a text of tests/expected.
local function check(name, options, expected)
  local script = support.run(("%s scripts/notebooks/%s.lua%s"):format(support.heed, name, options))
  assert.are.equal("", script.err)
  assert.are.equal(0, script.code)
  support.with_file(function(actual)
    support.write(actual, script.out)
    local compared = support.run(("%s tests/compare_output.lua tests/expected/%s.txt %s")
      :format(support.heed, expected, actual))
    if compared.code ~= 0 then error(compared.out .. compared.err, 0) end
  end)
end

describe("the notebook", function()
  for _, name in ipairs(notebooks) do
    it(name .. " prints the expected text", function() check(name, "", name) end)
  end

  for _, name in ipairs { "coding_attention", "production_attention", "step_by_step" } do
    it(name .. " prints what computed its tensors, with --grad", function() check(name, " --grad", name .. "-grad") end)
  end
end)

describe("the first example", function()
  it("prints attention weights", function()
    local hello = support.run(support.heed .. " scripts/examples/hello.lua")
    assert.are.equal("", hello.err)
    assert.are.equal(0, hello.code)
    assert.truthy(hello.out:find "tensor%(%[")
  end)
end)
