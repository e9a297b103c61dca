--- The encoders that are built as BERT is: learned positions, attention to all tokens, norms behind the residual sums.
--- Each model is a class made by `encoder` from its settings and the names in its files. Shape legend: b batch,
--- n tokens, d hidden_size, total all tokens of packed texts.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local call = require("heed.nn.slices").call
local points_of = require("heed.nn.declared_points").at
local E = require "heed.nn.entries"
local classifier = require "heed.models.classifier"
local configs = require "heed.models.config"
local load_encoder = require "heed.models.load_encoder"
local loading = require "heed.models.loading"
local packing = require "heed.models.packing"
local sentences = require "heed.models.sentences"
local options_of, fail = core.modules.options, E.fail

-- ---- A layer ------------------------------------------------------------------------------------

local LAYER_POINTS = {
  "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out",
  "hook_resid_post", "hook_normalized_resid_post", constant = true,
}

local function layer_class(name)
  local Layer = nn.Module.class(name .. "Layer")

  function Layer:init(c)
    self.attention = nn.MultiHeadAttention {
      d_in = c.hidden_size, d_out = c.hidden_size, context_length = c.max_position_embeddings,
      dropout = c.attention_probs_dropout_prob, num_heads = c.num_attention_heads, qkv_bias = true, causal = false,
    }
    self.attention_norm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
    self.up = nn.Linear(c.hidden_size, c.intermediate_size)
    self.activation = configs.activations[c.hidden_act]()
    self.down = nn.Linear(c.intermediate_size, c.hidden_size)
    self.norm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
    self.dropout = nn.Dropout(c.hidden_dropout_prob)
  end

  Layer.points = LAYER_POINTS
  Layer.part_names = { attention = "attn", attention_norm = "ln1", norm = "ln2" }
  Layer.packs = true -- takes packed sequences
  Layer.tp_plan = { up = "colwise", down = "rowwise" }

  function Layer:forward(x, options)
    local at = points_of(self)
    x = at("hook_resid_pre", x)
    local attended, info = call(self.attention, x, options)
    x = at("hook_resid_mid", x + at("hook_attn_out", self.dropout(attended)))
    x = self.attention_norm(x)
    local h = at("mlp.hook_pre", (call(self.up, x)))
    h = at("mlp.hook_post", self.activation(h))
    x = x + at("hook_mlp_out", self.dropout((call(self.down, h))))
    return at("hook_normalized_resid_post", (self.norm(at("hook_resid_post", x)))), info
  end

  return Layer
end

-- ---- Settings -----------------------------------------------------------------------------------

-- The settings that all models have, with Hugging Face's names and defaults.
local SHARED = {
  vocab_size = { kind = "size" },
  hidden_size = { kind = "size" },
  num_hidden_layers = { kind = "size" },
  num_attention_heads = { kind = "size" },
  intermediate_size = { kind = "size" },
  max_position_embeddings = { kind = "size", default = 512 },
  hidden_act = { kind = configs.activation_names, default = "gelu" },
  hidden_dropout_prob = { kind = "number", default = 0.1 },
  attention_probs_dropout_prob = { kind = "number", default = 0.1 },
  is_decoder = { kind = { false }, default = false },
  pad_token_id = { optional = true },
}

local function completer(about)
  return function(c, aliases, further, kind)
    further.max_tokens = c.max_position_embeddings
    local problem = about.adjust and about.adjust(c, aliases, further, kind)
    problem = problem or configs.indivisible(c, aliases, "num_attention_heads", "hidden_size")
      or classifier.complete(c, aliases, further)
    further.add_pooling_layer = about.pooler or further.has_classifier
    return problem
  end
end

-- ---- The model ----------------------------------------------------------------------------------

local FORWARD_OPTIONS = { "attention_mask", "token_type_ids", "kv_lengths", "need_weights", "lengths" }

local function ones(n) return core.ones(n, { dtype = "int64" }) end

