-- The steps that a tokenizer.json may name, on small vocabularies of words; and files of which one value is wrong.
local made = require "tests.tokenizer_json"

local null, words, pieces = made.null, made.words, made.pieces

-- ---- Steps --------------------------------------------------------------------------------------

-- The normalizer makes `wanted` of the text.
local function normalizes(step, text, wanted)
  local tok = words({ wanted }, { normalizer = step })
  assert.same({ wanted }, pieces(tok, text), made.json(step))
end

-- The pre_tokenizer makes these pieces of the text.
local function splits(step, text, wanted)
  local tok = words(wanted, { pre_tokenizer = step })
  assert.same(wanted, pieces(tok, text), made.json(step) .. " " .. text)
end

-- The pattern matches these parts of the text, and no others.
local function matches(pattern, text, wanted)
  splits({ type = "Split", pattern = { Regex = pattern }, behavior = "Removed", invert = true }, text, wanted)
end

local function decodes(step, tokens, wanted)
  local tok, ids = words(tokens, { decoder = step }), {}
  for i, token in ipairs(tokens) do ids[i] = tok:id(token) end
  assert.equal(wanted, tok:decode(ids), made.json(step))
end

describe("a normalizer", function()
  it("of one step", function()
    normalizes({ type = "Lowercase" }, "ÀBc", "àbc")
    normalizes({ type = "NFC" }, "e\204\129", "é")
    normalizes({ type = "NFD" }, "é", "e\204\129")
    normalizes({ type = "NFKC" }, "ﬁ①", "fi1")
    normalizes({ type = "NFKD" }, "ﬁé", "fie\204\129")
    normalizes({ type = "StripAccents" }, "e\204\129a", "ea")
    normalizes({ type = "Prepend", prepend = "_" }, "ab", "_ab")
    normalizes({ type = "Replace", pattern = { String = "a" }, content = "xy" }, "banana", "bxynxynxy")
    normalizes({ type = "Replace", pattern = { Regex = " {2,}" }, content = " " }, "a   b  c", "a b c")
    normalizes(null, "ab", "ab")
  end)

  it("strips spaces of any kind at either end", function()
    normalizes({ type = "Strip" }, " \t\194\160a b\227\128\128 ", "a b")
    normalizes({ type = "Strip", strip_left = false }, " a ", " a")
    normalizes({ type = "Strip", strip_right = false }, " a ", "a ")
    assert.same({}, pieces(words({ "a" }, { normalizer = { type = "Strip" } }), " \t "))
  end)

  it("of BERT, whose parts can be turned off", function()
    normalizes({ type = "BertNormalizer" }, "É\1\226\128\139日b\t", "e 日 b ")
    normalizes({ type = "BertNormalizer", lowercase = false }, "É", "É")
    normalizes({ type = "BertNormalizer", lowercase = false, strip_accents = true }, "É", "E")
    normalizes({ type = "BertNormalizer", clean_text = false }, "a\1b", "a\1b")
    normalizes({ type = "BertNormalizer", handle_chinese_chars = false }, "日", "日")
    for _, character in ipairs { "㐀", "𠀀", "𪜀", "\240\171\164\160", "豈", "丽" } do
      normalizes({ type = "BertNormalizer", strip_accents = false }, "a" .. character .. "b", "a " .. character .. " b")
    end
    for _, character in ipairs { "あ", "한", "𝐀" } do
      normalizes({ type = "BertNormalizer", lowercase = false }, "a" .. character, "a" .. character)
    end
  end)

  it("of a charsmap of SentencePiece", function()
    local map = made.charsmap { x = "yy", ["!"] = "" }
    normalizes({ type = "Precompiled", precompiled_charsmap = made.base64(map) }, "axb!é", "ayybé")
    local function problem(text)
      return select(2, made.load { normalizer = { type = "Precompiled", precompiled_charsmap = text },
        model = { type = "WordLevel", vocab = { a = 0 } } })
    end
    assert.truthy(problem("*"):find("precompiled_charsmap is not base64", 1, true))
    assert.truthy(problem("AAA="):find("the charsmap has only 2 bytes", 1, true))
    assert.truthy(problem(made.base64(map:sub(1, 100))):find("the trie of the charsmap has 1024 bytes", 1, true))
    assert.truthy(problem(made.base64(map .. "x")):find("does not end with the byte 0", 1, true))
    assert.truthy(problem(null):find("without its charsmap", 1, true))
  end)

  it("of several steps", function()
    normalizes({ type = "Sequence", normalizers = { { type = "Lowercase" }, { type = "Prepend", prepend = "_" } } },
      "AB", "_ab")
  end)
end)

