--- Loading encoders: weights and their names, the head, the tokenizer, and what sentence-transformers stores.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local gguf = require "heed.models.gguf"
local gguf_encoder = require "heed.models.gguf_encoder"
local loading = require "heed.models.loading"
local sentences = require "heed.models.sentences"
local state_dict = require "heed.nn.state_dict"
local wordpiece = require "heed.tokenizers.wordpiece"
local files = core.files

-- ---- Weights ------------------------------------------------------------------------------------

--- Older files store the positions as a buffer.
local function is_ignored(name) return name == "embeddings.position_ids" end

--- The state without the prefix that files with a task head use, and without names of heads, but those for which
--- is_head(name). The oldest files call LayerNorm's weight and bias gamma and beta. Returns nil and a problem for the
--- weights of another model.
local function bare_names(state, names, is_head)
  local prefix, problem = "", nil
  for name in state_dict.names(state) do
    if name == names.prefix .. names.embedding then prefix = names.prefix end
    problem = problem or names.foreign and names.foreign(name)
  end
  if problem then return nil, problem end
  return state_dict.renamed(state, function(name)
    if is_head(name) then return name end
    if name:sub(1, #prefix) ~= prefix then return nil end
    name = name:sub(#prefix + 1):gsub("LayerNorm%.gamma$", "LayerNorm.weight")
    return (name:gsub("LayerNorm%.beta$", "LayerNorm.bias"))
  end, "load")
end

-- ---- Tokenizers ---------------------------------------------------------------------------------

local FLAG = { kind = "boolean", optional = true }
local TOKENIZER = {
  do_lower_case = FLAG, strip_accents = FLAG, tokenize_chinese_chars = FLAG,
  model_max_length = { kind = "number", optional = true },
  truncation_side = { kind = { "right" }, optional = true },
}
local OTHERS = { "sentencepiece.bpe.model", "tokenizer.json", "vocab.json" }

--- The name of the tokenizer's file in a folder, or nil; then the tokenizer, or nil and a message.
local function tokenizer_in(folder, settings, kind)
  if kind ~= "roberta" and kind ~= "xlm-roberta" and files.kind(folder .. "vocab.txt") then
    settings = { do_lower_case = settings.do_lower_case, strip_accents = settings.strip_accents,
      tokenize_chinese_chars = settings.tokenize_chinese_chars }
    return "vocab.txt", wordpiece.load(folder .. "vocab.txt", settings)
  end
  for _, name in ipairs(OTHERS) do
    if files.kind(folder .. name) then
      local class = name:find "%.model$" and "heed.tokenizers.fairseq" or "heed.tokenizers"
      return name, require(class).load(folder .. name)
    end
  end
end

--- Adds the tokenizer of the folder to the model. Returns the most tokens of a text, or nil and a message.
local function add_tokenizer(class, model, folder)
  local settings, problem = loading.json(folder, "tokenizer_config.json")
  if not settings then return nil, problem end
  settings, problem = configs.read(settings, TOKENIZER, "tokenizer_config.json: ")
  if not settings then return loading.unsupported(class, problem) end
  local name, tokenizer
  name, tokenizer, problem = tokenizer_in(folder, settings, model.config.model_type)
  if problem then return nil, problem end
  if tokenizer then
    if tokenizer.vocab_size > model.config.vocab_size then
      local form = "%s.load: '%s%s' has %s; vocab_size is %d"
      return nil, form:format(class, folder, name, E.count(tokenizer.vocab_size, "piece"), model.config.vocab_size)
    end
    local first, last = tokenizer.cls_token_id or tokenizer.bos_token_id, tokenizer.sep_token_id
      or tokenizer.eos_token_id
    if not first or not last then
      return nil, ("%s.load: '%s%s' has no tokens for the beginning and the end of a text; tokenizer_config.json must "
        .. "name cls_token and sep_token"):format(class, folder, name)
    end
    model.tokenizer = tokenizer
  end
  return math.floor(math.min(model.config.max_tokens, settings.model_max_length or math.huge))
end

-- ---- Models -------------------------------------------------------------------------------------

local load_encoder = {}

--- The names of BERT's weights, and of the models that use the same.
load_encoder.bert_names = {
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

--- Loads a model from a GGUF file.
local function load_gguf(class, Class, about, file, config, divide)
  if config ~= nil then E.check_type(config, "table", class .. ".load", "config") end
  local state, c, pooling, aliases, further, model, fine, problem
  state, problem = loading.weights(class, file)
  if not state then return nil, problem end
  c, pooling = gguf_encoder.config(state, config)
  if not c then return loading.unsupported(class, pooling) end
  c, aliases, further = configs.settings(about, c)
  if not c then return loading.unsupported(class, aliases) end
  further.has_classifier, further.add_pooling_layer = false, false
  local note = loading.layer_note(c, aliases, state, "^blk%.(%d+)%.")
  model, problem = loading.new_model(class, Class, c, state, note)
  if not model then return nil, problem end
  fine, problem = loading.fill(class, model, state, c, loading.renamer(gguf_encoder.renames), function() end, note,
    divide)
  if not fine then return nil, problem end
  model.tokenizer, model.tokenizer_problem = require("heed.tokenizers").load(file)
  model.pooling, model.normalize, model.vector_size = pooling, true, c.hidden_size
  model.max_seq_length = c.max_tokens
  return model:eval()
end

--- Makes the function load(path, config, divide) of the class `Class`, named `class`. `about` is that of
--- heed.models.encoder; about.files has
---   prefix      of the names in files with a head
---   embedding   the name of the token embeddings' weight
---   layers      a pattern for names that captures the layer's number, from 0
---   renames     {pattern, replacement} from heed's names to those in the file
---   head        the same for the parts of a classification head, first
---   foreign     foreign(name): the problem with the weights of another model, or nil
---   gguf        whether the model may be in a GGUF file
--- It loads a model from a folder (config.json, model.safetensors or its index, a tokenizer) or from a weights file in
--- one, and returns it in evaluation mode, or nil and a message if files are missing, broken or contradict each other.
function load_encoder.loader(class, Class, about)
  local names = about.files
  return function(path, config, divide)
    local folder, file = loading.find(class, path, names.gguf and "model.gguf")
    if not folder then return nil, file end
    if names.gguf and gguf.is(file) then return load_gguf(class, Class, about, file, config, divide) end
    if gguf.is(file) then
      return nil, ("%s.load: '%s' is a GGUF file, whose encoders are of the class Bert; use heed.models.load"):format(
        class, file)
    end
    local c, aliases, further, state, model, fine, most, problem
    c, problem = loading.config(class, folder, config)
    if not c then return nil, problem end
    c, aliases, further = configs.settings(about, c)
    if not c then return loading.unsupported(class, aliases) end
    state, problem = loading.weights(class, file)
    if not state then return nil, problem end

    local heads = {}
    local with_head = loading.renamer { compat.unpack(names.head or {}) }
    for _, part in ipairs { "pooler.weight", "pooler.bias", "classifier.weight", "classifier.bias" } do
      local in_file = with_head(part)
      if in_file ~= part or part:find "^classifier" then heads[in_file] = true end
    end
    if not c.architectures then further.has_classifier = true end
    for name in pairs(heads) do
      if not c.architectures and not state_dict.has(state, name) then further.has_classifier = false end
    end
    local renames = {}
    for _, rename in ipairs(further.has_classifier and names.head or {}) do renames[#renames + 1] = rename end
    for _, rename in ipairs(names.renames) do renames[#renames + 1] = rename end
    state, problem = bare_names(state, names, function(name) return further.has_classifier and heads[name] end)
    if not state then return loading.unsupported(class, problem) end
    local rename = loading.renamer(renames)
    further.add_pooling_layer = further.has_classifier or state_dict.has(state, rename "pooler.weight")

    local note = loading.layer_note(c, aliases, state, names.layers)
    model, problem = loading.new_model(class, Class, c, state, note)
    if not model then return nil, problem end
    local function ignored(name) return is_ignored(name) or not further.has_classifier and heads[name] end
    fine, problem = loading.fill(class, model, state, c, rename, ignored, note, divide)
    if fine then most, problem = add_tokenizer(class, model, folder) end
    if most then fine, problem = sentences.add(class, model, folder, most) end
    if not (most and fine) then return nil, problem end
    return model:eval()
  end
end

return load_encoder
