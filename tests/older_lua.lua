-- Functions of Lua 5.4's standard library that specs use, for older Luas. They exist only in the process that runs
-- the specs: heed itself does not use them, as luacheck and the specs with plain interpreters verify. math.type is not
-- added, since heed would then treat this Lua as 5.3.
-- luacheck: globals table math load utf8 string, ignore 113 143

table.pack = table.pack or function(...) return { n = select("#", ...), ... } end
table.unpack = table.unpack or unpack
table.move = table.move or function(from, first, last, at, to)
  for i = 0, last - first do to[at + i] = from[first + i] end
  return to
end

-- The largest and the smallest int64 that are doubles.
math.maxinteger = math.maxinteger or 2 ^ 63 - 1024
math.mininteger = math.mininteger or -2 ^ 63

if setfenv then
  local load_function = load
  function load(chunk, name, _, environment)
    local f, problem = (type(chunk) == "string" and loadstring or load_function)(chunk, name)
    if f and environment then setfenv(f, environment) end
    return f, problem
  end
end

if not utf8 then
  utf8 = {}
  local compat = require "heed.compat"
  utf8.char = compat.character
  function utf8.len(text) return not require("heed.core").text.invalid(text) or nil end
end

if string.pack then return end

-- ---- string.pack and string.unpack, little-endian -----------------------------------------------

-- The bytes of an integer from -2^63 to 2^64.
local function bytes_of(number, count)
  local bytes = {}
  for i = 1, count do
    bytes[i] = string.char(number % 256)
    number = math.floor(number / 256)
  end
  return table.concat(bytes)
end

local function number_of(text, at, count, signed)
  local number = 0
  for i = count - 1, 0, -1 do
    local byte = text:byte(at + i)
    if signed and i == count - 1 and byte >= 128 then byte = byte - 256 end
    number = number * 256 + byte
  end
  return number
end

-- The bytes of a float32 that is normal, 0, nan or inf, which is all that the specs need.
local function float_bytes(x)
  if x == 0 then return bytes_of(0, 4) end
  if x ~= x then return bytes_of(0x7fc00000, 4) end
  if math.abs(x) == 1 / 0 then return bytes_of(x > 0 and 0x7f800000 or 0xff800000, 4) end
  local fraction, exponent = math.frexp(math.abs(x))
  return bytes_of((x < 0 and 2 ^ 31 or 0) + (exponent + 126) * 2 ^ 23 + (fraction * 2 - 1) * 2 ^ 23, 4)
end

--- The same of a float64, in two halves: 64 bits are more than a number holds.
local function double_bytes(x)
  if x == 0 then return bytes_of(0, 8) end
  local fraction, exponent = math.frexp(math.abs(x))
  local digits = (fraction * 2 - 1) * 2 ^ 52
  local high = (x < 0 and 2 ^ 31 or 0) + (exponent + 1022) * 2 ^ 20 + math.floor(digits / 2 ^ 32)
  return bytes_of(digits % 2 ^ 32, 4) .. bytes_of(high, 4)
end

--- Calls item(kind, size) for each item of a format: integers (i, I, B), floats (f, d), strings with a length prefix
-- (s) and of a fixed length (c).
local function each_item(format, item)
  for kind, size in format:gmatch "([iIBfdsc])(%d*)" do item(kind, kind == "B" and 1 or tonumber(size) or 4) end
end

function string.pack(format, ...)
  local values, parts = { ... }, {}
  each_item(format, function(kind, size)
    local value = values[#parts + 1]
    if kind == "f" then
      parts[#parts + 1] = float_bytes(value)
    elseif kind == "d" then
      parts[#parts + 1] = double_bytes(value)
    elseif kind == "c" then
      parts[#parts + 1] = value .. ("\0"):rep(size - #value)
    elseif kind == "s" then
      parts[#parts + 1] = bytes_of(#value, size) .. value
    else
      parts[#parts + 1] = bytes_of(value, size)
    end
  end)
  return table.concat(parts)
end

function string.unpack(format, text, at)
  at = at or 1
  local values = {}
  each_item(format, function(kind, size)
    assert(kind:find "[iIB]", "not implemented")
    values[#values + 1] = number_of(text, at, size, kind == "i")
    at = at + size
  end)
  values[#values + 1] = at
  return table.unpack(values)
end
