--- Sentence vectors: pooling, further layers and prompts as in the files of sentence-transformers, and encode. Shape
--- legend: b texts, d hidden_size, total all tokens. Source: arXiv:1908.10084.

local core = require "heed.core"
local nn = require "heed.nn"
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local loading = require "heed.models.loading"
local slices = require "heed.nn.slices"
local texts = require "heed.models.texts"
local options_of = core.modules.options

local sentences = {}

-- ---- Pooling ------------------------------------------------------------------------------------

local function texts_of(lengths) -- of each row
  return core.range(1, lengths.shape[1], { dtype = "int64" }):repeat_interleave(lengths)
end

local function sums(hidden, lengths)
  return core.zeros(lengths.shape[1], hidden.shape[2]):index_add(1, texts_of(lengths), hidden)
end

-- The vectors [b, d] of hidden [total, d] and lengths [b], in the order in which several are joined.
local POOLINGS = {
  { "cls", function(hidden, lengths) return hidden:index_select(1, texts.first_rows(lengths)) end },
  { "max", function(hidden, lengths)
    local rows, first = {}, 1
    for i, length in ipairs(lengths:tolist()) do
      rows[i] = hidden:narrow(1, first, length):amax(1)
      first = first + length
    end
    return core.stack(rows)
  end },
  { "mean", function(hidden, lengths) return sums(hidden, lengths) / lengths:unsqueeze(2) end },
  { "mean_sqrt_len", function(hidden, lengths) return sums(hidden, lengths) / lengths:float():sqrt():unsqueeze(2) end },
  { "weightedmean", function(hidden, lengths)
    local total = hidden.shape[1]
    local weights = core.range(1, total, { dtype = "int64" })
      - (lengths:cumsum(1) - lengths):repeat_interleave(lengths)
    return sums(hidden * weights:unsqueeze(2), lengths) / (lengths * (lengths + 1) / 2):unsqueeze(2)
  end },
  { "lasttoken", function(hidden, lengths) return hidden:index_select(1, lengths:cumsum(1)) end },
}

local BY_NAME, NAMES = {}, {}
for i, pooling in ipairs(POOLINGS) do BY_NAME[pooling[1]], NAMES[i] = pooling[2], pooling[1] end
NAMES = table.concat(NAMES, ", ")

