-- heed.tokenizers.wordpiece: Hugging Face's ids if the real vocabulary is present, and tests with small ones.
local core = require "heed.core"
local heed = require "heed"
local raises = require "tests.raises"
local support = require "tests.support"
local wordpiece = require "heed.tokenizers.wordpiece"

local PIECES = {
  "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "##a", "a", "cafe", "Café", "café", ".", ",",
  "'", "isn", "t", "日", "##本", "本", "[", "]", "it",
}
local UNK, CLS, SEP = 2, 3, 4

-- The results of load for a vocabulary with that text.
local function load_text(text, options)
  return support.with_file(function(path)
    support.write(path, text)
    local tokenizer, problem = wordpiece.load(path, options)
    return tokenizer, problem and problem:gsub(path:gsub("%p", "%%%0"), "FILE")
  end)
end

local function small(options) return assert(load_text(table.concat(PIECES, "\n") .. "\n", options)) end

local function pieces(text, options) return table.concat(small(options):tokenize(text), " ") end

-- Replaces code points in braces by characters: u "e{301}".
local function u(text) return (text:gsub("{(%x+)}", function(code) return utf8.char(tonumber(code, 16)) end)) end

describe("a WordPiece tokenizer", function()
  it("takes the longest pieces from the left", function()
    assert.equal("un ##aff ##able", pieces "unaffable")
    assert.are.same({ CLS, 6, 7, 8, SEP }, small():encode "unaffable")
  end)

  it("gives [UNK] for a word that cannot be split into pieces", function()
    assert.equal("[UNK] a", pieces "unaffableness a")
  end)

  it("gives [UNK] for a word of more than 100 characters", function()
    assert.equal("a" .. (" ##a"):rep(99), pieces(("a"):rep(100)))
    assert.equal("[UNK]", pieces(("a"):rep(101)))
    assert.equal("a" .. (" ##a"):rep(99), pieces(("á"):rep(100)))
    assert.equal("[UNK]", pieces(("á"):rep(101)))
  end)

  it("converts text to lower case and removes accents", function()
    assert.equal("cafe cafe", pieces (u "CAFÉ Cafe{301}"))
    assert.equal("café cafe", pieces("CAFÉ cafe", { strip_accents = false }))
  end)

  it("keeps case and accents if the options say so", function()
    assert.equal("Café [UNK] cafe", pieces("Café CAFÉ cafe", { do_lower_case = false }))
    assert.equal("[UNK] cafe", pieces("CAFÉ café", { do_lower_case = false, strip_accents = true }))
  end)

  it("treats punctuation marks and Chinese characters as words", function()
    assert.equal("isn ' t it . . , a", pieces "isn't it..,a")
    assert.equal("a 日 本 a", pieces "a日本a")
    assert.equal("日 ##本", pieces("日本", { tokenize_chinese_chars = false }))
  end)

  it("removes control characters and treats every kind of space alike", function()
    assert.equal("cafe a a a", pieces (u "ca\0f{200B}e{FFFD}\ta{3000}a{2028}a\r\n"))
  end)

  it("recognizes special tokens in the text", function()
    assert.equal("a [MASK] a [SEP] [CLS] [PAD] [UNK]", pieces "a[MASK]a [SEP][CLS] [PAD] [UNK]")
    assert.equal("[ [MASK] ] [ [UNK] ]", pieces "[[MASK]] [mask]")
  end)

  it("truncates to max_length ids, the last of which is [SEP]", function()
    local tokenizer = small()
    assert.are.same({ CLS, 6, 7, SEP }, tokenizer:encode("unaffable a", { max_length = 4 }))
    assert.are.same({ CLS, SEP }, tokenizer:encode("unaffable a", { max_length = 2 }))
    assert.are.same({ CLS, 6, 7, 8, 10, SEP }, tokenizer:encode("unaffable a", { max_length = 6 }))
    assert.are.same({ CLS, 10, SEP }, tokenizer:encode("a[MASK]", { max_length = 3 }))
  end)

  it("gives [CLS] and [SEP] for an empty text", function()
    assert.are.same({ CLS, SEP }, small():encode "")
    assert.are.same({}, small():tokenize " \n")
  end)

  it("has fields for its special tokens, and a text", function()
    local tokenizer = small()
    assert.equal(#PIECES, tokenizer.vocab_size)
    assert.equal(UNK, tokenizer.unk_token_id)
    assert.equal(1, tokenizer.pad_token_id)
    assert.equal("WordPiece(vocab_size=24, do_lower_case=true)", tostring(tokenizer))
  end)

  it("takes linear time", function()
    local tokenizer, start = small(), os.clock()
    tokenizer:encode(((u "{301}{323}")):rep(50000))
    tokenizer:encode(("unaffable,"):rep(10000))
    assert.is_true(os.clock() - start < 5)
  end)
end)

describe("decode", function()
  it("joins pieces to text", function()
    local tokenizer = small()
    assert.equal("[CLS] unaffable isn ' t it. [SEP]", tokenizer:decode(tokenizer:encode "unaffable isn't it."))
  end)

  it("omits special tokens and joins contractions if the options say so", function()
    local tokenizer = small()
    local ids = tokenizer:encode "isn't it, a."
    local options = { skip_special_tokens = true, clean_up_tokenization_spaces = true }
    assert.equal("isn't it, a.", tokenizer:decode(ids, options))
  end)

  it("accepts an int64 tensor", function()
    assert.equal("un a", small():decode(heed.tensor({ 6, 10 }, { dtype = "int64" })))
  end)

  it("rejects invalid ids", function()
    local tokenizer = small()
    local range = "; it must be an integer from 1 to 24"
    raises("decode: element 2 of ids is the number 25" .. range, function() tokenizer:decode { 1, 25 } end)
    raises("decode: element 1 of ids is the number 0" .. range, function() tokenizer:decode { 0 } end)
    raises("decode: element 1 of ids is a string ('a')" .. range, function() tokenizer:decode { "a" } end)
    raises("decode: ids is nil; it must be a list of ids", function() tokenizer:decode() end)
  end)
end)

describe("a tokenizer's arguments", function()
  it("must be valid UTF-8; otherwise the message names the byte", function()
    local tokenizer = small()
    raises("encode: text is not valid UTF-8 at byte 3", function() tokenizer:encode "a \255" end)
    raises("encode: text is not valid UTF-8 at byte 1", function() tokenizer:encode "\192\128" end) -- overlong
    raises("encode: text is not valid UTF-8 at byte 2", function() tokenizer:encode "a\237\160\128" end) -- a surrogate
    raises("tokenize: text is not valid UTF-8 at byte 2", function() tokenizer:tokenize "a\230\151" end) -- truncated
    raises("tokenize: text is not valid UTF-8 at byte 1", function() tokenizer:tokenize "\244\144\128\128" end)
  end)

  it("must be strings and valid lengths", function()
    local tokenizer = small()
    raises("encode: text is the number 1; it must be a string", function() tokenizer:encode(1) end)
    raises("encode: text is nil; it must be a string", function() tokenizer:encode() end)
    raises("encode: max_length is the number 1; it must be an integer of at least 2, for [CLS] and [SEP]",
      function() tokenizer:encode("a", { max_length = 1 }) end)
    raises("encode: there is no option 'length'; the options are max_length, add_special_tokens; did you mean "
      .. "'max_length'?",
      function() tokenizer:encode("a", { length = 4 }) end)
    raises("encode: self is a string ('a'); it must be a tokenizer; call the method with a colon",
      function() tokenizer.encode "a" end)
  end)
end)

describe("loading a vocabulary", function()
  it("reports problems with it", function()
    local good = "[UNK]\n[CLS]\n[SEP]\n"
    local cases = {
      { "", "it is empty" },
      { "a\n", "[UNK] is missing" },
      { "\n" .. good, "line 1 is empty; a vocabulary has a piece on each line" },
      { good .. "a\n\n", "line 5 is empty; a vocabulary has a piece on each line" },
      { "[UNK]\n[CLS]\n", "[SEP] is missing" },
      { good .. "a\nb\na\n", "lines 4 and 6 are the same" },
      { good .. "##a\n##a\n", "lines 4 and 5 are the same" },
      { good .. "\na\n", "line 4 is empty; a vocabulary has a piece on each line" },
      { "[UNK]\r\n[CLS]\r\n", "line 1 has a carriage return; lines must end with a line feed only" },
      { good .. "a\255\n", "line 4 is not valid UTF-8" },
    }
    for _, case in ipairs(cases) do
      local tokenizer, problem = load_text(case[1])
      assert.is_nil(tokenizer)
      assert.equal("load: 'FILE' is not a vocabulary: " .. case[2], problem)
    end
  end)

  it("accepts a file whose last line has no line feed", function()
    assert.equal(3, load_text("[UNK]\n[CLS]\n[SEP]").vocab_size)
  end)

  it("reports that a file is missing, or not a regular file", function()
    local tokenizer, problem = wordpiece.load "/nowhere/vocab.txt"
    assert.is_nil(tokenizer)
    assert.equal("load: no such file: '/nowhere/vocab.txt'", problem)
    tokenizer, problem = wordpiece.load "/"
    assert.is_nil(tokenizer)
    assert.equal("load: '/' is a directory; it must be a vocabulary file", problem)
  end)

  it("raises an error for wrong arguments", function()
    raises("load: path is nil; it must be a string", function() wordpiece.load() end)
    raises("load: do_lower_case is a string ('yes'); it must be a boolean",
      function() wordpiece.load("vocab.txt", { do_lower_case = "yes" }) end)
  end)
end)

describe("core.text", function()
  local text = core.text

  it("decomposes characters as in Unicode's NFD, with marks in order", function()
    assert.equal((u "a{323}{301}b"), text.nfd (u "a{301}{323}b"))
    assert.equal((u "{1112}{1161}{11AB}"), text.nfd "한")
    assert.equal((u "{3B9}{308}{301}"), text.nfd (u "{390}"))
    assert.equal(("a" .. ((u "{323}")):rep(3) .. ((u "{301}")):rep(3)), text.nfd("a" .. ((u "{301}{323}")):rep(3)))
    assert.equal("", text.nfd "")
  end)

  it("decomposes a run of marks that is longer than a step", function()
    local count = 100000
    assert.is_true("a" .. (u "{323}"):rep(count) .. (u "{301}"):rep(count) .. "b"
      == text.nfd("a" .. (u "{301}{323}"):rep(count) .. "b"))
  end)

  it("converts characters to lower case, independently of their neighbours", function()
    assert.equal((u "àσi{307}z{2C65}k"), text.lower (u "ÀΣİZ{23A}{212A}"))
  end)

  it("replaces by category", function()
    assert.equal("a<.>_b<—>c", text.replace((u "a. b—c{301}"), { P = "<%0>", Mn = "", Z = "_" }))
    assert.equal("ab", text.replace("ab", {}))
  end)

  it("rejects invalid UTF-8", function()
    assert.equal(2, text.invalid "a\128")
    assert.is_nil(text.invalid "aé日😀")
    -- around the border of two steps of 2^16 bytes, and at the beginning of a text
    for _, wrong in ipairs { "\240\144\128\128\128\128b", "😀\128", "é\255", "\128\128\128\128\128b", "日\230\151" } do
      for before = 2 ^ 16 - 9, 2 ^ 16 + 1 do
        assert.equal(before + text.invalid(wrong), text.invalid(("a"):rep(before) .. wrong))
      end
    end
    for _, name in ipairs { "lower", "nfd", "replace" } do
      assert.has_error(function() text[name]("a\128", {}) end)
    end
  end)
end)

-- Lines that FNV-1a, a hash without a key, maps to the same slot of `slots` (a power of two, at most 2^17): its lowest
-- bits depend only on the lowest bits of the bytes before, so that it can be inverted from the slot.
local PRIME = 16777619

local function xor(a, b)
  local result, bit = 0, 1
  while a > 0 or b > 0 do
    if a % 2 ~= b % 2 then result = result + bit end
    a, b, bit = math.floor(a / 2), math.floor(b / 2), 2 * bit
  end
  return result
end

local function crafted_lines(count, slots)
  local xors, inverse = {}, 1
  for a = 0, 255 do
    xors[a] = {}
    for b = 0, 255 do xors[a][b] = xor(a, b) end
  end
  local function mix(hash, byte) return hash - hash % 256 + xors[hash % 256][byte] end
  local function forwards(hash, text)
    for i = 1, #text do hash = mix(hash, text:byte(i)) * PRIME % slots end
    return hash
  end
  repeat inverse = inverse * inverse % slots * PRIME % slots until inverse * PRIME % slots == 1

  -- Suffixes by the hash before them that lead to slot 0.
  local endings, letters = {}, "abcdefghijklmnopqrstuvwxyz0123456789"
  local function backwards(hash, ending, left)
    endings[hash] = ending
    for i = 1, left > 0 and #letters or 0 do
      local letter = letters:sub(i, i)
      backwards(mix(hash * inverse % slots, letter:byte()), letter .. ending, left - 1)
    end
  end
  backwards(0, "", 3)
  local lines, seen, number = {}, {}, 0
  while #lines < count do
    number = number + 1
    local start = ("%d_"):format(number)
    local ending = endings[forwards(2166136261 % slots, start)]
    local line = ending and start .. ending
    if line and not seen[line] then
      assert(forwards(2166136261 % slots, line) == 0)
      lines[#lines + 1], seen[line] = line, true
    end
  end
  return lines
end

-- The number of slots read while a vocabulary is made from these lines.
local function probes(lines)
  return core.text.vocabulary(table.concat(lines, "\n") .. "\n"):probes()
end

describe("the hash table of a vocabulary", function()
  it("handles lines that were made to collide like any others", function()
    local count, ordinary = 5000, {}
    for i = 1, count do ordinary[i] = "line" .. i end
    local crafted = crafted_lines(count, 16384)
    -- With 5000 of 16384 slots in use, a line reads 1.2 slots on average; if all lines collided, it would read 2500.
    assert.is_true(probes(ordinary) < 2 * count)
    assert.is_true(probes(crafted) < 2 * count)
  end)

  it("has a different seed in each Lua state", function()
    local script = [[
      local lines = {}
      for i = 1, 1000 do lines[i] = "line" .. i end
      local vocabulary = require("heed.core").text.vocabulary(table.concat(lines, "\n") .. "\n")
      print(vocabulary:probes())]]
    local found, different = nil, false
    for _ = 1, 5 do
      local done = support.run(support.heed .. " -e " .. support.quote(script))
      assert.equal("", done.err)
      different = different or found ~= nil and found ~= done.out
      found = done.out
    end
    assert.is_true(different)
  end)
end)

describe("the vocabulary of all-MiniLM-L6-v2", function()
  local model = support.model()
  if not model then
    pending "is not here; `make model` fetches it"
    return
  end
  local tokenizers = {}
  local function tokenizer_of(options)
    local key = ""
    for name, value in pairs(options or {}) do key = key .. name .. tostring(value) end
    tokenizers[key] = tokenizers[key] or assert(wordpiece.load(model .. "/vocab.txt", options or {}))
    return tokenizers[key]
  end

  it("gives the ids of Hugging Face's tokenizer", function()
    for _, case in ipairs(dofile "tests/golden/wordpiece.lua") do
      local ids = tokenizer_of(case.options):encode(case.text)
      for i, id in ipairs(ids) do ids[i] = id - 1 end
      assert.are.same(case.ids, ids, case.text)
    end
  end)

  it("is fast with ten thousand characters", function()
    local tokenizer, text, start = tokenizer_of(), ("Zwölf Boxkämpfer jagen 东京, "):rep(400), os.clock()
    assert.equal(256, #tokenizer:encode(text, { max_length = 256 }))
    assert.is_true(os.clock() - start < 0.5)
  end)
end)

describe("a vocabulary of lines", function()
  it("finds pieces, and nothing outside of them", function()
    local v = require("heed.core").text.vocabulary("a\nab\n" .. ("b"):rep(600) .. "\n")
    assert.equal(3, #v)
    assert.equal(2, v:id "ab")
    assert.is_nil(v:id(("b"):rep(601)))
    assert.equal("ab", v:piece(2))
    for _, id in ipairs { 0, 4, -1, 2 ^ 53, "x", 1.5 } do assert.is_nil(v:piece(id)) end
    assert.same({ 2, 3 }, { v:longest("abc", 1, "") })
    assert.same({ 2, 2 }, { v:longest("bc", 1, "a") })
    for _, from in ipairs { 0, 4, -1 } do assert.is_nil(v:longest("abc", from, "")) end
    assert.is_nil(v:longest("abc", 1, ("p"):rep(601)))
    assert.is_nil(v:longest(("b"):rep(600), 1, "")) -- longer than what is looked for at once
    for _, self in ipairs { 1, "x", {}, io.stderr, false } do
      for _, name in ipairs { "id", "piece", "longest", "probes" } do
        assert.is_false(pcall(v[name], self, "a", 1, ""))
      end
    end
  end)
end)
