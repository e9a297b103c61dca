---@meta heed.models.mixtral

---The class of Mixtral models. `Mixtral(config)` makes one with fresh weights.
---@class heed.MixtralClass: heed.ModuleClass
---@overload fun(config: heed.MixtralConfig): heed.Mixtral
local Mixtral = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.MixtralConfig replaces config.json
---@return heed.Mixtral?
---@return string? problem
function Mixtral.load(path, config) end

return Mixtral