--- Pools by the names in `pooling`, joined by "+".
local function pool(pooling, hidden, lengths)
  local parts = {}
  for name in (type(pooling) == "string" and pooling or "?"):gmatch "[^+]+" do
    if not BY_NAME[name] then E.reject("encode", "pooling", pooling, "one of %s, or several joined by +", NAMES) end
    parts[#parts + 1] = BY_NAME[name](hidden, lengths)
  end
  return parts[2] and core.cat(parts, -1) or parts[1]
end

-- ---- The files of sentence-transformers ---------------------------------------------------------

local FLAG, SIZE = { kind = "boolean", optional = true }, { kind = "size", optional = true }
local POOLING_FLAGS = {
  cls = "pooling_mode_cls_token", max = "pooling_mode_max_tokens", mean = "pooling_mode_mean_tokens",
  mean_sqrt_len = "pooling_mode_mean_sqrt_len_tokens", weightedmean = "pooling_mode_weightedmean_tokens",
  lasttoken = "pooling_mode_lasttoken",
}
local POOLING = {
  word_embedding_dimension = SIZE, embedding_dimension = SIZE, pooling_mode = { optional = true },
  include_prompt = { kind = { true }, optional = true },
}
for _, name in pairs(POOLING_FLAGS) do POOLING[name] = FLAG end

--- The settings in a JSON file of the folder, or nil and a message. Keys that the rules do not know are ignored, unless
--- `all` is set.
local function read(class, folder, name, rules, all)
  local value, problem = loading.json(folder, name)
  if not value then return nil, problem end
  value, problem = (all and configs.read_all or configs.read)(value, rules, name .. ": ")
  if not value then return loading.unsupported(class, problem) end
  return value
end

--- The pooling in the folder of a pooling module, or nil and a message; "mean" is the default.
local function pooling_of(class, folder, name)
  local file = name .. "config.json"
  local c, problem = read(class, folder, file, POOLING, true)
  if not c then return nil, problem end
  local names, given = {}, c.pooling_mode
  if type(given) ~= "table" then given = { given } end
  for _, each in ipairs(given) do
    if not BY_NAME[each] then
      return loading.unsupported(class, ("%s: pooling_mode is %s; it must be one of %s")
        :format(file, E.what(each), NAMES))
    end
    names[each] = true
  end
  local any = next(names) ~= nil
  for each, flag in pairs(POOLING_FLAGS) do
    if not any and (c[flag] or each == "mean" and c[flag] == nil and not c.pooling_mode_cls_token) then
      names[each] = true
    end
  end
  local list = {}
  for _, each in ipairs(POOLINGS) do
    if names[each[1]] then list[#list + 1] = each[1] end
  end
  if #list == 0 then
    return loading.unsupported(class, ("%s: no pooling is chosen; it must be one of %s"):format(file, NAMES))
  end
  return table.concat(list, "+")
end

local ACTIVATIONS = { Identity = nn.Identity, Tanh = nn.Tanh, ReLU = nn.ReLU, GELU = nn.GELU, Sigmoid = nn.Sigmoid }
local DENSE = {
  in_features = { kind = "size" }, out_features = { kind = "size" }, bias = { kind = "boolean", default = true },
  activation_function = { kind = "string", default = "torch.nn.modules.activation.Tanh" },
  module_input_name = { kind = { "sentence_embedding" }, optional = true },
  module_output_name = { kind = { "sentence_embedding" }, optional = true },
}

--- The layer in the folder of a dense module, or nil and a message.
local function dense_of(class, folder, name, size)
  local c, problem = read(class, folder, name .. "config.json", DENSE, true)
  if not c then return nil, problem end
  local activation = ACTIVATIONS[configs.class_name(c.activation_function)]
  if not activation then
    return loading.unsupported(class, ("%sconfig.json: activation_function is %s; it must be PyTorch's GELU, "
      .. "Identity, ReLU, Sigmoid or Tanh"):format(name, E.what(c.activation_function)))
  end
  if c.in_features ~= size then
    return loading.unsupported(class, ("%sconfig.json: in_features is %d; it must be %d, the size of the vectors")
      :format(name, c.in_features, size))
  end
  local found, file = loading.find(class, folder .. name)
  if not found then return nil, file end
  local state
  state, problem = loading.weights(class, file)
  if not state then return nil, problem end
  local linear = nn.Linear(c.in_features, c.out_features, c.bias)
  found, problem = loading.fill(class, linear, state, c, function(each) return "linear." .. each end, function() end)
  if not found then return nil, problem end
  return nn.Sequential(linear, activation()), c.out_features
end

--- The modules of modules.json as a list of {kind, folder in the model's folder}; those before it existed otherwise.
local function modules_of(class, folder)
  local list, problem = loading.json(folder, "modules.json")
  if not list then return nil, problem end
  if next(list) == nil then return { { "Transformer", "" }, { "Pooling", "1_Pooling/" }, { "Normalize", "" } } end
  if list[1] == nil then return loading.unsupported(class, "modules.json has no list of modules") end
  local modules = {}
  for i, each in ipairs(list) do
    if type(each) ~= "table" or type(each.type) ~= "string" or type(each.path) ~= "string" then
      return loading.unsupported(class, ("modules.json: module %d has no type and path"):format(i))
    end
    if each.path:find "%.%." or each.path:find "^/" then
      return loading.unsupported(class, ("modules.json: the path of module %d is %s; it must be within the folder")
        :format(i, E.what(each.path)))
    end
    local path = each.path:gsub("/+", "/"):gsub("/$", "")
    modules[i] = { configs.class_name(each.type), path ~= "" and path .. "/" or "" }
  end
  return modules
end

local SENTENCE = { max_seq_length = SIZE, do_lower_case = FLAG }
local PROMPTS = {
  prompts = { kind = "table", optional = true }, default_prompt_name = { kind = "string", optional = true },
}

--- Adds to a model what the folder says about sentence vectors: pooling, further layers, prompts, max_seq_length.
--- Returns true, or nil and a message.
function sentences.add(class, model, folder, most)
  local modules, sentence, prompts, pooling, dense, problem
  modules, problem = modules_of(class, folder)
  if not modules then return nil, problem end
  sentence, problem = read(class, folder, "sentence_bert_config.json", SENTENCE)
  if not sentence then return nil, problem end
  prompts, problem = read(class, folder, "config_sentence_transformers.json", PROMPTS)
  if not prompts then return nil, problem end
  if prompts.default_prompt_name and not (prompts.prompts or {})[prompts.default_prompt_name] then
    return loading.unsupported(class, ("config_sentence_transformers.json: default_prompt_name is %s; it must be one "
      .. "of prompts"):format(E.what(prompts.default_prompt_name)))
  end

  local size, layers, normalize = model.config.hidden_size, nn.Sequential(), false
  for i, each in ipairs(modules) do
    local kind, name = each[1], each[2]
    if kind == "Pooling" then
      pooling, problem = pooling_of(class, folder, name)
      if not pooling then return nil, problem end
      size = size * select(2, pooling:gsub("[^+]+", ""))
    elseif kind == "Dense" and pooling then
      dense, size = dense_of(class, folder, name, size)
      if not dense then return nil, size end
      layers:append(dense)
    elseif kind == "Normalize" then
      normalize = true
    elseif kind ~= "Transformer" or i > 1 then
      return loading.unsupported(class, ("modules.json: module %d is a %s; it must be a Transformer, followed by "
        .. "Pooling, Dense and Normalize"):format(i, kind))
    end
  end
  model.pooling, model.normalize, model.vector_size = pooling, normalize, size
  if #layers > 0 then model.sentence_layers = layers end
  model.prompts, model.default_prompt = prompts.prompts, prompts.default_prompt_name
  model.lowers_texts = sentence.do_lower_case
  model.max_seq_length = math.min(sentence.max_seq_length or most, most)
  return true
end

-- ---- Encoding -----------------------------------------------------------------------------------

--- The texts with the prompt of that name before them.
local function prompted(self, list, name)
  if name == nil then name = self.default_prompt end
  if name == nil and not self.lowers_texts then return list end
  local prompt = ""
  if name ~= nil then
    prompt = self.prompts and self.prompts[name]
    if type(prompt) ~= "string" then
      local known = {}
      for each in pairs(self.prompts or {}) do known[#known + 1] = each end
      table.sort(known)
      E.reject("encode", "prompt", name, "%s", #known > 0 and "one of " .. table.concat(known, ", ")
        or "nil: config_sentence_transformers.json has no prompts")
    end
  end
  local changed = {}
  for i, text in ipairs(list) do
    text = prompt .. text
    changed[i] = self.lowers_texts and core.text.lower(text) or text
  end
  return changed
end

local encode = texts.unrecorded(function(self, list, ...)
  local prompt, normalize = options_of("encode", { "prompt", "normalize" }, 3, self, list, ...)
  list = texts.check(self, "encode", list, "texts")
  if normalize == nil then normalize = self.normalize end
  normalize = E.boolean(normalize, true, "encode", "normalize")
  list = prompted(self, list, prompt)
  return texts.map(self, "encode", list, self.vector_size or self.config.hidden_size, function(hidden, lengths)
    local y = pool(self.pooling or "mean", hidden, lengths)
    if self.sentence_layers then y = self.sentence_layers(y) end
    return normalize and y / (y * y):sum(-1, true):sqrt():clamp(1e-12) or y
  end)
end)

--- Sentence embeddings [n, d] of a list of n texts. They have length 1, so that the dot product of two is their cosine
--- similarity, unless modules.json lacks Normalize; `normalize` overrides it. Texts are truncated to max_seq_length
--- tokens. `prompt` names one of the model's prompts, which is put before each text. Nothing is recorded, so that many
--- texts need no more memory than a batch; for embeddings with gradients call the model itself.
function sentences.encode(...) return encode(...) end

--- The same in slices of options.ms milliseconds (2): an object with advance(ms), which returns whether all is done,
--- and then result. The texts are computed one by one; the last bits may differ from those of encode's batches.
function sentences.encode_steps(self, list, options, ...)
  E.check_self(self, "encode_steps")
  local ms, prompt, normalize = options_of("encode_steps", { "ms", "prompt", "normalize" }, 3, self, list, options, ...)
  if type(list) == "table" and not E.is_module(list) then
    local own = {}
    for i, text in ipairs(list) do
      if i % 1024 == 0 then E.check_cancel "encode_steps" end
      own[i] = text
    end
    list = own -- the caller may change its own
  end
  return slices.new(slices.budget(ms, "encode_steps"), function()
    return encode(self, list, { prompt = prompt, normalize = normalize })
  end)
end

return sentences
