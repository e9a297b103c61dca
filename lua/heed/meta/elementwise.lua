---@meta _
-- Tensors: elementwise operations on x, the tensor before the colon. An operand is a tensor, a number or a boolean;
-- shapes broadcast, and the result has the wider dtype, in the order bool, int64, float32. "float32" after a formula
-- means that the result is float32 whatever the dtype of x. The low-precision dtypes (bfloat16, float16, int8) raise an
-- error: convert them with x:float() first. So do shapes that do not broadcast. A method whose name ends in an
-- underscore works in place: it writes the result into x, which must have its shape and a dtype that can hold it, and
-- returns x.

---Tensors have these as methods and heed as functions: heed.exp(x) is x:exp().
---@class heed.Elementwise
local Tensor = {}

-- ---- Functions ----

---e^x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:exp() end
Tensor.exp_ = Tensor.exp

---The natural logarithm of x; float32. Negative x gives nan, 0 gives -inf.
---@return heed.Tensor
---@nodiscard
function Tensor:log() end
Tensor.log_ = Tensor.log

---√x; float32. Negative x gives nan.
---@return heed.Tensor
---@nodiscard
function Tensor:sqrt() end
Tensor.sqrt_ = Tensor.sqrt

---1 / √x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:rsqrt() end
Tensor.rsqrt_ = Tensor.rsqrt

---The absolute value |x|, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:abs() end
Tensor.abs_ = Tensor.abs

---The negative -x, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:neg() end
Tensor.neg_ = Tensor.neg

---The sine of x in radians; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sin() end
Tensor.sin_ = Tensor.sin

---The cosine of x in radians; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:cos() end
Tensor.cos_ = Tensor.cos

---The hyperbolic tangent of x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:tanh() end
Tensor.tanh_ = Tensor.tanh

---The logistic sigmoid 1 / (1 + e^-x); float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sigmoid() end
Tensor.sigmoid_ = Tensor.sigmoid

---max(x, 0), in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:relu() end
Tensor.relu_ = Tensor.relu

---x · sigmoid(x) (SiLU, also called swish); float32.
---@return heed.Tensor
---@nodiscard
function Tensor:silu() end
Tensor.silu_ = Tensor.silu

---The largest integer that is at most x, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:floor() end
Tensor.floor_ = Tensor.floor

---The smallest integer that is at least x, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:ceil() end
Tensor.ceil_ = Tensor.ceil

---x without its fraction, rounded towards 0, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:trunc() end
Tensor.trunc_ = Tensor.trunc

----1, 0 or 1, as x is negative, 0 or positive, in the dtype of x; 0 for nan.
---@return heed.Tensor
---@nodiscard
function Tensor:sign() end
Tensor.sign_ = Tensor.sign

---x · x; int64 for int64 and bool.
---@return heed.Tensor
---@nodiscard
function Tensor:square() end
Tensor.square_ = Tensor.square

---1 / x; float32. 0 gives inf.
---@return heed.Tensor
---@nodiscard
function Tensor:reciprocal() end
Tensor.reciprocal_ = Tensor.reciprocal

---2^x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:exp2() end
Tensor.exp2_ = Tensor.exp2

---e^x - 1, accurate near 0; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:expm1() end
Tensor.expm1_ = Tensor.expm1

---The logarithm of x to base 2; float32. Negative x gives nan, 0 gives -inf.
---@return heed.Tensor
---@nodiscard
function Tensor:log2() end
Tensor.log2_ = Tensor.log2

---The logarithm of x to base 10; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:log10() end
Tensor.log10_ = Tensor.log10

---ln (1 + x), accurate near 0; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:log1p() end
Tensor.log1p_ = Tensor.log1p

---The error function, 2 / √π times the integral of e^(-t²) from 0 to x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:erf() end
Tensor.erf_ = Tensor.erf

---x rounded to the nearest integer, or to so many decimals (negative: to tens, hundreds…), ties to even; float32, and
---int64 as it is.
---@param decimals? integer|{ decimals: integer } 0 by default; others for float32 only
---@return heed.Tensor
---@nodiscard
function Tensor:round(decimals) end
Tensor.round_ = Tensor.round

