---@meta _
-- heed.mask: masks as values. Shape legend: L queries, S keys, hq query heads.

---Which keys each query sees, in memory proportional to the queries. Attention accepts it as attn_mask, and does work
---for the visible keys alone. A mask never changes. It prints as a picture of blocks: ██ all visible, ░░ partly
---visible, ·· hidden.
---
---The position of query i is i, or P + i after P tokens in a cache or past_key; with kv_lengths in
---heed.scaled_dot_product_attention, and with key in a module, kv_lengths[b] - L + i.
---@class heed.Mask
---@operator band(heed.Mask): heed.Mask
local Mask = {}

---The mask that shows what both show; also `m & other` (Lua 5.3 and later).
---@param other heed.Mask another mask
---@return heed.Mask
---@nodiscard
function Mask:both(other) end

---The mask as a bool tensor, true where the key is visible.
---@param L? integer number of queries; by default what the mask is made for
---@param S? integer number of keys; by default what the mask is made for, or L
---@param offset? integer the position before the first query; 0 by default
---@return heed.Tensor mask bool [..., L, S], with the leading sizes of intervals
---@nodiscard
function Mask:dense(L, S, offset) end

---The number of visible pairs of a query and a key in each block of that many queries and keys.
---@param L? integer number of queries; by default what the mask is made for
---@param S? integer number of keys; by default what the mask is made for, or L
---@param block? integer 128 by default
---@param offset? integer the position before the first query; 0 by default
---@return heed.Tensor counts int64 [..., ⌈L / block⌉, ⌈S / block⌉]
---@nodiscard
function Mask:blocks(L, S, block, offset) end

---@class heed.mask
local mask = {}

---Query i sees the keys up to its own position.
---@return heed.Mask
---@nodiscard
function mask.causal() end

---A query sees the keys from `left` before its position to `right` behind it; nil is unbounded. Also window{left =,
---right =}.
---@param left? integer|heed.Window at least 0
---@param right? integer at least 0
---@return heed.Mask
---@nodiscard
function mask.window(left, right) end

---The keys are documents, one after another; a query sees the keys of its own.
---@param lengths heed.Indices of the documents, which add up to S
---@return heed.Mask
---@nodiscard
function mask.documents(lengths) end

---A query sees the first n keys and, beyond these, the ones up to its own position.
---@param n integer at least 0
---@return heed.Mask
---@nodiscard
function mask.prefix(n) end

---The queries are the nodes of a tree (or several), as in speculative decoding: a node sees the keys of itself and its
---ancestors, and all keys of a cache, before the first node.
---@param parents heed.Indices [L]: the index of each node's parent, which comes before the node; 0 for a root
---@return heed.Mask
---@nodiscard
function mask.tree(parents) end

---The visible keys of each query as r ranges, both ends included, in order and without overlap; {1, 0} is empty.
---@param t heed.Indices [..., L, r, 2]; the leading sizes broadcast to the batch and hq, and L may be 1
---@return heed.Mask
---@nodiscard
function mask.intervals(t) end
