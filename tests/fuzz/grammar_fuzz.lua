-- Runs random programs over the whole public interface, as grammar.lua makes them from the annotations:
--   build/heed tests/fuzz/grammar_fuzz.lua [seed [programs [seconds]]]
-- Programs of consecutive seeds run in processes of their own, until there were `programs` of them (1,000 by default)
-- or the seconds are over. A crash, a sanitizer's report, a message that breaks the grammar of messages, a call that
-- takes
-- too long, and memory that is not given back are failures: the program is shrunk and printed as a script, with its
-- seed. The last line counts programs, calls, and the functions that were called, also with success.
--   build/heed tests/fuzz/grammar_fuzz.lua --script FILE     runs such a script again
-- HEED_FUZZ_LIST names the functions that were never called and those that never succeeded.
local top = debug.getinfo(1, "S").source:match "^@(.*)tests/fuzz/grammar_fuzz.lua$" or ""
if top ~= "" then package.path = top .. "?.lua;" .. package.path end
require "tests.older_lua"
local SUBJECTS, BATCH = 25, 40 -- calls from the list in a program; programs in a process

-- ---- The process that runs programs -------------------------------------------------------------

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function read(path)
  local file = io.open(path, "rb")
  if not file then return "" end
  local text = file:read "*a"
  file:close()
  return text
end

local function run_scripts(results, next_text)
  local T = require "tests.fuzz.trials"
  local lines = {}
  for seed, text in next_text do
    write("program.lua", text)
    write("running", tostring(seed))
    for _, problem in ipairs(T.run(text, "program")) do
      lines[#lines + 1] = ("wrong\t%d\t%s"):format(seed, problem:gsub("\n", " "))
    end
  end
  for _, list in ipairs { "reached", "refused" } do
    for label, count in pairs(T[list]) do lines[#lines + 1] = ("%s\t%d\t%s"):format(list, count, label) end
  end
  lines[#lines + 1] = ("count\t%d\tcalls"):format(T.count)
  write(results, table.concat(lines, "\n") .. "\n")
  os.exit(0, true)
end

if arg[1] == "--run" then
  local grammar = require "tests.fuzz.grammar"
  local seed, last = tonumber(arg[2]) - 1, tonumber(arg[3])
  run_scripts("results", function()
    seed = seed + 1
    if seed <= last then return seed, grammar.text(grammar.program(seed, SUBJECTS)) end
  end)
elseif arg[1] == "--script" then
  local text = read(arg[2])
  local done = false
  run_scripts(arg[3] or "/dev/stdout", function()
    if done then return end
    done = true
    return 0, text
  end)
end

-- ---- Judging and shrinking ----------------------------------------------------------------------

local support = require "tests.support"
local grammar = require "tests.fuzz.grammar"
local seed, programs, seconds = tonumber(arg[1]) or 1, tonumber(arg[2]) or 1000, tonumber(arg[3]) or math.huge
local folder = support.new_folder()
local golden = support.quote(support.top .. "/tests/golden")
assert(os.execute(("cd %s && cp -r decoders encoders files tokenizers tiny_gpt2.safetensors %s"):format(golden,
  support.quote(folder))))
local bounds = support.build:find "asan" and "" or "ulimit -v 3000000 2>/dev/null; "

-- Runs this script in the folder; returns its exit code, its results and its last words.
local function run(...)
  os.remove(folder .. "/results")
  local words = { ... }
  for i, word in ipairs(words) do words[i] = support.quote(tostring(word)) end
  local command = "cd %s && %sulimit -c 0; timeout 3000 %s %s/tests/fuzz/grammar_fuzz.lua %s >/dev/null"
  local result = support.run(command:format(
    support.quote(folder), bounds, support.heed, support.quote(support.top), table.concat(words, " ")))
  return result.code, read(folder .. "/results"), result.err
end

-- The first problem of a run: "label: message", or what a process that ended early said last.
local function problem_of(code, results, err)
  if results == "" or code ~= 0 then
    local said = err:match "ERROR: [^\n]*" or err:match "runtime error: [^\n]*" or err:match "[^\n]*\n?$"
    return ("the process ended with %d: %s"):format(code, said), "process"
  end
  local problem = results:match "wrong\t%-?%d+\t([^\n]*)"
  return problem, problem and problem:match("^[^:]*:?[^:]*"):gsub("%-?%d[%d.]*", "0")
end

-- Removes statements as long as the same problem stays.
local function shrink(list, kind)
  local function fails(statements)
    write(folder .. "/shrunk.lua", grammar.text(statements))
    local _, found = problem_of(run("--script", folder .. "/shrunk.lua", folder .. "/results"))
    return found == kind
  end
  local size = math.ceil(#list / 2)
  while size >= 1 do
    local i = 1
    while i <= #list do
      local fewer = {}
      for k, each in ipairs(list) do
        if k < i or k >= i + size then fewer[#fewer + 1] = each end
      end
      if #fewer < #list and fails(fewer) then list = fewer else i = i + size end
    end
    size = size > 1 and math.ceil(size / 2) or 0
  end
  return list
end

local problems = 0
local function report(number, problem, kind)
  problems = problems + 1
  io.write(("seed %d: %s\n"):format(number, problem))
  local list = grammar.program(number, SUBJECTS)
  write(folder .. "/shrunk.lua", grammar.text(list))
  local _, alone = problem_of(run("--script", folder .. "/shrunk.lua", folder .. "/results"))
  if alone == kind then
    io.write(grammar.text(shrink(list, kind)))
  else
    io.write("(not by itself: it needs the programs before it in the same process)\n")
  end
end

-- ---- The loop -----------------------------------------------------------------------------------

local count, total, reached, refused = 0, 0, {}, {}
local begin = os.time()
while count < programs and os.time() - begin < seconds and problems < 5 do
  local last = seed + math.min(BATCH, programs - count) - 1
  local code, results, err = run("--run", seed, last)
  local problem, kind = problem_of(code, results, err)
  if kind == "process" then
    local at = tonumber(read(folder .. "/running")) or seed
    report(at, problem, kind)
    io.write(err:sub(1, 3000), "\n")
    count, seed = count + at - seed + 1, at + 1
  else
    if problem then report(tonumber(results:match "wrong\t(%d+)"), problem, kind) end
    count, seed = count + last - seed + 1, last + 1
  end
  for name, number, label in results:gmatch "(%a+)\t(%d+)\t([^\n]*)" do
    if name == "count" then total = total + number end
    local list = name == "reached" and reached or name == "refused" and refused
    if list then list[label] = (list[label] or 0) + number end
  end
end

local called, succeeded, never, only = 0, 0, {}, {}
for _, call in ipairs(grammar.calls) do
  local label = call.label
  if reached[label] then succeeded = succeeded + 1 end
  if reached[label] or refused[label] then called = called + 1 else never[#never + 1] = label end
  if refused[label] and not reached[label] then only[#only + 1] = label end
end
if os.getenv "HEED_FUZZ_LIST" then
  print("never called: " .. table.concat(never, ", "))
  print("never with success: " .. table.concat(only, ", "))
end
support.remove_folder(folder)
print(("%d programs, %d calls, %d of %d functions called, %d with success, %d problems"):format(count, total, called,
  #grammar.calls, succeeded, problems))
os.exit(problems == 0 and 0 or 1, true)
