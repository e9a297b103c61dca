-- Values at the prompt, as text: tensors as they print, tables as constructors in which tensors are shapes.
local heed = require "heed"
local byte, find, format, gsub, match, rep = string.byte, string.find, string.format, string.gsub, string.match,
  string.rep
local ceil, floor = math.ceil, math.floor
local concat, sort = table.concat, table.sort

local show = {}

local WIDTH, ENTRIES, DEPTH = 80, 100, 5

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r" }
local function escape(c) return ESCAPES[c] or format("\\%03d", byte(c)) end

--- A string as a Lua literal in one line; letters beyond ASCII are unchanged.
function show.quoted(text) return '"' .. gsub(text, '[%c"\\]', escape) .. '"' end

--- "tensor [2, 3] float32"
function show.tensor(x)
  local known, released = pcall(heed.is_released, x)
  if known and released then return "released tensor" end
  return "tensor " .. match(tostring(x.shape), "%[.*%]") .. " " .. x.dtype
end

local function metafield(value, name)
  local meta = getmetatable(value)
  return type(meta) == "table" and rawget(meta, name) or nil
end

local function first_line(text)
  local line, more = match(text, "^([^\n]*)(\n?)")
  return more ~= "" and line .. " …" or line
end

local entries

-- A value inside of a table.
local function inner(value, indent, depth, seen)
  local kind = type(value)
  if kind == "string" then return show.quoted(value) end
  if heed.is_tensor(value) then return show.tensor(value) end
  if kind ~= "table" or metafield(value, "__tostring") then return first_line(tostring(value)) end
  if seen[value] then return "{…} (contains itself)" end
  if depth >= DEPTH then return "{…}" end
  return entries(value, indent, depth, seen)
end

-- Numbers in their order, then strings in theirs, then everything else.
local RANKS = { number = 1, string = 2 }
local function before(a, b)
  local x, y = type(a), type(b)
  if x ~= y then return (RANKS[x] or 3) < (RANKS[y] or 3) end
  if RANKS[x] then return a < b end
  return tostring(a) < tostring(b)
end

local function key_text(key)
  if type(key) == "string" and find(key, "^[%a_][%w_]*$") then return key end
  return "[" .. (type(key) == "string" and show.quoted(key) or tostring(key)) .. "]"
end

function entries(list, indent, depth, seen)
  seen[list] = true
  local parts, keys, in_array = {}, {}, 0
  while rawget(list, in_array + 1) ~= nil do in_array = in_array + 1 end
  local inside = indent .. "  "
  for i = 1, in_array < ENTRIES and in_array or ENTRIES do
    parts[#parts + 1] = inner(rawget(list, i), inside, depth + 1, seen)
  end
  local count = in_array
  for key in next, list do
    local position = type(key) == "number" and key >= 1 and key <= in_array and key % 1 == 0
    if not position then
      keys[#keys + 1] = key
      count = count + 1
    end
  end
  if #keys <= 100 * ENTRIES then sort(keys, before) end
  for i = 1, #keys do
    if #parts >= ENTRIES then break end
    parts[#parts + 1] = key_text(keys[i]) .. " = " .. inner(rawget(list, keys[i]), inside, depth + 1, seen)
  end
  if count > #parts then parts[#parts + 1] = format("… %d more", count - #parts) end
  seen[list] = nil
  if #parts == 0 then return "{}" end
  local line = "{ " .. concat(parts, ", ") .. " }"
  local shapes = find(line, "= tensor [", 1, true)
  if not shapes and #line + #indent <= WIDTH and not find(line, "\n", 1, true) then return line end
  return "{\n" .. inside .. concat(parts, ",\n" .. inside) .. ",\n" .. indent .. "}"
end

--- A result, as the prompt prints it.
function show.value(value)
  if type(value) == "string" then return show.quoted(value) end
  if type(value) ~= "table" or metafield(value, "__tostring") then return tostring(value) end
  return entries(value, "", 1, {})
end

local LONG = 22 -- longer texts come after the columns

--- Texts in columns, as wide as the terminal.
function show.columns(names, width)
  local longest, short, long = 0, {}, {}
  for i = 1, #names do
    if #names[i] > LONG then
      long[#long + 1] = names[i]
    else
      short[#short + 1] = names[i]
      longest = #names[i] > longest and #names[i] or longest
    end
  end
  local per_line = floor((width or WIDTH) / (longest + 2))
  local rows = ceil(#short / (per_line < 1 and 1 or per_line))
  local lines = {}
  for row = 1, rows do
    local cells = {}
    for i = row, #short, rows do cells[#cells + 1] = short[i] .. rep(" ", longest + 2 - #short[i]) end
    lines[row] = gsub(concat(cells), "%s+$", "")
  end
  for i = 1, #long do lines[#lines + 1] = long[i] end
  return concat(lines, "\n")
end

return show
