---@meta _
-- Tensors: what they are, asking, reading, writing, converting, life. Dimensions and elements count from 1;
-- a negative one counts from the last. What gives a view shares its elements with the tensor that it comes
-- from.

---float32, int64 and bool are for arithmetic. The others store weights, caches and files: tensors of them are
---converted, copied, viewed, indexed, joined, printed and saved, and read by linear, embedding and attention,
---which widen them to float32; every other function refuses them.
---@alias heed.DType "float32"|"int64"|"bool"|"bfloat16"|"float16"|"int8"
---@alias heed.Operand heed.Tensor|number|boolean
---@alias heed.Nested number|boolean|heed.Tensor|heed.Nested[]
---@alias heed.Index integer|integer[]|heed.Tensor an index, a table of indices and slices, or a tensor

---A shape. Reads like an array, prints as `heed.Size([2, 6, 3])`, compares by its sizes; `shape[-1]` is the
---last.
---@class heed.Size
---@field [integer] integer
---@operator concat(any): string
local Size = {}

---The number of elements of a tensor of this shape.
---@return integer
---@nodiscard
function Size:numel() end

---An array of numbers with a shape. `x[i]` is row i as a view, or a number where x has one dimension;
---`x[{i, j}]` one index each for the first dimensions; `x[{ {2, 4}, {} }]` slices {first, last, step}, both
---ends included, {} being all; `x[mask]` the elements where a bool tensor is true; `x[index]` the rows that
---an int64 tensor names. The same forms can be assigned to, with a number or a tensor that broadcasts.
---`x[#x + 1]` is nil, so that `ipairs(x)` ends. `==` asks whether two are the same elements of the same
---memory; values are compared by `eq` and `equal`.
---@class heed.Tensor: heed.Elementwise
---@field shape heed.Size
---@field dtype heed.DType
---@field ndim integer number of dimensions
---@field T heed.Tensor a view with all dimensions in reverse
---@field is_parameter boolean whether it was made by nn.Parameter or belongs to a module
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
local Tensor = {}

---The shape, or the size of one dimension.
---@overload fun(self: heed.Tensor): heed.Size
---@param dim integer
---@return integer
---@nodiscard
function Tensor:size(dim) end

---The distance in elements between neighbours in each dimension, or in one.
---@overload fun(self: heed.Tensor): integer[]
---@param dim integer
---@return integer
---@nodiscard
function Tensor:stride(dim) end

---The number of elements.
---@return integer
---@nodiscard
function Tensor:numel() end

---The number of dimensions, as `x.ndim`.
---@return integer
---@nodiscard
function Tensor:dim() end

---The one element of a tensor that has just one.
---@return number|boolean
---@nodiscard
function Tensor:item() end

---The elements as nested tables; a number for a tensor of no dimensions.
---@return any
---@nodiscard
function Tensor:tolist() end

---Whether the elements lie in row-major order without gaps.
---@return boolean
---@nodiscard
function Tensor:is_contiguous() end

---`for i, row in x:iter() do`: each row as a view, or each number of a tensor of one dimension.
---@return fun(): integer, any
function Tensor:iter() end

---In another dtype; shares the elements if x has it already. To int64 and int8 the fraction is dropped, nan
---gives 0 and what is beyond the range its nearest end; to bool all but 0 is true; to bfloat16 and float16
---numbers are rounded to the nearest, ties to even.
---@param dtype heed.DType|{ dtype: heed.DType }
---@return heed.Tensor
---@nodiscard
function Tensor:to(dtype) end

---As float32.
---@return heed.Tensor
---@nodiscard
function Tensor:float() end

---As int64.
---@return heed.Tensor
---@nodiscard
function Tensor:long() end

---As bool.
---@return heed.Tensor
---@nodiscard
function Tensor:bool() end

---A row-major copy.
---@return heed.Tensor
---@nodiscard
function Tensor:clone() end

---x itself if it is row-major, else a copy.
---@return heed.Tensor
---@nodiscard
function Tensor:contiguous() end

---Writes `src`, broadcast and converted, into x.
---@param src heed.Operand
---@return heed.Tensor self
function Tensor:copy_(src) end

---Writes one value everywhere.
---@param value number|boolean
---@return heed.Tensor self
function Tensor:fill_(value) end

---Writes 0 everywhere.
---@return heed.Tensor self
function Tensor:zero_() end

---The elements as bytes, little-endian and row-major; heed.from_string reads them.
---@return string
---@nodiscard
function Tensor:to_string() end

---Gives the memory back at once (as `local x <close> = …` does at the end of its block); views of x keep it.
---Using a released tensor is an error.
function Tensor:release() end

---@return boolean
---@nodiscard
function Tensor:is_released() end

---A tensor of x's shape (and dtype, unless given), all 0. As in PyTorch, its dimensions lie in memory in the order of
---those of x; so in all functions …_like.
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function Tensor:zeros_like(options) end

---All 1.
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function Tensor:ones_like(options) end

---Of unspecified content.
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function Tensor:empty_like(options) end

---All `value`.
---@param value number|boolean
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function Tensor:full_like(value, options) end
