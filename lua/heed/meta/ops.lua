---@meta _
-- Tensors: reductions, operations along a dimension, matrix products. x is the tensor before the colon.
-- Shapes that do not fit and dtypes that are not supported raise an error.

---Tensors have these as methods and heed as functions.
---@class heed.Operations
local Tensor = {}

-- ---- Reductions ----

---@class heed.ReduceOptions
---@field dim? integer|integer[] the dimensions to reduce; all by default
---@field keepdim? boolean keep the reduced dimensions with size 1; false by default

---@class heed.SpreadOptions: heed.ReduceOptions
---@field correction? number the divisor is count - correction; 1 by default
---@field unbiased? boolean false means correction = 0

---The sum over the given dimensions; int64 for bool and int64, otherwise float32.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:sum(dim, keepdim) end

---The mean over the given dimensions; float32.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:mean(dim, keepdim) end

---Whether any element is nonzero; bool.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:any(dim, keepdim) end

---Whether all elements are nonzero; bool.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:all(dim, keepdim) end

---The variance, with the divisor count - correction; float32.
---@param dim? integer|integer[]|heed.SpreadOptions
---@param keepdim? boolean
---@param correction? number
---@return heed.Tensor
---@nodiscard
function Tensor:var(dim, keepdim, correction) end

---The standard deviation, with the divisor count - correction; float32.
---@param dim? integer|integer[]|heed.SpreadOptions
---@param keepdim? boolean
---@param correction? number
---@return heed.Tensor
---@nodiscard
function Tensor:std(dim, keepdim, correction) end

---@class heed.DimOptions
---@field dim? integer all elements by default
---@field keepdim? boolean keep the dimension with size 1; false by default

---Without arguments, the largest of all elements. With dim, the largest along that dimension and their indices. With a
---tensor, the elementwise maximum.
---@overload fun(self: heed.Tensor): heed.Tensor
---@overload fun(self: heed.Tensor, other: heed.Tensor): heed.Tensor
---@param dim integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, counted from 1
---@nodiscard
function Tensor:max(dim, keepdim) end

---Without arguments, the smallest of all elements. With dim, the smallest along that dimension and their indices. With
---a tensor, the elementwise minimum.
---@overload fun(self: heed.Tensor): heed.Tensor
---@overload fun(self: heed.Tensor, other: heed.Tensor): heed.Tensor
---@param dim integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, counted from 1
---@nodiscard
function Tensor:min(dim, keepdim) end

---The index of the largest element along dim, counted from 1; without dim, in x flattened. The first of several.
---@param dim? integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor indices int64
---@nodiscard
function Tensor:argmax(dim, keepdim) end

---The index of the smallest element along dim, counted from 1; without dim, in x flattened. The first of several.
---@param dim? integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor indices int64
---@nodiscard
function Tensor:argmin(dim, keepdim) end

---The largest element over the given dimensions; nan if one is nan.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:amax(dim, keepdim) end

---The smallest element over the given dimensions; nan if one is nan.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:amin(dim, keepdim) end

---The product over the given dimensions; int64 for bool and int64, otherwise float32.
---@param dim? integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:prod(dim, keepdim) end

---@class heed.NormOptions: heed.ReduceOptions
---@field p? number|"fro" 2 by default

---The norm (Σ |x|^p)^(1/p) over the given dimensions. p = 2 ("fro") by default; heed.inf gives the largest |x|, -heed.inf
---the smallest, 0 the number of elements other than 0. x must be float32.
---@param p? number|"fro"|heed.NormOptions
---@param dim? integer|integer[]|heed.NormOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:norm(p, dim, keepdim) end

---ln Σ e^x over the given dimensions, without overflow; float32.
---@param dim integer|integer[]|heed.ReduceOptions
---@param keepdim? boolean
---@return heed.Tensor
---@nodiscard
function Tensor:logsumexp(dim, keepdim) end

