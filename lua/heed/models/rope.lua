--- Rotary positions in a config.json: the settings of rope_scaling, or of rope_parameters in newer files, read into the
--- options of MultiHeadAttention's `rope`.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local configs = require "heed.models.config"

local rope = {}

local RULES = {
  rope_type = {
    kind = { "default", "linear", "dynamic", "yarn", "llama3", "longrope", "su" }, -- "su": longrope in older files
    also = { "type" }, default = "default",
  },
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
  short_factor = { kind = "table", optional = true },
  long_factor = { kind = "table", optional = true },
}

-- The rules of models that may rotate a part of each head.
local PARTIAL = {}
for name, rule in pairs(RULES) do PARTIAL[name] = rule end
PARTIAL.partial_rotary_factor = { kind = "positive", optional = true }

local NEEDED = {
  linear = { "factor" }, dynamic = { "factor" }, yarn = { "factor" },
  llama3 = { "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings" },
  longrope = { "short_factor", "long_factor" },
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

--- The context length of the training of a model with longrope. Phi-3 has it outside of rope_scaling.
local function original_length(r, c)
  return c.original_max_position_embeddings or r.original_max_position_embeddings or c.max_position_embeddings
end

--- Longrope divides the frequency of each pair by a factor of its own, for texts of up to the original length by others
--- than for longer ones. Source: arXiv:2402.13753; attention_factor as in Hugging Face.
local function longrope(factors, r, c)
  local original = original_length(r, c)
  local factor = r.factor or c.max_position_embeddings / original
  local usual = factor > 1 and math.sqrt(1 + math.log(factor) / math.log(original)) or 1
  return {
    type = "factors", factors = factors, factor = factor, original_context_length = original,
    attention_factor = r.attention_factor or usual,
  }
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
  longrope = function(r, c)
    local is_long = c.max_position_embeddings > original_length(r, c)
    return longrope(is_long and r.long_factor or r.short_factor, r, c)
  end,
}

--- The elements of each head that are rotated, or nil for all.
local function rotated(r, c)
  local factor = r.partial_rotary_factor or c.partial_rotary_factor or 1
  return factor ~= 1 and math.floor(c.head_dim * factor) or nil
end

--- The problem with the lists of factors, or nil. `pairs_rotated` is the number of elements that each must have;
--- `names` are those for messages.
local function wrong_factors(r, of, names, pairs_rotated)
  for _, each in ipairs { "short_factor", "long_factor" } do
    local list, name = r[each], names[each] ~= each and names[each] or ("%s.%s"):format(of, each)
    if list and r.rope_type ~= "longrope" then
      return ("%s is given; rope_type %s has no use for it"):format(name, r.rope_type)
    end
    if list and #list ~= pairs_rotated then
      return ("%s has %s; it must have %d, one for each pair of elements"):format(name, E.count(#list, "element"),
        pairs_rotated)
    end
    for i = 1, list and #list or 0 do
      local value = list[i]
      if type(value) ~= "number" or not (value > 0 and value < math.huge) then
        return ("%s: element %d is %s; it must be a positive number"):format(name, i, E.what(value))
      end
    end
  end
end

--- The options of `rope` for settings (nil: the defaults), which messages call `of`, of a model with the settings c.
--- `base` is used if they have no rope_theta, `partial` allows rotating a part of each head. Returns nil and a problem
--- if there is one. Longrope has two: those for texts of max_position_embeddings tokens are the first result, both are
--- the third, {short =, long =}.
function rope.read(settings, of, c, base, partial)
  local r, names = configs.read_all(settings or {}, partial and PARTIAL or RULES, of .. ".")
  if not r then return nil, names end
  if r.rope_type == "su" then r.rope_type = "longrope" end
  for _, name in ipairs(NEEDED[r.rope_type] or {}) do
    if not r[name] then return nil, ("%s.%s is missing; rope_type %s needs it"):format(of, name, r.rope_type) end
  end
  local dims, scaling = rotated(r, c), SCALINGS[r.rope_type]
  local problem = wrong_factors(r, of, names, compat.divide(dims or c.head_dim, 2))
  if problem then return nil, problem end
  local function options(by_type)
    return {
      base = r.rope_theta or base, dims = dims, scaling = by_type and by_type(r, c) or nil,
      style = c.rope_interleaved and "interleaved" or nil,
    }
  end
  if r.rope_type ~= "longrope" then return options(scaling) end
  return options(scaling), nil, {
    short = options(function() return longrope(r.short_factor, r, c) end),
    long = options(function() return longrope(r.long_factor, r, c) end),
  }
end

return rope
