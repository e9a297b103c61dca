-- Calls of heed that take long if nothing stops them, most of them 0.2 s and more, some for ever: a limit of seconds
-- must. Each is a row {name =, make =}: make() makes the inputs, which is not limited, and returns the call. `seconds`
-- is a limit below 0.02 for those that end too soon for that, at the speed of memory; `frames` says that it calls what
-- may yield, and is no call of its own where that cannot be (5.1, LuaJIT).
-- tests/spec/stops_spec.lua has each raise the limit's error; scripts/dev/check_stops.lua measures how soon.
local support = require "tests.support"
local heed = require "heed"
local nn = heed.nn

local calls, inputs = {}, {}

-- A row, to which options can be added.
function inputs.call(name, make)
  local row = { name = name, make = make, seconds = 0.02 }
  calls[#calls + 1] = row
  return row
end

-- Elements of a result of 2 GiB, of which a call that is stopped touches little; of an input without memory; of a file.
inputs.MANY, inputs.VERY_MANY, inputs.IN_FILE = 2 ^ 29, 2 ^ 33, 10 ^ 8

-- One number, as often as that: a view, without memory.
function inputs.same(value, ...) return heed.tensor(value):expand(...) end

-- Ones of int64, likewise.
function inputs.ones(count) return heed.ones(1, { dtype = "int64" }):expand(count) end

-- The same value so many times, as a list.
function inputs.copies(value, count)
  local list = {}
  for i = 1, count do list[i] = value end
  return list
end

-- A module that is in itself 2^levels times; in a module `around` each time.
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

-- Tensors under so many long names.
function inputs.state_of(count)
  local state, x = {}, heed.zeros(1)
  for i = 1, count do state[("a.long.name.of.a.tensor.%d"):format(i)] = x end
  return state
end

-- The path of a new file of that ending, which write(path) fills; it is there as long as the second result, which the
-- call must hold.
function inputs.new_file(ending, write)
  local path = os.tmpname()
  os.remove(path)
  path = path .. ending
  write(path)
  return path, support.finalized(function() os.remove(path) end)
end

-- A call of f(path) with a file of that text.
function inputs.with_text(ending, text, f)
  local path, keep = inputs.new_file(ending, function(path) support.write(path, text) end)
  return function() return f(path), keep end
end

inputs.SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

-- A tokenizer whose vocabulary has these lines besides.
function inputs.tokenizer(lines)
  local load = require("heed.tokenizers.wordpiece").load
  return assert(inputs.with_text(".txt", inputs.SPECIAL .. lines, load)())
end

-- The modules last: the long list stays, and the collector takes longer with it.
for _, part in ipairs { "tensors", "files", "modules" } do require("tests.long_calls." .. part)(inputs) end

return calls
