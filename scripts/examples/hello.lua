-- From a sentence's vectors to printed attention weights.
local heed = require "heed"

heed.manual_seed(123)
local words = { "Your", "journey", "starts", "with", "one", "step" }
local x = heed.randn(#words, 4) -- a vector of four numbers for each word
local attention = heed.nn.CausalAttention(4, 4, #words, 0.0)
local _, info = attention(x, { need_weights = true })

print "How much each word looks at itself and at those before it:"
for i, row in info.weights:iter() do
  print(("%-8s %s"):format(words[i], row))
end
