---@meta _
-- Tensors: attention over all keys, over parts of them and over packed sequences, and attention without softmax. x is the
-- tensor before the colon. Shapes that do not fit and dtypes that are not supported raise an error.

---@class heed.Operations
local Tensor = {}

---Sliding-window attention: the keys that a query sees, relative to its own position. A missing side is unbounded.
---@class heed.Window
---@field left? integer at least 0: query i sees no key before i + offset - left
---@field right? integer at least 0: query i sees no key after i + offset + right

---A query sees a key only if mask, causality, window and lengths all allow it. Shapes: L queries, S keys, P past keys,
---hq query heads, hkv key and value heads. The offset of the queries is P with past keys, kv_lengths[b] - L (possibly
---negative) with kv_lengths, and 0 otherwise.
---@class heed.AttentionOptions
---@field attn_mask? heed.Tensor|heed.Mask a mask value, or bool, true where the key is visible; or float32, added to the scores; broadcast to [..., hq, L, P + S]. A mask with fewer keys hides the remaining ones
---@field dropout_p? number dropout probability of the attention weights; 0 by default
---@field is_causal? boolean query i sees keys 1 to i + offset; false by default
---@field scale? number a factor of the scores; 1 / √d by default
---@field enable_gqa? boolean false raises an error if hq and hkv differ; grouped-query attention is always available
---@field generator? heed.Generator draws the dropout mask
---@field window? heed.Window unbounded by default
---@field softcap? number c: scores become c · tanh(score / c), before masks and biases
---@field kv_lengths? heed.Indices [b], each from 0 to S: keys beyond are padding; not together with past keys
---@field past_key? heed.Tensor [..., hkv, P, d], concatenated before k
---@field past_value? heed.Tensor [..., hkv, P, dv], concatenated before v
---@field alibi_slopes? heed.Tensor [hq]: slope · |i + offset - j| is subtracted from the scores (ALiBi)
---@field sinks? heed.Tensor [hq]: attention sinks, an additional logit of each head that has no value
---@field need_weights? boolean|heed.WantedTaps return intermediate results; false by default
---@field need_lse? boolean return the log-sum-exp as taps.lse; false by default

---Intermediate results of attention. Requesting them never changes the output.
---@class heed.AttentionTaps
---@field lse? heed.Tensor with need_lse: log Σ e^score, with the sink; -inf if no key is visible [..., hq, L]
---@field logits heed.Tensor [..., hq, L, P + S]: scale · q kᵀ, including hidden keys
---@field capped_logits heed.Tensor after softcap
---@field biased_logits heed.Tensor after masks, biases and windows; -inf for hidden keys
---@field weights heed.Tensor after softmax, without the sink
---@field present_key heed.Tensor [..., hkv, P + S, d]: past and new keys; without past keys a view of k
---@field present_value heed.Tensor [..., hkv, P + S, dv]: past and new values; without past values a view of v

-- ---- Attention ----

---Scaled dot-product attention, softmax(scale · q kᵀ + mask) v, where x is q [..., hq, L, d]. hq must be a multiple of
---hkv; query head i uses key head ceil(i · hkv / hq). A query that sees no key gives zeros. Hidden keys and values never
---affect the result, even if they are nan. q is float32; k and v may also be bfloat16 or float16.
---@param k heed.Tensor [..., hkv, S, d]
---@param v heed.Tensor [..., hkv, S, dv]
---@param options? heed.AttentionOptions
---@return heed.Tensor out [..., hq, L, dv]
---@return heed.AttentionTaps? taps with need_weights
---@nodiscard
function Tensor:scaled_dot_product_attention(k, v, options) end

-- ---- Linear attention ----

---@class heed.LinearAttentionOptions
---@field rule? "linear"|"gated"|"delta"|"gated_delta" by default the one that takes what is given of decay and beta
---@field decay? heed.Tensor [b, hkv, n], or [b, hkv, n, d] with one for each row of the state: its logarithm, usually at most 0
---@field beta? heed.Tensor [b, hkv, n] or [b, 1, n]: how much of the difference is written (delta rules)
---@field past_state? heed.Tensor [b, hkv, d, dv]: the state that an earlier call left; zeros by default
---@field scale? number of the results; 1/√d by default

