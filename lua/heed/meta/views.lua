---@meta _
-- Tensors: changing the shape, splitting, selecting elements. Lists of sizes and dimensions are given as separate
-- integers or as one table. A dimension or an index out of range raises an error.

---Tensors have these as methods and heed as functions.
---@class heed.Views
---@field repeat fun(self: heed.Tensor, ...: integer|integer[]): heed.Tensor like tile, with at least as many counts as dimensions; written x["repeat"](x, 2, 3) or heed["repeat"](x, 2, 3), since repeat is a word of Lua
local Tensor = {}

-- ---- Views: no elements are copied ----

---The same elements in another shape, as a view. One size may be -1: it is inferred from the number of elements. Raises
---an error if the strides of x do not allow a view; use reshape then.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer the sizes, one of which may be -1
---@return heed.Tensor
---@nodiscard
function Tensor:view(...) end

---Like view, but copies the elements if a view is impossible.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer the sizes, one of which may be -1
---@return heed.Tensor
---@nodiscard
function Tensor:reshape(...) end

---Repeats dimensions of size 1 up to the given sizes, without copying. Further dimensions may be added in front; -1
---keeps a size.
---@overload fun(self: heed.Tensor, shape: integer[]|heed.Size): heed.Tensor
---@param ... integer the sizes; -1 keeps one
---@return heed.Tensor
---@nodiscard
function Tensor:expand(...) end
Tensor.broadcast_to = Tensor.expand

---Like expand, to the shape of another tensor.
---@param other heed.Tensor a tensor of that shape
---@return heed.Tensor
---@nodiscard
function Tensor:expand_as(other) end

---Like view, in the shape of another tensor.
---@param other heed.Tensor a tensor of that shape
---@return heed.Tensor
---@nodiscard
function Tensor:view_as(other) end

---Like reshape, in the shape of another tensor.
---@param other heed.Tensor a tensor of that shape
---@return heed.Tensor
---@nodiscard
function Tensor:reshape_as(other) end

---Reorders the dimensions: x:permute(3, 1, 2) of x [a, b, c] gives [c, a, b].
---@overload fun(self: heed.Tensor, dims: integer[]): heed.Tensor
---@param ... integer the dimensions in their new order
---@return heed.Tensor
---@nodiscard
function Tensor:permute(...) end

---Exchanges two dimensions.
---@param dim1 integer a dimension
---@param dim2 integer another one
---@return heed.Tensor
---@nodiscard
function Tensor:transpose(dim1, dim2) end
Tensor.swapaxes = Tensor.transpose
Tensor.swapdims = Tensor.transpose

---@class heed.MovedimOptions
---@field source? integer|integer[] the dimensions to move
---@field destination? integer|integer[] where to

---Moves dimensions to other positions; the others keep their order. x:movedim(1, -1) of x [a, b, c] gives [b, c, a].
---@param source integer|integer[]|heed.MovedimOptions the dimensions to move
---@param destination? integer|integer[] as many as source
---@return heed.Tensor
---@nodiscard
function Tensor:movedim(source, destination) end
Tensor.moveaxis = Tensor.movedim

---The transpose of a matrix. A tensor with fewer than two dimensions is returned as a view; more are an error.
---@return heed.Tensor
---@nodiscard
function Tensor:t() end

---The `length` elements of dimension `dim` that begin at `start`.
---@param dim integer the dimension
---@param start integer the first index
---@param length integer how many elements
---@return heed.Tensor
---@nodiscard
function Tensor:narrow(dim, start, length) end

---Element `index` of dimension `dim`, which is removed from the shape. Always returns a tensor, possibly one without
---dimensions.
---@param dim integer the dimension
---@param index integer negative ones count from the last
---@return heed.Tensor
---@nodiscard
function Tensor:select(dim, index) end

---Inserts a dimension of size 1 at `dim`.
---@param dim integer where the new dimension is; -1: the last
---@return heed.Tensor
---@nodiscard
function Tensor:unsqueeze(dim) end

---Removes all dimensions of size 1, or only those in `dim` whose size is 1.
---@param dim? integer|integer[]|{ dim: integer|integer[] } all by default
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

---@class heed.UnflattenOptions
---@field dim? integer the dimension
---@field sizes? integer[] of the new dimensions

---Divides a dimension into several, as a view: x:unflatten(2, {2, -1}) of x [a, 6] gives [a, 2, 3]. The product of the
---sizes, one of which may be -1, must be the size of the dimension.
---@param dim integer|heed.UnflattenOptions the dimension
---@param sizes? integer[]|heed.Size of the new dimensions
---@return heed.Tensor
---@nodiscard
function Tensor:unflatten(dim, sizes) end

---@class heed.DiagonalOptions
---@field offset? integer 0, the main diagonal, by default; above it if positive, below it if negative
---@field dim1? integer 1 by default; in diag_embed -2
---@field dim2? integer 2 by default; in diag_embed -1

