---@meta _
-- Sequences that are divided among ranks, of heed.distributed. Shape legend: b batch, n tokens of all ranks, h heads.

---@class heed.distributed
local distributed = {}

---@class heed.ContextParallelOptions
---@field gather? integer joins the first result of f along this dimension, on all ranks
---@field decode? boolean all ranks have all tokens, and only caches are divided; false by default

---Calls f(shard) on all ranks of the mesh. Attention in f, of heed.scaled_dot_product_attention and of all modules and
---models, is that of the tokens of all ranks: keys and values go from rank to rank, and the partial results are merged.
---
---    local y = dist.context_parallel(mesh.cp, function(shard) return mha(shard(x, 2)) end, { gather = 2 })
---
---Masks, lengths and padding are those of all tokens; of a mask tensor a rank can also give its own rows. Not available:
---lengths (give attn_mask = heed.mask.documents(lengths)), need_weights, time slices, and dropout with a generator that is
---not "philox". Gradients of what all ranks have, x and parameters, are those of the rank's own tokens; all_reduce adds
---them. All ranks call it, and backward.
---@param mesh heed.AnyGroup of one dimension
---@param f fun(shard: heed.Shard): any is called on all ranks
---@param options? heed.ContextParallelOptions
---@return any ... what f returns
function distributed.context_parallel(mesh, f, options) end

---An empty cache whose tokens are divided among the ranks of a mesh, for calls in context_parallel: { cache = cache }. One
---serves all attention modules of a model, each of which has its own keys and values in it.
---@param mesh heed.AnyGroup of one dimension
---@param options? { dtype: "float32"|"bfloat16"|"float16"|nil } float32 by default
---@return heed.ContextCache
---@nodiscard
function distributed.context_cache(mesh, options) end

---What context_parallel gives to its function. shard(x, dim) is this rank's part of a tensor that all ranks have: two
---chunks of the dimension.
---@class heed.Shard
---@overload fun(x: heed.Tensor, dim: integer): heed.Tensor
local Shard = {}

---The positions of this rank's tokens in a sequence of n tokens.
---@param n integer tokens of all ranks
---@return heed.Tensor positions int64, from 1
---@nodiscard
function Shard:positions(n) end

---The parts of all ranks, joined along a dimension, on all of them. Backward, each rank takes its own part.
---@param x heed.Tensor this rank's part
---@param dim integer the dimension
---@return heed.Tensor
---@nodiscard
function Shard:gather(x, dim) end

---A cache of context_cache.
---@class heed.ContextCache
---@field length integer tokens of all ranks
---@field dtype string how keys and values are stored
local ContextCache = {}

---Keeps the first n tokens only. All ranks call it.
---@param n integer tokens that stay
function ContextCache:truncate(n) end

---Frees the memory immediately.
function ContextCache:release() end
