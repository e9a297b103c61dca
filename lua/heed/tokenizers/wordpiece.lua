--- BERT's tokenizer: `require "heed.tokenizers.wordpiece".load "vocab.txt"`. Text becomes words, and words the
--- longest pieces that the vocabulary has, from the left; pieces inside of a word begin with "##". The ids are
--- those of Hugging Face's BertTokenizer, plus 1: they count from 1, as the lines of the vocabulary.
--- Source: arXiv:1810.04805; arXiv:1609.08144, section 4.1.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local newer = require "heed.tokenizers.unicode8"
local unicode, options_of, fail = core.text, core.modules.options, E.fail

local LONGEST_WORD = 100 -- characters; a longer one is unknown as a whole
local MOST_BYTES = 4 * LONGEST_WORD -- of such a word
local STEP = 2 ^ 15 -- bytes of a text that are worked on at once; between two of these the call can be stopped
local SPECIAL = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" }

local M = {}
local Tokenizer = {}
local metatable = { __name = "heed.WordPiece", __index = Tokenizer }

-- ---- The vocabulary -----------------------------------------------------------------------------

local function line_of(text, position)
  local line, at = 1, text:find("\n", 1, true)
  while at and at < position do
    line, at = line + 1, text:find("\n", at + 1, true)
    if line % 4096 == 0 then E.look "load" end
  end
  return line
end

--- What keeps a text from being a vocabulary, nil if nothing does that shows without a look at the pieces.
local function problem_of(text)
  local wrong = unicode.invalid(text)
  if wrong then return ("line %d is not valid UTF-8"):format(line_of(text, wrong)) end
  if text == "" then return "it is empty" end
  local carriage = text:find("\r", 1, true)
  if carriage then
    return ("line %d has a carriage return; lines must end with a line feed alone"):format(line_of(text, carriage))
  end
end

--- Gives a tokenizer the vocabulary that a text is; what is wrong with it, if something is.
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

--- The tokenizer of a vocabulary, a file with a piece on each line. The options are those of a model's
--- tokenizer_config.json; accents are stripped when text is put into lower case, unless strip_accents says
--- otherwise. nil and a message if the file is missing or no vocabulary.
function M.load(path, ...)
  local lower, strip, chinese = options_of("load", LOAD_OPTIONS, 2, path, ...)
  E.check_type(path, "string", "load", "path")
  if lower == nil then lower = true end
  if strip == nil then strip = lower end
  if chinese == nil then chinese = true end
  local self = { do_lower_case = lower, strip_accents = strip, tokenize_chinese_chars = chinese }
  for _, name in ipairs(LOAD_OPTIONS) do E.check_type(self[name], "boolean", "load", name) end
  local kind = core.files.kind(path)
  if not kind then return nil, ("load: there is no file '%s'"):format(path) end
  if kind ~= "file" then return nil, ("load: '%s' is a %s, not a vocabulary"):format(path, KINDS[kind]) end
  local text, problem = core.files.text(path)
  if not text then return nil, problem end
  local wrong = read_vocabulary(self, text)
  if wrong then return nil, ("load: '%s' is no vocabulary: %s"):format(path, wrong) end
  return setmetatable(self, metatable)
end

-- ---- From text to words -------------------------------------------------------------------------

local CHINESE = {
  { 0x4E00, 0x9FFF }, { 0x3400, 0x4DBF }, { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B73F }, { 0x2B740, 0x2B81F },
  { 0x2B920, 0x2CEAF }, { 0xF900, 0xFAFF }, { 0x2F800, 0x2FA1F }, -- 2B920: so it stands there, for 2B820
}

local function apart_if_chinese(character)
  local code = compat.code(character)
  for _, range in ipairs(CHINESE) do
    if code >= range[1] and code <= range[2] then return " " .. character .. " " end
  end
end

local REPLACEMENT = compat.character(0xFFFD)
local CLEANED = { Cc = "", Cf = "", Co = "", Z = " " }
local WITHOUT_MARKS = { Mn = "" }
local PUNCTUATION_APART = { P = " %0 " }

--- An iterator over the pieces of a valid text, which end between two characters.
local function steps_of(text)
  local from = 1
  return function()
    if from > #text then return end
    E.look "encode"
    local first, last = from, from + STEP - 1
    while text:find("^[\128-\191]", last + 1) do last = last - 1 end
    from = last + 1
    return text:sub(first, last)
  end
end

