--- Mixtral: `require "heed.models.mixtral".load "Mixtral-8x7B-v0.1"`. Mistral whose feed-forward layers are experts.
--- Source: arXiv:2401.04088.

local family = require "heed.models.family"
local experts = require "heed.models.experts"

return (family("Mixtral", {
  types = { "mixtral" },
  architectures = { { "Mixtral", "mixtral" } },
  settings = experts.settings {
    num_key_value_heads = { kind = "size", default = 8 },
    max_position_embeddings = { kind = "size", default = 131072 },
    rms_norm_eps = { kind = "positive", default = 1e-5 },
    rope_theta = { kind = "positive", default = 1000000 },
    sliding_window = { kind = "size", optional = true },
    num_local_experts = { kind = "layers", also = { "num_experts" }, default = 8 },
    num_experts_per_tok = { kind = "size", default = 2 },
    router_jitter_noise = { kind = { 0 }, default = 0 },
  },
  adjust = experts.check,
  layer = function(c)
    return { rope = c.rope, window = c.sliding_window,
      experts = { c.intermediate_size, c.num_local_experts, c.num_experts_per_tok, true } }
  end,
  renames = {
    { "experts%.router", "block_sparse_moe.gate" },
    { "experts%.experts", "block_sparse_moe.experts" },
  },
}))
