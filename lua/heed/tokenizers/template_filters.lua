--- The filters, tests and methods of strings, lists and mappings in chat templates. A filter is f(value, arguments,
--- named, call), where call(name, value, …) applies another one.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local texts = require "heed.tokenizers.template_strings"
local V = require "heed.tokenizers.template_values"

local filters, tests = {}, {}
local strings, items_of = texts.methods, texts.items_of
local lists = { filters = filters, tests = tests, items_of = items_of }

local fail = V.fail

--- The item of a value by key, or UNDEFINED; a key with dots for filters such as map.
function lists.get(value, key)
  local kind = V.kind(value)
  key = V.key(key)
  if kind == "dict" then
    local found = value.values[key]
    if found == nil then return V.UNDEFINED end -- false is a value, too
    return found
  elseif kind == "list" and type(key) == "number" then
    local found = value[key < 0 and #value + key + 1 or key + 1]
    if found == nil then return V.UNDEFINED end
    return found
  elseif kind == "string" and type(key) == "number" then
    local found = items_of(value)
    return found[key < 0 and #found + key + 1 or key + 1] or V.UNDEFINED
  elseif kind == "undefined" then
    fail("'%s' of an undefined value is used", tostring(key))
  end
  return V.UNDEFINED
end

local function attribute_of(value, path)
  if type(path) == "number" then return lists.get(value, path) end
  for key in V.text(path):gmatch "[^.]+" do
    value = lists.get(value, tonumber(key) or key)
    if value == V.UNDEFINED then break end
  end
  return value
end

--- Whether a value is in a list, a mapping or a string.
function lists.contains(container, value)
  local kind = V.kind(container)
  if kind == "string" then
    if not V.is_string(value) then fail("%s is looked for in a string; it must be a string", V.what(value)) end
    return texts.contains(container, value)
  elseif kind == "dict" then
    return container.values[V.key(value)] ~= nil
  end
  for _, each in ipairs(items_of(container, "the right side of 'in'")) do
    if V.equal(each, value) then return true end
  end
  return false
end

function lists.less(a, b)
  local x, y = V.number(a), V.number(b)
  if x and y then return x < y end
  if V.is_string(a) and V.is_string(b) then return V.text(a) < V.text(b) end
  fail("%s and %s cannot be compared", V.what(a), V.what(b))
end

-- ---- Filters ------------------------------------------------------------------------------------

for filter, method in pairs {
  lower = "lower", upper = "upper", title = "title", capitalize = "capitalize", trim = "strip", replace = "replace",
} do
  filters[filter] = function(value, arguments)
    return strings[method](V.string(value), arguments[1], arguments[2], arguments[3])
  end
end

function filters.string(value) return V.string(value) end
function filters.safe(value) return V.string(value) end
function filters.length(value)
  local kind = V.kind(value)
  if kind == "string" then return V.length(V.text(value)) end
  return #items_of(value, "what length is applied to")
end
filters.count = filters.length

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ["'"] = "&#39;", ['"'] = "&#34;" }
function filters.e(value)
  value = V.string(value)
  return V.changed((V.text(value):gsub("[&<>'\"]", ENTITIES)), value)
end
filters.escape = filters.e

function filters.default(value, arguments, named)
  local also = arguments[2] or named.boolean
  local otherwise = arguments[1]
  if otherwise == nil then otherwise = named.default_value end
  if otherwise == nil then otherwise = "" end
  if value == V.UNDEFINED or also and not V.truth(value) then return otherwise end
  return value
end
filters.d = filters.default

function filters.join(value, arguments, named)
  local parts, attribute = {}, arguments[2] or named.attribute
  for i, each in ipairs(items_of(value, "what join is applied to")) do
    parts[i] = V.string(attribute and attribute_of(each, attribute) or each)
  end
  return V.concat(parts, V.string(arguments[1] or named.d or ""))
end

local function at(i)
  return function(value)
    local items = items_of(value)
    local found = items[i < 0 and #items or i]
    if found == nil then return V.UNDEFINED end
    return found
  end
end
filters.first, filters.last = at(1), at(-1)

function filters.list(value)
  local items = {}
  for i, each in ipairs(items_of(value)) do items[i] = each end
  return V.list(items)
end

function filters.items(value)
  if value == V.UNDEFINED then return V.list {} end
  if V.kind(value) ~= "dict" then fail("items is applied to %s; it must be a mapping", V.what(value)) end
  local items = {}
  for i, key in ipairs(value.keys) do items[i] = V.list({ key, value.values[key] }, true) end
  return V.list(items)
end

function filters.reverse(value)
  local items, reversed = items_of(value), {}
  for i = #items, 1, -1 do reversed[#reversed + 1] = items[i] end
  return V.is_string(value) and V.concat(reversed) or V.list(reversed)
end

--- Sorted by key(item), stable; strings without regard to case, as in Jinja, unless `exact`.
local function sorted(items, key, exact, reversed)
  local order = {}
  for i, each in ipairs(items) do
    local by = key(each)
    if V.is_string(by) and not exact then by = core.text.lower(V.text(by)) end
    order[i] = { each, by, i }
  end
  E.sort(order, "apply_chat_template", function(a, b)
    local one, other = a, b
    if reversed then one, other = b, a end
    if lists.less(one[2], other[2]) then return true end
    return not lists.less(other[2], one[2]) and a[3] < b[3]
  end)
  for i, each in ipairs(order) do order[i] = each[1] end
  return V.list(order)
end

function filters.sort(value, arguments, named)
  local attribute = named.attribute
  local reversed, exact = arguments[1] or named.reverse, arguments[2] or named.case_sensitive
  local function key(each) return attribute and attribute_of(each, attribute) or each end
  return sorted(items_of(value), key, exact and V.truth(exact), reversed and V.truth(reversed))
end

function filters.dictsort(value, arguments, named)
  local by = named.by or arguments[2] or "key"
  local place = V.text(by) == "value" and 2 or 1
  return sorted(filters.items(value), function(each) return each[place] end, arguments[1] or named.case_sensitive,
    named.reverse or arguments[3])
end

function filters.unique(value, arguments, named)
  local seen, items, attribute = {}, {}, named.attribute or arguments[2]
  for _, each in ipairs(items_of(value)) do
    local by = attribute and attribute_of(each, attribute) or each
    if V.is_string(by) then by = core.text.lower(V.text(by)) end
    if type(by) == "table" then fail("unique is applied to %s; it must be strings or numbers", V.what(by)) end
    if not seen[by] then
      seen[by] = true
      items[#items + 1] = each
    end
  end
  return V.list(items)
end

function filters.int(value, arguments)
  if V.is_string(value) then value = tonumber((V.text(value):gsub("_", ""))) end
  local number = V.number(value)
  if not number then return arguments[1] or 0 end
  return number < 0 and -math.floor(-number) or math.floor(number)
end

function filters.float(value, arguments)
  if V.is_string(value) then value = tonumber(V.text(value)) end
  return { V.number(value) or V.number(arguments[1]) or 0, kind = "float" }
end

function filters.abs(value)
  if not V.number(value) then fail("abs is applied to %s; it must be a number", V.what(value)) end
  return math.abs(V.number(value))
end

function filters.round(value, arguments)
  local scale = 10 ^ (V.number(arguments[1]) or 0)
  return { math.floor((V.number(value) or 0) * scale + 0.5) / scale, kind = "float" }
end

function filters.sum(value)
  local sum = 0
  for _, each in ipairs(items_of(value)) do sum = sum + (V.number(each) or 0) end
  return sum
end

function filters.indent(value, arguments, named)
  value = V.string(value)
  local width = arguments[1] or named.width or 4
  local space = width
  if not V.is_string(width) then space = (" "):rep(math.floor(math.min(V.number(width) or 4, 1000))) end
  local lines = strings.split(value, "\n")
  local first, blank = arguments[2] or named.first, arguments[3] or named.blank
  for i, line in ipairs(lines) do
    if (i > 1 or first and V.truth(first)) and (V.text(line) ~= "" or blank and V.truth(blank) or i == 1) then
      lines[i] = V.concat { space, line }
    end
  end
  return V.concat(lines, "\n")
end

function filters.tojson(value, arguments, named)
  local indent = named.indent or arguments[2] -- transformers: tojson(ensure_ascii, indent, separators, sort_keys)
  local ascii = named.ensure_ascii == nil and arguments[1] or named.ensure_ascii
  local separators = named.separators or arguments[3]
  separators = separators and separators ~= V.NONE and items_of(separators, "separators of tojson") or nil
  if indent == V.NONE then indent = nil end
  if indent and not V.is_string(indent) then indent = (" "):rep(math.floor(math.min(V.number(indent) or 0, 100))) end
  return V.json(value, {
    indent = indent and V.text(indent),
    ascii = ascii and V.truth(ascii), sorted = named.sort_keys and V.truth(named.sort_keys),
    comma = separators and V.text(separators[1]), colon = separators and V.text(separators[2]),
  })
end

function filters.map(value, arguments, named, call)
  local items = {}
  local name = arguments[1]
  for i, each in ipairs(items_of(value)) do
    if named.attribute then
      items[i] = attribute_of(each, named.attribute)
      if items[i] == V.UNDEFINED and named.default ~= nil then items[i] = named.default end
    else
      items[i] = call(V.text(name), each, { compat.unpack(arguments, 2) }, named)
    end
  end
  return V.list(items)
end

--- select, reject, selectattr, rejectattr.
local function selection(keeps, has_attribute)
  return function(value, arguments)
    local items = {}
    local name = arguments[has_attribute and 2 or 1]
    local rest = { arguments[has_attribute and 3 or 2] }
    for _, each in ipairs(items_of(value)) do
      local tested = has_attribute and attribute_of(each, arguments[1]) or each
      local fits
      if name == nil then fits = V.truth(tested) else fits = lists.test(V.text(name), tested, rest) end
      if fits == keeps then items[#items + 1] = each end
    end
    return V.list(items)
  end
end
filters.select, filters.reject = selection(true), selection(false)
filters.selectattr, filters.rejectattr = selection(true, true), selection(false, true)

-- ---- Tests --------------------------------------------------------------------------------------

for name, kinds in pairs {
  defined = false, undefined = { undefined = true }, none = { none = true }, string = { string = true },
  mapping = { dict = true }, sequence = { list = true, string = true, dict = true },
  iterable = { list = true, string = true, dict = true, undefined = true }, number = { number = true, float = true,
    boolean = true }, integer = { number = true }, float = { float = true }, boolean = { boolean = true },
  callable = { ["function"] = true },
} do
  tests[name] = function(value) return (kinds or { undefined = true })[V.kind(value)] == (kinds and true or nil) end
end
tests["true"] = function(value) return value == true end
tests["false"] = function(value) return value == false end
tests["in"] = function(value, container) return lists.contains(container, value) end
tests.equalto, tests["=="], tests.eq = V.equal, V.equal, V.equal
tests.ne = function(a, b) return not V.equal(a, b) end
tests["!="] = tests.ne
tests.lt, tests.gt = lists.less, function(a, b) return lists.less(b, a) end
tests.le, tests.ge = function(a, b) return not lists.less(b, a) end, function(a, b) return not lists.less(a, b) end
tests["<"], tests[">"], tests["<="], tests[">="] = tests.lt, tests.gt, tests.le, tests.ge
tests.odd = function(value) return (V.number(value) or 0) % 2 == 1 end
tests.even = function(value) return (V.number(value) or 1) % 2 == 0 end
tests.divisibleby = function(value, by)
  local x, y = V.number(value), V.number(by)
  if not x or not y or y == 0 then fail "divisibleby needs two numbers, the second not 0" end
  return x % y == 0
end
tests.lower = function(value) return strings.islower(V.string(value)) end
tests.upper = function(value) return strings.isupper(V.string(value)) end

--- Whether a value passes a test; raises for an unknown one.
function lists.test(name, value, arguments)
  local test = tests[name]
  if not test then fail("the test '%s' is not supported", name) end
  return test(value, arguments[1])
end

-- ---- Methods ------------------------------------------------------------------------------------

local dicts, sequences = {}, {}

function dicts.items(value) return filters.items(value) end
function dicts.keys(value) return filters.list(value) end
function dicts.values(value)
  local items = {}
  for i, key in ipairs(value.keys) do items[i] = value.values[key] end
  return V.list(items)
end
function dicts.get(value, key, otherwise)
  local found = value.values[V.key(key)]
  if found ~= nil then return found end
  if otherwise ~= nil then return otherwise end
  return V.NONE
end

function sequences.index(value, item)
  for i, each in ipairs(value) do
    if V.equal(each, item) then return i - 1 end
  end
  fail "index: the item is not in the list"
end
function sequences.count(value, item)
  local count = 0
  for _, each in ipairs(value) do count = count + (V.equal(each, item) and 1 or 0) end
  return count
end

local METHODS = { string = strings, dict = dicts, list = sequences }

--- The method of a value by name, or nil. Lists and mappings cannot be changed, as in transformers' sandbox.
function lists.method(value, name)
  local kind = V.kind(value)
  return not (kind == "dict" and value.namespace) and METHODS[kind] and METHODS[kind][name] or nil
end

return lists
