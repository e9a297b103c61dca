-- Finds paragraphs of a TeX document that say nearly the same:
--   texlua texlua_repeats.lua MODEL_FOLDER FILE.tex [THRESHOLD]
-- texlua is the Lua 5.3 of LuaTeX; it does not read LUA_CPATH, so HEED_CPATH has the pattern of heed.so, such as
-- build/lua5.3/?.so. Prints pairs of lines with their similarity, the most similar ones first.
package.cpath = (os.getenv "HEED_CPATH" or "") .. ";" .. package.cpath
local heed = require "heed"
heed.limit { seconds = 120, memory = 2 ^ 30 } -- for each call

local folder, path, threshold = arg[1], arg[2], tonumber(arg[3] or 0.8)
if not path or not threshold then
  io.stderr:write "usage: texlua texlua_repeats.lua MODEL_FOLDER FILE.tex [THRESHOLD from 0 to 1]\n"
  os.exit(2)
end
local model, problem = heed.models.load(folder)
local file = model and io.open(path, "rb")
if not file then
  io.stderr:write("texlua_repeats: ", model and ("'%s' cannot be read"):format(path) or problem, "\n")
  os.exit(1)
end

-- The text of a line: without comments, commands and braces.
local function plain(line)
  line = line:gsub("\\%%", "\0"):gsub("%%.*", ""):gsub("%z", "%%")
  return (line:gsub("\\[%a@]+%*?%b[]", " "):gsub("\\[%a@]+%*?", " "):gsub("[{}~$]", " "))
end

local paragraphs, begins, text, first, number = {}, {}, {}, nil, 0
local function finish()
  local whole = table.concat(text, " "):gsub("%s+", " "):match "^ ?(.-) ?$"
  if select(2, whole:gsub("%S+", "")) >= 5 then -- shorter ones, such as headings, are no paragraphs
    paragraphs[#paragraphs + 1], begins[#begins + 1] = whole, first
  end
  text, first = {}, nil
end
for line in file:lines() do
  number = number + 1
  if line:find "%S" then
    first = first or number
    text[#text + 1] = plain(line)
  else
    finish()
  end
end
finish()

if #paragraphs < 2 then os.exit(0) end
local vectors = model:encode(paragraphs)
local rows, found = vectors:matmul(vectors:transpose(1, 2)):tolist(), {}
for i = 1, #rows do
  for j = i + 1, #rows do
    if rows[i][j] >= threshold then found[#found + 1] = { rows[i][j], begins[i], begins[j] } end
  end
end
table.sort(found, function(a, b) return a[1] > b[1] or a[1] == b[1] and a[2] < b[2] end)
for _, pair in ipairs(found) do
  print(("%s:%d: %.2f like line %d"):format(path, pair[2], pair[1], pair[3]))
end
