---@meta heed.models.distilbert

---The class of DistilBERT models. `DistilBert(config)` makes one with fresh weights.
---@class heed.DistilBertClass: heed.ModuleClass
---@overload fun(config: heed.DistilBertConfig): heed.DistilBert
local DistilBert = {}

---Loads a model from a folder (config.json, model.safetensors or its index, a tokenizer) or from a weights file in one.
---The weights are memory-mapped. Returns the model in evaluation mode, or nil and a message if files are missing, broken
---or contradict each other.
---@param path string a folder or a file
---@param config? heed.DistilBertConfig replaces config.json
---@return heed.DistilBert?
---@return string? problem
function DistilBert.load(path, config) end

return DistilBert
