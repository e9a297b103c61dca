-- What several specs share: running commands, and where the build is.
local support = {}

-- The Lua that runs this: "5.1", "5.2", "5.3", "5.4", "5.5" or "luajit"; what it has of what not all have.
support.lua = rawget(_G, "jit") and "luajit" or _VERSION:match "%d%.%d"
support.has = {
  integers = math.type ~= nil, -- luacheck: ignore 143
  close = support.lua == "5.4" or support.lua == "5.5", -- local x <close>
  bit_operators = math.type ~= nil, -- luacheck: ignore 143
  hooks = support.lua ~= "luajit", -- in compiled loops: Ctrl-C does not end them
  every_allocation = support.lua ~= "5.2", -- in support.at_allocation: a 5.2 pauses for 1600 bytes after a finalizer
}
if support.lua ~= "5.1" and support.lua ~= "luajit" then
  support.has.frames = true -- a module that is written in Lua is one call for limits.seconds
  support.has.places = true -- of the lines of last calls, `return f(x)`
  support.has.loops = true -- of ipairs over tensors and lists, of pairs over state dicts and own modules
  support.has.os_exit = true -- os.exit(true, true)
end

-- For what needs something of that table: `it`; on a Lua without, `pending` with the reason in the title. Both are
-- busted's, which gives them to specs alone: support.where("integers", it, pending)("title", function() … end).
function support.where(what, it, pending)
  if support.has[what] then return it end
  return function(title, test) return pending(("%s (Lua %s: no %s)"):format(title, support.lua, what), test) end
end

-- A chunk in the language of this Lua, which older ones would not read.
function support.compile(code) return assert((loadstring or load)(code)) end -- luacheck: ignore 113

-- `finalized(f)` gives an object with f for a finalizer: tables have none in 5.1. Also as text, for scripts.
support.finalized_code = [[
  local function finalized(f)
    local object = newproxy and newproxy(true) or setmetatable({}, {})
    getmetatable(object).__gc = f
    return newproxy and object or setmetatable({}, getmetatable(object))
  end
]]
support.finalized = support.compile(support.finalized_code .. "return finalized")()

-- Has the collector do a whole cycle wherever it may do anything, so that finalizers run in every allocation by Lua,
-- until the function that this gives is called.
function support.collect_always()
  local restore
  if support.lua == "5.5" then
    local pause, work = collectgarbage("param", "pause", 0), collectgarbage("param", "stepmul", 0)
    function restore()
      collectgarbage("param", "pause", pause)
      collectgarbage("param", "stepmul", work)
    end
  elseif support.lua == "5.4" then
    collectgarbage("incremental", 1, 1000, 100) -- a hundredth of a pause, steps of 2^100 bytes
    function restore() collectgarbage("incremental", 200, 100, 13) end
  else
    local pause, work = collectgarbage("setpause", 0), collectgarbage("setstepmul", 100000000)
    function restore()
      collectgarbage("setpause", pause)
      collectgarbage("setstepmul", work)
    end
  end
  collectgarbage() -- which ends the pause that there is,
  collectgarbage() -- and in a 5.2 the one that finalizers make
  return restore
end

-- The same while f(…) runs, with a finalizer that calls change() in the allocation of that number, from 1 up. Whether f
-- had so many, and what pcall(f, …) gives.
function support.at_allocation(number, change, f, ...)
  local objects = {} -- luacheck: ignore 241 (it keeps them alive, until they are taken out one by one)
  local count, over, stop = 0, false, nil
  local function finalize()
    if over then return end
    count = count + 1
    objects[count + 1] = nil
    if count < number then return end
    over = true
    stop()
    change()
  end
  coroutine.wrap(function() -- so that nothing of them stays in this stack, which would keep them alive
    for i = 1, number do objects[i] = support.finalized(finalize) end
  end)()
  stop = support.collect_always()
  objects[1] = nil
  local results = support.pack(pcall(f, ...))
  over = true
  stop()
  return count == number, support.unpack(results, 1, results.n)
end

-- That a number is an "integer" or a "float", where there is a difference.
function support.number_is(kind, number)
  assert(type(number) == "number" and (not math.type or math.type(number) == kind)) -- luacheck: ignore 143
end

-- The digits of an integer, which Lua before 5.3 writes as a float.
function support.digits(number) return ("%d"):format(number) end

-- The methods of tensors by name; the debug library of 5.1 does not see them.
function support.tensor_methods()
  local heed = require "heed"
  local x, methods = heed.ones(1), {}
  local _, found = debug.getupvalue(debug.getmetatable(x).__index, 2)
  if found then return found end
  for name, value in pairs(heed) do
    local fine, method = pcall(function() return x[name] end)
    if fine and method == value then methods[name] = value end
  end
  methods.iter = x.iter
  return methods
end

support.unpack = table.unpack or unpack -- luacheck: ignore 143 113
function support.pack(...) return { n = select("#", ...), ... } end

local build = os.getenv "HEED_BUILD" or "build"

-- A word for the shell.
function support.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

function support.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

function support.write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

-- Calls f with the name of a new empty file, which is gone afterwards.
function support.with_file(f)
  local path = os.tmpname()
  local results = support.pack(pcall(f, path))
  os.remove(path)
  if not results[1] then error(results[2], 0) end
  return support.unpack(results, 2, results.n)
end

-- Calls f with the path of a script that contains this code; the script is removed afterwards.
function support.with_script(code, f)
  return support.with_file(function(path)
    support.write(path, code)
    return f(path)
  end)
end

function support.remove_folder(path) assert(os.execute("rm -rf " .. support.quote(path))) end

-- A new empty folder, which the caller must remove.
function support.new_folder() return (support.run("mktemp -d").out:gsub("\n", "")) end

-- A copy of a folder, which the caller must remove.
function support.copy_folder(from)
  local path = support.new_folder()
  assert(os.execute(("cp -r %s/. %s"):format(support.quote(from), support.quote(path))))
  return path
end

-- Runs a shell command on the given standard input: {code = exit code, out = text, err = text}.
function support.run(command, input)
  return support.with_file(function(stdin)
    return support.with_file(function(stdout)
      return support.with_file(function(stderr)
        support.write(stdin, input or "")
        local status, _, code = os.execute(("{ %s\n} <%s >%s 2>%s"):format(command, stdin, stdout, stderr))
        if type(status) == "number" then code = status < 256 and status or math.floor(status / 256) end -- 5.1
        return { code = code, out = support.read(stdout), err = support.read(stderr) }
      end)
    end)
  end)
end

-- The folder of the repository and the runner, so that they can be named from any other.
support.top = support.run("pwd").out:gsub("\n$", "")
support.build = build:sub(1, 1) == "/" and build or support.top .. "/" .. build
support.runner = support.build .. "/heed"
support.heed = support.quote(support.runner) -- as the first word of a command

-- The folder of the model that `make model` fetches (or that HEED_MODEL names), or nil. Specs that need it are
-- pending without.
function support.model()
  local folder = os.getenv "HEED_MODEL" or support.top .. "/build/models/all-MiniLM-L6-v2"
  local file = io.open(folder .. "/model.safetensors", "rb")
  if file then file:close() end
  return file and folder
end

-- The command of a plain interpreter of that Lua, or nil.
function support.plain_lua()
  local found = support.run("scripts/dev/find_lua.sh " .. support.lua .. " interpreter")
  return found.code == 0 and found.out:gsub("\n$", "") or nil
end

return support
