---@meta _
-- Changing the heads of attention modules during their forward passes. Shape legend: b batch, h heads, n queries, s keys,
-- d size of a head.

---A hook or change that was registered; also `local handle <close> = m:ablate(2)`.
---@class heed.Handle
local Handle = {}

---Undoes it; does nothing the second time.
function Handle:remove() end

---What a function of on_weights is called with. Ranges include both ends.
---@class heed.PointContext
---@field module heed.Module the attention module; for the heads of a wrapper, the wrapper
---@field name string the point: "pattern", …
---@field heads integer[] the first and the last head of the tensor; a wrapper calls f once for each head
---@field queries integer[] the first and the last query, by position in the sequence
---@field layer? integer the number of the layer, from 1; for model:on_weights alone

---Methods of the attention modules. Several changes apply in the order in which they were made.
---@class heed.Surgery
local Surgery = {}

---Replaces what heads give to out_proj by 0, or by `value`. Attention itself stays fused.
---@param heads integer|{ [integer]: integer, value: (number|heed.Tensor)? } numbers of heads; negative ones count from the last
---@param options? { value: (number|heed.Tensor)? } value: a number, or a tensor that broadcasts to [b, n, d]; 0 by default
---@return heed.Handle
function Surgery:ablate(heads, options) end

---Replaces the attention weights of a head, before dropout.
---@param head integer from 1
---@param weights heed.Tensor [n, s] or [b, n, s]
---@return heed.Handle
function Surgery:patch(head, weights) end

---Calls f(weights [b, h, n, s], context) between softmax and dropout; the pass goes on with what it returns, nil: with
---the same weights, and then no bit of the result changes.
---@param f fun(weights: heed.Tensor, context: heed.PointContext): heed.Tensor? gets the attention weights
---@return heed.Handle
function Surgery:on_weights(f) end
