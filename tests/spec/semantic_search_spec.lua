-- scripts/examples/semantic_search.lua: its output, and the embeddings that it stores.
local heed = require "heed"
local support = require "tests.support"

local SCRIPT = "scripts/examples/semantic_search.lua"
local TEXT = "The cat sits on the mat.\n\nInterest rates were raised again.\n  A recipe for apple pie.\n"

describe("semantic_search.lua", function()
  local model = support.model()
  local path

  local function search(question, environment)
    local words = { environment or "", support.heed, SCRIPT, support.quote(question), path }
    return support.run(table.concat(words, " "))
  end

  before_each(function()
    path = os.tmpname()
    support.write(path, TEXT)
  end)
  after_each(function()
    for _, ending in ipairs { "", ".npy", ".npy.key" } do os.remove(path .. ending) end
  end)

  it("prints its usage", function()
    local result = support.run(("%s %s one"):format(support.heed, SCRIPT))
    assert.equal(1, result.code)
    assert.equal("semantic_search: usage: semantic_search.lua QUESTION FILE\n", result.err)
  end)

  it("says how to fetch the model", function()
    local result = search("a", "HEED_MODEL=/nowhere")
    assert.equal(1, result.code)
    assert.equal("semantic_search: there is no model in '/nowhere'; `make model` fetches it\n", result.err)
  end)

  it("reports problems with its arguments", function()
    support.write(path, "\n \n")
    assert.equal(("semantic_search: '%s' has no lines with text\n"):format(path), search("a").err)
    os.remove(path)
    local result = search "a"
    assert.equal(1, result.code)
    assert.is_truthy(result.err:find(("semantic_search: '%s' cannot be read"):format(path), 1, true))
    assert.equal("semantic_search: the question is not valid UTF-8\n", search("\255").err)
  end)

  if not model then
    pending "finds lines; but the model is not here; `make model` fetches it"
    return
  end
  model = "HEED_MODEL=" .. support.quote(model)

  --- The best matching line; standard error may have notes only.
  local function best_of(result)
    assert.equal(0, result.code, result.err)
    return result.out:match "^ *%-?[%d.]+  ([^\n]*)\n"
  end

  it("finds the line that answers a question", function()
    local result = search("What did the central bank do?", model)
    assert.equal("line 3: Interest rates were raised again.", best_of(result))
    assert.equal("", result.err)
    assert.equal(3, select(2, result.out:gsub("\n", "")))
  end)

  it("stores the embeddings beside the file and reuses them", function()
    search("a pet", model)
    local kept = assert(heed.load(path .. ".npy"))
    assert.are.same({ 3, 384 }, { kept.shape[1], kept.shape[2] })
    assert(heed.save(path .. ".npy", heed.cat { kept[{ { 3, 3 } }], kept[{ { 2, 2 } }], kept[{ { 1, 1 } }] }))
    assert.equal("line 4: A recipe for apple pie.", best_of(search("a pet", model))) -- the stored embeddings are used
  end)

  it("recomputes them when the text has changed", function()
    search("a pet", model)
    support.write(path, TEXT .. "Dogs and rabbits make good companions.\n")
    assert.equal("line 5: Dogs and rabbits make good companions.", best_of(search("a pet", model)))
    assert.equal(4, #assert(heed.load(path .. ".npy")))
    support.write(path, (TEXT:gsub("cat", "bat")))
    assert.equal("line 1: The bat sits on the mat.", best_of(search("a flying mammal", model)))
  end)

  it("recomputes broken ones and reports it", function()
    search("a pet", model)
    for _, broken in ipairs { "", "no numbers", support.read(path .. ".npy"):sub(1, 2000) } do
      support.write(path .. ".npy", broken)
      local result = search("a pet", model)
      assert.equal("line 1: The cat sits on the mat.", best_of(result))
      assert.is_truthy(result.err:find("is broken and made again", 1, true))
    end
    assert(heed.save(path .. ".npy", heed.ones(3, 2)))
    assert.is_truthy(search("a pet", model).err:find("it holds something else", 1, true))
    assert.equal("", search("a pet", model).err)
  end)

  it("skips lines that are not UTF-8 and reports it", function()
    support.write(path, TEXT .. "caf\233\n")
    local result = search("a pet", model)
    assert.equal("line 1: The cat sits on the mat.", best_of(result))
    assert.equal("semantic_search: lines that are not valid UTF-8 are left out; the first is line 5\n", result.err)
  end)
end)
