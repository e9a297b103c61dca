--- BERT in GGUF files, as llama.cpp's converter writes it: without the pooler and heads. XLM-RoBERTa is written so,
--- too, without the positions before the first token's.

local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local gguf = require "heed.models.gguf"
local state_dict = require "heed.nn.state_dict"

local gguf_encoder = {}

-- The fields of config.json for keys.
local FIELDS = {
  ["attention.head_count"] = "num_attention_heads",
  ["attention.layer_norm_epsilon"] = "layer_norm_eps",
  block_count = "num_hidden_layers",
  context_length = "max_position_embeddings",
  embedding_length = "hidden_size",
  feed_forward_length = "intermediate_size",
}

-- By pooling_type.
local POOLINGS = { [0] = "mean", "mean", "cls", "lasttoken" }

-- Keys that are read otherwise, or must have these values.
local OTHERS = { pooling_type = true, vocab_size = true, ["attention.causal"] = { false } }

--- The fields of config.json, of which those in `given` (a table or nil) replace what the file says, and the pooling.
--- Returns nil and a problem.
function gguf_encoder.config(state, given)
  local metadata, config = state_dict.metadata(state, 64), { model_type = "bert" }
  local problem = gguf.foreign(metadata, "bert") or gguf.unknown_keys(metadata, "bert", function(key, value)
    local other = OTHERS[key]
    return FIELDS[key] or other == true or other and other[1] == value
  end)
  if problem then return nil, problem end
  gguf.read_fields(metadata, "bert", FIELDS, config)
  local names = { vocab_size = "the number of rows of token_embd.weight" }
  for key, field in pairs(FIELDS) do names[field] = "bert." .. key end
  local pooling = metadata["bert.pooling_type"]
  if pooling ~= nil and not POOLINGS[pooling] then
    return nil, ("bert.pooling_type is %s; it must be 0 (none), 1 (mean), 2 (cls) or 3 (last)"):format(E.what(pooling))
  end
  for field, name in pairs { vocab_size = "token_embd.weight", type_vocab_size = "token_types.weight" } do
    if state_dict.has(state, name) then config[field] = state_dict.get(state, name).shape[1] end
  end
  for key, each in pairs(given or {}) do config[key], names[key] = each, nil end
  configs.show(config, names)
  return config, POOLINGS[pooling or 1]
end

--- The names of the weights.
gguf_encoder.renames = {
  { "^word_embeddings", "token_embd" },
  { "^position_embeddings", "position_embd" },
  { "^token_type_embeddings", "token_types" },
  { "^embedding_norm", "token_embd_norm" },
  { "^layers", "blk" },
  { "attention%.W_query", "attn_q" },
  { "attention%.W_key", "attn_k" },
  { "attention%.W_value", "attn_v" },
  { "attention%.out_proj", "attn_output" },
  { "attention_norm", "attn_output_norm" },
  { "(%.%d+)%.norm", "%1.layer_output_norm" },
  { "(%.%d+)%.up", "%1.ffn_up" },
  { "(%.%d+)%.down", "%1.ffn_down" },
}

return gguf_encoder
