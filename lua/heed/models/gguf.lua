--- Models in GGUF files: their metadata as the fields of a config.json, and their names of tensors. Sources: ggml's
--- docs/gguf.md, and what llama.cpp's convert_hf_to_gguf.py writes.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local state_dict = require "heed.nn.state_dict"

local M = {}

-- ---- Architectures ------------------------------------------------------------------------------

-- By general.architecture: the model type; whether the file has the rows of queries and keys in the order in which
-- neighbours are rotated; further keys of metadata and the fields that they give; further fields.
local ARCHITECTURES = {
  llama = { model_type = "llama", interleaved = true },
  qwen2 = { model_type = "qwen2" },
  qwen3 = { model_type = "qwen3" },
  smollm3 = { model_type = "smollm3", interleaved = true },
  phi3 = {
    model_type = "phi3",
    keys = { ["attention.sliding_window"] = "sliding_window" },
  },
  gemma3 = {
    model_type = "gemma3_text",
    keys = {
      ["attention.sliding_window"] = "sliding_window",
      ["attention.sliding_window_pattern"] = "sliding_window_pattern",
      ["rope.freq_base_swa"] = "rope_local_base_freq",
      final_logit_softcapping = "final_logit_softcapping",
      attn_logit_softcapping = "attn_logit_softcapping",
    },
    -- The file does not say it: the size of a head, but for the model with 62 layers.
    complete = function(c)
      local of_27b = c.num_hidden_layers == 62
      c.query_pre_attn_scalar = of_27b and c.hidden_size / c.num_attention_heads or c.head_dim
    end,
  },
}

