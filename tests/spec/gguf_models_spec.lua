-- Decoders in GGUF files: saved by heed and loaded again, and the real files of `make model`.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local support = require "tests.support"
local tensors = require "tests.tensors"
local close, pairs_of = tensors.close, require("heed.compat").pairs

local IDS = { 6, 18, 10, 4, 3, 9 }

--- f(model in the file, path) after saving a model there.
local function saved(model, options, f)
  support.with_file(function(path)
    path = path .. ".gguf"
    assert(model:save_pretrained(path, options))
    local fine, problem = pcall(f, assert(heed.models.load(path)), path)
    os.remove(path)
    assert(fine, problem)
  end)
end

--- The problem with the file of a small Llama whose metadata and tensors `change` may change.
local function problem_of(change)
  local model, found, problem = assert(heed.models.load "tests/golden/decoders/llama"), nil, nil
  support.with_file(function(path)
    path = path .. ".gguf"
    assert(model:save_pretrained(path))
    local state = assert(heed.load(path))
    local metadata, all = state.metadata, {}
    for name, value in pairs_of(state) do all[name] = value:clone() end
    change(metadata, all)
    assert(heed.save(path, all, { metadata = metadata }))
    found, problem = heed.models.load(path)
    os.remove(path)
  end)
  assert.is_nil(found)
  return problem
end