---The number of elements other than 0 over the given dimensions; nan counts. int64.
---@param dim? integer|integer[]|{ dim: integer|integer[] } all by default
---@return heed.Tensor
---@nodiscard
function Tensor:count_nonzero(dim) end

---Without arguments, the median of all elements; with dim, the medians along that dimension and their indices. Of an
---even number of elements it is the lower one of the two in the middle; nan if one is nan.
---@overload fun(self: heed.Tensor): heed.Tensor
---@param dim integer|heed.DimOptions
---@param keepdim? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, counted from 1
---@nodiscard
function Tensor:median(dim, keepdim) end

---@class heed.QuantileOptions
---@field q? number|number[]|heed.Tensor from 0 to 1
---@field dim? integer all elements by default
---@field keepdim? boolean keep the dimension with size 1; false by default
---@field interpolation? "linear"|"lower"|"higher"|"midpoint"|"nearest" between two elements; "linear" by default

---The quantiles of all elements, or along dim; nan if one is nan. q is a number from 0 to 1, or several, which become
---the first dimension of the result. x must be float32.
---@param q number|number[]|heed.Tensor|heed.QuantileOptions from 0 to 1
---@param dim? integer|heed.QuantileOptions
---@param keepdim? boolean
---@param interpolation? "linear"|"lower"|"higher"|"midpoint"|"nearest"
---@return heed.Tensor
---@nodiscard
function Tensor:quantile(q, dim, keepdim, interpolation) end

-- ---- Comparisons and logic ----

---Whether |x - other| <= atol + rtol · |other|, elementwise; bool. Equal elements are close, nan only with equal_nan.
---@param other heed.Operand what to compare with
---@param rtol? number|{ rtol: number?, atol: number?, equal_nan: boolean? } 1e-5 by default
---@param atol? number 1e-8 by default
---@param equal_nan? boolean whether nan is close to nan; false by default
---@return heed.Tensor
---@nodiscard
function Tensor:isclose(other, rtol, atol, equal_nan) end

-- ---- Along a dimension ----

---Softmax, e^x / Σ e^x along dim; float32. A slice that is -inf everywhere gives nan.
---@param dim integer|{ dim: integer } along which the results add up to 1; negative ones count from the last
---@return heed.Tensor
---@nodiscard
function Tensor:softmax(dim) end

---The natural logarithm of softmax along dim; float32.
---@param dim integer|{ dim: integer } along which the results add up to 1; negative ones count from the last
---@return heed.Tensor
---@nodiscard
function Tensor:log_softmax(dim) end

---The cumulative sum along dim: element i is the sum of elements 1 to i.
---@param dim integer|{ dim: integer } negative ones count from the last
---@return heed.Tensor
---@nodiscard
function Tensor:cumsum(dim) end

---The cumulative product along dim: element i is the product of elements 1 to i.
---@param dim integer|{ dim: integer } negative ones count from the last
---@return heed.Tensor
---@nodiscard
function Tensor:cumprod(dim) end

---@class heed.TopkOptions
---@field k? integer how many
---@field dim? integer -1 by default
---@field largest? boolean false selects the smallest; true by default
---@field sorted? boolean ignored: the result is always sorted

---The k largest (or smallest) elements along dim, in order, and their indices.
---@param k integer|heed.TopkOptions how many
---@param dim? integer|heed.TopkOptions
---@param largest? boolean
---@param sorted? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, counted from 1
---@nodiscard
function Tensor:topk(k, dim, largest, sorted) end

---@class heed.SortOptions
---@field dim? integer -1 by default
---@field descending? boolean false by default
---@field stable? boolean ignored: equal elements always keep their order

---The elements sorted along dim, and their indices in x.
---@param dim? integer|heed.SortOptions
---@param descending? boolean
---@param stable? boolean
---@return heed.Tensor values
---@return heed.Tensor indices int64, counted from 1
---@nodiscard
function Tensor:sort(dim, descending, stable) end

