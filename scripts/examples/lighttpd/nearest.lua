-- Loads the model and encodes the lines of the file, once in each process. Returns a function that finds the lines
-- nearest to a text.
local here = ...

local started = os.time()
local folder = os.getenv "HEED_MODEL" or here .. "../../../build/models/all-MiniLM-L6-v2"
local path = os.getenv "HEED_LINES" or here .. "lines.txt"
local MOST = 5 -- lines of an answer

require "heed" -- contains the models
local model = assert(require("heed.models.bert").load(folder))

local texts, numbers, number = {}, {}, 0
for line in assert(io.open(path, "rb")):lines() do
  number = number + 1
  if not utf8.len(line) then
    print(("line %d of '%s' is not valid UTF-8, and left out"):format(number, path))
  elseif line:find "%S" then
    texts[#texts + 1], numbers[#numbers + 1] = line, number
  end
end
if #texts == 0 then error(("'%s' has no lines with text"):format(path), 0) end
local embeddings = model:encode(texts) -- [lines, d], each of length 1

print(("%d lines of '%s' read, with the model in '%s': %d s"):format(#texts, path, folder, os.time() - started))

--- A list of { line = number, score = from -1 to 1, text = }, best first.
return function(text)
  local scores, indices = embeddings:matmul(model:encode({ text })[1]):topk(math.min(MOST, #texts))
  local found = {}
  for i, score in ipairs(scores:tolist()) do
    local at = indices[i]
    found[i] = { line = numbers[at], score = score, text = texts[at] }
  end
  return found
end
