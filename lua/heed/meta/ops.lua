---@meta _
-- Tensors: arithmetic. Shapes broadcast; dtypes widen from bool to int64 to float32. A name with a trailing
-- underscore writes the result into x and returns x.

---@class heed.Tensor
local Tensor = {}

-- ---- Elementwise ----

---e^x, float32.
---@return heed.Tensor
---@nodiscard
function Tensor:exp() end

---Natural logarithm, float32.
---@return heed.Tensor
---@nodiscard
function Tensor:log() end

---Square root, float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sqrt() end

---1 / sqrt(x), float32.
---@return heed.Tensor
---@nodiscard
function Tensor:rsqrt() end

---Without the sign.
---@return heed.Tensor
---@nodiscard
function Tensor:abs() end

----x.
---@return heed.Tensor
---@nodiscard
function Tensor:neg() end

---Sine, float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sin() end

---Cosine, float32.
---@return heed.Tensor
---@nodiscard
function Tensor:cos() end

---Hyperbolic tangent, float32.
---@return heed.Tensor
---@nodiscard
function Tensor:tanh() end

---1 / (1 + e^-x), float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sigmoid() end

---x where it is positive, else 0.
---@return heed.Tensor
---@nodiscard
function Tensor:relu() end

---x / (1 + e^-x), float32.
---@return heed.Tensor
---@nodiscard
function Tensor:silu() end

---true where x is 0.
---@return heed.Tensor
---@nodiscard
function Tensor:logical_not() end

---x Φ(x), or its approximation by tanh; float32.
---@param approximate? "none"|"tanh"|{ approximate: "none"|"tanh" }
---@return heed.Tensor
---@nodiscard
function Tensor:gelu(approximate) end

---true where x is not a number.
---@return heed.Tensor
---@nodiscard
function Tensor:isnan() end

---true where x is infinite.
---@return heed.Tensor
---@nodiscard
function Tensor:isinf() end

---x + other.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:add(other) end

---x - other.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:sub(other) end

---x · other.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:mul(other) end

---x / other, float32.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:div(other) end

---x % other, with the sign of the divisor, as in Lua.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:remainder(other) end

---x to the power of other.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:pow(other) end

---The larger of both; nan stays.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:maximum(other) end

---The smaller of both; nan stays.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:minimum(other) end

---x == other, bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:eq(other) end

---x ~= other, bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:ne(other) end

---x < other, bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:lt(other) end

---x <= other, bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:le(other) end

---x > other, bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:gt(other) end

---x >= other, bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:ge(other) end

---Both are not 0, bool; `&` for bool tensors.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_and(other) end

---One is not 0, bool; `|` for bool tensors.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_or(other) end

---Just one is not 0, bool; `~` for bool tensors.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_xor(other) end

---x limited to [min, max]; either may be left out. nan stays.
---@param min? heed.Operand|{ min: heed.Operand?, max: heed.Operand? }
---@param max? heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:clamp(min, max) end

---x, with `value` where mask is true.
---@param mask heed.Tensor bool, broadcasts to x
---@param value number|boolean|heed.Tensor a number, or a tensor of no dimensions
---@return heed.Tensor
---@nodiscard
function Tensor:masked_fill(mask, value) end

---`a` where x (bool) is true, else `b`: heed.where(condition, a, b).
---@param a heed.Operand
---@param b heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:where(a, b) end

---The lower triangle of the last two dimensions, from `diagonal` (0 the main one) down; the rest is 0.
---@param diagonal? integer|{ diagonal: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:tril(diagonal) end

---The upper triangle of the last two dimensions, from `diagonal` (0 the main one) up; the rest is 0.
---@param diagonal? integer|{ diagonal: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:triu(diagonal) end

---Whether both have the same shape and the same elements.
---@param other heed.Tensor
---@return boolean
---@nodiscard
function Tensor:equal(other) end

---@class heed.CloseOptions
---@field rtol? number 1e-5
---@field atol? number 1e-8
---@field equal_nan? boolean whether nan is close to nan; false

---Whether |x - other| <= atol + rtol · |other| everywhere.
---@param other heed.Tensor
---@param rtol? number|heed.CloseOptions
---@param atol? number
---@param equal_nan? boolean
---@return boolean
---@nodiscard
function Tensor:allclose(other, rtol, atol, equal_nan) end

-- ---- Elementwise, in place ----

Tensor.exp_ = Tensor.exp
Tensor.log_ = Tensor.log
Tensor.sqrt_ = Tensor.sqrt
Tensor.rsqrt_ = Tensor.rsqrt
Tensor.abs_ = Tensor.abs
Tensor.neg_ = Tensor.neg
Tensor.sin_ = Tensor.sin
Tensor.cos_ = Tensor.cos
Tensor.tanh_ = Tensor.tanh
Tensor.sigmoid_ = Tensor.sigmoid
Tensor.relu_ = Tensor.relu
Tensor.silu_ = Tensor.silu
Tensor.logical_not_ = Tensor.logical_not
Tensor.gelu_ = Tensor.gelu
Tensor.add_ = Tensor.add
Tensor.sub_ = Tensor.sub
Tensor.mul_ = Tensor.mul
Tensor.div_ = Tensor.div
Tensor.remainder_ = Tensor.remainder
Tensor.pow_ = Tensor.pow
Tensor.maximum_ = Tensor.maximum
Tensor.minimum_ = Tensor.minimum
Tensor.eq_ = Tensor.eq
Tensor.ne_ = Tensor.ne
Tensor.lt_ = Tensor.lt
Tensor.le_ = Tensor.le
Tensor.gt_ = Tensor.gt
Tensor.ge_ = Tensor.ge
Tensor.logical_and_ = Tensor.logical_and
Tensor.logical_or_ = Tensor.logical_or
Tensor.logical_xor_ = Tensor.logical_xor
Tensor.clamp_ = Tensor.clamp
Tensor.masked_fill_ = Tensor.masked_fill
Tensor.tril_ = Tensor.tril
Tensor.triu_ = Tensor.triu

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
---@param weight heed.Tensor [d_out, d_in]
---@param bias? heed.Tensor|{ bias: heed.Tensor } [d_out]
---@return heed.Tensor y [..., d_out]
---@nodiscard
function Tensor:linear(weight, bias) end

-- ---- Attention ----

---@class heed.AttentionOptions
---@field attn_mask? heed.Tensor bool, true takes part; or float32, added; broadcasts to [..., hq, L, S]
---@field dropout_p? number dropout of the weights; 0
---@field is_causal? boolean query i sees keys 1…i; false
---@field scale? number of the scores; 1 / √d
---@field enable_gqa? boolean false forbids groups of heads, which need no switch
---@field generator? heed.Generator of the dropout

---softmax(scale · q kᵀ + mask) v. x is q [..., hq, L, d]; hq is a multiple of hkv, and query head i uses
---key head ceil(i · hkv / hq). A query that sees no key gives zeros; what a hidden place holds, nan
---included, does not matter.
---@param k heed.Tensor [..., hkv, S, d]
---@param v heed.Tensor [..., hkv, S, dv]
---@param options? heed.AttentionOptions
---@return heed.Tensor out [..., hq, L, dv]
---@nodiscard
function Tensor:scaled_dot_product_attention(k, v, options) end