---Attention without softmax, whose keys and values are summed in a state S [d, dv], in time proportional to n. x is q
---[b, hq, n, d]; hq must be a multiple of hkv, and query head i reads the state of head ceil(i · hkv / hq). For each token,
---in order: S = e^decay · S; u = v, or beta · (v - Sᵀ k) with a delta rule; S = S + k uᵀ; the result is scale · Sᵀ q. All
---tensors are float32.
---@param k heed.Tensor [b, hkv, n, d]
---@param v heed.Tensor [b, hkv, n, dv]
---@param options? heed.LinearAttentionOptions
---@return heed.Tensor out [b, hq, n, dv]
---@return heed.Tensor state [b, hkv, d, dv] after the last token
---@nodiscard
function Tensor:linear_attention(k, v, options) end

---@class heed.CausalConvOptions
---@field bias? heed.Tensor [channels]
---@field past_state? heed.Tensor [b, channels, k - 1]: the state that an earlier call left; zeros by default
---@field activation? "silu"|"swish"|"none" "none" by default

---Each channel of x [b, channels, n] filtered with its own k taps, the last of which is for the token itself.
---@param weight heed.Tensor [channels, k] or [channels, 1, k]
---@param options? heed.CausalConvOptions
---@return heed.Tensor out [b, channels, n]
---@return heed.Tensor state [b, channels, k - 1]: the last tokens
---@nodiscard
function Tensor:causal_conv(weight, options) end

-- ---- Attention ----

---@class heed.AttentionPartialOptions
---@field attn_mask? heed.Tensor as in heed.AttentionOptions, for the keys of the part
---@field dropout_p? number dropout probability of the attention weights; 0 by default
---@field is_causal? boolean query i sees keys 1 to i + offset of the part; false by default
---@field scale? number a factor of the scores; 1 / √d by default
---@field enable_gqa? boolean false raises an error if hq and hkv differ
---@field generator? heed.Generator draws the dropout mask
---@field window? heed.Window unbounded by default
---@field softcap? number c: scores become c · tanh(score / c), before masks and biases
---@field kv_lengths? heed.Indices [b], each from 0 to S: keys beyond are padding; they do not move the queries
---@field past_key? heed.Tensor [..., hkv, P, d], concatenated before k
---@field past_value? heed.Tensor [..., hkv, P, dv], concatenated before v
---@field alibi_slopes? heed.Tensor [hq]: slope · |i + offset - j| is subtracted from the scores (ALiBi)
---@field sinks? heed.Tensor [hq]: attention sinks; for one part alone
---@field offset? integer position of the first query less that of the first key (P is added to it); 0 by default

---Attention over a part of the keys. Parts over disjoint keys are joined by `heed.attention_merge`. The stats are, for
---each query, the largest score that it sees (a sink counts as one) and the sum of e^(score - largest); -inf and 0 if it
---sees nothing. Their gradient is that of functions of largest + log(sum), such as merging.
---@param k heed.Tensor [..., hkv, S, d]
---@param v heed.Tensor [..., hkv, S, dv]
---@param options? heed.AttentionPartialOptions
---@return heed.Tensor out [..., hq, L, dv]
---@return heed.Tensor stats [..., hq, L, 2]
---@nodiscard
function Tensor:attention_partial(k, v, options) end

---The options of packed sequences. attn_mask broadcasts to [hq, total, S], where S is the largest key length and keys
---count within their sequence; lse is [hq, total], and the maps are [hq, total, S]. Not with kv_lengths, past_key, past_value.
---@class heed.VarlenOptions: heed.AttentionOptions
---@field lengths heed.Indices [b]: the lengths of the sequences in q, which add up to total; may be 0
---@field key_lengths? heed.Indices [b]: those in k and v; as lengths by default

---Attention of packed sequences, one after another without padding, where x is q [total, hq, d]. Each query sees the keys of
---its own sequence; its offset is the key length - the length. Nothing is computed for padding.
---@param k heed.Tensor [total_keys, hkv, d]
---@param v heed.Tensor [total_keys, hkv, dv]
---@param options heed.VarlenOptions
---@return heed.Tensor out [total, hq, dv]
---@return heed.AttentionTaps? taps with need_weights
---@nodiscard
function Tensor:varlen_attention(k, v, options) end