describe("a pre_tokenizer", function()
  it("splits at a text, of which it does what `behavior` says", function()
    local function at_dash(behavior, wanted, text, invert)
      local step = { type = "Split", pattern = { String = "-" }, behavior = behavior, invert = invert }
      splits(step, text or "a-b--c", wanted)
    end
    at_dash("Isolated", { "a", "-", "b", "-", "-", "c" })
    at_dash("Removed", { "a", "b", "c" })
    at_dash("MergedWithPrevious", { "a-", "b-", "-", "c" })
    at_dash("MergedWithNext", { "a", "-b", "-", "-c" })
    at_dash("Contiguous", { "a", "-", "b", "--", "c" })
    at_dash("contiguous", { "--", "a" }, "--a")
    at_dash("removed", { "-", "-", "-" }, "a-b--c", true)
    at_dash("merged_with_previous", { "-", "a-" }, "-a-")
    at_dash("merged_with_next", { "a", "-" }, "a-")
    at_dash(nil, { "-", "a" }, "-a")
  end)

  it("splits at spaces, punctuation marks, digits", function()
    splits({ type = "Whitespace" }, " a, b!\nc_d", { "a", ",", "b", "!", "c_d" })
    splits({ type = "WhitespaceSplit" }, " a,\tb\226\128\168c", { "a,", "b", "c" })
    splits({ type = "BertPreTokenizer" }, "a,b c", { "a", ",", "b", "c" })
    splits({ type = "Punctuation" }, "a!?„b`", { "a", "!", "?", "„", "b", "`" })
    splits({ type = "Punctuation", behavior = "Contiguous" }, "a!?b", { "a", "!?", "b" })
    splits({ type = "Digits" }, "a12b", { "a", "12", "b" })
    splits({ type = "Digits", individual_digits = true }, "a12٣", { "a", "1", "2", "٣" })
  end)

  it("writes spaces as a symbol", function()
    local function symbol(options, text, wanted)
      options.type, options.replacement = "Metaspace", "▁"
      splits(options, text, wanted)
    end
    symbol({}, "a b", { "▁a", "▁b" })
    symbol({ prepend_scheme = "first" }, "a b", { "▁a", "▁b" })
    symbol({ prepend_scheme = "never" }, "a b", { "a", "▁b" })
    symbol({ prepend_scheme = "always", split = false }, "a b", { "▁a▁b" })
    symbol({ add_prefix_space = false }, "a ▁b", { "a", "▁", "▁b" })
  end)

  it("of several steps", function()
    splits({ type = "Sequence", pretokenizers = { { type = "WhitespaceSplit" }, { type = "Digits" } } }, "a1 b2",
      { "a", "1", "b", "2" })
  end)
end)

