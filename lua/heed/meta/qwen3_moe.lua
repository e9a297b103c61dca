---@meta heed.models.qwen3_moe

---The class of Qwen3's models with experts. `Qwen3Moe(config)` makes one with fresh weights.
---@class heed.Qwen3MoeClass: heed.ModuleClass
---@overload fun(config: heed.Qwen3MoeConfig): heed.Qwen3Moe
local Qwen3Moe = {}

---Loads a model from a folder or a weights file, like Llama.load.
---@param path string a folder or a file
---@param config? heed.Qwen3MoeConfig replaces config.json
---@return heed.Qwen3Moe?
---@return string? problem
function Qwen3Moe.load(path, config) end

return Qwen3Moe
