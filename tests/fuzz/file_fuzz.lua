-- Makes random valid files of every format, reads them back, damages one thing in each and reads them again:
--   build/heed tests/fuzz/file_fuzz.lua [seed [files [seconds]]]
-- What was written must be read back; a damaged file gives a value or a message of the grammar; memory is given back.
-- Each file has a seed, which is printed with a problem: `file_fuzz.lua SEED 1` makes the same file again. A process
-- that
-- ends early is a problem, too: files are read in processes of 400 each. HEED_FUZZ_FORMAT limits it to the formats
-- whose
-- names contain this text, HEED_FUZZ_KEEP=path keeps the last file. The last line counts files and formats.
require "tests.older_lua"
local support = require "tests.support"
local chances = require "tests.fuzz.chances"
local BATCH = 400

local function list_formats()
  local formats, names = require "tests.fuzz.formats", {}
  local wanted = os.getenv "HEED_FUZZ_FORMAT" or ""
  for name in pairs(formats) do
    if name:find(wanted, 1, true) then names[#names + 1] = name end
  end
  table.sort(names)
  return formats, names
end

-- ---- One process --------------------------------------------------------------------------------

local function run_batch(first, last, folder)
  local heed = require "heed"
  local pieces = require "tests.fuzz.pieces"
  local formats, names = list_formats()
  local longest = tonumber(os.getenv "HEED_FUZZ_LONGEST") or 4
  local problems, read, refused, kept = 0, 0, 0, 0
  local seed, format

  local function problem(...)
    problems = problems + 1
    print(("seed %d, %s: %s"):format(seed, format, (...):format(select(2, ...))))
  end

  local function judge(message, raised)
    if type(message) ~= "string" then return problem("the message is %s", tostring(message)) end
    local text = message:gsub("^" .. support.top:gsub("%p", "%%%0") .. "/",
      ""):gsub("^%.?/?tests/fuzz/[%w_]+%.lua:%d+: ", "")
    if not text:find "^[%w_ .:]+: ." or text:find "[\n]$" or text:find "^[^\n]-:%d+: " or text:find "attempt to " then
      problem("%s: %s", raised and "raised" or "returned", message)
    end
  end

  local function load(case, path)
    local begin = os.clock()
    local fine, value, message = pcall(case.load, path)
    if os.clock() - begin > longest then problem("took %.1f s of processor time", os.clock() - begin) end
    if not fine then
      judge(value, true)
    elseif value == nil or type(message) == "string" then -- beside a value: what failed when it was used
      judge(message)
    end
    return fine and value, fine and message or value
  end

  local function same(value, want)
    return heed.is_tensor(value) and value.dtype == want.dtype
      and table.concat(value.shape, ",") == table.concat(want.sizes, ",")
      and value:to_string() == want.bytes
  end

  local function check(case, value, message)
    if case.tensors == nil then
      if not value then problem("an undamaged file is refused: %s", message) end
      return
    end
    if not value then return problem("an undamaged file is refused: %s", message) end
    if heed.is_tensor(value) then value = { value } end
    for name, want in pairs(case.tensors) do
      if not same(value[name], want) then problem("%s is not what was written", name) end
    end
  end

  local function in_use()
    for _ = 1, 3 do collectgarbage() end
    return heed.info().memory_in_use
  end

  local baseline
  for number = first, last do
    seed, format = number, names[number % #names + 1]
    support.write(folder .. "/running", ("%d, %s"):format(seed, format))
    chances.seed(seed)
    heed.manual_seed(seed)
    heed.limit { memory = 2 ^ 28, seconds = 2 }
    local case = formats[format](folder)
    local path = folder .. "/" .. case.ending
    local function write(text)
      support.write(path, text)
      if os.getenv "HEED_FUZZ_KEEP" then support.write(os.getenv "HEED_FUZZ_KEEP", text) end
    end
    if number % 5 == 0 or first == last then
      write(pieces.emit(case.file))
      check(case, load(case, path))
    end
    for _ = 1, chances.chance(80) and 1 or 2 do pieces.damage(case.file) end
    write(pieces.emit(case.file))
    if load(case, path) then read = read + 1 else refused = refused + 1 end
    case = nil -- luacheck: ignore 311
    if number % 50 == 0 then
      local now = in_use()
      if baseline and now ~= baseline then problem("%d bytes are not given back (in the last 50 files)",
        now - baseline) end
      baseline = now
    end
    kept = kept + 1
  end
  print(("count\t%d\t%d\t%d\t%d"):format(kept, read, refused, problems))
  os.exit(problems == 0 and 0 or 1, true)
end

if arg[1] == "--run" then run_batch(tonumber(arg[2]), tonumber(arg[3]), arg[4]) end

-- ---- Processes ----------------------------------------------------------------------------------

local seed, files, seconds = tonumber(arg[1]) or 1, tonumber(arg[2]) or 2000, tonumber(arg[3]) or math.huge
local folder = support.new_folder()
local counts, problems, begin = { 0, 0, 0 }, 0, os.time()
while counts[1] < files and os.time() - begin < seconds and problems < 20 do
  local last = seed + math.min(BATCH, files - counts[1]) - 1
  local command = "ulimit -c 0; timeout 3000 %s %s/tests/fuzz/file_fuzz.lua --run %d %d %s"
  local result = support.run(command:format(support.heed,
    support.quote(support.top), seed, last, support.quote(folder)))
  local kept, read, refused, wrong = result.out:match "count\t(%d+)\t(%d+)\t(%d+)\t(%d+)"
  io.write((result.out:gsub("count\t[^\n]*\n", "")))
  if not kept then
    local at = support.read(folder .. "/running")
    print(("seed %s: the process ended with %d: %s"):format(at, result.code, result.err:sub(1, 3000)))
    problems, kept = problems + 1, tonumber(at:match "%d+") - seed + 1
    counts[1], seed = counts[1] + kept, seed + kept
  else
    problems = problems + wrong
    if result.code ~= 0 and tonumber(wrong) == 0 then
      problems = problems + 1
      print(("seeds %d to %d: the process ended with %d: %s"):format(seed, last, result.code, result.err:sub(1, 3000)))
    end
    for i, each in ipairs { kept, read, refused } do counts[i] = counts[i] + each end
    seed = last + 1
  end
end
support.remove_folder(folder)
local _, names = list_formats()
print(("%d files of %d formats, %d damaged ones were read and %d refused, %d problems"):format(counts[1], #names,
  counts[2],
  counts[3], problems))
os.exit(problems == 0 and 0 or 1, true)
