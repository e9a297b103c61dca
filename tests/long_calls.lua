-- Calls that take long unless they are cancelled, most of them at least 0.2 s, some forever; a limit of seconds must
-- cancel them. Each is a row {name =, make =}: make() makes the inputs, without a limit, and returns the call.
-- `seconds` is a limit below 0.02 for calls that would end before that. `frames` marks calls of user code that may
-- yield; where that is impossible (5.1, LuaJIT), the time limit does not apply to such a call as a whole.
-- tests/spec/stops_spec.lua checks that each raises the limit's error; scripts/dev/check_stops.lua measures the delay.
local support = require "tests.support"
local heed = require "heed"
local nn = heed.nn

local calls, inputs = {}, {}

-- Adds a row and returns it, so that options can be set.
function inputs.call(name, make)
  local row = { name = name, make = make, seconds = 0.02 }
  calls[#calls + 1] = row
  return row
end

-- Numbers of elements: of a result of 2 GiB, of which a cancelled call writes little; of a view; of a saved file.
inputs.MANY, inputs.VERY_MANY, inputs.IN_FILE = 2 ^ 29, 2 ^ 33, 10 ^ 8

-- A single number expanded to a shape: a view that uses no memory.
function inputs.same(value, ...) return heed.tensor(value):expand(...) end

-- The same for int64 ones [count].
function inputs.ones(count) return heed.ones(1, { dtype = "int64" }):expand(count) end

-- A list of `count` times the same value.
function inputs.copies(value, count)
  local list = {}
  for i = 1, count do list[i] = value end
  return list
end

-- A module that contains `leaf` 2^levels times, through shared parts; each part is wrapped in `around`, if given.
function inputs.doubled(levels, leaf, around)
  local module = leaf or nn.Linear(1, 1)
  for _ = 1, levels do
    if around then
      module = nn.Sequential(around(module), around(module))
    else
      module = nn.Sequential(module, module)
    end
  end
  return module
end

function inputs.chain(length)
  local module = nn.Linear(1, 1)
  for _ = 1, length do module = nn.Sequential(module) end
  return module
end

local long
function inputs.long_list()
  long = long or nn.ModuleList(inputs.copies(nn.ReLU(), 500000))
  return long
end

-- A state of `count` tensors with long names.
function inputs.state_of(count)
  local state, x = {}, heed.zeros(1)
  for i = 1, count do state[("a.long.name.of.a.tensor.%d"):format(i)] = x end
  return state
end

-- The path of a new file with that ending, written by write(path). It exists as long as the second result, which the
-- call must keep alive.
function inputs.new_file(ending, write)
  local path = os.tmpname()
  os.remove(path)
  path = path .. ending
  write(path)
  return path, support.finalized(function() os.remove(path) end)
end

-- A call f(path) for a file with that text.
function inputs.with_text(ending, text, f)
  local path, keep = inputs.new_file(ending, function(path) support.write(path, text) end)
  return function() return f(path), keep end
end

inputs.SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

-- A tokenizer whose vocabulary has the special tokens and these lines.
function inputs.tokenizer(lines)
  local load = require("heed.tokenizers.wordpiece").load
  return assert(inputs.with_text(".txt", inputs.SPECIAL .. lines, load)())
end

-- Modules come last, because the long list is kept and slows down the garbage collector.
for _, part in ipairs { "tensors", "files", "training", "pictures", "modules" } do
  require("tests.long_calls." .. part)(inputs)
end

return calls
