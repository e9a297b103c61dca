---@meta heed.models.roberta

---The class of RoBERTa and XLM-RoBERTa models. `Roberta(config)` makes one with fresh weights.
---@class heed.RobertaClass: heed.ModuleClass
---@overload fun(config: heed.RobertaConfig): heed.Roberta
local Roberta = {}

---Loads a model from a folder (config.json, model.safetensors or its index, a tokenizer) or from a weights file in one.
---The weights are memory-mapped. Returns the model in evaluation mode, or nil and a message if files are missing, broken
---or contradict each other.
---@param path string a folder or a file
---@param config? heed.RobertaConfig replaces config.json
---@return heed.Roberta?
---@return string? problem
function Roberta.load(path, config) end

return Roberta
