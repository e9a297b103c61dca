--- The settings of models: reading a config, such as the contents of a config.json, by rules. Keys that no rule knows
--- are refused, since they might change the result; those that change none are listed in IGNORED.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local E = require "heed.nn.entries"
local suggest = require "heed.suggest"
local primitives = core.modules

local configs = {}

-- ---- Activations --------------------------------------------------------------------------------

local function tanh_gelu() return nn.GELU("tanh") end

--- The activations of feed-forward layers, by Hugging Face's names.
configs.activations = {
  gelu = function() return nn.GELU() end,
  gelu_fast = tanh_gelu,
  gelu_new = tanh_gelu,
  gelu_pytorch_tanh = tanh_gelu,
  relu = nn.ReLU,
  silu = nn.SiLU,
  swish = nn.SiLU,
}

configs.activation_names = {}
for name in pairs(configs.activations) do table.insert(configs.activation_names, name) end
table.sort(configs.activation_names)

--- The last part of a class's name in a file: "torch.nn.modules.linear.Identity" is "Identity".
function configs.class_name(name) return name:match "^.*%.(.*)$" or name end

-- ---- Names in messages --------------------------------------------------------------------------

local shown = setmetatable({}, { __mode = "k" }) -- the names by config

--- Sets the names that messages use for fields of a config, which was made of something else than a config.json. Other
--- fields keep their own.
function configs.show(config, names) shown[config] = names end

-- ---- Values -------------------------------------------------------------------------------------

--- What is wrong with a value for each kind of rule; nil if nothing is.
local KINDS
KINDS = {
  size = function(value)
    local whole = type(value) == "number" and value % 1 == 0 and value >= 1 and value < 2 ^ 53
    return not whole and "an integer of at least 1"
  end,
  layers = function(value) -- lists of settings have as many elements, before the weights are counted
    local problem = KINDS.size(value)
    return problem or value > 10000 and "an integer of at most 10000"
  end,
  index = function(value) -- counted from 0
    local whole = type(value) == "number" and value % 1 == 0 and value >= 0 and value < 2 ^ 53
    return not whole and "an integer of at least 0"
  end,
  positive = function(value)
    return not (type(value) == "number" and value > 0 and value < math.huge) and "a positive number"
  end,
  empty = function(value) return not (type(value) == "table" and next(value) == nil) and "empty" end,
}

--- The problem with a value of a config, or nil. A rule has `kind`: "size" or "layers" (from 1), "index" (of at
--- least 0), "positive", "number", "boolean", "table", "empty" (a table), a list of the allowed values, or nil for
--- anything; and `default`. A value without a default is required unless the rule is `optional`.
local function wrong(value, rule)
  if value == nil then return rule.default == nil and not rule.optional and "is missing" or nil end
  if rule.kind == nil then return nil end
  if type(rule.kind) == "table" then
    local known = {}
    for i, each in ipairs(rule.kind) do
      if each == value then return nil end
      known[i] = tostring(each)
    end
    return ("is %s; it must be %s%s"):format(E.what(value), known[2] and "one of " or "", table.concat(known, ", "))
  end
  local needed
  if KINDS[rule.kind] then
    needed = KINDS[rule.kind](value)
  elseif type(value) ~= rule.kind then
    needed = "a " .. rule.kind
  end
  return needed and ("is %s; it must be %s"):format(E.what(value), needed) or nil
end

