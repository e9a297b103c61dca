--- Metadata of GGUF files to save: the type of each value, and its bytes.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local files = core.files

local M = {}

local NUMBERS = { uint8 = 0, int8 = 1, uint16 = 2, int16 = 3, uint32 = 4, int32 = 5, float32 = 6, bool = 7, string = 8,
  array = 9, uint64 = 10, int64 = 11, float64 = 12 }
local NAMES = "uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64, bool or string"
local DEEPEST = 4 -- arrays in arrays, as the reader allows

local INTEGERS = { uint8 = { 0, 2 ^ 8 }, int8 = { -2 ^ 7, 2 ^ 7 }, uint16 = { 0, 2 ^ 16 }, int16 = { -2 ^ 15, 2 ^ 15 },
  uint32 = { 0, 2 ^ 32 }, int32 = { -2 ^ 31, 2 ^ 31 }, uint64 = { 0, 2 ^ 64 }, int64 = { -2 ^ 63, 2 ^ 63 } }

local LARGEST_FLOAT = (2 - 2 ^ -23) * 2 ^ 127 -- of float32

--- Whether a value can be saved as that type.
local function fits(value, kind)
  if kind == "string" then return type(value) == "string" end
  if kind == "bool" then return type(value) == "boolean" end
  if type(value) ~= "number" then return false end
  local range = INTEGERS[kind]
  if range then return value >= range[1] and value < range[2] and value % 1 == 0 end
  local size = math.abs(value) -- nan and inf are floats, too
  return kind == "float64" or size <= LARGEST_FLOAT or size == math.huge or value ~= value
end

local function all_fit(list, kind)
  for _, value in ipairs(list) do
    if not fits(value, kind) then return false end
    E.check_cancel "save"
  end
  return true
end

local FIRST = { "bool", "string", "uint32", "int32", "int64", "uint64", "float32", "float64" } -- for a value
local FIRST_OF_LIST = { "int32", "bool", "string", "int64", "uint64", "float32", "float64" } -- for those of a list

--- The types that loaded metadata had, by the table and the key; numbers lose them in Lua.
local loaded = setmetatable({}, { __mode = "k" })

function M.remember(metadata, types) loaded[metadata] = types end

--- Chooses the type of a number in metadata to save, such as "float32" for one that may be whole.
function M.choose(metadata, key, kind)
  loaded[metadata] = loaded[metadata] or {}
  loaded[metadata][key] = kind
end

--- The type of all elements of a list; nil: it holds lists.
local function kind_of(list, candidates, where)
  if type(list[1]) == "table" then return nil end
  for _, kind in ipairs(candidates) do
    if all_fit(list, kind) then return kind end
  end
  for i, value in ipairs(list) do
    if type(value) ~= "number" and type(value) ~= "string" and type(value) ~= "boolean" then
      E.reject("save", ("%s[%d]"):format(where, i), value, "a number, a string or a boolean")
    end
  end
  return E.fail("save: %s has elements of different types; they must be of one", where)
end

--- The elements of a list, its type and count before them. `kind`: a type for all of them, or nil.
local function list_bytes(list, kind, where, depth)
  if depth > DEEPEST then E.fail("save: %s has lists in lists deeper than %d", where, DEEPEST) end
  local count = #list
  for key in pairs(list) do
    if not compat.is_integer(key) or key < 1 or key > count then
      E.reject("save", "a key of " .. where, key, "a number from 1 on, without gaps")
    end
    E.check_cancel "save"
  end
  kind = kind or kind_of(list, FIRST_OF_LIST, where)
  local head = files.encode("uint32", { NUMBERS[kind or "array"] }) .. files.encode("uint64", { count })
  if kind then return head .. files.encode(kind, list) end
  local parts = { head }
  for i, part in ipairs(list) do
    local name = ("%s[%d]"):format(where, i)
    E.check_type(part, "table", "save", name)
    parts[i + 1] = list_bytes(part, nil, name, depth + 1)
  end
  return table.concat(parts)
end

--- The bytes of a value: its type, then itself. `kind`: the type that it had in a file, or nil.
local function value_bytes(value, kind, where)
  local explicit = type(value) == "table" and value.type
  if explicit then
    kind, value = explicit, value.value
    if type(kind) ~= "string" or not NUMBERS[kind] or kind == "array" then
      E.reject("save", where .. ".type", kind, NAMES)
    end
  end
  local is_list = type(value) == "table"
  local list = is_list and value or { value }
  if kind and (kind == "array" or not all_fit(list, kind)) then
    if explicit then
      E.reject("save", is_list and "an element of " .. where or where, value, "a value of the type %s", kind)
    end
    kind = nil
  end
  if is_list then
    return files.encode("uint32", { NUMBERS.array }) .. list_bytes(value, kind, where, 1)
  end
  if type(value) ~= "number" and type(value) ~= "string" and type(value) ~= "boolean" then
    E.reject("save", where, value, "a string, a number, a boolean, a list of these, or {type =, value =}")
  end
  kind = kind or kind_of(list, FIRST, where)
  return files.encode("uint32", { NUMBERS[kind] }) .. files.encode(kind, list)
end

--- The list key, bytes, key, bytes, …, sorted by key.
function M.encode(metadata)
  local keys, list = {}, {}
  if metadata == nil then return list end
  E.check_type(metadata, "table", "save", "metadata")
  for key in pairs(metadata) do
    E.check_cancel "save"
    E.check_type(key, "string", "save", "a key of metadata")
    keys[#keys + 1] = key
  end
  E.sort(keys, "save")
  local types = loaded[metadata] or {}
  for _, key in ipairs(keys) do
    list[#list + 1] = key
    list[#list + 1] = value_bytes(metadata[key], types[key], ("metadata['%s']"):format(key))
  end
  return list
end

return M
