---@meta heed.models.qwen2

---The class of Qwen2 and Qwen2.5 models. `Qwen2(config)` makes one with fresh weights.
---@class heed.Qwen2Class: heed.ModuleClass
---@overload fun(config: heed.Qwen2Config): heed.Qwen2
local Qwen2 = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.Qwen2Config replaces config.json, or single settings of a .gguf file
---@return heed.Qwen2?
---@return string? problem
function Qwen2.load(path, config) end

return Qwen2
