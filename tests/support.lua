-- Shared by the specs: differences between Luas, running commands, temporary files, the location of the build.
local support = {}

-- The Lua that runs this: "5.1", "5.2", "5.3", "5.4", "5.5" or "luajit"; and which optional features it has.
support.lua = rawget(_G, "jit") and "luajit" or _VERSION:match "%d%.%d"
support.has = {
  integers = math.type ~= nil, -- luacheck: ignore 143
  close = support.lua == "5.4" or support.lua == "5.5", -- local x <close>
  bit_operators = math.type ~= nil, -- luacheck: ignore 143
  hooks = support.lua ~= "luajit", -- LuaJIT ignores hooks in compiled loops, so that Ctrl-C does not end them
  every_allocation = support.lua ~= "5.2", -- for support.at_allocation; 5.2 pauses after a finalizer
}
if support.lua ~= "5.1" and support.lua ~= "luajit" then
  support.has.frames = true -- limits.seconds applies to a forward pass written in Lua as a whole
  support.has.locations = true -- errors in a tail call, `return f(x)`, have the line of the caller
  support.has.loops = true -- ipairs works on tensors and lists, pairs on state dicts and user-defined modules
  support.has.os_exit = true -- os.exit(true, true)
end

-- For a test that needs one of these features: returns `it`, or `pending` with the reason in the title on Luas without
-- it. Both are busted's and passed by the spec: support.where("integers", it, pending)("title", function() … end).
function support.where(what, it, pending)
  if support.has[what] then return it end
  return function(title, test) return pending(("%s (Lua %s: no %s)"):format(title, support.lua, what), test) end
end

-- Compiles a chunk with syntax that older Luas cannot read.
function support.compile(code) return assert((loadstring or load)(code)) end -- luacheck: ignore 113

-- `finalized(f)` makes an object with the finalizer f; in 5.1 tables cannot have one. Also as text, for scripts. It
-- switches LuaJIT's compiler off: compiled code that a finalizer runs can loop forever there (about one run of the
-- fuzzer in fifty; the exit of a trace leads back to its beginning).
support.finalized_code = [[
  local function finalized(f)
    if jit and jit.status() then jit.off() jit.flush() end
    local object = newproxy and newproxy(true) or setmetatable({}, {})
    getmetatable(object).__gc = f
    return newproxy and object or setmetatable({}, getmetatable(object))
  end
]]
support.finalized = support.compile(support.finalized_code .. "return finalized")()

-- Makes the garbage collector run a full cycle whenever it may run, so that finalizers run in every allocation by Lua.
-- Returns a function that ends this.
function support.collect_always()
  local restore
  if support.lua == "5.5" then
    local pause, work = collectgarbage("param", "pause", 0), collectgarbage("param", "stepmul", 0)
    function restore()
      collectgarbage("param", "pause", pause)
      collectgarbage("param", "stepmul", work)
    end
  elseif support.lua == "5.4" then
    collectgarbage("incremental", 1, 1000, 100) -- hardly any pause, steps of 2^100 bytes
    function restore() collectgarbage("incremental", 200, 100, 13) end
  else
    local pause, work = collectgarbage("setpause", 0), collectgarbage("setstepmul", 100000000)
    function restore()
      collectgarbage("setpause", pause)
      collectgarbage("setstepmul", work)
    end
  end
  collectgarbage() -- ends the current pause
  collectgarbage() -- ends the pause after finalizers in 5.2
  return restore
end

-- Calls f(…) like that, with a finalizer that calls change() in allocation `number` of f, counted from 1. Returns
-- whether f made that many allocations, and the results of pcall(f, …).
function support.at_allocation(number, change, f, ...)
  local objects = {} -- luacheck: ignore 241 (keeps them alive until they are removed one by one)
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
  coroutine.wrap(function() -- so that no reference stays on this stack, which would keep them alive
    for i = 1, number do objects[i] = support.finalized(finalize) end
  end)()
  stop = support.collect_always()
  objects[1] = nil
  local results = support.pack(pcall(f, ...))
  over = true
  stop()
  return count == number, support.unpack(results, 1, results.n)
end

-- `more` in `make nightly`, which sets HEED_NIGHTLY; else `less`.
function support.nightly(more, less) return os.getenv "HEED_NIGHTLY" and more or less end

-- Asserts that a number is an "integer" or a "float", on Luas that distinguish them.
function support.number_is(kind, number)
  assert(type(number) == "number" and (not math.type or math.type(number) == kind)) -- luacheck: ignore 143
end

-- The digits of an integer; Lua before 5.3 would print a float.
function support.digits(number) return ("%d"):format(number) end

-- The methods of tensors by name; with 5.1 the debug library cannot list them.
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

-- A big-endian machine reverses the numbers of files, so it cannot map them.
support.big_endian = support.lua == "5.4" and string.pack("=I2", 1) == "\0\1"

-- Quotes a word for the shell.
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

-- Calls f with the path of a new empty file, which is removed afterwards. Returns the results of f.
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

-- Runs a shell command with `input` as standard input. Returns {code = exit code, out = text, err = text}.
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

-- Absolute paths of the repository, the build folder and the runner.
support.top = support.run("pwd").out:gsub("\n$", "")
support.build = build:sub(1, 1) == "/" and build or support.top .. "/" .. build
support.runner = support.build .. "/heed"
support.heed = support.quote(support.runner) -- quoted, for shell commands

-- The folder of the model that `make model NAME=…` fetches, all-MiniLM-L6-v2 by default, or nil; specs that need it are
-- pending then. HEED_MODEL names the folder of all-MiniLM-L6-v2; the others may be beside it.
function support.model(name)
  local folder = os.getenv "HEED_MODEL" or support.top .. "/build/models/all-MiniLM-L6-v2"
  if name then folder = folder:gsub("[^/]*/?$", "") .. name end
  local file = io.open(folder .. "/model.safetensors", "rb") or io.open(folder .. "/model.gguf", "rb")
  if file then file:close() end
  return file and folder
end

-- The command of a plain interpreter of the same Lua, or nil.
function support.plain_lua()
  local found = support.run("scripts/dev/find_lua.sh " .. support.lua .. " interpreter")
  return found.code == 0 and found.out:gsub("\n$", "") or nil
end

return support
