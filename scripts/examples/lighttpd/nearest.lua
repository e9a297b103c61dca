-- The model and the lines of the file: what takes time, done once for each process. Returns a function that finds the
-- lines nearest to a text.
local here = ...

local started = os.time()
local folder = os.getenv "HEED_MODEL" or here .. "../../../build/models/all-MiniLM-L6-v2"
local path = os.getenv "HEED_LINES" or here .. "lines.txt"
local MOST = 5 -- lines of an answer

require "heed" -- which has the models inside
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

--- A list of { line = its number, score = from -1 to 1, text = }, best first.
return function(text)
  local scores, places = embeddings:matmul(model:encode({ text })[1]):topk(math.min(MOST, #texts))
  local found = {}
  for i, score in ipairs(scores:tolist()) do
    local at = places[i]
    found[i] = { line = numbers[at], score = score, text = texts[at] }
  end
  return found
end
