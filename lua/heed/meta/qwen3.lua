---@meta heed.models.qwen3

---The class of Qwen3 models. `Qwen3(config)` makes one with fresh weights.
---@class heed.Qwen3Class: heed.ModuleClass
---@overload fun(config: heed.Qwen3Config): heed.Qwen3
local Qwen3 = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.Qwen3Config replaces config.json, or single settings of a .gguf file
---@return heed.Qwen3?
---@return string? problem
function Qwen3.load(path, config) end

return Qwen3