local KNOWN = {}
for name in pairs(ARCHITECTURES) do KNOWN[#KNOWN + 1] = name end
table.sort(KNOWN)
KNOWN = table.concat(KNOWN, ", ")

-- ---- Metadata -----------------------------------------------------------------------------------

-- Keys behind the architecture's name, and the fields that they give.
local KEYS = {
  block_count = "num_hidden_layers",
  context_length = "max_position_embeddings",
  embedding_length = "hidden_size",
  feed_forward_length = "intermediate_size",
  ["attention.head_count"] = "num_attention_heads",
  ["attention.head_count_kv"] = "num_key_value_heads",
  ["attention.key_length"] = "head_dim",
  ["attention.layer_norm_rms_epsilon"] = "rms_norm_eps",
  ["rope.freq_base"] = "rope_theta",
}
local NEEDED = { "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
  "attention.layer_norm_rms_epsilon" }

local FLOATS = { ["attention.layer_norm_rms_epsilon"] = true, ["rope.freq_base"] = true,
  ["rope.freq_base_swa"] = true, final_logit_softcapping = true, attn_logit_softcapping = true }

-- Keys that are read below, and those that change no result: vocab_size is that of the embeddings' tensor.
local OTHERS = {
  vocab_size = true, ["attention.value_length"] = true, ["rope.dimension_count"] = true, ["rope.scaling.type"] = true,
  ["rope.scaling.factor"] = true, ["rope.scale_linear"] = true, ["rope.scaling.original_context_length"] = true,
  ["rope.scaling.attn_factor"] = true, ["rope.scaling.finetuned"] = true,
  ["attention.layer_norm_epsilon"] = true, -- beside that of RMS norms, which is used
}
-- Keys that must have these values.
local FIXED = { expert_count = 0, expert_used_count = 0, use_parallel_residual = false, ["attention.causal"] = true }

--- The problem with the keys of an architecture, or nil.
local function problem_of_keys(metadata, name, architecture)
  local problems, prefix = {}, name .. "."
  for key, value in pairs(metadata) do
    E.check_cancel "load"
    local rest = key:sub(1, #prefix) == prefix and key:sub(#prefix + 1) or nil
    if rest and FIXED[rest] ~= nil then
      if value ~= FIXED[rest] then
        problems[#problems + 1] = ("%s is %s; it must be %s"):format(key, E.what(value), tostring(FIXED[rest]))
      end
    elseif rest and (KEYS[rest] or architecture.keys and architecture.keys[rest]) then
      local needed = type(value) ~= "number" and "a number"
        or KEYS[rest] and not FLOATS[rest] and not (value % 1 == 0 and value >= 1) and "an integer of at least 1"
      if needed then problems[#problems + 1] = ("%s is %s; it must be %s"):format(key, E.what(value), needed) end
    elseif rest and not OTHERS[rest] then
      problems[#problems + 1] = ("%s is %s, and heed does not know its meaning"):format(key, E.what(value))
    end
  end
  for _, key in ipairs(NEEDED) do
    if metadata[prefix .. key] == nil then problems[#problems + 1] = ("%s%s is missing"):format(prefix, key) end
  end
  table.sort(problems)
  return problems[1] and table.concat(problems, "; ")
end

--- The field rope_scaling, or nil, and a problem if there is one. `of` reads a key of the architecture.
local function scaling_of(name, of, has)
  local kind, factor = of "rope.scaling.type", of "rope.scaling.factor" or of "rope.scale_linear"
  local original, magnitude = of "rope.scaling.original_context_length", of "rope.scaling.attn_factor"
  if has "rope_freqs.weight" or has "rope_factors_long.weight" then
    return nil, "the file has factors for each frequency of rope, which heed does not support"
  end
  if kind == nil then kind = factor and factor ~= 1 and "linear" or "none" end
  if kind == "none" then return nil end
  if kind == "linear" then return { rope_type = "linear", factor = factor } end
  if kind ~= "yarn" then
    return nil, ("%s.rope.scaling.type is %s; it must be one of none, linear, yarn"):format(name, E.what(kind))
  end
  if magnitude and magnitude ~= 1 and type(factor) == "number" and factor > 1 then
    magnitude = magnitude * (0.1 * math.log(factor) + 1)
  else
    magnitude = nil
  end
  return { rope_type = "yarn", factor = factor, original_max_position_embeddings = original,
    attention_factor = magnitude }
end

-- Tokens that end a turn, which llama.cpp knows by their text.
local ENDS = { "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>" }

--- The ids that end a text, counted from 0: those of the metadata, and special tokens of the tokenizer (nil: none).
local function ends_of(metadata, tokenizer)
  local list, special, seen = {}, {}, {}
  local function add(id)
    if id ~= nil and not seen[id] then list[#list + 1], seen[id] = id, true end
  end
  for _, key in ipairs { "eos_token_id", "eot_token_id", "eom_token_id" } do
    add(metadata["tokenizer.ggml." .. key])
  end
  for _, token in ipairs(tokenizer and tokenizer.special_tokens or {}) do
    special[type(token) == "table" and token.content or token] = true
  end
  for _, token in ipairs(ENDS) do
    local id = special[token] and tokenizer:id(token)
    if id then add(id - 1) end
  end
  return list
end

--- Whether the metadata of a state, or nil, is that of a model, for messages: nil and a problem if it is not.
local function architecture_of(metadata)
  local name = metadata and metadata["general.architecture"]
  if type(name) == "string" and ARCHITECTURES[name] then return ARCHITECTURES[name], name end
  if name == nil then return nil, "general.architecture is missing; it must be one of " .. KNOWN end
  return nil, ("general.architecture is %s; it must be one of %s"):format(E.what(name), KNOWN)
end

--- The fields of a config.json for this metadata. has(name) says whether the file has a tensor, `vocab_size` is the
--- number of embeddings, `tokenizer` that of the file, or nil. Returns nil and a problem if the architecture or a key is
--- unknown.
function M.fields(metadata, has, vocab_size, tokenizer)
  local architecture, name = architecture_of(metadata)
  if not architecture then return nil, name end
  local problem = problem_of_keys(metadata, name, architecture)
  if problem then return nil, problem end
  local function of(key) return metadata[name .. "." .. key] end
  local c = { model_type = architecture.model_type, rope_theta = 10000, vocab_size = vocab_size }
  for _, keys in ipairs { KEYS, architecture.keys or {} } do
    for key, field in pairs(keys) do
      if of(key) ~= nil then c[field] = of(key) end
    end
  end
  if not c.head_dim and c.hidden_size % c.num_attention_heads == 0 then
    c.head_dim = compat.divide(c.hidden_size, c.num_attention_heads)
  end
  local values, rotated = of "attention.value_length", of "rope.dimension_count"
  if values and values ~= c.head_dim then
    return nil, ("%s.attention.value_length is %s; it must be that of keys, %s"):format(name, E.what(values),
      tostring(c.head_dim))
  end
  if rotated and c.head_dim and rotated ~= c.head_dim then
    if type(rotated) ~= "number" then
      return nil, ("%s.rope.dimension_count is %s; it must be a number"):format(name, E.what(rotated))
    end
    c.partial_rotary_factor = rotated / c.head_dim
  end
  c.rope_scaling, problem = scaling_of(name, of, has)
  if problem then return nil, problem end
  c.tie_word_embeddings = not has "output.weight"
  if name == "llama" or name == "qwen3" or name == "smollm3" then
    c.attention_bias = has "blk.0.attn_q.bias"
    if name ~= "qwen3" then c.mlp_bias = has "blk.0.ffn_down.bias" end
  end
  c.rope_interleaved = architecture.interleaved or nil
  if architecture.complete then architecture.complete(c) end
  c.eos_token_id = ends_of(metadata, tokenizer)
  return c
end

--- The same for a state that heed.load read from a GGUF file.
function M.config(state, tokenizer)
  local embeddings = state_dict.has(state, "token_embd.weight") and state["token_embd.weight"]
  return M.fields(state_dict.short_metadata(state), function(name) return state_dict.has(state, name) end,
    embeddings and embeddings.shape[1] or 1, tokenizer)
end

--- The metadata for a model with the settings c: the inverse of M.fields, as far as files can say it. Returns nil and a
--- problem for models of another kind.
function M.metadata(c)
  local name
  for each, architecture in pairs(ARCHITECTURES) do
    if architecture.model_type == c.model_type then name = each end
  end
  if c.model_type == "mistral" then name = "llama" end
  if not name then
    return nil, ("models of the type %s cannot be saved as GGUF; the types are %s"):format(c.model_type, KNOWN)
  end
  local metadata, architecture = { ["general.architecture"] = name }, ARCHITECTURES[name]
  local function set(key, value, float)
    if value ~= nil and float then value = { type = "float32", value = value } end
    metadata[name .. "." .. key] = value
  end
  for _, keys in ipairs { KEYS, architecture.keys or {} } do
    for key, field in pairs(keys) do set(key, c[field], FLOATS[key]) end
  end
  local rope = c.rope or c.ropes and c.ropes.full_attention or {}
  set("attention.value_length", c.head_dim)
  set("vocab_size", c.vocab_size)
  set("rope.dimension_count", rope.dims or c.head_dim)
  set("rope.freq_base", rope.base, true)
  local scaling = rope.scaling
  if scaling then
    set("rope.scaling.type", scaling.type)
    set("rope.scaling.factor", scaling.factor, true)
    set("rope.scaling.original_context_length", scaling.original_context_length)
  end
  return metadata, name, architecture
end

-- ---- Names --------------------------------------------------------------------------------------

local PARTS = {
  input_layernorm = "attn_norm",
  ["self_attn.q_proj"] = "attn_q",
  ["self_attn.k_proj"] = "attn_k",
  ["self_attn.v_proj"] = "attn_v",
  ["self_attn.o_proj"] = "attn_output",
  ["self_attn.qkv_proj"] = "attn_qkv",
  ["self_attn.q_norm"] = "attn_q_norm",
  ["self_attn.k_norm"] = "attn_k_norm",
  post_attention_layernorm = "ffn_norm",
  ["mlp.gate_proj"] = "ffn_gate",
  ["mlp.up_proj"] = "ffn_up",
  ["mlp.down_proj"] = "ffn_down",
  ["mlp.gate_up_proj"] = "ffn_up",
}
-- Of models with norms behind attention and the feed-forward layer, too.
local PARTS_OF_GEMMA = {
  post_attention_layernorm = "post_attention_norm",
  pre_feedforward_layernorm = "ffn_norm",
  post_feedforward_layernorm = "post_ffw_norm",
}
local TOP = { ["embed_tokens.weight"] = "token_embd.weight", ["norm.weight"] = "output_norm.weight",
  ["lm_head.weight"] = "output.weight" }

--- A tensor's name in GGUF files, from that in Hugging Face's (without "model."), and its layout there from that in
--- theirs, which differs in the norms of Gemma only: GGUF has 1 added.
function M.name(name, form, c)
  if form and form.offset then form = nil end
  if TOP[name] then return TOP[name], form end
  local layer, part, last = name:match "^layers%.(%d+)%.(.+)%.(%l+)$"
  local gemma = c.model_type == "gemma3_text" and PARTS_OF_GEMMA[part]
  return ("blk.%s.%s.%s"):format(layer, gemma or PARTS[part], last), form
end

M.layers = "^blk%.(%d+)%."

return M
