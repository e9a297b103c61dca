--- BERT, and sentence encoders made from it: `require "heed.models.bert".load "all-MiniLM-L6-v2"`.
--- Source: arXiv:1810.04805; arXiv:1908.10084 for `encode`. Shape legend: b batch, n tokens, d hidden_size.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local points_of = require("heed.nn.declared_points").at
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local loading = require "heed.models.loading"
local packing = require "heed.models.packing"
local slices = require "heed.nn.slices"
local state_dict = require "heed.nn.state_dict"
local wordpiece = require "heed.tokenizers.wordpiece"
local options_of, fail = core.modules.options, E.fail

-- ---- The architecture ---------------------------------------------------------------------------

local Layer = nn.Module.class "BertLayer"

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

Layer.points = {
  "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out",
  "hook_resid_post", "hook_normalized_resid_post", constant = true,
}
Layer.part_names = { attention = "attn", attention_norm = "ln1", norm = "ln2" }
Layer.packs = true -- takes packed sequences
Layer.tp_plan = { up = "colwise", down = "rowwise" }

function Layer:forward(x, options)
  local at = points_of(self)
  x = at("hook_resid_pre", x)
  local attended, info = self.attention(x, options)
  x = at("hook_resid_mid", x + at("hook_attn_out", self.dropout(attended)))
  x = self.attention_norm(x)
  local h = at("mlp.hook_pre", self.up(x))
  h = at("mlp.hook_post", self.activation(h))
  x = x + at("hook_mlp_out", self.dropout(self.down(h)))
  return at("hook_normalized_resid_post", (self.norm(at("hook_resid_post", x)))), info
end

-- ---- Settings -----------------------------------------------------------------------------------

-- The settings in config.json, with Hugging Face's names and defaults. model_type is checked because RoBERTa and XLM-R
-- use the same weight names but different positions.
local CONFIG = {
  model_type = { kind = { "bert" }, default = "bert" },
  vocab_size = { kind = "size" },
  hidden_size = { kind = "size" },
  num_hidden_layers = { kind = "size" },
  num_attention_heads = { kind = "size" },
  intermediate_size = { kind = "size" },
  max_position_embeddings = { kind = "size", default = 512 },
  type_vocab_size = { kind = "size", default = 2 },
  layer_norm_eps = { kind = "number", default = 1e-12 },
  hidden_act = { kind = configs.activation_names, default = "gelu" },
  hidden_dropout_prob = { kind = "number", default = 0.1 },
  attention_probs_dropout_prob = { kind = "number", default = 0.1 },
  position_embedding_type = { kind = { "absolute" }, default = "absolute" },
  is_decoder = { kind = { false }, default = false },
  pad_token_id = { optional = true },
}

local ROBERTA = "%s: the model is a RoBERTa, which counts positions in another way than BERT; it must be a BERT"

--- `kind` is the model type, if the config has one. RoBERTa's positions begin after that of the padding, 1: they are
--- two more than a power of two, as in no BERT.
local function complete(c, aliases, further, kind)
  further.add_pooling_layer = true
  if not kind and c.pad_token_id == 1 and c.max_position_embeddings % 64 == 2 then
    return ROBERTA:format(("model_type is missing, pad_token_id is 1 and max_position_embeddings is %d")
      :format(c.max_position_embeddings))
  end
  return configs.indivisible(c, aliases, "num_attention_heads", "hidden_size"), {}
end

local ABOUT = { rules = CONFIG, types = { "bert" }, architectures = { { "Bert", "bert" } }, complete = complete }

-- ---- The model ----------------------------------------------------------------------------------

local Bert = nn.Module.class "Bert"

Bert.points = {
  "embed.hook_embed", "embed.hook_pos_embed", "embed.hook_token_type_embed", "hook_full_embed", constant = true,
}
Bert.part_names = { embedding_norm = "embed.ln", layers = "blocks" }

