---@meta _
-- Tensors: reductions, what goes along a dimension, products, attention.

---@class heed.Tensor
local Tensor = {}

-- ---- Reductions ----

---@class heed.ReduceOptions
---@field dim? integer|integer[] the dimensions that go; all without it
---@field keepdim? boolean leave them with size 1; false

---@class heed.SpreadOptions: heed.ReduceOptions
---@field correction? number the divisor is count - correction; 1
---@field unbiased? boolean false is correction = 0

---The sum; of bool and int64 as int64.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:sum(dim, keepdim) end

---The mean; float32.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:mean(dim, keepdim) end

---Whether one is not 0, bool.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:any(dim, keepdim) end

---Whether none is 0, bool.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:all(dim, keepdim) end

---The variance, with divisor count - correction; float32.
---@param dim? integer|integer[]|heed.SpreadOptions
---@param keepdim? boolean
---@param correction? number
---@return heed.Tensor
---@nodiscard
function Tensor:var(dim, keepdim, correction) end

---The standard deviation, with divisor count - correction; float32.
---@param dim? integer|integer[]|heed.SpreadOptions
---@param keepdim? boolean
---@param correction? number
---@return heed.Tensor
---@nodiscard
function Tensor:std(dim, keepdim, correction) end

---@class heed.DimOptions
---@field dim? integer
---@field keepdim? boolean leave the dimension with size 1; false

---The largest of all elements; with dim the largest along it and their places; with a tensor maximum(x,
---other).
---@overload fun(self: heed.Tensor): heed.Tensor
---@overload fun(self: heed.Tensor, other: heed.Tensor): heed.Tensor
---@param dim integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, from 1
---@nodiscard
function Tensor:max(dim, keepdim) end

---The smallest of all elements; with dim the smallest along it and their places; with a tensor minimum(x,
---other).
---@overload fun(self: heed.Tensor): heed.Tensor
---@overload fun(self: heed.Tensor, other: heed.Tensor): heed.Tensor
---@param dim integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, from 1
---@nodiscard
function Tensor:min(dim, keepdim) end

---The place of the largest along dim, from 1; without dim in x read as one row. The first of equals.
---@param dim? integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor indices int64
---@nodiscard
function Tensor:argmax(dim, keepdim) end

---The place of the smallest along dim, from 1; without dim in x read as one row. The first of equals.
---@param dim? integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor indices int64
---@nodiscard
function Tensor:argmin(dim, keepdim) end

-- ---- Along a dimension ----

---e^x / Σ e^x along dim, float32; a row that is all -inf gives nan.
---@param dim integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:softmax(dim) end

---The logarithm of softmax, float32.
---@param dim integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:log_softmax(dim) end

---Each element the sum of those up to it.
---@param dim integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:cumsum(dim) end

---@class heed.TopkOptions
---@field k? integer
---@field dim? integer -1
---@field largest? boolean true
---@field sorted? boolean the result is in order anyway

---The k largest (or smallest) along dim, in order, and their places.
---@param k integer|heed.TopkOptions
---@param dim? integer|heed.TopkOptions
---@param largest? boolean
---@param sorted? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, from 1
---@nodiscard
function Tensor:topk(k, dim, largest, sorted) end

---@class heed.SortOptions
---@field dim? integer -1
---@field descending? boolean false
---@field stable? boolean equal elements keep their order anyway

---Sorted along dim, and the places that the elements came from.
---@param dim? integer|heed.SortOptions
---@param descending? boolean
---@param stable? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, from 1
---@nodiscard
function Tensor:sort(dim, descending, stable) end

---The places in sorted order: the second result of sort.
---@param dim? integer|heed.SortOptions
---@param descending? boolean
---@param stable? boolean
---@return heed.Tensor indices int64, from 1
---@nodiscard
function Tensor:argsort(dim, descending, stable) end

---@class heed.NormOptions
---@field weight? heed.Tensor [d]
---@field bias? heed.Tensor [d]
---@field eps? number

---(x - mean) / √(var + eps) · weight + bias over the last dimension.
---@param weight? heed.Tensor|heed.NormOptions [d]
---@param bias? heed.Tensor|heed.NormOptions [d]
---@param eps? number 1e-5
---@return heed.Tensor
---@nodiscard
function Tensor:layer_norm(weight, bias, eps) end

---x / √(mean(x²) + eps) · weight over the last dimension.
---@param weight? heed.Tensor|heed.NormOptions [d]
---@param eps? number 2^-23, as in PyTorch
---@return heed.Tensor
---@nodiscard
function Tensor:rms_norm(weight, eps) end

---@class heed.RopeScaling
---@field type "linear"|"ntk"|"yarn"|"llama3" linear: positions / factor; ntk: base · factor^(d / (d - 2))
---@field factor number
---@field original_context_length? integer yarn, llama3: what the model was trained on
---@field beta_fast? number yarn: 32
---@field beta_slow? number yarn: 1
---@field attention_factor? number yarn: what the result is multiplied by; 0.1 · ln(factor) + 1
---@field low_freq_factor? number llama3: 1
---@field high_freq_factor? number llama3: 4

---@class heed.RopeOptions
---@field base? number 10000
---@field style? "half"|"interleaved" pairs (1, d/2 + 1), (2, d/2 + 2)… or (1, 2), (3, 4)…; "half"
---@field dims? integer the first elements of a head, which are turned; all
---@field scaling? heed.RopeScaling

