--- Gemma 3, its text models: `require "heed.models.gemma3".load "gemma-3-270m"`. Llama with norms of queries and
--- keys and of what each layer adds, scaled embeddings, and a window in five of six layers, whose positions have a base
--- of their own. Source: arXiv:2503.19786.

local configs = require "heed.models.config"
local family = require "heed.models.family"
local read_rope = require("heed.models.rope").read
local windows = require "heed.models.windows"

--- The settings of rope for each kind of layer: in rope_parameters by kind, or, in older files, rope_theta and
--- rope_scaling for all tokens, and rope_local_base_freq for windows.
local function add_rope(c, aliases, further)
  local by_kind, scaling, ropes = c.rope_parameters or {}, aliases.rope_scaling, {}
  for name, each in pairs { full_attention = c.rope_theta, sliding_attention = c.rope_local_base_freq } do
    local found, problem
    if c.rope_parameters then
      found, problem = read_rope(by_kind[name], "rope_parameters." .. name, c, each)
    else
      found, problem = read_rope(name == "full_attention" and c.rope_scaling or nil, scaling, c, each)
    end
    if not found then return problem end
    ropes[name] = found
  end
  further.ropes = ropes
end

-- Files have the weights of norms minus 1.
local NORM = { offset = 1 }

return (family("Gemma3", {
  types = { "gemma3_text" },
  architectures = { { "Gemma3", "gemma3_text" } },
  settings = {
    num_key_value_heads = { kind = "size", default = 4 },
    head_dim = { kind = "size", default = 256 },
    max_position_embeddings = { kind = "size", default = 131072 },
    hidden_act = { kind = configs.activation_names, also = { "hidden_activation" }, default = "gelu_pytorch_tanh" },
    attention_bias = { kind = "boolean", default = false },
    tie_word_embeddings = { kind = "boolean", default = true },
    query_pre_attn_scalar = { kind = "positive", default = 256 },
    rope_theta = { kind = "positive", default = 1000000 },
    rope_local_base_freq = { kind = "positive", default = 10000 },
    sliding_window = { kind = "size", default = 4096 },
    sliding_window_pattern = { kind = "size", also = { "_sliding_window_pattern" }, default = 6 },
    layer_types = { kind = "table", optional = true },
    final_logit_softcapping = { kind = "positive", optional = true },
    attn_logit_softcapping = { kind = "positive", optional = true },
    use_bidirectional_attention = { kind = { false }, default = false },
  },
  slides = function(c, i) return i % c.sliding_window_pattern ~= 0 end,
  add_rope = add_rope,
  layer = function(c, i)
    return { rope = c.ropes[c.layer_types[i]], window = windows.of(c, i), scale = c.query_pre_attn_scalar ^ -0.5,
      softcap = c.attn_logit_softcapping, qk_norm = true, qkv_bias = c.attention_bias, out_bias = c.attention_bias,
      post_norms = true }
  end,
  embedding_scale = function(c) return c.hidden_size ^ 0.5 end,
  renames = {
    { "attention_post_norm", "post_attention_layernorm" },
    { "(%.%d+)%.norm", "%1.pre_feedforward_layernorm" },
    { "(%.%d+)%.post_norm", "%1.post_feedforward_layernorm" },
  },
  form = function(_, file_name) return file_name:find "norm%.weight$" and NORM or nil end,
}))