---The diagonal of dimensions dim1 and dim2 as a view, whose last dimension it is: x [a, b, b] with dimensions 2 and 3
---gives [a, b].
---@param offset? integer|heed.DiagonalOptions
---@param dim1? integer
---@param dim2? integer
---@return heed.Tensor
---@nodiscard
function Tensor:diagonal(offset, dim1, dim2) end

---All windows of `size` elements of dimension `dim` that begin `step` apart, as a view: x [a, n] with dim 2 gives
---[a, windows, size]. Windows may overlap; such a view cannot be written to.
---@param dim integer the dimension
---@param size integer elements of a window
---@param step integer from one window to the next
---@return heed.Tensor
---@nodiscard
function Tensor:unfold(dim, size, step) end

---The views without dimension `dim`, one for each of its elements.
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor[]
---@nodiscard
function Tensor:unbind(dim) end

---Splits a dimension into views of `size` elements each, the last possibly shorter, or of the sizes in a table, which
---must add up to the size of the dimension.
---@param size integer|integer[] of each view, or those of all views
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor[]
---@nodiscard
function Tensor:split(size, dim) end

---Splits a dimension into views of equal size, the last possibly shorter; at most `chunks` of them, as in PyTorch.
---@param chunks integer how many views
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor[]
---@nodiscard
function Tensor:chunk(chunks, dim) end

-- ---- Selecting elements: the results are copies ----

---The slices of dimension `dim` whose numbers are in `index`, in that order.
---@param dim integer the dimension
---@param index heed.Indices [k]
---@return heed.Tensor
---@nodiscard
function Tensor:index_select(dim, index) end

---out[…, i, …] = x[…, index[…, i, …], …], where i is the index into dimension `dim`.
---@param dim integer the dimension
---@param index heed.Indices with as many dimensions as x and no larger in any other dimension
---@return heed.Tensor
---@nodiscard
function Tensor:gather(dim, index) end

---The elements or slices of x where mask is true, like `x[mask]`.
---@param mask heed.Tensor bool, with the shape of x's first dimensions
---@return heed.Tensor out [count, remaining sizes of x…]
---@nodiscard
function Tensor:masked_select(mask) end

---Repeats each slice of dimension `dim` `repeats` times; without dim, each element of x flattened. A table or an int64
---tensor has a number for each slice: heed.arange(1, 3):repeat_interleave{2, 3} gives 1, 1, 2, 2, 2.
---@param repeats integer|integer[]|heed.Tensor how often, for all slices or for each
---@param dim? integer|{ dim: integer } none by default: x is flattened
---@return heed.Tensor
---@nodiscard
function Tensor:repeat_interleave(repeats, dim) end

---The sequences x [b, n, ...] of these lengths, one after another without padding.
---@param lengths heed.Indices [b], each from 0 to n
---@return heed.Tensor out [total, ...]
---@nodiscard
function Tensor:pack(lengths) end

---@class heed.UnpackOptions
---@field lengths heed.Indices [b], which add up to total
---@field n? integer by default the largest length

---The opposite of pack: x [total, ...] as [b, n, ...], with zeros behind each sequence.
---@param lengths heed.Indices|heed.UnpackOptions [b], which add up to total
---@param n? integer by default the largest length
---@return heed.Tensor out [b, n, ...]
---@nodiscard
function Tensor:unpack(lengths, n) end

-- ---- Other arrangements: the results are copies ----

---The elements in reverse order along these dimensions.
---@overload fun(self: heed.Tensor, dims: integer[]|{ dims: integer[] }): heed.Tensor
---@param ... integer the dimensions
---@return heed.Tensor
---@nodiscard
function Tensor:flip(...) end

---@class heed.RollOptions
---@field shifts? integer|integer[] by how many places
---@field dims? integer|integer[] x is flattened by default

---Moves element i of the dimensions `dims` to i + shift; what leaves the end comes back at the beginning. Without dims, x
---is rolled as if it were flattened.
---@param shifts integer|integer[]|heed.RollOptions by how many places
---@param dims? integer|integer[]|heed.RollOptions as many as shifts
---@return heed.Tensor
---@nodiscard
function Tensor:roll(shifts, dims) end

