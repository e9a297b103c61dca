-- Runs the examples of scripts/site/examples. Each begins with a line of the names of the entries that show it,
--   --## x:sum, x:mean
-- and is run by itself, after examples.SETUP, with the defaults of a new Lua state.
local heed = require "heed"
local top = ... -- the folder of the repository, with a slash

local examples = {}

--- What stands before each example. Readers who copy one need it, too.
examples.SETUP = 'local heed = require "heed"; local nn, F = heed.nn, heed.nn.functional; heed.manual_seed(123)'

local by_name, list, reasons = {}, {}, {}

local function read(path)
  local example
  for line in io.lines(path) do
    local names = line:match "^%-%-## (.*)$"
    if names then
      example = { names = {}, code = {}, path = path }
      list[#list + 1] = example
      for name in names:gmatch "[^, ]+" do
        assert(not by_name[name], ("%s has two examples, one in %s"):format(name, path))
        by_name[name] = example
        example.names[#example.names + 1] = name
      end
    elseif example then
      table.insert(example.code, line)
    end
  end
end

local pipe = assert(io.popen("ls " .. top .. "scripts/site/examples/*.lua"))
for path in pipe:lines() do
  if path:find "without%.lua$" then reasons = dofile(path) else read(path) end
end
pipe:close()
for _, example in ipairs(list) do
  example.code = table.concat(example.code, "\n"):gsub("^%s+", ""):gsub("%s+$", "") .. "\n"
end

--- All examples: {names, code, path}.
function examples.all() return list end

--- Whether there is an example for a name.
function examples.has(name) return by_name[name] ~= nil end

--- The names that have an example or a reason for having none.
function examples.names()
  local names = {}
  for _, of in ipairs { by_name, reasons } do
    for name in pairs(of) do names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

--- Why an entry has no example, or nil.
function examples.reason(name) return reasons[name] end

local function reset()
  heed.limit { memory = math.huge, seconds = math.huge, work = math.huge, threads = math.huge }
  heed.manual_seed(123, "mt19937")
  heed.set_printoptions { profile = "default" }
  heed.set_grad_enabled(false)
  heed.set_num_threads(1)
  heed.set_matmul_precision "highest"
  heed.set_dropout_stream "native"
  local dist = package.loaded["heed.distributed"]
  if dist and dist.is_initialized() then dist.destroy_process_group() end
end

local function run(example)
  local out = {}
  local function write(...) -- as io.write, which shows 1.0 as 1
    for i = 1, select("#", ...) do
      local value = select(i, ...)
      out[#out + 1] = math.type(value) == "float" and ("%.14g"):format(value) or tostring(value)
    end
    return io.stdout
  end
  local env = setmetatable({ heed = heed, nn = heed.nn, F = heed.nn.functional }, { __index = _G })
  function env.print(...)
    for i = 1, select("#", ...) do write(i > 1 and "\t" or "", tostring((select(i, ...)))) end
    write "\n"
  end
  local name = "the example of " .. example.names[1]
  local chunk, problem = load(example.code, "=example", "t", env)
  if not chunk then error(("%s: %s"):format(name, problem), 0) end
  reset()
  local own = io.write
  rawset(io, "write", write) -- for heed's charts, too
  local fine, message = pcall(chunk)
  rawset(io, "write", own)
  reset()
  if not fine then error(("%s: %s"):format(name, message), 0) end
  return table.concat(out)
end

--- The example of an entry, {code, output}; nil if it has none. Raises what the example raises.
function examples.run(name)
  local example = by_name[name]
  if example and not example.output then example.output = run(example) end
  return example
end

return examples
