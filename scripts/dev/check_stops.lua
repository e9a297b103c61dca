-- Measures how soon heed's long calls (tests/long_calls.lua) end under a time limit of 0.02 seconds, each three
-- times; fails if one takes more than 0.07. Measures wall-clock time: nothing else should run on the machine.
--   build/heed scripts/dev/check_stops.lua [--whole] [PATTERN]
-- PATTERN: only calls whose names match. --whole: also measures each call without a limit, for at most a second.
local heed = require "heed"
local calls = require "tests.long_calls"

local LIMIT, MOST, ROUNDS = 0.02, 0.07, 3
local whole = arg[1] == "--whole"
local pattern = arg[whole and 2 or 1]

-- The seconds that f takes under a time limit, and its error.
local function time(f, seconds)
  for _ = 1, 2 do collectgarbage() end
  heed.limit { seconds = seconds }
  local start = heed.clock()
  local fine, message = pcall(f)
  local taken = heed.clock() - start
  heed.limit { seconds = math.huge }
  return taken, not fine and message or nil
end

local all, late = {}, {}
for _, row in ipairs(calls) do
  if not pattern or row.name:find(pattern) then
    local f, worst, note = row.make(), 0, ""
    for _ = 1, ROUNDS do
      local taken, message = time(f, LIMIT)
      if message and not tostring(message):find("time limit exceeded", 1, true) then error(message, 0) end
      worst, all[#all + 1] = math.max(worst, taken), taken
      if not message then note = "finished" end
    end
    if worst > MOST then late[#late + 1], note = row.name, "LATE" end
    if whole then
      local taken, message = time(f, 1)
      note = ("%-11s  %s%.3f s without a limit"):format(note, message and "more than " or "", taken)
    end
    print(("%-55s %6.1f ms  %s"):format(row.name, worst * 1e3, note))
  end
end

if #all == 0 then error("no call's name matches '" .. tostring(pattern) .. "'", 0) end
table.sort(all)
local form = "%d calls, %d times each: median %.1f ms, longest %.1f ms, with a limit of %g ms"
print(form:format(#all / ROUNDS, ROUNDS, all[math.ceil(#all / 2)] * 1e3, all[#all] * 1e3, LIMIT * 1e3))
if #late > 0 then
  print("late: " .. table.concat(late, ", "))
  os.exit(1, true)
end
