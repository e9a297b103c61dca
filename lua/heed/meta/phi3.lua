---@meta heed.models.phi3

---The class of Phi-3 and Phi-4-mini models. `Phi3(config)` makes one with fresh weights.
---@class heed.Phi3Class: heed.ModuleClass
---@overload fun(config: heed.Phi3Config): heed.Phi3
local Phi3 = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.Phi3Config replaces config.json, or single settings of a .gguf file
---@return heed.Phi3?
---@return string? problem
function Phi3.load(path, config) end

return Phi3
