---@meta _
-- Tensors: changing the shape, splitting, selecting elements. Lists of sizes and dimensions are given as separate
-- integers or as one table. A dimension or an index out of range raises an error.

---Tensors have these as methods and heed as functions.
---@class heed.Views
local Tensor = {}

-- ---- Views: no elements are copied ----

---The same elements in another shape, as a view. One size may be -1: it is inferred from the number of elements. Raises
---an error if the strides of x do not allow a view; use reshape then.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:view(...) end

---Like view, but copies the elements if a view is impossible.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:reshape(...) end

---Repeats dimensions of size 1 up to the given sizes, without copying. Further dimensions may be added in front; -1
---keeps a size.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:expand(...) end

---Reorders the dimensions: x:permute(3, 1, 2) of x [a, b, c] gives [c, a, b].
---@overload fun(self: heed.Tensor, dims: integer[]): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:permute(...) end

---Exchanges two dimensions.
---@param dim1 integer
---@param dim2 integer
---@return heed.Tensor
---@nodiscard
function Tensor:transpose(dim1, dim2) end

---The transpose of a matrix. A tensor with fewer than two dimensions is returned as a view; more are an error.
---@return heed.Tensor
---@nodiscard
function Tensor:t() end

---The `length` elements of dimension `dim` that begin at `start`.
---@param dim integer
---@param start integer
---@param length integer
---@return heed.Tensor
---@nodiscard
function Tensor:narrow(dim, start, length) end

---Element `index` of dimension `dim`, which is removed from the shape. Always returns a tensor, possibly one without
---dimensions.
---@param dim integer
---@param index integer
---@return heed.Tensor
---@nodiscard
function Tensor:select(dim, index) end

---Inserts a dimension of size 1 at `dim`.
---@param dim integer
---@return heed.Tensor
---@nodiscard
function Tensor:unsqueeze(dim) end

---Removes all dimensions of size 1, or only `dim` if its size is 1.
---@param dim? integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:squeeze(dim) end

---@class heed.FlattenOptions
---@field start_dim? integer 1 by default
---@field end_dim? integer -1 by default

---Merges the dimensions start_dim to end_dim into one. Copies the elements if a view is impossible.
---@param start_dim? integer|heed.FlattenOptions
---@param end_dim? integer
---@return heed.Tensor
---@nodiscard
function Tensor:flatten(start_dim, end_dim) end

---Splits a dimension into views of `size` elements each, the last possibly shorter, or of the sizes in a table, which
---must add up to the size of the dimension.
---@param size integer|integer[]
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor[]
---@nodiscard
function Tensor:split(size, dim) end

---Splits a dimension into views of equal size, the last possibly shorter; at most `chunks` of them, as in PyTorch.
---@param chunks integer
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor[]
---@nodiscard
function Tensor:chunk(chunks, dim) end

-- ---- Selecting elements: the results are copies ----

---The slices of dimension `dim` whose numbers are in `index`, in that order.
---@param dim integer
---@param index heed.Tensor int64 [k], counted from 1
---@return heed.Tensor
---@nodiscard
function Tensor:index_select(dim, index) end

---out[…, i, …] = x[…, index[…, i, …], …], where i is the index into dimension `dim`.
---@param dim integer
---@param index heed.Tensor int64, counted from 1, with as many dimensions as x and no larger in any other dimension
---@return heed.Tensor
---@nodiscard
function Tensor:gather(dim, index) end

---The elements or slices of x where mask is true, like `x[mask]`.
---@param mask heed.Tensor bool, with the shape of x's first dimensions
---@return heed.Tensor out [count, remaining sizes of x…]
---@nodiscard
function Tensor:masked_select(mask) end

---Repeats each slice of dimension `dim` `repeats` times; without dim, each element of x flattened.
---@param repeats integer
---@param dim? integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:repeat_interleave(repeats, dim) end
