--- heed.models.load: a model of any known architecture from its files.

local E = require "heed.nn.entries"

local models = {}

-- The module of each model type, and the beginning of the names of its classes in `architectures`.
local MODULES = {
  bert = { module = "bert", class = "Bert" },
  distilbert = { module = "distilbert", class = "DistilBert" },
  gemma3_text = { module = "gemma3", class = "Gemma3" },
  gpt2 = { module = "gpt2", class = "GPT2" },
  llama = { module = "llama", class = "L[lL][aA][mM][aA]" },
  mistral = { module = "llama", class = "Mistral" },
  mixtral = { module = "mixtral", class = "Mixtral" },
  phi3 = { module = "phi3", class = "Phi3" },
  qwen2 = { module = "qwen2", class = "Qwen2" },
  qwen3 = { module = "qwen3", class = "Qwen3" },
  qwen3_moe = { module = "qwen3_moe", class = "Qwen3Moe" },
  roberta = { module = "roberta", class = "Roberta" },
  smollm3 = { module = "smollm3", class = "SmolLM3" },
  ["xlm-roberta"] = { module = "roberta", class = "XLMRoberta" },
}

local TYPES = {}
for name in pairs(MODULES) do TYPES[#TYPES + 1] = name end
table.sort(TYPES)
TYPES = table.concat(TYPES, ", ")

--- The module of a config: by its model_type, or, without one, by its architectures. Returns nil and a problem.
local function module_of(config)
  local kind, architectures = config.model_type, config.architectures
  local class = type(architectures) == "table" and architectures[1] or nil
  if kind ~= nil then
    if MODULES[kind] then return MODULES[kind].module end
    return nil, ("model_type is %s; it must be one of %s"):format(E.what(kind), TYPES)
  end
  if type(class) ~= "string" then return nil, "model_type is missing; it must be one of " .. TYPES end
  for _, each in pairs(MODULES) do
    for _, head in ipairs { "For", "Model", "LMHead" } do
      if class:find("^" .. each.class .. head) then return each.module end
    end
  end
  local form = "model_type is missing and architectures names %s; it must be a class of %s"
  return nil, form:format(E.what(class), TYPES)
end

--- Loads a model of any known architecture from a folder or a weights file: the class is that of config.json, or of
--- `config`, which replaces it; of a .gguf file that of its metadata, of which `config` replaces single fields.
--- `divide` is as in the classes' load. Returns the model, in evaluation mode, or nil and a message.
function models.load(path, config, divide)
  E.check_type(path, "string", "models.load", "path")
  local loading = require "heed.models.loading" -- not above: some Luas load this file while they load heed.nn
  local gguf = require "heed.models.gguf"
  local folder, file = loading.find("models", path, "model.gguf")
  if not folder then return nil, file end
  local given, name, problem
  if gguf.is(file) then
    local state
    state, problem = loading.weights("models", file)
    if not state then return nil, problem end
    given = {}
    given.model_type, problem = gguf.type(state)
    if problem then return loading.unsupported("models", problem) end
  else
    given, problem = loading.config("models", folder, config)
    if not given then return nil, problem end
  end
  name, problem = module_of(given)
  if not name then return loading.unsupported("models", problem) end
  return require("heed.models." .. name).load(path, config, divide)
end

return E.with_frames(models)
