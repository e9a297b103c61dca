-- Random choices that are the same on every Lua for the same seed.
local chances = {}

local state = 1

function chances.seed(seed)
  state = (seed * 48271 + 11) % 2147483646 + 1
  for _ = 1, 5 do chances.random(2) end
end

--- An integer from 1 to n.
function chances.random(n)
  state = state * 16807 % 2147483647
  return state % n + 1
end

function chances.chance(percent) return chances.random(100) <= percent end

function chances.one_of(list) return list[chances.random(#list)] end

return chances
