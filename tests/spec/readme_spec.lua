-- The README is short, and begins with two commands and an example. That its code prints what it shows is tested with
-- all pages, in pages_spec.lua, and its picture in pictures_spec.lua.
local pages = require "tests.pages"
local support = require "tests.support"

local readme = pages.read "README.md"

local function first(language)
  for _, block in ipairs(readme.blocks) do
    if block.language == language then return block end
  end
end

describe("the README", function()
  it("can be read in two minutes: it has at most 100 lines and 500 words", function()
    assert.is_true(readme.lines <= 100, readme.lines .. " lines")
    local _, words = support.read("README.md"):gsub("%S+", "")
    assert.is_true(words <= 500, words .. " words")
  end)

  it("begins with the two commands", function()
    local commands = pages.commands(first("sh").code)
    assert.are.same({ "make demo", "make test" }, commands)
  end)

  it("has an example of at most twelve lines, with its output", function()
    local _, lines = first("lua").code:gsub("\n", "\n")
    assert.is_true(lines <= 12, lines .. " lines")
    assert.is_string(first("lua").output)
  end)
end)
