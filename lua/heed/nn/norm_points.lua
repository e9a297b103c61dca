--- The points of LayerNorm and RMSNorm, with TransformerLens' meaning:
---   hook_scale       what x, in a LayerNorm x - mean, is divided by: sqrt(mean of squares + eps), [..., 1]
---   hook_normalized  the output of a LayerNorm; x / scale, before the weight, in an RMSNorm

local E = require "heed.nn.entries"
local declared = require "heed.nn.declared_points"
local hooks = require "heed.nn.hooks"
local primitives = require "heed.core".modules

local norms = { NAMES = { "hook_scale", "hook_normalized" } }

local EPSILON = 2 ^ -23 -- of an RMSNorm whose eps is nil: that of float32

function norms.are_in(m)
  if E.record(m) then return false end
  local class = E.class_name(m)
  return class == "LayerNorm" or class == "RMSNorm"
end

--- m:forward(x, ...) of a norm with listeners. Unless one of them changes something, the result is the module's own.
function norms.forward(m, ...)
  local y, x = primitives.forward(m, ...), (...)
  local is_rms = E.class_name(m) == "RMSNorm"
  local at_scale = hooks.list(m, "points", "hook_scale")
  local at_normalized = hooks.list(m, "points", "hook_normalized")
  if not at_scale and not is_rms then return declared.call(m, "hook_normalized", y, at_normalized) end

  local dims = {}
  for i = 1, #m.normalized_shape do dims[i] = -i end
  local centred = is_rms and x or x - x:mean(dims, true)
  local scale = ((centred * centred):mean(dims, true) + (m.eps or EPSILON)):sqrt()
  local changed = declared.call(m, "hook_scale", scale, at_scale)
  if is_rms then
    local normalized = centred / changed
    local result = declared.call(m, "hook_normalized", normalized, at_normalized)
    if changed == scale and result == normalized then return y end
    return m.weight and result * m.weight or result
  end
  if changed ~= scale then
    y = centred / changed
    if m.weight then y = y * m.weight end
    if m.bias then y = y + m.bias end
  end
  return declared.call(m, "hook_normalized", y, at_normalized)
end

return norms