describe("a pattern", function()
  it("of classes and characters", function()
    matches([[\d+]], "a12٣b", { "12٣" })
    matches([[\D+]], "12ab3", { "ab" })
    matches([[\w+]], "a_é1-b ⓐ", { "a_é1", "b", "ⓐ" })
    matches([[\W+]], "a -b", { " -" })
    matches([[\s+]], "a \226\128\168\tb\227\128\128", { " \226\128\168\t", "\227\128\128" })
    matches([[\S+]], " ab\194\160c", { "ab", "c" })
    matches("\\x41|\\x{1F600}|\\u0042", "xA😀B", { "A", "😀", "B" })
    matches("[\\x41-\\x43]+", "xABCD", { "ABC" })
    matches([=[[^a-c]+]=], "axyb", { "xy" })
    matches([=[[]a]+]=], "b]a", { "]a" })
    matches([=[[a\-z]+]=], "a-bz", { "a-", "z" })
    matches([=[[a-]+]=], "a-b", { "a-" })
    matches([=[[\d\s]+]=], "a1 2b", { "1 2" })
    matches([=[[^\w\s]+]=], "a, b!", { ",", "!" })
    matches([=[[\W\d]+]=], "a1-b", { "1-" })
    matches([=[[^\S]]=], "a b", { " " })
    matches([[\p{Lu}\p{Ll}*]], "abCde", { "Cde" })
    matches([[\pN|\PL]], "a1-", { "1", "-" })
    matches([[\P{L}+]], "a1-b", { "1-" })
    matches([[\p{^L}+]], "a1-b", { "1-" })
    matches([[\p{LC}+]], "aB1", { "aB" })
    matches([=[[\p{L}\p{M}]+]=], "e\204\1291", { "e\204\129" })
    matches([[a.c]], "abc a\nc aéc", { "abc", "aéc" })
    matches([[\.\*\r\n\t]], "x.*\r\n\t", { ".*\r\n\t" })
  end)

  it("of letters of either case", function()
    matches([[(?i:ab)]], "aB-AB", { "aB", "AB" })
    matches([[(?i:'s|'LL)x?]], "a'S'llX", { "'S", "'ll" })
    matches([=[(?i:[a-z]+)]=], "1aB2", { "aB" })
    matches([=[(?i:[xy]+)]=], "aXy", { "Xy" })
    matches([=[(?i:[Z-a]+)]=], "yzA_b", { "zA_" })
    matches([=[(?i:[r-t]+)]=], "aſS", { "ſS" })
    matches([[(?i:a)b]], "Ab AB", { "Ab" })
  end)

  it("of quantifiers", function()
    matches([[a{2}]], "aaaaa", { "aa", "aa" })
    matches([[a{2,}]], "a aaa", { "aaa" })
    matches([[a{1,2}]], "aaa", { "aa", "a" })
    matches([[ba?]], "b ba", { "b", "ba" })
    matches([[ba*]], "b baa", { "b", "baa" })
    matches([[a+?]], "aaa", { "a", "a", "a" })
    matches([[a+?b]], "aab", { "aab" })
    matches([[a{1,3}?b]], "aaaab", { "aaab" })
    matches([[a*?b]], "aab b", { "aab", "b" })
    matches([[a??b]], "ab b", { "ab", "b" })
    matches([[a++b]], "aab", { "aab" })
    matches([[a*+b?+]], "aab", { "aab" })
    matches([[a++a]], "aaa", {})
  end)

  it("of groups, alternatives and assertions", function()
    matches([[(?:ab)+]], "xababa", { "abab" })
    matches([[(?:ab){2}]], "ababab", { "abab" })
    matches([[(?:ab){1,2}c]], "ababc abc", { "ababc", "abc" })
    matches([[(?:ab){1,2}?]], "abab", { "ab", "ab" })
    matches([[(?:ab)?c]], "abc c", { "abc", "c" })
    matches([[(?:ab)*c]], "ababc c", { "ababc", "c" })
    matches([[(?:ab)*?c]], "ababc", { "ababc" })
    matches([[(?:ab){2,}]], "ab ababab", { "ababab" })
    matches([[(a|bc|)d]], "ad bcd d", { "ad", "bcd", "d" })
    matches([[a(?=b)]], "ab ac", { "a" })
    matches([[a(?!b)c?]], "ab ac", { "ac" })
    matches("\\Aa|b\\z", "aab bb", { "a", "b" })
    matches([[\s+(?!\S)|\s+]], "a  b ", { " ", " ", " " })
  end)

  it("is refused if it is broken, or of a kind that is not supported", function()
    local function refused(pattern, why)
      local tok, problem = made.load { model = { type = "WordLevel", vocab = { a = 0 } },
        pre_tokenizer = { type = "Split", pattern = { Regex = pattern }, behavior = "Isolated" } }
      assert.is_nil(tok, pattern)
      assert.truthy(problem:find(why, 1, true), pattern .. ": " .. problem)
    end
    refused("[a", "a class without an end")
    refused("[a[b]]", "a class within a class")
    refused("[a&&b]", "a class within a class")
    refused("[b-a]", "a range that ends before it begins")
    refused("[a-\\d]", "a range")
    refused("(?i:[a-é])", "(?i) with letters beyond ASCII")
    refused("(?i:é)", "(?i) with letters beyond ASCII")
    refused("\\q", "an escape")
    refused("\\", "an escape")
    refused("\\xZZ", "an invalid character code")
    refused("\\x{110000}", "an invalid character code")
    refused("\\x{41", "an invalid character code")
    refused("\\p{L", "a property other than a general category")
    refused("\\p", "a property other than a general category")
    refused("^a", "an anchor or a quantifier")
    refused("a$", "an anchor or a quantifier")
    refused("*a", "an anchor or a quantifier")
    refused("a{2,1}", "a count")
    refused("a{2", "a count")
    refused("a{1001}", "a count above 1000")
    refused("(?:ab)++", "a possessive group")
    refused("a)", "a parenthesis too many")
    refused("(?<n>a)", "a kind of group")
    refused("(?#a)", "a kind of group")
    refused(("("):rep(40) .. "a" .. (")"):rep(40), "groups nested too deeply")
    refused("(?:" .. ("abcdefghij"):rep(30) .. "){100}", "more than 20000 instructions")
    refused(("a|"):rep(40) .. "a", "more than 32 alternatives")
  end)
