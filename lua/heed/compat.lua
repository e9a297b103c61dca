--- The differences between the supported Luas (5.1 to 5.5 and LuaJIT). No other Lua file tests the version.

local core = require "heed.core"

local compat = {}

compat.unpack = table.unpack or unpack -- luacheck: ignore 143 113

function compat.pack(...) return { n = select("#", ...), ... } end

--- Whether a function in pcall may yield where it could outside: not in the coroutines of 5.1.
function compat.yields_in_pcall()
  return _VERSION ~= "Lua 5.1" or jit ~= nil or coroutine.running() == nil -- luacheck: ignore 113
end

-- ---- Numbers ------------------------------------------------------------------------------------

local math_type = math.type -- luacheck: ignore 143

--- Whether a value is an integer, or a float with an integral value of at most 2^53 in magnitude.
function compat.is_integer(value)
  if math_type and math_type(value) == "integer" then return true end
  return type(value) == "number" and value % 1 == 0 and value >= -2 ^ 53 and value <= 2 ^ 53
end

--- Whether a number is of Lua's own integer type, or before 5.3, which has none, whole.
function compat.has_integer_type(number)
  if math_type then return math_type(number) == "integer" end
  return compat.is_integer(number)
end

--- a / b rounded down, as an integer.
function compat.divide(a, b) return math.floor(a / b) end

-- ---- Objects ------------------------------------------------------------------------------------

-- 5.1 and LuaJIT ignore __len and __pairs of tables. There, objects that need them are userdata that hold a table.
local tables_do = #setmetatable({}, { __len = function() return 1 end }) == 1

--- held(object): the table inside a userdata object; nil on Luas where objects are tables.
compat.held = not tables_do and core.held or nil

--- object(fields, metatable): a new object with these raw fields.
compat.object = tables_do and setmetatable or core.object

--- A raw field of a table or an object; nil for anything else.
function compat.raw(value, key)
  if type(value) ~= "table" then value = not tables_do and core.held(value) or nil end
  return value and rawget(value, key)
end

--- pairs that honours __pairs, and ipairs that honours __index, on every Lua.
compat.pairs, compat.ipairs = core.pairs, core.ipairs

-- ---- Text ---------------------------------------------------------------------------------------

--- The UTF-8 encoding of a code point.
function compat.character(code)
  if code < 0x80 then return string.char(code) end
  local tail, limit = "", 0x40 -- the first byte holds values below `limit`
  while code >= limit do
    tail = string.char(0x80 + code % 0x40) .. tail
    code, limit = math.floor(code / 0x40), limit == 0x40 and 0x20 or limit / 2
  end
  return string.char(0x100 - 2 * limit + code) .. tail
end

--- The code point of a character given in valid UTF-8.
function compat.code(character)
  local first = character:byte()
  if first < 0x80 then return first end
  local code = first % (first < 0xE0 and 0x20 or first < 0xF0 and 0x10 or 0x08)
  for i = 2, #character do code = code * 0x40 + character:byte(i) % 0x40 end
  return code
end

return compat
