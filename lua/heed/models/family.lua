--- The decoders that are built as Llama is: root mean square norms, rotary positions, grouped heads, gated feed-forward
--- layers. Each model is a class made by `family` from its settings, and from what its layers have. Shape legend:
--- b batch, n tokens, d hidden_size.

local compat = require "heed.compat"
local nn = require "heed.nn"
local call = require("heed.nn.slices").call
local points_of = require("heed.nn.declared_points").at
local E = require "heed.nn.entries"
local Decoder = require "heed.models.decoder"
local Experts = require("heed.models.experts").Experts
local configs = require "heed.models.config"
local loading = require "heed.models.loading"
local read_rope = require("heed.models.rope").read
local saving = require "heed.models.saving"

-- ---- A layer ------------------------------------------------------------------------------------

local LAYER_POINTS = {
  "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post",
  "hook_mlp_out", "hook_resid_post", constant = true,
}

--- The class of a model's layers. Layer(c, has): c are the settings of the model; `has` is what this layer has:
---   rope           the options of rope; nil: no positions
---   window         the number of tokens that a token sees, itself included; nil: all
---   scale, softcap, qk_norm, qkv_bias, out_bias   of MultiHeadAttention
---   mlp_bias       biases in the feed-forward layer
---   experts        instead of that layer, the arguments of heed.models.experts after d
---   post_norms     norms of what attention and the feed-forward layer add to the stream
local function layer_class(name)
  local Layer = nn.Module.class(name .. "Layer")

  function Layer:init(c, has)
    local d, hidden = c.hidden_size, c.intermediate_size
    local function norm() return nn.RMSNorm(d, c.rms_norm_eps) end
    self.attention_norm = norm()
    self.attention = nn.MultiHeadAttention {
      d_in = d, d_out = d, context_length = c.max_position_embeddings, dropout = c.attention_dropout,
      num_heads = c.num_attention_heads, num_kv_heads = c.num_key_value_heads, head_dim = c.head_dim,
      qkv_bias = has.qkv_bias, out_bias = has.out_bias or false, rope = has.rope, scale = has.scale,
      softcap = has.softcap, qk_norm = has.qk_norm and { eps = c.rms_norm_eps },
      window = has.window and { left = has.window - 1 },
    }
    if has.post_norms then self.attention_post_norm = norm() end
    self.norm = norm()
    if has.experts then
      self.experts = Experts(d, compat.unpack(has.experts))
    else
      self.gate = nn.Linear(d, hidden, has.mlp_bias or false)
      self.up = nn.Linear(d, hidden, has.mlp_bias or false)
      self.activation = configs.activations[c.hidden_act]()
      self.down = nn.Linear(hidden, d, has.mlp_bias or false)
    end
    if has.post_norms then self.post_norm = norm() end
  end

  Layer.points = LAYER_POINTS
  Layer.part_names = { attention_norm = "ln1", attention = "attn", norm = "ln2", attention_post_norm = "ln1_post",
    post_norm = "ln2_post" }
  Layer.packs = true -- takes packed sequences
  Layer.tp_plan = { gate = "colwise", up = "colwise", down = "rowwise" }

  --- The result of the gated feed-forward layer for h [b, n, d].
  local function gated(self, h, at)
    local gate = at("mlp.hook_pre", (call(self.gate, h)))
    h = at("mlp.hook_post", self.activation(gate) * at("mlp.hook_pre_linear", (call(self.up, h))))
    return (call(self.down, h))
  end

  function Layer:forward(x, options)
    local at = points_of(self)
    x = at("hook_resid_pre", x)
    local added, info = call(self.attention, (self.attention_norm(x)), options)
    if self.attention_post_norm then added = self.attention_post_norm(added) end
    x = at("hook_resid_mid", x + at("hook_attn_out", added))
    local h = self.norm(x)
    h = self.experts and self.experts(h) or gated(self, h, at)
    if self.post_norm then h = self.post_norm(h) end
    x = x + at("hook_mlp_out", h)
    return at("hook_resid_post", x), info
  end

  return Layer
end

-- ---- Settings -----------------------------------------------------------------------------------

-- The settings that all models of the family have, with Hugging Face's names.
local SHARED = {
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
  attention_dropout = { kind = "number", default = 0 },
  tie_word_embeddings = { kind = "boolean", optional = true }, -- load: by default true if the file has no lm_head
  rope_theta = { kind = "positive", default = 10000 },
  partial_rotary_factor = { kind = { 1 }, default = 1 },
  rope_scaling = { kind = "table", optional = true },
  rope_parameters = { kind = "table", optional = true },
  -- heed's own: neighbouring elements of a head are rotated, as in GGUF files of some models, not its halves
  rope_interleaved = { kind = "boolean", default = false, own = true },
  eos_token_id = { optional = true },
}

--- Sets further.rope, which all layers share; with longrope also short_rope and long_rope.
local function add_rope(c, aliases, further, partial)
  local of = c.rope_parameters and aliases.rope_parameters or aliases.rope_scaling
  local problem, each
  further.rope, problem, each = read_rope(c.rope_parameters or c.rope_scaling, of, c, c.rope_theta, partial)
  if each then further.short_rope, further.long_rope = each.short, each.long end
  return problem
end

local KINDS = { "full_attention", "sliding_attention" }

