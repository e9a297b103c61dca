-- tokenizer.json files made of Lua tables, for specs.
local heed = require "heed"
local support = require "tests.support"

local made = { null = setmetatable({}, { __tostring = function() return "null" end }) }

local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

--- JSON of a value. A table is an object if it has a name as a key, or {} with made.object as its metatable.
made.object = {}
function made.json(value)
  if value == made.null then return "null" end
  if type(value) == "string" then return quoted(value) end
  if type(value) ~= "table" then return tostring(value) end
  local parts, names = {}, {}
  for key in pairs(value) do
    if type(key) == "string" then names[#names + 1] = key end
  end
  if #names == 0 and getmetatable(value) ~= made.object then
    for i, item in ipairs(value) do parts[i] = made.json(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = quoted(name) .. ":" .. made.json(value[name]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- The results of heed.tokenizers.load for a file of that ending ("json") and content.
function made.load_text(text, ending)
  return support.with_file(function(path)
    local named = path .. "." .. (ending or "json")
    support.write(named, text)
    local tok, problem = heed.tokenizers.load(named)
    os.remove(named)
    return tok, problem
  end)
end
function made.load(content) return made.load_text(made.json(content)) end

--- A tokenizer whose tokens are whole words: these, and "?" for all others. Its ids are their positions.
function made.words(words, parts)
  local vocab, count = {}, 0
  for _, word in ipairs(words) do
    if not vocab[word] then vocab[word], count = count, count + 1 end
  end
  vocab["?"] = vocab["?"] or count
  parts = parts or {}
  parts.model = { type = "WordLevel", vocab = setmetatable(vocab, made.object), unk_token = "?" }
  return assert(made.load(parts))
end

--- The tokens that encoding gives.
function made.pieces(tok, text, options)
  local pieces = {}
  for i, id in ipairs(tok:encode(text, options)) do pieces[i] = tok:token(id) end
  return pieces
end

--- The charsmap of SentencePiece that replaces each of these characters (of one byte): {x = "yy"}. Its trie is a
--- double array of units as in darts-clone: label, whether it has a value, and the offset of its children.
function made.charsmap(replacements)
  local units, texts = {}, ""
  for i = 0, 255 do units[i] = 0 end
  units[0] = 1 * 2 ^ 10 -- the root's children are at 1 ~ label
  local free = 0x80
  for from, to in pairs(replacements) do
    local label = from:byte()
    local child = label % 2 == 0 and label + 1 or label - 1
    -- the value is at child ~ offset, and offset has a bit that no label has
    units[child] = label + 2 ^ 8 + free * 2 ^ 10
    units[child + free] = 2 ^ 31 + #texts
    texts = texts .. to .. "\0"
  end
  local bytes = {}
  local function put(number)
    bytes[#bytes + 1] = string.char(number % 256, math.floor(number / 2 ^ 8) % 256, math.floor(number / 2 ^ 16) % 256,
      math.floor(number / 2 ^ 24))
  end
  put(1024)
  for i = 0, 255 do put(units[i]) end
  return table.concat(bytes) .. texts
end

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
function made.base64(text)
  local digits = {}
  for at = 1, #text, 3 do
    local a, b, c = text:byte(at, at + 2)
    local bits = a * 2 ^ 16 + (b or 0) * 2 ^ 8 + (c or 0)
    for i = 3, 0, -1 do
      local digit = math.floor(bits / 64 ^ i) % 64 + 1
      local absent = (i == 1 and not b) or (i == 0 and not c)
      digits[#digits + 1] = absent and "=" or DIGITS:sub(digit, digit)
    end
  end
  return table.concat(digits)
end

return made
