-- heed's rows for sequences.py, in groups: a script adds groups and then answers lines of standard input, one thread.
--   groups      answers the names of the groups, then "."
--   open GROUP  computes each row once; answers a line "row <tab> useful flops" for each, with a reason instead of the
--               number if there is no result, then "."
--   time I      answers the processor time in seconds of the I-th row of that group
local heed = require "heed"

heed.set_num_threads(1)
heed.manual_seed(1)

local rows = { unpack = table.unpack or unpack } -- luacheck: ignore 143 113
local groups, opened = {}, {}

--- Adds a group. Each row is {name, flops, make}; flops may be nil. make() returns
---   run    what is timed; a row whose result differs from that of the group's first row counts as wrong
---   as     turns the result into the form that is compared; false for a row that computes something else
---   undo   follows each call, unmeasured
function rows.group(name, list)
  groups[#groups + 1] = { name = name, list = list }
  groups[name] = groups[#groups]
end

--- `count` tensors of that shape.
function rows.random(count, ...)
  local list = {}
  for i = 1, count do list[i] = heed.randn(...) end
  return rows.unpack(list)
end

local function nothing() end

--- A row that is ready to be timed, with its first result in the form that is compared.
local function prepare(row, expected)
  local run, as, undo = row[3]()
  undo = undo or nothing
  local y = run()
  if as then y = as(y) end
  undo()
  if expected and y and as ~= false then
    local apart = (expected - y):abs():max():item()
    if apart ~= apart or apart >= 1e-4 then error(("wrong result: %g from that of the first row"):format(apart), 0) end
  end
  return { run = run, undo = undo }, y
end

local function open(name)
  opened = {}
  collectgarbage()
  collectgarbage()
  local expected
  for i, row in ipairs(groups[name].list) do
    local fine, ready, y = pcall(prepare, row, expected)
    if fine then
      expected, opened[i] = expected or y, ready
      print(("%s\t%.9g"):format(row[1], row[2] or 0))
    else
      print(("%s\t%s"):format(row[1], tostring(ready):match "^[^\n]*"))
    end
  end
end

local function time(i)
  collectgarbage()
  local row = opened[i]
  local start = os.clock()
  row.run()
  local seconds = os.clock() - start
  row.undo()
  return seconds
end

function rows.answer()
  print "ready"
  io.stdout:flush()
  for line in io.lines() do
    local command, rest = line:match "^(%a+) ?(.*)$"
    if command == "groups" then
      for _, group in ipairs(groups) do print(group.name) end
      print "."
    elseif command == "open" then
      open(rest)
      print "."
    else
      print(("%.9g"):format(time(tonumber(rest))))
    end
    io.stdout:flush()
  end
end

return rows
