--- The methods of strings in chat templates, and the items that loops go through: {methods, items_of}.

local core = require "heed.core"
local V = require "heed.tokenizers.template_values"

local fail = V.fail
local strings = {} -- by name

local function string_of(value, name)
  if not V.is_string(value) then fail("%s is applied to %s; it must be a string", name, V.what(value)) end
  return value
end

-- ---- Iteration ----------------------------------------------------------------------------------

local function characters(value)
  local items, text, first = {}, V.text(value), 1
  while first <= #text do
    local last = first
    while text:find("^[\128-\191]", last + 1) do last = last + 1 end
    items[#items + 1] = V.sub(value, first, last)
    first = last + 1
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

local function set_of(characters_given)
  if characters_given == nil or characters_given == V.NONE then return "%s" end
  return (V.text(characters_given):gsub("[%^%]%-%%]", "%%%0"))
end

local function stripped(value, given, left, right)
  local text, set = V.text(value), set_of(given)
  if set == "" then return value end
  local first = left and text:find("[^" .. set .. "]") or 1
  if not first then return "" end
  local last = #text
  while right and last >= first and text:find("^[" .. set .. "]", last) do
    last = last - 1
    if last % 4096 == 0 then V.step() end
  end
  return V.sub(value, first, last)
end

function strings.strip(value, given) return stripped(value, given, true, true) end
function strings.lstrip(value, given) return stripped(value, given, true, false) end
function strings.rstrip(value, given) return stripped(value, given, false, true) end

function strings.split(value, separator, most)
  local text, parts, from = V.text(value), {}, 1
  most = V.number(most) or -1
  if separator == nil or separator == V.NONE then
    for first, last in text:gmatch "()%S+()" do
      V.step()
      if #parts == most then
        parts[#parts + 1] = stripped(V.sub(value, first, #text), nil, false, true)
        return V.list(parts)
      end
      parts[#parts + 1] = V.sub(value, first, last - 1)
    end
    return V.list(parts)
  end
  separator = V.text(string_of(separator, "split"))
  if separator == "" then fail "split: the separator is empty" end
  while #parts ~= most do
    V.step()
    local first, last = text:find(separator, from, true)
    if not first then break end
    parts[#parts + 1] = V.sub(value, from, first - 1)
    from = last + 1
  end
  parts[#parts + 1] = V.sub(value, from, #text)
  return V.list(parts)
end

function strings.rsplit(value, separator, most)
  local parts = strings.split(value, separator)
  most = V.number(most) or -1
  if separator == nil or most < 0 or #parts <= most + 1 then return parts end
  local first = {}
  for i = 1, #parts - most do first[i] = parts[i] end
  local rest = { V.concat(first, separator) }
  for i = #parts - most + 1, #parts do rest[#rest + 1] = parts[i] end
  return V.list(rest)
end

function strings.splitlines(value)
  local parts = strings.split(value, "\n")
  if #parts > 0 and V.text(parts[#parts]) == "" then parts[#parts] = nil end
  return parts
end

function strings.partition(value, separator)
  local first, last = V.text(value):find(V.text(separator), 1, true)
  if not first then return V.list({ value, "", "" }, true) end
  return V.list({ V.sub(value, 1, first - 1), separator, V.sub(value, last + 1, #V.text(value)) }, true)
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
  local text = V.text(value)
  local first = text:find(V.text(part), 1, true)
  return first and V.length(text:sub(1, first - 1)) or -1
end

function strings.count(value, part) return #strings.split(value, part) - 1 end

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

return { methods = strings, items_of = items_of }
