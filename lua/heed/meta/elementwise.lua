---@meta _
-- Tensors: elementwise arithmetic. Shapes broadcast; dtypes widen from bool to int64 to float32. A name
-- with a trailing underscore writes the result into x and returns x.

---What tensors have as methods and heed has as functions: heed.exp(x) is x:exp().
---@class heed.Elementwise
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