---Repeats x as a whole along each dimension: x:tile(2, 3) of x [a, b] gives [2 a, 3 b]. Ones are added in front of too
---few counts; more counts than dimensions add dimensions in front. (PyTorch's repeat; repeat_interleave repeats elements.)
---@overload fun(self: heed.Tensor, repeats: integer[]): heed.Tensor
---@param ... integer how often, for each dimension
---@return heed.Tensor
---@nodiscard
function Tensor:tile(...) end

---@class heed.PadOptions
---@field pad? integer[] {before, after} of the last dimension, then of the one before it
---@field mode? "constant"|"reflect"|"replicate"|"circular" "constant" by default
---@field value? number|boolean what "constant" adds; 0 by default

---Adds elements at both ends of dimensions: `pad` is {before, after} of the last dimension, then of the one before it,
---and so on, as in PyTorch. Negative numbers remove elements. "reflect" mirrors without the element at the end,
---"replicate" repeats that, "circular" goes on at the other end.
---@param pad integer[]|heed.PadOptions {before, after} of the last dimension, then of the one before it
---@param mode? "constant"|"reflect"|"replicate"|"circular"|heed.PadOptions
---@param value? number|boolean
---@return heed.Tensor
---@nodiscard
function Tensor:pad(pad, mode, value) end

---x [n] on a diagonal of a matrix that is 0 elsewhere; or that diagonal of a matrix x, as a copy.
---@param diagonal? integer|{ diagonal: integer } 0 by default
---@return heed.Tensor
---@nodiscard
function Tensor:diag(diagonal) end

---Matrices in dimensions dim1 and dim2 that are 0 but for a diagonal, the last dimension of x: [a, n] gives [a, n, n].
---@param offset? integer|heed.DiagonalOptions
---@param dim1? integer
---@param dim2? integer
---@return heed.Tensor
---@nodiscard
function Tensor:diag_embed(offset, dim1, dim2) end

---The matrix with the elements of x, flattened, on a diagonal.
---@param offset? integer|{ offset: integer } 0 by default
---@return heed.Tensor
---@nodiscard
function Tensor:diagflat(offset) end
---@class heed.TakeOptions
---@field indices? heed.Indices as in gather
---@field dim? integer none by default: x is flattened

---Like gather, but x and the indices broadcast in all other dimensions; without dim, elements of x flattened.
---@param indices heed.Indices|heed.TakeOptions as in gather
---@param dim? integer|heed.TakeOptions none by default: x is flattened
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

---@class heed.SearchOptions
---@field right? boolean false by default
---@field side? "left"|"right" "left" by default

---For each value the index, from 1 to n + 1, at which it would be inserted in x, whose rows [..., n] are sorted: before
---equal elements, or behind them with right = true or side = "right". x has 1 dimension or the leading sizes of values.
---@param values heed.Operand what is looked for
---@param right? boolean|heed.SearchOptions false by default
---@return heed.Tensor indices int64, in the shape of values
---@nodiscard
function Tensor:searchsorted(values, right) end

---The number, counted from 1, of the bucket between boundaries [k], in ascending order, in which each element of x lies.
---Bucket i ends with boundaries[i], which belongs to it; with right = true, to the next one.
---@param boundaries heed.Tensor [k]
---@param right? boolean|{ right: boolean } false by default
---@return heed.Tensor buckets int64, from 1 to k + 1
---@nodiscard
function Tensor:bucketize(boundaries, right) end

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
---@field weights? heed.Tensor [n]
---@field minlength? integer 0 by default

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
---@field src? heed.Tensor|number what is written
---@field value? number the same as src
---@field reduce? "add"|"multiply" none by default: elements are replaced

---out[…, index[…, i, …], …] = src[…, i, …], where i is the index into dimension `dim`; or + or · the element there.
---@param dim integer the dimension
---@param index heed.Indices with as many dimensions as x and no larger in any other dimension
---@param src heed.Tensor|number|heed.ScatterOptions at least as large as index
---@param reduce? "add"|"multiply"|heed.ScatterOptions none by default: elements are replaced
---@return heed.Tensor
function Tensor:scatter(dim, index, src, reduce) end
Tensor.scatter_ = Tensor.scatter

---Adds src to the elements that index names, like scatter with "add".
---@param dim integer the dimension
---@param index heed.Indices as in scatter
---@param src heed.Tensor at least as large as index
---@return heed.Tensor
function Tensor:scatter_add(dim, index, src) end
Tensor.scatter_add_ = Tensor.scatter_add

---Adds the slices of source, times alpha, to the slices of dimension `dim` whose numbers are in `index`.
---@param dim integer the dimension
---@param index heed.Indices [k]
---@param source heed.Tensor the shape of x, with size k in dimension `dim`
---@param alpha? number|{ alpha: number } 1 by default
---@return heed.Tensor
function Tensor:index_add(dim, index, source, alpha) end
Tensor.index_add_ = Tensor.index_add

---Replaces the slices of dimension `dim` whose numbers are in `index` by those of source.
---@param dim integer the dimension
---@param index heed.Indices [k]
---@param source heed.Tensor the shape of x, with size k in dimension `dim`
---@return heed.Tensor
function Tensor:index_copy(dim, index, source) end
Tensor.index_copy_ = Tensor.index_copy

---Fills the slices of dimension `dim` whose numbers are in `index`.
---@param dim integer the dimension
---@param index heed.Indices [k]
---@param value heed.Operand a number, or a tensor of no dimensions
---@return heed.Tensor
function Tensor:index_fill(dim, index, value) end
Tensor.index_fill_ = Tensor.index_fill

---Like `x[{i, j, …}] = values` with indices or masks for the first dimensions; accumulate adds the values.
---@param indices heed.Indices[] for each of the first dimensions
---@param values heed.Operand broadcast to what the indices select
---@param accumulate? boolean|{ accumulate: boolean } false by default
---@return heed.Tensor
function Tensor:index_put(indices, values, accumulate) end
Tensor.index_put_ = Tensor.index_put
