--- Labels of charts: UTF-8 checked, control characters escaped, cut and padded by display width.

local compat = require "heed.compat"
local core = require "heed.core"

local text = {}

-- Ranges of code points that take no column, and two (Unicode's East Asian Width W and F, in blocks).
local ZERO = { 0x300, 0x36F, 0x483, 0x489, 0x591, 0x5BD, 0x610, 0x61A, 0x64B, 0x65F, 0x93A, 0x93A, 0x93C, 0x93C,
  0x941, 0x948, 0xE31, 0xE31, 0xE34, 0xE3A, 0x1AB0, 0x1AFF, 0x1DC0, 0x1DFF, 0x200B, 0x200F, 0x202A, 0x202E,
  0x2060, 0x2069, 0x20D0, 0x20FF, 0xFE00, 0xFE0F, 0xFE20, 0xFE2F, 0xFEFF, 0xFEFF, 0xE0000, 0xE0FFF }
local WIDE = { 0x1100, 0x115F, 0x2E80, 0x303E, 0x3041, 0xA4CF, 0xA960, 0xA97F, 0xAC00, 0xD7A3, 0xF900, 0xFAFF,
  0xFE30, 0xFE6F, 0xFF00, 0xFF60, 0xFFE0, 0xFFE6, 0x1F300, 0x1F64F, 0x1F680, 0x1F6FF, 0x1F900, 0x1FAFF,
  0x20000, 0x3FFFD }

local function is_in(code, ranges)
  for i = 1, #ranges, 2 do
    if code < ranges[i] then return false end
    if code <= ranges[i + 1] then return true end
  end
  return false
end

local function width_of(code)
  if code < 0x300 then return 1 end
  return is_in(code, ZERO) and 0 or is_in(code, WIDE) and 2 or 1
end

-- The length of the valid character at i, or nil.
local function length_at(s, i)
  local a, b, c, d = s:byte(i, i + 3)
  local function tail(x) return x and x >= 0x80 and x < 0xC0 end
  if a < 0x80 then return 1 end
  if a >= 0xC2 and a < 0xE0 then return tail(b) and 2 end
  if a >= 0xE0 and a < 0xF0 then
    local valid = tail(b) and tail(c) and not (a == 0xE0 and b < 0xA0) and not (a == 0xED and b >= 0xA0)
    return valid and 3
  end
  if a >= 0xF0 and a < 0xF5 then
    local valid = tail(b) and tail(c) and tail(d) and not (a == 0xF0 and b < 0x90) and not (a == 0xF4 and b >= 0x90)
    return valid and 4
  end
end

--- The characters of a label as a list. Invalid bytes become U+FFFD; control characters (C0, DEL, C1, line separators
--- and marks that change the direction) and noncharacters, which XML refuses, become visible escapes, such as those
--- that Lua writes in strings.
function text.characters(s)
  local list, i, checked = {}, 1, 0
  while i <= #s do
    if i - checked >= 1024 then
      core.check_cancel "plot"
      checked = i
    end
    local n = length_at(s, i)
    local c = n and s:sub(i, i + n - 1) or "\239\191\189"
    local code = compat.code(c)
    local control = code < 0x20 or code >= 0x7F and code < 0xA0 or code >= 0x2028 and code <= 0x202E
      or code >= 0x2066 and code <= 0x2069 or code == 0x200E or code == 0x200F or code == 0x61C
      or code % 0x10000 >= 0xFFFE
    if control then
      c = code == 10 and "\\n" or code == 9 and "\\t" or code < 0x100 and ("\\x%02x"):format(code)
        or ("\\u%04x"):format(code)
      for x in c:gmatch "." do list[#list + 1] = x end
    else
      list[#list + 1] = c
    end
    i = i + (n or 1)
  end
  return list
end

--- A label that is safe to print and valid UTF-8.
function text.clean(s) return table.concat(text.characters(s)) end

--- The number of columns that a clean text takes.
function text.width(s)
  local width = 0
  for i, c in ipairs(text.characters(s)) do
    if i % 1024 == 0 then core.check_cancel "plot" end
    width = width + width_of(compat.code(c))
  end
  return width
end

--- A clean text of at most `width` columns, cut with `mark` ("…") if it is longer.
function text.cut(s, width, mark)
  if text.width(s) <= width then return text.clean(s) end
  mark = mark or "\226\128\166"
  local kept, used = {}, text.width(mark)
  if used > width then return "" end
  for _, c in ipairs(text.characters(s)) do
    used = used + width_of(compat.code(c))
    if used > width then break end
    kept[#kept + 1] = c
  end
  return table.concat(kept) .. mark
end

--- The same, filled with spaces to exactly `width` columns, on the left if `right` is set.
function text.fit(s, width, right, mark)
  s = text.cut(s, width, mark)
  local fill = (" "):rep(width - text.width(s))
  return right and fill .. s or s .. fill
end

--- A number in few characters: 4 significant digits unless `digits` is given.
function text.number(value, digits)
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  return (("%." .. (digits or 4) .. "g"):format(value):gsub(",", "."))
end

return text