---The indices that sort x along dim: the second result of sort.
---@param dim? integer|heed.SortOptions
---@param descending? boolean
---@param stable? boolean
---@return heed.Tensor indices int64, counted from 1
---@nodiscard
function Tensor:argsort(dim, descending, stable) end

---@class heed.AffineOptions
---@field weight? heed.Tensor [d]
---@field bias? heed.Tensor [d]
---@field eps? number the constant under the root

---Layer normalization over the last dimension: (x - mean) / √(var + eps) · weight + bias, for x [..., d].
---@param weight? heed.Tensor|heed.AffineOptions [d]; 1 by default
---@param bias? heed.Tensor|heed.AffineOptions [d]; 0 by default
---@param eps? number 1e-5 by default
---@return heed.Tensor
---@nodiscard
function Tensor:layer_norm(weight, bias, eps) end

---Root mean square normalization over the last dimension: x / √(mean(x²) + eps) · weight, for x [..., d].
---@param weight? heed.Tensor|heed.AffineOptions [d]; 1 by default
---@param eps? number 2^-23 by default, as in PyTorch
---@return heed.Tensor
---@nodiscard
function Tensor:rms_norm(weight, eps) end

---How rotary embeddings are extended to longer contexts.
---@class heed.RopeScaling
---@field type "linear"|"ntk"|"yarn"|"llama3"|"factors" linear: positions / factor; ntk: base · factor^(d / (d - 2))
---@field factor? number required, but not by factors
---@field original_context_length? integer yarn, llama3: the context length in training
---@field beta_fast? number yarn: 32 by default
---@field beta_slow? number yarn: 1 by default
---@field attention_factor? number of the result. yarn: 0.1 · ln(factor) + 1 by default; factors: 1
---@field low_freq_factor? number llama3: 1 by default
---@field high_freq_factor? number llama3: 4 by default
---@field factors? number[] factors: one for each pair, at most 256, by which its angles are divided

---@class heed.RopeOptions
---@field base? number 10000 by default
---@field style? "half"|"interleaved" which elements form pairs: (1, d/2 + 1), (2, d/2 + 2)… or (1, 2), (3, 4)…; "half" by default
---@field dims? integer the number of leading elements of each head to rotate; all by default
---@field scaling? heed.RopeScaling none by default

---Rotary position embedding (RoPE): rotates pair i of x [..., n, d] by the angle (position - 1) · base^(-2 (i - 1) / d).
---@param positions? heed.Indices|heed.RopeOptions counted from 1, broadcast to [..., n]; 1 to n by default
---@param base? number|heed.RopeOptions
---@param style? "half"|"interleaved"|heed.RopeOptions
---@param dims? integer|heed.RopeOptions
---@return heed.Tensor
---@nodiscard
function Tensor:rope(positions, base, style, dims) end

-- ---- Products ----

---The matrix product x · other for shapes [n]·[n], [m, k]·[k], [k]·[k, n] and […, m, k]·[…, k, n]; leading dimensions
---broadcast.
---@param other heed.Tensor the right factor
---@return heed.Tensor
---@nodiscard
function Tensor:matmul(other) end
Tensor.mm = Tensor.matmul

---The products of the matrices in x [b, n, m] and mat2 [b, m, p]: [b, n, p]. matmul also broadcasts.
---@param mat2 heed.Tensor [b, m, p]
---@return heed.Tensor
---@nodiscard
function Tensor:bmm(mat2) end

---The product of a matrix x [n, m] and vec [m]: [n].
---@param vec heed.Tensor [m]
---@return heed.Tensor
---@nodiscard
function Tensor:mv(vec) end

---@class heed.AddProductOptions
---@field beta? number a factor of x; 1 by default. If it is 0, the elements of x do not matter, even if they are nan
---@field alpha? number a factor of the product; 1 by default

---beta · x + alpha · (mat1 · mat2), where x broadcasts to the product.
---@param mat1 heed.Tensor [n, m]
---@param mat2 heed.Tensor [m, p]
---@param options? heed.AddProductOptions
---@return heed.Tensor y [n, p]
---@nodiscard
function Tensor:addmm(mat1, mat2, options) end

