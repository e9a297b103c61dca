--- Source: Vig and Belinkov, arXiv:1906.04284, section 4.3; Clark et al., arXiv:1906.04341.

local E = require "heed.nn.entries"
local weights_of = require("heed.interpret.weights").read
local options_of = require("heed.core").modules.options

local OPTIONS = { "base" }
local SMALLEST = 2 ^ -126 -- so that 0 · log 0 is 0

local function above_one(base) return base > 1 end

--- entropy(weights, {base = e}): -Σ_j w_ij log w_ij, [.., h, l]. 0 for a query that sees one key, log n for one that
--- sees n keys evenly.
return function(weights, ...)
  local base = options_of("entropy", OPTIONS, 2, weights, ...)
  base = E.number(base, math.exp(1), "entropy", "base", above_one, "a number above 1")
  local w = weights_of(weights, "entropy")
  return 0 - (w * w:clamp(SMALLEST):log()):sum(-1) / math.log(base)
end
