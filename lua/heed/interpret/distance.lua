--- Source: Vig and Belinkov, arXiv:1906.04284, section 4.3.

local core = require "heed.core"
local weights_of = require "heed.interpret.weights"

--- distance(weights): Σ_j w_ij |i - j|, the mean number of tokens between a query and what it looks at, [.., h, l].
return function(weights, ...)
  core.modules.options("distance", {}, 2, weights, ...)
  local w = weights_of.read(weights, "distance")
  local l, s = weights_of.sizes(w, "distance")
  local i, j = core.range(s - l + 1, s):unsqueeze(2), core.range(1, s)
  return (w * (i - j):abs()):sum(-1)
end
