-- How much longer than its budget a slice of mha:steps takes: 1024 tokens × 768, 12 heads, causal.
--   heed scripts/bench/slices.lua [forwards]   (100)
local heed = require "heed"
local forwards = tonumber(arg and arg[1] or 100)

heed.manual_seed(1)
local mha = heed.nn.MultiHeadAttention(768, 768, 1024, 0.0, 12)
local x = heed.randn(1024, 768)

local function at(sorted, share) return sorted[math.max(1, math.ceil(#sorted * share))] end

print("threads  budget  slices  beyond the budget: median  99.9 %  worst  (ms)   forward  begun in (ms)")
for threads = 1, 2 do
  heed.set_num_threads(threads)
  local expected = mha(x):to_string()
  for _, ms in ipairs { 0.5, 1, 2, 4 } do
    local over, begun, start = {}, 0, heed.clock()
    for _ = 1, forwards do
      local before = heed.clock()
      local steps = mha:steps(x, { ms = ms })
      local now = heed.clock()
      begun = math.max(begun, now - before)
      while true do
        local done, total = steps()
        local after = heed.clock()
        over[#over + 1], now = (after - now) * 1000 - ms, after
        if done == total then break end
      end
      assert(steps.result:to_string() == expected)
      steps:release()
    end
    local whole = (heed.clock() - start) / forwards * 1000
    table.sort(over)
    print(("%7d %7.1f %7d %26.3f %7.3f %6.3f %16.1f %9.3f"):format(threads, ms, #over, at(over, 0.5), at(over, 0.999),
      over[#over], whole, begun * 1000))
  end
end
