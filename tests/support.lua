-- What several specs share: running commands, and where the build is.
local support = {}

local build = os.getenv "HEED_BUILD" or "build"

-- A word for the shell.
function support.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

function support.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
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
  local results = table.pack(pcall(f, path))
  os.remove(path)
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

-- Runs a shell command on the given standard input: {code = exit code, out = text, err = text}.
function support.run(command, input)
  return support.with_file(function(stdin)
    return support.with_file(function(stdout)
      return support.with_file(function(stderr)
        support.write(stdin, input or "")
        local _, _, code = os.execute(("{ %s\n} <%s >%s 2>%s"):format(command, stdin, stdout, stderr))
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

-- The command of a plain Lua 5.4, or nil.
function support.plain_lua()
  for _, name in ipairs { "lua5.4", "lua-5.4", "lua54", "lua" } do
    if support.run(name .. " -v").out:find "^Lua 5%.4" then return name end
  end
end

return support
