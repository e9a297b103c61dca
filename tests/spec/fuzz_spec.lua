-- The fuzzers of tests/fuzz, for a few seconds each; `make fuzz-lua` and `make nightly` run them for long.
local support = require "tests.support"

local sanitized = support.build:find "asan" ~= nil -- ten times as slow
local it = support.where("integers", it, pending) -- luacheck: ignore 431

local function count(more, less) return support.nightly(more, sanitized and math.ceil(less / 10) or less) end

local function run(script, ...)
  local words = { support.heed, support.quote(support.top .. "/tests/fuzz/" .. script) }
  for _, word in ipairs { ... } do words[#words + 1] = tostring(word) end
  return support.run(table.concat(words, " "))
end

describe("programs made from the annotations", function()
  -- The names of all functions are those of the annotations: a new one without a call fails here.
  it("call every public function, and nothing breaks", function()
    local result = run("grammar_fuzz.lua", 1, count(2000, 120))
    local called, all, succeeded, problems = result.out:match(
      "(%d+) of (%d+) functions called, (%d+) with success, (%d+) problems\n$")
    assert.equal("0", problems, result.out .. result.err)
    if not sanitized then
      assert.equal(all, called)
      assert.is_true(succeeded / all > 0.8)
    end
    assert.equal(0, result.code)
  end)
end)

describe("files of every format with one thing damaged", function()
  it("give a value or a message, and undamaged ones what was written", function()
    local result = run("file_fuzz.lua", 1, count(20000, 1000))
    assert.is_truthy(result.out:find(" 0 problems\n$"), result.out .. result.err)
    assert.equal(0, result.code)
  end)
end)

describe("attention with random options", function()
  it("is that of plain loops over doubles", function()
    local result = run("attention_fuzz.lua", 1, count(20000, 1000))
    assert.is_truthy(result.out:find(" 0 problems\n$"), result.out .. result.err)
    assert.equal(0, result.code)
  end)
end)

describe("operations on random views, and graphs of them", function()
  it("give what they give for contiguous copies, and the gradients of differences", function()
    local result = run("operation_fuzz.lua", 1, count(50000, 4000))
    assert.is_truthy(result.out:find(" 0 problems\n$"), result.out .. result.err)
    assert.equal(0, result.code)
  end)
end)
