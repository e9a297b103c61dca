-- The README is short, and begins with two commands and an example. That its code prints what it shows is tested with
-- all pages, in pages_spec.lua, and its picture in pictures_spec.lua.
local pages = require "tests.pages"

local readme = pages.read "README.md"

local function first(language)
  for _, block in ipairs(readme.blocks) do
    if block.language == language then return block end
  end
end

describe("the README", function()
  it("has at most 250 lines", function() assert.is_true(readme.lines <= 250, readme.lines .. " lines") end)

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
