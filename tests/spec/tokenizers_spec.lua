-- heed.tokenizers: tokenizers of any kind, against Hugging Face's.
local core = require "heed.core"
local heed = require "heed"
local cases = require "tests.golden.tokenizers"
local raises = require "tests.raises"
local support = require "tests.support"

local loaded = {}
local function tokenizer(name)
  loaded[name] = loaded[name] or assert(heed.tokenizers.load("tests/golden/tokenizers/" .. name))
  return loaded[name]
end

local function plus_one(ids)
  local out = {}
  for i, id in ipairs(ids) do out[i] = id + 1 end
  return out
end

--- Writes a file with this text, calls f with its path, removes it.
local function with_file(text, f)
  local path = os.tmpname() .. ".json"
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  f(path)
  os.remove(path)
end

--- The message of loading this text as tokenizer.json.
local function problem_of(text)
  local message
  with_file(text, function(path)
    local tok, problem = heed.tokenizers.load(path)
    assert.is_nil(tok)
    message = problem
  end)
  return message
end

local BPE = [[{"added_tokens": [], "pre_tokenizer": %s, "normalizer": %s,
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [%s]}}]]

describe("a tokenizer", function()
  it("gives the ids of Hugging Face's tokenizers and of SentencePiece", function()
    for _, case in ipairs(cases) do
      local tok, where = tokenizer(case.name), case.name .. ": " .. case.text
      assert.are.same(plus_one(case.ids), tok:encode(case.text), where)
      assert.are.same(plus_one(case.plain), tok:encode(case.text, { add_special_tokens = false }), where)
      assert.are.same(plus_one(case.special), tok:encode(case.text, { allowed_special = true }), where)
    end
  end)

  it("decodes as they do, with and without special tokens", function()
    for _, case in ipairs(cases) do
      local tok = tokenizer(case.name)
      assert.are.equal(case.decoded, tok:decode(plus_one(case.special)), case.name)
      assert.are.equal(case.skipped, tok:decode(plus_one(case.special), { skip_special_tokens = true }), case.name)
    end
  end)

  it("encodes special tokens in the text as text, unless asked for them", function()
    local tok = tokenizer "gpt2.json"
    local begin = tok:id "<|begin|>"
    assert.are.same({ begin }, tok:encode("<|begin|>", { allowed_special = true }))
    for _, id in ipairs(tok:encode "<|begin|>") do assert.are_not.equal(begin, id) end
  end)

  it("knows its tokens", function()
    local tok = tokenizer "gpt2.json"
    assert.are.equal("<|begin|>", tok:token(1))
    assert.is_nil(tok:token(0))
    assert.is_nil(tok:token(-2 ^ 63))
    assert.is_nil(tok:token(tok.vocab_size + 1))
    assert.is_nil(tok:id "no such token")
    assert.are.equal(("Tokenizer(vocab_size=%d)"):format(tok.vocab_size), tostring(tok))
    assert.are.equal(tokenizer("bert.json"):id "[CLS]", tokenizer("bert.json").cls_token_id)
  end)

  it("takes ids as a tensor", function()
    local tok = tokenizer "gpt2.json"
    assert.are.equal("hello", tok:decode(heed.tensor(tok:encode "hello")))
  end)

  it("refuses text that is no UTF-8, and ids outside of the vocabulary", function()
    local tok = tokenizer "gpt2.json"
    raises("encode: text is not valid UTF-8 at byte 3", function() local _ = tok:encode "ab\255" end)
    local most = tok.vocab_size
    raises(("decode: element 2 of ids is the number 100000; it must be the id of a token, from 1 to %d"):format(most),
      function() local _ = tok:decode { 1, 100000 } end)
    raises(("decode: element 1 of ids is a string ('x'); it must be the id of a token, from 1 to %d"):format(most),
      function() local _ = tok:decode { "x" } end)
  end)

  it("merges a long word in a time that does not grow with its square", function()
    local text = ("ab"):rep(100000)
    assert.are.equal(text, tokenizer("gpt2.json"):decode(tokenizer("gpt2.json"):encode(text)))
  end)

  it("can be stopped by a limit of time", function()
    local text = ("some words 123, "):rep(300000)
    heed.limit { seconds = 0.02 }
    local ok, problem = pcall(tokenizer("gpt2.json").encode, tokenizer "gpt2.json", text)
    heed.limit { seconds = math.huge }
    assert.is_false(ok)
    assert.truthy(problem:find("time limit exceeded", 1, true), problem)
  end)

  it("refuses by name what it does not support", function()
    local regex = '{"type": "Split", "pattern": {"Regex": "%s"}, "behavior": "Isolated"}'
    local function pattern(text) return problem_of(BPE:format(regex:format(text), "null", "")) end
    assert.truthy(pattern("(?<=a)b"):find("has a kind of group at byte 2, which is not supported", 1, true))
    assert.truthy(pattern("\\\\p{Greek}"):find("a property other than a general category", 1, true))
    assert.truthy(pattern("(a"):find("a group without an end", 1, true))
    for _, empty in ipairs { "(?:a*)*b", "(?:a*)*?b", "(?:a|)+", "(?:(?=a))*", "(?:a?b{0,2})+" } do
      assert.truthy(pattern(empty):find("an endless repetition of a group that can be empty", 1, true), empty)
    end
    assert.truthy(pattern(("("):rep(16) .. ("a"):rep(300) .. ("){1}"):rep(16))
      :find("repeated groups of more than 1 MiB in all", 1, true))
    assert.truthy(problem_of(BPE:format("null", '{"type": "Nmt"}', "")):find("normalizer step 'Nmt'", 1, true))
    assert.truthy(problem_of('{"model": {"type": "Morse", "vocab": {"a": 0}}}'):find("'Morse'", 1, true))
  end)

  it("refuses damaged files", function()
    assert.truthy(problem_of("{"):find("not valid JSON at byte 2", 1, true))
    -- An escape across the 16 MiB that a string may have, at the end of the file's last page.
    local text = '{"a":"' .. ("x"):rep(2 ^ 24 - 1) .. "\\n"
    assert.truthy(problem_of(text .. ("x"):rep(-#text % 4096)):find("a string has more than 16 MiB", 1, true))
    assert.truthy(problem_of("[]"):find("'model' is missing", 1, true))
    assert.truthy(problem_of(BPE:format("null", "null", '"a c"')):find("merge 1 is not two tokens", 1, true))
    assert.truthy(problem_of('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}')
      :find("another token has the same id: 'b'", 1, true))
    local large = problem_of '{"model": {"type": "BPE", "vocab": {"a": 1e9}, "merges": []}}'
    assert.truthy(large:find("the id is not an integer from 0 to 16777215", 1, true))
    local _, missing = heed.tokenizers.load "no/such/file"
    assert.truthy(missing:find("no such file or folder", 1, true))
  end)
end)

describe("a tokenizer in a GGUF file", function()
  local gguf = require "tests.gguf"

  --- The message of loading the tokenizer of a file with these pairs of metadata.
  local function problem_of_pairs(...)
    local path = os.tmpname() .. ".gguf"
    local file = assert(io.open(path, "wb"))
    file:write(gguf.file({ ... }, {}))
    file:close()
    local tok, problem = heed.tokenizers.load(path)
    os.remove(path)
    assert.is_nil(tok)
    return problem
  end

  it("comes with its special tokens and its chat template", function()
    local tok = tokenizer "smollm.gguf"
    assert.are.equal("<|begin|>", tok.bos_token)
    assert.are.equal("<|end|>", tok.eos_token)
    assert.are.equal("{{ messages[0].content }}", tok.chat_template)
    assert.are.equal("<s>", tokenizer("bpe.gguf").bos_token)
    assert.are.equal("</s>", tokenizer("bpe.gguf").eos_token)
  end)

  it("refuses by name what it does not support", function()
    local tokens = gguf.pair("tokenizer.ggml.tokens", "array", { "string", "a" })
    local problem = problem_of_pairs(gguf.pair("tokenizer.ggml.model", "string", "rwkv"), tokens)
    assert.truthy(problem:find("the tokenizer 'rwkv' (tokenizer.ggml.model) is not supported", 1, true), problem)
    problem = problem_of_pairs(gguf.pair("tokenizer.ggml.model", "string", "gpt2"),
      gguf.pair("tokenizer.ggml.pre", "string", "x y"), tokens)
    assert.truthy(problem:find("the splitting rule 'x y' (tokenizer.ggml.pre) is not supported", 1, true), problem)
    problem = problem_of_pairs(gguf.pair("general.architecture", "string", "llama"))
    assert.truthy(problem:find("it has no tokenizer: tokenizer.ggml.tokens is missing", 1, true), problem)
    problem = problem_of_pairs(gguf.pair("tokenizer.ggml.model", "string", "llama"), tokens,
      gguf.pair("tokenizer.ggml.scores", "array", { "float32", 1, 2 }))
    assert.truthy(problem:find("tokenizer.ggml.scores does not fit tokenizer.ggml.tokens; it must be an array of 1",
      1, true), problem)
  end)

  it("refuses ids of the beginning and the end of a text outside of the vocabulary, where they are added", function()
    local function problem_with(...)
      return problem_of_pairs(gguf.pair("tokenizer.ggml.tokens", "array", { "string", "a", "b", "c" }),
        gguf.pair("tokenizer.ggml.merges", "array", { "string" }),
        gguf.pair("tokenizer.ggml.model", "string", "gpt2"), ...)
    end
    local problem = problem_with(gguf.pair("tokenizer.ggml.bos_token_id", "uint32", 3),
      gguf.pair("tokenizer.ggml.add_bos_token", "bool", true))
    assert.truthy(problem:find("tokenizer.ggml.bos_token_id is 3; it must be from 0 to 2, the last token", 1, true))
    problem = problem_with(gguf.pair("tokenizer.ggml.pre", "string", "llama-bpe"),
      gguf.pair("tokenizer.ggml.bos_token_id", "uint32", 3)) -- by the rule's default
    assert.truthy(problem:find("tokenizer.ggml.bos_token_id is 3", 1, true), problem)
    problem = problem_with(gguf.pair("tokenizer.ggml.add_eos_token", "bool", true),
      gguf.pair("tokenizer.ggml.eos_token_id", "uint32", 4294967295))
    assert.truthy(problem:find("tokenizer.ggml.eos_token_id is 4294967295", 1, true), problem)
    problem = problem_with(gguf.pair("tokenizer.ggml.add_eos_token", "bool", true))
    assert.truthy(problem:find("tokenizer.ggml.eos_token_id is missing; it must be the id of a token, as " ..
      "tokenizer.ggml.add_eos_token is true", 1, true), problem)
  end)
end)

describe("a SentencePiece model", function()
  it("has control pieces as special tokens", function()
    for _, name in ipairs { "bpe.model", "bpe.gguf" } do
      local tok = tokenizer(name)
      local ids = tok:encode("<s>Hello</s>world", { add_special_tokens = false, allowed_special = true })
      assert.are.equal(tok.bos_token_id, ids[1])
      assert.are.equal("<s>Hello</s>world", tok:decode(ids))
      for _, id in ipairs(tok:encode("<s>Hello", { add_special_tokens = false })) do
        assert.are_not.equal(tok.bos_token_id, id)
      end
    end
  end)
end)

describe("a vocabulary in older files", function()
  it("is BERT's vocab.txt", function()
    local tok = assert(heed.tokenizers.load "tests/golden/tiny_bert")
    local bert = assert(require("heed.tokenizers.wordpiece").load "tests/golden/tiny_bert/vocab.txt")
    for _, text in ipairs { "Your journey starts with one step.", "Café  日本か", "unknown€ words!" } do
      assert.are.same(bert:encode(text), tok:encode(text))
    end
  end)

  --- A folder with the vocabulary and the merges of gpt2.json and RoBERTa's special tokens, for f(folder).
  local function with_pairs(f)
    local model = core.files.json("tests/golden/tokenizers/gpt2.json").model
    local tokens, lines, folder = {}, { "#version: 0.2" }, support.new_folder()
    for i, name in ipairs { "<s>", "<pad>", "</s>", "<unk>", "<mask>" } do model.vocab[name] = 359 + i end
    for token, id in pairs(model.vocab) do
      tokens[#tokens + 1] = ('"%s": %d'):format(token:gsub('[\\"]', "\\%0"), id)
    end
    for i = 1, #model.merges do lines[#lines + 1] = table.concat(model.merges[i], " ", 1, 2) end
    support.write(folder .. "/vocab.json", "{" .. table.concat(tokens, ",") .. "}")
    support.write(folder .. "/merges.txt", table.concat(lines, "\n") .. "\n")
    local good, problem = pcall(f, folder)
    support.remove_folder(folder)
    assert(good, problem)
  end

  it("is GPT-2's vocab.json with merges.txt", function()
    with_pairs(function(folder)
      local tok, whole = assert(heed.tokenizers.load(folder)), tokenizer "gpt2.json"
      for _, text in ipairs { "Hello, world! It's 2024;", " naïve\n\n🎉 ٣ x", "aaaaaaa" } do
        assert.are.same(whole:encode(text), tok:encode(text))
      end
    end)
  end)

  it("is RoBERTa's, with its special tokens, if tokenizer_config.json says so", function()
    with_pairs(function(folder)
      support.write(folder .. "/tokenizer_config.json", '{"tokenizer_class": "RobertaTokenizerFast"}')
      local tok = assert(heed.tokenizers.load(folder))
      local ids = tokenizer("gpt2.json"):encode "Hello"
      table.insert(ids, 1, 361)
      table.insert(ids, 363)
      assert.are.same(ids, tok:encode "Hello")
      assert.are.same({ 361, 365, 363 }, tok:encode("  <mask>", { allowed_special = true }))
      support.write(folder .. "/tokenizer_config.json", '{"tokenizer_class": null, "add_prefix_space": true}')
      tok = assert(heed.tokenizers.load(folder))
      assert.are.same(tokenizer("gpt2.json"):encode " Hello", tok:encode "Hello")
    end)
  end)

  it("is refused where other files decide about the ids", function()
    with_pairs(function(folder)
      local function problem_with(config)
        support.write(folder .. "/tokenizer_config.json", config)
        return select(2, heed.tokenizers.load(folder)):gsub("^load: '.-': ", "")
      end
      assert.equal("tokenizer_class is Qwen2Tokenizer; vocab.json with merges.txt must be that of GPT2Tokenizer " ..
        "or RobertaTokenizer; save the tokenizer as tokenizer.json",
        (problem_with '{"tokenizer_class": "Qwen2Tokenizer"}'))
      assert.equal("tokenizer_config.json adds the token '<tool>', which the vocabulary lacks; save the tokenizer " ..
        "as tokenizer.json", (problem_with '{"added_tokens_decoder": {"360": {"content": "<tool>"}}}'))
      assert.equal("tokenizer_config.json: add_prefix_space must be true or false",
        (problem_with '{"add_prefix_space": 1}'))
      assert.equal("tokenizer_config.json: it must be an object", (problem_with "[]"))
    end)
  end)

  it("is a cased vocab.txt if tokenizer_config.json says so", function()
    local wordpiece = require "heed.tokenizers.wordpiece"
    local folder = support.new_folder()
    support.write(folder .. "/vocab.txt", support.read "tests/golden/tiny_bert/vocab.txt" .. "Caf\n##é\nÉ\n日本\n")
    for _, flags in ipairs { { false }, { false, true }, { true, false }, { nil, nil, false } } do
      local options = { do_lower_case = flags[1], strip_accents = flags[2], tokenize_chinese_chars = flags[3] }
      local fields = {}
      for name, value in pairs(options) do fields[#fields + 1] = ('"%s": %s'):format(name, tostring(value)) end
      support.write(folder .. "/tokenizer_config.json", "{" .. table.concat(fields, ",") .. "}")
      local tok, bert = assert(heed.tokenizers.load(folder)), assert(wordpiece.load(folder .. "/vocab.txt", options))
      for _, text in ipairs { "Café É cafe\204\129", "日本 Your journey" } do
        assert.are.same(bert:encode(text), tok:encode(text))
      end
    end
    support.remove_folder(folder)
  end)
end)
