-- Finds the lines, or the files, that are closest to a question in meaning, even without common words:
--   build/heed scripts/examples/search.lua 'Who pays for the repair?' contracts/
-- Needs the model that `make model` downloads. --help lists the options.
local heed = require "heed"

local CHUNK = 64 -- texts for each progress report
local PASSAGE = 8 -- lines, of the passages that --files compares
local WIDER = 4 -- times as many results as are shown go to the cross-encoder

local USAGE = [[
usage: search.lua [OPTION...] QUESTION PATH...
Searches files, and folders with all that is in them but hidden files.
  --files          find files, by their best passage, instead of lines
  --top N          results to show (5)
  --model FOLDER   the sentence encoder, or its GGUF file (HEED_MODEL, or build/models/all-MiniLM-L6-v2)
  --rerank FOLDER  a cross-encoder, which orders the best results again
  --cache FILE     keep the vectors of all texts in FILE.safetensors
]]

local function note(...) io.stderr:write("search: ", string.format(...), "\n") end

local function stop(...)
  note(...)
  os.exit(1)
end

-- ---- Arguments ----------------------------------------------------------------------------------

local top_folder = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local options = { top = "5", model = os.getenv "HEED_MODEL" or top_folder .. "build/models/all-MiniLM-L6-v2" }
local words, at = {}, 1
while arg[at] do
  local name = arg[at]:match "^%-%-(%a+)$"
  if name == "help" then
    io.write(USAGE)
    os.exit(0)
  elseif name == "files" then
    options.files = true
  elseif name == "top" or name == "model" or name == "rerank" or name == "cache" then
    at = at + 1
    options[name] = arg[at] or stop("--%s needs a value; --help shows which", name)
  elseif arg[at]:find "^%-%-" then
    stop("%s is not known; --help shows what is", arg[at])
  else
    words[#words + 1] = arg[at]
  end
  at = at + 1
end
local question, top = table.remove(words, 1), tonumber(options.top)
if #words == 0 then stop("a question and a file or folder are needed; --help shows how") end
if not top or top < 1 or top % 1 ~= 0 then stop("--top is '%s'; it must be a whole number from 1 up", options.top) end

-- ---- Texts --------------------------------------------------------------------------------------

-- Valid UTF-8 sequences other than ASCII; T is any byte from 80 to BF: the Unicode Standard, table 3-7.
local SEQUENCES = {
  "[\194-\223]T", "\224[\160-\191]T", "[\225-\236\238\239]TT", "\237[\128-\159]T", "\240[\144-\191]TT",
  "[\241-\243]TTT", "\244[\128-\143]TT",
}

local function is_utf8(text)
  if not text:find "[\128-\255]" then return true end
  for _, sequence in ipairs(SEQUENCES) do text = text:gsub((sequence:gsub("T", "[\128-\191]")), " ") end
  return not text:find "[\128-\255]"
end
if not is_utf8(question) then stop("the question is not valid UTF-8") end

-- The contents of a file, nil for a folder; raises for what is missing.
local function read(path)
  local file, problem = io.open(path, "rb")
  if not file then stop("'%s' cannot be read: %s", path, problem) end
  local text = file:read "*a"
  file:close()
  return text
end

-- The files in a folder, sorted.
local function files_in(folder)
  local from = folder:gsub("^%-", "./-"):gsub("'", "'\\''")
  local pipe = assert(io.popen(("find '%s' -mindepth 1 -name '.*' -prune -o -type f -print"):format(from)))
  local paths = {}
  for path in pipe:lines() do paths[#paths + 1] = path end
  pipe:close()
  table.sort(paths)
  return paths
end

local texts, places, skipped = {}, {}, 0 -- place: "path:line", or with --files the path

-- Adds the lines of a file, or its passages: consecutive lines that are not blank.
local function add_file(path, text)
  if text:find("\0", 1, true) or not is_utf8(text) then
    skipped = skipped + 1
    return
  end
  local number, passage = 0, {}
  local function add(line, place)
    texts[#texts + 1], places[#places + 1] = line, place
  end
  local function finish()
    if #passage > 0 then add(table.concat(passage, " "), path) end
    passage = {}
  end
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    line = line:match "^%s*(.-)%s*$"
    if not options.files then
      if line ~= "" then add(line, path .. ":" .. number) end
    else
      if line ~= "" then passage[#passage + 1] = line end
      if line == "" or #passage == PASSAGE then finish() end
    end
  end
  finish()
end

for _, path in ipairs(words) do
  local text = read(path)
  if text then
    add_file(path, text)
  else
    for _, each in ipairs(files_in(path)) do
      local file = io.open(each, "rb")
      local contents = file and file:read "*a"
      if file then file:close() end
      if contents then add_file(each, contents) else skipped = skipped + 1 end
    end
  end
end
if skipped > 0 then
  note("%d %s skipped, which %s not text in UTF-8", skipped, skipped == 1 and "file was" or "files were",
    skipped == 1 and "is" or "are")
end
if #texts == 0 then stop("there is no text in %s", table.concat(words, ", ")) end

-- ---- Vectors ------------------------------------------------------------------------------------

local function load(path)
  local there = io.open(path, "rb")
  if not there then stop("there is no model in '%s'; `make model` fetches one", path) end
  there:close()
  local model, problem = heed.models.load(path)
  if not model then stop("%s", problem) end
  if not model.encode then stop("'%s' is not a sentence encoder", path) end
  if not model.tokenizer then stop("'%s': %s", path, model.tokenizer_problem or "the model has no tokenizer") end
  return model
end

local PRIMES = { 17592186044399, 17592186044377 } -- below 2^44, so that all products are below 2^53

-- Two numbers that identify a text.
local function hash(text)
  local a, b = 0, 0
  for i = 1, #text do
    local byte = text:byte(i) + 1
    a, b = (a * 257 + byte) % PRIMES[1], (b * 263 + byte) % PRIMES[2]
  end
  return a, b
end

-- A vector that identifies the model: a hash of its settings, and its vector of a word.
local function identity(model)
  local about = ("%s %d %s"):format(model.pooling, model.max_seq_length, tostring(model.normalize))
  local a, b = hash(about)
  return heed.cat { heed.tensor { a % 65536, b % 65536 }, model:encode({ "search" })[1] }
end

-- The vectors in the cache file: a table by hash "a b" of rows of a tensor [n, d]; both are empty if there is no file.
local function read_cache(path, model)
  local file = io.open(path, "rb")
  if not file then return {} end
  file:close()
  local kept, problem = heed.load(path)
  local made = kept and not heed.is_tensor(kept) and kept.hashes and kept.vectors and kept.model
  if not made then
    stop("'%s' is not a cache of search.lua and stays as it is%s", path, kept and "" or ": " .. problem)
  end
  local same = identity(model)
  if #kept.model ~= #same or not heed.allclose(kept.model, same, 1e-4, 1e-4) then
    note("the vectors in '%s' are of another model; they are made again", path)
    return {}
  end
  local rows = {}
  for i, pair in ipairs(kept.hashes:tolist()) do rows[("%d %d"):format(pair[1], pair[2])] = i end
  return rows, kept.vectors, kept.hashes
end

local function embed(model, list)
  local parts, status, start, said = {}, os.execute "test -t 2", heed.clock(), 0
  local terminal = status == true or status == 0 -- Lua 5.1 returns a number
  local prompts = model.prompts or {}
  local prompt = prompts.passage and "passage" or prompts.document and "document" or nil
  for first = 1, #list, CHUNK do
    local last = math.min(first + CHUNK - 1, #list)
    local chunk = {}
    for i = first, last do chunk[#chunk + 1] = list[i] end
    parts[#parts + 1] = model:encode(chunk, { prompt = prompt, normalize = true })
    local percent, ends = math.floor(100 * last / #list), last == #list
    if heed.clock() - start > 1 and (terminal or percent >= said + 10) and (said > 0 or not ends) then
      said = percent
      io.stderr:write(terminal and "\r" or "", ("%d of %d texts read, %d %%"):format(last, #list, percent),
        terminal and not ends and "" or "\n")
    end
  end
  return heed.cat(parts)
end

-- The vectors [n, d] of all texts; those in the cache are not computed again.
local function vectors_of(model, path)
  local rows, known, hashes = {}, nil, nil
  if path then rows, known, hashes = read_cache(path, model) end
  local count, new, new_hashes, indices = known and #known or 0, {}, {}, {}
  for i, text in ipairs(texts) do
    local a, b = hash(text)
    local key = ("%d %d"):format(a, b)
    if not rows[key] then
      new[#new + 1], new_hashes[#new + 1] = text, { a, b }
      rows[key] = count + #new
    end
    indices[i] = rows[key]
  end
  if #new > 0 then
    local made, made_hashes = embed(model, new), heed.tensor(new_hashes, { dtype = "int64" })
    known = known and heed.cat { known, made } or made
    hashes = hashes and heed.cat { hashes, made_hashes } or made_hashes
    if path then
      local fine, problem = heed.save(path, { hashes = hashes, vectors = known, model = identity(model) })
      if not fine then note("the vectors are not kept: %s", problem) end
    end
  end
  return known:index_select(1, heed.tensor(indices, { dtype = "int64" }))
end

-- ---- The search ---------------------------------------------------------------------------------

local model = load(options.model)
local cross = options.rerank and load(options.rerank)
if cross and not cross.classifier then stop("'%s' is not a cross-encoder", options.rerank) end
local prompt = model.prompts and model.prompts.query and "query" or nil
local asked = model:encode({ question }, { prompt = prompt, normalize = true })[1]
local cache = options.cache and options.cache:gsub("%.safetensors$", "") .. ".safetensors"
local scores = vectors_of(model, cache):matmul(asked)

-- The best results, {score =, text =, place =}, of each file one if files are wanted.
local sorted, order = scores:sort(1, true)
sorted, order = sorted:tolist(), order:tolist()
local results, seen = {}, {}
for i, index in ipairs(order) do
  if not (options.files and seen[places[index]]) then
    results[#results + 1] = { score = sorted[i], text = texts[index], place = places[index] }
  end
  seen[places[index]] = true
  if #results == top * (cross and WIDER or 1) then break end
end

if cross then
  local pairs_of = {}
  for i, result in ipairs(results) do pairs_of[i] = { question, result.text } end
  for i, score in ipairs(cross:score(pairs_of):tolist()) do results[i].score = score end
  table.sort(results, function(a, b) return a.score > b.score end)
end
for i = 1, math.min(top, #results) do
  local result = results[i]
  print(("%6.3f  %s: %s"):format(result.score, result.place, result.text))
end
