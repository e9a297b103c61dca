--- GPT-2: `require "heed.models.gpt2".load "gpt2"`. Source: Radford et al., "Language Models are Unsupervised Multitask
--- Learners" (2019). Shape legend: b batch, n tokens, d hidden_size.

local core = require "heed.core"
local nn = require "heed.nn"
local call = require("heed.nn.slices").call
local points_of = require("heed.nn.declared_points").at
local E = require "heed.nn.entries"
local Decoder = require "heed.models.decoder"
local configs = require "heed.models.config"
local loading = require "heed.models.loading"
local saving = require "heed.models.saving"

-- ---- The architecture ---------------------------------------------------------------------------

local Layer = nn.Module.class "GPT2Layer"

function Layer:init(c, number)
  local d = c.hidden_size
  local scale = c.scale_attn_weights and (d / c.num_attention_heads) ^ -0.5 or 1
  self.attention_norm = nn.LayerNorm(d, c.layer_norm_epsilon)
  self.attention = nn.MultiHeadAttention {
    d_in = d, d_out = d, context_length = c.max_position_embeddings, dropout = c.attn_pdrop,
    num_heads = c.num_attention_heads, qkv_bias = true,
    scale = c.scale_attn_by_inverse_layer_idx and scale / number or scale,
  }
  self.norm = nn.LayerNorm(d, c.layer_norm_epsilon)
  self.up = nn.Linear(d, c.intermediate_size)
  self.activation = configs.activations[c.hidden_act]()
  self.down = nn.Linear(c.intermediate_size, d)
  self.dropout = nn.Dropout(c.resid_pdrop)
end

Layer.points = {
  "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out",
  "hook_resid_post", constant = true,
}
Layer.part_names = { attention_norm = "ln1", attention = "attn", norm = "ln2" }
Layer.packs = true -- takes packed sequences
Layer.tp_plan = { up = "colwise", down = "rowwise" }

function Layer:forward(x, options)
  local at = points_of(self)
  x = at("hook_resid_pre", x)
  local attended, info = call(self.attention, (self.attention_norm(x)), options)
  x = at("hook_resid_mid", x + at("hook_attn_out", self.dropout(attended)))
  local h = at("mlp.hook_pre", (call(self.up, (self.norm(x)))))
  h = at("mlp.hook_post", self.activation(h))
  x = x + at("hook_mlp_out", self.dropout((call(self.down, h))))
  return at("hook_resid_post", x), info
end

-- ---- Settings -----------------------------------------------------------------------------------

-- The settings in config.json: GPT-2's names for them, and Hugging Face's for those of all models; its defaults.
local CONFIG = {
  model_type = { kind = { "gpt2" }, default = "gpt2" },
  vocab_size = { kind = "size" },
  hidden_size = { kind = "size", also = { "n_embd" } },
  num_hidden_layers = { kind = "size", also = { "n_layer" } },
  num_attention_heads = { kind = "size", also = { "n_head" } },
  max_position_embeddings = { kind = "size", also = { "n_positions", "n_ctx" }, old = "n_ctx", default = 1024 },
  intermediate_size = { kind = "size", also = { "n_inner" }, optional = true },
  layer_norm_epsilon = { kind = "positive", default = 1e-5 },
  hidden_act = { kind = configs.activation_names, also = { "activation_function" }, default = "gelu_new" },
  scale_attn_weights = { kind = "boolean", default = true },
  scale_attn_by_inverse_layer_idx = { kind = "boolean", default = false },
  tie_word_embeddings = { kind = "boolean", default = true },
  resid_pdrop = { kind = "number", default = 0.1 },
  embd_pdrop = { kind = "number", default = 0.1 },
  attn_pdrop = { kind = "number", default = 0.1 },
  eos_token_id = { optional = true },
}

local function complete(c, aliases)
  local problem = configs.indivisible(c, aliases, "num_attention_heads", "hidden_size")
  if problem then return problem end
  c.intermediate_size = c.intermediate_size or 4 * c.hidden_size
end

local ABOUT = {
  rules = CONFIG, types = { "gpt2" }, architectures = { { "GPT2", "gpt2" } }, head_class = "LMHeadModel",
  complete = complete,
}

-- ---- The model ----------------------------------------------------------------------------------

local GPT2 = nn.Module.class("GPT2", Decoder)

GPT2.points = { "hook_embed", "hook_pos_embed", constant = true }

--- Hugging Face's factor for the weights at the end of residual branches.
local function residual_scale(layers)
  return function(name)
    local is_last = name:find "%.out_proj%.weight$" or name:find "%.down%.weight$"
    return is_last and (2 * layers) ^ -0.5 or 1
  end
end

--- A model with fresh weights. `config` has the fields of config.json.
function GPT2:init(config)
  local c = configs.for_model("GPT2", ABOUT, config)
  self.config = c
  self.token_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
  self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
  self.dropout = nn.Dropout(c.embd_pdrop)
  self.layers = nn.ModuleList()
  for i = 1, c.num_hidden_layers do self.layers:append(Layer(c, i)) end
  self.norm = nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, false)
  if c.tie_word_embeddings then self.lm_head.weight = self.token_embeddings.weight end
  configs.draw(self, c, residual_scale(c.num_hidden_layers))
end

--- The input [b, n, d] of the first layer for ids [b, n], which follow `past` tokens in the cache or have these
--- positions, or [total, d] of packed ids [total] at these positions.
function GPT2:embed(ids, past, positions)
  positions = positions or core.range(past + 1, past + ids.shape[ids.ndim], { dtype = "int64" })
  local at = points_of(self)
  local tokens = at("hook_embed", self.token_embeddings(ids))
  return self.dropout(tokens + at("hook_pos_embed", self.position_embeddings(positions):expand(tokens.shape)))
end

-- ---- Loading ------------------------------------------------------------------------------------

-- heed's names, and those in the file. Matrices in the file are transposed: GPT-2 computes x · weight, heed
-- x · weightᵀ.
local RENAMES = {
  { "^token_embeddings", "wte" },
  { "^position_embeddings", "wpe" },
  { "^norm", "ln_f" },
  { "^layers", "h" },
  { "attention%.out_proj", "attn.c_proj" },
  { "attention_norm", "ln_1" },
  { "(%.%d+)%.norm", "%1.ln_2" },
  { "(%.%d+)%.up", "%1.mlp.c_fc" },
  { "(%.%d+)%.down", "%1.mlp.c_proj" },
}
local renamed = loading.renamer(RENAMES)
local PARTS = { W_query = 1, W_key = 2, W_value = 3 }

local function name_in_file(name)
  local part = PARTS[name:match "%.attention%.(W_%l+)%."]
  if part then name = name:gsub("attention%.W_%l+", "attn.c_attn") end
  name = renamed(name)
  return name, { transposed = name:find "%.c_%l+%.weight$" ~= nil, part = part, parts = part and 3 }
end

--- Older files store the causal mask as buffers.
local function is_ignored(name) return name:find "%.attn%.bias$" ~= nil or name:find "%.attn%.masked_bias$" ~= nil end

ABOUT.prefix, ABOUT.embedding, ABOUT.layers = "transformer.", "wte.weight", "h%.(%d+)%."
ABOUT.names, ABOUT.ignored = name_in_file, is_ignored
GPT2.load = loading.decoder("GPT2", GPT2, ABOUT)
GPT2.save_pretrained = saving.decoder(ABOUT)

return E.with_frames(GPT2, "embed")
