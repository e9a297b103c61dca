--- BERT's tokenizer: `require "heed.tokenizers.wordpiece".load "vocab.txt"`. Text is split into words, and each word,
--- from the left, into the longest pieces in the vocabulary; pieces inside a word begin with "##". The ids are those of
--- Hugging Face's BertTokenizer plus 1: they count from 1, like the lines of the vocabulary.
--- Source: arXiv:1810.04805; arXiv:1609.08144, section 4.1.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local newer = require "heed.tokenizers.unicode8"
local unicode, options_of, fail = core.text, core.modules.options, E.fail

local LONGEST_WORD = 100 -- characters; longer words become [UNK]
local MOST_BYTES = 4 * LONGEST_WORD -- the longest word in UTF-8
local STEP = 2 ^ 15 -- bytes of text between two cancellation checks
local SPECIAL = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" }

local M = {}
local Tokenizer = {}
local metatable = { __name = "heed.WordPiece", __index = Tokenizer }

-- ---- The vocabulary -----------------------------------------------------------------------------

local function line_of(text, position)
  local line, at = 1, text:find("\n", 1, true)
  while at and at < position do
    line, at = line + 1, text:find("\n", at + 1, true)
    if line % 4096 == 0 then E.check_cancel "load" end
  end
  return line
end

--- The problem with a vocabulary's text as a whole, or nil. The pieces are checked later.
local function problem_of(text)
  local wrong = unicode.invalid(text)
  if wrong then return ("line %d is not valid UTF-8"):format(line_of(text, wrong)) end
  if text == "" then return "it is empty" end
  local carriage = text:find("\r", 1, true)
  if carriage then
    return ("line %d has a carriage return; lines must end with a line feed only"):format(line_of(text, carriage))
  end
end

--- Parses a vocabulary and stores it in the tokenizer `self`. Returns nil, or the problem with it.
local function read_vocabulary(self, text)
  local problem = problem_of(text)
  if problem then return problem end
  if text:sub(-1) ~= "\n" then text = text .. "\n" end
  local vocabulary, first, second = unicode.vocabulary(text)
  if second then return ("lines %d and %d are the same"):format(first, second) end
  if first then return ("line %d is empty; a vocabulary has a piece on each line"):format(first) end
  for _, name in ipairs { "[UNK]", "[CLS]", "[SEP]" } do
    if not vocabulary:id(name) then return ("%s is missing"):format(name) end
  end
  self.vocabulary, self.vocab_size, self.special = vocabulary, #vocabulary, {}
  for _, name in ipairs(SPECIAL) do
    self.special[name] = vocabulary:id(name)
    self[name:sub(2, -2):lower() .. "_token_id"] = self.special[name]
  end
end

local KINDS = { directory = "directory", other = "device or a pipe" }
local LOAD_OPTIONS = { "do_lower_case", "strip_accents", "tokenize_chinese_chars" }

--- Makes a tokenizer from a vocabulary file with one piece on each line. The options are those of
--- tokenizer_config.json; strip_accents defaults to do_lower_case. Returns nil and a message if the file is missing or
--- not a vocabulary.
function M.load(path, ...)
  local lower, strip, chinese = options_of("load", LOAD_OPTIONS, 2, path, ...)
  E.check_type(path, "string", "load", "path")
  lower = E.boolean(lower, true, "load", "do_lower_case")
  local self = {
    do_lower_case = lower,
    strip_accents = E.boolean(strip, lower, "load", "strip_accents"),
    tokenize_chinese_chars = E.boolean(chinese, true, "load", "tokenize_chinese_chars"),
  }
  local kind = core.files.kind(path)
  if not kind then return nil, ("load: no such file: '%s'"):format(path) end
  if kind ~= "file" then return nil, ("load: '%s' is a %s; it must be a vocabulary file"):format(path, KINDS[kind]) end
  local text, problem = core.files.text(path)
  if not text then return nil, problem end
  local wrong = read_vocabulary(self, text)
  if wrong then return nil, ("load: '%s' is not a vocabulary: %s"):format(path, wrong) end
  return setmetatable(self, metatable)
end

-- ---- From text to words -------------------------------------------------------------------------

local CHINESE = {
  { 0x4E00, 0x9FFF }, { 0x3400, 0x4DBF }, { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B73F }, { 0x2B740, 0x2B81F },
  { 0x2B920, 0x2CEAF }, { 0xF900, 0xFAFF }, { 0x2F800, 0x2FA1F }, -- 2B920 instead of 2B820, as in Hugging Face's code
}

