-- The scripts of the notebooks print the notebooks' output.
local support = require "tests.support"

local notebooks = {
  "simple_attention", "coding_attention", "production_attention", "step_by_step", "weight_split",
}

describe("the notebook", function()
  for _, name in ipairs(notebooks) do
    it(name .. " prints the expected text", function()
      local script = support.run(support.heed .. " scripts/notebooks/" .. name .. ".lua")
      assert.are.equal("", script.err)
      assert.are.equal(0, script.code)
      support.with_file(function(actual)
        support.write(actual, script.out)
        local compared = support.run(("%s tests/compare_output.lua tests/expected/%s.txt %s")
          :format(support.heed, name, actual))
        if compared.code ~= 0 then error(compared.out .. compared.err, 0) end
      end)
    end)
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