end)

describe("a decoder", function()
  it("of one step", function()
    decodes({ type = "WordPiece", prefix = "##" }, { "a", "##b", "c", ".", "do", "n't" }, "ab c. don't")
    decodes({ type = "WordPiece", prefix = "##", cleanup = false }, { "a", "##b", "." }, "ab .")
    decodes({ type = "Metaspace", replacement = "▁" }, { "▁a", "b▁c", "▁d" }, "ab c d")
    decodes({ type = "Metaspace", replacement = "▁", prepend_scheme = "never" }, { "▁a", "▁b" }, " a b")
    decodes({ type = "Replace", pattern = { String = "▁" }, content = " " }, { "a▁", "▁b" }, "a  b")
    decodes({ type = "Replace", pattern = { Regex = "x*" }, content = "-" }, { "axxb" }, "a-b")
    decodes({ type = "Strip", content = "_", start = 2, stop = 1 }, { "___a__", "_" }, "_a_")
    decodes({ type = "BPEDecoder", suffix = "</w>" }, { "a", "b</w>", "c</w>" }, "ab c")
    decodes({ type = "Fuse" }, { "a", "b" }, "ab")
    decodes({ type = "ByteLevel" }, { "aĠ", "Ã©", "日" }, "a é日")
  end)

  it("that reads tokens as bytes, of which invalid ones become U+FFFD", function()
    local step = { type = "ByteFallback" }
    decodes(step, { "<0xC3>", "<0xa9>", "x" }, "éx")
    decodes(step, { "<0xFF>", "<0xC3>", "x" }, "\239\191\189\239\191\189x")
    decodes(step, { "a", "<0xE6>" }, "a\239\191\189")
    decodes(step, { "<0xG0>", "<0x0G>", "<1x00>", "<0x00", "<0x-1>", "<0x00!" }, "<0xG0><0x0G><1x00><0x00<0x-1><0x00!")
  end)

  it("needs a symbol to search for", function()
    local _, problem = made.load { decoder = { type = "Metaspace", replacement = "" },
      model = { type = "WordLevel", vocab = { a = 0 } } }
    assert.truthy(problem:find("'replacement' of a step of the decoder is an empty string", 1, true), problem)
  end)

  it("of several steps", function()
    local strip = { type = "Strip", content = " ", start = 1, stop = 0 }
    decodes({ type = "Sequence", decoders = { { type = "Fuse" }, strip } }, { " a", " b" }, "a b")
  end)
end)

-- ---- Files of which one value is wrong ------------------------------------------------------------

