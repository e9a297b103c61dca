--- The values of chat templates. Strings, numbers and booleans are Lua's; the others are objects:
--   a marked string   {text, marks}: which bytes come from a message ("u") and which from the template ("t"), so that
--                     special tokens in a message stay text; it behaves as a string
--   a list            {kind = "list", …}; tuple = true prints it with round brackets
--   a dict            {kind = "dict", keys = {…}, values = {…}}, in the order of its keys; namespace = true can be set
--   a float           {kind = "float", number}, whose whole numbers print with a point
-- and V.NONE and V.UNDEFINED.

local E = require "heed.nn.entries"

local V = { NONE = { kind = "none" }, UNDEFINED = { kind = "undefined" } }

local MOST_BYTES, MOST_STEPS = 2 ^ 24, 2 ^ 24 -- of one string; of one rendering

local Marked = {}

-- ---- Limits -------------------------------------------------------------------------------------

--- Raises an error in the line that runs, V.line, with V.message ("message 2 (user)" or nil), the one that the
--- innermost loop over messages has come to.
function V.fail(message, ...)
  E.fail("apply_chat_template: line %d of the template%s: " .. message, V.line, V.message and ", " .. V.message or "",
    ...)
end

local steps, charged = 0, 0
local STEP_BYTES = 64 -- of a text that one step goes through

--- Counts work; raises where a template never ends, or the host has cancelled the call.
function V.step(count)
  steps = steps + (count or 1)
  if steps > MOST_STEPS then
    V.fail("the template makes more than %d steps; it may never end", MOST_STEPS)
  end
  if steps - charged < 64 then return end
  local units = steps - charged
  charged = steps
  E.check_cancel("apply_chat_template", units)
end

function V.begin() steps, charged, V.line, V.message = 0, 0, 1, nil end

local function check_size(bytes)
  if bytes > MOST_BYTES then
    V.fail("a text has %.0f bytes; the template may make at most %.0f", bytes, MOST_BYTES)
  end
end

-- ---- Strings ------------------------------------------------------------------------------------

function V.is_string(value) return type(value) == "string" or getmetatable(value) == Marked end

