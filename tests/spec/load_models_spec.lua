-- heed.models.load: the class of a model from its files.
local cases = require "tests.decoder_cases"
local heed = require "heed"
local models = require "heed.models"
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local FOLDER = cases.top .. "decoders/"

describe("models.load", function()
  for _, case in ipairs(cases.variants) do
    it("loads the class that config.json names: " .. case.name, function()
      local m = assert(models.load(FOLDER .. case.name))
      assert.is_false(m.training)
      local ids = tensors.int64(case.ids) + 1
      local logits = m(ids)
      tensors.close(heed.tensor(case.logits):view(logits.shape), logits, 3e-5)
    end)
  end

  it("refuses a file whose table has other values than tensors", function()
    local path = os.tmpname() .. ".safetensors"
    assert(heed.save(path, { step = 3, weight = heed.ones(2) }))
    for name, config in pairs {
      gpt2 = { n_embd = 4, n_layer = 2, n_head = 4, vocab_size = 4 },
      roberta = { hidden_size = 2, num_hidden_layers = 2, num_attention_heads = 1, intermediate_size = 3,
        vocab_size = 4 },
    } do
      local model, message = require("heed.models." .. name).load(path, config)
      assert.is_nil(model)
      assert.matches("%.load: '.*' is a table with other values than tensors; it must be a model's weights$", message)
    end
    os.remove(path)
  end)

  it("takes a weights file with a config, and a folder of a BERT", function()
    local golden = cases.golden.llama
    local m = assert(models.load(cases.top .. golden.file,
      { architectures = { "LlamaForCausalLM" }, vocab_size = golden.config.vocab_size,
        hidden_size = golden.config.hidden_size, intermediate_size = golden.config.intermediate_size,
        num_hidden_layers = golden.config.num_hidden_layers,
        num_attention_heads = golden.config.num_attention_heads,
        num_key_value_heads = golden.config.num_key_value_heads,
        max_position_embeddings = golden.config.max_position_embeddings }))
    assert.are.equal("llama", m.config.model_type)
    assert.are.equal(2, #assert(models.load(cases.top .. "tiny_bert")):encode { "one step", "two" })
  end)

  it("lists the known model types where it refuses one", function()
    local function refuses(config, message)
      local m, problem = models.load(FOLDER .. "llama", config)
      assert.is_nil(m)
      assert.are.equal("models.load: unsupported configuration: " .. message, problem)
    end
    local known = "bert, distilbert, gemma3_text, gpt2, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe, "
      .. "roberta, smollm3, xlm-roberta"
    refuses({ model_type = "falcon" }, "model_type is a string ('falcon'); it must be one of " .. known)
    refuses({}, "model_type is missing; it must be one of " .. known)
    refuses({ architectures = { "Qwen2MoeForCausalLM" } }, "model_type is missing and architectures names a string " ..
      "('Qwen2MoeForCausalLM'); it must be a class of " .. known)
  end)

  it("reports files that are missing, and arguments that are wrong", function()
    local m, problem = models.load "tests/nowhere"
    assert.is_nil(m)
    assert.are.equal("models.load: no such file or folder: 'tests/nowhere'", problem)
    raises("models.load: path is nil; it must be a string", function() models.load() end)
  end)

  it("refuses more layers than any model has before it lists them", function()
    local model, problem = heed.models.load("tests/golden/decoders/qwen3", { model_type = "qwen3",
      num_hidden_layers = 2000000000, vocab_size = 61, hidden_size = 32, intermediate_size = 40,
      num_attention_heads = 4 })
    assert.is_nil(model)
    assert.truthy(problem:find("num_hidden_layers is the number 2000000000; it must be an integer of at most 10000", 1,
      true), problem)
  end)
end)
