--- SmolLM3: `require "heed.models.smollm3".load "SmolLM3-3B"`. Llama without positions in every fourth layer.
--- Source: the model's page of Hugging Face.

local E = require "heed.nn.entries"
local family = require "heed.models.family"
local windows = require "heed.models.windows"

--- no_rope_layers[i] is 0 for a layer without positions, and 1 for others.
local function adjust(c)
  windows.adjust(c)
  if not c.no_rope_layers then
    c.no_rope_layers = {}
    for i = 1, c.num_hidden_layers do c.no_rope_layers[i] = i % c.no_rope_layer_interval == 0 and 0 or 1 end
  end
  if #c.no_rope_layers ~= c.num_hidden_layers then
    return ("no_rope_layers has %s; it must have %d, one for each layer"):format(
      E.count(#c.no_rope_layers, "element"), c.num_hidden_layers)
  end
  for i, each in ipairs(c.no_rope_layers) do
    if each ~= 0 and each ~= 1 then
      return ("no_rope_layers: layer %d is %s; it must be 0 or 1"):format(i, E.what(each))
    end
  end
end

local settings = windows.settings {
  num_key_value_heads = { kind = "size", default = 4 },
  max_position_embeddings = { kind = "size", default = 32768 },
  rope_theta = { kind = "positive", default = 2000000 },
  attention_bias = { kind = "boolean", default = false },
  mlp_bias = { kind = "boolean", default = false },
  tie_word_embeddings = { kind = "boolean", default = true },
  no_rope_layers = { kind = "table", optional = true },
  no_rope_layer_interval = { kind = "size", default = 4 },
}
settings.max_window_layers = { kind = "number", optional = true } -- in files, but without effect

return (family("SmolLM3", {
  types = { "smollm3" },
  architectures = { { "SmolLM3", "smollm3" } },
  settings = settings,
  adjust = adjust,
  slides = function(c, i) return c.sliding_window and c.no_rope_layers[i] == 0 end,
  layer = function(c, i)
    return { rope = c.no_rope_layers[i] == 1 and c.rope or nil, window = windows.of(c, i),
      qkv_bias = c.attention_bias, out_bias = c.attention_bias, mlp_bias = c.mlp_bias }
  end,
}))
