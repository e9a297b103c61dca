-- From the vectors of a sentence to attention weights: each row shows how much a word attends to itself
-- and to each word before it.
local heed = require "heed"
heed.manual_seed(123)
local words = { "Your", "journey", "starts", "with", "one", "step" }
local x = heed.randn(#words, 4) -- a vector of four numbers for each word
local attention = heed.nn.CausalAttention(4, 4, #words, 0.0)
local _, info = attention(x, { need_weights = true })
for i, row in info.weights:iter() do
  print(("%-8s "):format(words[i]) .. row)
end
