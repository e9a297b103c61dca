-- Encoders other than BERT, classification heads and pairs of texts: compared with transformers on small models.
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local FOLDER = "tests/golden/encoders/"
local models = {}

local function model_of(name)
  models[name] = models[name] or assert(heed.models.load(FOLDER .. name))
  return models[name]
end

local function close(wanted, got, bound) tensors.close(tensors.golden(wanted), got, bound) end

--- The input of a case, counted from 0, for heed: ids [b, n], a mask [b, n] and lengths.
local function input_of(case)
  local lengths = heed.tensor(case.lengths, { dtype = "int64" })
  local mask = heed.range(1, #case.ids[1]):le(lengths:unsqueeze(2))
  return heed.tensor(case.ids, { dtype = "int64" }) + 1, mask, lengths
end

describe("an encoder", function()
  for _, case in ipairs(dofile "tests/golden/encoders.lua") do
    local item = case.pair or case.text
    if case.hidden then
      it(("%s gives PyTorch's hidden states: %s"):format(case.model, case.note), function()
        local m = model_of(case.model)
        local ids, mask, lengths = input_of(case)
        close(case.hidden, m(ids, { attention_mask = mask }) * mask:unsqueeze(3), 2e-5)
        close(case.hidden, m(ids, { kv_lengths = lengths, need_weights = true }) * mask:unsqueeze(3), 2e-5)
        local packed = m(ids:pack(lengths), { lengths = lengths })
        close(case.hidden, packed:unpack(lengths, ids.shape[2]), 2e-5)
      end)
    else
      local text = case.pair and table.concat(case.pair, " | ") or case.text
      it(("%s reads as transformers: %s"):format(case.model, text:sub(1, 30)), function()
        local m = model_of(case.model)
        local ids = require("heed.models.texts").ids(m, item)
        for i, id in ipairs(ids) do ids[i] = id - 1 end
        assert.are.same(case.ids, ids)
        if case.embedding then
          close(case.embedding, m:encode({ text })[1], 2e-6)
          return
        end
        local logits = tensors.golden(case.logits)
        local score = m:score({ item, item }, { activation = "none" })
        tensors.close(logits, m.config.num_labels == 1 and score:narrow(1, 2, 1) or score[2], 2e-5)
        local found = m:classify({ item }, { top_k = 9 })[1]
        assert.are.equal(#case.labels, #found)
        for i, each in ipairs(case.labels) do
          assert.are.equal(each.label, found[i].label)
          assert.is_true(math.abs(each.score - found[i].score) < 1e-5)
        end
        local best = m:classify({ item, item })[2]
        assert.are.equal(found[1].label, best.label)
      end)
    end
  end
end)

describe("a cross-encoder", function()
  local PAIRS = { { "one step", "the journey starts" }, { "word", "a" } }

  it("gives a sigmoid of one label's logit", function()
    local m = model_of "bert_cross"
    local logits = m:score(PAIRS, { activation = "none" })
    assert.are.equal("heed.Size([2])", tostring(logits.shape))
    assert.is_true(heed.allclose(m:score(PAIRS), logits:sigmoid()))
  end)

  it("gives what sentence_transformers in its config.json says", function()
    local m = model_of "xlm_roberta_cross"
    assert.is_true(heed.equal(m:score(PAIRS), m:score(PAIRS, { activation = "none" })))
  end)

  it("gives a row of scores for several labels, and none for an empty list", function()
    local m = model_of "roberta_labels"
    assert.are.equal("heed.Size([2, 3])", tostring(m:score(PAIRS).shape))
    assert.are.equal("heed.Size([0, 3])", tostring(m:score({}).shape))
    assert.are.equal("heed.Size([0])", tostring(model_of("bert_cross"):score({}).shape))
    assert.are.same({}, m:classify {})
  end)

  it("scores many pairs as it does alone", function()
    local m, pairs_of = model_of "bert_cross", {}
    for i = 1, 90 do pairs_of[i] = { ("a step "):rep(i % 5), ("word "):rep(i % 7) } end
    local all = m:score(pairs_of)
    for i = 1, 90, 7 do
      assert.is_true(math.abs(all[i] - m:score({ pairs_of[i] })[1]) < 1e-6)
    end
  end)

  it("refuses what is no text and no pair", function()
    local m = model_of "bert_cross"
    raises("score: pairs is a string ('a'); it must be a list of texts, or of pairs of texts {a, b}",
      function() m:score "a" end)
    raises("score: text 2 of pair 1 is nil; it must be a string", function() m:score { { "a" } } end)
    raises("score: pair 2 has 3 texts; it must have 2", function() m:score { { "a", "b" }, { "a", "b", "c" } } end)
    raises("score: text 1 of pair 1 is not valid UTF-8 at byte 2", function() m:score { { "a\255", "b" } } end)
    raises("classify: item 1 is the number 3; it must be a string", function() m:classify { 3 } end)
    raises("score: activation is a string ('exp'); it must be none, sigmoid, softmax or tanh",
      function() m:score(PAIRS, { activation = "exp" }) end)
    raises("classify: top_k is the number 0; it must be an integer of at least 1",
      function() m:classify({ "a" }, { top_k = 0 }) end)
    raises("score: the model has no classifier; it must be a model for sequence classification",
      function() model_of("roberta"):score(PAIRS) end)
  end)

  it("has logits of hidden states, through which gradients flow", function()
    for _, name in ipairs { "bert_cross", "roberta_labels", "distilbert" } do
      local m = assert(heed.models.load(FOLDER .. name))
      m:train()
      local before = heed.set_grad_enabled(true)
      local ids = heed.tensor({ { 3, 8, 9, 4 }, { 3, 9, 8, 4 } }, { dtype = "int64" })
      local logits = m:logits(m(ids))
      assert.are.same({ 2, m.config.num_labels }, { logits.shape[1], logits.shape[2] })
      logits:sum():backward()
      heed.set_grad_enabled(before)
      assert.is_true(m.classifier.weight.grad:abs():sum():item() > 0)
    end
  end)
end)

describe("the config of a classifier", function()
  local core = require "heed.core"

  local function problem(name, changes)
    local config = core.files.json(FOLDER .. name .. "/config.json")
    for key, value in pairs(changes) do config[key] = value end
    local m, message = heed.models.load(FOLDER .. name, config)
    assert.is_nil(m)
    return message
  end

  it("is refused where its labels contradict each other or the weights", function()
    assert.are.equal("Bert.load: unsupported configuration: num_labels is 3 and id2label has 1 label; they must be "
      .. "equal", problem("bert_cross", { num_labels = 3 }))
    assert.are.equal("Bert.load: unsupported configuration: id2label has nil for 0; it must be a string",
      problem("bert_cross", { id2label = { a = "b" } }))
    assert.is_truthy(problem("bert_cross", { id2label = { ["0"] = "a", ["1"] = "b" } })
      :find("classifier.weight has the shape [1, 16]; it must be [2, 16]", 1, true))
    assert.are.equal("Bert.load: unsupported configuration: sbert_ce_default_activation_function is a string "
      .. "('torch.nn.modules.activation.Mish'); it must be PyTorch's Identity, Sigmoid, Softmax or Tanh",
      problem("bert_cross", { sbert_ce_default_activation_function = "torch.nn.modules.activation.Mish" }))
    assert.are.equal("Roberta.load: unsupported configuration: max_position_embeddings is 2; it must be above "
      .. "pad_token_id + 1 (2), since positions begin there", problem("roberta", { max_position_embeddings = 2 }))
  end)

  it("makes a head of fresh weights", function()
    local Roberta = require "heed.models.roberta"
    local m = Roberta { vocab_size = 9, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
      intermediate_size = 8, architectures = { "RobertaForSequenceClassification" }, num_labels = 4 }
    assert.are.equal(4, m.classifier.weight.shape[1])
    assert.are.equal(510, m.config.max_tokens)
    assert.is_nil(Roberta({ vocab_size = 9, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
      intermediate_size = 8 }).classifier)
  end)

  it("is that of a model without token types for DistilBERT", function()
    raises("DistilBert: token_type_ids are given; the model has no token types",
      function() model_of "distilbert" ({ 3, 4 }, { token_type_ids = { 1, 1 } }) end)
    raises("Roberta: ids have 21 tokens; they must have at most 20, max_position_embeddings without those before the "
      .. "first token's", function() model_of "roberta" (heed.ones(21, { dtype = "int64" })) end)
  end)
end)

describe("the tokenizer of XLM-RoBERTa", function()
  it("numbers pieces as fairseq did", function()
    local tok = model_of("xlm_roberta_cross").tokenizer
    local ids = tok:encode "one step"
    assert.are.same({ 1, 3 }, { ids[1], ids[#ids] })
    assert.are.equal("one step", tok:decode(ids, { skip_special_tokens = true }))
    assert.are.equal("<s>one step</s>", tok:decode(ids))
    assert.are.equal("<unk>", tok:token(4))
    assert.are.equal("<mask>", tok:token(tok.vocab_size))
    for id = 1, tok.vocab_size do assert.are.equal(id, tok:id(tok:token(id))) end
    assert.is_nil(tok:token(tok.vocab_size + 1))
    assert.is_nil(tok:id "no such token")
    raises(("decode: element 1 of ids is the number 0; it must be an integer from 1 to %d"):format(tok.vocab_size),
      function() tok:decode { 0 } end)
  end)
end)
