--- Classification heads of encoders: the settings, the logits of texts and of pairs (cross-encoders), scores and
--- labels. Shape legend: b batch, n tokens, d hidden_size.

local core = require "heed.core"
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local texts = require "heed.models.texts"
local options_of, fail = core.modules.options, E.fail

local classifier = {}

-- ---- Settings -----------------------------------------------------------------------------------

classifier.settings = {
  architectures = { kind = "table", optional = true },
  classifier_dropout = { kind = "number", optional = true }, -- hidden_dropout_prob by default
  id2label = { kind = "table", optional = true },
  num_labels = { kind = "size", optional = true },
  problem_type = {
    kind = { "regression", "single_label_classification", "multi_label_classification" }, optional = true,
  },
  sbert_ce_default_activation_function = { kind = "string", optional = true },
  sentence_transformers = { kind = "table", optional = true },
}

-- The functions of logits [b, labels].
local FUNCTIONS = {
  none = function(x) return x end,
  sigmoid = function(x) return x:sigmoid() end,
  softmax = function(x) return x:softmax(-1) end,
  tanh = function(x) return x:tanh() end,
}

-- The same by the last part of PyTorch's names.
local OF_TORCH = { Identity = "none", Sigmoid = "sigmoid", Softmax = "softmax", Tanh = "tanh" }

--- The labels, a list, of id2label; nil and a problem.
local function labels_of(id2label, count)
  local labels = {}
  for i = 1, count do
    local label = id2label[tostring(i - 1)]
    if label == nil then label = id2label[i - 1] end
    if type(label) ~= "string" and type(label) ~= "number" then
      return nil, ("id2label has %s for %d; it must be a string"):format(E.what(label), i - 1)
    end
    labels[i] = tostring(label)
  end
  return labels
end

--- Adds to `further` what follows from the settings: num_labels, labels, has_classifier, score_function and
--- class_function. Returns a problem, or nil.
function classifier.complete(c, _, further)
  local named = c.id2label or {}
  local count = 0
  for _ in pairs(named) do count = count + 1 end
  if c.num_labels and count > 0 and c.num_labels ~= count then
    return ("num_labels is %d and id2label has %s; they must be equal"):format(c.num_labels, E.count(count, "label"))
  end
  further.num_labels = c.num_labels or count > 0 and count or 2
  local labels, problem = labels_of(named, count)
  if problem then return problem end
  for i = count + 1, further.num_labels do labels[i] = ("LABEL_%d"):format(i - 1) end
  further.labels = labels

  local class = c.architectures and c.architectures[1]
  further.has_classifier = type(class) == "string" and class:find "ForSequenceClassification$" ~= nil

  local newer = c.sentence_transformers and c.sentence_transformers.activation_fn
  local name = newer or c.sbert_ce_default_activation_function
  further.score_function = further.num_labels == 1 and "sigmoid" or "none"
  if name ~= nil then
    further.score_function = OF_TORCH[type(name) == "string" and configs.class_name(name) or 1]
    if not further.score_function then
      return ("%s is %s; it must be PyTorch's Identity, Sigmoid, Softmax or Tanh")
        :format(newer and "sentence_transformers.activation_fn" or "sbert_ce_default_activation_function", E.what(name))
    end
  end
  if c.problem_type == "regression" then
    further.class_function = "none"
  elseif c.problem_type == "multi_label_classification" or further.num_labels == 1 then
    further.class_function = "sigmoid"
  else
    further.class_function = "softmax"
  end
end

-- ---- Heads --------------------------------------------------------------------------------------

--- The hidden states [b, d] of the first tokens of hidden [b, n, d], or [d] of [n, d].
function classifier.first(method, hidden)
  if E.kind(hidden) ~= "tensor" or hidden.ndim < 2 then
    E.reject(method, "hidden", hidden, "a tensor [n, d] or [b, n, d]")
  end
  return hidden:select(-2, 1)
end

--- The pooled output [b, d] of the first tokens' hidden states [b, d].
function classifier.pooled(self, first)
  local x = self.pooler(first)
  return self.pooled_by == "relu" and x:relu() or x:tanh()
end

--- The logits [b, labels] of the first tokens' hidden states [b, d].
function classifier.logits(self, method, first)
  if not self.classifier then
    fail("%s: the model has no classifier; it must be a model for sequence classification", method)
  end
  if self.drops_first then first = self.classifier_dropout(first) end
  return self.classifier(self.classifier_dropout(classifier.pooled(self, first)))
end

--- The logits [n, labels] of a list of n texts or pairs.
local function logits_of(self, method, list, argument)
  E.check_self(self, method)
  if not self.classifier then classifier.logits(self, method) end
  list = texts.check(self, method, list, argument, true)
  return texts.map(self, method, list, self.config.num_labels, function(hidden, lengths)
    return classifier.logits(self, method, hidden:index_select(1, texts.first_rows(lengths)))
  end)
end

--- The function of that name, an option; `default` if it is nil.
local function function_of(method, option, name, default)
  if name == nil then name = default end
  if not FUNCTIONS[name] then E.reject(method, option, name, "none, sigmoid, softmax or tanh") end
  return FUNCTIONS[name]
end

--- The scores [n] of a list of n pairs of texts {a, b}, or of texts; [n, labels] if the model has several labels. The
--- option `activation` is that of config.json by default, otherwise sigmoid for one label and none for several.
classifier.score = texts.unrecorded(function(self, list, ...)
  local activation = options_of("score", { "activation" }, 3, self, list, ...)
  local f = function_of("score", "activation", activation, self.config.score_function)
  local scores = f(logits_of(self, "score", list, "pairs"))
  return self.config.num_labels == 1 and scores:squeeze(2) or scores
end)

--- The most probable label of each text or pair of a list: {label =, score =}; with top_k, the list of the top_k most
--- probable ones. function_to_apply gives scores from logits: softmax, or sigmoid for one label and for problem_type
--- "multi_label_classification", none for "regression".
classifier.classify = texts.unrecorded(function(self, list, ...)
  local top_k, name = options_of("classify", { "top_k", "function_to_apply" }, 3, self, list, ...)
  E.check_self(self, "classify")
  local count = self.config.num_labels
  if top_k ~= nil and not (type(top_k) == "number" and top_k % 1 == 0 and top_k >= 1) then
    E.reject("classify", "top_k", top_k, "an integer of at least 1")
  end
  local f = function_of("classify", "function_to_apply", name, self.config.class_function)
  local scores = f(logits_of(self, "classify", list, "texts"))
  local results = {}
  if scores.shape[1] == 0 then return results end
  local values, indices = scores:topk(math.min(top_k or 1, count), -1)
  values, indices = values:tolist(), indices:tolist()
  for i, of_text in ipairs(values) do
    local found = {}
    for j, value in ipairs(of_text) do found[j] = { label = self.config.labels[indices[i][j]], score = value } end
    results[i] = top_k and found or found[1]
  end
  return results
end)

return classifier