describe("a GGUF file of a decoder", function()
  for _, name in ipairs { "llama", "llama_linear", "llama_tied", "llama_yarn", "mistral", "phi3", "phi3_partial",
    "phi3_longrope", "qwen2", "qwen3", "mixtral", "qwen3_moe_normalized" } do
    it("has what the golden " .. name .. " needs", function()
      local model = assert(heed.models.load("tests/golden/decoders/" .. name))
      saved(model, nil, function(again)
        close(model(IDS), again(IDS), 1e-5)
        local want, got = model:generate(IDS, { max_new_tokens = 8 }), again:generate(IDS, { max_new_tokens = 8 })
        assert.are.same(want, got)
      end)
    end)
  end

  -- These have no field for the unusual settings of the golden models.
  for name, config in pairs {
    gemma3 = { hidden_size = 32, num_attention_heads = 4, num_key_value_heads = 1, head_dim = 16, sliding_window = 4,
      query_pre_attn_scalar = 16, num_hidden_layers = 7 },
    llama = { hidden_size = 32, num_attention_heads = 4, num_hidden_layers = 2, max_position_embeddings = 16384,
      rope_theta = 500000, rope_scaling = { rope_type = "llama3", factor = 32, low_freq_factor = 1,
        high_freq_factor = 4, original_max_position_embeddings = 8192 } },
    smollm3 = { hidden_size = 32, num_attention_heads = 4, num_key_value_heads = 2, num_hidden_layers = 5 },
  } do
    it("has what a new " .. name .. " needs", function()
      config.vocab_size, config.intermediate_size = 61, 48
      heed.manual_seed(3)
      local model = require("heed.models." .. name)(config):eval()
      saved(model, nil, function(again)
        assert.are.equal(model.config.model_type, again.config.model_type)
        close(model(IDS), again(IDS), 1e-5)
      end)
    end)
  end

  it("keeps a head of its own, also of models that usually share it with the embeddings", function()
    for _, name in ipairs { "gemma3", "smollm3", "qwen2" } do
      heed.manual_seed(3)
      local model = require("heed.models." .. name) { vocab_size = 61, hidden_size = 32, intermediate_size = 48,
        num_hidden_layers = 1, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 8,
        query_pre_attn_scalar = name == "gemma3" and 8 or nil, tie_word_embeddings = false }:eval()
      saved(model, nil, function(again)
        assert.is_false(again.config.tie_word_embeddings)
        assert.is_true(again.lm_head.weight:equal(model.lm_head.weight))
        close(model(IDS), again(IDS), 1e-5)
      end)
    end
  end)

  it("keeps blocks as they are, and quantizes matrices to the dtype that is asked for", function()
    local model = assert(heed.models.load "tests/golden/decoders/llama")
    saved(model, { dtype = "q8_0" }, function(again)
      assert.are.equal("q8_0", again.layers[1].gate.weight.dtype)
      assert.are.equal("float32", again.layers[1].down.weight.dtype) -- rows of 40 are not whole blocks
      assert.are.equal("float32", again.norm.weight.dtype)
      local off = (model(IDS) - again(IDS)):pow(2):mean():sqrt():item()
      assert.is_true(off > 0 and off < 0.15, tostring(off))
      saved(again, nil, function(third) close(again(IDS), third(IDS), 0) end)
    end)
    saved(model, { dtype = "q4_k" }, function(again)
      assert.are.equal("q5_0", again.layers[1].gate.weight.dtype) -- llama.cpp's choice for rows of less than 256
    end)
  end)

  it("stacks the experts of a layer, and quantizes all but their router", function()
    local model = assert(heed.models.load "tests/golden/decoders/mixtral")
    saved(model, { dtype = "q8_0" }, function(again, path)
      local state = assert(heed.load(path))
      local up, router = state["blk.0.ffn_up_exps.weight"], state["blk.0.ffn_gate_inp.weight"]
      assert.are.equal("heed.Size([4, 40, 32]) q8_0", tostring(up.shape) .. " " .. up.dtype)
      assert.are.equal("float32", router.dtype)
      assert.is_true(router:equal(model.layers[1].experts.router.weight))
      local function third_up(of) return of.layers[1].experts.experts[3].w3.weight:float() end
      close(third_up(model), third_up(again), 0.01)
      close(third_up(again), up[3]:float(), 0)
      saved(again, nil, function(third) close(again(IDS), third(IDS), 0) end)
    end)
  end)

  it("has in float32 what is beyond float16, and is refused where blocks fit no weight", function()
    local model = assert(heed.models.load "tests/golden/decoders/llama")
    model.layers[1].gate.weight[{ 2, 3 }] = -1e5
    for _, dtype in ipairs { "float16", "q8_0" } do
      saved(model, { dtype = dtype }, function(again)
        assert.are.equal("float32", again.layers[1].gate.weight.dtype)
        assert.are.equal(-1e5, again.layers[1].gate.weight[{ 2, 3 }])
        assert.are.equal(dtype, again.layers[1].up.weight.dtype)
      end)
    end
    local narrow = require "heed.models.llama" { vocab_size = 5, hidden_size = 24, intermediate_size = 40,
      num_hidden_layers = 1, num_attention_heads = 3 }
    assert.are.same({ nil, "save_pretrained: dtype is q4_k; the rows of no weight are whole blocks of 32 elements" },
      { narrow:save_pretrained("x.gguf", { dtype = "q4_k" }) })
  end)

  it("has floats where llama.cpp reads floats, also for whole numbers", function()
    local model = assert(heed.models.load "tests/golden/decoders/llama")
    saved(model, nil, function(_, path)
      local bytes = support.read(path)
      local at = bytes:find("llama.rope.freq_base", 1, true) + #"llama.rope.freq_base"
      assert.are.equal(6, bytes:byte(at)) -- float32
      at = bytes:find("llama.block_count", 1, true) + #"llama.block_count"
      assert.are.equal(4, bytes:byte(at)) -- uint32
    end)
  end)

  it("refuses dtypes that it cannot have, and a dtype for a folder", function()
    local model = assert(heed.models.load "tests/golden/decoders/llama")
    assert.has_error(function() model:save_pretrained("x.gguf", { dtype = "int8" }) end,
      "save_pretrained: dtype is a string ('int8'); it must be float32, bfloat16, float16, q4_0, q4_1, q5_0, q5_1, "
      .. "q8_0, q4_k, q5_k or q6_k")
    local fine, problem = pcall(model.save_pretrained, model, ".", { dtype = "q8_0" })
    assert.is_false(fine)
    assert.truthy(problem:find("it must be nil for a folder", 1, true))
    model:to "q8_0"
    fine, problem = pcall(model.save_pretrained, model, ".")
    assert.is_false(fine)
    assert.truthy(problem:find('use m:to "float32"', 1, true))
  end)

  it("is refused for settings without a place in it", function()
    for name, setting in pairs { llama_biases = "hidden_act", llama_dynamic = "rope_scaling",
      gemma3 = "layer_types" } do
      local model = assert(heed.models.load("tests/golden/decoders/" .. name))
      local done, problem = model:save_pretrained "nowhere/x.gguf"
      assert.is_nil(done)
      assert.truthy(problem:find(setting, 1, true), problem)
    end
    local gpt = assert(heed.models.load "tests/golden/decoders/gpt2")
    assert.are.same({ nil, "save_pretrained: GGUF files of gpt2 are not supported" },
      { gpt:save_pretrained "x.gguf" })
  end)

  it("has the factors of longrope for the length that it is loaded with", function()
    local model = assert(heed.models.load "tests/golden/decoders/phi3_longrope")
    saved(model, nil, function(long, path)
      local short = assert(heed.models.load(path, { max_position_embeddings = 9 }))
      close(model(IDS), long(IDS), 1e-5)
      for i = 1, #model.layers do model.layers[i].attention.rope = model.config.short_rope end
      close(model(IDS), short(IDS), 1e-5)
    end)
  end)

  it("may divide the frequencies of positions by any numbers", function()
    local model, divisors = assert(heed.models.load "tests/golden/decoders/llama"), { 1, 1.5, 3, 10 }
    support.with_file(function(path)
      path = path .. ".gguf"
      assert(model:save_pretrained(path))
      local state = assert(heed.load(path))
      local metadata, all = state.metadata, { ["rope_freqs.weight"] = heed.tensor(divisors) }
      for name, value in pairs_of(state) do all[name] = value:clone() end
      assert(heed.save(path, all, { metadata = metadata }))
      for i = 1, #model.layers do
        model.layers[i].attention.rope = { scaling = { type = "factors", factors = divisors } }
      end
      local found = assert(heed.models.load(path))
      close(model(IDS), found(IDS), 1e-5)
      saved(found, nil, function(again) close(model(IDS), again(IDS), 1e-5) end)
      os.remove(path)
    end)
  end)

  it("is refused with what is unknown or missing in it", function()
    local rows = {
      { function(metadata) metadata["general.architecture"] = "rwkv7" end,
        "models.load: unsupported configuration: general.architecture is a string ('rwkv7'); it must be one of "
        .. "bert, gemma3, llama, phi3, qwen2, qwen3, qwen3moe, smollm3" },
      { function(metadata) metadata["general.architecture"] = nil end, "general.architecture is missing" },
      { function(metadata) metadata["llama.expert_count"] = 2 end, "blk.0.ffn_gate_exps.weight is missing" },
      { function(metadata) metadata["llama.expert_count"] = 10000 end, "llama.expert_count is 10000; the file has" },
      { function(metadata) metadata["llama.expert_count"] = "2" end, "llama.expert_count is a string ('2')" },
      { function(metadata) metadata["llama.attention.value_length"] = 4 end,
        "llama.attention.value_length is the number 4; it must be llama.attention.key_length, the number 8" },
      { function(metadata) metadata["llama.rope.dimension_count"] = 4 end,
        "llama.rope.dimension_count is the number 4; it must be llama.attention.key_length, the number 8" },
      { function(metadata) metadata["llama.embedding_length"] = nil end, "llama.embedding_length is missing" },
      { function(metadata) metadata["llama.rope.freq_base"] = 0 end,
        "llama.rope.freq_base is the number 0; it must be a positive number" },
      { function(metadata)
        metadata["llama.rope.scaling.type"], metadata["llama.rope.scaling.factor"] = "yarn", -1
      end, "llama.rope.scaling.factor is the number -1; it must be a positive number" },
      { function(metadata) metadata["llama.block_count"] = 3 end, "llama.block_count is 3; the file has 2 layers" },
      { function(metadata) metadata["llama.attention.head_count"] = "many" end,
        "llama.attention.head_count is a string" },
      { function(metadata) metadata["llama.attention.head_count_kv"] = { 2, 1 } end,
        "llama.attention.head_count_kv is a table" },
      { function(metadata) metadata["llama.rope.scaling.type"] = "longrope" end,
        "rope_factors_long.weight is missing; longrope needs it" },
      { function(metadata) metadata["llama.rope.scaling.type"] = "longer" end, "it must be one of linear, longrope," },
      { function(_, all) all["rope_freqs.weight"] = heed.tensor { 1, 2, 3, -5 } end,
        "rope_freqs.weight: element 4 is the number -5" },
      { function(_, all) all["rope_freqs.weight"] = heed.tensor { 1, 2, 3 } end,
        "rope_freqs.weight has 3 elements; it must have 4" },
      -- Ones are Llama 3's divisors of the factor 1.
      { function(_, all) all["rope_freqs.weight"] = heed.ones(3) end,
        "rope_freqs.weight has 3 elements; it must have 4" },
      { function(_, all) all["rope_freqs.weight"] = heed.zeros(0) end,
        "rope_freqs.weight has 0 elements; it must have 4" },
      { function(_, all) all["rope_freqs.weight"] = heed.ones(300) end, "rope_freqs.weight has the shape [300]" },
      { function(_, all) all["blk.0.ffn_up.weight"] = nil end, "blk.0.ffn_up.weight is missing" },
      { function(_, all) all["blk.0.attn_sinks"] = heed.ones(4) end, "blk.0.attn_sinks is not part of the model" },
      { function(_, all) all["output_norm.weight"] = heed.ones(31) end, "output_norm.weight has the shape [31]" },
      { function(_, all) all["token_embd.weight"] = nil end, "the number of rows of token_embd.weight is missing" },
    }
    for _, row in ipairs(rows) do
      local problem = problem_of(function(metadata, all)
        row[1](metadata, all)
        if not all["token_embd.weight"] then metadata["llama.vocab_size"] = nil end
      end)
      assert.truthy(problem:find(row[2], 1, true), problem)
    end
  end)

  it("takes single settings from a config that is given, and the others from the file", function()
    local model = assert(heed.models.load "tests/golden/decoders/llama")
    saved(model, nil, function(_, path)
      for _, load in ipairs { heed.models.load, require("heed.models.llama").load } do
        close(model(IDS), assert(load(path, {}))(IDS), 1e-5)
        local again = assert(load(path, { max_position_embeddings = 9 }))
        close(model(IDS), again(IDS), 1e-5)
        assert.equal(9, again.config.max_position_embeddings)
        local _, problem = load(path, { rms_norm_eps = 0 })
        assert.truthy(problem:find("rms_norm_eps is the number 0", 1, true), problem)
      end
    end)
  end)

  it("and a folder have the order of rows of their own with the config of another model", function()
    local folder = "tests/golden/decoders/llama"
    local llama = require "heed.models.llama"
    local model = assert(llama.load(folder))
    saved(model, nil, function(again, path)
      assert.are.same({ false, true }, { model.config.rope_interleaved, again.config.rope_interleaved })
      close(model(IDS), assert(llama.load(path, model.config))(IDS), 1e-5)
      close(model(IDS), assert(llama.load(folder, again.config))(IDS), 1e-5)
    end)
  end)

  it("has a tokenizer, a chat template and the ids that end an answer", function()
    local metadata = assert(heed.load "tests/golden/tokenizers/smollm.gguf").metadata
    local count = #metadata["tokenizer.ggml.tokens"]
    heed.manual_seed(1)
    local model = require "heed.models.llama" { vocab_size = count, hidden_size = 32, intermediate_size = 48,
      num_hidden_layers = 1, num_attention_heads = 4 }
    support.with_file(function(path)
      path = path .. ".gguf"
      assert(model:save_pretrained(path))
      local state = assert(heed.load(path))
      local own = state.metadata
      for key, value in pairs(metadata) do
        if key:find "^tokenizer" then own[key] = value end
      end
      own["tokenizer.chat_template"] = "{{ messages[0].content }}"
      local all = {}
      for name, value in pairs_of(state) do all[name] = value:clone() end
      assert(heed.save(path, all, { metadata = own }))
      local loaded = assert(heed.models.load(path))
      assert.are.equal(count, loaded.tokenizer.vocab_size)
      assert.are.equal("{{ messages[0].content }}", loaded.chat_template)
      local stops = {}
      for _, id in ipairs(loaded.config.stop_tokens) do stops[id] = true end
      assert.is_true(stops[own["tokenizer.ggml.eos_token_id"] + 1])
      -- Saved once more, the file still has it.
      assert(loaded:save_pretrained(path, { dtype = "q8_0" }))
      local third = assert(heed.models.load(path))
      assert.are.same(loaded.tokenizer:encode "one step", third.tokenizer:encode "one step")
      -- A tokenizer that is not supported does not make the model useless.
      own["tokenizer.ggml.pre"] = "unheard-of"
      assert(heed.save(path, all, { metadata = own }))
      local without = assert(heed.models.load(path))
      assert.is_nil(without.tokenizer)
      assert.truthy(without.tokenizer_problem:find("unheard-of", 1, true))
      os.remove(path)
    end)
  end)
end)

for _, case in ipairs(dofile "tests/golden/real_models.lua") do
  describe(case.name, function()
    local folder = support.model(case.name)
    if not folder then
      pending("is not here; `make model NAME=" .. case.name .. "` fetches it")
      return
    end
    local model = assert(heed.models.load(folder))

    it("gives transformers' logits and tokens", function()
      local ids = cases.from_one(case.ids)
      assert.are.same(ids, model.tokenizer:encode(case.text, { allowed_special = true }))
      local logits = model(ids, { logits_to_keep = 1 })[1]
      for i, want in ipairs(case.logits) do
        assert.is_true(math.abs(want - logits[i]) <= 1e-3, ("logit %d is %g"):format(i, logits[i]))
      end
      assert.are.same(cases.from_one(case.greedy), (model:generate(ids, { max_new_tokens = #case.greedy })))
    end)
  end)
end
