-- Models that are made from the fields of a config.json, with fresh weights; and what a config may contain.
local heed = require "heed"
local core = require "heed.core"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"
local close = require("tests.tensors").close

local GPT2, Llama, Bert = cases.classes.gpt2, cases.classes.llama, require "heed.models.bert"

local SMALL = {
  gpt2 = { vocab_size = 53, n_embd = 24, n_layer = 2, n_head = 3 },
  llama = { vocab_size = 61, hidden_size = 32, intermediate_size = 40, num_hidden_layers = 2, num_attention_heads = 4 },
  bert = { vocab_size = 105, hidden_size = 24, intermediate_size = 40, num_hidden_layers = 2, num_attention_heads = 3 },
}

--- The small config of a model with changes; false removes a key.
local function config_of(name, changes)
  local config = {}
  for key, value in pairs(SMALL[name]) do config[key] = value end
  for key, value in pairs(changes or {}) do config[key] = value or nil end
  return config
end

describe("a model made from the fields of a config.json", function()
  local ids = { 3, 50, 7, 1, 12, 30, 9, 44 }

  for _, case in ipairs(cases.variants) do
    it("computes the same as the loaded one: " .. case.name, function()
      local class, folder = cases.class_of(case.name), cases.top .. "decoders/" .. case.name
      local loaded, made = assert(class.load(folder)), class(assert(core.files.json(folder .. "/config.json")))
      made:eval():load_state_dict(loaded:state_dict())
      close(loaded(ids), made(ids), 0)
      assert.are.equal(tostring(loaded), tostring(made))
    end)
  end

  it("computes the same as the loaded one: BERT", function()
    local folder = cases.top .. "tiny_bert"
    local loaded, made = assert(Bert.load(folder)), Bert(assert(core.files.json(folder .. "/config.json")))
    made:eval():load_state_dict(loaded:state_dict())
    close(loaded(ids), made(ids), 0)
    close(loaded:pooled(loaded(ids)), made:pooled(made(ids)), 0)
  end)

  it("has the positions of rope_theta, whose default is 10000", function()
    local function attention(changes) return Llama(config_of("llama", changes)).layers[1].attention end
    assert.are.equal(10000, attention().rope.base)
    assert.are.equal(500000, attention { rope_theta = 500000 }.rope.base)
    assert.are.equal(250, attention { rope_parameters = { rope_theta = 250, rope_type = "default" } }.rope.base)
    local model = Llama(config_of("llama")):eval()
    assert.is_false(heed.equal(model({ 5, 9, 9, 2 })[4], model({ 9, 5, 9, 2 })[4]))
  end)

  it("has Hugging Face's defaults", function()
    local c = Llama(config_of "llama").config
    assert.are.same({ 1e-6, 10000, 2048, 4, 8, "silu", "llama" }, { c.rms_norm_eps, c.rope_theta,
      c.max_position_embeddings, c.num_key_value_heads, c.head_dim, c.hidden_act, c.model_type })
    c = Llama(config_of("llama", { architectures = { "MistralForCausalLM" }, sliding_window = 5,
      max_position_embeddings = 64 })).config
    assert.are.same({ "mistral", 5 }, { c.model_type, c.sliding_window })
    c = GPT2(config_of "gpt2").config
    assert.are.same({ 1e-5, 1024, 96, "gelu_new", 0.1, true }, { c.layer_norm_epsilon, c.max_position_embeddings,
      c.intermediate_size, c.hidden_act, c.resid_pdrop, c.tie_word_embeddings })
    c = Bert(config_of "bert").config
    assert.are.same({ 1e-12, 512, 2, "gelu", 0.1 }, { c.layer_norm_eps, c.max_position_embeddings, c.type_vocab_size,
      c.hidden_act, c.hidden_dropout_prob })
  end)

  it("reads its settings by all of their names", function()
    local c = GPT2(config_of "gpt2").config
    assert.are.same({ 24, 2, 3, 1024 }, { c.n_embd, c.n_layer, c.n_head, c.n_positions })
    c = GPT2({ vocab_size = 53, hidden_size = 24, num_hidden_layers = 1, num_attention_heads = 3 }).config
    assert.are.same({ 24, 1, 3 }, { c.n_embd, c.n_layer, c.n_head })
    assert.are.equal(32, GPT2(config_of("gpt2", { n_positions = 32, n_ctx = 64 })).config.n_positions)
    assert.are.equal(64, GPT2(config_of("gpt2", { n_ctx = 64 })).config.n_positions)
  end)

  it("can be made again from the config of a model", function()
    local model = assert(Llama.load(cases.top .. "decoders/llama3"))
    local again = Llama(model.config)
    again:eval():load_state_dict(model:state_dict())
    close(model(ids), again(ids), 0)
    local config = {}
    for key, value in pairs(model.config) do config[key] = value end
    config.num_hidden_layers = 1
    assert.are.equal(1, #Llama(config).layers)
    assert.are.equal(2, #model.layers)
  end)

  it("takes sizes that are whole floats, and defaults from a metatable", function()
    local model = GPT2(setmetatable({ n_embd = 48 / 2 }, { __index = SMALL.gpt2 }))
    assert.are.equal("heed.Size([53, 24])", tostring(model.token_embeddings.weight.shape))
    assert.are.equal("24", tostring(model.config.n_embd))
  end)

  it("ends texts at eos_token_id", function()
    assert.are.same({ 3 }, Llama(config_of("llama", { eos_token_id = 2 })).config.stop_tokens)
    assert.are.same({}, Llama(config_of "llama").config.stop_tokens)
  end)

  it("draws its weights as Hugging Face does", function()
    heed.manual_seed(1)
    local model = GPT2(config_of("gpt2", { n_embd = 96, n_layer = 8, initializer_range = 0.05 }))
    local layer = model.layers[3]
    local function std(x) return x:std():item() end
    assert.near(0.05, std(model.token_embeddings.weight), 0.003)
    assert.near(0.05, std(layer.attention.W_query.weight), 0.003)
    assert.near(0.05, std(layer.up.weight), 0.003)
    assert.near(0.05 / 4, std(layer.down.weight), 0.001)
    assert.near(0.05 / 4, std(layer.attention.out_proj.weight), 0.001)
    assert.are.equal(0, layer.up.bias:abs():max():item())
    assert.are.equal(1, layer.norm.weight:min():item())
    assert.is_true(model.lm_head.weight == model.token_embeddings.weight)
    model = Llama(config_of("llama", { hidden_size = 128 }))
    assert.near(0.02, std(model.layers[2].down.weight), 0.002)
    assert.near(0.02, std(model.lm_head.weight), 0.002)
    assert.is_true(model.training)
    heed.manual_seed(5)
    local one = Bert(config_of "bert")
    heed.manual_seed(5)
    assert.is_true(heed.equal(one.pooler.weight, Bert(config_of "bert").pooler.weight))
  end)

  it("draws nothing under skip_init", function()
    heed.manual_seed(1)
    local first = heed.rand(1):item()
    heed.manual_seed(1)
    heed.nn.utils.skip_init(Llama, config_of "llama")
    assert.are.equal(first, heed.rand(1):item())
  end)
end)

describe("a config", function()
  local NAMES = { [GPT2] = "GPT2", [Llama] = "Llama", [Bert] = "Bert" }
  local function refuses(class, message, name, changes)
    local config = config_of(name, changes)
    message = ("%s: unsupported configuration: %s"):format(NAMES[class], message)
    raises(message, function() class(config) end)
    local path = name == "bert" and cases.top .. "tiny_bert" or cases.top .. "decoders/" .. name
    local model, problem = class.load(path, config)
    assert.is_nil(model)
    assert.are.equal((message:gsub(":", ".load:", 1)), problem)
  end
  local LLAMA = "the settings are attention_bias, attention_dropout, eos_token_id, head_dim, hidden_act, hidden_size, "
    .. "initializer_range, intermediate_size, max_position_embeddings, mlp_bias, model_type, num_attention_heads, "
    .. "num_hidden_layers, num_key_value_heads, partial_rotary_factor, rms_norm_eps, rope_interleaved, "
    .. "rope_parameters, rope_scaling, rope_theta, sliding_window, tie_word_embeddings, vocab_size"

  it("with an unknown key is refused, with the key that was meant", function()
    refuses(Llama, "there is no setting 'rope_teta', did you mean 'rope_theta'?; " .. LLAMA, "llama",
      { rope_teta = 3 })
    refuses(Llama, "there is no setting 'alpha'; there is no setting 'rope', did you mean 'rope_theta'?; " .. LLAMA,
      "llama", { rope = { base = 100 }, alpha = 1 })
    for key, meant in pairs { block_size = "n_positions", emb_dim = "n_embd", n_heads = "n_head", n_layers = "n_layer",
      context_length = "n_positions", drop_rate = "resid_pdrop", n_imner = "n_inner", hidden_sise = "hidden_size" } do
      local fine, message = pcall(GPT2, config_of("gpt2", { [key] = 1 }))
      assert.is_false(fine)
      local said = ("there is no setting '%s', did you mean '%s'?; "):format(key, meant)
      assert.is_truthy(message:find(said, 1, true), message)
    end
    local _, message = pcall(GPT2, { 53, 24 })
    assert.is_truthy(message:find("there is the number 1; there is the number 2; the settings are ", 1, true), message)
  end)

  it("with an unknown key of rope_scaling is refused", function()
    local _, message = pcall(Llama, config_of("llama", { rope_scaling = { rope_type = "linear", facto = 2 } }))
    assert.is_truthy(message:find("there is no setting 'rope_scaling.facto', did you mean 'factor'?; the settings are "
      .. "attention_factor, ", 1, true), message)
  end)

  it("may have keys that change no result", function()
    Llama(config_of("llama", { architectures = { "LlamaForCausalLM" }, torch_dtype = "bfloat16", pad_token_id = 0,
      transformers_version = "4.40.0", use_cache = true, _name_or_path = "x", pretraining_tp = 1, bos_token_id = 1 }))
    Bert(config_of("bert", { directionality = "bidi", gradient_checkpointing = false, pruned_heads = {}, id2label = {},
      classifier_dropout = 0.1 }))
    GPT2(config_of("gpt2", { summary_type = "cls_index", task_specific_params = {}, add_cross_attention = false }))
  end)

  it("is refused if one of its keys must not have that value", function()
    refuses(GPT2, "add_cross_attention is a boolean (true); it must be false", "gpt2",
      { add_cross_attention = true })
    refuses(Llama, "quantization_config is a table; it must be empty", "llama",
      { quantization_config = { bits = 4 } })
    refuses(Llama, "sliding_window is 16 and model_type is 'llama'; with this setting "
      .. "it must be 'mistral'", "llama", { sliding_window = 16 })
    refuses(Llama, "mlp_bias is true and model_type is 'mistral'; with this setting "
      .. "it must be 'llama'", "llama", { mlp_bias = true, model_type = "mistral" })
    refuses(GPT2, "n_embd is the number 24 and hidden_size is the number 32; they must "
      .. "be equal", "gpt2", { hidden_size = 32 })
  end)

  it("names a missing setting, and the names that were given", function()
    refuses(GPT2, "n_embd is missing; n_layer is missing", "gpt2",
      { n_embd = false, n_layer = false })
    refuses(GPT2, "n_head is 5; it must divide n_embd (24)", "gpt2", { n_head = 5 })
    refuses(Llama, "num_attention_heads is 5; it must divide hidden_size (32)",
      "llama", { num_attention_heads = 5 })
    local model = GPT2(config_of("gpt2", { n_positions = 8 }))
    raises("GPT2: ids have 9 tokens; together they must be at most 8, n_positions",
      function() model { 1, 2, 3, 4, 5, 6, 7, 8, 9 } end)
  end)

  it("of another model is refused by its name", function()
    refuses(Llama, "model_type is a string ('qwen2'); it must be one of llama, mistral",
      "llama", { model_type = "qwen2" })
    refuses(Bert, "model_type is missing and architectures names a string "
      .. "('RobertaForMaskedLM'); it must be a class of bert", "bert", { architectures = { "RobertaForMaskedLM" } })
    refuses(Bert, "model_type is missing, pad_token_id is 1 and max_position_embeddings "
      .. "is 514: the model is a RoBERTa, which counts positions in another way than BERT; it must be a BERT", "bert",
      { max_position_embeddings = 514, pad_token_id = 1 })
  end)

  it("must be a table", function()
    raises("GPT2: config is nil; it must be a table with the fields of config.json", function() GPT2() end)
    raises("Llama: config is a string ('TinyLlama'); it must be a table with the fields of config.json; Llama.load "
      .. "reads a folder", function() Llama "TinyLlama" end)
    local linear = heed.nn.Linear(2, 2)
    raises("Bert: config is a module (Linear); it must be a table with the fields of config.json",
      function() Bert(linear) end)
  end)
end)
