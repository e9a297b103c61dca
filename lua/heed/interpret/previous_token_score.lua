--- Source: Elhage et al., "A Mathematical Framework for Transformer Circuits" (2021); Olsson et al., arXiv:2209.11895.

local E = require "heed.nn.entries"
local options_of = require("heed.core").modules.options
local weights_of = require "heed.interpret.weights"

--- previous_token_score(weights): the mean of w_{i, i-1} over the queries that have a token before them, [.., h].
return function(weights, ...)
  local method = "previous_token_score"
  options_of(method, {}, 2, weights, ...)
  local w = weights_of.read(weights, method)
  local l, s = weights_of.sizes(w, method)
  if s < 2 then E.reject(method, "weights", w, "of at least 2 keys") end
  return w:diagonal(s - l - 1, -2, -1):mean(-1)
end
