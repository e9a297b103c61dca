---@meta heed.interpret
-- Analyses of attention weights and of models. Shape legend: b batch, h heads, l queries, s keys, n tokens, d size of the
-- residual stream, v vocab_size. With l < s, the queries are the last of s tokens.

---Weights [.., h, l, s] or [l, s]; a list of them, one per layer, or a cache of run_with_cache gives the results a first
---dimension, the layers.
---@alias heed.Weights heed.Tensor|heed.Tensor[]|heed.ActivationCache

---@class heed.interpret
local interpret = {}

---The entropy of the weights of each query, -Σ_j w_ij log w_ij. arXiv:1906.04284.
---@param weights heed.Weights of one layer or of several
---@param options? { base: number? } of the logarithm; e by default
---@return heed.Tensor entropy [.., h, l]
---@nodiscard
function interpret.entropy(weights, options) end

---The mean distance to what each query sees, Σ_j w_ij |i - j|. arXiv:1906.04284.
---@param weights heed.Weights of one layer or of several
---@return heed.Tensor distance [.., h, l]
---@nodiscard
function interpret.distance(weights) end

---The weight on the first tokens. arXiv:2309.17453.
---@param weights heed.Weights of one layer or of several
---@param options? { tokens: integer? } how many; 1 by default
---@return heed.Tensor share [.., h, l]
---@nodiscard
function interpret.sink_share(weights, options) end

---How alike the maps of each two heads are. "jensen_shannon": 1 - JS / log 2, the mean over queries; 1 for equal heads, 0
---for heads that share no key. "cosine": of the maps as vectors. arXiv:1906.04341.
---@param weights heed.Weights of one layer or of several
---@param options? { measure: ("jensen_shannon"|"cosine")? } "jensen_shannon" by default
---@return heed.Tensor agreement [.., h, h]
---@nodiscard
function interpret.agreement(weights, options) end

---How much of each input token reaches each position through all layers: the product of residual · I + (1 - residual) · A,
---A being the mean over heads. arXiv:2005.00928. Called rollout(weights, options) or rollout(model, ids, options).
---@param weights heed.Weights a list of layers, [layers, .., h, n, n], or a cache
---@param options? { residual: number? } 0.5 by default
---@return heed.Tensor rollout [.., n, n]
---@overload fun(model: heed.Module, ids: heed.Indices, options?: { residual: number? }): heed.Tensor
---@nodiscard
function interpret.rollout(weights, options) end

---The mean weight on the token before. "A Mathematical Framework for Transformer Circuits" (2021).
---@param weights heed.Weights of one layer or of several
---@return heed.Tensor score [.., h]
---@nodiscard
function interpret.previous_token_score(weights) end

---@class heed.InductionOptions
---@field period? integer after how many tokens the text repeats itself
---@field ids? heed.Indices its tokens [s] or [b, s]

---The mean weight on the tokens that came after earlier occurrences of the query's token. arXiv:2209.11895.
---@param weights heed.Weights of one layer or of several
---@param options heed.InductionOptions one of both
---@return heed.Tensor score [.., h]
---@nodiscard
function interpret.induction_score(weights, options) end

---@class heed.LogitLensOptions
---@field positions? integer|integer[] for these positions only, negative ones from the last; all by default
---@field top? integer return the likeliest tokens instead of the logits; the memory of one layer's logits is needed
---@field decode? fun(id: integer): string the text of a token in the printed table
---@field norm? heed.Module the norm before the logits; the model's part norm or ln_final by default
---@field lm_head? heed.Module from hidden states to logits; the model's part lm_head or unembed by default

---The likeliest tokens of each layer; prints as a table of layers and positions.
---@class heed.TopTokens
---@field ids heed.Tensor int64 [layers + 1, .., positions, k]
---@field probabilities heed.Tensor the same shape
---@field positions integer[] those that are shown

---What the model would say after each layer: lm_head(norm(x)) of the residual stream x before the first layer and after
---each. nostalgebraist, "interpreting GPT: the logit lens" (2020).
---@param model heed.Module a decoder
---@param source heed.Indices|heed.ActivationCache ids, or the cache of a run
---@param options? heed.LogitLensOptions
---@return heed.Tensor|heed.TopTokens logits [layers + 1, .., positions, v]
---@nodiscard
function interpret.logit_lens(model, source, options) end

