--- Decoders in GGUF files: their metadata as the fields of a config.json, and the names of their tensors. Source: the
--- documentation of GGUF (ggml, docs/gguf.md), and what llama.cpp's converter writes.

local compat = require "heed.compat"
local core = require "heed.core"
local types = require "heed.gguf"
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local ropes = require "heed.models.gguf_rope"
local state_dict = require "heed.nn.state_dict"

local gguf = {}

-- ---- Architectures ------------------------------------------------------------------------------

-- The fields of config.json for keys of every architecture, without its name at their beginning.
local FIELDS = {
  ["attention.head_count"] = "num_attention_heads",
  ["attention.head_count_kv"] = "num_key_value_heads",
  ["attention.key_length"] = "head_dim",
  ["attention.layer_norm_rms_epsilon"] = "rms_norm_eps",
  block_count = "num_hidden_layers",
  context_length = "max_position_embeddings",
  embedding_length = "hidden_size",
  feed_forward_length = "intermediate_size",
  ["rope.freq_base"] = "rope_theta",
}

-- Keys without an effect of their own: they are read below, or repeat what others or the tensors say.
local READ = {
  ["attention.value_length"] = true, ["rope.dimension_count"] = true, ["rope.scaling.attn_factor"] = true,
  ["rope.scaling.factor"] = true, ["rope.scaling.finetuned"] = true, ["rope.scaling.original_context_length"] = true,
  ["rope.scaling.type"] = true, ["rope.scale_linear"] = true, tensor_data_layout = true, vocab_size = true,
}

-- Keys whose numbers are float32; those of others are uint32. llama.cpp refuses other types.
local FLOATS = {
  ["attention.layer_norm_rms_epsilon"] = true, attn_logit_softcapping = true, final_logit_softcapping = true,
  ["rope.freq_base"] = true, ["rope.freq_base_swa"] = true, ["rope.scaling.attn_factor"] = true,
  ["rope.scaling.factor"] = true,
}

-- Keys that change nothing with these values.
local NEUTRAL = { ["attention.causal"] = true, expert_count = 0, expert_used_count = 0 }

local WINDOW = { ["attention.sliding_window"] = "sliding_window" }
local EXPERTS = { expert_count = "num_local_experts", expert_used_count = "num_experts_per_tok" }

local function joined(one, other)
  local all = {}
  for _, each in ipairs { one, other } do
    for key, value in pairs(each) do all[key] = value end
  end
  return all
end

-- By general.architecture: the model type, its own fields, and
--   interleaved   the converter reorders the rows of queries and keys, so that neighbouring elements are rotated
--   adjust        adjust(config, has), which completes the fields; has(name) tells whether there is such a tensor
local ARCHITECTURES = {
  llama = {
    type = "llama", interleaved = true, fields = joined(WINDOW, EXPERTS),
    adjust = function(config, has)
      if config.sliding_window then config.model_type = "mistral" end
      if config.num_local_experts == 0 then config.num_local_experts, config.num_experts_per_tok = nil, nil end
      if config.num_local_experts then
        config.model_type = "mixtral"
        return
      end
      config.attention_bias = has "blk.0.attn_q.bias" or nil
      config.mlp_bias = has "blk.0.ffn_gate.bias" or nil
    end,
  },
  qwen2 = { type = "qwen2" },
  qwen3 = { type = "qwen3" },
  gemma3 = {
    type = "gemma3_text",
    fields = {
      ["attention.sliding_window"] = "sliding_window", ["attention.sliding_window_pattern"] = "sliding_window_pattern",
      ["rope.freq_base_swa"] = "rope_local_base_freq", final_logit_softcapping = "final_logit_softcapping",
      attn_logit_softcapping = "attn_logit_softcapping",
    },
    adjust = function(config)
      -- The file does not have it: it is the size of a head, but for the largest model.
      local width, heads = config.hidden_size, config.num_attention_heads
      local is_27b = config.num_hidden_layers == 62 and type(width) == "number" and type(heads) == "number"
      config.query_pre_attn_scalar = is_27b and width / heads or config.head_dim
    end,
  },
  phi3 = {
    type = "phi3",
    fields = {
      ["attention.sliding_window"] = "sliding_window",
      ["rope.scaling.original_context_length"] = "original_max_position_embeddings",
    },
  },
  qwen3moe = {
    type = "qwen3_moe", fields = joined(EXPERTS, { expert_feed_forward_length = "moe_intermediate_size" }),
    adjust = function(config) config.norm_topk_prob = true end,
  },
  smollm3 = {
    type = "smollm3", interleaved = true,
    adjust = function(config, has) config.attention_bias = has "blk.0.attn_q.bias" or nil end,
  },
}