---x with replacements for nan (0 by default), inf and -inf (the largest and the smallest float32), in the dtype of x.
---@param nan? number|{ nan: number?, posinf: number?, neginf: number? } replaces nan; 0 by default
---@param posinf? number replaces inf; the largest float32 by default
---@param neginf? number replaces -inf; the smallest float32 by default
---@return heed.Tensor
---@nodiscard
function Tensor:nan_to_num(nan, posinf, neginf) end
Tensor.nan_to_num_ = Tensor.nan_to_num

-- ---- Comparisons and logic ----

---Whether x is 0, elementwise; bool.
---@return heed.Tensor
---@nodiscard
function Tensor:logical_not() end
Tensor.logical_not_ = Tensor.logical_not

-- ---- Functions ----

---The Gaussian error linear unit x · Φ(x), where Φ is the normal distribution function; "tanh" selects the usual
---approximation. float32.
---@param approximate? "none"|"tanh"|{ approximate: "none"|"tanh" } "none" by default
---@return heed.Tensor
---@nodiscard
function Tensor:gelu(approximate) end
Tensor.gelu_ = Tensor.gelu

-- ---- Comparisons and logic ----

---Whether x is nan, elementwise; bool.
---@return heed.Tensor
---@nodiscard
function Tensor:isnan() end

---Whether x is inf or -inf, elementwise; bool.
---@return heed.Tensor
---@nodiscard
function Tensor:isinf() end

-- ---- Arithmetic ----

---x + alpha · other.
---@param other heed.Operand the second operand
---@param alpha? number|{ alpha: number } 1 by default; an integer unless the result is float32
---@return heed.Tensor
---@nodiscard
function Tensor:add(other, alpha) end
Tensor.add_ = Tensor.add

---x - alpha · other.
---@param other heed.Operand the second operand
---@param alpha? number|{ alpha: number } 1 by default; an integer unless the result is float32
---@return heed.Tensor
---@nodiscard
function Tensor:sub(other, alpha) end
Tensor.sub_ = Tensor.sub

---x · other.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:mul(other) end
Tensor.mul_ = Tensor.mul

---x / other; float32. Division by 0 gives inf, -inf or nan. With a rounding mode, the quotient rounded down ("floor") or
---towards 0 ("trunc"), in the wider dtype.
---@param other heed.Operand the second operand
---@param rounding_mode? "floor"|"trunc"|{ rounding_mode: "floor"|"trunc"|nil } none by default
---@return heed.Tensor
---@nodiscard
function Tensor:div(other, rounding_mode) end
Tensor.div_ = Tensor.div

---x / other rounded down; the operator `//` (Lua 5.3 and later) does the same. int64 must not be divided by 0.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:floor_divide(other) end
Tensor.floor_divide_ = Tensor.floor_divide

---What division leaves, with the sign of x, as in C; `%` and `remainder` have the sign of the divisor.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:fmod(other) end
Tensor.fmod_ = Tensor.fmod

---x + value · a · b; shapes broadcast.
---@param a heed.Operand the first factor
---@param b heed.Operand the second factor
---@param value? number|{ value: number } 1 by default; an integer unless the result is float32
---@return heed.Tensor
---@nodiscard
function Tensor:addcmul(a, b, value) end
Tensor.addcmul_ = Tensor.addcmul

---x + value · a / b; float32. Shapes broadcast.
---@param a heed.Operand the dividend
---@param b heed.Operand the divisor
---@param value? number|{ value: number } 1 by default
---@return heed.Tensor
---@nodiscard
function Tensor:addcdiv(a, b, value) end
Tensor.addcdiv_ = Tensor.addcdiv

---Linear interpolation: x + weight · (other - x); x and other float32. Shapes broadcast.
---@param other heed.Tensor the result where weight is 1
---@param weight heed.Operand usually from 0 to 1
---@return heed.Tensor
---@nodiscard
function Tensor:lerp(other, weight) end
Tensor.lerp_ = Tensor.lerp

---x % other; the result has the sign of the divisor, as in Lua.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:remainder(other) end
Tensor.remainder_ = Tensor.remainder

---x raised to the power of other.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:pow(other) end
Tensor.pow_ = Tensor.pow

