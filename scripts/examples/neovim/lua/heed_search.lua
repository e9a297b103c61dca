-- Ranks the lines of buffers by meaning: the nearest ones to a query go to the location list (one buffer) or the
-- quickfix list (all buffers). The encoder runs in slices of a few milliseconds from a timer, so that Neovim reads keys
-- and draws in between. Vectors are kept by text: a second search, or one after an edit, encodes only what is new.
local api, loop = vim.api, vim.loop

local M = {}

M.settings = {
  module = nil, -- a pattern for package.cpath that finds heed.so, if Neovim's LuaJIT does not find it by itself
  model = nil, -- the folder of a sentence encoder; $HEED_MODEL, or heed/all-MiniLM-L6-v2 in Neovim's data folder
  results = 10, -- lines in the list
  slice_ms = 4, -- milliseconds of one slice
  pause_ms = 1, -- milliseconds between two slices, for Neovim
  chunk = 32, -- lines read, and encoded, as one
  longest = 2000, -- bytes of a line that are read; encoders truncate texts to some hundred tokens anyway
  kept = 20000, -- vectors that are kept; 1.5 KiB each with all-MiniLM-L6-v2
}

--- Changes some settings. Another model forgets the vectors of the one before.
function M.setup(settings)
  M.settings = vim.tbl_extend("force", M.settings, settings or {})
  M.model, M.vectors, M.count = nil, {}, 0
end

M.vectors, M.count = {}, 0 -- by text: { a tensor of a chunk, row }
M.on_slice = nil -- called after each slice, if set: tests count them

local function report(level, ...) vim.notify("heed: " .. string.format(...), vim.log.levels[level]) end

-- ---- The model ----------------------------------------------------------------------------------

local function load_heed()
  local pattern = M.settings.module
  if pattern and not package.cpath:find(pattern, 1, true) then package.cpath = pattern .. ";" .. package.cpath end
  local fine, heed = pcall(require, "heed")
  if fine then return heed end
  return nil, ("heed.so for LuaJIT is not found; build it with `make LUA=luajit`, and write its path: "
    .. "require('heed_search').setup { module = '/path/to/build/luajit/?.so' }\n%s"):format(heed)
end

--- The encoder, loaded at the first use: the only step that is not divided (see README.md for its time).
local function load_model()
  if M.model then return M.model end
  local heed, problem = load_heed()
  if not heed then return nil, problem end
  local folder = M.settings.model or os.getenv "HEED_MODEL" or vim.fn.stdpath "data" .. "/heed/all-MiniLM-L6-v2"
  if not loop.fs_stat(folder) then
    return nil, ("there is no model in '%s'; `make model` in heed's sources downloads one to build/models: "
      .. "require('heed_search').setup { model = '/path/to/build/models/all-MiniLM-L6-v2' }"):format(folder)
  end
  local model
  model, problem = heed.models.load(folder)
  if not model then return nil, problem end
  if not (model.encode_steps and model.tokenizer) then
    return nil, ("the model in '%s' is not a sentence encoder with a tokenizer"):format(folder)
  end
  M.model = model
  return model
end

-- ---- Lines --------------------------------------------------------------------------------------

--- The line without blanks around it, cut to a length that ends with a whole character; nil if nothing is left.
local function text_of(line)
  local text = line:sub(1, M.settings.longest)
  if #text < #line then text = text:gsub("[\192-\255][\128-\191]*$", "") end
  text = vim.trim(text)
  return text ~= "" and text or nil
end