local NAMES, BY_TYPE = {}, { mixtral = "llama" }
for name, about in pairs(ARCHITECTURES) do
  NAMES[#NAMES + 1], BY_TYPE[about.type] = name, name
end
table.sort(NAMES)
NAMES = table.concat(NAMES, ", ")

--- The elements of a block of each blocked dtype.
gguf.BLOCKS = { q4_0 = 32, q4_1 = 32, q5_0 = 32, q5_1 = 32, q8_0 = 32, q4_k = 256, q5_k = 256, q6_k = 256 }

-- ---- Settings -----------------------------------------------------------------------------------

local LONGEST = 4096 -- elements of lists of metadata that are read: settings by layer, not vocabularies

--- The name of a model's architecture, as general.architecture says. Returns nil and a problem for an unknown one;
--- `further` are names to be mentioned there.
local function architecture_of(metadata, further)
  local name = metadata["general.architecture"]
  if name == nil then return nil, "general.architecture is missing" end
  if ARCHITECTURES[name] then return name end
  return nil, ("general.architecture is %s; it must be one of %s%s"):format(E.what(name), further or "", NAMES)
end

-- Keys that are computed with before the rules of settings see them.
local NUMBERS = { "attention.value_length", "rope.dimension_count", "rope.freq_base", "rope.scale_linear",
  "rope.scaling.attn_factor", "rope.scaling.factor", "rope.scaling.original_context_length" }

--- The problem with a value among NUMBERS that is not a number, or nil.
local function not_a_number(metadata, name)
  for _, key in ipairs(NUMBERS) do
    local value = metadata[name .. "." .. key]
    if value ~= nil and type(value) ~= "number" then
      return ("%s.%s is %s; it must be a number"):format(name, key, E.what(value))
    end
  end
end

--- The problem with a file of another architecture than `name`, or nil.
function gguf.foreign(metadata, name)
  local architecture = metadata["general.architecture"]
  if architecture == name then return nil end
  local form = "general.architecture is %s; it must be '%s' here; heed.models.load finds the class of a file"
  return form:format(E.what(architecture), name)
end

--- The keys of the architecture for which is_known(key without its name, value) is false, as a problem; nil if there
--- are none.
function gguf.unknown_keys(metadata, name, is_known)
  local unknown = {}
  for key, value in pairs(metadata) do
    E.check_cancel "load"
    local short = key:sub(1, #name + 1) == name .. "." and key:sub(#name + 2) or nil
    if short and not is_known(short, value) then unknown[#unknown + 1] = ("%s = %s"):format(key, tostring(value)) end
  end
  if #unknown == 0 then return nil end
  E.sort(unknown, "load")
  return "there is no setting for " .. table.concat(unknown, ", ")
end

--- Sets the fields of `config` that `fields` has for keys of the architecture.
function gguf.read_fields(metadata, name, fields, config)
  for key, field in pairs(fields) do
    local value = metadata[name .. "." .. key]
    config[field] = type(value) == "number" and ropes.shortest(value) or value
  end
end

-- Tokens that end an answer, by which some files name no id.
local ENDS = {
  "<|im_end|>", "<|eot_id|>", "<|end_of_turn|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|eom_id|>",
  "<|end_of_text|>",
}

--- The ids that end a text, from 0, by the metadata and by the names of tokens. `tokenizer` may be nil.
local function stops(metadata, tokenizer)
  local ids, seen = {}, {}
  local function add(id)
    if compat.is_integer(id) and not seen[id] then ids[#ids + 1], seen[id] = id, true end
  end
  for _, name in ipairs { "eos", "eot", "eom" } do add(metadata[("tokenizer.ggml.%s_token_id"):format(name)]) end
  local special = {}
  for _, token in ipairs(tokenizer and tokenizer.special_tokens or {}) do special[token] = true end
  for _, token in ipairs(ENDS) do
    if special[token] then add(tokenizer:id(token) - 1) end
  end
  return ids
end

--- The names of GGUF keys for the fields of a config, for messages.
local function names_of(name, fields)
  local function key(text) return name .. "." .. text end
  local names = {
    partial_rotary_factor = ("%s / %s"):format(key "rope.dimension_count", key "attention.key_length"),
    query_pre_attn_scalar = key "attention.key_length", rope_scaling = key "rope.scaling",
    vocab_size = "the number of rows of token_embd.weight",
  }
  for _, each in ipairs { FIELDS, fields } do
    for text, field in pairs(each) do names[field] = key(text) end
  end
  return names
end

--- The config of the model whose tensors `state` holds, with the fields of config.json, of which those in `given` (a
--- table or nil) replace what the file says. `about` describes the class. Returns nil and a problem.
function gguf.config(state, about, tokenizer, given)
  local metadata = state_dict.metadata(state, LONGEST)
  local name, problem = architecture_of(metadata)
  if not name then return nil, problem end
  local own, config = ARCHITECTURES[name], {}
  local fields = own.fields or {}
  problem = gguf.foreign(metadata, BY_TYPE[about.types[1]])
    or gguf.unknown_keys(metadata, name, function(key, value)
      return FIELDS[key] or fields[key] or READ[key] or NEUTRAL[key] == value
    end) or not_a_number(metadata, name)
  if problem then return nil, problem end
  local function value(key) return metadata[name .. "." .. key] end
  gguf.read_fields(metadata, name, FIELDS, config)
  gguf.read_fields(metadata, name, fields, config)
  config.model_type = own.type
  local embeddings = state_dict.has(state, "token_embd.weight") and state_dict.get(state, "token_embd.weight")
  config.vocab_size = embeddings and embeddings.shape[1] or value "vocab_size"
  local heads, width = config.num_attention_heads, config.hidden_size
  local head = config.head_dim or type(heads) == "number" and type(width) == "number" and width / heads or nil
  if (value "attention.value_length" or head) ~= head then
    return nil, ("%s.attention.value_length is %s; it must be %s.attention.key_length, %s"):format(name,
      E.what(value "attention.value_length"), name, E.what(head))
  end
  local rotated = value "rope.dimension_count"
  if rotated ~= nil and rotated ~= head and type(head) == "number" then
    if not about.partial_rotary then
      return nil, ("%s.rope.dimension_count is %s; it must be %s.attention.key_length, %s"):format(name,
        E.what(rotated), name, E.what(head))
    end
    config.partial_rotary_factor = rotated / head
  end
  local dims = rotated or head
  config.rope_scaling, problem = ropes.scaling(name, value, state, config.rope_theta or 10000,
    type(dims) == "number" and dims / 2 or nil)
  if config.rope_scaling == false then return nil, problem end
  config.tie_word_embeddings = not state_dict.has(state, "output.weight")
  config.eos_token_id = stops(metadata, tokenizer)
  if own.adjust then own.adjust(config, function(tensor) return state_dict.has(state, tensor) or nil end) end
  local names = names_of(name, fields)
  if config.rope_scaling then configs.show(config.rope_scaling, ropes.names(name, config.rope_scaling)) end
  for key, each in compat.pairs(given or {}) do config[key], names[key] = each, nil end
  config.rope_interleaved = own.interleaved -- what the file's rows are, not those of the model `given` came from
  configs.show(config, names)
  return config
end

--- Adds to `metadata` and `state` what gguf.config reads: the settings c of a model, and the divisors. What has no
--- place there is left out.
function gguf.describe(about, c, metadata, state)
  local name = BY_TYPE[about.types[1]]
  local own = ARCHITECTURES[name]
  local function set(key, value)
    metadata[name .. "." .. key] = value
    local kind = FLOATS[key] and "float32" or "uint32"
    if type(value) == "number" then types.choose(metadata, name .. "." .. key, kind) end
  end
  metadata["general.architecture"] = name
  for _, fields in ipairs { FIELDS, own.fields or {} } do
    for key, field in pairs(fields) do
      if type(c[field]) ~= "table" then set(key, c[field]) end
    end
  end
  local rope = c.rope or c.ropes and c.ropes.full_attention or {}
  set("attention.value_length", c.head_dim)
  set("rope.dimension_count", rope.dims or c.head_dim)
  set("rope.freq_base", rope.base)
  if c.ropes then set("rope.freq_base_swa", c.ropes.sliding_attention.base) end
  set("vocab_size", c.vocab_size)
  ropes.describe(rope, c, set, state)
end

--- The model type of a GGUF file, or nil and a problem.
function gguf.type(state)
  local metadata = state_dict.metadata(state, LONGEST)
  if metadata["general.architecture"] == "bert" then return "bert" end
  local name, problem = architecture_of(metadata, "bert, ")
  if not name then return nil, problem end
  local experts = metadata[name .. ".expert_count"] or 0
  return name == "llama" and experts ~= 0 and "mixtral" or ARCHITECTURES[name].type
end

-- ---- Names of tensors ---------------------------------------------------------------------------

-- The names in Hugging Face's files, and those in GGUF files.
local RENAMES = {
  { "^embed_tokens", "token_embd" },
  { "^norm", "output_norm" },
  { "^layers", "blk" },
  { "self_attn%.([qkv])_proj", "attn_%1" },
  { "self_attn%.qkv_proj", "attn_qkv" },
  { "self_attn%.o_proj", "attn_output" },
  { "self_attn%.([qk])_norm", "attn_%1_norm" },
  { "input_layernorm", "attn_norm" },
  { "pre_feedforward_layernorm", "ffn_norm" },
  { "post_feedforward_layernorm", "post_ffw_norm" },
  { "mlp%.gate_up_proj", "ffn_up" },
  { "mlp%.(%l+)_proj", "ffn_%1" },
  { "block_sparse_moe%.gate", "ffn_gate_inp" },
  { "mlp%.gate%.", "ffn_gate_inp." },
  { "block_sparse_moe%.experts", "mlp.experts" },
  { "(mlp%.experts%.%d+)%.w1", "%1.gate_proj" },
  { "(mlp%.experts%.%d+)%.w2", "%1.down_proj" },
  { "(mlp%.experts%.%d+)%.w3", "%1.up_proj" },
  { "mlp%.experts%.%d+%.(%l+)_proj", "ffn_%1_exps" },
}

--- What differs from Hugging Face's files: a table {prefix, embedding, lm_head, layers, names, ignored}, with the
--- meanings that these have in loading.decoder, of which `about` is the description. Returns nil and a problem if GGUF
--- files of such models are not supported.
function gguf.layout(about)
  local name = BY_TYPE[about.types[1]]
  if not name then return nil, ("GGUF files of %s are not supported"):format(about.types[1]) end
  local interleaved, post = ARCHITECTURES[name].interleaved, name == "gemma3" and "post_attention_norm" or "ffn_norm"
  local function names(own_name, c)
    local file_name, form = about.names(own_name, c)
    file_name = file_name:gsub("post_attention_layernorm", post)
    for _, rename in ipairs(RENAMES) do file_name = file_name:gsub(rename[1], rename[2]) end
    if form and form.offset then form = nil end -- the file has the weights of norms as they are applied
    local expert = own_name:match "experts%.experts%.(%d+)"
    if expert then return file_name, { stacked = c.num_local_experts, part = tonumber(expert) + 1 } end
    if interleaved then
      local part = not c.rope_interleaved and own_name:match "%.W_(%l+)%.[^.]*$"
      local heads = part == "query" and c.num_attention_heads or part == "key" and c.num_key_value_heads
      form = heads and { heads = heads, interleaved = true } or nil
    end
    return file_name, form
  end
  return {
    prefix = "", embedding = "token_embd.weight", lm_head = "output.weight", layers = "blk%.(%d+)%.", names = names,
    ignored = function(each) return ropes.TENSORS[each] ~= nil end,
  }
end

--- Whether a file is read as GGUF, or, with `saving`, written as such.
function gguf.is(path, saving) return core.files.format(path, saving) == ".gguf" end

return gguf
