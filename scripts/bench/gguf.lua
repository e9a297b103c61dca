-- heed's side of gguf.py: answers each line of standard input with a number.
--   heed gguf.lua FILE.gguf   precision NAME: how products are computed from now on; answers 0
--                             prefill N: processor seconds for the logits of the last of N tokens
--                             decode N: processor seconds for N tokens after a prompt of 32, one at a time
--                             error N: the root mean square error of the logits, relative to those with "highest"
local heed = require "heed"
heed.set_num_threads(1)
local model = assert(heed.models.load(arg[1]))
print "ready"
io.stdout:flush()

local function prompt(n)
  local ids = {}
  for i = 1, n do ids[i] = i * 7919 % 40000 + 101 end
  return ids
end

local commands = {}

function commands.precision(name)
  heed.set_matmul_precision(name)
  return 0
end

function commands.prefill(n)
  local ids = prompt(n)
  local start = os.clock()
  model(ids, { logits_to_keep = 1 })
  return os.clock() - start
end

function commands.decode(n)
  local start, seconds
  model:generate(prompt(32), { max_new_tokens = n + 1, stop = {}, on_token = function()
    seconds = start and os.clock() - start
    start = start or os.clock()
  end })
  return seconds
end

function commands.error(n)
  local chosen = heed.get_matmul_precision()
  heed.set_matmul_precision "highest"
  local want = model(prompt(n))
  heed.set_matmul_precision(chosen)
  return ((model(prompt(n)) - want):square():mean() / want:square():mean()):sqrt():item()
end

for line in io.lines() do
  local name, argument = line:match "^(%l+) (%S+)$"
  print(("%.9g"):format(commands[name](tonumber(argument) or argument)))
  io.stdout:flush()
end
