-- heed.models.bert with a small model of random weights: compared with PyTorch, and loaded from broken files.
local core = require "heed.core"
local heed = require "heed"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"
local Bert = require "heed.models.bert"

local FOLDER = "tests/golden/tiny_bert"
local cases = dofile "tests/golden/bert.lua"

local function model() return assert(Bert.load(FOLDER)) end

--- The ids of a case, nested lists counted from 0, as a tensor counted from 1.
local function ids_of(lists) return heed.tensor(lists, { dtype = "int64" }) + 1 end

local function close(wanted, got, bound) tensors.close(tensors.golden(wanted), got, bound) end

--- A bool mask [b, n], true for tokens and false for padding.
local function mask_of(case)
  local lengths = heed.tensor(case.lengths, { dtype = "int64" })
  return heed.range(1, #case.ids[1]):le(lengths:unsqueeze(2))
end

describe("a BERT", function()
  for _, case in ipairs(cases) do
    if case.hidden then
      it("gives PyTorch's hidden states: " .. case.note, function()
        local m, mask = model(), mask_of(case)
        local options = { token_type_ids = ids_of(case.types), need_weights = true }
        for _, padding in ipairs { "attention_mask", "kv_lengths" } do
          options.attention_mask, options.kv_lengths = nil, nil
          if padding == "attention_mask" then
            options.attention_mask = mask:long()
          else
            options.kv_lengths = heed.tensor(case.lengths, { dtype = "int64" })
          end
          local hidden, info = m(ids_of(case.ids), options)
          close(case.hidden, hidden * mask:unsqueeze(3), 2e-5)
          close(case.weights, info.layers[2].weights * mask:unsqueeze(2):unsqueeze(4), 2e-6)
          close(case.pooled, m:pooled(hidden), 2e-5)
        end
      end)
    else
      it("gives the sentence embedding of: " .. case.note, function()
        local m = model()
        local ids = m.tokenizer:encode(case.text, { max_length = m.max_seq_length })
        for i, id in ipairs(ids) do ids[i] = id - 1 end
        assert.are.same(case.ids, ids)
        close(case.embedding, m:encode({ case.text })[1], 2e-6)
      end)
    end
  end

  it("accepts lists of ids, with and without a batch", function()
    local m = model()
    local one, same = m { 2, 5, 9 }, m { { 2, 5, 9 } }
    assert.equal("heed.Size([3, 24])", tostring(one.shape))
    assert.is_true(heed.equal(one, same[1]))
    assert.is_true(heed.equal(one, m(heed.tensor({ 2, 5, 9 }, { dtype = "int64" }))))
  end)

  it("encodes in slices of time", function()
    local m, texts = model(), { "your journey starts", "one step", "" }
    local steps, slices = m:encode_steps(texts, { ms = 0 }), 0
    while not steps:advance() do slices = slices + 1 end
    assert.is_true(slices >= #texts)
    assert.is_true((steps.result - m:encode(texts)):abs():max():item() <= 1e-6)
    assert.are.equal(0, #(function(empty)
      empty:advance()
      return empty.result
    end)(m:encode_steps {}))
  end)

  it("checks and joins many texts in slices, too", function()
    local m, texts = model(), {}
    for i = 1, 300 do texts[i] = "" end
    local steps, work = m:encode_steps(texts, { ms = 0 }), 2 ^ 50
    repeat
      heed.limit { work = work }
      local finished = steps:advance()
      local last = work - heed.limit().work -- of this slice
      if finished then assert.is_true(last < #texts * m.config.hidden_size, last) end
    until finished
    heed.limit { work = math.huge }
    texts[#texts + 1] = "\255"
    steps = m:encode_steps(texts, { ms = 0 })
    for _ = 1, 300 do assert.is_false(steps:advance()) end
    assert.error_matches(function() repeat until steps:advance() end, "text 301 is not valid UTF%-8")
  end)

  it("reads a list as far as its first hole, and not again after encode_steps", function()
    local m, texts = model(), { "one step", nil, "the journey" }
    assert.equal(1, m:encode(texts).shape[1])
    texts = { "one step", "the journey", "" }
    local steps, want = m:encode_steps(texts, { ms = 0 }), m:encode(texts)
    for i = 1, 8 do texts[i] = i end
    repeat until steps:advance()
    assert.is_true((steps.result - want):abs():max():item() <= 1e-6)
  end)

  it("encodes a text independently of the other texts in the list", function()
    local m, texts = model(), {}
    for i = 1, 40 do texts[i] = ("a step "):rep(i % 5) .. ("x"):rep(i % 7) end
    local all = m:encode(texts)
    for i, text in ipairs(texts) do
      assert.is_true((all[i] - m:encode({ text })[1]):abs():max():item() <= 1e-6)
    end
  end)

  it("gives vectors of length 1, and none for an empty list", function()
    local m = model()
    local y = m:encode { "a", "", "one step" }
    assert.is_true(((y * y):sum(-1) - 1):abs():max():item() < 1e-6)
    assert.are.equal(0, #m:encode {})
  end)

  it("is loaded in evaluation mode, and applies dropout in training mode", function()
    local m = model()
    assert.is_false(m.training)
    assert.is_true(heed.equal(m { 2, 5 }, m { 2, 5 }))
    m:train()
    assert.is_false(heed.equal(m { 2, 5, 7, 8 }, m { 2, 5, 7, 8 }))
  end)

  it("supports weights in bfloat16", function()
    local m = model()
    local before = m:encode { "one step" }
    m:to "bfloat16"
    assert.is_true((m:encode { "one step" } * before):sum():item() > 0.999)
  end)
end)

describe("the arguments of a BERT", function()
  it("must be ids in the vocabulary, and not more than the context length", function()
    local m, many = model(), {}
    for i = 1, 21 do many[i] = 2 end
    raises("Bert: ids have 21 tokens; they must have at most 20, max_position_embeddings", function() m(many) end)
    raises("Bert: ids is nil; it must be a tensor or a table of integers", function() m() end)
    raises("Bert: ids is a tensor of shape [0] and dtype float32; it must be a tensor [n] or [b, n] of ids, or a " ..
      "list, with at least one element",
      function() m(heed.ones(0)) end)
    assert.has_error(function() m { 2, 106 } end)
    assert.has_error(function() m { 0 } end)
  end)

  it("must be valid texts for encode", function()
    local m = model()
    raises("encode: texts is a string ('a'); it must be a list of strings", function() m:encode "a" end)
    raises("encode: text 2 is the number 7; it must be a string", function() m:encode { "a", 7 } end)
    raises("encode: text 2 is not valid UTF-8 at byte 2", function() m:encode { "a", "a\255" } end)
    raises("pooled: hidden is the number 3; it must be a tensor [n, d] or [b, n, d]", function() m:pooled(3) end)
    raises("Bert: attention_mask is a table; it must be a tensor that is 0 or false for padding",
      function() m({ 1, 2 }, { attention_mask = { 1, 1 } }) end)
  end)
end)

describe("loading a BERT", function()
  local folder

  before_each(function() folder = support.copy_folder(FOLDER) end)
  after_each(function() support.remove_folder(folder) end)

  --- The message of Bert.load for the folder, with the folder's name replaced by FOLDER.
  local function problem(path, config)
    local m, message = Bert.load(path or folder, config)
    assert.is_nil(m)
    return (message:gsub(folder:gsub("%p", "%%%0"), "FOLDER"))
  end

  local function weights() return assert(heed.load(folder .. "/model.safetensors")) end
  local function save(state) assert(heed.save(folder .. "/model.safetensors", state)) end

  --- The config with some values changed.
  local function config_with(changes)
    local config = core.files.json(folder .. "/config.json")
    for name, value in pairs(changes) do config[name] = value end
    return config
  end

  it("accepts the folder, its weights file, or a config table", function()
    local want = model():encode { "one step" }
    for _, path in ipairs { folder, folder .. "/", folder .. "/model.safetensors" } do
      assert.is_true(heed.equal(want, assert(Bert.load(path)):encode { "one step" }))
    end
    local config = config_with {}
    os.remove(folder .. "/config.json")
    assert.is_true(heed.equal(want, assert(Bert.load(folder, config)):encode { "one step" }))
    assert.equal("Bert.load: no such file: 'FOLDER/config.json'; add it or pass a config", problem())
  end)

  it("names the missing files", function()
    assert.equal("Bert.load: no such file or folder: 'FOLDER/other'", problem(folder .. "/other"))
    os.remove(folder .. "/model.safetensors")
    assert.equal("Bert.load: the folder 'FOLDER' has none of model.safetensors, " ..
      "model.safetensors.index.json, pytorch_model.bin, model.gguf; give the path of the file if it has another "
      .. "name, such as a .gguf",
      problem())
  end)

  it("lists all missing and unexpected names in one message", function()
    local state = weights()
    state["encoder.layer.0.attention.self.query.bias"] = nil
    state["embeddings.LayerNorm.weight"] = nil
    state["encoder.layer.1.extra"] = heed.ones(2)
    save(state)
    assert.equal("Bert.load: the weights do not fit the config:\n" ..
      "  embeddings.LayerNorm.weight is missing\n" ..
      "  encoder.layer.0.attention.self.query.bias is missing\n" ..
      "  encoder.layer.1.extra is not part of the model", problem())
  end)

  it("names the settings and the weights that contradict each other", function()
    local message = problem(nil, config_with { hidden_size = 48, num_attention_heads = 6 })
    assert.is_truthy(message:find("embeddings.word_embeddings.weight has the shape [105, 24]; it " ..
      "must be [105, 48]", 1, true))
    message = problem(nil, config_with { vocab_size = 100 })
    assert.equal("Bert.load: the weights do not fit the config:\n" ..
      "  embeddings.word_embeddings.weight has the shape [105, 24]; it must be [100, 24]", message)
    message = problem(nil, config_with { num_hidden_layers = 1 })
    assert.is_truthy(message:find("\n  num_hidden_layers is 1; the file has 2 layers\n", 1, true))
    assert.is_truthy(message:find("encoder.layer.1.output.dense.bias is not part of the model", 1, true))
    assert.equal("Bert.load: unsupported configuration: num_attention_heads is 5; it must divide hidden_size (24)",
      problem(nil, config_with { num_attention_heads = 5 }))
  end)

  it("rejects other models even if their weights have the same names", function()
    for _, other in ipairs { "roberta", "xlm-roberta", "camembert", "electra" } do
      local form = "Bert.load: unsupported configuration: model_type is a string ('%s'); it must be bert"
      assert.equal(form:format(other), problem(nil, config_with { model_type = other }))
    end
    assert.is_truthy(Bert.load(folder, config_with { model_type = "bert" }))
  end)

  it("rejects the weights of a RoBERTa", function()
    local state = {}
    for name, value in heed.pairs(weights()) do state["roberta." .. name] = value end
    save(state)
    local message = problem()
    assert.is_truthy(message:find("^Bert.load: unsupported configuration: the weights are named roberta%.[%w.]+: the "
      .. "model is a RoBERTa, which counts positions in another way than BERT; it must be a BERT$"), message)
  end)

  it("names settings that are missing or wrong", function()
    local known = table.concat(require("heed.models.config").activation_names, ", ")
    assert.equal("Bert.load: unsupported configuration: hidden_act is a string ('swish2'); it must be one of " ..
      known .. "; hidden_size is the number 2.5; it must be an integer of at least 1; position_embedding_type is a " ..
      "string ('relative_key'); it must be absolute",
      problem(nil, config_with { hidden_size = 2.5, hidden_act = "swish2", position_embedding_type = "relative_key" }))
    assert.equal("Bert.load: unsupported configuration: hidden_size is missing; intermediate_size is missing; " ..
      "num_attention_heads is missing; num_hidden_layers is missing; vocab_size is missing", problem(nil, {}))
    support.write(folder .. "/config.json", "[1, 2")
    assert.is_truthy(problem():find("config.json", 1, true))
    support.write(folder .. "/config.json", "null")
    assert.equal("load: 'FOLDER/config.json' contains null; it must contain a JSON object", problem())
  end)

  it("reports problems with the other files", function()
    local message = problem(nil, config_with { hidden_dropout_prob = 7 })
    assert.is_truthy(message:find("Bert.load: unsupported configuration: ", 1, true))
    support.write(folder .. "/sentence_bert_config.json", '{"max_seq_length": "long"}')
    assert.equal("Bert.load: unsupported configuration: sentence_bert_config.json: max_seq_length is a string " ..
      "('long'); it must be an integer of at least 1", problem())
    support.write(folder .. "/sentence_bert_config.json", "{}")
    support.write(folder .. "/tokenizer_config.json", '{"do_lower_case": 1}')
    assert.equal("Bert.load: unsupported configuration: tokenizer_config.json: do_lower_case is the number 1; " ..
      "it must be a boolean", problem())
  end)

  it("rejects weights that are not floating-point tensors", function()
    local state = weights()
    state["pooler.dense.bias"] = heed.ones(24, { dtype = "int64" })
    save(state)
    assert.equal("Bert.load: the weights do not fit the config:\n  pooler.dense.bias is int64; it must be a " ..
      "floating-point tensor", problem())
  end)

  it("reports problems with the vocabulary", function()
    support.write(folder .. "/vocab.txt", "[UNK]\n[CLS]\n")
    assert.equal("load: 'FOLDER/vocab.txt' is not a vocabulary: [SEP] is missing", problem())
    support.write(folder .. "/vocab.txt", support.read(FOLDER .. "/vocab.txt") .. "more\n")
    assert.equal("Bert.load: 'FOLDER/vocab.txt' has 106 pieces; vocab_size is 105", problem())
  end)

  it("loads without a vocabulary, but cannot encode then", function()
    os.remove(folder .. "/vocab.txt")
    local m = assert(Bert.load(folder))
    assert.are.equal(3, m({ 2, 5, 9 }).shape[1])
    raises("encode: the model was loaded without a tokenizer (vocab.txt, tokenizer.json)",
      function() m:encode { "a" } end)
  end)

  it("accepts files of models with a head, old weight names, and weights in bfloat16", function()
    local want, state = model():encode { "one step" }, {}
    for name, value in heed.pairs(weights()) do
      local old = name:gsub("LayerNorm%.weight$", "LayerNorm.gamma"):gsub("LayerNorm%.bias$", "LayerNorm.beta")
      state["bert." .. old] = value
    end
    state["bert.embeddings.position_ids"] = heed.range(0, 19, { dtype = "int64" }):unsqueeze(1)
    state["cls.predictions.bias"] = heed.zeros(105)
    save(state)
    assert.is_true(heed.equal(want, assert(Bert.load(folder)):encode { "one step" }))
    for name, value in heed.pairs(state) do
      if value.dtype == "float32" then state[name] = value:to "bfloat16" end
    end
    save(state)
    assert.is_true((want * assert(Bert.load(folder)):encode { "one step" }):sum():item() > 0.999)
  end)

  it("supports pooling by the first token", function()
    support.write(folder .. "/1_Pooling/config.json",
      '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    local m = assert(Bert.load(folder))
    local first = m(m.tokenizer:encode "one step")[1]
    local want = first / first:pow(2):sum():sqrt()
    assert.is_true(heed.allclose(m:encode({ "one step" })[1], want, 1e-5, 1e-6))
    support.write(folder .. "/1_Pooling/config.json", '{"pooling_mode_mean_tokens": false}')
    assert.equal("Bert.load: unsupported configuration: 1_Pooling/config.json: no pooling is chosen; it must be one of "
      .. "cls, max, mean, mean_sqrt_len, weightedmean, lasttoken", problem())
  end)
end)
