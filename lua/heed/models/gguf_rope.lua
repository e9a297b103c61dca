--- The scaling of rotary positions in GGUF files: as the rope_scaling of a config.json, and from the options of a rope.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local state_dict = require "heed.nn.state_dict"

local ropes = {}

local DIVISORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"

--- The names of the tensors with numbers by which frequencies are divided.
ropes.TENSORS = { [DIVISORS] = true, [LONG] = true, [SHORT] = true }

--- The number with the fewest digits that is the same float32: 1e-05 for 9.9999997473788e-06.
function ropes.shortest(value)
  if value ~= value or math.abs(value) == math.huge then return value end -- for the rules of settings to refuse
  local rounded = tonumber(("%.7g"):format(value):gsub(",", ".") .. "")
  return math.abs(rounded - value) <= math.abs(value) * 2 ^ -24 and rounded or value
end

-- What files of Llama 3 do not say, and all its models share: they have the divisors of the frequencies only.
local LLAMA3 = { low_freq_factor = 1, high_freq_factor = 4, original_max_position_embeddings = 8192 }

--- The number by which Llama 3 divides the frequency of pair i, from 0, of `count`.
local function divisor(i, count, base, factor, low, high, original)
  local turns = original * base ^ (-i / count) / (2 * math.pi)
  local kept = math.min(math.max((turns - low) / (high - low), 0), 1)
  return 1 / ((1 - kept) / factor + kept)
end

--- Whether a list of divisors, one for each of `count` pairs of elements, is Llama 3's for its largest element.
local function is_llama3(divisors, base, factor, count)
  if #divisors ~= count then return false end
  for i, each in ipairs(divisors) do
    local want = divisor(i - 1, #divisors, base, factor, LLAMA3.low_freq_factor, LLAMA3.high_freq_factor,
      LLAMA3.original_max_position_embeddings)
    local is_near = math.abs(each / want - 1) <= 1e-4 -- not with nan
    if not is_near then return false end
  end
  return true
end

--- The numbers in a tensor of the file, or nil if there is none; then a problem if it is too large.
local function list_of(state, name)
  if not state_dict.has(state, name) then return nil end
  local tensor = state_dict.get(state, name)
  if tensor.ndim ~= 1 or #tensor > 256 then
    return nil, ("%s has the shape [%s]; it must be [n], with n up to 256"):format(name,
      table.concat(tensor.shape, ", "))
  end
  local list = tensor:float():tolist()
  for i, each in ipairs(list) do list[i] = ropes.shortest(each) end
  return list
end

--- The names for messages of the settings of a scaling.
function ropes.names(architecture, scaling)
  local same = scaling.short_factor == scaling.long_factor
  return {
    factor = architecture .. ".rope.scaling.factor", attention_factor = architecture .. ".rope.scaling.attn_factor",
    original_max_position_embeddings = architecture .. ".rope.scaling.original_context_length",
    short_factor = same and DIVISORS or SHORT, long_factor = same and DIVISORS or LONG,
  }
end

--- The scaling for a tensor of divisors: Llama 3's, or longrope with the same factors for texts of all lengths, which
--- is refused if they are not as many as there are pairs.
local function scaling_of(divisors, base, count)
  local factor = math.max(0, compat.unpack(divisors))
  if not is_llama3(divisors, base, factor, count) then
    return { rope_type = "longrope", short_factor = divisors, long_factor = divisors, attention_factor = 1 }
  end
  local scaling = { rope_type = "llama3", factor = factor }
  for name, value in pairs(LLAMA3) do scaling[name] = value end
  return scaling
end

--- rope_scaling for the keys rope.scaling.* of the architecture and the tensors, or nil; false and a problem if it is
--- of an unknown type. value(key) gives the value of a key; `count` is the number of pairs of elements that rotate.
function ropes.scaling(architecture, value, state, base, count)
  local kind, factor = value "rope.scaling.type", value "rope.scaling.factor" or value "rope.scale_linear"
  local scale, lists = ropes.shortest(value "rope.scaling.attn_factor" or 1), {}
  local original = value "rope.scaling.original_context_length"
  for name in pairs(ropes.TENSORS) do
    local problem
    lists[name], problem = list_of(state, name)
    if problem then return false, problem end
  end
  if kind == "longrope" or lists[LONG] or lists[SHORT] then
    for _, name in ipairs { LONG, SHORT } do
      if not lists[name] then return false, name .. " is missing; longrope needs it" end
    end
    return {
      rope_type = "longrope", short_factor = lists[SHORT], long_factor = lists[LONG], attention_factor = scale,
      original_max_position_embeddings = original,
    }
  end
  if lists[DIVISORS] then return scaling_of(lists[DIVISORS], base, count) end
  if kind == nil and factor and factor ~= 1 then kind = "linear" end
  if kind == nil or kind == "none" then return nil end
  if kind ~= "linear" and kind ~= "yarn" then
    local form = "%s.rope.scaling.type is %s; it must be one of linear, longrope, none, yarn"
    return false, form:format(architecture, E.what(kind))
  end
  if kind == "linear" then return { rope_type = kind, factor = factor } end
  return {
    rope_type = kind, factor = factor, original_max_position_embeddings = original,
    attention_factor = factor and scale ~= 1 and scale * (0.1 * math.log(math.max(factor, 1)) + 1) or nil,
  }
end

-- ---- Saving -------------------------------------------------------------------------------------

--- The divisors of the frequencies for the options of a rope with Llama 3's scaling, as a tensor.
local function divisors_of(rope, head_dim)
  local scaling, list, count = rope.scaling, {}, compat.divide(rope.dims or head_dim, 2)
  for i = 1, count do
    list[i] = divisor(i - 1, count, rope.base, scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
      scaling.original_context_length)
  end
  return core.tensor(list)
end

--- Adds what ropes.scaling reads for the options of a rope and the settings c: set(key, value) sets a key, `state`
--- receives tensors. What GGUF files cannot store is left out.
function ropes.describe(rope, c, set, state)
  local scaling = rope.scaling
  if not scaling then return end
  if scaling.type == "llama3" then
    state[DIVISORS] = divisors_of(rope, c.head_dim)
  elseif scaling.type == "factors" and c.original_max_position_embeddings then
    state[LONG], state[SHORT] = core.tensor(c.long_rope.scaling.factors), core.tensor(c.short_rope.scaling.factors)
    set("rope.scaling.attn_factor", scaling.attention_factor)
  elseif scaling.type == "factors" then
    state[DIVISORS] = core.tensor(scaling.factors)
  elseif scaling.type == "linear" or scaling.type == "yarn" then
    set("rope.scaling.type", scaling.type)
    set("rope.scaling.factor", scaling.factor)
    if scaling.type == "linear" then return end
    local usual = 0.1 * math.log(math.max(scaling.factor, 1)) + 1
    set("rope.scaling.original_context_length", scaling.original_context_length)
    if scaling.attention_factor then set("rope.scaling.attn_factor", scaling.attention_factor / usual) end
  end
end

return ropes
