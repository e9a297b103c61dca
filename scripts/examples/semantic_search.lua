-- Finds the lines of a text file that are closest to a question in meaning, even without common words:
--   build/heed scripts/examples/semantic_search.lua 'Who pays for the repair?' contract.txt
-- Needs the model that `make model` downloads (HEED_MODEL may name its folder). The embeddings of the lines are stored
-- beside the file, in contract.txt.npy; contract.txt.npy.key identifies the lines and the model. They are computed
-- again when the file changes.
local heed = require "heed"

local BEST, CHUNK = 5, 64 -- lines to show; lines for each progress report

local function note(...) io.stderr:write("semantic_search: ", string.format(...), "\n") end

local function stop(...)
  note(...)
  os.exit(1)
end

-- ---- Arguments, model and lines -----------------------------------------------------------------

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

local question, path = arg[1], arg[2]
if not path or #arg > 2 then stop("usage: semantic_search.lua QUESTION FILE") end
if not is_utf8(question) then stop("the question is not valid UTF-8") end

local function load_model()
  local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
  local folder = os.getenv "HEED_MODEL" or top .. "build/models/all-MiniLM-L6-v2"
  local weights = io.open(folder .. "/model.safetensors", "rb")
  if not weights then stop("there is no model in '%s'; `make model` fetches it", folder) end
  local size = weights:seek "end"
  weights:close()
  local model, problem = require("heed.models.bert").load(folder)
  if not model then stop("%s", problem) end
  return model, size
end

-- The lines that contain text: two lists, of texts and of line numbers.
local function read_lines()
  local file, problem = io.open(path, "rb")
  local text = file and file:read "*a"
  if not text then stop("'%s' cannot be read%s", path, problem and ": " .. problem or "") end
  file:close()
  local texts, numbers, number, odd = {}, {}, 0, nil
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    if not is_utf8(line) then
      odd = odd or number
    elseif line:find "%S" then
      texts[#texts + 1], numbers[#numbers + 1] = line:match "^%s*(.-)%s*$", number
    end
  end
  if odd then note("lines that are not valid UTF-8 are left out; the first is line %d", odd) end
  if #texts == 0 then stop("'%s' has no lines with text", path) end
  return texts, numbers
end

-- ---- Embeddings ---------------------------------------------------------------------------------

local PRIME = 17592186044399 -- 2^44 - 17, so that all products are below 2^53

-- Identifies the lines and the model that embeddings were computed from.
local function key_of(texts, model_size)
  local hash = 0
  for _, text in ipairs(texts) do
    for at = 1, #text do hash = (hash * 257 + text:byte(at) + 1) % PRIME end
    hash = hash * 257 % PRIME
  end
  return ("%d lines, hash %d, model %d"):format(#texts, hash, model_size)
end

local function embed(model, texts)
  local parts, status, start, said = {}, os.execute "test -t 2", heed.clock(), 0
  local terminal = status == true or status == 0 -- Lua 5.1 returns a number
  for first = 1, #texts, CHUNK do
    local last = math.min(first + CHUNK - 1, #texts)
    local chunk = {}
    for i = first, last do chunk[#chunk + 1] = texts[i] end
    parts[#parts + 1] = model:encode(chunk)
    local percent, ends = math.floor(100 * last / #texts), last == #texts
    if heed.clock() - start > 1 and (terminal or percent >= said + 10) and (said > 0 or not ends) then
      said = percent
      io.stderr:write(terminal and "\r" or "", ("%d of %d lines read, %d %%"):format(last, #texts, percent),
        terminal and not ends and "" or "\n")
    end
  end
  return heed.cat(parts)
end

-- The embeddings [lines, d]: the stored ones, if they belong to these texts, or new ones.
local function embeddings_of(model, texts, model_size)
  local cache, key = path .. ".npy", key_of(texts, model_size)
  local file = io.open(cache .. ".key", "rb")
  local known = file and file:read "*l"
  if file then file:close() end
  if known == key then
    local kept, problem = heed.load(cache)
    local fits = heed.is_tensor(kept) and kept.dtype == "float32" and kept.ndim == 2 and kept.shape[1] == #texts
      and kept.shape[2] == model.config.hidden_size
    if fits then return kept end
    note("'%s' is broken and made again: %s", cache, problem or "it holds something else")
  end
  local made = embed(model, texts)
  if not known and io.open(cache, "rb") then
    note("'%s' was not made by this script and stays; the embeddings are not kept", cache)
    return made
  end
  os.remove(cache .. ".key") -- first, so that it never describes other embeddings than the stored ones
  local saved, problem = heed.save(cache, made)
  file, problem = saved and io.open(cache .. ".key", "wb"), problem
  if not (file and file:write(key, "\n") and file:close()) then
    note("the embeddings are not kept: %s", problem or "the key cannot be written")
  end
  return made
end

-- ---- The search ---------------------------------------------------------------------------------

local texts, numbers = read_lines()
local model, model_size = load_model()
local scores = embeddings_of(model, texts, model_size):matmul(model:encode({ question })[1])
local best, indices = scores:topk(math.min(BEST, #texts))
for i, score in ipairs(best:tolist()) do
  local at = indices[i]
  print(("%6.3f  line %d: %s"):format(score, numbers[at], texts[at]))
end
