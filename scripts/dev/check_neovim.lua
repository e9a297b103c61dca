-- Tests scripts/examples/neovim in headless Neovim, with a small model of random weights that it makes, or with the
-- model in the folder CHECK_MODEL. Runs in Neovim; ends with "N passed, N failed".
--   nvim --headless -u NONE -i NONE -c 'luafile scripts/dev/check_neovim.lua'
-- In the environment: MODULE, the pattern for package.cpath with heed.so for LuaJIT.
--
-- "Never blocks" is proved by counting, not by the clock, so that a busy machine does not matter: with slices of 0 ms
-- the encoder stops after every operation, and after each slice Neovim must have run what else was waiting.
local api, loop = vim.api, vim.loop
local top = debug.getinfo(1, "S").source:match "^@(.*)scripts/dev/[^/]*$"
if top == "" then top = "." end
local module = os.getenv "MODULE"
local SECONDS = 120 -- time limit of each wait; nothing is measured with it

vim.opt.runtimepath:prepend(top .. "/scripts/examples/neovim")
vim.cmd "runtime plugin/heed_search.lua"
package.cpath = module .. ";" .. package.cpath
local heed = require "heed"
local search = require "heed_search"

local passed, failed, said = 0, 0, {}
local function out(...) io.stdout:write(string.format(...), "\n") end
vim.notify = function(text, level) said[#said + 1] = { text = text, level = level } end

local function test(title, f)
  said = {}
  search.stop()
  vim.cmd "silent! %bwipeout!"
  vim.fn.setloclist(0, {}, "f")
  local fine, problem = xpcall(f, debug.traceback)
  if fine then passed = passed + 1 else failed = failed + 1 end
  out("%s: %s", title, fine and "passed" or "FAILED\n" .. tostring(problem))
end

local function equal(wanted, found)
  if not vim.deep_equal(wanted, found) then
    error(("expected %s, got %s"):format(vim.inspect(wanted), vim.inspect(found)), 2)
  end
end
local function contains(text, part)
  if not (text or ""):find(part, 1, true) then error(("'%s' is not in '%s'"):format(part, tostring(text)), 2) end
end

-- ---- A model ------------------------------------------------------------------------------------

local LINES = {
  "The tenant pays for repairs of the roof.", "", "  A train leaves for the sea every hour.  ",
  "The landlord pays for the heating.", "Cafés by the sea open in May.", "The tenant pays for repairs of the roof.",
  "\tfunction add(a, b) return a + b end", "Keys are handed over on the first day.",
}

-- A folder with a small BERT: random weights, and a vocabulary of characters.
local function make_model()
  local folder = vim.fn.tempname()
  vim.fn.mkdir(folder, "p")
  local vocab = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" }
  for code = 33, 126 do
    local letter = string.char(code)
    if not letter:find "%u" then
      vocab[#vocab + 1] = letter
      vocab[#vocab + 1] = "##" .. letter
    end
  end
  heed.manual_seed(1)
  local config = {
    model_type = "bert", vocab_size = #vocab, hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4,
    intermediate_size = 64, max_position_embeddings = 128, type_vocab_size = 2, hidden_act = "gelu",
    layer_norm_eps = 1e-12, pad_token_id = 0,
  }
  vim.fn.writefile(vocab, folder .. "/vocab.txt")
  vim.fn.writefile({ vim.fn.json_encode(config) }, folder .. "/config.json")
  local weights = {}
  local function add(name, ...) weights[name] = heed.randn(...) * 0.2 end
  local function add_layer(name, inputs, outputs)
    add(name .. ".weight", outputs, inputs)
    add(name .. ".bias", outputs)
  end
  local function add_norm(name)
    weights[name .. ".weight"], weights[name .. ".bias"] = heed.ones(32), heed.zeros(32)
  end
  add("embeddings.word_embeddings.weight", #vocab, 32)
  add("embeddings.position_embeddings.weight", 128, 32)
  add("embeddings.token_type_embeddings.weight", 2, 32)
  add_norm "embeddings.LayerNorm"
  for i = 0, 1 do
    local layer = ("encoder.layer.%d."):format(i)
    for _, part in ipairs { "query", "key", "value" } do add_layer(layer .. "attention.self." .. part, 32, 32) end
    add_layer(layer .. "attention.output.dense", 32, 32)
    add_norm(layer .. "attention.output.LayerNorm")
    add_layer(layer .. "intermediate.dense", 32, 64)
    add_layer(layer .. "output.dense", 64, 32)
    add_norm(layer .. "output.LayerNorm")
  end
  assert(heed.save(folder .. "/model.safetensors", weights))
  return folder
end

local given = os.getenv "CHECK_MODEL"
local folder = given or make_model()

local function begin(lines, settings)
  search.setup(vim.tbl_extend("force", { module = module, model = folder, results = 3, slice_ms = 4, chunk = 4 },
    settings or {}))
  vim.cmd "enew"
  api.nvim_buf_set_lines(0, 0, -1, false, lines)
end
local function finished() return vim.wait(SECONDS * 1000, function() return search.job == nil end, 1) end
local function numbers(list)
  return vim.tbl_map(function(item) return item.lnum end, list)
end

-- The numbers of the best lines, from one call of encode: equal scores in the order of the lines.
local function expected(lines, query, count)
  local model = assert(heed.models.load(folder))
  local scores, order = {}, {}
  local wanted = model:encode({ query }, { normalize = true })[1]
  for i, line in ipairs(lines) do
    local text = vim.trim(line)
    if text ~= "" then
      scores[i] = model:encode({ text }, { normalize = true })[1]:dot(wanted):item()
      order[#order + 1] = i
    end
  end
  table.sort(order, function(a, b) return scores[a] > scores[b] or scores[a] == scores[b] and a < b end)
  return vim.list_slice(order, 1, count)
end

-- ---- Tests --------------------------------------------------------------------------------------


test("the location list has the nearest lines, best first", function()
  begin(LINES)
  vim.cmd "Heed who pays for repairs"
  assert(finished(), "the search does not end")
  equal(expected(LINES, "who pays for repairs", 3), numbers(vim.fn.getloclist(0)))
  equal(":Heed who pays for repairs", vim.fn.getloclist(0, { title = 0 }).title)
  contains(said[1].text, "3 lines")
  vim.cmd "lfirst"
  equal(vim.fn.getloclist(0)[1].lnum, api.nvim_win_get_cursor(0)[1])
end)

test("with ! the quickfix list has the nearest lines of all buffers", function()
  begin { LINES[1], LINES[4] }
  local first = api.nvim_get_current_buf()
  vim.cmd "enew"
  api.nvim_buf_set_lines(0, 0, -1, false, { LINES[8], LINES[3] })
  vim.cmd "Heed! who pays"
  assert(finished())
  local found = vim.fn.getqflist()
  equal(3, #found)
  local buffers = {}
  for _, item in ipairs(found) do buffers[item.bufnr] = true end
  equal(true, buffers[first])
end)

test("with ! a search leaves out a terminal, which may change all the time", function()
  begin { LINES[1] }
  vim.cmd "enew"
  local shell = vim.fn.termopen { "sh", "-c", "while :; do echo the tenant pays; sleep 0.001; done" }
  vim.cmd "Heed! who pays"
  local done = vim.wait(20000, function() return search.job == nil end, 1)
  vim.fn.jobstop(shell)
  assert(done, "the search does not end")
  equal({ 1 }, numbers(vim.fn.getqflist()))
end)

test("other work of Neovim runs between any two operations of the encoder", function()
  begin(LINES, { slice_ms = 0 })
  local between, slices, longest = 0, 0, 0
  local idle = loop.new_timer() -- stands for the keys and redraws that wait
  idle:start(0, 1, vim.schedule_wrap(function() between = between + 1 end))
  local run, last = 0, 0 -- slices in a row, without anything else
  search.on_slice = function()
    slices = slices + 1
    run = between == last and run + 1 or 1
    longest, last = math.max(longest, run), between
  end
  vim.cmd "Heed who pays for repairs"
  equal(0, slices) -- the command itself computes nothing
  assert(finished())
  search.on_slice = nil
  idle:close()
  -- Each of the six different texts and the query goes through two layers of some ten operations.
  if slices < 100 then error(("only %d slices"):format(slices)) end
  -- The timers have 1 ms each and need not alternate exactly; but neither may wait for many slices of the other.
  if longest > 5 then error(("%d slices ran in a row"):format(longest)) end
  out("  %d slices, at most %d in a row; %d turns of the editor", slices, longest, between)
  equal(expected(LINES, "who pays for repairs", 3), numbers(vim.fn.getloclist(0)))
end)

test("keys that are typed during a search are obeyed at once, and the search counts them in", function()
  begin(LINES, { slice_ms = 0 })
  local slices, typed_at = 0, nil
  search.on_slice = function()
    slices = slices + 1
    if slices == 10 then
      api.nvim_buf_set_lines(0, 0, 0, false, { "Who pays for repairs?" })
      typed_at = api.nvim_buf_line_count(0)
    end
  end
  vim.cmd "Heed who pays for repairs"
  assert(finished())
  search.on_slice = nil
  equal(#LINES + 1, typed_at)
  local now = api.nvim_buf_get_lines(0, 0, -1, false)
  equal(expected(now, "who pays for repairs", 3), numbers(vim.fn.getloclist(0)))
end)

test("a second search encodes nothing but the query again", function()
  begin(LINES, { slice_ms = 0 })
  local slices = 0
  search.on_slice = function() slices = slices + 1 end
  vim.cmd "Heed who pays for repairs"
  assert(finished())
  local before = slices
  slices = 0
  vim.cmd "Heed a journey"
  assert(finished())
  search.on_slice = nil
  if slices * 3 > before then error(("%d slices, %d before"):format(slices, before)) end
  equal(expected(LINES, "a journey", 3), numbers(vim.fn.getloclist(0)))
end)

test("lines that cannot be read are left out, long ones are cut", function()
  local lines = { "\255\254 bytes", "The tenant pays.", ("é "):rep(5000), "The landlord pays." }
  begin(lines, { longest = 101 })
  vim.cmd "Heed who pays"
  assert(finished())
  local found = numbers(vim.fn.getloclist(0))
  table.sort(found)
  equal({ 2, 3, 4 }, found)
end)

test(":HeedStop and another search end the one that runs", function()
  begin(LINES, { slice_ms = 0 })
  local count = 0
  search.on_slice = function()
    count = count + 1
    if count == 5 then vim.cmd "HeedStop" end
  end
  vim.cmd "Heed who pays for repairs"
  assert(finished())
  vim.wait(50, function() return false end)
  search.on_slice = nil
  equal(5, count)
  equal({}, vim.fn.getloclist(0))
  vim.cmd "Heed who pays for repairs"
  vim.cmd "Heed a journey"
  assert(finished())
  equal(":Heed a journey", vim.fn.getloclist(0, { title = 0 }).title)
end)

test("a buffer may be deleted meanwhile", function()
  begin(LINES, { slice_ms = 0 })
  local slices = 0
  search.on_slice = function()
    slices = slices + 1
    if slices == 5 then vim.cmd "bwipeout!" end
  end
  vim.cmd "Heed who pays for repairs"
  assert(finished())
  search.on_slice = nil
  contains(said[#said].text, "there are no lines with text")
end)

test("errors say what to do", function()
  begin { "", "  " }
  vim.cmd "Heed"
  contains(said[1].text, "a query is needed, as in :Heed who pays for repairs")
  vim.cmd "Heed x"
  assert(finished())
  contains(said[2].text, "there are no lines with text")
  begin(LINES, { model = "/nowhere/a model" })
  vim.cmd "Heed x"
  contains(said[3].text, "there is no model in '/nowhere/a model'; `make model` in heed's sources downloads one")
  begin(LINES, { model = top .. "/tests/golden/decoders/llama" })
  vim.cmd "Heed x"
  contains(said[4].text, "is not a sentence encoder with a tokenizer")
  begin(LINES, { model = top .. "/docs" })
  vim.cmd "Heed x"
  contains(said[5].text, "has none of model.safetensors")
  equal(vim.log.levels.ERROR, said[5].level)
  begin(LINES)
  vim.cmd "Heed \255"
  assert(finished())
  contains(said[6].text, "UTF-8")
end)

test("without heed.so an error says how to get it", function()
  local result = vim.fn.system {
    vim.v.progpath, "--headless", "-u", "NONE", "-i", "NONE", "--cmd", "set rtp^=" .. top .. "/scripts/examples/neovim",
    "-c", "runtime plugin/heed_search.lua", "-c", "Heed x", "-c", "qall!",
  }
  contains(result, "heed.so for LuaJIT is not found; build it with `make LUA=luajit`")
end)

out("%d passed, %d failed", passed, failed)
vim.cmd(failed == 0 and passed > 0 and "qall!" or "cquit!")
