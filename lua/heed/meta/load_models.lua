---@meta heed.models

---@class heed.models
local models = {}

---Loads a model from a folder, a weights file or a .gguf file. Its class is that of config.json: by model_type, or by
---architectures if that is missing; of a .gguf file, by its metadata. Returns nil and a message for unknown architectures, and where the class's own `load` does.
---@param path string a folder or a file
---@param config? heed.DecoderConfig|heed.EncoderConfig replaces config.json, or single settings of a .gguf file
---@return heed.GPT2|heed.Llama|heed.Qwen2|heed.Qwen3|heed.Gemma3|heed.Phi3|heed.SmolLM3|heed.Mixtral|heed.Qwen3Moe|heed.Encoder?
---@return string? problem
function models.load(path, config) end

return models
