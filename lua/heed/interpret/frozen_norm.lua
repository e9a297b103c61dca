--- A norm that is linear because its scale is that of one input.

local E = require "heed.nn.entries"

local EPSILON = 2 ^ -23 -- of an RMSNorm whose eps is nil

--- Returns y(c), so that Σ y(c) + bias = norm(x) for parts c that sum to x [b, d], and the bias or nil.
return function(norm, x, method)
  if not norm then return function(c) return c end end
  local class = E.class_name(norm)
  if class ~= "LayerNorm" and class ~= "RMSNorm" then
    E.reject(method, "the model's last norm", norm, "a LayerNorm or an RMSNorm")
  end
  local function centred(c) return class == "LayerNorm" and c - c:mean(-1, true) or c end
  local scale = (centred(x):pow(2):mean(-1, true) + (norm.eps or EPSILON)):sqrt()
  local weight = norm.weight and norm.weight:float()
  return function(c)
    local y = centred(c) / scale
    return weight and y * weight or y
  end, class == "LayerNorm" and norm.bias and norm.bias:float() or nil
end
