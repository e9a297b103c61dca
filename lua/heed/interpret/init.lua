--- Analyses of attention and of models, `require "heed.interpret"`. Each file is one of them and names its source.
--- Shape legend: b batch, h heads, l queries, s keys, n tokens, d size of the residual stream, v vocab_size.

local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"

--- f, in which nothing is recorded but what f itself records: it changes activations in place, and its result would
--- hold the graphs of all runs.
local function unrecorded(f)
  return function(...)
    if core.is_grad_enabled() then return mode.run(false, nil, f, ...) end
    return f(...)
  end
end

local interpret = {
  -- of attention weights
  entropy = require "heed.interpret.entropy",
  distance = require "heed.interpret.distance",
  sink_share = require "heed.interpret.sink_share",
  agreement = require "heed.interpret.agreement",
  rollout = require "heed.interpret.rollout",
  previous_token_score = require "heed.interpret.previous_token_score",
  induction_score = require "heed.interpret.induction_score",
  -- of models
  logit_lens = require "heed.interpret.logit_lens",
  direct_logit_attribution = require "heed.interpret.direct_logit_attribution",
  activation_patching = unrecorded(require "heed.interpret.activation_patching"),
  attribution_patching = unrecorded(require "heed.interpret.attribution_patching"),
  integrated_gradients = unrecorded(require "heed.interpret.integrated_gradients"),
}

return E.with_frames(interpret, "rollout", "logit_lens", "direct_logit_attribution", "activation_patching",
  "attribution_patching", "integrated_gradients")
