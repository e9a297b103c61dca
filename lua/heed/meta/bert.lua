---@meta heed.models.bert

---The class of BERT models. `Bert(config)` makes one with fresh weights.
---@class heed.BertClass: heed.ModuleClass
---@overload fun(config: heed.BertConfig): heed.Bert
local Bert = {}

---Loads a model from a folder (config.json, model.safetensors or its index, a tokenizer) or from a weights file in one.
---The weights are memory-mapped. Returns the model in evaluation mode, or nil and a message if files are missing, broken
---or contradict each other.
---@param path string a folder or a file
---@param config? heed.BertConfig replaces config.json
---@return heed.Bert?
---@return string? problem
function Bert.load(path, config) end

return Bert