--- change(text), for a change of single characters.
local function in_steps(text, change)
  if #text <= STEP then return change(text) end
  local parts = {}
  for step in steps_of(text) do parts[#parts + 1] = change(step) end
  return table.concat(parts)
end

local function cleaned(self, text)
  text = text:gsub("[\194-\244][\128-\191]+", newer):gsub(REPLACEMENT, "")
  text = unicode.replace(text, CLEANED)
  if self.tokenize_chinese_chars then text = text:gsub("[\227-\240][\128-\191]+", apart_if_chinese) end
  return text
end

local function without_marks(text) return unicode.replace(text, WITHOUT_MARKS) end

local function apart(self, text)
  if text:find "[^ -~]" then text = unicode.replace(text, PUNCTUATION_APART) end
  if self.do_lower_case then text = unicode.lower(text) end
  return (text:gsub("[!-/:-@[-`{-~]", " %0 "))
end

--- The text as words with spaces between: punctuation and Chinese characters are words of their own.
local function words_of(self, text)
  local foreign = false
  text = in_steps(text, function(step)
    step = step:gsub("[\t\n\r]", " ")
    if not step:find "[^ -~]" then return step end
    foreign = true
    return cleaned(self, step)
  end)
  if foreign and self.strip_accents then text = in_steps(unicode.nfd(text), without_marks) end
  return in_steps(text, function(step) return apart(self, step) end)
end

-- ---- From words to pieces -----------------------------------------------------------------------

--- Appends the pieces of a word to a list of ids: the longest that fit, from the left.
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

--- Appends the pieces of a text without special tokens to a list of ids, until there are `most` of them.
local function add_words(self, text, ids, most)
  local rest = "" -- of a word that may go on in the next step
  for step in steps_of(words_of(self, text)) do
    step = rest .. step
    rest = ""
    for word, behind in step:gmatch "([^ ]+)()" do
      if #ids >= most then return end
      if behind > #step then
        rest = word:sub(1, MOST_BYTES + 1) -- a longer one is unknown whatever follows
      else
        add_word(self, word, ids)
      end
    end
  end
  if rest ~= "" and #ids < most then add_word(self, rest, ids) end
end

--- The next special token of a text from a byte on: where it begins, its name, and the byte behind it.
local function find_special(self, text, from)
  local brackets = 0
  repeat
    local first = text:find("[", from, true)
    local name = first and text:match("^%[[A-Z][A-Z][A-Z][A-Z]?%]", first) -- the longest is [MASK]
    if name and self.special[name] then return first, name, first + #name end
    brackets = brackets + 1
    if brackets % 4096 == 0 then E.look "encode" end
    from = first and first + 1
  until not from
end

--- Appends the pieces of a text to a list of ids, until there are `most` of them.
local function add_text(self, text, ids, most)
  local from, first, name, behind = 1, find_special(self, text, 1)
  while first do
    E.look "encode"
    add_words(self, text:sub(from, first - 1), ids, most)
    ids[#ids + 1] = self.special[name]
    from = behind
    first, name, behind = find_special(self, text, from)
  end
  add_words(self, from == 1 and text or text:sub(from), ids, most)
  for i = #ids, most + 1, -1 do ids[i] = nil end
end

-- ---- The methods --------------------------------------------------------------------------------

local function check(self, method, text)
  if getmetatable(self) ~= metatable then
    fail("%s: self must be a tokenizer, got %s (methods are called with a colon)", method, E.what(self))
  end
  if text == nil or type(text) ~= "string" then fail("%s: text must be a string, got %s", method, E.what(text)) end
  local wrong = unicode.invalid(text)
  if wrong then fail("%s: text is not valid UTF-8 at byte %d", method, wrong) end
end

local ENCODE_OPTIONS, NO_OPTIONS = { "max_length" }, {}

--- The ids of a text, between those of [CLS] and [SEP]. With max_length at most so many, the last being [SEP].
function Tokenizer:encode(text, ...)
  check(self, "encode", text)
  local most = options_of("encode", ENCODE_OPTIONS, 3, self, text, ...)
  if most ~= nil and not (compat.is_integer(most) and most >= 2) then
    fail("encode: max_length must be an integer of at least 2, for [CLS] and [SEP], got %s", E.what(most))
  end
  local ids = { self.cls_token_id }
  add_text(self, text, ids, most and most - 1 or math.huge)
  ids[#ids + 1] = self.sep_token_id
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

-- What Hugging Face mends where pieces meet.
local SEAMS = {
  { " .", "." }, { " ?", "?" }, { " !", "!" }, { " ,", "," }, { " ' ", "'" }, { " n't", "n't" }, { " 'm", "'m" },
  { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
}

local function mend(text)
  for _, seam in ipairs(SEAMS) do
    if #text > STEP then E.look "decode" end
    text = text:gsub(seam[1]:gsub("%p", "%%%0"), seam[2])
  end
  return text
end

local DECODE_OPTIONS = { "skip_special_tokens", "clean_up_tokenization_spaces" }

--- The text of a list (or an int64 tensor) of ids, with spaces between the words.
function Tokenizer:decode(ids, ...)
  check(self, "decode", "")
  local skip, clean = options_of("decode", DECODE_OPTIONS, 3, self, ids, ...)
  for i, value in ipairs { skip or false, clean or false } do
    E.check_type(value, "boolean", "decode", DECODE_OPTIONS[i])
  end
  if E.kind(ids) == "tensor" and ids.ndim == 1 then ids = ids:tolist() end
  if type(ids) ~= "table" then fail("decode: ids must be a list of ids, got %s", E.what(ids)) end
  local parts = {}
  for i = 1, #ids do
    local piece = compat.is_integer(ids[i]) and self.vocabulary:piece(ids[i])
    if not piece then
      fail("decode: element %d is %s; the ids are integers from 1 to %d", i, E.what(ids[i]), self.vocab_size)
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