--- The value of a rule in a config, the name that the config uses for it, and the problem if two of its names have
--- different values. A missing value has the first name that files use.
local function find(config, name, rule)
  local names = { compat.unpack(rule.also or {}) }
  names[#names + 1] = name
  local alias, value
  for _, each in ipairs(names) do
    local other = config[each]
    if other ~= nil and value == nil then
      alias, value = each, other
    elseif other ~= nil and other ~= value and each ~= rule.old then
      local form = "%s is %s and %s is %s; they must be equal"
      return value, alias, form:format(alias, E.what(value), each, E.what(other))
    end
  end
  return value, alias or names[1]
end

--- Reads a config by rules, a table by name. A rule's `also` lists other names, that in files first; the one in `old`
--- counts only if the others are missing. Returns the values by name, and for each name the one for messages, which is
--- that in the config, or as configs.show said. `of` is a prefix for names in messages. Returns nil and a problem if
--- values break their rules.
function configs.read(config, rules, of)
  local values, aliases, problems, names = {}, {}, {}, shown[config] or {}
  for name, rule in pairs(rules) do
    local value, alias, problem = find(config, name, rule)
    local prefix = names[alias] and "" or of or ""
    alias = names[alias] or alias
    problem = problem or wrong(value, rule) and ("%s %s"):format(alias, wrong(value, rule))
    if problem then problems[#problems + 1] = prefix .. problem end
    if value == nil then value = rule.default end
    local whole = rule.kind == "size" or rule.kind == "layers"
    if value and whole and not problem then value = math.floor(value) end -- 8.0 is 8
    values[name], aliases[name] = value, alias
  end
  if #problems == 0 then return values, aliases end
  table.sort(problems)
  return nil, table.concat(problems, "; ")
end

--- The problem if c[divisor] does not divide c[number], else nil. aliases[name] is the name in the config.
function configs.indivisible(c, aliases, divisor, number)
  if c[number] % c[divisor] == 0 then return nil end
  return ("%s is %d; it must divide %s (%d)"):format(aliases[divisor], c[divisor], aliases[number], c[number])
end

-- ---- Keys ---------------------------------------------------------------------------------------

local function set_of(text)
  local set = {}
  for word in text:gmatch "%S+" do set[word] = true end
  return set
end

-- The keys of a config.json that change no forward pass: about files, tokenizers, heads, generating and training, and
-- switches between equal computations. `architectures` is read if model_type is missing.
local IGNORED = set_of [[
  _attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled _from_model_config
  _name_or_path _num_labels _remove_final_layer_norm architectures attn_implementation auto_map bad_words_ids
  begin_suppress_tokens bos_token_id chunk_size_feed_forward classifier_dropout cross_attention_hidden_size
  decoder_start_token_id directionality diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size
  eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
  gradient_checkpointing id2label is_decoder label2id length_penalty max_length min_length model_max_length name
  no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences output_attentions
  output_hidden_states output_past output_scores pad_token_id pooler_fc_size pooler_num_attention_heads
  pooler_num_fc_layers pooler_size_per_head pooler_type predict_special_tokens prefix pretraining_tp problem_type
  remove_invalid_values reorder_and_upcast_attn repetition_penalty return_dict return_dict_in_generate sep_token_id
  summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens
  task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p
  torch_dtype torchscript transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version
  use_bfloat16 use_cache
]]

-- Keys of every model whose values must be those that change nothing.
local COMMON = {
  add_cross_attention = { kind = { false }, default = false },
  is_encoder_decoder = { kind = { false }, default = false },
  pruned_heads = { kind = "empty", optional = true },
  quantization_config = { kind = "empty", optional = true },
}

local INITIALIZER_RANGE = { kind = "number", default = 0.02 }

-- The names of other libraries and books for a setting, by the canonical name.
local FOREIGN = {
  attn_pdrop = "drop_rate_attn",
  hidden_act = "activation hidden_activation act_fn",
  hidden_size = "d_model emb_dim embed_dim dim n_embed embedding_dim hidden_dim",
  intermediate_size = "d_hidden d_ff ffn_dim d_mlp hidden_dim_ff mlp_dim",
  layer_norm_epsilon = "norm_eps layer_norm_eps eps",
  layer_norm_eps = "norm_eps layer_norm_epsilon eps",
  max_position_embeddings = "context_length block_size max_seq_len seq_len ctx_len n_ctx max_sequence_length",
  num_attention_heads = "heads n_heads num_heads n_head nhead",
  num_hidden_layers = "layers n_layers num_layers depth n_layer n_blocks",
  num_key_value_heads = "kv_heads n_kv_heads num_kv_heads n_kv_groups num_kv_groups",
  resid_pdrop = "dropout drop_rate",
  rms_norm_eps = "norm_eps layer_norm_eps layer_norm_epsilon eps",
  rope_theta = "rope rope_base rope_freq rotary_base base theta",
  sliding_window = "window",
  tie_word_embeddings = "tie_weights weight_tying",
}

--- The name that a file of the model uses for a rule.
local function file_name(name, rule) return rule.also and rule.also[1] or name end

--- The names that a key may mean.
local function meant(key, rules)
  for name, others in pairs(FOREIGN) do
    if rules[name] and set_of(others)[key] then return { file_name(name, rules[name]) } end
  end
  local names = {}
  for name, rule in pairs(rules) do
    for _, each in ipairs { name, compat.unpack(rule.also or {}) } do names[each] = true end
  end
  return suggest.nearest(key, names)
end

--- The problem with the keys of a config that no rule knows, or nil. `of` is a prefix for names in messages.
local function unknown_keys(config, rules, of)
  local known, names, unknown = {}, {}, {}
  for name, rule in pairs(rules) do
    for _, each in ipairs { name, compat.unpack(rule.also or {}) } do
      if not known[each] and rule ~= COMMON[name] then names[#names + 1] = each end
      known[each] = true
    end
  end
  for key in compat.pairs(config) do
    E.check_cancel "config"
    if type(key) ~= "string" then
      unknown[#unknown + 1] = ("there is %s"):format(E.what(key))
    elseif not known[key] and not IGNORED[key] then
      local question = suggest.question(meant(key, rules))
      question = question and ", " .. question or ""
      unknown[#unknown + 1] = ("there is no setting '%s%s'%s"):format(of or "", key, question)
    end
  end
  if #unknown == 0 then return nil end
  table.sort(unknown)
  table.sort(names)
  return ("%s; the settings are %s"):format(table.concat(unknown, "; "), table.concat(names, ", "))
end

--- As configs.read, and refuses unknown keys.
function configs.read_all(config, rules, of)
  local problem = unknown_keys(config, rules, of)
  if problem then return nil, problem end
  return configs.read(config, rules, of)
end

-- ---- The settings of a model --------------------------------------------------------------------

--- The ids that end a text, counted from 1, of an eos_token_id, an id or a list, counted from 0. Ids beyond the
--- vocabulary, which some small models inherit from larger ones, are skipped. Returns nil and a problem for others.
function configs.stop_tokens(ids, vocab_size)
  local list = {}
  for i, id in ipairs(type(ids) == "table" and ids or { ids }) do
    if not compat.is_integer(id) then
      return nil, ("eos_token_id %d is %s; it must be an integer"):format(i, E.what(id))
    end
    if id >= 0 and id < vocab_size then list[#list + 1] = math.floor(id) + 1 end
  end
  return list
end

--- The model type of a config without model_type: by the class in architectures. Returns nil and a problem for classes
--- of other models.
local function type_of(about, config)
  local classes = config.architectures
  local name = type(classes) == "table" and classes[1] or nil
  if config.model_type ~= nil or type(name) ~= "string" then return config.model_type end
  for _, each in ipairs(about.architectures) do
    if name:find("^" .. each[1]) then return each[2] end
  end
  local form = "model_type is missing and architectures names %s; it must be a class of %s"
  return nil, form:format(E.what(name), table.concat(about.types, ", "))
end

local ready = setmetatable({}, { __mode = "k" }) -- settings that the next model may take as they are

--- The settings by name: those of the config, the defaults, and what follows from them, which pairs leaves out.
--- Returns nil and a problem if there is one. `about` describes the model:
---   rules          the rules for the settings
---   types          the model types
---   architectures  a list of {beginning of a class in architectures, model type}
---   complete       complete(c, aliases, further, kind) checks and completes the settings; aliases[name] is the name
---                  for messages, `kind` the model type that the config gives, or nil. Returns a problem, or nil.
---                  What it puts into `further` is read as c[name], too.
--- Further results: aliases and `further`.
function configs.settings(about, config)
  local rules = {}
  for name, rule in pairs(COMMON) do rules[name] = rule end
  for name, rule in pairs(about.rules) do rules[name] = rule end
  rules.initializer_range = INITIALIZER_RANGE
  local kind, problem = type_of(about, config)
  if problem then return nil, problem end
  local c, aliases = configs.read_all(config, rules)
  if not c then return nil, aliases end
  c.model_type = kind or c.model_type
  local further = {}
  problem = about.complete(c, aliases, further, kind)
  if problem then return nil, problem end
  if rules.eos_token_id then
    further.stop_tokens, problem = configs.stop_tokens(c.eos_token_id, c.vocab_size)
    if problem then return nil, problem end
  end
  for name, rule in pairs(rules) do
    for _, other in ipairs(rule.also or {}) do further[other] = c[name] end
  end
  further.names = aliases
  return setmetatable(c, { __index = further }), aliases, further
end

--- Marks settings for the next model, which takes them without reading them again.
function configs.mark_ready(c) ready[c] = true end

--- The settings of a model that is made from `config`, the argument of its class `name`. Raises if they are invalid.
function configs.for_model(name, about, config)
  if ready[config] then
    ready[config] = nil
    return config
  end
  if type(config) ~= "table" or E.is_module(config) then
    local fix = type(config) == "string" and ("; %s.load reads a folder"):format(name) or ""
    E.reject(name, "config", config, "a table with the fields of config.json%s", fix)
  end
  local c, problem = configs.settings(about, config)
  if not c then E.fail("%s: unsupported configuration: %s", name, problem) end
  return c
end

-- ---- Fresh weights ------------------------------------------------------------------------------

--- Draws the weights of a new model as Hugging Face's classes do: matrices from a normal distribution with the standard
--- deviation initializer_range, scaled by scale(name) if given; biases are 0 and the weights of norms 1. Parameters
--- without memory (nn.utils.skip_init) are left out.
function configs.draw(model, c, scale)
  local seen = {}
  for name, parameter in compat.pairs(model:state_dict()) do
    E.check_cancel "config"
    local _, identity = primitives.identity(parameter)
    if not primitives.placeholder(parameter) and not seen[identity] then
      seen[identity] = true
      if parameter.ndim > 1 then
        parameter:normal_(0, c.initializer_range * (scale and scale(name) or 1))
      elseif name:find "bias$" then
        parameter:zero_()
      end
    end
  end
end

return configs