---beta · x + alpha · (mat · vec), where x broadcasts to the product.
---@param mat heed.Tensor [n, m]
---@param vec heed.Tensor [m]
---@param options? heed.AddProductOptions
---@return heed.Tensor y [n]
---@nodiscard
function Tensor:addmv(mat, vec, options) end

---beta · x + alpha · (batch1 · batch2), where x broadcasts to the products.
---@param batch1 heed.Tensor [b, n, m]
---@param batch2 heed.Tensor [b, m, p]
---@param options? heed.AddProductOptions
---@return heed.Tensor y [b, n, p]
---@nodiscard
function Tensor:baddbmm(batch1, batch2, options) end

---The sum of products over the last dimensions, which have equal sizes: [a, n] and [b, n] give [a, b].
---@param other heed.Tensor [b, n]
---@return heed.Tensor
---@nodiscard
function Tensor:inner(other) end

---The sum of products over several dimensions: the last `dims` of x and the first of other, or {dimensions of x,
---dimensions of other}. The result has the other dimensions of x, then those of other.
---@param other heed.Tensor the right factor
---@param dims? integer|integer[][]|{ dims: integer|integer[][] } 2 by default
---@return heed.Tensor
---@nodiscard
function Tensor:tensordot(other, dims) end

---The vector product along a dimension of size 3; other sizes broadcast.
---@param other heed.Tensor the right factor
---@param dim? integer|{ dim: integer } the first dimension of size 3 by default
---@return heed.Tensor
---@nodiscard
function Tensor:cross(other, dim) end

---The sum of the main diagonal of a matrix; int64 for bool and int64, otherwise float32.
---@return heed.Tensor
---@nodiscard
function Tensor:trace() end

---The dot product Σ x · other of two tensors [n].
---@param other heed.Tensor [n]
---@return heed.Tensor
---@nodiscard
function Tensor:dot(other) end

---The products of all pairs of x [n] and other [m]: [n, m].
---@param other heed.Tensor [m]
---@return heed.Tensor
---@nodiscard
function Tensor:outer(other) end

---The linear map x · weightᵀ + bias of x [..., d_in].
---@param weight heed.Tensor [d_out, d_in]; float32, bfloat16 or float16
---@param bias? heed.Tensor|{ bias: heed.Tensor } [d_out]
---@return heed.Tensor y [..., d_out]
---@nodiscard
function Tensor:linear(weight, bias) end

---Quantizes a weight matrix to int8 in blocks of 64 columns: an element of x is approximated by weight[{i, j}] ·
---scale[{i, (j - 1) // 64 + 1}]. The scale of a block is its largest magnitude / 127, so the error is at most half a
---scale. x is float32 [rows, columns]; nan or inf in it raise an error.
---@return heed.Tensor weight int8 [rows, columns]
---@return heed.Tensor scale float32 [rows, blocks]
---@nodiscard
function Tensor:quantize_int8() end

---The inverse of quantize_int8, where x is the int8 weight [rows, columns].
---@param scale heed.Tensor float32 [rows, blocks]
---@return heed.Tensor y float32
---@nodiscard
function Tensor:dequantize_int8(scale) end

---Like linear, with a weight quantized by quantize_int8.
---@param weight heed.Tensor int8 [d_out, d_in]
---@param scale heed.Tensor float32 [d_out, blocks]
---@param bias? heed.Tensor|{ bias: heed.Tensor } [d_out]
---@return heed.Tensor y [..., d_out]
---@nodiscard
function Tensor:linear_int8(weight, scale, bias) end

---Embedding lookup: the rows of weight whose numbers are in x, integers of any shape, counted from 1.
---@param weight heed.Tensor [size, d]; float32, bfloat16 or float16
---@return heed.Tensor y float32 [sizes of x..., d]
---@nodiscard
function Tensor:embedding(weight) end
