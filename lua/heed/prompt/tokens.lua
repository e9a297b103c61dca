-- The tokens of Lua code, complete or not, for the prompt.
local find, sub = string.find, string.sub

local tokens = {}

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch "%a+" do
  KEYWORDS[word] = true
end

-- The end of a long bracket that begins at `at`, or nil; whether there is one; its level.
local function long_bracket(text, at)
  local _, _, level = find(text, "^%[(=*)%[", at)
  if not level then return nil, false end
  local _, last = find(text, "]" .. level .. "]", at, true)
  return last, true
end

local function string_end(text, at, quote)
  local i = at + 1
  while true do
    local found = find(text, "[\\" .. quote .. "]", i)
    if not found then return nil end
    if sub(text, found, found) == quote then return found end
    i = found + 2
  end
end

local function number_end(text, at)
  local hexadecimal = find(text, "^0[xX]", at)
  local last = at
  while true do
    local _, e = find(text, "^[%w_.]+", last)
    if not e then return last - 1 end
    local exponent = find(sub(text, e, e), hexadecimal and "[pP]" or "[eE]") and find(text, "^[+-]", e + 1)
    if not exponent then return e end
    last = e + 2
  end
end

-- One token: its kind and its last character; an unfinished one has no last character.
local function read(text, at)
  local character = sub(text, at, at)
  if find(character, "[%a_\128-\255]") then
    local _, last = find(text, "^[%w_\128-\255]+", at)
    return KEYWORDS[sub(text, at, last)] and "keyword" or "name", last
  end
  if find(text, "^%.?%d", at) then return "number", number_end(text, at) end
  if character == '"' or character == "'" then return "string", string_end(text, at, character) end
  if character == "[" then
    local last, is_long = long_bracket(text, at)
    if is_long then return "string", last end
  end
  local _, last = find(text, "^%.%.%.", at)
  if not last then _, last = find(text, "^::", at) end
  return "symbol", last or at
end

--- The tokens: a list of {kind, text, first, last}; kind is "name", "keyword", "number", "string" or "symbol".
--- `open` is true if the text ends in an unfinished string or comment.
function tokens.of(text)
  local list, at = {}, 1
  while true do
    at = find(text, "%S", at)
    if not at then return list end
    if sub(text, at, at + 1) == "--" then
      local last, is_long = long_bracket(text, at + 2)
      if not is_long then
        last = find(text, "\n", at, true)
        list.comment = not last
      end
      if not last then
        list.open = true
        return list
      end
      at = last + 1
    else
      local kind, last = read(text, at)
      list.open = last == nil
      last = last or #text
      list[#list + 1] = { kind = kind, text = sub(text, at, last), first = at, last = last }
      at = last + 1
    end
  end
end

local ENDS = {}
for word in ("end nil true false break ) } ] ... :: ;"):gmatch "%S+" do ENDS[word] = true end

--- Whether the token can end an expression or a statement, so that another statement may follow.
function tokens.ends_expression(token)
  if token.kind == "keyword" or token.kind == "symbol" then return ENDS[token.text] == true end
  return true
end

return tokens
