---@meta _
-- Tensors: shape and dtype, reading, writing, converting, releasing. Dimensions and elements are counted from 1;
-- negative numbers count from the end. A view shares the elements of the tensor it was made from. Wrong arguments
-- raise an error that names the function, the argument, its value and what it must be.

---Weights in the blocks of a GGUF file.
---@alias heed.BlockDType "q4_0"|"q4_1"|"q5_0"|"q5_1"|"q8_0"|"q4_k"|"q5_k"|"q6_k"

---float32, int64 and bool support arithmetic. bfloat16, float16 and int8 are storage formats for weights, caches and
---files: such tensors can be converted, copied, viewed, indexed, joined, printed and saved; linear, embedding and
---attention read them and compute in float32. Every other function raises an error.
---heed.float32, heed.int64, … are these names; heed.float, heed.long and heed.bool, which are functions, will do as well.
---@alias heed.DType "float32"|"int64"|"bool"|"bfloat16"|"float16"|"int8"|heed.BlockDType|function
---@alias heed.Operand heed.Tensor|number|boolean
---@alias heed.Nested number|boolean|heed.Tensor|heed.Nested[]
---@alias heed.Index integer|table|heed.Tensor an index, a table of indices and slices, or a tensor
---Indices or token ids, counted from 1: int64, float32 with whole values, or (nested) tables of integers.
---@alias heed.Indices heed.Tensor|integer[]|heed.Nested[]

---A shape: a read-only array of sizes. `shape[-1]` is the last size; `==` compares all sizes; it prints as
---`heed.Size([2, 6, 3])`.
---@class heed.Size
---@field [integer] integer
---@operator concat(any): string
local Size = {}

---The number of elements of a tensor of this shape.
---@return integer
---@nodiscard
function Size:numel() end

---An array of numbers with a shape. Indexing:
---
---* `x[i]`: row i as a view, or a number if x has one dimension; `x[#x + 1]` is nil, so that `ipairs(x)` ends
---* `x[{i, j}]`: one index for each of the first dimensions
---* `x[{ {2, 4}, {} }]`: slices {first, last, step} with both ends included; {} selects everything
---* `x[mask]`: the elements where a bool tensor is true, as a copy
---* `x[index]`: the rows whose numbers are in a tensor of integers, as a copy
---* `x[{i, j}]` with such tensors, masks, or tables of indices in a table, `{{1, 3}}`: they broadcast, as a copy
---* `x[{"...", 1}]`, `x[{heed.newaxis, {}}]`: "..." stands for all dimensions that are not mentioned
---
---The same forms can be assigned a number or a tensor that broadcasts. `==` tests whether two tensors are the same
---elements in memory; `eq` and `equal` compare values.
---@class heed.Tensor: heed.Contents, heed.Draws, heed.Elementwise, heed.Gradients, heed.Operations, heed.Views
---@field shape heed.Size the sizes, as x:size()
---@field dtype heed.DType such as "float32"
---@field ndim integer the number of dimensions
---@field T heed.Tensor a view with the dimensions in reverse order
---@field mT heed.Tensor a view with the last two dimensions exchanged
---@field is_parameter boolean whether it was made by nn.Parameter or is a module's parameter
---@field requires_grad boolean whether a gradient of it is wanted; can be set where nothing computed it
---@field grad? heed.Tensor its gradient, after a backward pass; can be set
---@field grad_fn? string what computed it, such as "<MulBackward0>"
---@field is_leaf boolean whether no recorded operation computed it
---@field [heed.Index] any
---@operator add(heed.Operand): heed.Tensor
---@operator sub(heed.Operand): heed.Tensor
---@operator mul(heed.Operand): heed.Tensor
---@operator div(heed.Operand): heed.Tensor
---@operator mod(heed.Operand): heed.Tensor
---@operator pow(heed.Operand): heed.Tensor
---@operator unm: heed.Tensor
---@operator band(heed.Tensor|boolean): heed.Tensor
---@operator bor(heed.Tensor|boolean): heed.Tensor
---@operator bxor(heed.Tensor|boolean): heed.Tensor
---@operator bnot: heed.Tensor
---@operator len: integer
---@operator concat(any): string

---Tensors have these as methods and heed as functions: heed.size(x) is x:size().
---@class heed.Contents
local Tensor = {}

-- ---- Shape and storage ----

---The shape, or the size of one dimension.
---@overload fun(self: heed.Tensor): heed.Size
---@param dim integer negative ones count from the last
---@return integer
---@nodiscard
function Tensor:size(dim) end

