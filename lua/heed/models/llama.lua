--- Llama and Mistral: `require "heed.models.llama".load "TinyLlama"`. Sources: arXiv:2302.13971, arXiv:2310.06825.
--- Shape legend: b batch, n tokens, d hidden_size.

local compat = require "heed.compat"
local nn = require "heed.nn"
local points_of = require("heed.nn.declared_points").at
local E = require "heed.nn.entries"
local Decoder = require "heed.models.decoder"
local configs = require "heed.models.config"
local loading = require "heed.models.loading"
local saving = require "heed.models.saving"

-- ---- The architecture ---------------------------------------------------------------------------

local Layer = nn.Module.class "LlamaLayer"

function Layer:init(c)
  local d, hidden = c.hidden_size, c.intermediate_size
  self.attention_norm = nn.RMSNorm(d, c.rms_norm_eps)
  self.attention = nn.MultiHeadAttention {
    d_in = d, d_out = d, context_length = c.max_position_embeddings, dropout = c.attention_dropout,
    num_heads = c.num_attention_heads, num_kv_heads = c.num_key_value_heads, head_dim = c.head_dim,
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, rope = c.rope,
    window = c.sliding_window and { left = c.sliding_window - 1 },
  }
  self.norm = nn.RMSNorm(d, c.rms_norm_eps)
  self.gate = nn.Linear(d, hidden, c.mlp_bias)
  self.up = nn.Linear(d, hidden, c.mlp_bias)
  self.activation = configs.activations[c.hidden_act]()
  self.down = nn.Linear(hidden, d, c.mlp_bias)
end

Layer.points = {
  "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post",
  "hook_mlp_out", "hook_resid_post", constant = true,
}
Layer.part_names = { attention_norm = "ln1", attention = "attn", norm = "ln2" }
Layer.packs = true -- takes packed sequences
Layer.tp_plan = { gate = "colwise", up = "colwise", down = "rowwise" }

function Layer:forward(x, options)
  local at = points_of(self)
  x = at("hook_resid_pre", x)
  local attended, info = self.attention(self.attention_norm(x), options)
  x = at("hook_resid_mid", x + at("hook_attn_out", attended))
  local h = self.norm(x)
  local gate = at("mlp.hook_pre", self.gate(h))
  h = at("mlp.hook_post", self.activation(gate) * at("mlp.hook_pre_linear", self.up(h)))
  x = x + at("hook_mlp_out", self.down(h))
  return at("hook_resid_post", x), info
end

local TYPES = { "llama", "mistral" }

-- ---- Positions ----------------------------------------------------------------------------------

-- The settings in rope_scaling, or in rope_parameters of newer files, which also contains rope_theta.
local ROPE = {
  rope_type = { kind = { "default", "linear", "dynamic", "yarn", "llama3" }, also = { "type" }, default = "default" },
  rope_theta = { kind = "positive", optional = true },
  partial_rotary_factor = { kind = { 1 }, default = 1 },
  factor = { kind = "positive", optional = true },
  original_max_position_embeddings = { kind = "size", optional = true },
  beta_fast = { kind = "positive", optional = true },
  beta_slow = { kind = "positive", optional = true },
  attention_factor = { kind = "positive", optional = true },
  mscale = { kind = "number", optional = true },
  mscale_all_dim = { kind = "number", optional = true },
  truncate = { kind = { true }, default = true },
  low_freq_factor = { kind = "positive", optional = true },
  high_freq_factor = { kind = "positive", optional = true },
}
local NEEDED = {
  linear = { "factor" }, dynamic = { "factor" }, yarn = { "factor" },
  llama3 = { "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings" },
}

--- YaRN's attention factor, arXiv:2309.00071; DeepSeek's files give it as two scales.
local function attention_factor(r)
  if r.attention_factor or not (r.mscale and r.mscale_all_dim) or r.mscale == 0 or r.mscale_all_dim == 0 then
    return r.attention_factor
  end
  local function magnitude(scale) return r.factor > 1 and 0.1 * scale * math.log(r.factor) + 1 or 1 end
  return magnitude(r.mscale) / magnitude(r.mscale_all_dim)
end

--- The factor of "dynamic" scaling for a text of max_position_embeddings tokens, used for all lengths. If the original
--- length is unknown it is 1, as in Hugging Face for texts within max_position_embeddings.
local function dynamic_factor(r, c)
  local original = r.original_max_position_embeddings or c.max_position_embeddings
  return math.max(r.factor * c.max_position_embeddings / original - (r.factor - 1), 1)
end

--- Sets further.rope. Returns nil, or the problem.
local function add_rope(c, aliases, further)
  local part = c.rope_parameters and aliases.rope_parameters or aliases.rope_scaling
  local r, problem = configs.read_all(c.rope_parameters or c.rope_scaling or {}, ROPE, part .. ".")
  if not r then return problem end
  for _, name in ipairs(NEEDED[r.rope_type] or {}) do
    if not r[name] then return ("%s.%s is missing; rope_type %s needs it"):format(part, name, r.rope_type) end
  end
  local rope = { base = r.rope_theta or c.rope_theta }
  further.rope = rope
  if r.rope_type == "linear" then
    rope.scaling = { type = "linear", factor = r.factor }
  elseif r.rope_type == "dynamic" then
    rope.scaling = { type = "ntk", factor = dynamic_factor(r, c) }
  elseif r.rope_type == "yarn" then
    rope.scaling = {
      type = "yarn", factor = r.factor, beta_fast = r.beta_fast, beta_slow = r.beta_slow,
      original_context_length = r.original_max_position_embeddings or c.max_position_embeddings,
      attention_factor = attention_factor(r),
    }
  elseif r.rope_type == "llama3" then
    rope.scaling = {
      type = "llama3", factor = r.factor, original_context_length = r.original_max_position_embeddings,
      low_freq_factor = r.low_freq_factor, high_freq_factor = r.high_freq_factor,
    }
  end
