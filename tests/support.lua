-- What several specs share: running commands, and where the build is.
local support = {}

-- The Lua that runs this: "5.1", "5.2", "5.3", "5.4" or "luajit"; what it has of what not all have.
support.lua = rawget(_G, "jit") and "luajit" or _VERSION:match "%d%.%d"
support.has = {
  integers = math.type ~= nil, -- luacheck: ignore 143
  close = support.lua == "5.4", -- local x <close>
  yields = support.lua ~= "5.1" and support.lua ~= "luajit", -- through functions of C, and tables' __pairs and __len
}

-- `it` for what needs something of that table; pending, with the reason as text, on a Lua without.
function support.it_with(what, title, test)
  if support.has[what] then return it(title, test) end
  return pending(title .. (" (Lua %s has no %s)"):format(support.lua, what))
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
