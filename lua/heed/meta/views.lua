---@meta _
-- Tensors: changing the shape, splitting, selecting elements. Lists of sizes and dimensions are given as separate
-- integers or as one table. A dimension or an index out of range raises an error.

---@class heed.Tensor
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
---@param index heed.Indices [k]
---@return heed.Tensor
---@nodiscard
function Tensor:index_select(dim, index) end

---out[…, i, …] = x[…, index[…, i, …], …], where i is the index into dimension `dim`.
---@param dim integer
---@param index heed.Indices with as many dimensions as x and no larger in any other dimension
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

---@class heed.TakeOptions
---@field indices? heed.Indices
---@field dim? integer

---Like gather, but x and the indices broadcast in all other dimensions; without dim, elements of x flattened.
---@param indices heed.Indices|heed.TakeOptions
---@param dim? integer|heed.TakeOptions
---@return heed.Tensor
---@nodiscard
function Tensor:take_along_dim(indices, dim) end

-- ---- Finding and counting ----

---The indices of the elements that are not 0, in order: int64 [count, dimensions]. as_tuple gives a table with the
---indices of each dimension, [count], which selects these elements: `x[x:nonzero(true)]`.
---@param as_tuple? boolean|{ as_tuple: boolean } false by default
---@return heed.Tensor|heed.Tensor[]
---@nodiscard
function Tensor:nonzero(as_tuple) end

---The indices of the elements that are not 0: int64 [count, dimensions].
---@return heed.Tensor
---@nodiscard
function Tensor:argwhere() end

---@class heed.UniqueOptions
---@field sorted? boolean the result is sorted in any case
---@field return_inverse? boolean false by default
---@field return_counts? boolean false by default

---The different elements of x, in ascending order. The further results are only those that are wanted.
---@param sorted? boolean|heed.UniqueOptions
---@param return_inverse? boolean|heed.UniqueOptions
---@param return_counts? boolean|heed.UniqueOptions
---@return heed.Tensor values [k]
---@return heed.Tensor inverse int64, with the shape of x: the index in `values` of each element
---@return heed.Tensor counts int64 [k]: how often each value occurs
---@nodiscard
function Tensor:unique(sorted, return_inverse, return_counts) end

---@class heed.BincountOptions
---@field weights? heed.Tensor
---@field minlength? integer

---Counts the values of x [n], integers from 1 on: element i of the result is how often i occurs, or, with weights, the
---sum of the weights there, as float32. Its size is the largest value, or minlength if that is larger.
---@param weights? heed.Tensor|heed.BincountOptions [n]
---@param minlength? integer|heed.BincountOptions 0 by default
---@return heed.Tensor
---@nodiscard
function Tensor:bincount(weights, minlength) end

---1 at the index that each element of x names, 0 elsewhere: int64 [sizes of x…, num_classes]. x has integers from 1 on.
---@param num_classes? integer|{ num_classes: integer } the largest element of x by default
---@return heed.Tensor
---@nodiscard
function Tensor:one_hot(num_classes) end

-- ---- Writing to elements: in place with a trailing underscore, otherwise to a copy of x ----
-- Elements are written one after another, in order: of several for the same element the last one stays. What is
-- written is converted to x's dtype, which must be able to hold it. Nothing is written if an index is out of range.

---@class heed.ScatterOptions
---@field src? heed.Tensor|number
---@field value? number the same as src
---@field reduce? "add"|"multiply"

---out[…, index[…, i, …], …] = src[…, i, …], where i is the index into dimension `dim`; or + or · the element there.
---@param dim integer
---@param index heed.Indices with as many dimensions as x and no larger in any other dimension
---@param src heed.Tensor|number|heed.ScatterOptions at least as large as index
---@param reduce? "add"|"multiply"|heed.ScatterOptions
---@return heed.Tensor
function Tensor:scatter(dim, index, src, reduce) end
Tensor.scatter_ = Tensor.scatter

---Adds src to the elements that index names, like scatter with "add".
---@param dim integer
---@param index heed.Indices
---@param src heed.Tensor
---@return heed.Tensor
function Tensor:scatter_add(dim, index, src) end
Tensor.scatter_add_ = Tensor.scatter_add

---Adds the slices of source, times alpha, to the slices of dimension `dim` whose numbers are in `index`.
---@param dim integer
---@param index heed.Indices [k]
---@param source heed.Tensor the shape of x, with size k in dimension `dim`
---@param alpha? number|{ alpha: number } 1 by default
---@return heed.Tensor
function Tensor:index_add(dim, index, source, alpha) end
Tensor.index_add_ = Tensor.index_add

---Replaces the slices of dimension `dim` whose numbers are in `index` by those of source.
---@param dim integer
---@param index heed.Indices [k]
---@param source heed.Tensor the shape of x, with size k in dimension `dim`
---@return heed.Tensor
function Tensor:index_copy(dim, index, source) end
Tensor.index_copy_ = Tensor.index_copy

---Fills the slices of dimension `dim` whose numbers are in `index`.
---@param dim integer
---@param index heed.Indices [k]
---@param value heed.Operand a number, or a tensor of no dimensions
---@return heed.Tensor
function Tensor:index_fill(dim, index, value) end
Tensor.index_fill_ = Tensor.index_fill

---Like `x[{i, j, …}] = values` with indices or masks for the first dimensions; accumulate adds the values.
---@param indices heed.Indices[]
---@param values heed.Operand broadcast to what the indices select
---@param accumulate? boolean|{ accumulate: boolean } false by default
---@return heed.Tensor
function Tensor:index_put(indices, values, accumulate) end
Tensor.index_put_ = Tensor.index_put