end

-- ---- Settings -----------------------------------------------------------------------------------

-- The settings in config.json, with Hugging Face's names and defaults.
local CONFIG = {
  model_type = { kind = TYPES, default = "llama" },
  vocab_size = { kind = "size" },
  hidden_size = { kind = "size" },
  intermediate_size = { kind = "size" },
  num_hidden_layers = { kind = "size" },
  num_attention_heads = { kind = "size" },
  num_key_value_heads = { kind = "size", optional = true }, -- by default num_attention_heads
  head_dim = { kind = "size", optional = true },
  max_position_embeddings = { kind = "size", optional = true },
  rms_norm_eps = { kind = "positive", default = 1e-6 },
  hidden_act = { kind = configs.activation_names, default = "silu" },
  attention_bias = { kind = "boolean", default = false },
  mlp_bias = { kind = "boolean", default = false },
  attention_dropout = { kind = "number", default = 0 },
  tie_word_embeddings = { kind = "boolean", optional = true }, -- load: by default true if the file has no lm_head
  sliding_window = { kind = "size", optional = true }, -- none by default
  rope_theta = { kind = "positive", default = 10000 },
  partial_rotary_factor = { kind = { 1 }, default = 1 },
  rope_scaling = { kind = "table", optional = true },
  rope_parameters = { kind = "table", optional = true },
  eos_token_id = { optional = true },
}

-- Settings that one of the model types has and the other has not.
local OF_TYPE = { sliding_window = "mistral", attention_bias = "llama", mlp_bias = "llama" }

local function complete(c, aliases, further)
  for name, of in pairs(OF_TYPE) do
    if c[name] and c.model_type ~= of then
      return ("%s is %s and model_type is '%s'; with this setting it must be '%s'"):format(name, tostring(c[name]),
        c.model_type, of)
    end
  end
  c.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
  c.max_position_embeddings = c.max_position_embeddings or c.model_type == "mistral" and 131072 or 2048
  local problem = not c.head_dim and configs.indivisible(c, aliases, "num_attention_heads", "hidden_size")
    or configs.indivisible(c, aliases, "num_key_value_heads", "num_attention_heads")
  if problem then return problem end
  c.head_dim = c.head_dim or compat.divide(c.hidden_size, c.num_attention_heads)
  return add_rope(c, aliases, further), {
    [aliases.num_attention_heads .. " · head_dim"] = c.num_attention_heads * c.head_dim,
    [aliases.num_key_value_heads .. " · head_dim"] = c.num_key_value_heads * c.head_dim,
  }
end

local ABOUT = {
  rules = CONFIG, types = TYPES, complete = complete,
  architectures = { { "Llama", "llama" }, { "LLaMA", "llama" }, { "Mistral", "mistral" } },
}

-- ---- The model ----------------------------------------------------------------------------------

local Llama = nn.Module.class("Llama", Decoder)

Llama.points = { "hook_embed", constant = true }

--- A model with fresh weights. `config` has the fields of config.json.
function Llama:init(config)
  local c = configs.for_model("Llama", ABOUT, config)
  self.config = c
  self.token_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
  self.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layers:append(Layer(c)) end
  self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, false)
  if c.tie_word_embeddings then self.lm_head.weight = self.token_embeddings.weight end
  configs.draw(self, c)
end

--- The input [b, n, d] of the first layer for ids [b, n]. Positions are added by the rotary embedding in attention.
function Llama:embed(ids) return points_of(self)("hook_embed", (self.token_embeddings(ids))) end

-- ---- Loading ------------------------------------------------------------------------------------

-- heed's names, and those in the file.
local RENAMES = {
  { "^token_embeddings", "embed_tokens" },
  { "attention%.W_query", "self_attn.q_proj" },
  { "attention%.W_key", "self_attn.k_proj" },
  { "attention%.W_value", "self_attn.v_proj" },
  { "attention%.out_proj", "self_attn.o_proj" },
  { "attention_norm", "input_layernorm" },
  { "(%.%d+)%.norm", "%1.post_attention_layernorm" },
  { "(%.%d+)%.(%l+)%.(%l+)$", "%1.mlp.%2_proj.%3" }, -- gate, up, down
}

--- Older files store the rotary frequencies as buffers.
local function is_ignored(name) return name:find "%.rotary_emb%.inv_freq$" ~= nil end

ABOUT.prefix, ABOUT.embedding, ABOUT.layers = "model.", "embed_tokens.weight", "layers%.(%d+)%."
ABOUT.names, ABOUT.ignored = loading.renamer(RENAMES), is_ignored
Llama.load = loading.decoder("Llama", Llama, ABOUT)
Llama.save_pretrained = saving.decoder(ABOUT)

return E.with_frames(Llama, "embed")
