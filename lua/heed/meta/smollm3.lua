---@meta heed.models.smollm3

---The class of SmolLM3 models. `SmolLM3(config)` makes one with fresh weights.
---@class heed.SmolLM3Class: heed.ModuleClass
---@overload fun(config: heed.SmolLM3Config): heed.SmolLM3
local SmolLM3 = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.SmolLM3Config replaces config.json, or single settings of a .gguf file
---@return heed.SmolLM3?
---@return string? problem
function SmolLM3.load(path, config) end

return SmolLM3
