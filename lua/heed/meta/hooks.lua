---@meta _
-- Hooks of modules, points of models, and the activations of a forward pass.

---What registering a hook returns.
---@class heed.Handle
local Handle = {}

---Removes the hook; does nothing the second time. The end of a `local handle <close>` (Lua 5.4) does it, too.
function Handle:remove() end

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
---@param name string
---@param layer? integer from 1
---@return heed.Tensor
---@nodiscard
function ActivationCache:get(name, layer) end

---The activations of all layers whose name ends in `name`, [layers, …].
---@param name string
---@return heed.Tensor
---@nodiscard
function ActivationCache:stack(name) end

---All names, in the order in which they came.
---@return string[]
---@nodiscard
function ActivationCache:names() end

---@class heed.Module
local Module = {}

---Calls hook(module, input, …), with all arguments, before each m(x). What it returns replaces the first arguments,
---except nil. Not
---called by m:forward(x).
---@param hook fun(m: heed.Module, input: any, ...: any): any
---@param options? boolean|{ prepend: boolean? } prepend: call it before the other hooks
---@return heed.Handle
function Module:register_forward_pre_hook(hook, options) end

---Calls hook(module, input, output, …), with all results, after each m(x). What it returns replaces the first results,
---except nil. Not
---called by m:forward(x).
---@param hook fun(m: heed.Module, input: any, output: any, ...: any): any
---@param options? boolean|{ prepend: boolean? } prepend: call it before the other hooks
---@return heed.Handle
function Module:register_forward_hook(hook, options) end

---The names of all points of the module and its parts.
---@return string[]
---@nodiscard
function Module:hook_names() end

---Calls f(x, hook) at these points of every forward pass; f may return a changed tensor of the same shape.
---@param names heed.PointNames
---@param f fun(x: heed.Tensor, hook: heed.HookPoint): heed.Tensor?
---@return heed.Handle
function Module:add_hook(names, f) end

---Returns m(input, …), where functions may change the tensors at points: {["blocks.0.hook_resid_post"] = f}, or a list
---of {names, f}.
---@param input any
---@param hooks table
---@param ... any further arguments of the forward
---@return any ...
function Module:run_with_hooks(input, hooks, ...) end

---Returns what m(...) returns and, last, a heed.ActivationCache. The table of options at the end may also have `names`
---(those to store;
---by default all but hook_result) and `remove_batch_dim`.
---@param ... any
---@return any ...
function Module:run_with_cache(...) end

---@class heed.Class
local Class = {}

---x, or what the listeners of this point change it to; for a forward: `x = self:point("hook_x", x)`.
---The class lists its points, Mine.points = { "hook_x" }, and may give its parts other names in the names of points,
---Mine.part_names = { layers = "blocks" }.
---@param name string one of the class's `points`
---@param x heed.Tensor
---@return heed.Tensor
function Class:point(name, x) end