---The larger of x and other, elementwise; nan if either is nan.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:maximum(other) end
Tensor.maximum_ = Tensor.maximum

---The smaller of x and other, elementwise; nan if either is nan.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:minimum(other) end
Tensor.minimum_ = Tensor.minimum

-- ---- Comparisons and logic ----

---x == other, elementwise; bool.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:eq(other) end
Tensor.eq_ = Tensor.eq

---x ~= other, elementwise; bool.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:ne(other) end
Tensor.ne_ = Tensor.ne

---x < other, elementwise; bool.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:lt(other) end
Tensor.lt_ = Tensor.lt

---x <= other, elementwise; bool.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:le(other) end
Tensor.le_ = Tensor.le

---x > other, elementwise; bool.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:gt(other) end
Tensor.gt_ = Tensor.gt

---x >= other, elementwise; bool.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:ge(other) end
Tensor.ge_ = Tensor.ge

---Whether x and other are both nonzero, elementwise; bool. The operator `&` does the same for bool tensors.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_and(other) end
Tensor.logical_and_ = Tensor.logical_and

---Whether x, other or both are nonzero, elementwise; bool. The operator `|` does the same for bool tensors.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_or(other) end
Tensor.logical_or_ = Tensor.logical_or

---Whether exactly one of x and other is nonzero, elementwise; bool. The operator `~` does the same for bool tensors.
---@param other heed.Operand the second operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_xor(other) end
Tensor.logical_xor_ = Tensor.logical_xor

-- ---- Limits, masks and choices ----

---x limited to [min, max]; either bound may be omitted. nan stays nan.
---@param min? heed.Operand|{ min: heed.Operand?, max: heed.Operand? } the smallest value; none by default
---@param max? heed.Operand the largest value; none by default
---@return heed.Tensor
---@nodiscard
function Tensor:clamp(min, max) end
Tensor.clamp_ = Tensor.clamp
Tensor.clip = Tensor.clamp
Tensor.clip_ = Tensor.clamp

---A copy of x with `value` where mask is true.
---@param mask heed.Tensor bool, broadcast to the shape of x
---@param value number|boolean|heed.Tensor a number, or a tensor without dimensions
---@return heed.Tensor
---@nodiscard
function Tensor:masked_fill(mask, value) end
Tensor.masked_fill_ = Tensor.masked_fill

---`a` where x is true, else `b`; also heed.where(condition, a, b). x must be bool; shapes broadcast.
---@param a heed.Operand the elements where x is true
---@param b heed.Operand those where it is false
---@return heed.Tensor
---@nodiscard
function Tensor:where(a, b) end

---The lower triangle of x, a matrix or a batch of matrices: elements above diagonal number `diagonal` become 0.
---Diagonal 0 is the main one, positive numbers lie above it.
---@param diagonal? integer|{ diagonal: integer } 0 by default
---@return heed.Tensor
---@nodiscard
function Tensor:tril(diagonal) end
Tensor.tril_ = Tensor.tril

---The upper triangle of x, a matrix or a batch of matrices: elements below diagonal number `diagonal` become 0.
---Diagonal 0 is the main one, positive numbers lie above it.
---@param diagonal? integer|{ diagonal: integer } 0 by default
---@return heed.Tensor
---@nodiscard
function Tensor:triu(diagonal) end
Tensor.triu_ = Tensor.triu

-- ---- Comparisons and logic ----

---Whether x and other have the same shape and equal elements. nan equals nothing.
---@param other heed.Tensor what to compare with
---@return boolean
---@nodiscard
function Tensor:equal(other) end

---@class heed.CloseOptions
---@field rtol? number relative tolerance; 1e-5 by default
---@field atol? number absolute tolerance; 1e-8 by default
---@field equal_nan? boolean whether nan counts as close to nan; false by default

---Whether |x - other| <= atol + rtol · |other| for all elements. Shapes broadcast.
---@param other heed.Tensor what to compare with
---@param rtol? number|heed.CloseOptions
---@param atol? number
---@param equal_nan? boolean
---@return boolean
---@nodiscard
function Tensor:allclose(other, rtol, atol, equal_nan) end
