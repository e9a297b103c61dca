--- Rotary positions in a config.json: the settings of rope_scaling, or of rope_parameters in newer files, read into the
--- options of MultiHeadAttention's `rope`.

local configs = require "heed.models.config"

local rope = {}

local RULES = {
  rope_type = { kind = { "default", "linear", "dynamic", "yarn", "llama3" }, also = { "type" }, default = "default" },
  rope_theta = { kind = "positive", optional = true },
  partial_rotary_factor = { kind = { 1 }, default = 1 },
  factor = { kind = "positive", optional = true },
  original_max_position_embeddings = { kind = "size", optional = true },
  beta_fast = { kind = "positive", optional = true },
  beta_slow = { kind = "positive", optional = true },
  attention_factor = { kind = "positive", optional = true },
  mscale = { kind = "number", optional = true },
  mscale_all_dim = { kind = "number", optional = true },
  truncate = { kind = { true }, default = true },
  low_freq_factor = { kind = "positive", optional = true },
  high_freq_factor = { kind = "positive", optional = true },
}

-- The rules of models that may rotate a part of each head.
local PARTIAL = {}
for name, rule in pairs(RULES) do PARTIAL[name] = rule end
PARTIAL.partial_rotary_factor = { kind = "positive", optional = true }

local NEEDED = {
  linear = { "factor" }, dynamic = { "factor" }, yarn = { "factor" },
  llama3 = { "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings" },
}

--- YaRN's attention factor, arXiv:2309.00071; DeepSeek's files give it as two scales.
local function attention_factor(r)
  if r.attention_factor or not (r.mscale and r.mscale_all_dim) or r.mscale == 0 or r.mscale_all_dim == 0 then
    return r.attention_factor
  end
  local function magnitude(scale) return r.factor > 1 and 0.1 * scale * math.log(r.factor) + 1 or 1 end
  return magnitude(r.mscale) / magnitude(r.mscale_all_dim)
end

--- The factor of "dynamic" scaling for a text of max_position_embeddings tokens, used for all lengths. If the original
--- length is unknown it is 1, as in Hugging Face for texts within max_position_embeddings.
local function dynamic_factor(r, c)
  local original = r.original_max_position_embeddings or c.max_position_embeddings
  return math.max(r.factor * c.max_position_embeddings / original - (r.factor - 1), 1)
end

--- The scaling of heed's rope for each type.
local SCALINGS = {
  linear = function(r) return { type = "linear", factor = r.factor } end,
  dynamic = function(r, c) return { type = "ntk", factor = dynamic_factor(r, c) } end,
  yarn = function(r, c)
    return {
      type = "yarn", factor = r.factor, beta_fast = r.beta_fast, beta_slow = r.beta_slow,
      original_context_length = r.original_max_position_embeddings or c.max_position_embeddings,
      attention_factor = attention_factor(r),
    }
  end,
  llama3 = function(r)
    return {
      type = "llama3", factor = r.factor, original_context_length = r.original_max_position_embeddings,
      low_freq_factor = r.low_freq_factor, high_freq_factor = r.high_freq_factor,
    }
  end,
}

--- The elements of each head that are rotated, or nil for all.
local function rotated(r, c)
  local factor = r.partial_rotary_factor or c.partial_rotary_factor or 1
  return factor ~= 1 and math.floor(c.head_dim * factor) or nil
end

--- The options of `rope` for settings (nil: the defaults), which messages call `of`, of a model with the settings c.
--- `base` is used if they have no rope_theta, `partial` allows rotating a part of each head. Returns nil and a problem
--- if there is one.
function rope.read(settings, of, c, base, partial)
  local r, problem = configs.read_all(settings or {}, partial and PARTIAL or RULES, of .. ".")
  if not r then return nil, problem end
  for _, name in ipairs(NEEDED[r.rope_type] or {}) do
    if not r[name] then return nil, ("%s.%s is missing; rope_type %s needs it"):format(of, name, r.rope_type) end
  end
  local scaling = SCALINGS[r.rope_type]
  return {
    base = r.rope_theta or base, dims = rotated(r, c), scaling = scaling and scaling(r, c) or nil,
    style = c.rope_interleaved and "interleaved" or nil,
  }
end

return rope
