-- The reference, as scripts/site/reference.lua writes it: it names every function, runs an example of each, and its
-- links lead somewhere.
local heed = require "heed"
local pages = require "tests.pages"
local support = require "tests.support"

local folder, made
local names = {} -- how a name may be written → its place

-- The examples use operators of Lua 5.3.
local it = support.where("bit_operators", it, pending) -- luacheck: ignore 431

setup(function()
  if not support.has.bit_operators then return end
  folder = os.tmpname()
  os.remove(folder)
  assert(support.run("mkdir " .. folder).code == 0)
  made = support.run(("%s scripts/site/reference.lua %s"):format(support.heed, folder))
  local text = made.code == 0 and support.read(folder .. "/names.json") or ""
  for name, place in text:gmatch '"([^"\n]+)": "([^"\n]+)"' do names[name] = place end
end)

teardown(function()
  if folder then support.remove_folder(folder) end
end)

local function read_pages()
  local list = {}
  for name in support.run("ls " .. folder .. "/*.md").out:gmatch "([^/\n]+)%.md" do
    list[#list + 1] = name
    list[name] = pages.read(("%s/%s.md"):format(folder, name))
  end
  assert.is_true(#list > 30)
  return list
end

-- Fails with the names that the reference lacks.
local function has_all(wanted)
  local lost = {}
  for _, name in ipairs(wanted) do
    if not names[name] then lost[#lost + 1] = name end
  end
  assert.are.same({}, lost)
end

describe("The reference", function()
  it("is made, and every example runs", function()
    assert.are.equal("", made.err)
    assert.are.equal(0, made.code)
  end)

  it("has every function that exists at run time", function()
    local wanted = {}
    local tables = {
      ["heed"] = heed, ["nn"] = heed.nn, ["F"] = heed.nn.functional, ["nn.init"] = heed.nn.init,
      ["nn.utils"] = heed.nn.utils, ["heed.autograd"] = heed.autograd, ["heed.optim"] = heed.optim,
      ["heed.optim.lr_scheduler"] = heed.optim.lr_scheduler, ["heed.utils"] = heed.utils,
      ["heed.utils.data"] = heed.utils.data, ["heed.mask"] = heed.mask, ["heed.tokenizers"] = heed.tokenizers,
      ["heed.interpret"] = require "heed.interpret", ["heed.plot"] = require "heed.plot",
      ["heed.distributed"] = require "heed.distributed", ["heed.interrupt"] = require "heed.interrupt",
    }
    for path, functions in pairs(tables) do
      for name, value in pairs(functions) do
        local is_class = path == "nn" and name:find "^%u"
        if type(value) == "function" or is_class then wanted[#wanted + 1] = path .. "." .. name end
      end
    end
    local not_methods = { cat = true, concat = true, concatenate = true, stack = true, attention_merge = true }
    for name in pairs(support.tensor_methods()) do
      if not not_methods[name] then wanted[#wanted + 1] = "x:" .. name end
    end
    for name, value in pairs(require "heed.nn.protocol") do
      if type(value) == "function" and not name:find "^__" then wanted[#wanted + 1] = "Module:" .. name end
    end
    assert.is_true(#wanted > 600)
    has_all(wanted)
  end)

  it("has every function that the fuzzer of the annotations calls", function()
    local wanted = {}
    for _, call in ipairs(require("tests.fuzz.grammar").calls) do
      local label = call.label:gsub('^require "([%w_.]+)"', "%1")
      if not label:find "%(%)$" then wanted[#wanted + 1] = label end -- else a call of an object
    end
    assert.is_true(#wanted > 600)
    has_all(wanted)
  end)

  it("has every function that libheed exports", function()
    local symbols = support.run(("nm -D --defined-only %s/libheed.so"):format(support.quote(support.build))).out
    local wanted = {}
    for name in symbols:gmatch " T (heed_[%w_]+)" do wanted[#wanted + 1] = name end
    assert.is_true(#wanted > 300)
    has_all(wanted)
  end)

  it("has links that lead to a page and a heading", function()
    local list, lost = read_pages(), {}
    local function check(from, target)
      local path, anchor = target:match "^([^#]*)#?(.*)$"
      local page = list[path == "" and from or path:match "^([%w-]+)%.md$"]
      local guide = path:match "^%.%./([%w-]+%.md)$"
      local found = guide and support.read("docs/" .. guide) or page and (anchor == "" or page.anchors[anchor])
      if not found and not target:find "^https?:" then lost[#lost + 1] = ("%s: %s"):format(from, target) end
    end
    for _, name in ipairs(list) do
      for _, link in ipairs(list[name].links) do check(name, link.text) end
    end
    for name, place in pairs(names) do check(name, place) end
    assert.are.same({}, lost)
  end)

  it("shows outputs of at most 80 columns", function()
    local list, long = read_pages(), {}
    for _, name in ipairs(list) do
      for _, block in ipairs(list[name].blocks) do
        for line in (block.language == "text" and block.code or ""):gmatch "[^\n]+" do
          local _, columns = line:gsub("[^\128-\191]", "")
          if columns > 80 then long[#long + 1] = name .. ": " .. line end
        end
      end
    end
    assert.are.same({}, long)
  end)

  it("refuses a folder that does not exist", function()
    local ran = support.run(support.heed .. " scripts/site/reference.lua /missing/folder")
    assert.are_not.equal(0, ran.code)
    assert.truthy(ran.err:find("/missing/folder", 1, true))
  end)
end)
