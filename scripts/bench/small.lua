-- Measures the notebooks' MultiHeadAttention from Lua: the seconds of a forward pass, best of some rounds.
local heed = require "heed"

heed.manual_seed(123)
local x = heed.rand(2, 6, 3)
local m = heed.nn.MultiHeadAttention(3, 2, 6, 0.0, 2)
local turns, best = 5000, math.huge
for _ = 1, tonumber(arg and arg[1]) or 20 do
  local start = heed.clock()
  for _ = 1, turns do
    m(x)
  end
  best = math.min(best, (heed.clock() - start) / turns)
end
print(("%.4g"):format(best))
