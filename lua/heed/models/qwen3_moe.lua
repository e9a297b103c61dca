--- Qwen3's models with experts: `require "heed.models.qwen3_moe".load "Qwen3-30B-A3B"`. Source: arXiv:2505.09388.

local family = require "heed.models.family"
local experts = require "heed.models.experts"

return (family("Qwen3Moe", {
  types = { "qwen3_moe" },
  architectures = { { "Qwen3Moe", "qwen3_moe" } },
  settings = experts.settings {
    num_key_value_heads = { kind = "size", default = 4 },
    max_position_embeddings = { kind = "size", default = 32768 },
    attention_bias = { kind = "boolean", default = false },
    use_sliding_window = { kind = { false }, default = false },
    sliding_window = { optional = true }, -- without meaning if use_sliding_window is false, as the next
    max_window_layers = { optional = true },
    moe_intermediate_size = { kind = "size", default = 768 },
    num_local_experts = { kind = "layers", also = { "num_experts" }, default = 128 },
    num_experts_per_tok = { kind = "size", default = 8 },
    norm_topk_prob = { kind = "boolean", default = false },
    decoder_sparse_step = { kind = { 1 }, default = 1 }, -- all layers have experts
    mlp_only_layers = { kind = "empty", optional = true },
  },
  adjust = experts.check,
  layer = function(c)
    return { rope = c.rope, qk_norm = true, qkv_bias = c.attention_bias, out_bias = c.attention_bias,
      experts = { c.moe_intermediate_size, c.num_local_experts, c.num_experts_per_tok, c.norm_topk_prob } }
  end,
  renames = {
    { "experts%.router", "mlp.gate" },
    { "experts%.experts%.(%d+)%.w1", "mlp.experts.%1.gate_proj" },
    { "experts%.experts%.(%d+)%.w2", "mlp.experts.%1.down_proj" },
    { "experts%.experts%.(%d+)%.w3", "mlp.experts.%1.up_proj" },
  },
}))
