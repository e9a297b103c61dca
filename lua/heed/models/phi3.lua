--- Phi-3 and Phi-4-mini: `require "heed.models.phi3".load "Phi-3-mini-4k-instruct"`. Llama whose files join the
--- projections of queries, keys and values, and those of the feed-forward layer. Source: arXiv:2404.14219.

local family = require "heed.models.family"

--- Where the rows of a parameter are in a joined matrix: {first =, count =, total =, part =}.
local function rows_of(name, c)
  local queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
  local hidden = c.intermediate_size
  if name:find "%.W_query%." then return { part = 1, first = 1, count = queries, total = queries + 2 * keys } end
  if name:find "%.W_key%." then return { part = 2, first = queries + 1, count = keys, total = queries + 2 * keys } end
  if name:find "%.W_value%." then
    return { part = 3, first = queries + keys + 1, count = keys, total = queries + 2 * keys }
  end
  if name:find "%.gate%." then return { part = 1, first = 1, count = hidden, total = 2 * hidden } end
  if name:find "%.up%." then return { part = 2, first = hidden + 1, count = hidden, total = 2 * hidden } end
end

return (family("Phi3", {
  types = { "phi3" },
  architectures = { { "Phi3", "phi3" } },
  settings = {
    max_position_embeddings = { kind = "size", default = 4096 },
    original_max_position_embeddings = { kind = "size", default = 4096 }, -- for longrope
    rms_norm_eps = { kind = "positive", default = 1e-5 },
    partial_rotary_factor = { kind = "positive", optional = true },
    sliding_window = { kind = "size", optional = true },
    resid_pdrop = { kind = { 0 }, default = 0 },
    embd_pdrop = { kind = { 0 }, default = 0 },
  },
  partial_rotary = true,
  layer = function(c) return { rope = c.rope, window = c.sliding_window } end,
  renames = {
    { "attention%.W_%l+", "self_attn.qkv_proj" },
    { "(%.%d+)%.gate", "%1.mlp.gate_up_proj" },
    { "(%.%d+)%.up", "%1.mlp.gate_up_proj" },
  },
  form = function(name, _, c) return rows_of(name, c) end,
}))
