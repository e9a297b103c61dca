---@meta _
-- Tensors: elementwise operations on x, the tensor before the colon. An operand is a tensor, a number or a boolean;
-- shapes broadcast, and the result has the wider dtype, in the order bool, int64, float32. "float32" after a formula
-- means that the result is float32 whatever the dtype of x. The low-precision dtypes (bfloat16, float16, int8) raise an
-- error: convert them with x:float() first. So do shapes that do not broadcast. A method whose name ends in an
-- underscore works in place: it writes the result into x, which must have its shape and a dtype that can hold it, and
-- returns x.

---What tensors have as methods and heed has as functions: heed.exp(x) is x:exp().
---@class heed.Elementwise
local Tensor = {}

-- ---- Elementwise ----

---e^x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:exp() end

---The natural logarithm of x; float32. Negative x gives nan, 0 gives -inf.
---@return heed.Tensor
---@nodiscard
function Tensor:log() end

---√x; float32. Negative x gives nan.
---@return heed.Tensor
---@nodiscard
function Tensor:sqrt() end

---1 / √x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:rsqrt() end

---The absolute value |x|, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:abs() end

---The negative -x, in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:neg() end

---The sine of x in radians; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sin() end

---The cosine of x in radians; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:cos() end

---The hyperbolic tangent of x; float32.
---@return heed.Tensor
---@nodiscard
function Tensor:tanh() end

---The logistic sigmoid 1 / (1 + e^-x); float32.
---@return heed.Tensor
---@nodiscard
function Tensor:sigmoid() end

---max(x, 0), in the dtype of x: float32 or int64.
---@return heed.Tensor
---@nodiscard
function Tensor:relu() end

---x · sigmoid(x) (SiLU, also called swish); float32.
---@return heed.Tensor
---@nodiscard
function Tensor:silu() end

---Whether x is 0, elementwise; bool.
---@return heed.Tensor
---@nodiscard
function Tensor:logical_not() end

---The Gaussian error linear unit x · Φ(x), where Φ is the normal distribution function; "tanh" selects the usual
---approximation. float32.
---@param approximate? "none"|"tanh"|{ approximate: "none"|"tanh" }
---@return heed.Tensor
---@nodiscard
function Tensor:gelu(approximate) end

---Whether x is nan, elementwise; bool.
---@return heed.Tensor
---@nodiscard
function Tensor:isnan() end

---Whether x is inf or -inf, elementwise; bool.
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

---x / other; float32. Division by 0 gives inf, -inf or nan.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:div(other) end

---x % other; the result has the sign of the divisor, as in Lua.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:remainder(other) end

---x raised to the power of other.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:pow(other) end

---The larger of x and other, elementwise; nan if either is nan.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:maximum(other) end

---The smaller of x and other, elementwise; nan if either is nan.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:minimum(other) end

---x == other, elementwise; bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:eq(other) end

---x ~= other, elementwise; bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:ne(other) end

---x < other, elementwise; bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:lt(other) end

---x <= other, elementwise; bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:le(other) end

---x > other, elementwise; bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:gt(other) end

---x >= other, elementwise; bool.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:ge(other) end

---Whether x and other are both nonzero, elementwise; bool. The operator `&` does the same for bool tensors.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_and(other) end

---Whether x, other or both are nonzero, elementwise; bool. The operator `|` does the same for bool tensors.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_or(other) end

---Whether exactly one of x and other is nonzero, elementwise; bool. The operator `~` does the same for bool tensors.
---@param other heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:logical_xor(other) end

---x limited to [min, max]; either bound may be omitted. nan stays nan.
---@param min? heed.Operand|{ min: heed.Operand?, max: heed.Operand? }
---@param max? heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:clamp(min, max) end

---A copy of x with `value` where mask is true.
---@param mask heed.Tensor bool, broadcast to the shape of x
---@param value number|boolean|heed.Tensor a number, or a tensor without dimensions
---@return heed.Tensor
---@nodiscard
function Tensor:masked_fill(mask, value) end

---`a` where x is true, else `b`; also heed.where(condition, a, b). x must be bool; shapes broadcast.
---@param a heed.Operand
---@param b heed.Operand
---@return heed.Tensor
---@nodiscard
function Tensor:where(a, b) end

---The lower triangle of x, a matrix or a batch of matrices: elements above diagonal number `diagonal` become 0.
---Diagonal 0 is the main one, positive numbers lie above it.
---@param diagonal? integer|{ diagonal: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:tril(diagonal) end

---The upper triangle of x, a matrix or a batch of matrices: elements below diagonal number `diagonal` become 0.
---Diagonal 0 is the main one, positive numbers lie above it.
---@param diagonal? integer|{ diagonal: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:triu(diagonal) end

---Whether x and other have the same shape and equal elements. nan equals nothing.
---@param other heed.Tensor
---@return boolean
---@nodiscard
function Tensor:equal(other) end

---@class heed.CloseOptions
---@field rtol? number relative tolerance; 1e-5 by default
---@field atol? number absolute tolerance; 1e-8 by default
---@field equal_nan? boolean whether nan counts as close to nan; false by default

---Whether |x - other| <= atol + rtol · |other| for all elements. Shapes broadcast.
---@param other heed.Tensor
---@param rtol? number|heed.CloseOptions
---@param atol? number
---@param equal_nan? boolean
---@return boolean
---@nodiscard
function Tensor:allclose(other, rtol, atol, equal_nan) end

-- ---- In place ----

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
