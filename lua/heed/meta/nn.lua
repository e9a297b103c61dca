---@meta heed.nn
-- heed.nn: modules. Shape legend: b batch, h heads, n tokens, s keys, d size of a head. Inputs of a wrong shape or dtype,
-- and options that contradict each other, raise an error.

---@class heed.nn
---@field Module heed.ModuleClass the base class of user-defined modules
---@field Sequential fun(...: heed.Module|any[]): heed.Sequential modules, or pairs {name, module}
---@field ModuleList fun(...: heed.Module|heed.Module[]): heed.ModuleList a list of modules
---@field Residual fun(m: heed.Module): heed.Residual a residual connection, x + m(x)
---@field utils heed.nn.utils parameters and gradients as a whole
local nn = {}

-- ---- Parameters ----

---A parameter that shares the elements of `data`. Assigned to a field of a module, it becomes one of its parameters.
---@param data heed.Tensor float32
---@return heed.Tensor
---@nodiscard
function nn.Parameter(data) end

---Whether a value is a module, built in or user-defined.
---@param value any anything
---@return boolean
---@nodiscard
function nn.is_module(value) end

-- ---- Methods of all modules ----

---Options of attention modules; key, value and cache are for MultiHeadAttention only. s is the number of keys: the tokens
---of x or of key, or those in the cache followed by those of x.
---@class heed.ForwardOptions
---@field attn_mask? heed.Tensor|heed.Mask a mask value, or bool, true where the key is visible; or float32, added to the scores; broadcast to [b, h, n, s]. A mask with fewer keys hides the remaining ones
---@field key_padding_mask? heed.Tensor bool [b, s], true for padding
---@field need_weights? boolean|heed.WantedTaps return the intermediate results as a second result; this never changes the first
---@field generator? heed.Generator draws the dropout mask
---@field kv_lengths? heed.Indices [b]: keys beyond these lengths are padding, as with key_padding_mask. With key and causality, the last query is aligned with the last key. Not together with a cache
---@field key? heed.Tensor cross attention: x attends to these tokens instead of itself [b, s, kdim]
---@field value? heed.Tensor the tokens that values are computed from; by default key [b, s, vdim]
---@field cache? heed.Cache x's tokens are appended to it and attend to all tokens in it
---@field need_lse? boolean return the log-sum-exp as info.lse
---@field lengths? heed.Indices [b]: x is [total, d_in], packed sequences of these lengths, without padding; attn_mask is [h, total, s]. With a cache, the new tokens of each of its items. Not together with padding and kv_lengths
---@field key_lengths? heed.Indices [b]: the lengths of those in key [total_keys, kdim], together with lengths

---Which intermediate results: a list of their names (all without any), the heads, and the queries: two numbers are a
---range, others a list. Both count from 1, negative numbers from the end. Only maps [..., h, n, s] are reduced.
---@class heed.WantedTaps
---@field [integer] string
---@field heads? integer[] all by default
---@field queries? integer[] all by default

---The intermediate results of attention. Modules with one head omit h; inputs without a batch omit b. With a window and a cache, s
---counts at most the last left + n keys.
---@class heed.Taps
---@field lse? heed.Tensor with need_lse: log Σ e^score, -inf if no key is visible [b, h, n]
---@field scores heed.Tensor q·k before scaling, -inf for hidden keys [b, h, n, s]
---@field weights heed.Tensor after softmax [b, h, n, s]
---@field dropped_weights? heed.Tensor after dropout, in training mode [b, h, n, s]
---@field queries heed.Tensor after normalization and rotation [b, h, n, d]
---@field keys heed.Tensor after normalization and rotation [b, num_kv_heads, s, d]
---@field values heed.Tensor [b, num_kv_heads, s, d]

---A list that is also an iterator: `for p in m:parameters() do` and `ipairs(m:parameters())`.
---@class heed.TensorList
---@field [integer] heed.Tensor
---@overload fun(): heed.Tensor
---@operator len: integer

---A list of modules that is also an iterator.
---@class heed.ModuleItems
---@field [integer] heed.Module
---@overload fun(): heed.Module
---@operator len: integer