local function token(id, content, more)
  more = more or {}
  more.id, more.content = id, content
  return more
end

-- Files that use every part of the format.
local FILES = {
  bpe = function()
    return {
      version = "1.0",
      added_tokens = { token(4, "<s>", { special = true, lstrip = true, rstrip = true, single_word = true,
        normalized = false }), token(5, "<x>", { normalized = true }) },
      normalizer = { type = "Sequence", normalizers = { { type = "NFC" },
        { type = "Replace", pattern = { String = "x" }, content = "y" } } },
      pre_tokenizer = { type = "Sequence", pretokenizers = {
        { type = "Split", pattern = { Regex = "\\s+" }, behavior = "Removed", invert = false },
        { type = "Metaspace", replacement = "_", prepend_scheme = "first", split = true } } },
      post_processor = { type = "TemplateProcessing",
        single = { { SpecialToken = { id = "<s>", type_id = 0 } }, { Sequence = { id = "A", type_id = 0 } },
          { SpecialToken = { id = "<s>", type_id = 0 } } },
        special_tokens = { ["<s>"] = { id = "<s>", ids = { 4 }, tokens = { "<s>" } } } },
      decoder = { type = "Sequence", decoders = { { type = "Metaspace", replacement = "_", prepend_scheme = "always" },
        { type = "Replace", pattern = { Regex = "x" }, content = "y" }, { type = "ByteFallback" } } },
      model = { type = "BPE", unk_token = "?", continuing_subword_prefix = "#", end_of_word_suffix = "w",
        fuse_unk = true, byte_fallback = true, ignore_merges = true, dropout = null,
        vocab = { ["?"] = 0, a = 1, ["#b"] = 2, ab = 3 }, merges = { "a #b" } },
    }
  end,
  bytes = function()
    return {
      added_tokens = { token(2, "<e>") },
      pre_tokenizer = { type = "ByteLevel", add_prefix_space = true, use_regex = true },
      post_processor = { type = "RobertaProcessing", cls = { "<e>", 2 }, sep = { "<e>", 2 } },
      decoder = { type = "ByteLevel" },
      model = { vocab = { a = 0, b = 1, ab = 3 }, merges = { { "a", "b" } } },
    }
  end,
  wordpiece = function()
    return {
      normalizer = { type = "BertNormalizer", lowercase = true, strip_accents = null, clean_text = true },
      pre_tokenizer = { type = "BertPreTokenizer" },
      post_processor = { type = "Sequence", processors = { { type = "BertProcessing", cls = { "[C]", 3 },
        sep = { "[C]", 3 } } } },
      decoder = { type = "WordPiece", prefix = "##", cleanup = true },
      model = { type = "WordPiece", unk_token = "?", continuing_subword_prefix = "##", max_input_chars_per_word = 10,
        vocab = { ["?"] = 0, a = 1, ["##b"] = 2, ["[C]"] = 3 } },
    }
  end,
  unigram = function()
    return {
      normalizer = { type = "Precompiled", precompiled_charsmap = made.base64(made.charsmap { x = "y" }) },
      pre_tokenizer = { type = "Metaspace", replacement = "▁", add_prefix_space = true },
      decoder = { type = "Strip", content = " ", start = 1, stop = 1 },
      model = { type = "Unigram", unk_id = 0, byte_fallback = false,
        vocab = { { "<unk>", 0 }, { "a", -1 }, { "▁", -2.5 }, { "▁a", -1.5 } } },
    }
  end,
}

local WRONG = { null, true, false, -1, 0.5, 1e9, 7, "", "x", "Sequence", {}, setmetatable({}, made.object), { {} },
  { 1, 2 }, { "a", "b" }, { type = "NFC" } }