--- The texts of some lines: those without a vector, and all that are not blank as { buffer =, number =, text = }.
local function read(buffer, first, last)
  local new, lines, is_new = {}, {}, {}
  for i, line in ipairs(api.nvim_buf_get_lines(buffer, first, last, false)) do
    local text = text_of(line)
    if text then
      lines[#lines + 1] = { buffer = buffer, number = first + i, text = text }
      if not M.vectors[text] and not is_new[text] then
        is_new[text] = true
        new[#new + 1] = text
      end
    end
  end
  return new, lines
end

-- ---- The search, a coroutine that yields where a slice ends ---------------------------------------

-- The vectors [n, d] of some texts, or nil if one is not valid UTF-8.
local function encode(model, texts, kind)
  local prompts = model.prompts or {}
  local prompt = kind == "query" and prompts.query and "query" or kind == "document" and prompts.document and "document"
  local fine, steps = pcall(model.encode_steps, model, texts, { normalize = true, prompt = prompt or nil })
  if not fine then return nil, steps end
  while true do
    local went, done = pcall(steps.advance, steps, M.settings.slice_ms)
    if not went then return nil, done end
    coroutine.yield()
    if done then return steps.result end
  end
end

--- Encodes texts that have no vector yet. One that cannot be read (such as bytes that are not UTF-8) gets the vector
--- false, and is in no result.
local function encode_new(model, texts)
  if #texts == 0 then return end
  local vectors = encode(model, texts, "document")
  if not vectors and #texts > 1 then
    for _, text in ipairs(texts) do encode_new(model, { text }) end
    return
  end
  for i, text in ipairs(texts) do M.vectors[text] = vectors and { vectors, i } or false end
  M.count = M.count + #texts
end

--- Puts a line into the list of the best ones, which is short: by score, then in the order of the buffer.
local function insert(best, line, score)
  line.score = score
  local at = #best + 1
  while at > 1 and best[at - 1].score < score do at = at - 1 end
  if at <= M.settings.results then
    table.insert(best, at, line)
    best[M.settings.results + 1] = nil
  end
end

--- The best lines of a buffer are added to `best`. Returns whether the buffer stayed as it was meanwhile.
local function rank(model, buffer, query, best)
  local first, tick = 0, api.nvim_buf_get_changedtick(buffer)
  while true do
    if not api.nvim_buf_is_loaded(buffer) or api.nvim_buf_get_changedtick(buffer) ~= tick then return false end
    if first >= api.nvim_buf_line_count(buffer) then return true end
    if M.count > M.settings.kept then M.vectors, M.count = {}, 0 end
    local new, lines = read(buffer, first, first + M.settings.chunk)
    encode_new(model, new)
    for _, line in ipairs(lines) do
      local vector = M.vectors[line.text]
      if vector then insert(best, line, vector[1][vector[2]]:dot(query):item()) end
    end
    first = first + M.settings.chunk
    coroutine.yield()
  end
end

local function search(model, buffers, text)
  local query, problem = encode(model, { text }, "query")
  if not query then error(problem, 0) end
  query = query[1]
  local best
  repeat -- again from the start if a buffer has changed: its lines may have other numbers, but most have their vectors
    local same = true
    best = {}
    for _, buffer in ipairs(buffers) do
      if api.nvim_buf_is_loaded(buffer) then same = rank(model, buffer, query, best) and same end
    end
  until same
  return best
end

-- ---- Commands -----------------------------------------------------------------------------------

local function show(job, best)
  local items = {}
  for i, line in ipairs(best) do
    items[i] = { bufnr = line.buffer, lnum = line.number, col = 1, text = ("%.3f  %s"):format(line.score, line.text) }
  end
  local list = { title = ":Heed " .. job.query, items = items }
  if job.all then
    vim.fn.setqflist({}, " ", list)
  elseif api.nvim_win_is_valid(job.window) then
    vim.fn.setloclist(job.window, {}, " ", list)
  end
  if #items == 0 then
    report("WARN", "there are no lines with text")
  else
    report("INFO", "%d lines; %s goes to the next one", #items, job.all and ":cnext" or ":lnext")
  end
end

--- Ends the search that is running, if any.
function M.stop()
  if M.job then M.job.timer:close() end
  M.job = nil
end

local function step(job)
  if M.job ~= job then return end
  local fine, best = coroutine.resume(job.thread)
  if M.on_slice then M.on_slice() end
  if fine and coroutine.status(job.thread) ~= "dead" then
    job.timer:start(M.settings.pause_ms, 0, job.step)
    return
  end
  M.stop()
  if fine then show(job, best) else report("ERROR", "%s", best) end
end

--- Begins a search, and returns at once; a search that runs already ends. options.all: in all listed buffers.
function M.search(query, options)
  M.stop()
  query = vim.trim(query or "")
  if query == "" then return report("ERROR", "a query is needed, as in :Heed who pays for repairs") end
  local model, problem = load_model()
  if not model then return report("ERROR", "%s", problem) end
  local buffers, all = { api.nvim_get_current_buf() }, options and options.all
  if all then
    buffers = vim.tbl_filter(function(each)
      return vim.bo[each].buflisted and vim.bo[each].buftype ~= "terminal" -- a terminal may never stop changing
    end, api.nvim_list_bufs())
  end
  local job = { query = query, all = all, window = api.nvim_get_current_win(), timer = loop.new_timer() }
  job.thread = coroutine.create(function() return search(model, buffers, query) end)
  job.step = vim.schedule_wrap(function() step(job) end)
  M.job = job
  job.timer:start(0, 0, job.step)
end

return M
