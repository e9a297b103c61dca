--- Qwen3: `require "heed.models.qwen3".load "Qwen3-0.6B"`. Llama with norms of the queries and keys of each head.
--- Source: arXiv:2505.09388.

local family = require "heed.models.family"
local windows = require "heed.models.windows"

return (family("Qwen3", {
  types = { "qwen3" },
  architectures = { { "Qwen3", "qwen3" } },
  settings = windows.settings {
    head_dim = { kind = "size", default = 128 },
    max_position_embeddings = { kind = "size", default = 32768 },
    attention_bias = { kind = "boolean", default = false },
  },
  adjust = windows.adjust,
  slides = windows.slides,
  layer = function(c, i)
    return { rope = c.rope, window = windows.of(c, i), qk_norm = true, qkv_bias = c.attention_bias,
      out_bias = c.attention_bias }
  end,
}))