--- The methods that all classes share; `about` is that of `encoder`.
local function add_methods(name, Model, about)
  --- The input [..., n, d] of the first layer for ids [..., n] at positions [n] or [..., n], with these types.
  function Model:embed(ids, types, positions)
    local at = points_of(self)
    local x = at("embed.hook_embed", (self.word_embeddings(ids)))
    local shape = x.shape
    if self.token_type_embeddings then
      x = x + at("embed.hook_token_type_embed", self.token_type_embeddings(types):expand(shape))
    end
    x = x + at("embed.hook_pos_embed", self.position_embeddings(positions):expand(shape))
    return at("hook_full_embed", (self.dropout(self.embedding_norm(x))))
  end

  --- The hidden states [..., n, d] of ids [..., n], and the intermediate results of the layers.
  local function hidden_of(self, ids, types, positions, options)
    if about.positions then positions = about.positions(self.config, ids, positions, options.lengths) end
    local x, found = self:embed(ids, types, positions), {}
    for i, layer in compat.ipairs(self.layers) do
      x, found[i] = layer(x, options)
    end
    return x, found
  end

  --- Hidden states [b, n, d] of ids [b, n], or [n, d] of ids [n]. attention_mask [b, n] is 0 or false for padding;
  --- kv_lengths [b] are the lengths without padding at the end. token_type_ids count from 1 and default to 1.
  --- Padding at the end costs nothing, and has hidden states of 0; other padding has unspecified ones.
  --- lengths [b]: ids [total] are the ids of b texts, one after another, and so are the hidden states [total, d].
  --- need_weights adds a second result, where info.layers[i] holds the intermediate results of attention in layer i.
  function Model:forward(ids, ...)
    local mask, types, kv_lengths, wanted, lengths = options_of(name, FORWARD_OPTIONS, 3, self, ids, ...)
    ids = loading.ids(name, ids)
    local n, most = ids.shape[ids.ndim], self.config.max_tokens
    local bound = most == self.config.max_position_embeddings and self.config.names.max_position_embeddings
      or "max_position_embeddings without those before the first token's"
    if lengths == nil and n > most and not packing.is_divided() then
      fail("%s: ids have %s; they must have at most %d, %s", name, E.count(n, "token"), most, bound)
    end
    if mask ~= nil and E.kind(mask) ~= "tensor" then
      E.reject(name, "attention_mask", mask, "a tensor that is 0 or false for padding")
    end
    if types ~= nil and not self.token_type_embeddings then
      fail("%s: token_type_ids are given; the model has no token types", name)
    end
    types = types and loading.ids(name, types)

    local x, found
    if lengths ~= nil then
      if mask or kv_lengths then
        fail("%s: lengths and %s are both given; packed texts have no padding", name,
          mask and "attention_mask" or "kv_lengths")
      end
      lengths = packing.check(name, lengths, ids, most, bound)
      x, found = hidden_of(self, ids, types or ones(n), packing.positions(lengths),
        { lengths = lengths, need_weights = wanted })
    else
      local packed = not wanted and packing.lengths(self, ids, mask, kv_lengths)
      if packed then
        types = types and types:expand(ids.shape):pack(packed) or ones(1)
        x = hidden_of(self, ids:pack(packed), types, packing.positions(packed), { lengths = packed })
        return x:unpack(packed, n)
      end
      local options = { kv_lengths = kv_lengths, need_weights = wanted, key_padding_mask = mask and mask:eq(0) }
      local positions = packing.positions_of_shard(name, n, nil, most, bound)
        or core.range(1, n, { dtype = "int64" })
      x, found = hidden_of(self, ids, types or ones(n), positions, options)
    end
    if wanted then return x, { layers = found } end
    return x
  end

  --- The pooled output: the activation of the pooler on the first token. hidden [b, n, d] gives [b, d], [n, d] gives
  --- [d].
  function Model:pooled(hidden)
    E.check_self(self, "pooled")
    if not self.pooler then fail "pooled: the model has no pooler" end
    return classifier.pooled(self, classifier.first("pooled", hidden))
  end

  --- Logits [b, labels] of hidden states [b, n, d], or [labels] of [n, d].
  function Model:logits(hidden)
    E.check_self(self, "logits")
    return classifier.logits(self, "logits", classifier.first("logits", hidden))
  end

  Model.score, Model.classify = classifier.score, classifier.classify
  Model.encode, Model.encode_steps = sentences.encode, sentences.encode_steps
end

--- The class of a model.
---   types, architectures   as in configs.settings
---   settings        rules besides the shared ones; one that is false removes a shared rule
---   adjust          adjust(c, aliases, further, kind) checks and completes the settings; returns a problem, or nil
---   positions       positions(c, ids, positions, lengths): the rows of the position embeddings, instead of `positions`
---   pooler          whether the model without a head has a pooler
---   pooled          the activation of the pooler: "tanh" or "relu"
---   drops_first     whether the head drops elements of its input, too
---   between         the number of separators between two texts
---   files           what load_encoder needs: prefix, renames, layers, head, foreign
return function(name, about)
  about.rules = { model_type = { kind = about.types, default = about.types[1] } }
  for _, rules in ipairs { SHARED, classifier.settings, about.settings } do
    for each, rule in pairs(rules) do about.rules[each] = rule or nil end
  end
  about.complete = completer(about)

  local Layer, Model = layer_class(name), nn.Module.class(name)
  Model.points = { "embed.hook_embed", "embed.hook_pos_embed", "hook_full_embed", constant = true }
  if about.rules.type_vocab_size then table.insert(Model.points, 3, "embed.hook_token_type_embed") end
  Model.part_names = { embedding_norm = "embed.ln", layers = "blocks" }
  Model.between, Model.pooled_by, Model.drops_first = about.between or 1, about.pooled or "tanh", about.drops_first

  --- A model with fresh weights. `config` has the fields of config.json.
  function Model:init(config)
    local c = configs.for_model(name, about, config)
    self.config = c
    self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
    self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
    if c.type_vocab_size then self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size) end
    self.embedding_norm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
    self.dropout = nn.Dropout(c.hidden_dropout_prob)
    self.layers = nn.ModuleList()
    for _ = 1, c.num_hidden_layers do self.layers:append(Layer(c)) end
    if c.add_pooling_layer then self.pooler = nn.Linear(c.hidden_size, c.hidden_size) end
    if c.has_classifier then
      self.classifier_dropout = nn.Dropout(c.classifier_dropout or c.hidden_dropout_prob)
      self.classifier = nn.Linear(c.hidden_size, c.num_labels)
    end
    configs.draw(self, c)
  end

  add_methods(name, Model, about)
  Model.load = load_encoder.loader(name, Model, about)
  return E.with_frames(Model, "embed", "forward", "pooled", "logits", "score", "classify", "encode", "encode_steps")
end
