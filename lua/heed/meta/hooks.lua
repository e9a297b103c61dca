---@meta _
-- Hooks of modules, points of models, and the activations of a forward pass.

---What a hook at a point receives second.
---@class heed.HookPoint
---@field name string such as "blocks.0.attn.hook_pattern"
---@field layer? integer from 1; nil outside of a list of layers
---@field module heed.Module the module that has the point
---@field context table in attention: heads and queries, {first, last}, where a pass comes in parts

---@alias heed.PointNames string|string[]|fun(name: string): any

---The activations of a forward pass, tensors by name: cache["blocks.0.attn.hook_pattern"]. `#cache` is their number,
---`pairs(cache)`
---(before 5.2 `heed.pairs`) goes through them in the order in which they came.
---@class heed.ActivationCache
---@field [string] heed.Tensor
---@operator len: integer
local ActivationCache = {}

---The activation whose name ends in `name`: cache:get("pattern", 1) is cache["blocks.0.attn.hook_pattern"].
---@param name string the end of a name
---@param layer? integer from 1
---@return heed.Tensor
---@nodiscard
function ActivationCache:get(name, layer) end

---The activations of all layers whose name ends in `name`, [layers, …].
---@param name string the end of a name
---@return heed.Tensor
---@nodiscard
function ActivationCache:stack(name) end

---All names, in the order in which they came.
---@return string[]
---@nodiscard
function ActivationCache:names() end