---@class heed.LogitAttributionOptions
---@field token? integer|heed.Indices the token, or one for each text; the likeliest by default
---@field position? integer negative ones from the last; -1 by default
---@field against? integer|heed.Indices attribute the logit of token less that of this one
---@field heads? boolean each head on its own; false by default

---@class heed.LogitAttribution
---@field labels string[] the c parts: "embed", "attention 1" (or "attention 1.1", …, "attention 1 bias"), "mlp 1", …, "bias"
---@field values heed.Tensor [c], for ids [b, n] [b, c]
---@field total heed.Tensor their sum: the logit, or the difference of two
---@field token heed.Tensor int64

---What each part of the model adds to a logit, the scale of the last norm being kept as it is. "A Mathematical Framework
---for Transformer Circuits" (2021); arXiv:2211.00593.
---@param model heed.Module a decoder
---@param ids heed.Indices of the text
---@param options? heed.LogitAttributionOptions
---@return heed.LogitAttribution
---@nodiscard
function interpret.direct_logit_attribution(model, ids, options) end

---@class heed.PatchingOptions
---@field metric fun(logits: heed.Tensor): number|heed.Tensor what is measured
---@field point? string "resid_pre" by default; "resid_mid", "resid_post", "attn_out", "mlp_out", "mlp.hook_post", or of attention: "z", "q", "k", "v", "pattern", …
---@field normalized? boolean 0 is the corrupted run and 1 the clean one; false by default
---@field layers? integer|integer[] all by default
---@field positions? integer|integer[] all by default; at the points of attention, those at which each head is patched
---@field heads? integer|integer[] at the points of attention; all by default

---The metric of the corrupted run in which a point has, at one layer and position (or head), the value of the clean run.
---Runs the model for each element. arXiv:2202.05262, arXiv:2309.16042.
---@param model heed.Module a decoder
---@param clean_ids heed.Indices of the text that gives the wanted result
---@param corrupted_ids heed.Indices of the same length
---@param options heed.PatchingOptions
---@return heed.Tensor metrics [layers, positions], at the points of attention [layers, heads]
---@return { clean: number, corrupted: number } metrics of the two runs
---@nodiscard
function interpret.activation_patching(model, clean_ids, corrupted_ids, options) end

---activation_patching's result to first order, from two runs and one backward pass: the metric of the corrupted run +
---Σ (clean activation - corrupted activation) · the metric's gradient there. Fast, and wrong where the model is far from
---linear, as at saturated attention. The metric must be a tensor that depends on the logits. The parameters' gradients
---stay as they are. Nanda, "Attribution Patching" (2023); arXiv:2310.10348.
---@param model heed.Module a decoder
---@param clean_ids heed.Indices of the text that gives the wanted result
---@param corrupted_ids heed.Indices of the same length
---@param options heed.PatchingOptions
---@return heed.Tensor metrics [layers, positions], at the points of attention [layers, heads]
---@return { clean: number, corrupted: number } metrics of the two runs
---@nodiscard
function interpret.attribution_patching(model, clean_ids, corrupted_ids, options) end

---@class heed.IntegratedGradientsOptions
---@field metric fun(logits: heed.Tensor): heed.Tensor what is explained: a tensor of one element
---@field baseline? heed.Indices|heed.Tensor where the path begins: other ids, or an activation; zeros by default
---@field steps? integer the points on the path; 50 by default
---@field point? string "hook_embed" by default; for BERT "embed.hook_embed"

---How much each token adds to the metric: (x - baseline) · the mean gradient on the straight line from the baseline to x,
---x being the token embeddings, summed over their last dimension. arXiv:1703.01365.
---@param model heed.Module a decoder
---@param ids heed.Indices of the text
---@param options heed.IntegratedGradientsOptions
---@return heed.Tensor attributions [.., n]; they add up to the difference of the metrics, but for the error
---@return { metric: number, baseline: number, error: number } info the metrics at both ends, and the error of the sum
---@nodiscard
function interpret.integrated_gradients(model, ids, options) end

return interpret
