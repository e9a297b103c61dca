-- Files as trees of pieces, of which one can be damaged while everything that depends on it, lengths and checksums,
-- fits
-- again: so the checks behind the first ones are reached.
-- A piece is a string; a list of pieces; or {kind =, value =, pack =}, a number in string.pack's format or, without
-- `pack`, a text; with `of`, value(text of that piece) gives the number.
local chances = require "tests.fuzz.chances"
local random, one_of = chances.random, chances.one_of

local pieces = {}

--- A number. kind: "size", "offset", "count", "type", "check"…
function pieces.number(kind, pack, value, of) return { kind = kind, pack = pack, value = value, of = of } end

function pieces.text(kind, value) return { kind = kind, value = value } end

local function emit(piece)
  if type(piece) == "string" then return piece end
  if not piece.kind then
    local parts = {}
    for i, each in ipairs(piece) do parts[i] = emit(each) end
    return table.concat(parts)
  end
  local value = piece.value
  if piece.of and not piece.damaged then value = value(emit(piece.of)) end
  if not piece.pack then return value end
  local fine, text = pcall(string.pack, piece.pack, value)
  if fine then return text end
  return string.pack((piece.pack:gsub("[IB]", { I = "i", B = "b" })), -1) -- out of range: all bits
end
pieces.emit = emit

--- The tokens of a JSON text, or of Python's dict in .npy, as pieces.
function pieces.tokens(text)
  local list, at = {}, 1
  while at <= #text do
    local token = text:match('^"[^"\\]*"', at)
    local kind = "name"
    if not token then token, kind = text:match("^'[^'\\]*'", at), "name" end
    if not token then token, kind = text:match("^%-?%d[%d.eE+-]*", at), "value" end
    if not token then token, kind = text:match("^%a+", at), "word" end
    if not token then token, kind = text:match("^[%[%]{}:,()]", at), "mark" end
    if token then
      list[#list + 1] = pieces.text(kind, token)
    else
      token = text:match("^\"[^\"]*\"?", at) or text:match("^%s+", at) or text:sub(at, at)
      list[#list + 1] = token
    end
    at = at + #token
  end
  return list
end

--- The lines of a text as pieces.
function pieces.lines(text)
  local list = {}
  for line in text:gmatch "[^\n]*\n?" do
    if line ~= "" then list[#list + 1] = pieces.text("line", line) end
  end
  return list
end

--- The fields of a protobuf message, as in SentencePiece's models; the messages inside up to `depth`.
function pieces.protobuf(text, depth)
  local function varint(at)
    local value, shift = 0, 0
    repeat
      local byte = text:byte(at) or 0
      value, shift, at = value + byte % 128 * 2 ^ shift, shift + 7, at + 1
    until byte < 128
    return math.floor(value), at
  end
  local function varint_text(value)
    local bytes = {}
    repeat
      local byte = value % 128
      value = math.floor(value / 128)
      bytes[#bytes + 1] = string.char(value > 0 and byte + 128 or byte)
    until value == 0
    return table.concat(bytes)
  end
  local list, at = {}, 1
  while at <= #text do
    local tag, after = varint(at)
    list[#list + 1] = pieces.text("tag", text:sub(at, after - 1))
    at = after
    if tag % 8 == 2 then
      local length
      length, at = varint(at)
      local inner = text:sub(at, at + length - 1)
      local body = depth > 0 and pieces.protobuf(inner, depth - 1) or { pieces.text("name", inner) }
      list[#list + 1] = { kind = "length", value = function(of) return varint_text(#of) end, of = body }
      list[#list + 1] = body
      at = at + length
    else
      local size = tag % 8 == 5 and 4 or tag % 8 == 1 and 8
      local stop = size and at + size or select(2, varint(at))
      list[#list + 1] = pieces.text("value", text:sub(at, stop - 1))
      at = stop
    end
  end
  return list
end

-- ---- Damage -------------------------------------------------------------------------------------

local function list_leaves(piece, leaves, lists)
  if type(piece) == "string" then return end
  if piece.kind then leaves[#leaves + 1] = piece return end
  lists[#lists + 1] = piece
  for _, each in ipairs(piece) do list_leaves(each, leaves, lists) end
end

local NUMBERS = { 0, 1, -1, 2, 3, 7, 8, 255, 256, 65535, 2 ^ 31 - 1, 2 ^ 31, 2 ^ 32 - 1, 2 ^ 32, 2 ^ 53, 2 ^ 62,
  math.mininteger,
  math.maxinteger }
local TEXTS = { "", '""', "[]", "{}", "null", "-1", "0", "1e999", "9223372036854775808", "18446744073709551616",
  "1.5", '"\\u0000"',
  '"\255"', '"' .. ("x"):rep(300) .. '"', ("["):rep(600), ("{\"a\":"):rep(300), "true", '"F32"', '"F64"', '"../x"',
    "\0", ",", ":" }

local function damage_number(piece, leaves)
  local value = piece.of and not piece.damaged and piece.value(emit(piece.of)) or piece.value
  if type(value) ~= "number" then value = 0 end
  local other = one_of(leaves)
  local choice = random(4)
  if choice == 1 then
    value = value + one_of { -1, 1, 2, 8, -8, 64 }
  elseif choice == 2 and type(other.value) == "number" then
    value = other.value
  elseif choice == 3 then
    value = value * one_of { 2, -1, 256 }
  else
    value = one_of(NUMBERS)
  end
  piece.value = math.tointeger(value) or piece.pack:find "[fd]" and value or 0
end

local function damage_text(piece, leaves)
  local text = piece.of and not piece.damaged and piece.value(emit(piece.of)) or piece.value
  local choice = random(6)
  if choice == 1 then
    local other = one_of(leaves)
    text = type(other.value) == "string" and other.value or one_of(TEXTS)
  elseif choice == 2 then
    text = one_of(TEXTS)
  elseif choice == 3 then
    text = text .. text
  elseif choice == 4 and #text > 0 then
    local at = random(#text)
    text = text:sub(1, at - 1) .. string.char(random(256) - 1) .. text:sub(at + 1)
  elseif choice == 5 and tonumber(text) then
    text = ("%d"):format(math.tointeger(tonumber(text) + one_of { -1, 1, 8, 1000000 }) or 0)
  else
    text = text:sub(1, random(#text + 1) - 1)
  end
  piece.value = text
end

--- Damages one thing; returns what.
function pieces.damage(file)
  local leaves, lists = {}, {}
  list_leaves(file, leaves, lists)
  local choice = random(10)
  if choice <= 7 and #leaves > 0 then
    local piece = one_of(leaves)
    if piece.pack then damage_number(piece, leaves) else damage_text(piece, leaves) end
    piece.damaged = true
    return piece.kind
  end
  local list = one_of(lists)
  if #list == 0 then return "nothing" end
  local i, k = random(#list), random(#list)
  if choice == 8 then
    table.remove(list, i)
    return "a missing piece"
  elseif choice == 9 then
    table.insert(list, k, list[i])
    return "a repeated piece"
  end
  list[i], list[k] = list[k], list[i]
  return "exchanged pieces"
end

return pieces