--- A model with fresh weights. `config` has the fields of config.json.
function Bert:init(config)
  local c = configs.for_model("Bert", ABOUT, config)
  self.config = c
  self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
  self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
  self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
  self.embedding_norm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  self.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layers:append(Layer(c)) end
  if c.add_pooling_layer then self.pooler = nn.Linear(c.hidden_size, c.hidden_size) end
  configs.draw(self, c)
end

local FORWARD_OPTIONS = { "attention_mask", "token_type_ids", "kv_lengths", "need_weights", "lengths" }

--- The input [..., n, d] of the first layer for ids [..., n] at positions [n], with these types.
function Bert:embed(ids, types, positions)
  local at = points_of(self)
  local words = at("embed.hook_embed", (self.word_embeddings(ids)))
  local shape = words.shape
  types = at("embed.hook_token_type_embed", self.token_type_embeddings(types):expand(shape))
  positions = self.position_embeddings(positions):expand(shape)
  local x = words + types + at("embed.hook_pos_embed", positions)
  return at("hook_full_embed", (self.dropout(self.embedding_norm(x))))
end

--- The hidden states [..., n, d] of ids [..., n] at positions [n], and the intermediate results of the layers.
local function hidden_of(self, ids, types, positions, options)
  local x, found = self:embed(ids, types, positions), {}
  for i, layer in compat.ipairs(self.layers) do
    x, found[i] = layer(x, options)
  end
  return x, found
end

local function ones(n) return core.ones(n, { dtype = "int64" }) end

--- Hidden states [b, n, d] of ids [b, n], or [n, d] of ids [n]. attention_mask [b, n] is 0 or false for padding;
--- kv_lengths [b] are the lengths without padding at the end. token_type_ids count from 1 and default to 1.
--- Padding at the end costs nothing, and has hidden states of 0; other padding has unspecified ones.
--- lengths [b]: ids [total] are the ids of b texts, one after another, and so are the hidden states [total, d].
--- need_weights adds a second result, where info.layers[i] holds the intermediate results of attention in layer i.
function Bert:forward(ids, ...)
  local mask, types, kv_lengths, wanted, lengths = options_of("Bert", FORWARD_OPTIONS, 3, self, ids, ...)
  ids = loading.ids("Bert", ids)
  local n, most = ids.shape[ids.ndim], self.config.max_position_embeddings
  if lengths == nil and n > most and not packing.is_divided() then
    fail("Bert: ids have %s; they must have at most %d, max_position_embeddings", E.count(n, "token"), most)
  end
  if mask ~= nil and E.kind(mask) ~= "tensor" then
    E.reject("Bert", "attention_mask", mask, "a tensor that is 0 or false for padding")
  end
  types = types and loading.ids("Bert", types)

  local x, found
  if lengths ~= nil then
    if mask or kv_lengths then
      fail("Bert: lengths and %s are both given; packed texts have no padding",
        mask and "attention_mask" or "kv_lengths")
    end
    lengths = packing.check("Bert", lengths, ids, most, "max_position_embeddings")
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
    local positions = packing.positions_of_shard("Bert", n, nil, most, "max_position_embeddings")
      or core.range(1, n, { dtype = "int64" })
    x, found = hidden_of(self, ids, types or ones(n), positions, options)
  end
  if wanted then return x, { layers = found } end
  return x
end

--- BERT's pooled output: tanh of the pooler on the first token. hidden [b, n, d] gives [b, d], [n, d] gives [d].
function Bert:pooled(hidden)
  E.check_self(self, "pooled")
  if not self.pooler then fail "pooled: the model has no pooler" end
  if E.kind(hidden) ~= "tensor" or hidden.ndim < 2 then
    E.reject("pooled", "hidden", hidden, "a tensor [n, d] or [b, n, d]")
  end
  return self.pooler(hidden:select(-2, 1)):tanh()
end

-- ---- Loading ------------------------------------------------------------------------------------

