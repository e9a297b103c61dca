--- Qwen2 and Qwen2.5: `require "heed.models.qwen2".load "Qwen2.5-0.5B"`. Llama with biases in the projections of
--- queries, keys and values, and, if use_sliding_window is true, a window in the layers behind max_window_layers.
--- Source: arXiv:2407.10671.

local family = require "heed.models.family"
local windows = require "heed.models.windows"

return (family("Qwen2", {
  types = { "qwen2" },
  architectures = { { "Qwen2", "qwen2" } },
  settings = windows.settings { max_position_embeddings = { kind = "size", default = 32768 } },
  adjust = windows.adjust,
  slides = windows.slides,
  layer = function(c, i) return { rope = c.rope, window = windows.of(c, i), qkv_bias = true } end,
}))