---The stride of each dimension, or of one: the distance between neighbouring elements, counted in elements.
---@overload fun(self: heed.Tensor): integer[]
---@param dim integer negative ones count from the last
---@return integer
---@nodiscard
function Tensor:stride(dim) end

---The number of elements.
---@return integer
---@nodiscard
function Tensor:numel() end

---The number of elements, like x:numel().
---@return integer
---@nodiscard
function Tensor:nelement() end

---The size of an element in bytes.
---@return integer
---@nodiscard
function Tensor:element_size() end

---The number of dimensions, like `x.ndim`.
---@return integer
---@nodiscard
function Tensor:dim() end

-- ---- Elements ----

---The value of a tensor with exactly one element; an error for any other number of elements.
---@return number|boolean
---@nodiscard
function Tensor:item() end

---The elements as nested tables; a number or boolean if x has no dimensions.
---@return any
---@nodiscard
function Tensor:tolist() end

-- ---- Shape and storage ----

---Whether the elements are stored in row-major order without gaps.
---@return boolean
---@nodiscard
function Tensor:is_contiguous() end

-- ---- Elements ----

---`for i, row in x:iter() do`: iterates over the rows as views, or over the numbers if x has one dimension.
---@return fun(): integer, any
function Tensor:iter() end

-- ---- Dtypes ----

---Converts to the dtype of another tensor.
---@param other heed.Tensor a tensor of the new dtype
---@return heed.Tensor
---@nodiscard
function Tensor:type_as(other) end

---Converts to another dtype, or to that of another tensor. If x has that dtype already, the result shares its elements. Conversion to int64 and int8
---truncates towards 0, clamps to the range and turns nan into 0; to bool, everything but 0 is true; to bfloat16 and
---float16, values are rounded to nearest, ties to even.
---@param dtype heed.DType|heed.Tensor|{ dtype: heed.DType } the new one
---@return heed.Tensor
---@nodiscard
function Tensor:to(dtype) end

---Converts to float32, like x:to "float32".
---@return heed.Tensor
---@nodiscard
function Tensor:float() end

---Converts to int64, like x:to "int64".
---@return heed.Tensor
---@nodiscard
function Tensor:long() end

---Converts to bool, like x:to "bool".
---@return heed.Tensor
---@nodiscard
function Tensor:bool() end

-- ---- Copying and writing ----

---A copy in row-major order.
---@return heed.Tensor
---@nodiscard
function Tensor:clone() end

---x itself if it is in row-major order without gaps, otherwise such a copy.
---@return heed.Tensor
---@nodiscard
function Tensor:contiguous() end

---Writes `src` into x, broadcast to its shape and converted to its dtype.
---@param src heed.Operand what to write
---@return heed.Tensor self
function Tensor:copy_(src) end

---Sets all elements to `value`.
---@param value number|boolean that of every element
---@return heed.Tensor self
function Tensor:fill_(value) end

---Sets all elements to 0.
---@return heed.Tensor self
function Tensor:zero_() end

---The elements as a string of bytes, little-endian and row-major. heed.from_string is the inverse.
---@return string
---@nodiscard
function Tensor:to_string() end

---Releases the tensor without waiting for the garbage collector, as `local x <close> = …` does at the end of its block.
---The memory is freed unless views still use it. Any other use of a released tensor raises an error.
function Tensor:release() end

---Whether release was called.
---@return boolean
---@nodiscard
function Tensor:is_released() end

-- ---- New tensors like another ----

---A tensor filled with 0, of x's shape, and of its dtype unless one is given. As with all functions …_like, and as in
---PyTorch, the dimensions have the same order in memory as those of x.
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function Tensor:zeros_like(options) end

---A tensor filled with 1, of x's shape.
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function Tensor:ones_like(options) end

---A tensor with unspecified contents, of x's shape.
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function Tensor:empty_like(options) end

---A tensor filled with `value`, of x's shape.
---@param value number|boolean that of every element
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function Tensor:full_like(value, options) end

---A tensor filled with 0, of another shape, and of x's dtype unless one is given: x:new_zeros(2, 3).
---@param ... integer|integer[]|heed.MakerOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function Tensor:new_zeros(...) end

---A tensor filled with 1, of another shape.
---@param ... integer|integer[]|heed.MakerOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function Tensor:new_ones(...) end

---A tensor with unspecified contents, of another shape.
---@param ... integer|integer[]|heed.MakerOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function Tensor:new_empty(...) end

---A tensor filled with `fill_value`, of another shape.
---@param size integer|integer[] the sizes
---@param fill_value number|boolean that of every element
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function Tensor:new_full(size, fill_value, options) end

---Like heed.tensor, with x's dtype unless one is given.
---@param data heed.Nested the values
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function Tensor:new_tensor(data, options) end
