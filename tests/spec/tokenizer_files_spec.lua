-- Tokenizers in GGUF files, SentencePiece models and older files: small ones, and what is refused in damaged ones.
local gguf = require "tests.gguf"
local heed = require "heed"
local made = require "tests.tokenizer_json"
local support = require "tests.support"

local unpack = support.unpack
local TEXT = "ab <s> ba x"

-- Uses a tokenizer if there is one; else there is a message about the file. Returns whether there was one.
local function use(tok, problem, what)
  if not tok then
    assert(problem:find "^load: '.*': .", tostring(what) .. ": " .. problem)
    return false
  end
  assert(type(tok:decode(tok:encode(TEXT, { allowed_special = true }))) == "string", what)
  return true
end

describe("a tokenizer in a GGUF file of which one pair is wrong", function()
  local function key(name) return "tokenizer.ggml." .. name end
  local TOKENS = { "string", "<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁a" }
  local TYPES = { "int32", 2, 3, 3, 1, 1, 4, 1, 5 }
  local SCORES = { "float32", 0, 0, 0, -1, -1, -2, -3, -1 }
  local KINDS = {
    gpt2 = { { "pre", "string", "gpt-2" }, { "merges", "array", { "string", "a b" } } },
    llama = { { "scores", "array", SCORES }, { "add_space_prefix", "bool", true } },
    t5 = { { "scores", "array", SCORES }, { "remove_extra_whitespaces", "bool", true },
      { "precompiled_charsmap", "array", nil } },
    bert = {},
  }
  local bytes = { "uint8", made.charsmap({ x = "y" }):byte(1, -1) }
  KINDS.t5[3][3] = bytes
  local WRONG = { { "uint32", 7 }, { "uint64", 2 ^ 40 }, { "float32", 0.5 }, { "bool", false }, { "string", "x" },
    { "string", "" }, { "string", "\255" }, { "array", { "string" } }, { "array", { "string", "a", "a" } },
    { "array", { "string", "\255", "a", "b", "c", "d", "e", "f", "g" } }, { "array", { "uint8", 1, 2 } },
    { "array", { "int32", 6, 7, 1, 2, 2, 2, 2, 2 } }, { "array", { "float32", 0 / 0, 0, 0, 0, 0, 0, 0, 1 / 0 } },
    { "array", { "string", "a", "a", "b", "c", "d", "e", "f", "g" } }, { "array", { "string", "<0x00>", "<s>", "</s>",
      "", "b", "[UNK]", "[CLS]", "[SEP]" } } }

  for kind, more in pairs(KINDS) do
    it("is refused with a message, or works: " .. kind, function()
      local list = { { "model", "string", kind }, { "tokens", "array", TOKENS }, { "token_type", "array", TYPES },
        { "bos_token_id", "uint32", 1 }, { "eos_token_id", "uint32", 2 }, { "unknown_token_id", "uint32", 0 },
        { "add_bos_token", "bool", true }, { "add_eos_token", "bool", true } }
      if kind == "bert" then
        list[2][3] = { "string", "[UNK]", "[CLS]", "[SEP]", "▁a", "b", "▁ab", "▁", "▁<" }
      end
      for _, pair in ipairs(more) do list[#list + 1] = pair end
      if kind == "llama" then -- falls back on bytes
        list[2][3], list[3][3], list[9][3] = { unpack(TOKENS) }, { unpack(TYPES) }, { unpack(SCORES) }
        for byte = 0, 255 do
          table.insert(list[2][3], ("<0x%02X>"):format(byte))
          table.insert(list[3][3], 6)
          table.insert(list[9][3], 0)
        end
      end
      local function load(changed, kind_of, value)
        local pairs_of = {}
        for i, pair in ipairs(list) do
          local name, a, b = pair[1], pair[2], pair[3]
          if i == changed then a, b = kind_of, value end
          if a then pairs_of[#pairs_of + 1] = gguf.pair(key(name), a, b) end
        end
        return made.load_text(gguf.file(pairs_of, {}), "gguf")
      end
      assert(use(load()))
      for i, pair in ipairs(list) do
        use(load(i)) -- without it
        for _, wrong in ipairs(WRONG) do
          local tok, problem = load(i, wrong[1], wrong[2])
          use(tok, problem, pair[1])
        end
      end
    end)
  end
end)

-- ---- SentencePiece ------------------------------------------------------------------------------

local function varint(n)
  local bytes = ""
  while n >= 128 do
    bytes, n = bytes .. string.char(128 + n % 128), math.floor(n / 128)
  end
  return bytes .. string.char(n)
end
local function number(field, n) return varint(field * 8) .. varint(n) end
local function text(field, bytes) return varint(field * 8 + 2) .. varint(#bytes) .. bytes end
local function piece(name, score, kind)
  return text(1, text(1, name) .. varint(2 * 8 + 5) .. string.pack("<f", score) .. number(3, kind or 1))
end
local UNIGRAM, BPE = 1, 2
local UNKNOWN, CONTROL, USER, UNUSED, BYTE = 2, 3, 4, 5, 6

-- A model of these pieces, after <unk>; trainer and normalizer: fields of these specs.
local function model(kind, pieces, trainer, normalizer)
  return piece("<unk>", 0, UNKNOWN) .. table.concat(pieces) .. text(2, number(3, kind) .. (trainer or ""))
    .. text(3, normalizer or "")
end
local function load(bytes) return made.load_text(bytes, "model") end
local function pieces_of(bytes, given)
  return made.pieces(assert(load(bytes)), given, { add_special_tokens = false })
end

describe("a SentencePiece model", function()
  local letters = { piece("▁", -3), piece("a", -2), piece("b", -2), piece("ab", -1) }

  it("splits unused pieces into those that they were merged from", function()
    for _, kind in ipairs { UNIGRAM, BPE } do
      local some = { piece("▁", -3), piece("a", -2), piece("b", -2), piece("ab", -1, UNUSED),
        piece("abab", -0.5, UNUSED) }
      assert.same({ "▁", "a", "b", "a", "b" }, pieces_of(model(kind, some), "abab"))
    end
  end)

  it("may have spaces as suffixes, or no prefix", function()
    assert.same({ "ab", "▁", "b", "▁" }, pieces_of(model(UNIGRAM, letters, number(24, 1)), "ab b"))
    assert.same({ "ab", "▁", "b" }, pieces_of(model(UNIGRAM, letters, "", number(3, 0)), " ab  b "))
    assert.same({ "▁", "▁", "ab", "▁" }, pieces_of(model(BPE, letters, "", number(4, 0)), " ab "))
    assert.same({ "<unk>", "a" }, pieces_of(model(BPE, letters, "", number(5, 0)), "a"))
  end)

  it("falls back on bytes", function()
    local some = { piece("▁", -3), piece("a", -2) }
    for byte = 0, 255 do some[#some + 1] = piece(("<0x%02X>"):format(byte), 0, BYTE) end
    for _, kind in ipairs { UNIGRAM, BPE } do
      local bytes = model(kind, some, number(35, 1))
      assert.same({ "▁", "a", "<0xC3>", "<0xA9>" }, pieces_of(bytes, "aé"))
      local tok = assert(load(bytes))
      assert.equal("aé", tok:decode(tok:encode "aé"))
      assert.equal("\239\191\189", tok:decode { tok:id "<0xC3>" })
    end
    some[#some] = nil
    local _, problem = load(model(BPE, some, number(35, 1)))
    assert.truthy(problem:find("but has no piece <0xFF>", 1, true), problem)
  end)

  it("replaces characters by its charsmap, but not those of its user-defined pieces", function()
    local map = text(2, made.charsmap { x = "ab", y = "" })
    local some = { letters[1], letters[2], letters[3], letters[4], piece("xx", 0, USER) }
    assert.same({ "▁", "ab", "xx", "b" }, pieces_of(model(UNIGRAM, some, "", map), "xyxxb"))
    local _, problem = load(model(UNIGRAM, some, "", text(2, "abc")))
    assert.truthy(problem:find("the charsmap has only 3 bytes", 1, true), problem)
  end)

  it("decodes unknown pieces to its text for them", function()
    local tok = assert(load(model(BPE, letters, text(44, "⁇"))))
    assert.equal("a⁇", tok:decode(tok:encode("a?", { add_special_tokens = false })))
  end)

  it("may name its special pieces", function()
    local some = { piece("▁", -1), piece("a", -1), piece("[B]", 0, CONTROL), piece("[E]", 0, CONTROL),
      piece("[P]", 0, CONTROL) }
    local tok = assert(load(model(BPE, some, text(46, "[B]") .. text(47, "[E]") .. text(48, "[P]"))))
    assert.equal("[B]", tok.bos_token)
    assert.equal("[E]", tok.eos_token)
  end)

  it("is refused if it is damaged", function()
    local function refused(bytes, why)
      local tok, problem = load(bytes)
      assert.is_nil(tok, why)
      assert.truthy(problem:find(why, 1, true), problem)
    end
    refused(model(3, letters), "its model type is word; it must be unigram or bpe")
    refused(model(4, letters), "its model type is char; it must be unigram or bpe")
    refused(model(5, letters), "the model type is unknown")
    refused(model(BPE, { piece("a", 0), piece("a", 0) }), "pieces 1 and 2 (from 0) are the same")
    refused(model(BPE, { piece("", 0) }), "piece 1 (from 0) is empty")
    refused(model(BPE, { piece("a\0", 0) }), "piece 1 (from 0) contains the byte 0")
    refused(model(BPE, { piece("a", 0 / 0) }), "the score of piece 1 (from 0) is not finite")
    refused(model(BPE, { piece("a", 0, UNKNOWN) }), "pieces 0 and 1 (from 0) are both the unknown piece")
    refused(model(BPE, { piece("x", 0, BYTE) }), "byte piece 1 (from 0) must be written as <0x0A>")
    refused(model(BPE, { piece("<0x0G>", 0, BYTE) }), "byte piece 1 (from 0) must be written as <0x0A>")
    refused(model(BPE, { piece("a", 0, 9) }), "the type of a piece is unknown")
    refused(piece("a", 0) .. text(2, number(3, BPE)), "there is no unknown piece")
    refused(text(2, number(3, BPE)), "it has no pieces, or too many")
    refused(model(BPE, letters) .. text(5, "x"), "it has a denormalizer, which heed lacks")
    refused(model(BPE, letters, "\26\255"), "the trainer_spec is damaged")
    refused(model(BPE, letters, "", "\26\255"), "the normalizer_spec is damaged")
    refused(text(1, "\10\255") .. model(BPE, letters), "a piece is damaged")
  end)

  it("is refused, or works, with any byte changed", function()
    local map = text(2, made.charsmap { x = "y" })
    local bytes = map .. "" -- the charsmap alone is long: its bytes are changed in steps
    local whole = model(BPE, { piece("▁", -3), piece("a", -2), piece("b", -2), piece("ab", -1, UNUSED) },
      number(24, 0) .. number(35, 0) .. text(44, "?") .. text(46, "a") .. number(99, 300) .. "\161\6" .. ("\0"):rep(8),
      number(3, 1) .. number(4, 1) .. bytes)
    assert(use(load(whole)))
    for at = 1, #whole do
      if at < #whole - 1040 or at % 8 == 0 then
        for _, value in ipairs { 0, 1, 2, 3, 5, 8, 10, 18, 26, 34, 127, 128, 255 } do
          local tok, problem = load(whole:sub(1, at - 1) .. string.char(value) .. whole:sub(at + 1))
          use(tok, problem, "byte " .. at)
        end
      end
    end
  end)
end)

-- ---- Vocabularies in older files ------------------------------------------------------------------

describe("a vocabulary in older files", function()
  -- The message of loading a folder with these files; nil if it is loaded.
  local function problem_of(files)
    local folder = support.new_folder()
    for name, content in pairs(files) do support.write(folder .. "/" .. name, content) end
    local tok, problem = heed.tokenizers.load(folder)
    support.remove_folder(folder)
    use(tok, problem, folder)
    return problem
  end
  local function refused(files, why)
    local problem = problem_of(files)
    assert.truthy(problem, why)
    assert.truthy(problem:find(why, 1, true), problem)
  end
  local function pairs_of(vocab, merges, config)
    return { ["vocab.json"] = vocab, ["merges.txt"] = merges, ["tokenizer_config.json"] = config }
  end
  local VOCAB = '{"a": 0, "b": 1, "ab": 2}'

  it("of pairs is refused if one of its files is damaged", function()
    assert.is_nil(problem_of(pairs_of(VOCAB, "#version: 0.2\r\n\r\na b\r\n")))
    assert.is_nil(problem_of(pairs_of(VOCAB, "a b")))
    refused(pairs_of("[]", "a b"), "vocab.json is not an object")
    refused(pairs_of("{", "a b"), "not valid JSON")
    for _, wrong in ipairs { '{"a": 0, "b": 0, "ab": 2}', '{"a": 0, "b": 1, "ab": 3}', '{"a": 0, "b": 1, "ab": -1}',
      '{"a": 0, "b": 1, "ab": "2"}', '{"a": 0, "b": 1, "ab": 1.5}', '{"a": 0, "b": 1, "ab": 1e9}' } do
      refused(pairs_of(wrong, "a b"), "the ids of vocab.json must be 0 to 2, each once; token '")
    end
    refused(pairs_of(VOCAB, "a b\nab"), "line 2 of merges.txt is not two tokens")
    refused(pairs_of(VOCAB, "a b\nb a"), "line 2 of merges.txt is not two tokens")
    refused(pairs_of(VOCAB, "a b\nb "), "line 2 of merges.txt is not two tokens")
    refused(pairs_of(VOCAB, "a \255"), "not UTF-8 at byte 3")
    refused(pairs_of(VOCAB, "a b", '{"tokenizer_class": "RobertaTokenizer"}'), "the vocabulary lacks <s> or </s>")
    refused(pairs_of(VOCAB, "a b", '{"tokenizer_class": "GPT2TokenizerSlow"}'), "tokenizer_class is GPT2TokenizerSlow")
    refused(pairs_of(VOCAB, "a b", "{"), "tokenizer_config.json: not valid JSON")
    assert.is_nil(problem_of(pairs_of(VOCAB, "a b", '{"added_tokens_decoder": {"0": {"content": "a"}, "1": {}}}')))
  end)

  it("of lines is refused if it is damaged", function()
    assert.is_nil(problem_of { ["vocab.txt"] = "[UNK]\n[CLS]\r\n[SEP]\na" })
    refused({ ["vocab.txt"] = "[UNK]\n[CLS]\n[CLS]\n" }, "line 3 is empty, or the same as one before")
    refused({ ["vocab.txt"] = "[UNK]\n\n[SEP]\n" }, "line 2 is empty, or the same as one before")
    refused({ ["vocab.txt"] = "[UNK]\n[CLS]\n" }, "the vocabulary lacks [UNK], [CLS] or [SEP]")
    refused({ ["vocab.txt"] = "a\n\255" }, "not UTF-8 at byte 3")
    refused({ ["vocab.txt"] = "[UNK]\n[CLS]\n[SEP]", ["tokenizer_config.json"] = '{"strip_accents": 1}' },
      "tokenizer_config.json: strip_accents must be true or false")
  end)

  it("needs a file that heed knows", function()
    refused({}, "the folder has no tokenizer.json, vocab.json")
    local _, problem = heed.tokenizers.load(("x"):rep(5000))
    assert.truthy(problem:find "^load: '%.%.%.x", problem)
  end)
end)
