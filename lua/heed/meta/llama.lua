---@meta heed.models.llama

---The class of Llama and Mistral models. `Llama(config)` makes one with fresh weights.
---@class heed.LlamaClass: heed.ModuleClass
---@overload fun(config: heed.LlamaConfig): heed.Llama
local Llama = {}

---Loads a Llama or Mistral from a folder or a weights file, like GPT2.load. All weights are memory-mapped.
---@param path string a folder or a file
---@param config? heed.LlamaConfig replaces config.json, or single settings of a .gguf file
---@return heed.Llama?
---@return string? problem
function Llama.load(path, config) end

return Llama
