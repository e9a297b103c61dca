---@meta heed.models.gpt2

---The class of GPT-2 models. `GPT2(config)` makes one with fresh weights.
---@class heed.GPT2Class: heed.ModuleClass
---@overload fun(config: heed.GPT2Config): heed.GPT2
local GPT2 = {}

---Loads a GPT-2 from a folder (config.json, model.safetensors or its index) or from a weights file in one. Matrices are
---copied, since the file stores them transposed; other weights are memory-mapped. Returns the model in evaluation mode,
---or nil and a message if files are missing, broken or contradict each other.
---@param path string a folder or a file
---@param config? heed.GPT2Config replaces config.json
---@return heed.GPT2?
---@return string? problem
function GPT2.load(path, config) end

return GPT2
