---@meta _
-- Tensors: shapes, joining, cutting, picking. Sizes and dimensions are given as numbers or as one table.

---@class heed.Tensor
local Tensor = {}

-- ---- Views: no elements are copied ----

---The same elements in another shape; one size may be -1. An error where that needs a copy: then use reshape.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:view(...) end

---view, or a copy where a view cannot be had.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:reshape(...) end

---Sizes of 1 stretched, without copying; there may be more dimensions in front; -1 keeps a size.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:expand(...) end

---The dimensions in the order given: x:permute(3, 1, 2).
---@overload fun(self: heed.Tensor, dims: integer[]): heed.Tensor
---@param ... integer
---@return heed.Tensor
---@nodiscard
function Tensor:permute(...) end

---Two dimensions exchanged.
---@param dim1 integer
---@param dim2 integer
---@return heed.Tensor
---@nodiscard
function Tensor:transpose(dim1, dim2) end

---A matrix transposed; fewer dimensions stay as they are.
---@return heed.Tensor
---@nodiscard
function Tensor:t() end

---`length` elements of a dimension, from `start` on.
---@param dim integer
---@param start integer
---@param length integer
---@return heed.Tensor
---@nodiscard
function Tensor:narrow(dim, start, length) end

---Element `index` of a dimension, which goes; always a tensor, if need be of no dimensions.
---@param dim integer
---@param index integer
---@return heed.Tensor
---@nodiscard
function Tensor:select(dim, index) end

---A new dimension of size 1 at `dim`.
---@param dim integer
---@return heed.Tensor
---@nodiscard
function Tensor:unsqueeze(dim) end

---Without the dimensions of size 1, or without `dim` if its size is 1.
---@param dim? integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:squeeze(dim) end

---@class heed.FlattenOptions
---@field start_dim? integer 1
---@field end_dim? integer -1

---Dimensions start_dim to end_dim made one; a copy where a view cannot be had.
---@param start_dim? integer|heed.FlattenOptions
---@param end_dim? integer
---@return heed.Tensor
---@nodiscard
function Tensor:flatten(start_dim, end_dim) end

---Pieces of `size` elements (the last may be shorter), or of the sizes in a table, as views.
---@param size integer|integer[]
---@param dim? integer|{ dim: integer } 1
---@return heed.Tensor[]
---@nodiscard
function Tensor:split(size, dim) end

---About `chunks` equal pieces, as views.
---@param chunks integer
---@param dim? integer|{ dim: integer } 1
---@return heed.Tensor[]
---@nodiscard
function Tensor:chunk(chunks, dim) end

-- ---- Picking ----

---Slices of a dimension, in the order of `index`.
---@param dim integer
---@param index heed.Tensor int64 [k], from 1
---@return heed.Tensor
---@nodiscard
function Tensor:index_select(dim, index) end

---out[…, i, …] = x[…, index[…, i, …], …], with i in dimension `dim`.
---@param dim integer
---@param index heed.Tensor int64, with as many dimensions as x, from 1
---@return heed.Tensor
---@nodiscard
function Tensor:gather(dim, index) end

---The elements where mask is true, as `x[mask]`.
---@param mask heed.Tensor bool, of x's leading sizes
---@return heed.Tensor out [count, the rest of x's sizes]
---@nodiscard
function Tensor:masked_select(mask) end

---Every slice of dim `repeats` times; without dim every element of x flattened.
---@param repeats integer
---@param dim? integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function Tensor:repeat_interleave(repeats, dim) end
