-- Milliseconds of three calls, the best of twenty; for playground.js.
local heed = require "heed"
heed.manual_seed(1)
local function best(f)
  local least = math.huge
  for _ = 1, 20 do
    local start = heed.clock()
    f()
    least = math.min(least, heed.clock() - start)
  end
  return 1000 * least
end
local module, x = heed.nn.MultiHeadAttention(256, 256, 128, 0.0, 8), heed.rand(1, 128, 256)
local a, b = heed.rand(256, 256), heed.rand(256, 256)
local q, k, v = heed.rand(1, 8, 512, 64), heed.rand(1, 8, 512, 64), heed.rand(1, 8, 512, 64)
print(best(function() module(x) end), best(function() a:matmul(b) end),
  best(function() heed.nn.functional.scaled_dot_product_attention(q, k, v) end))
