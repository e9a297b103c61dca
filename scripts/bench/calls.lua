-- Measures calls from Lua into C and back: the best of some rounds, in seconds, without the time of the loop. Prints a
-- line for each call: name and seconds, separated by a tab.
local heed = require "heed"

local turns, rounds = 10000, tonumber(arg and arg[1]) or 30
local x = heed.zeros(1)
local clock, get_num_threads, numel, size, neg_ = heed.clock, heed.get_num_threads, x.numel, x.size, x.neg_

local function best_of(f)
  local best = math.huge
  for _ = 1, rounds do
    local start = clock()
    f()
    best = math.min(best, (clock() - start) / turns)
  end
  return best
end

local calls = {
  { "heed.get_num_threads()", function() for _ = 1, turns do get_num_threads() end end },
  { "heed.clock()", function() for _ = 1, turns do clock() end end },
  { "numel(x)", function() for _ = 1, turns do numel(x) end end },
  { "x:numel()", function() for _ = 1, turns do x:numel() end end },
  { "#x", function() for _ = 1, turns do local _ = #x end end },
  { "x:size(1)", function() for _ = 1, turns do size(x, 1) end end },
  { "x[1]", function() for _ = 1, turns do local _ = x[1] end end },
  { "x:neg_() of one element", function() for _ = 1, turns do neg_(x) end end },
}

local loop = best_of(function() for _ = 1, turns do end end) -- luacheck: ignore 542
for _, call in ipairs(calls) do print(("%s\t%.4g"):format(call[1], best_of(call[2]) - loop)) end
