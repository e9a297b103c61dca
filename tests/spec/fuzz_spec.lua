-- The fuzzers of tests/fuzz, for a few seconds each; `make fuzz-lua` and `make nightly` run them for long.
local support = require "tests.support"

local function run(script, ...)
  local words = { support.heed, support.quote(support.top .. "/tests/fuzz/" .. script) }
  for _, word in ipairs { ... } do words[#words + 1] = tostring(word) end
  return support.run(table.concat(words, " "))
end

describe("programs made from the annotations", function()
  -- The names of all functions are those of the annotations: a new one without a call fails here.
  it("call every public function, and nothing breaks", function()
    local result = run("grammar_fuzz.lua", 1, support.nightly(2000, 120))
    local called, all, succeeded, problems = result.out:match(
      "(%d+) of (%d+) functions called, (%d+) with success, (%d+) problems\n$")
    assert.equal("0", problems, result.out .. result.err)
    assert.equal(all, called)
    assert.is_true(succeeded / all > 0.8)
    assert.equal(0, result.code)
  end)
end)
