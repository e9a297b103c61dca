---@meta heed.models.gemma3

---The class of Gemma 3 (its text models) models. `Gemma3(config)` makes one with fresh weights.
---@class heed.Gemma3Class: heed.ModuleClass
---@overload fun(config: heed.Gemma3Config): heed.Gemma3
local Gemma3 = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.Gemma3Config replaces config.json, or single settings of a .gguf file
---@return heed.Gemma3?
---@return string? problem
function Gemma3.load(path, config) end

return Gemma3