---@class heed.MemberOptions
---@field prefix? string prepended to all names, followed by a dot
---@field recurse? boolean whether to include the parts; true by default

---@class heed.RecurseOption
---@field recurse? boolean whether to include the parts; true by default

---A module: parameters, buffers, parts (submodules) and a forward pass. `m(x, options)` is `m:forward(x, options)`. Names
---count lists from 0, as in state files ("heads.0.W_query.weight"); indices count from 1 (`m.heads[1]`).
---@class heed.Module
---@field training boolean initially true; assigning it calls m:train(value)
---@field [any] any parts and parameters by name
---@overload fun(...: any): any, any
local Module = {}

---The forward pass: applies the module to x.
---@param x heed.Tensor the input
---@param options? heed.ForwardOptions
---@return heed.Tensor y
---@return heed.Taps? info with need_weights
function Module:forward(x, options) end

---`for name, p in m:named_parameters() do`: the parameters in PyTorch's order, a module's own before those of its parts.
---A shared parameter is listed once.
---@param prefix? string|heed.MemberOptions
---@param recurse? boolean|heed.MemberOptions
---@return fun(): string, heed.Tensor
function Module:named_parameters(prefix, recurse) end

---The parameters, in the same order as named_parameters.
---@param recurse? boolean|heed.RecurseOption
---@return heed.TensorList
---@nodiscard
function Module:parameters(recurse) end

---`for name, t in m:named_buffers() do`: the buffers, which are tensors that belong to the state but are not parameters.
---@param prefix? string|heed.MemberOptions
---@param recurse? boolean|heed.MemberOptions
---@return fun(): string, heed.Tensor
function Module:named_buffers(prefix, recurse) end

---The buffers, in the same order as named_buffers.
---@param recurse? boolean|heed.RecurseOption
---@return heed.TensorList
---@nodiscard
function Module:buffers(recurse) end

---`for name, part in m:named_children() do`: the direct parts.
---@return fun(): string, heed.Module
function Module:named_children() end

---The direct parts.
---@return heed.ModuleItems
---@nodiscard
function Module:children() end

---`for name, part in m:named_modules() do`: m itself, under the name "", and all modules in it. A shared module is
---listed once.
---@return fun(): string, heed.Module
function Module:named_modules() end

---m itself and all modules in it. A shared module is listed once.
---@return heed.ModuleItems
---@nodiscard
function Module:modules() end

---`for i, part in m:iter() do`: the modules of a ModuleList, a Sequential or the `heads` of a MultiHeadAttentionWrapper.
---@return fun(): integer, heed.Module
function Module:iter() end

---Parameters and buffers by dotted name, in order: `sd[name]`, `pairs(sd)`, `#sd`. Tensors can be replaced, added and
---removed (by assigning nil).
---@class heed.StateDict
---@field [string] heed.Tensor
---@operator len: integer

---The module's state. The tensors share the module's memory.
---@return heed.StateDict
---@nodiscard
function Module:state_dict() end

---@class heed.LoadStateOptions
---@field strict? boolean whether missing and unexpected names are errors; true by default
---@field assign? boolean use the tensors themselves instead of copying them; false by default

---@class heed.LoadResult
---@field missing_keys string[] names that the state lacks
---@field unexpected_keys string[] names that the module lacks

---Copies the tensors of a state dict, or of a table by name, into the module, converting between float32, bfloat16 and
---float16. Either all tensors are loaded, or none and one error lists every problem. Buffers called `mask` or
---`causal_mask`, as PyTorch code often has them, are ignored. With assign, the module uses the tensors themselves;
---bfloat16 and float16 are then kept for the weights of Linear and Embedding, and converted to float32 elsewhere.
---@param state heed.StateDict|table<string, heed.Tensor> what state_dict returned
---@param strict? boolean|heed.LoadStateOptions
---@param assign? boolean|heed.LoadStateOptions
---@return heed.LoadResult
function Module:load_state_dict(state, strict, assign) end

