-- The pictures of the pages are what their scripts draw, and say in words what they show.
local pages = require "tests.pages"
local support = require "tests.support"

local function list(command)
  local found = support.run(command)
  local names = {}
  for name in found.out:gmatch "[^\n]+" do names[#names + 1] = name end
  return names
end

-- Calls f(folder) with a temporary folder that has the folders of docs/images.
local function in_folder(f)
  local folder = os.tmpname()
  os.remove(folder)
  assert(support.run(("mkdir -p %s/images/attention %s/images/performance"):format(folder, folder)).code == 0)
  local results = support.pack(pcall(f, folder))
  support.remove_folder(folder)
  if not results[1] then error(results[2], 0) end
end

-- The files below `folder` and those of docs that `patterns` name are the same.
local function check(folder, patterns)
  local drawn, kept = list(("cd %s && ls %s"):format(folder, patterns)), list(("cd docs && ls %s"):format(patterns))
  assert(#drawn > 0)
  assert.are.same(drawn, kept)
  for _, name in ipairs(drawn) do
    assert(support.read(folder .. "/" .. name) == support.read("docs/" .. name), "docs/" .. name .. " is out of date")
  end
end

describe("the pictures", function()
  it("of attention are those that scripts/dev/draw_attention.lua draws", function()
    in_folder(function(folder)
      local drawn = support.run(("%s scripts/dev/draw_attention.lua %s"):format(support.heed, folder))
      assert.are.same({ code = 0, out = "", err = "" }, drawn)
      check(folder, "attention.svg images/attention/*.svg")
    end)
  end)

  it("of speed are drawn from the tables, and the page begins with lines made from them", function()
    in_folder(function(folder)
      local drawn = support.run(("%s scripts/dev/draw_performance.lua %s"):format(support.heed, folder))
      assert.are.same({ 0, "" }, { drawn.code, drawn.err })
      check(folder, "images/performance/*.svg")
      local page = support.read "docs/performance.md"
      for line in drawn.out:gmatch "[^\n]+" do assert(page:find("\n" .. line .. "\n", 1, true), line) end
    end)
  end)

  it("have a text that says what they show, and are on a page", function()
    local used = {}
    for _, path in ipairs(pages.list()) do
      for text, target in (support.read(path)):gmatch "!%[([^%]]*)%]%(([^)]*)%)" do
        assert(#text >= 20, ("%s: %s needs a text that says what it shows"):format(path, target))
        used[target:match "[^/]+/[^/]+$" or target] = true
      end
    end
    for _, name in ipairs(list "cd docs && ls images/*/*.svg") do
      assert(used[name:gsub("^images/", "")], ("docs/%s is on no page"):format(name))
    end
  end)

  it("show every option of attention that changes weights, and every rule of masks", function()
    local page = support.read "docs/attention.md"
    local annotations = support.read "lua/heed/meta/attention_functions.lua"
    local fields = annotations:match("%-%-%-@class heed%.AttentionOptions[^\n]*\n(.-)\n\n")
    local others = { enable_gqa = true, generator = true, need_weights = true, need_lse = true }
    for name in fields:gmatch "%-%-%-@field ([%w_]+)" do
      assert(others[name] or page:find("`" .. name .. "[` ]"), ("docs/attention.md does not show %s"):format(name))
    end
    page = support.read "docs/masks.md"
    for name in pairs(require("heed").mask) do
      local row = page:match("\n| `" .. name .. "%(([^\n]+)")
      assert(row and row:find("](images/attention/mask-", 1, true), ("docs/masks.md does not show %s"):format(name))
    end
  end)

  it("of attention and speed are small, and have a background of their own", function()
    for _, name in ipairs(list "ls docs/attention.svg docs/images/*/*.svg") do
      local text = support.read(name)
      assert(#text < 8192, ("%s has %d bytes"):format(name, #text))
      assert(text:find('class="page"', 1, true), name)
      assert(text:find("prefers-color-scheme: dark", 1, true), name)
    end
  end)
end)
