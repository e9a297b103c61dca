--- What differs between the Luas that heed runs on, 5.1 and LuaJIT to 5.4; no other file of heed asks which it is.

local core = require "heed.core"

local compat = {}

compat.unpack = table.unpack or unpack -- luacheck: ignore 143 113

-- ---- Numbers ------------------------------------------------------------------------------------

local math_type = math.type -- luacheck: ignore 143

--- Whether a value is an integer: before 5.3, a number that has the value of one.
function compat.is_integer(value)
  if math_type then return math_type(value) == "integer" end
  return type(value) == "number" and value % 1 == 0 and value >= -2 ^ 53 and value <= 2 ^ 53
end

--- The quotient of two integers, rounded down, as an integer.
function compat.divide(a, b) return math.floor(a / b) end

-- ---- Objects ------------------------------------------------------------------------------------

-- Where tables have neither __len nor __pairs (5.1, LuaJIT) objects that need them are userdata that hold the table.
local tables_do = #setmetatable({}, { __len = function() return 1 end }) == 1

--- The table that an object holds, where objects are no tables; else nil.
compat.held = not tables_do and core.held or nil

--- An object with these raw fields and that metatable.
compat.object = tables_do and setmetatable or core.object

--- A raw field of a table or an object; nil for anything else.
function compat.raw(value, key)
  if type(value) ~= "table" then value = not tables_do and core.held(value) or nil end
  return value and rawget(value, key)
end

--- pairs that heeds __pairs, and ipairs that heeds __index.
compat.pairs, compat.ipairs = core.pairs, core.ipairs

-- ---- Text ---------------------------------------------------------------------------------------

--- The character with a code, in UTF-8.
function compat.character(code)
  if code < 0x80 then return string.char(code) end
  local tail, most = "", 0x40 -- `most`: what the first byte has room for
  while code >= most do
    tail = string.char(0x80 + code % 0x40) .. tail
    code, most = math.floor(code / 0x40), most == 0x40 and 0x20 or most / 2
  end
  return string.char(0x100 - 2 * most + code) .. tail
end

--- The code of a character in valid UTF-8.
function compat.code(character)
  local first = character:byte()
  if first < 0x80 then return first end
  local code = first % (first < 0xE0 and 0x20 or first < 0xF0 and 0x10 or 0x08)
  for i = 2, #character do code = code * 0x40 + character:byte(i) % 0x40 end
  return code
end

return compat
