-- Encodes texts: build/heed scripts/bench/tokenizers.lua TOKENIZER LINES [ROUNDS]. LINES has one text in each line, as
-- hexadecimal digits. Prints the processor time in ms of loading and, the best of some rounds, of encoding all texts,
-- and the number of ids.
local heed = require "heed"

local texts, rounds = {}, tonumber(arg[3]) or 5
for line in io.lines(arg[2]) do
  texts[#texts + 1] = line:gsub("..", function(digits) return string.char(tonumber(digits, 16)) end)
end

local start = os.clock()
local tok = assert(heed.tokenizers.load(arg[1]))
local loading = os.clock() - start

local best, count = math.huge, 0
for _ = 1, rounds do
  start, count = os.clock(), 0
  for _, text in ipairs(texts) do count = count + #tok:encode(text) end
  best = math.min(best, os.clock() - start)
end
print(("%.2f\t%.2f\t%d"):format(loading * 1000, best * 1000, count))
