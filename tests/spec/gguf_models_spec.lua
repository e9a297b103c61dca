-- Models in GGUF files: loading, saving, and files that cannot be models. Real ones are in real_models_spec.lua.
local heed = require "heed"
local gguf = require "tests.gguf"
local files = dofile "tests/files.lua"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local path, file = files.path, files.file
local pair = gguf.pair

local IDS = { { 5, 17, 9, 30, 2, 44, 45, 46, 60, 3 } }

--- A small config; `more` replaces fields.
local function config(more)
  local c = { vocab_size = 61, hidden_size = 64, intermediate_size = 96, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, head_dim = 16, max_position_embeddings = 64, initializer_range = 0.2 }
  for key, value in pairs(more or {}) do c[key] = value end
  return c
end

local function model(name, more)
  heed.manual_seed(3)
  local m = require("heed.models." .. name)(config(more)):eval()
  for each, parameter in heed.pairs(m:state_dict()) do
    if parameter.ndim == 1 then parameter:normal_(each:find "norm" and 1 or 0, 0.1) end
  end
  return m
end

-- llama.cpp computes the same logits for all of these, within the 0.01 of its caches in float16.
local MODELS = {
  { "llama", {} },
  { "llama", { tie_word_embeddings = true, rope_interleaved = true } },
  { "llama", { attention_bias = true, mlp_bias = true } },
  { "llama", { model_type = "mistral" } },
  { "llama", { rope_scaling = { rope_type = "linear", factor = 4 } } },
  { "llama", { rope_scaling = { rope_type = "yarn", factor = 4, original_max_position_embeddings = 16 } } },
  { "qwen2", {} },
  { "qwen3", { tie_word_embeddings = true } },
  { "gemma3", { query_pre_attn_scalar = 16, sliding_window = 6, num_hidden_layers = 7 } },
  { "phi3", { sliding_window = 6 } },
  { "phi3", { partial_rotary_factor = 0.5 } },
  { "smollm3", { num_hidden_layers = 4 } },
}

