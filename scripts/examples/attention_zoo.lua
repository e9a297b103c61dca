-- Kinds of attention on one small input: six tokens of four numbers, two heads. Prints for each kind how much weight
-- each token (row) gives to each token that it may see (column), in the first head.
local heed = require "heed"
heed.manual_seed(123)
local n, d, heads = 6, 4, 2
local x = heed.randn(1, n, d)

local function show(name, explanation, weights)
  print(("%s: %s"):format(name, explanation))
  for _, row in weights[1][1]:iter() do
    local cells = {}
    for i, w in ipairs(row:tolist()) do cells[i] = w > 0 and ("%5.2f"):format(w) or "    ·" end
    print("  " .. table.concat(cells))
  end
  print()
end

-- All kinds have the same parameters; only the settings differ. more: arguments of the module; options: of the call.
local function attend(name, explanation, more, options)
  local settings = { d_in = d, d_out = d, context_length = 16, dropout = 0, num_heads = heads,
    generator = heed.Generator(5) }
  for key, value in pairs(more) do settings[key] = value end
  options = options or {}
  options.need_weights = true
  local _, info = heed.nn.MultiHeadAttention(settings)(x, options)
  show(name, explanation, info.weights)
end

attend("causal", "a token sees itself and those before it, as in every decoder", {})
attend("bidirectional", "every token sees every token, as in encoders", { causal = false })
attend("window", "itself and two tokens before it: long texts cost no more than short ones (Mistral)",
  { window = { left = 2 } })
attend("window on both sides", "one token to the left and one to the right, for encoders of long texts",
  { causal = false, window = { left = 1, right = 1 } })
attend("softcap", "scores are kept within ±0.1, so that no token takes everything (Gemma 2, with 50)",
  { softcap = 0.1 })
attend("ALiBi", "the farther a token, the lower its score; replaces positions (MPT, BLOOM)", { alibi = true })
attend("rope", "queries and keys are rotated by their positions, so that scores depend on distances (Llama)",
  { rope = {} })
attend("stretched rope", "the same rotation four times slower, for texts four times as long",
  { rope = { scaling = { type = "linear", factor = 4 } } })
attend("sinks", "an extra score takes weight and gives nothing: rows add up to less than 1 (gpt-oss)", { sinks = true })
attend("grouped queries", "both heads share one key and value head, which halves the cache (Llama 2 70B)",
  { num_kv_heads = 1 })
attend("QK norm", "queries and keys are normalized before their product (Qwen 3)", { qk_norm = true })
attend("scale", "scores times 4 instead of 1/√head_dim: a sharper choice", { scale = 4 })
attend("cross attention", "tokens attend to another text, here of four tokens",
  { causal = false }, { key = heed.randn(1, 4, d) })
attend("padding", "the last two tokens only fill up a batch and are hidden", { causal = false },
  { key_padding_mask = heed.tensor({ { 0, 0, 0, 0, 1, 1 } }):bool() })
attend("mask", "any pattern: here the token itself and every second one (true means visible)", { causal = false },
  { attn_mask = ((heed.range(1, n) - heed.range(1, n):unsqueeze(2)) % 2):eq(0) })
attend("prefix", "the first three tokens see each other, and the rest is causal", { causal = false },
  { attn_mask = heed.mask.prefix(3) })
attend("documents", "two texts in a row, neither of which sees the other", {},
  { attn_mask = heed.mask.documents { 2, 4 } })
