--- Source: Xiao et al., arXiv:2309.17453; Gu et al., arXiv:2410.10781.

local E = require "heed.nn.entries"
local weights_of = require("heed.interpret.weights").read
local options_of = require("heed.core").modules.options

local OPTIONS = { "tokens" }

--- sink_share(weights, {tokens = 1}): Σ_{j ≤ tokens} w_ij, the share of the first tokens, [.., h, l].
return function(weights, ...)
  local tokens = options_of("sink_share", OPTIONS, 2, weights, ...)
  tokens = E.size(tokens, 1, "sink_share", "tokens")
  local w = weights_of(weights, "sink_share")
  local s = w.shape[w.ndim]
  if tokens > s then E.reject("sink_share", "tokens", tokens, "at most %d, the number of keys", s) end
  return w:narrow(-1, 1, tokens):sum(-1)
end
