---@meta _
-- How attention weights come about. Positions count from 1, negative ones from the end.

---@class heed.ExplainOptions: heed.ForwardOptions
---@field batch? integer 1 by default
---@field head? integer 1 by default
---@field query? integer the last one by default
---@field key? integer|heed.Tensor the key's position, counted with the past of a cache; a tensor is that of cross attention
---@field key_position? integer the key's position, where `key` is the tensor of cross attention

---How one weight came about.
---@class heed.Explanation
---@field batch integer item of the batch
---@field head integer from 1
---@field query integer position of the query
---@field key integer position of the key
---@field dot number q · k
---@field scaled number dot · scale
---@field capped number after softcap
---@field mask_bias? number what a float attn_mask adds
---@field alibi? number what alibi adds
---@field biased number the score
---@field sink? number the sink of the head
---@field hidden_by string[] "causal", "window", "attn_mask", "key_padding_mask", "kv_lengths", in this order; empty if the key is seen
---@field row_max number the largest score that softmax compares with, the sink included; -inf if no key is seen
---@field row_sum number Σ exp(score - row_max), the sink included
---@field weight number after softmax
---@field dropped_weight? number after dropout, in training mode
---@field contribution heed.Tensor weight · value, after dropout [head_dim]

---The keys of a query, those with the largest weights first.
---@class heed.ExplainedRow
---@field batch integer item of the batch
---@field head integer from 1
---@field query integer position of the query
---@field row_max number the largest score, the sink included
---@field row_sum number Σ exp(score - row_max), the sink included
---@field sink? number the sink of the head
---@field keys heed.Explanation[] in the order of their weights

---Methods of the attention modules.
---@class heed.Inspected
local Inspected = {}

---How a weight came about, with all options of the forward pass; without `key`, the query's whole row. Cache and
---generator stay as they are. tostring gives a small table.
---@param x heed.Tensor the input of the forward pass
---@param options? heed.ExplainOptions
---@return heed.Explanation|heed.ExplainedRow
---@nodiscard
function Inspected:explain(x, options) end

---Warnings about m(x, options) before it runs, each with the fix; empty where all is well.
---@param x heed.Tensor the input of the forward pass
---@param options? heed.ForwardOptions
---@return string[]
---@nodiscard
function Inspected:check(x, options) end

---@class heed.VerifyOptions: heed.ForwardOptions
---@field tolerance? number 1e-5 by default

---How far a forward pass is from double precision; tostring gives a small table. Errors are relative to the largest
---element of what is compared, if that is above 1.
---@class heed.Verification
---@field ok boolean whether max_error is at most the tolerance
---@field max_error number the largest error of all
---@field mean_error number the mean of all errors
---@field output number the largest error of y
---@field weights number the largest error of need_weights' weights
---@field heads number[] the largest error of what each head gives to out_proj
---@field tolerance number that of the call

---Compares m(x, options) with the same pass by plain loops in double precision, from x and the stored weights: y, what
---each head gives to out_proj, and the weights. Parts written in Lua are taken as they are. In evaluation mode, without
---a cache and hooks. Slow: a second for about 75 million multiplications.
---@param x heed.Tensor the input of the forward pass
---@param options? heed.VerifyOptions
---@return heed.Verification
---@nodiscard
function Inspected:verify(x, options) end
