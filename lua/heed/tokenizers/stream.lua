--- tok:decoder(): from ids, one by one, to pieces of text that are whole UTF-8 characters. It works with every
--- tokenizer that has decode(ids, options).

local core = require "heed.core"
local E = require "heed.nn.entries"

local WINDOW = 32 -- ids that are decoded together; more are needed only within one character

local methods = {}
local Decoder = { __name = "heed.TextDecoder", __index = methods }

local function check(self, method)
  if type(self) ~= "table" or getmetatable(self) ~= Decoder then
    E.reject(method, "self", self, "a heed.TextDecoder; call the method with a colon")
  end
end

--- The number of bytes at the end of a text that are, or stand for, a character whose rest is missing: a beginning of
--- UTF-8, or the replacement characters that decoders write for one.
local function unfinished(text)
  local first = #text + 1
  while first > 3 and text:sub(first - 3, first - 1) == "\239\191\189" do first = first - 3 end
  if first <= #text then return #text - first + 1 end
  first = #text
  while first > math.max(0, #text - 3) and text:find("^[\128-\191]", first) do first = first - 1 end
  local byte = text:byte(first) or 0
  local size = byte >= 0xF0 and 4 or byte >= 0xE0 and 3 or byte >= 0xC0 and 2 or 1
  return first > 0 and size > #text - first + 1 and #text - first + 1 or 0
end

--- The text that the ids since the last whole piece add to what came before.
local function pending(self)
  local text = self.tokenizer:decode(self.ids, self.options)
  local before = self.before
  if text:sub(1, #before) ~= before then -- a decoder that changes earlier text; what was given stays
    local same = 0
    while same < #before and text:byte(same + 1) == before:byte(same + 1) do same = same + 1 end
    return text:sub(math.max(same, #before) + 1), text
  end
  return text:sub(#before + 1), text
end

--- The text of one more id: "" while a character is incomplete.
function methods.add(self, id)
  check(self, "add")
  local ids = self.ids
  ids[#ids + 1] = id
  local fine, piece, text = pcall(pending, self)
  if not fine then -- such as an id outside of the vocabulary
    ids[#ids] = nil
    error(piece, 0)
  end
  if piece == "" or unfinished(piece) > 0 and #ids < WINDOW then return "" end
  -- The last id stays, since decoders treat the first one of a text differently.
  self.ids = { id }
  self.before = self.tokenizer:decode(self.ids, self.options)
  if unfinished(self.before) > 0 then self.ids, self.before = ids, text end
  return piece
end

--- The rest, where the last character is incomplete; the decoder then begins a new text.
function methods.finish(self)
  check(self, "finish")
  local piece = pending(self)
  self.ids, self.before = {}, ""
  return piece
end

E.with_frames(methods)

--- A decoder of a tokenizer; the options are those of its decode.
return core.frame(function(tokenizer, options)
  if options ~= nil then E.check_type(options, "table", "decoder", "options") end
  return setmetatable({ tokenizer = tokenizer, options = options, ids = {}, before = "" }, Decoder)
end)