--- The problem with layer_types, or nil. Without them, kind(i) gives the type of layer i, and c.layer_types is set.
local function complete_types(c, kind)
  if c.layer_types == nil then
    local types = {}
    for i = 1, c.num_hidden_layers do types[i] = kind(i) and KINDS[2] or KINDS[1] end
    c.layer_types = types
    return nil
  end
  local count = #c.layer_types
  if count ~= c.num_hidden_layers then
    return ("layer_types has %s; it must have %d, one for each layer"):format(E.count(count, "element"),
      c.num_hidden_layers)
  end
  for i, each in ipairs(c.layer_types) do
    if each ~= KINDS[1] and each ~= KINDS[2] then
      return ("layer_types: layer %d is %s; it must be one of %s"):format(i, E.what(each), table.concat(KINDS, ", "))
    end
    if each == KINDS[2] and not c.sliding_window then
      return ("layer_types: layer %d is sliding_attention and sliding_window is missing; give it"):format(i)
    end
  end
end

--- The settings common to the family, completed.
local function completer(about)
  return function(c, aliases, further, kind)
    local problem = about.adjust and about.adjust(c, aliases, further, kind)
    if problem then return problem end
    c.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
    c.max_position_embeddings = c.max_position_embeddings or 2048
    problem = not c.head_dim and configs.indivisible(c, aliases, "num_attention_heads", "hidden_size")
      or configs.indivisible(c, aliases, "num_key_value_heads", "num_attention_heads")
    if problem then return problem end
    c.head_dim = c.head_dim or compat.divide(c.hidden_size, c.num_attention_heads)
    if about.slides then problem = complete_types(c, function(i) return about.slides(c, i) end) end
    return problem or (about.add_rope or add_rope)(c, aliases, further, about.partial_rotary)
  end
end

-- ---- Names in the file --------------------------------------------------------------------------

-- heed's names, and those in the file.
local RENAMES = {
  { "^token_embeddings", "embed_tokens" },
  { "attention%.W_query", "self_attn.q_proj" },
  { "attention%.W_key", "self_attn.k_proj" },
  { "attention%.W_value", "self_attn.v_proj" },
  { "attention%.out_proj", "self_attn.o_proj" },
  { "attention%.([qk]_norm)", "self_attn.%1" },
  { "attention_norm", "input_layernorm" },
  { "(%.%d+)%.norm", "%1.post_attention_layernorm" },
  { "(%.%d+)%.(%l+)%.(%l+)$", "%1.mlp.%2_proj.%3" }, -- gate, up, down
}

--- Older files store the rotary frequencies as buffers.
local function is_ignored(name) return name:find "%.rotary_emb%.inv_freq$" ~= nil end

--- A function name_in_file for a model. It also says which rows save_pretrained reorders, since other libraries rotate
--- halves.
local function names_of(about)
  local own, renamed = loading.renamer(about.renames or {}), loading.renamer(RENAMES)
  return function(name, c)
    local file_name = renamed(own(name))
    local part = c.rope_interleaved and name:match "%.W_(%l+)%.[^.]*$"
    local heads = part == "query" and c.num_attention_heads or part == "key" and c.num_key_value_heads
    if heads then return file_name, { heads = heads } end
    return file_name, about.form and about.form(name, file_name, c)
  end
end

-- ---- A model ------------------------------------------------------------------------------------

--- The class of a model. `about` describes it; besides the fields of loading.decoder it may have
---   settings        rules for more settings, or other rules for the shared ones
---   adjust          adjust(c, aliases, further, kind) completes them first; returns a problem, or nil
---   slides          slides(c, i): whether layer i has the window if the config has no layer_types
---   add_rope        add_rope(c, aliases, further) reads the settings of rope; returns a problem, or nil
---   partial_rotary  whether partial_rotary_factor may be below 1
---   layer           layer(c, i): what layer i has, a table
---   embedding_scale embedding_scale(c): a factor of the embeddings
---   renames         {pattern, replacement} for names that differ from Llama's in the file
---   form            form(name, file_name, c): as what name_in_file in loading.fill returns second
return function(name, about)
  about.rules = { model_type = { kind = about.types, default = about.types[1] } }
  for _, rules in ipairs { SHARED, about.settings or {} } do
    for each, rule in pairs(rules) do about.rules[each] = rule end
  end
  if about.slides then about.rules.num_hidden_layers = { kind = "layers" } end -- their types are listed
  about.complete = completer(about)

  local Layer, Model = layer_class(name), nn.Module.class(name, Decoder)
  Model.points = { "hook_embed", constant = true }

  --- A model with fresh weights. `config` has the fields of config.json.
  function Model:init(config)
    local c = configs.for_model(name, about, config)
    self.config = c
    self.token_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
    self.layers = nn.ModuleList()
    for i = 1, c.num_hidden_layers do self.layers:append(Layer(c, about.layer(c, i))) end
    self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
    self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, false)
    if c.tie_word_embeddings then self.lm_head.weight = self.token_embeddings.weight end
    configs.draw(self, c)
  end

  --- The input [b, n, d] of the first layer for ids [b, n]. Positions are added by the rotary embedding in attention.
  function Model:embed(ids)
    local x = self.token_embeddings(ids)
    if about.embedding_scale then x = x * about.embedding_scale(self.config) end
    return points_of(self)("hook_embed", x)
  end

  about.prefix, about.embedding, about.layers = "model.", "embed_tokens.weight", "layers%.(%d+)%."
  about.names = names_of(about)
  about.ignored = is_ignored
  Model.load = loading.decoder(name, Model, about)
  Model.save_pretrained = saving.decoder(about)
  return E.with_frames(Model, "embed"), about
end