describe("a model in a GGUF file", function()
  files.in_folders(before_each, after_each)

  for _, row in ipairs(MODELS) do
    local name, more = row[1], row[2]
    local about = {}
    for key, value in pairs(more) do about[#about + 1] = key .. "=" .. tostring(type(value) == "table" and "…" or value) end
    table.sort(about)
    it(("gives the logits that it had: %s %s"):format(name, table.concat(about, " ")), function()
      local m = model(name, more)
      assert.is_true(m:save_pretrained(path "m.gguf"))
      local again = assert(heed.models.load(path "m.gguf"))
      tensors.close(m(IDS), again(IDS), 3e-5)
      assert.is_false(again.training)
      assert.are.same(getmetatable(m), getmetatable(again))
      local direct = assert(require("heed.models." .. name).load(path "m.gguf"))
      assert.is_true(direct(IDS):equal(again(IDS)))
    end)
  end

  it("keeps its blocks, and reads and writes them as they are", function()
    local m = model("qwen3", { hidden_size = 256, tie_word_embeddings = true })
    assert.is_true(m:save_pretrained(path "m.gguf", { dtype = "q4_k" }))
    local again = assert(heed.models.load(path "m.gguf"))
    local layer = again.layers[1]
    assert.equal("q4_k", again.token_embeddings.weight.dtype)
    assert.equal("q4_k", layer.attention.W_query.weight.dtype)
    assert.equal("q5_0", layer.down.weight.dtype) -- rows of 96
    assert.equal("float32", layer.norm.weight.dtype)
    assert.is_true(again:save_pretrained(path "n.gguf"))
    for each, value in heed.pairs(assert(heed.load(path "m.gguf"))) do
      assert.is_true(value:float():equal(assert(heed.load(path "n.gguf"))[each]:float()), each)
    end
  end)

  it("has the names and the metadata of llama.cpp's files", function()
    assert.is_true(model("gemma3", { query_pre_attn_scalar = 16 }):save_pretrained(path "m.gguf", { dtype = "q8_0" }))
    local state = assert(heed.load(path "m.gguf"))
    local metadata = state.metadata
    assert.equal("gemma3", metadata["general.architecture"])
    assert.equal(2, metadata["gemma3.block_count"])
    assert.equal(16, metadata["gemma3.attention.key_length"])
    assert.equal(1000000, metadata["gemma3.rope.freq_base"])
    assert.equal(7, metadata["general.file_type"])
    for _, each in ipairs { "token_embd", "output_norm", "blk.1.attn_norm", "blk.0.attn_q", "blk.0.attn_q_norm",
      "blk.0.attn_output", "blk.0.post_attention_norm", "blk.0.ffn_norm", "blk.0.ffn_gate", "blk.0.post_ffw_norm" } do
      assert.is_truthy(state[each .. ".weight"], each)
    end
    assert.equal(2 + 2 * 13, #state)
  end)

  it("has the factors of Gemma's norms with 1 added", function()
    local m = model("gemma3", { query_pre_attn_scalar = 16 })
    assert.is_true(m:save_pretrained(path "m.gguf"))
    assert.is_true(m.norm.weight:equal(assert(heed.load(path "m.gguf"))["output_norm.weight"]))
  end)

  it("can be in a folder", function()
    local m = model "qwen2"
    assert.is_true(m:save_pretrained(path "model.gguf"))
    local folder = path("model.gguf"):match "^(.*)/"
    assert.is_true(m(IDS):equal(assert(heed.models.load(folder))(IDS)))
  end)

  it("has the config of its metadata unless another is given", function()
    local m = model "qwen2"
    assert.is_true(m:save_pretrained(path "m.gguf"))
    local again, problem = heed.models.load(path "m.gguf", config { model_type = "qwen2", num_hidden_layers = 3 })
    assert.is_nil(again)
    assert.is_truthy(problem:find("num_hidden_layers is 3; the file has 2 layers", 1, true), problem)
    assert.is_truthy(heed.models.load(path "m.gguf", config { model_type = "qwen2" }))
  end)

  it("is refused if the file cannot say a setting", function()
    local function refuses(name, more, message)
      local fine, problem = model(name, more):save_pretrained(path "m.gguf")
      assert.is_nil(fine)
      assert.equal(("save_pretrained: '%s': %s"):format(path "m.gguf", message), problem)
      assert.is_nil((io.open(path "m.gguf")))
    end
    refuses("llama", { hidden_act = "gelu" },
      "hidden_act is a string ('gelu'); files of the architecture llama cannot say this")
    refuses("llama", { model_type = "mistral", sliding_window = 8 },
      "sliding_window is the number 8; files of the architecture llama cannot say this")
    refuses("gemma3", { query_pre_attn_scalar = 20 },
      "query_pre_attn_scalar is the number 20; files of the architecture gemma3 cannot say this")
  end)

  it("is refused for other models, dtypes and paths", function()
    local m = model "qwen2"
    raises("save_pretrained: dtype is a string ('q2_k'); it must be one of bfloat16, float16, float32, q4_0, q4_1, "
      .. "q4_k, q5_0, q5_1, q5_k, q6_k, q8_0", function() m:save_pretrained(path "m.gguf", { dtype = "q2_k" }) end)
    local folder = path("m.gguf"):match "^(.*)/"
    raises(("save_pretrained: dtype is given and '%s' is no GGUF file; use m:to(dtype)"):format(folder),
      function() m:save_pretrained(folder, { dtype = "q8_0" }) end)
    local gpt = require "heed.models.gpt2" { vocab_size = 40, n_embd = 12, n_layer = 1, n_head = 3 }
    local fine, problem = gpt:save_pretrained(path "m.gguf")
    assert.is_nil(fine)
    assert.equal("save_pretrained: models of the type gpt2 cannot be saved as GGUF; the types are gemma3, llama, phi3, "
      .. "qwen2, qwen3, smollm3", problem)
  end)
end)

describe("a GGUF file without a model", function()
  files.in_folders(before_each, after_each)

  local GOOD = {
    { "llama.block_count", "uint32", 1 }, { "llama.context_length", "uint32", 16 },
    { "llama.embedding_length", "uint32", 8 }, { "llama.feed_forward_length", "uint32", 8 },
    { "llama.attention.head_count", "uint32", 2 }, { "llama.attention.layer_norm_rms_epsilon", "float32", 1e-5 },
  }

  --- The message for a file with GOOD, without the key `without`, and with more pairs.
  local function problem(more, without, architecture)
    local pairs_of_file = { architecture ~= false and pair("general.architecture", "string", architecture or "llama") or nil }
    for _, each in ipairs(GOOD) do
      if each[1] ~= without then pairs_of_file[#pairs_of_file + 1] = pair(each[1], each[2], each[3]) end
    end
    for _, each in ipairs(more or {}) do pairs_of_file[#pairs_of_file + 1] = pair(each[1], each[2], each[3]) end
    local m, message = heed.models.load(file("x.gguf", gguf.file(pairs_of_file, {})))
    assert.is_nil(m)
    return (message:gsub("'[^']*x%.gguf'", "FILE"):gsub("^models%.load: unsupported configuration: FILE: ", ""))
  end

  it("names the known architectures", function()
    local known = "it must be one of gemma3, llama, phi3, qwen2, qwen3, smollm3"
    assert.equal("general.architecture is a string ('mamba'); " .. known, problem({}, nil, "mamba"))
    assert.equal("general.architecture is missing; " .. known, problem({}, nil, false))
  end)

  it("names keys that are missing, of another type, or unknown", function()
    assert.equal("llama.embedding_length is missing", problem({}, "llama.embedding_length"))
    assert.equal("llama.block_count is a string ('one'); it must be a number",
      problem({ { "llama.block_count", "string", "one" } }, "llama.block_count"))
    assert.equal("llama.expert_count is the number 8; it must be 0", problem { { "llama.expert_count", "uint32", 8 } })
    assert.equal("llama.logit_scale is the number 0.5, and heed does not know its meaning",
      problem { { "llama.logit_scale", "float32", 0.5 } })
    assert.equal("llama.attention.value_length is the number 5; it must be that of keys, 4",
      problem { { "llama.attention.value_length", "uint32", 5 } })
    assert.equal("llama.rope.scaling.type is a string ('other'); it must be one of none, linear, yarn",
      (problem { { "llama.rope.scaling.type", "string", "other" } }))
  end)

  it("lists the tensors that are missing", function()
    local message = problem()
    assert.is_truthy(message:find("num_hidden_layers is 1; the file has 0", 1, true), message)
  end)

  it("may be absurd", function()
    for _, value in ipairs { 0, -1, 2 ^ 31 - 1 } do
      for _, key in ipairs { "block_count", "embedding_length", "attention.head_count", "context_length" } do
        assert.is_string(problem({ { "llama." .. key, "int32", value } }, "llama." .. key))
      end
    end
    assert.is_string(problem { { "llama.rope.freq_base", "float32", 0 / 0 } })
    assert.is_string(problem { { "llama.attention.head_count_kv", "uint32", 0 } })
    assert.is_string(problem { { "llama.attention.key_length", "uint32", 0 } })
    assert.is_string(problem { { "llama.rope.dimension_count", "uint32", 3 } })
  end)
end)