---Converts the weights of all Linear and Embedding modules in it to another dtype; if that fails, none is changed. Other
---parameters, and arithmetic, stay float32, and so do weights whose rows are not whole blocks of that dtype. With int8, each Linear gets a parameter weight_scale (see quantize_int8), and
---embeddings are not converted. Shared weights stay shared.
---@param dtype "float32"|"bfloat16"|"float16"|"int8"|heed.BlockDType|{ dtype: string } the new one
---@return heed.Module self
function Module:to(dtype) end

---The same as m:to "float32".
---@return heed.Module self
function Module:float() end

---The same as m:to "float16".
---@return heed.Module self
function Module:half() end

---The same as m:to "bfloat16".
---@return heed.Module self
function Module:bfloat16() end

---A deep copy, as Python's copy.deepcopy makes it. Tensors, parts and tables that occur several times in the module are
---shared inside the copy, too. Other values in the fields of user-defined modules, such as functions, generators and
---caches, are shared with the original.
---@return heed.Module
---@nodiscard
function Module:clone() end

---The part at a dotted path, such as "layers.0.self_attn"; "" is the module itself.
---@param target string names joined by dots
---@return heed.Module
---@nodiscard
function Module:get_submodule(target) end

---The parameter at a dotted path, such as "layers.0.weight".
---@param target string names joined by dots
---@return heed.Tensor
---@nodiscard
function Module:get_parameter(target) end

---The buffer at a dotted path.
---@param target string names joined by dots
---@return heed.Tensor
---@nodiscard
function Module:get_buffer(target) end

---Calls hook(module, input, …), with all arguments, before each m(x). What it returns replaces the first arguments,
---except nil. Not
---called by m:forward(x).
---@param hook fun(m: heed.Module, input: any, ...: any): any the function
---@param options? boolean|{ prepend: boolean? } prepend: call it before the other hooks
---@return heed.Handle
function Module:register_forward_pre_hook(hook, options) end

---Calls hook(module, input, output, …), with all results, after each m(x). What it returns replaces the first results,
---except nil. Not
---called by m:forward(x).
---@param hook fun(m: heed.Module, input: any, output: any, ...: any): any the function
---@param options? boolean|{ prepend: boolean? } prepend: call it before the other hooks
---@return heed.Handle
function Module:register_forward_hook(hook, options) end

---The names of all points of the module and its parts.
---@return string[]
---@nodiscard
function Module:hook_names() end

---Calls f(x, hook) at these points of every forward pass; f may return a changed tensor of the same shape.
---@param names heed.PointNames a name, a list of names, or a function that chooses
---@param f fun(x: heed.Tensor, hook: heed.HookPoint): heed.Tensor? gets the tensor at the point
---@return heed.Handle
function Module:add_hook(names, f) end

---heed.Surgery.on_weights for every attention module in this one, with context.layer.
---@param f fun(weights: heed.Tensor, context: heed.PointContext): heed.Tensor? gets the attention weights
---@return heed.Handle
function Module:on_weights(f) end

---Returns m(input, …), where functions may change the tensors at points: {["blocks.0.hook_resid_post"] = f}, or a list
---of {names, f}.
---@param input any the input of the module
---@param hooks table functions by the names of points
---@param ... any further arguments of the forward
---@return any ...
function Module:run_with_hooks(input, hooks, ...) end

---Returns what m(...) returns and, last, a heed.ActivationCache. The table of options at the end may also have `names`
---(those to store; by
---default all but hook_result) and `remove_batch_dim`.
---@param ... any
---@return any ...
function Module:run_with_cache(...) end

---Turns training mode on or off for the module and all modules in it. Dropout is active in training mode only.
---@param mode? boolean true by default
---@return heed.Module self
function Module:train(mode) end

---Turns training mode off, like m:train(false).
---@return heed.Module self
function Module:eval() end

---Whether gradients of all parameters are wanted, as they are at first: m:requires_grad_(false) freezes a model.
---@param requires_grad? boolean true by default
---@return heed.Module self
function Module:requires_grad_(requires_grad) end

---Forgets the gradients of all parameters; with set_to_none = false it sets them to 0 instead.
---@param set_to_none? boolean true by default
function Module:zero_grad(set_to_none) end