--- A Chinese character with spaces around it; nil for other characters.
local function spaced_if_chinese(character)
  local code = compat.code(character)
  for _, range in ipairs(CHINESE) do
    if code >= range[1] and code <= range[2] then return " " .. character .. " " end
  end
end

local REPLACEMENT = compat.character(0xFFFD)
local CLEANED = { Cc = "", Cf = "", Co = "", Z = " " }
local WITHOUT_MARKS = { Mn = "" }
local SPACED_PUNCTUATION = { P = " %0 " }

--- An iterator over consecutive parts of a valid text, each of at most STEP bytes and ending at a character boundary.
local function steps_of(text)
  local from = 1
  return function()
    if from > #text then return end
    E.check_cancel "encode"
    local first, last = from, from + STEP - 1
    while text:find("^[\128-\191]", last + 1) do last = last - 1 end
    from = last + 1
    return text:sub(first, last)
  end
end

--- change(text), computed part by part; `change` must work on single characters.
local function in_steps(text, change)
  if #text <= STEP then return change(text) end
  local parts = {}
  for step in steps_of(text) do parts[#parts + 1] = change(step) end
  return table.concat(parts)
end

local function cleaned(self, text)
  text = text:gsub("[\194-\244][\128-\191]+", newer):gsub(REPLACEMENT, "")
  text = unicode.replace(text, CLEANED)
  if self.tokenize_chinese_chars then text = text:gsub("[\227-\240][\128-\191]+", spaced_if_chinese) end
  return text
end

local function without_marks(text) return unicode.replace(text, WITHOUT_MARKS) end

--- In lower case if the options say so, and with spaces around punctuation.
local function lowered_and_spaced(self, text)
  if text:find "[^ -~]" then text = unicode.replace(text, SPACED_PUNCTUATION) end
  if self.do_lower_case then text = unicode.lower(text) end
  return (text:gsub("[!-/:-@[-`{-~]", " %0 "))
end

--- The text as words separated by spaces. Punctuation marks and Chinese characters are words of their own.
local function words_of(self, text)
  local foreign = false
  text = in_steps(text, function(step)
    step = step:gsub("[\t\n\r]", " ")
    if not step:find "[^ -~]" then return step end
    foreign = true
    return cleaned(self, step)
  end)
  if foreign and self.strip_accents then text = in_steps(unicode.nfd(text), without_marks) end
  return in_steps(text, function(step) return lowered_and_spaced(self, step) end)
end

-- ---- From words to pieces -----------------------------------------------------------------------

--- Appends the pieces of a word to a list of ids: from the left, always the longest in the vocabulary.
local function add_word(self, word, ids)
  local before, from, prefix, id = #ids, 1, "", nil
  if #word <= LONGEST_WORD
    or #word <= MOST_BYTES and select(2, word:gsub("[^\128-\191]", "")) <= LONGEST_WORD then
    repeat
      id, from = self.vocabulary:longest(word, from, prefix)
      ids[#ids + 1], prefix = id, "##"
    until not id or from > #word
  end
  if id then return end
  for i = #ids, before + 1, -1 do ids[i] = nil end
  ids[before + 1] = self.unk_token_id
end

--- Appends the pieces of a text without special tokens to a list of ids, until there are at least `most` ids.
local function add_words(self, text, ids, most)
  local rest = "" -- the beginning of a word that may continue in the next step
  for step in steps_of(words_of(self, text)) do
    step = rest .. step
    rest = ""
    for word, next_byte in step:gmatch "([^ ]+)()" do
      if #ids >= most then return end
      if next_byte > #step then
        rest = word:sub(1, MOST_BYTES + 1) -- longer words are unknown, whatever follows
      else
        add_word(self, word, ids)
      end
    end
  end
  if rest ~= "" and #ids < most then add_word(self, rest, ids) end
end

--- The first special token at or after a byte of a text: its first byte, its name, and the byte after it; or nil.
local function find_special(self, text, from)
  local brackets = 0
  repeat
    local first = text:find("[", from, true)
    local name = first and text:match("^%[[A-Z][A-Z][A-Z][A-Z]?%]", first) -- the longest is [MASK]
    if name and self.special[name] then return first, name, first + #name end
    brackets = brackets + 1
    if brackets % 4096 == 0 then E.check_cancel "encode" end
    from = first and first + 1
  until not from
end

--- Appends the pieces of a text to a list of ids; at most `most` ids remain.
local function add_text(self, text, ids, most)
  local from, first, name, next_byte = 1, find_special(self, text, 1)
  while first do
    E.check_cancel "encode"
    add_words(self, text:sub(from, first - 1), ids, most)
    ids[#ids + 1] = self.special[name]
    from = next_byte
    first, name, next_byte = find_special(self, text, from)
  end
  add_words(self, from == 1 and text or text:sub(from), ids, most)
  for i = #ids, most + 1, -1 do ids[i] = nil end
end

-- ---- The methods --------------------------------------------------------------------------------

local function check(self, method, text)
  if getmetatable(self) ~= metatable then
    E.reject(method, "self", self, "a tokenizer; call the method with a colon")
  end
  E.check_type(text, "string", method, "text")
  local wrong = unicode.invalid(text)
  if wrong then fail("%s: text is not valid UTF-8 at byte %d", method, wrong) end
end

local ENCODE_OPTIONS, NO_OPTIONS = { "max_length", "add_special_tokens" }, {}

--- The ids of a text, with [CLS] first and [SEP] last unless add_special_tokens is false. max_length limits their
--- number.
function Tokenizer:encode(text, ...)
  check(self, "encode", text)
  local most, special = options_of("encode", ENCODE_OPTIONS, 3, self, text, ...)
  special = E.boolean(special, true, "encode", "add_special_tokens")
  if most ~= nil and not (compat.is_integer(most) and most >= (special and 2 or 0)) then
    E.reject("encode", "max_length", most, "an integer of at least %s", special and "2, for [CLS] and [SEP]" or "0")
  end
  local ids = { special and self.cls_token_id or nil }
  add_text(self, text, ids, most and (special and most - 1 or most) or math.huge)
  if special then ids[#ids + 1] = self.sep_token_id end
  return ids
end

--- The pieces of a text, without [CLS] and [SEP].
function Tokenizer:tokenize(text, ...)
  check(self, "tokenize", text)
  options_of("tokenize", NO_OPTIONS, 3, self, text, ...)
  local pieces = {}
  add_text(self, text, pieces, math.huge)
  for i, id in ipairs(pieces) do pieces[i] = self.vocabulary:piece(id) end
  return pieces
end

-- Hugging Face's replacements at the borders of pieces.
local SEAMS = {
  { " .", "." }, { " ?", "?" }, { " !", "!" }, { " ,", "," }, { " ' ", "'" }, { " n't", "n't" }, { " 'm", "'m" },
  { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
}

local function mend(text)
  for _, seam in ipairs(SEAMS) do
    if #text > STEP then E.check_cancel "decode" end
    text = text:gsub(seam[1]:gsub("%p", "%%%0"), seam[2])
  end
  return text
end

local DECODE_OPTIONS = { "skip_special_tokens", "clean_up_tokenization_spaces" }

--- The text of a list of ids, or of a tensor [n] of them, with spaces between the words.
function Tokenizer:decode(ids, ...)
  check(self, "decode", "")
  local skip, clean = options_of("decode", DECODE_OPTIONS, 3, self, ids, ...)
  skip = E.boolean(skip, false, "decode", "skip_special_tokens")
  clean = E.boolean(clean, false, "decode", "clean_up_tokenization_spaces")
  if E.kind(ids) == "tensor" and ids.ndim == 1 then ids = core.modules.indices(ids, "decode", "ids"):tolist() end
  if type(ids) ~= "table" then E.reject("decode", "ids", ids, "a list of ids") end
  local parts = {}
  for i = 1, #ids do
    local piece = compat.is_integer(ids[i]) and self.vocabulary:piece(ids[i])
    if not piece then
      E.reject("decode", ("element %d of ids"):format(i), ids[i], "an integer from 1 to %d", self.vocab_size)
    end
    if not (skip and self.special[piece]) then
      local tail = #parts > 0 and piece:match "^##(.*)$"
      parts[#parts + 1] = mend(tail or (#parts > 0 and " " or "") .. piece)
    end
  end
  local text = table.concat(parts)
  return clean and mend(text) or text
end

function metatable:__tostring()
  return ("WordPiece(vocab_size=%d, do_lower_case=%s)"):format(self.vocab_size, tostring(self.do_lower_case))
end

E.with_frames(Tokenizer)
return E.with_frames(M)