--- A string that comes from a message.
function V.mark(text)
  if text == "" then return text end
  return setmetatable({ text = text, marks = ("u"):rep(#text) }, Marked)
end

--- Its text; raises for other values. Counts the steps of going through it.
function V.text(value)
  local text = value
  if type(value) ~= "string" then
    if getmetatable(value) ~= Marked then V.fail("%s comes where a string must be", V.what(value)) end
    text = value.text
  end
  if #text >= STEP_BYTES then V.step(math.floor(#text / STEP_BYTES)) end
  return text
end

--- The marks of a string, one byte for each of its bytes.
function V.marks(value) return type(value) == "string" and ("t"):rep(#value) or value.marks end

local function marked(text, marks)
  if not marks:find("u", 1, true) then return text end
  return setmetatable({ text = text, marks = marks }, Marked)
end

--- Bytes first to last of a string.
function V.sub(value, first, last)
  if type(value) == "string" then return value:sub(first, last) end
  return marked(value.text:sub(first, last), value.marks:sub(first, last))
end

--- The strings of a list joined.
function V.concat(list, separator)
  local texts, marks, plain, bytes = {}, {}, true, 0
  for _, each in ipairs(list) do
    if separator and #texts > 0 then texts[#texts + 1] = separator end
    texts[#texts + 1] = each
  end
  for i, each in ipairs(texts) do
    plain = plain and type(each) == "string"
    bytes = bytes + #V.text(each)
    V.step()
    check_size(bytes)
    marks[i] = each
  end
  if plain then return table.concat(texts) end
  for i, each in ipairs(marks) do
    texts[i], marks[i] = V.text(each), V.marks(each)
  end
  return marked(table.concat(texts), table.concat(marks))
end

--- A string made from `value` as a whole: of a message if any of it is.
function V.derived(text, value)
  check_size(#text)
  return type(value) == "string" and text or V.mark(text)
end

--- The text with its bytes replaced by `count` others keeps its marks where the size is the same.
function V.changed(text, value)
  if type(value) == "string" then return text end
  if #text ~= #value.text then return V.mark(text) end
  return marked(text, value.marks)
end

--- The number of characters, and the byte where character i (from 1) begins; past the end it is #text + 1.
function V.length(text)
  return text:find "[\128-\255]" and select(2, text:gsub("[^\128-\191]", "")) or #text
end

-- ---- Lists and dicts ----------------------------------------------------------------------------

function V.list(items, tuple)
  items.kind, items.tuple = "list", tuple
  return items
end

function V.dict(namespace) return { kind = "dict", keys = {}, values = {}, namespace = namespace } end

function V.set(dict, key, value)
  if dict.values[key] == nil then dict.keys[#dict.keys + 1] = key end
  dict.values[key] = value
end

--- A key for the values of a dict.
function V.key(value) return V.is_string(value) and V.text(value) or value end

function V.kind(value)
  if V.is_string(value) then return "string" end
  return type(value) == "table" and value.kind or type(value)
end

local NAMES = { none = "None", undefined = "an undefined value", list = "a list", dict = "a mapping",
  float = "a float", string = "a string", number = "a number", boolean = "a boolean", ["function"] = "a function" }

--- A description for messages.
function V.what(value) return NAMES[V.kind(value)] or "nothing" end

function V.number(value)
  if type(value) == "number" then return value end
  if type(value) == "boolean" then return value and 1 or 0 end
  return V.kind(value) == "float" and value[1] or nil
end

function V.truth(value)
  local kind = V.kind(value)
  if kind == "boolean" then return value end
  if kind == "string" then return V.text(value) ~= "" end
  if kind == "list" then return #value > 0 end
  if kind == "dict" then return value.namespace or #value.keys > 0 end
  local number = V.number(value)
  if number then return number ~= 0 end
  return kind == "function"
end

function V.equal(a, b, depth)
  local kind = V.kind(a)
  V.step()
  local x, y = V.number(a), V.number(b)
  if x and y then return x == y end
  if kind ~= V.kind(b) then return false end
  if kind == "string" then return V.text(a) == V.text(b) end
  depth = (depth or 0) + 1
  if a == b or depth > 100 then return a == b end
  if kind == "list" and #a == #b then
    for i, each in ipairs(a) do
      if not V.equal(each, b[i], depth) then return false end
    end
    return true
  elseif kind == "dict" and #a.keys == #b.keys then
    for _, key in ipairs(a.keys) do
      if b.values[key] == nil or not V.equal(a.values[key], b.values[key], depth) then return false end
    end
    return true
  end
  return false
end

-- ---- As text ------------------------------------------------------------------------------------

--- A number as Python writes it.
local function number_text(value, is_float)
  if value ~= value then return "nan" end
  if value == math.huge or value == -math.huge then return value > 0 and "inf" or "-inf" end
  if value % 1 == 0 and math.abs(value) < 1e16 then return ("%.0f"):format(value) .. (is_float and ".0" or "") end
  for digits = 15, 17 do
    local text = ("%." .. digits .. "g"):format(value)
    if tonumber(text) == value then
      local exponent = tonumber(text:match "e(.*)$")
      if exponent and exponent < 0 and exponent >= -4 then return ("%." .. digits - exponent .. "f"):format(value) end
      return text
    end
  end
end

local function quoted(text)
  local quote = text:find("'", 1, true) and not text:find('"', 1, true) and '"' or "'"
  text = text:gsub("[%c\\'\"\127]", function(c)
    if c == "\\" then return "\\\\" end
    if c == "\n" then return "\\n" end
    if c == "\t" then return "\\t" end
    if c == "\r" then return "\\r" end
    if c == quote then return "\\" .. c end
    if c == "'" or c == '"' then return c end
    return ("\\x%02x"):format(c:byte())
  end)
  return quote .. text .. quote
end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b",
  ["\f"] = "\\f" }

--- The text of a JSON string.
local function json_quoted(text, ascii)
  text = text:gsub('[%z\1-\31"\\]', function(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end)
  if ascii then
    text = text:gsub("[\194-\244][\128-\191]+", function(c)
      local code = require("heed.compat").code(c)
      if code < 0x10000 then return ("\\u%04x"):format(code) end
      code = code - 0x10000
      return ("\\u%04x\\u%04x"):format(0xD800 + math.floor(code / 0x400), 0xDC00 + code % 0x400)
    end)
  end
  return '"' .. text .. '"'
end

--- Writes a value in parts; style has quote(text), the words for none, true and false, separators and an indent.
local function write(value, style, parts, depth)
  V.step()
  if depth > 100 then V.fail "a value is nested more than 100 levels deep" end
  local kind = V.kind(value)
  local function add(text) parts[#parts + 1] = text end
  local line = style.indent and "\n" .. style.indent:rep(depth + 1)
  local close = style.indent and "\n" .. style.indent:rep(depth)
  if kind == "string" then
    parts.marked = parts.marked or type(value) ~= "string"
    add(style.quote(V.text(value)))
  elseif kind == "list" then
    local tuple = value.tuple and not style.json
    add(tuple and "(" or "[")
    for i, each in ipairs(value) do
      add((i > 1 and style.comma or "") .. (line or ""))
      write(each, style, parts, depth + 1)
    end
    if tuple and #value == 1 then add "," end
    if #value > 0 then add(close or "") end
    add(tuple and ")" or "]")
  elseif kind == "dict" then
    add "{"
    local keys = value.keys
    if style.sorted then
      keys = {}
      for i, key in ipairs(value.keys) do keys[i] = key end
      E.sort(keys, "apply_chat_template", function(a, b) return tostring(a) < tostring(b) end)
    end
    for i, key in ipairs(keys) do
      add((i > 1 and style.comma or "") .. (line or ""))
      local name = type(key) == "string" and key or style.json and V.string(key)
      if name then add(style.quote(name)) else write(key, style, parts, depth + 1) end
      add(style.colon)
      write(value.values[key], style, parts, depth + 1)
    end
    if #keys > 0 then add(close or "") end
    add "}"
  elseif style[value] then
    add(style[value])
  elseif V.number(value) then
    add(number_text(V.number(value), kind == "float"))
  elseif kind == "undefined" and not style.json then
    add "Undefined"
  else
    V.fail("%s cannot be written as %s", V.what(value), style.json and "JSON" or "text")
  end
end

local REPR = { quote = quoted, comma = ", ", colon = ": ", [V.NONE] = "None", [true] = "True", [false] = "False" }

local function written(value, style)
  local parts = {}
  write(value, style, parts, 0)
  local text = table.concat(parts)
  check_size(#text)
  return parts.marked and V.mark(text) or text
end

--- The value as Jinja prints it.
function V.string(value)
  if V.is_string(value) then return value end
  if value == V.UNDEFINED then return "" end
  return written(value, REPR)
end

--- The value as JSON, as Python's json.dumps writes it.
function V.json(value, options)
  options = options or {}
  return written(value, {
    json = true, quote = function(text) return json_quoted(text, options.ascii) end,
    comma = options.comma or options.indent and "," or ", ", colon = options.colon or ": ", indent = options.indent,
    sorted = options.sorted, [V.NONE] = "null", [true] = "true", [false] = "false",
  })
end

return V