---Calls f with every module in it, depth first, and finally with the module itself.
---@param f fun(m: heed.Module) is called with each module
---@return heed.Module self
function Module:apply(f) end

---The name of the module's class, such as "Linear".
---@return string
---@nodiscard
function Module:class_name() end

---The text between the parentheses when the module is printed. User-defined classes may override it.
---@return string
---@nodiscard
function Module:extra_repr() end

-- ---- User-defined modules ----

---A class of modules; `Mine(…)` creates an object and calls its init.
---@class heed.ModuleClass: heed.Module
---@overload fun(...: any): heed.Module
local Class = {}

---Makes a class: `local Mine = nn.Module.class "Mine"`, with `function Mine:init(…)` and `function Mine:forward(x)`.
---Fields that are assigned parameters or modules are registered, in the order of first assignment; assigning nil removes
---them. The init of a derived class calls `Parent.init(self, …)`.
---@param name string shown where a module is printed
---@param parent? heed.ModuleClass nn.Module by default
---@return heed.ModuleClass
function Class.class(name, parent) end

---Initializes a new object; called with the arguments of `Mine(…)`.
---@param ... any
function Class:init(...) end

---@class heed.BufferOptions
---@field persistent? boolean whether it is part of the state dict; true by default

---Registers a tensor as the buffer `self[name]`: part of the module's state without being a parameter.
---@param name string of the field
---@param tensor heed.Tensor its elements are shared
---@param persistent? boolean|heed.BufferOptions
function Class:register_buffer(name, tensor, persistent) end

---Registers a module as the part `self[name]`, as an assignment does; nil removes it.
---@param name string of the field
---@param module heed.Module? or nil
function Class:add_module(name, module) end
Class.register_module = Class.add_module

---Registers a tensor as the parameter `self[name]`, as an assignment of nn.Parameter(tensor) does; nil removes it.
---@param name string of the field
---@param tensor heed.Tensor? float32, or nil
function Class:register_parameter(name, tensor) end

---x, or what the listeners of this point change it to; for a forward: `x = self:point("hook_x", x)`.
---The class lists its points, Mine.points = { "hook_x" }, and may give its parts other names in the names of points,
---Mine.part_names = { layers = "blocks" }.
---@param name string one of the class's `points`
---@param x heed.Tensor the tensor at the point
---@return heed.Tensor
function Class:point(name, x) end

-- ---- Containers ----

---A list of modules: `m[1]`, `m[-1]`, `#m`, `ipairs(m)`, `m[2] = part`. An index out of range raises an error.
---@class heed.ModuleList: heed.Module
---@field [integer] heed.Module
---@operator len: integer
local ModuleList = {}

---Appends a module.
---@param m heed.Module the module
---@return heed.ModuleList self
function ModuleList:append(m) end

---Appends the modules of a table or of another container.
---@param list heed.Module[]|heed.ModuleList what to append
---@return heed.ModuleList self
function ModuleList:extend(list) end

---Inserts a module before the one at index i.
---@param i integer from 1
---@param m heed.Module the module
---@return heed.ModuleList self
function ModuleList:insert(i, m) end

---Removes the module at index i and returns it.
---@param i? integer -1 by default, the last
---@return heed.Module
function ModuleList:pop(i) end

---Applies its modules one after another, each to the first result of the previous one.
---@class heed.Sequential: heed.ModuleList
---@overload fun(x: any, options?: heed.ForwardOptions): any, any

---A residual connection, x + m(x). Options are passed to m, and its further results are returned.
---@class heed.Residual: heed.Module
---@overload fun(x: any, options?: heed.ForwardOptions): any, any
---@field module heed.Module m

-- ---- Utilities ----

---@class heed.nn.utils
local utils = {}

---Class(…) without initializing weights, for models whose weights are loaded from a file: the built-in modules in it draw
---no random numbers, and their parameters are zeros without memory, which cannot be written to, until load_state_dict
---or an assignment replaces them.
---@param class heed.ModuleClass|fun(...: any): any a class, a constructor, or a function that makes modules
---@param ... any its arguments
---@return any
function utils.skip_init(class, ...) end

return nn
