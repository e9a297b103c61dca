-- Copies Lua files without comments, indentation and most spaces; line numbers stay.
--   strip.lua FOLDER FILE...
local folder = arg[1]

-- The end of the token at position i, and what replaces it.
local function token(text, i)
  local level = text:match("^%-%-%[(=*)%[", i) or text:match("^%[(=*)%[", i)
  if level then
    local _, last = text:find("]" .. level .. "]", i, true)
    local all = text:sub(i, last)
    return last, all:sub(1, 2) == "--" and all:gsub("[^\n]+", "") or all
  end
  if text:find("^%-%-", i) then return (text:find("\n", i, true) or #text + 1) - 1, "" end
  local quote = text:match("^[\"']", i)
  if quote then
    local last = i + 1
    while text:sub(last, last) ~= quote do last = last + (text:sub(last, last) == "\\" and 2 or 1) end
    return last, text:sub(i, last)
  end
  local _, last = text:find("^\n[ \t]*", i)
  if last then return last, "\n" end
  _, last = text:find("^[^-%[\"'\n]+", i)
  last = last or i
  return last, (text:sub(i, last):gsub(" ?([=,{}()+*/<>~]) ?", "%1"))
end

local function strip(text)
  local parts, i = {}, 1
  while i <= #text do
    local last, part = token(text, i)
    parts[#parts + 1] = part
    i = last + 1
  end
  return table.concat(parts)
end

local made = {} -- folders
for i = 2, #arg do
  local file = assert(io.open(arg[i]))
  local text = file:read "*a"
  file:close()
  local stripped = strip(text)
  -- The same program: compiled without the names that debugging needs, it is the same.
  local before, after = assert(load(text, "=x")), assert(load(stripped, "=x"))
  assert(string.dump(before, true) == string.dump(after, true), arg[i])
  local path = folder .. "/" .. arg[i]
  local inner = path:match "^(.*)/"
  if not made[inner] then made[inner] = os.execute(("mkdir -p '%s'"):format(inner)) end
  local out = assert(io.open(path, "w"))
  out:write(stripped)
  out:close()
end
