--- The methods of strings in chat templates, and the items that loops go through: {methods, items_of, contains}.

local compat = require "heed.compat"
local core = require "heed.core"
local V = require "heed.tokenizers.template_values"

local fail = V.fail
local strings = {} -- by name

local function string_of(value, name)
  if not V.is_string(value) then fail("%s is applied to %s; it must be a string", name, V.what(value)) end
  return value
end

-- ---- Iteration ----------------------------------------------------------------------------------

local CHARACTER = "[^\128-\191][\128-\191]*"

local function characters(value)
  local items = {}
  for first, last in V.text(value):gmatch("()" .. CHARACTER .. "()") do
    items[#items + 1] = V.sub(value, first, last - 1)
    V.step()
  end
  return items
end

--- The items of a list, the keys of a mapping or the characters of a string.
local function items_of(value, purpose)
  local kind = V.kind(value)
  if kind == "list" then return value end
  if kind == "dict" and not value.namespace then return value.keys end
  if kind == "undefined" then return {} end
  if kind == "string" then return characters(value) end
  fail("%s is %s; it must be a list, a mapping or a string", purpose or "what a loop goes through", V.what(value))
end
-- ---- Methods ------------------------------------------------------------------------------------

-- Python's white space.
local SPACES = {}
for _, range in ipairs { { 0x9, 0xD }, { 0x1C, 0x20 }, { 0x85, 0x85 }, { 0xA0, 0xA0 }, { 0x1680, 0x1680 },
  { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 } } do
  for code = range[1], range[2] do SPACES[compat.character(code)] = true end
end

local function set_of(characters_given)
  if characters_given == nil or characters_given == V.NONE then return SPACES end
  local set = {}
  for character in V.text(characters_given):gmatch(CHARACTER) do
    set[character] = true
    V.step()
  end
  return set
end

local function stripped(value, given, left, right)
  local text, set = V.text(value), set_of(given)
  local first, last = 1, #text
  if left then
    first = #text + 1
    for at, character in text:gmatch("()(" .. CHARACTER .. ")") do
      if not set[character] then
        first = at
        break
      end
      V.step()
    end
  end
  while right and last >= first do
    local at = last
    while text:find("^[\128-\191]", at) do at = at - 1 end
    if not set[text:sub(at, last)] then break end
    last = at - 1
    V.step()
  end
  return V.sub(value, first, last)
end

function strings.strip(value, given) return stripped(value, given, true, true) end
function strings.lstrip(value, given) return stripped(value, given, true, false) end
function strings.rstrip(value, given) return stripped(value, given, false, true) end

--- The bytes where `part` begins in a string, the first `most` of them; one does not overlap the next.
local function positions(value, part, most) return core.text.positions(V.text(value), V.text(part), most) end

--- What is between separators, without one between white space: a list of {first, last} byte.
local function ranges_of(value, separator, method)
  local ranges, from = {}, nil
  if separator == nil or separator == V.NONE then
    for at, character in V.text(value):gmatch("()(" .. CHARACTER .. ")") do
      V.step()
      local space = SPACES[character]
      if space and from then ranges[#ranges + 1] = { from, at - 1 } end
      from = not space and (from or at) or nil
    end
    if from then ranges[#ranges + 1] = { from, #V.text(value) } end
    return ranges
  end
  local size = #V.text(string_of(separator, method))
  if size == 0 then fail("%s: the separator is empty", method) end
  from = 1
  for _, at in ipairs(positions(value, separator)) do
    V.step()
    ranges[#ranges + 1] = { from, at - 1 }
    from = at + size
  end
  ranges[#ranges + 1] = { from, #V.text(value) }
  return ranges
end

--- The list of the ranges `first` to `last`, with what is before them (`begins` is then 1) or behind them (`ends`).
local function pieces(value, ranges, first, last, begins, ends)
  local parts = {}
  for i = first, last do
    parts[#parts + 1] = V.sub(value, i == first and begins or ranges[i][1], i == last and ends or ranges[i][2])
    V.step()
  end
  return V.list(parts)
end

--- The most splits, or nil where that is more than there are.
local function limit_of(most, ranges)
  most = V.number(most) or -1
  return most >= 0 and most < #ranges and math.floor(most) or nil
end

function strings.split(value, separator, most)
  local ranges = ranges_of(value, separator, "split")
  local limit = limit_of(most, ranges)
  return pieces(value, ranges, 1, limit and limit + 1 or #ranges, nil, limit and #V.text(value))
end

function strings.rsplit(value, separator, most)
  local ranges = ranges_of(value, separator, "rsplit")
  local limit = limit_of(most, ranges)
  return pieces(value, ranges, limit and #ranges - limit or 1, #ranges, limit and 1)
end

function strings.splitlines(value)
  local parts = strings.split(value, "\n")
  if #parts > 0 and V.text(parts[#parts]) == "" then parts[#parts] = nil end
  return parts
end

function strings.partition(value, separator)
  local size = #V.text(string_of(separator, "partition"))
  if size == 0 then fail "partition: the separator is empty" end
  local at = positions(value, separator, 1)[1]
  if not at then return V.list({ value, "", "" }, true) end
  return V.list({ V.sub(value, 1, at - 1), separator, V.sub(value, at + size, #V.text(value)) }, true)
end

local function begins(text, part) return text:sub(1, #part) == part end
local function ends(text, part) return part == "" or text:sub(-#part) == part end

local function any(value, parts, fits)
  if V.is_string(parts) then return fits(V.text(value), V.text(parts)) end
  for _, part in ipairs(items_of(parts)) do
    if fits(V.text(value), V.text(string_of(part, "startswith"))) then return true end
  end
  return false
end

function strings.startswith(value, parts) return any(value, parts, begins) end
function strings.endswith(value, parts) return any(value, parts, ends) end

function strings.removeprefix(value, part)
  return begins(V.text(value), V.text(part)) and V.sub(value, #V.text(part) + 1, #V.text(value)) or value
end

function strings.removesuffix(value, part)
  return ends(V.text(value), V.text(part)) and V.sub(value, 1, #V.text(value) - #V.text(part)) or value
end

function strings.replace(value, old, new, count)
  count = V.number(count)
  if V.text(string_of(old, "replace")) == "" then fail "replace: the text to replace is empty" end
  return V.concat(strings.split(value, old, count), string_of(new, "replace"))
end

function strings.find(value, part)
  local at = positions(value, string_of(part, "find"), 1)[1]
  return at and V.length(V.text(value):sub(1, at - 1)) or -1
end

local function contains(value, part) return positions(value, part, 1)[1] ~= nil end

function strings.count(value, part)
  if V.text(string_of(part, "count")) == "" then return V.length(V.text(value)) + 1 end
  return #positions(value, part)
end

local upper = string.upper -- of ASCII letters
function strings.lower(value) return V.changed(core.text.lower(V.text(value)), value) end
function strings.upper(value) return V.changed(upper(V.text(value)), value) end

function strings.capitalize(value)
  local text = core.text.lower(V.text(value))
  return V.changed(upper(text:sub(1, 1)) .. text:sub(2), value)
end

function strings.title(value)
  local text = core.text.lower(V.text(value))
  return V.changed((text:gsub("%f[%a]%a", upper)), value)
end

local CLASSES = { isdigit = "^%d+$", isalpha = "^[%a\128-\255]+$", isalnum = "^[%w\128-\255]+$", isspace = "^%s+$" }
for name, class in pairs(CLASSES) do
  strings[name] = function(value) return V.text(value):find(class) ~= nil end
end
function strings.isupper(value) return V.text(value):find "%u" ~= nil and not V.text(value):find "%l" end
function strings.islower(value) return V.text(value):find "%l" ~= nil and not V.text(value):find "%u" end

function strings.join(value, list)
  local parts = {}
  for i, each in ipairs(items_of(list)) do parts[i] = string_of(each, "join") end
  return V.concat(parts, value)
end

return { methods = strings, items_of = items_of, contains = contains }
