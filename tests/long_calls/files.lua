-- Long calls on texts and files.
local heed = require "heed"
local nn = heed.nn
local support = require "tests.support"
local files = require "tests.files"
local safetensors = files.safetensors

return function(inputs)
  local call, same, copies, state_of = inputs.call, inputs.same, inputs.copies, inputs.state_of
  local new_file, with_text, tokenizer = inputs.new_file, inputs.with_text, inputs.tokenizer
  local IN_FILE, SPECIAL = inputs.IN_FILE, inputs.SPECIAL

  -- ---- Texts ------------------------------------------------------------------------------------

  local MIB = 2 ^ 20
  for name, text in pairs {
    ["one word"] = ("a"):rep(10 * MIB), spaces = (" "):rep(20 * MIB), words = ("a "):rep(5 * MIB),
    brackets = ("["):rep(10 * MIB), ["special tokens"] = ("[CLS]"):rep(MIB),
    ["a long bracket"] = "[" .. ("A"):rep(10 * MIB), ["Chinese characters"] = ("\228\184\128"):rep(4 * MIB),
    accents = ("e\204\129"):rep(4 * MIB), marks = ("\204\129\204\163"):rep(4 * MIB),
    capitals = ("\195\137"):rep(4 * MIB), dots = ("."):rep(10 * MIB),
  } do
    for _, method in ipairs { "encode", "tokenize" } do
      call(method .. " of " .. name, function()
        local t = tokenizer "a\n##a\n##e\n.\n"
        return function() return t[method](t, text) end
      end)
    end
  end
  call("encode of words without long pieces", function()
    local t = tokenizer(("a"):rep(400) .. "\n" .. "a\n##a\n")
    local text = (("a"):rep(99) .. " "):rep(50000)
    return function() return t:encode(text) end
  end)
  call("decode", function()
    local t, ids = tokenizer "a\n##a\n", copies(6, 2000000)
    return function() return t:decode(ids) end
  end)
  call("decode and clean up", function()
    local t, ids = tokenizer((" ' n't ' . , a"):rep(40000) .. "\n"), copies(6, 20)
    return function() return t:decode(ids, { clean_up_tokenization_spaces = true }) end
  end)

  -- Tokenizers in C: texts that are one long word, one long match, or end a step at the last byte.
  for _, name in ipairs { "gpt2.json", "qwen2.json", "llama3.json", "fallback.json", "unigram.json", "bert.json",
    "bpe.model", "unigram.model" } do
    local function load() return assert(heed.tokenizers.load("tests/golden/tokenizers/" .. name)) end
    for what, text in pairs {
      ["one word"] = ("ab"):rep(5 * MIB), spaces = (" "):rep(8 * MIB), words = ("a "):rep(4 * MIB),
      marks = ("\204\129\204\163"):rep(2 * MIB), ["special tokens"] = ("<|end|>"):rep(MIB),
    } do
      call(("encode of %s with %s"):format(what, name), function()
        local t = load()
        return function() return t:encode(text, { allowed_special = true }) end
      end)
    end
    call("decode with " .. name, function()
      local t = load()
      local ids = copies(t.vocab_size - 2, 4000000)
      return function() return t:decode(ids) end
    end)
  end

  -- Functions of heed.core called directly, without heed's Lua code in between.
  local unicode = require("heed.core").text
  for name, arguments in pairs {
    invalid = {}, lower = {}, nfd = {}, replace = { { Lu = "" } }, vocabulary = {}, positions = { "\n\n" },
  } do
    call("core.text." .. name, function()
      local argument = ("x\n"):rep(25 * MIB)
      return function() return unicode[name](argument, support.unpack(arguments)) end
    end).seconds = name == "invalid" and 0.0005 or 0.02
  end

  -- ---- Files ------------------------------------------------------------------------------------

  call("loading a vocabulary", function()
    local lines = {}
    for i = 1, 1000000 do lines[i] = ("%d"):format(i) end
    return with_text(".txt", SPECIAL .. table.concat(lines, "\n"), require("heed.tokenizers.wordpiece").load)
  end)
  call("loading a vocabulary with one wrong byte at its end", function()
    return with_text(".txt", SPECIAL .. ("a\n"):rep(10000000) .. "\255", require("heed.tokenizers.wordpiece").load)
  end)
  call("loading a tokenizer.json with many tokens", function()
    local tokens = {}
    for i = 1, 1000000 do tokens[i] = ('"%d":%d'):format(i, i - 1) end
    return with_text(".json", '{"model":{"type":"BPE","merges":[],"vocab":{' .. table.concat(tokens, ",") .. "}}}",
      heed.tokenizers.load)
  end)
  -- Unigram models: hash tables, and a trie.
  call("loading a tokenizer.json with many pieces", function()
    local pieces = {}
    for i = 1, 400000 do pieces[i] = ('["%d",-1]'):format(i) end
    return with_text(".json", '{"model":{"type":"Unigram","unk_id":0,"vocab":[' .. table.concat(pieces, ",") .. "]}}",
      heed.tokenizers.load)
  end)
  call("loading a .model with many pieces", function()
    local pieces = { "\10\9\10\5<unk>\24\2" } -- field 1: a message with text (field 1) and type (field 3)
    for i = 1, 400000 do pieces[i + 1] = ("\10\12\10\10a%09d"):format(i) end
    return with_text(".model", table.concat(pieces), heed.tokenizers.load)
  end).seconds = 0.01
  call("loading a tokenizer.json with a long string", function()
    return with_text(".json", '{"a":"' .. ("\\n"):rep(20 * MIB) .. '"}', heed.tokenizers.load)
  end).seconds = 0.005
  for _, ending in ipairs { ".safetensors", ".npz" } do
    call("save of many names as " .. ending, function()
      local state = state_of(200000)
      local path, keep = new_file(ending, function() end)
      return function() return heed.save(path, state), keep end
    end)
    call("load of many names from " .. ending, function()
      local path, keep = new_file(ending, function(path) assert(heed.save(path, state_of(100000))) end)
      return function() return heed.load(path), keep end
    end)
  end
  for _, ending in ipairs { ".npy", ".npz", ".safetensors" } do
    call("save of a large tensor as " .. ending, function()
      local x = same(1, IN_FILE)
      local path, keep = new_file(ending, function() end)
      return function() return heed.save(path, ending == ".npy" and x or { x = x }), keep end
    end)
  end
  call("load of a large tensor from .npy", function()
    local path, keep = new_file(".npy", function(path) assert(heed.save(path, same(1, IN_FILE))) end)
    return function() return heed.load(path), keep end
  end)
  call("load of a large tensor from .npz", function()
    local path, keep = new_file(".npz", function(path) assert(heed.save(path, { x = same(1, IN_FILE) })) end)
    return function() return heed.load(path), keep end
  end)

  call("opening an expanded tensor of a .pt file", function()
    local tensor = files.torch_tensor(1, 0, "J" .. string.pack("<i4", inputs.MANY), "K\0")
    local text = files.torch("](" .. tensor .. tensor .. "e", "](" .. files.pickled_text "0" .. "e",
      string.pack("<i8f", 1, 1))
    local path, keep = new_file(".pt", function(path) support.write(path, text) end)
    local state = assert(heed.load(path))
    return function() return state["0"], keep end
  end)
  call("load of a long .pt file", function()
    local state = files.torch("](" .. files.pickled_text "a" .. "eq\0" .. ("h\0"):rep(30 * MIB) .. "K\1")
    return with_text(".pt", state, heed.load)
  end).seconds = 0.01

  -- Headers, each long in a different way.
  for name, header in pairs {
    ["one string"] = function() return ('{"__metadata__":{"a":"%s"}}'):format(("x"):rep(90 * MIB)) end,
    spaces = function() return "{" .. (" "):rep(90 * MIB) .. "}" end,
    ["a list"] = function() return '{"a":[' .. ("0,"):rep(2000000) .. "0]}" end,
    ["long strings"] = function()
      local pairs, text = {}, ("x"):rep(6000)
      for i = 1, 15000 do pairs[i] = ('"%d":"%s"'):format(i, text) end
      return ('{"__metadata__":{%s}}'):format(table.concat(pairs, ","))
    end,
  } do
    call("load of a header of " .. name, function()
      return with_text(".safetensors", safetensors(header()), heed.load)
    end)
  end
  call("load of a long index", function()
    local entries = {}
    for i = 1, 600000 do entries[i] = ('"%d":"x.y"'):format(i) end
    local text = ('{"weight_map":{%s}}'):format(table.concat(entries, ","))
    return with_text(".safetensors.index.json", text, heed.load)
  end)
  call("save with much metadata", function()
    local metadata = {}
    for i = 1, 200000 do metadata["a key with the number " .. i] = "value" end
    local path, keep = new_file(".safetensors", function() end)
    return function() return heed.save(path, { x = heed.zeros(1) }, { metadata = metadata }), keep end
  end)
  call("save with long strings of metadata", function()
    local metadata = {}
    for i = 1, 6 do metadata["number " .. i] = ("x"):rep(15 * MIB) end
    local path, keep = new_file(".safetensors", function() end)
    return function() return heed.save(path, { x = heed.zeros(1) }, { metadata = metadata }), keep end
  end)
  call("tostring of a state dict", function()
    local state = nn.ModuleList():state_dict()
    local x = heed.zeros(1)
    for i = 1, 300000 do state["name" .. i] = x end
    return function() return tostring(state) end
  end)
  call("load_state_dict of many names", function()
    local module, state = nn.Linear(1, 1), state_of(300000)
    return function() return module:load_state_dict(state, { strict = false }) end
  end)
end