---Rotary positions: pair i of x [..., n, d] turned by the angle (position - 1) · base^(-2 (i - 1) / d).
---@param positions? heed.Tensor|heed.RopeOptions int64 from 1, broadcasts to [..., n]; 1…n
---@param base? number|heed.RopeOptions
---@param style? "half"|"interleaved"|heed.RopeOptions
---@param dims? integer|heed.RopeOptions
---@return heed.Tensor
---@nodiscard
function Tensor:rope(positions, base, style, dims) end

-- ---- Products ----

---Matrix product: [n]·[n], [m, k]·[k], [k]·[k, n] and […, m, k]·[…, k, n], leading dimensions broadcasting.
---@param other heed.Tensor
---@return heed.Tensor
---@nodiscard
function Tensor:matmul(other) end
Tensor.mm = Tensor.matmul
Tensor.bmm = Tensor.matmul

---Σ x · other of two tensors [n].
---@param other heed.Tensor
---@return heed.Tensor
---@nodiscard
function Tensor:dot(other) end

---x [..., d_in] · weightᵀ + bias.
---@param weight heed.Tensor [d_out, d_in]; float32, bfloat16 or float16
---@param bias? heed.Tensor|{ bias: heed.Tensor } [d_out]
---@return heed.Tensor y [..., d_out]
---@nodiscard
function Tensor:linear(weight, bias) end

---A weight in int8, in blocks of 64 columns: an element is weight[{i, j}] · scale[{i, (j - 1) // 64 + 1}]. The
---scale of a block is its largest magnitude / 127, so an element is off by half a scale at most. x is float32
---[rows, columns], without nan and inf.
---@return heed.Tensor weight int8 [rows, columns]
---@return heed.Tensor scale float32 [rows, blocks]
---@nodiscard
function Tensor:quantize_int8() end

---And back, x being the weight.
---@param scale heed.Tensor
---@return heed.Tensor y float32
---@nodiscard
function Tensor:dequantize_int8(scale) end

---linear with such a weight.
---@param weight heed.Tensor int8 [d_out, d_in]
---@param scale heed.Tensor float32 [d_out, blocks]
---@param bias? heed.Tensor|{ bias: heed.Tensor } [d_out]
---@return heed.Tensor y [..., d_out]
---@nodiscard
function Tensor:linear_int8(weight, scale, bias) end

---Rows of weight, x being their numbers, from 1: int64 of any shape.
---@param weight heed.Tensor [size, d]; float32, bfloat16 or float16
---@return heed.Tensor y float32 [x's sizes..., d]
---@nodiscard
function Tensor:embedding(weight) end

-- ---- Attention ----

---Which keys around its own place a query sees; a side that is absent sees all.
---@class heed.Window
---@field left? integer at least 0: query i sees keys from i + offset - left on
---@field right? integer at least 0: query i sees keys up to i + offset + right

---A place is seen only if mask, causality, window and lengths all say so. The offset of the queries is the past
---length with past keys, kv_lengths[b] - L with lengths (it may be negative), else 0.
---@class heed.AttentionOptions
---@field attn_mask? heed.Tensor bool, true takes part; or float32, added; broadcasts to [..., hq, L, P + S]; fewer keys hide the rest
---@field dropout_p? number dropout of the weights; 0
---@field is_causal? boolean query i sees keys 1…i + offset; false
---@field scale? number of the scores; 1 / √d
---@field enable_gqa? boolean false forbids groups of heads, which need no switch
---@field generator? heed.Generator of the dropout
---@field window? heed.Window
---@field softcap? number c: scores become c · tanh(score / c), before masks and biases
---@field kv_lengths? heed.Tensor int64 [b], from 0 to S: keys beyond are padding; not together with past keys
---@field past_key? heed.Tensor [..., hkv, P, d], put before k
---@field past_value? heed.Tensor [..., hkv, P, dv], put before v
---@field alibi_slopes? heed.Tensor [hq]: slope · |i + offset - j| is taken off of the scores
---@field sinks? heed.Tensor [hq]: a logit that takes weight and gives no value
---@field need_weights? boolean a second result; false

---What attention computed on the way; asking never changes the result.
---@class heed.AttentionTaps
---@field logits heed.Tensor [..., hq, L, P + S]: scale · q kᵀ, also of places that are not seen
---@field capped_logits heed.Tensor after softcap
---@field biased_logits heed.Tensor after masks, biases and windows; -inf where a place is not seen
---@field weights heed.Tensor after softmax, without the sink's share
---@field present_key heed.Tensor [..., hkv, P + S, d]: past and new ones
---@field present_value heed.Tensor [..., hkv, P + S, dv]

---softmax(scale · q kᵀ + mask) v. x is q [..., hq, L, d]; hq is a multiple of hkv, and query head i uses
---key head ceil(i · hkv / hq). A query that sees no key gives zeros; what a hidden place holds, nan
---included, does not matter. k and v may be bfloat16 or float16.
---@param k heed.Tensor [..., hkv, S, d]
---@param v heed.Tensor [..., hkv, S, dv]
---@param options? heed.AttentionOptions
---@return heed.Tensor out [..., hq, L, dv]
---@return heed.AttentionTaps taps with need_weights
---@nodiscard
function Tensor:scaled_dot_product_attention(k, v, options) end