describe("a tokenizer.json of which one value is wrong", function()
  -- Calls f(what) for each value of the tree, replaced by each wrong one and left out.
  local function each_change(root, f)
    local function walk(node, path)
      local keys = {}
      for key in pairs(node) do keys[#keys + 1] = key end
      for _, key in ipairs(keys) do
        local value, where = node[key], path .. "." .. tostring(key)
        if type(value) == "table" and value ~= null then walk(value, where) end
        for _, wrong in ipairs(WRONG) do
          node[key] = wrong
          f(where .. " = " .. made.json(wrong))
        end
        node[key] = nil
        if type(key) == "string" then f("without " .. where) end
        node[key] = value
      end
    end
    walk(root, "")
  end

  for name, file in pairs(FILES) do
    it("is refused with a message, or works: " .. name, function()
      assert.truthy(made.load(file()))
      local root, faults = file(), {}
      each_change(root, function(what)
        local tok, problem = made.load(root)
        if tok then
          local ids = tok:encode("ab <s> é x<x>", { allowed_special = true })
          assert(type(tok:decode(ids)) == "string", what)
        elseif not problem:find "^load: '.*': ." then
          faults[#faults + 1] = what .. ": " .. problem
        end
      end)
      assert.same({}, faults)
    end)
  end

  it("is refused if it is cut anywhere, or no JSON", function()
    local text = made.json(FILES.bytes())
    for size = 0, #text - 1 do
      local tok = made.load_text(text:sub(1, size))
      assert.is_nil(tok)
    end
    local function refused(content, why)
      local tok, problem = made.load_text(content)
      assert.is_nil(tok, content)
      assert.truthy(problem:find(why, 1, true), content .. ": " .. problem)
    end
    refused('{"a" 1}', "a colon is expected after the name")
    refused('{"a":1 "b":2}', "a comma or the end is expected")
    refused('{a:1}', "a name in quotes is expected")
    refused('{"a":1}x', "unexpected text after the value")
    refused('{"a\1":1}', "a string contains a control character")
    refused('{"a":"\\q"}', "an unknown escape in a string")
    refused('{"a":"\\u12x4"}', "an unknown escape in a string")
    refused('{"a":-}', "a digit is expected")
    refused('{"a":1.}', "a digit is expected")
    refused('{"a":1e}', "a digit is expected")
    refused('{"a":nul}', "a value is expected")
    refused(("["):rep(65), "nested too deeply")
    refused('{"a":"\255"}', "not UTF-8")
  end)

  it("may write characters and numbers in any way", function()
    local tok = made.load_text([[ {"model": {"type": "WordLevel", "vocab": {"\u00e9\ud83d\ude00": 0, "\ud800": 1.0,
      "\"\\\/\b\f\n\r\t": 2e0, "\udc00x": 0.3e+1, "\ud800\u0041": 400E-2, "long": 5.00000000000000000000000}}} ]])
    assert.equal(1, tok:id "é😀")
    assert.equal(2, tok:id "\239\191\189")
    assert.equal(3, tok:id "\"\\/\b\f\n\r\t")
    assert.equal(4, tok:id "\239\191\189x")
    assert.equal(5, tok:id "\239\191\189A")
    assert.equal(6, tok:id "long")
    assert.truthy(made.load_text("\239\187\191" .. made.json(FILES.bytes())))
  end)
end)

describe("added tokens", function()
  it("take the spaces beside them, and stand alone, if they say so", function()
    local function with(options)
      return words({ "a", "b", " ", "<m>" }, { added_tokens = { token(3, "<m>", options) },
        pre_tokenizer = { type = "Digits" } })
    end
    local allowed = { allowed_special = true }
    assert.same({ "?", "<m>", "?" }, pieces(with {}, "a <m> b", allowed))
    assert.same({ "a", "<m>", "?" }, pieces(with { lstrip = true }, "a <m> b", allowed))
    assert.same({ "?", "<m>", "b" }, pieces(with { rstrip = true }, "a <m>\227\128\128 b", allowed))
    assert.same({ "<m>", "<m>" }, pieces(with { lstrip = true, rstrip = true }, "<m>  <m> ", allowed))
    assert.same({ "?", "?" }, { pieces(with { single_word = true }, "a<m>", allowed)[1],
      pieces(with { single_word = true }, "<m>é", allowed)[1] })
    assert.same({ "<m>", "?" }, pieces(with { single_word = true }, "<m>-", allowed))
  end)
end)