-- heed's names, and those in the file.
local RENAMES = {
  { "^word_embeddings", "embeddings.word_embeddings" },
  { "^position_embeddings", "embeddings.position_embeddings" },
  { "^token_type_embeddings", "embeddings.token_type_embeddings" },
  { "^embedding_norm", "embeddings.LayerNorm" },
  { "^pooler", "pooler.dense" },
  { "^layers", "encoder.layer" },
  { "attention%.W_(%l+)", "attention.self.%1" },
  { "attention%.out_proj", "attention.output.dense" },
  { "attention_norm", "attention.output.LayerNorm" },
  { "(%.%d+)%.up", "%1.intermediate.dense" },
  { "(%.%d+)%.down", "%1.output.dense" },
  { "(%.%d+)%.norm", "%1.output.LayerNorm" },
}


--- Older files store the positions as a buffer.
local function is_ignored(name) return name == "embeddings.position_ids" end

--- The state without the prefix "bert." that files with a task head use, and without the head. The oldest files call
--- LayerNorm's weight and bias gamma and beta. Returns nil and a problem for the weights of a RoBERTa.
local function bare_names(state)
  local first = "bert.embeddings.word_embeddings.weight"
  local prefix, problem = "", nil
  for name in state_dict.names(state) do
    if name == first then prefix = "bert." end
    if name:find "^roberta%." then problem = ROBERTA:format(("the weights are named %s"):format(name)) end
  end
  if problem then return nil, problem end
  return state_dict.renamed(state, function(name)
    if name:sub(1, #prefix) ~= prefix then return nil end
    name = name:sub(#prefix + 1):gsub("LayerNorm%.gamma$", "LayerNorm.weight")
    return (name:gsub("LayerNorm%.beta$", "LayerNorm.bias"))
  end, "load")
end

-- Further files of sentence-transformers models, all optional.
local FLAG, SIZE = { kind = "boolean", optional = true }, { kind = "size", optional = true }
local ENCODER_FILES = {
  { "tokenizer_config.json", { do_lower_case = FLAG, strip_accents = FLAG, tokenize_chinese_chars = FLAG } },
  { "sentence_bert_config.json", { max_seq_length = SIZE } },
  { "1_Pooling/config.json", { pooling_mode_cls_token = FLAG, pooling_mode_mean_tokens = FLAG } },
}

--- Adds the tokenizer and the pooling found in the folder to the model. Returns true, or nil and a message.
local function add_encoder(model, folder)
  local files = {}
  for i, file in ipairs(ENCODER_FILES) do
    local value, problem = loading.json(folder, file[1])
    if not value then return nil, problem end
    files[i], problem = configs.read(value, file[2], file[1] .. ": ")
    if not files[i] then return loading.unsupported("Bert", problem) end
  end
  local tokens, sentence, pooling = compat.unpack(files)
  if pooling.pooling_mode_cls_token then
    model.pooling = "cls"
  elseif pooling.pooling_mode_mean_tokens ~= false then
    model.pooling = "mean"
  end
  model.max_seq_length = math.min(sentence.max_seq_length or math.huge, model.config.max_position_embeddings)
  if not core.files.kind(folder .. "vocab.txt") then return true end
  local tokenizer, problem = wordpiece.load(folder .. "vocab.txt", tokens)
  if not tokenizer then return nil, problem end
  if tokenizer.vocab_size > model.config.vocab_size then
    local form = "Bert.load: '%svocab.txt' has %s; vocab_size is %d"
    return nil, form:format(folder, E.count(tokenizer.vocab_size, "piece"), model.config.vocab_size)
  end
  model.tokenizer = tokenizer
  return true
end

--- Loads a model from a folder (config.json, model.safetensors or its index, vocab.txt) or from a weights file in one.
--- Returns it in evaluation mode, or nil and a message if files are missing, broken or contradict each other.
function Bert.load(path, config, divide)
  local folder, file = loading.find("Bert", path)
  if not folder then return nil, file end
  local c, aliases, further, _, state, model, fine, problem
  c, problem = loading.config("Bert", folder, config)
  if not c then return nil, problem end
  c, aliases, _, further = configs.settings(ABOUT, c)
  if not c then return loading.unsupported("Bert", aliases) end
  state, problem = loading.weights("Bert", file)
  if not state then return nil, problem end
  state, problem = bare_names(state)
  if not state then return loading.unsupported("Bert", problem) end
  further.add_pooling_layer = state_dict.has(state, "pooler.dense.weight")

  local note = loading.layer_note(c, aliases, state, "^encoder%.layer%.(%d+)%.")
  model, problem = loading.new_model("Bert", Bert, c, state, note)
  if not model then return nil, problem end
  fine, problem = loading.fill("Bert", model, state, c, loading.renamer(RENAMES), is_ignored, note, divide)
  if fine then fine, problem = add_encoder(model, folder) end
  if not fine then return nil, problem end
  return model:eval()
end

-- ---- Sentences ----------------------------------------------------------------------------------

local BATCH_TOKENS = 1024 -- of a forward pass: enough rows for the fastest products; 256 took 1.2 times as long

--- The sentence vectors [b, d] of texts given as ids, one after another, and their lengths.
local function encode_batch(self, ids, lengths)
  lengths = core.tensor(lengths, { dtype = "int64" })
  local hidden = self(core.tensor(ids, { dtype = "int64" }), { lengths = lengths })
  local y
  if self.pooling == "cls" then
    y = hidden:index_select(1, lengths:cumsum(1) - lengths + 1)
  else
    local b = #lengths
    local text = core.range(1, b, { dtype = "int64" }):repeat_interleave(lengths) -- of each row
    y = core.zeros(b, self.config.hidden_size):index_add(1, text, hidden) / lengths:unsqueeze(2)
  end
  return y / (y * y):sum(-1, true):sqrt():clamp(1e-12)
end

--- Sentence embeddings [n, d] of a list of n texts, normalized to length 1: the dot product of two is their cosine
--- similarity. Texts are truncated to max_seq_length tokens. Nothing is recorded, so that many texts need no more
--- memory than a batch; for embeddings with gradients call the model itself.
local function encode(self, texts, ...)
  options_of("encode", {}, 3, self, texts, ...)
  if not self.tokenizer then fail "encode: the model was loaded without a vocab.txt" end
  if not self.pooling then fail "encode: 1_Pooling/config.json has an unsupported pooling; it must be mean or cls" end
  if type(texts) ~= "table" then E.reject("encode", "texts", texts, "a list of strings") end
  for i, text in ipairs(texts) do
    E.check_cancel "encode"
    E.check_type(text, "string", "encode", ("text %d"):format(i))
    local wrong = core.text.invalid(text)
    if wrong then fail("encode: text %d is not valid UTF-8 at byte %d", i, wrong) end
  end
  -- A batch is tokenized when its turn comes: the collector traverses all lists that are kept, again and again.
  local results, ids, lengths = {}, {}, {}
  for _, text in ipairs(texts) do
    local list = self.tokenizer:encode(text, { max_length = self.max_seq_length })
    if #ids > 0 and #ids + #list > (slices.rows() and 1 or BATCH_TOKENS) then -- in slices a text at a time
      results[#results + 1] = encode_batch(self, ids, lengths)
      ids, lengths = {}, {}
    end
    lengths[#lengths + 1] = #list
    local first = #ids
    for j, id in ipairs(list) do ids[first + j] = id end
  end
  if #ids == 0 then return core.zeros(0, self.config.hidden_size) end
  results[#results + 1] = encode_batch(self, ids, lengths)
  return core.cat(results, 1)
end

function Bert:encode(...)
  if core.is_grad_enabled() then return core.modules.with_modes(false, nil, encode, self, ...) end
  return encode(self, ...)
end

--- The same in slices of options.ms milliseconds (2): an object with advance(ms), which returns whether all is done,
--- and then result. The texts are computed one by one; the last bits may differ from those of encode's batches.
function Bert:encode_steps(texts, options, ...)
  E.check_self(self, "encode_steps")
  local ms = options_of("encode_steps", { "ms" }, 3, self, texts, options, ...)
  return slices.new(slices.budget(ms, "encode_steps"), function() return encode(self, texts) end)
end

return E.with_frames(Bert, "embed", "forward", "pooled", "encode", "encode_steps")
