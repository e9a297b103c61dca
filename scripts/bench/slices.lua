-- Measures how far slices of mha:steps exceed their time budget: 1024 tokens × 768, 12 heads, causal.
--   heed scripts/bench/slices.lua [forwards]   (100)
-- First the pieces of a slice, each as the minimum of some forward passes, which other programs hardly affect; then
-- whole slices, and for comparison the interruptions by other programs on this machine.
local heed = require "heed"
local forwards = tonumber(arg and arg[1] or 100)

heed.manual_seed(1)
local mha = heed.nn.MultiHeadAttention(768, 768, 1024, 0.0, 12)
local x = heed.randn(1024, 768)

local function at(sorted, share) return sorted[math.max(1, math.ceil(#sorted * share))] end

-- With one piece in each slice: the number of pieces, the longest and the median, in seconds.
local function pieces(runs)
  local least = {}
  for _ = 1, runs do
    local steps = mha:steps(x, { ms = 1e-6 })
    local now, i = heed.clock(), 0
    repeat
      local done, total = steps()
      local after = heed.clock()
      i, now, least[i + 1] = i + 1, after, math.min(least[i + 1] or math.huge, after - now)
    until done == total
    steps:release()
  end
  table.sort(least)
  return #least, least[#least], at(least, 0.5)
end
heed.set_num_threads(1)
local count, longest, median = pieces(10)
print(("%d pieces: the longest %.3f ms, the median %.3f ms"):format(count, longest * 1000, median * 1000))

-- Interruptions: gaps between two readings of the clock in a loop that does nothing else.
local gaps, start, last = {}, heed.clock(), heed.clock()
while last < start + 10 do
  local now = heed.clock()
  if now - last > 1e-4 then gaps[#gaps + 1] = now - last end
  last = now
end
table.sort(gaps)
print(("interruptions on this machine: %d of more than 0.1 ms in 10 s, the longest %.3f ms"):format(#gaps,
  (gaps[#gaps] or 0) * 1000))

print("threads  budget  slices  over the budget:   median  99.9 %    max  (ms)   forward   start  (ms)")
for threads = 1, 2 do
  heed.set_num_threads(threads)
  local expected = mha(x):to_string()
  for _, ms in ipairs { 0.5, 1, 2, 4 } do
    local over, begun, began = {}, 0, heed.clock()
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
    local whole = (heed.clock() - began) / forwards * 1000
    table.sort(over)
    print(("%7d %7.1f %7d %26.3f %7.3f %6.3f %16.1f %9.3f"):format(threads, ms, #over, at(over, 0.5), at(over, 0.999),
      over[#over], whole, begun * 1000))
  end
end
