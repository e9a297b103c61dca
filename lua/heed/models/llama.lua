--- Llama and Mistral: `require "heed.models.llama".load "TinyLlama"`. Sources: arXiv:2302.13971, arXiv:2310.06825.

local family = require "heed.models.family"

-- Settings that one of the model types has and the other has not.
local OF_TYPE = { sliding_window = "mistral", attention_bias = "llama", mlp_bias = "llama" }

return (family("Llama", {
  types = { "llama", "mistral" },
  architectures = { { "Llama", "llama" }, { "LLaMA", "llama" }, { "Mistral", "mistral" } },
  settings = {
    attention_bias = { kind = "boolean", default = false },
    mlp_bias = { kind = "boolean", default = false },
    sliding_window = { kind = "size", optional = true }, -- none by default
  },
  adjust = function(c)
    for name, of in pairs(OF_TYPE) do
      if c[name] and c.model_type ~= of then
        return ("%s is %s and model_type is '%s'; with this setting it must be '%s'"):format(name, tostring(c[name]),
          c.model_type, of)
      end
    end
    c.max_position_embeddings = c.max_position_embeddings or c.model_type == "mistral" and 131072 or 2048
  end,
  layer = function(c)
    return { rope = c.rope, window = c.sliding_window, qkv_bias = c.attention_bias, out_bias = c.attention_bias,
      mlp_bias = c.mlp_bias }
  end,
}))
