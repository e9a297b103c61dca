---@meta _
-- heed.nn: modules. Shape legend: b batch, h heads, n tokens.

---@class heed.nn
---@field Module heed.ModuleClass the root of one's own modules
---@field Sequential fun(...: heed.Module|heed.Module[]): heed.Sequential
---@field ModuleList fun(...: heed.Module|heed.Module[]): heed.ModuleList
local nn = {}

---A tensor on the same elements that a module lists among its parameters, and that prints as one.
---@param data heed.Tensor float32
---@return heed.Tensor
---@nodiscard
function nn.Parameter(data) end

---Whether a value is a module, built in or one's own.
---@param value any
---@return boolean
---@nodiscard
function nn.is_module(value) end

-- ---- What all modules have ----

---@class heed.ForwardOptions
---@field attn_mask? heed.Tensor bool, true takes part; or float32, added; broadcasts to [b, h, n, n]
---@field key_padding_mask? heed.Tensor bool [b, n], true is padding
---@field need_weights? boolean give the internals as second result; the first never changes
---@field generator? heed.Generator of the dropout

---What an attention module found on the way. Modules of one head leave h out; without a batch b is left out.
---@class heed.Internals
---@field scores heed.Tensor q·k before scaling, hidden places -inf [b, h, n, n]
---@field weights heed.Tensor after softmax [b, h, n, n]
---@field dropped_weights? heed.Tensor after dropout, in training [b, h, n, n]
---@field queries heed.Tensor [b, h, n, d]
---@field keys heed.Tensor [b, h, n, d]
---@field values heed.Tensor [b, h, n, d]

---A list that a `for` can also call: `for p in m:parameters() do` and `ipairs(m:parameters())`.
---@class heed.TensorList
---@field [integer] heed.Tensor
---@overload fun(): heed.Tensor
---@operator len: integer

---@class heed.ModuleItems
---@field [integer] heed.Module
---@overload fun(): heed.Module
---@operator len: integer

---@class heed.MemberOptions
---@field prefix? string put before all names, with a dot
---@field recurse? boolean false: without those of the parts

---@class heed.RecurseOption
---@field recurse? boolean false: without those of the parts

---A module: parameters, parts and a forward. `m(x, options)` is `m:forward(x, options)`. Names count lists
---from 0 ("heads.0.W_query.weight"), because state files do; indices (`m.heads[1]`) count from 1.
---@class heed.Module
---@field training boolean true at first; setting it is m:train(value)
---@field [any] any parts and parameters by name
---@overload fun(...: any): any, any
local Module = {}

---The module applied to x.
---@param x heed.Tensor
---@param options? heed.ForwardOptions
---@return heed.Tensor y
---@return heed.Internals? info with need_weights
function Module:forward(x, options) end

---`for name, p in m:named_parameters() do`, in PyTorch's order: a module's own, then those of its parts. A
---parameter in several places is listed once.
---@param prefix? string|heed.MemberOptions
---@param recurse? boolean|heed.MemberOptions
---@return fun(): string, heed.Tensor
function Module:named_parameters(prefix, recurse) end

---The parameters in the same order.
---@param recurse? boolean|heed.RecurseOption
---@return heed.TensorList
---@nodiscard
function Module:parameters(recurse) end

---`for name, t in m:named_buffers() do`
---@param prefix? string|heed.MemberOptions
---@param recurse? boolean|heed.MemberOptions
---@return fun(): string, heed.Tensor
function Module:named_buffers(prefix, recurse) end

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

---`for name, part in m:named_modules() do`: m itself, under the name "", and everything in it, each once.
---@return fun(): string, heed.Module
function Module:named_modules() end

---m itself and everything in it, each once.
---@return heed.ModuleItems
---@nodiscard
function Module:modules() end

---Parameters and buffers by dotted name, in order; `sd[name]`, `pairs(sd)`, `#sd`. The tensors share the
---module's memory.
---@class heed.StateDict
---@field [string] heed.Tensor
---@operator len: integer

---@return heed.StateDict
---@nodiscard
function Module:state_dict() end

---@class heed.LoadOptions
---@field strict? boolean false: missing and unexpected names are no errors; true

---@class heed.LoadResult
---@field missing_keys string[]
---@field unexpected_keys string[]

---Copies the tensors of a state dict, or of a table by name, into the module: all of them, or none and one
---error that names every problem. A notebook's `mask` buffers are ignored.
---@param state heed.StateDict|table<string, heed.Tensor>
---@param strict? boolean|heed.LoadOptions
---@return heed.LoadResult
function Module:load_state_dict(state, strict) end

---Training mode on (or off) for the module and its parts. Dropout works in training mode only.
---@param mode? boolean true
---@return heed.Module self
function Module:train(mode) end

---Training mode off.
---@return heed.Module self
function Module:eval() end

---Calls f with every part, depth first, and at last with the module itself.
---@param f fun(m: heed.Module)
---@return heed.Module self
function Module:apply(f) end

---"Linear", or the name of one's own class.
---@return string
---@nodiscard
function Module:class_name() end

---What the text of the module shows between the parentheses; to be redefined in one's own classes.
---@return string
---@nodiscard
function Module:extra_repr() end

-- ---- One's own modules ----

---A class of modules; `Mine(…)` makes an object and calls its init.
---@class heed.ModuleClass: heed.Module
---@overload fun(...: any): heed.Module
local Class = {}

---A new class: `local Mine = nn.Module.class "Mine"`, with `function Mine:init(…)` and `function
---Mine:forward(x)`. Fields that are parameters, modules or buffers are found in the order in which they
---were first set; nil takes them out. A class derived from another calls `Parent.init(self, …)`.
---@param name string
---@param parent? heed.ModuleClass
---@return heed.ModuleClass
function Class.class(name, parent) end

---Called with the arguments of `Mine(…)`.
---@param ... any
function Class:init(...) end

---@class heed.BufferOptions
---@field persistent? boolean false: not part of the state dict; true

---Makes a tensor the module's `self.name`, part of its state without being a parameter.
---@param name string
---@param tensor heed.Tensor
---@param persistent? boolean|heed.BufferOptions
function Class:register_buffer(name, tensor, persistent) end

-- ---- Containers ----

---Modules by number: `m[1]`, `m[-1]`, `#m`, `ipairs(m)`, `m[2] = part`.
---@class heed.ModuleList: heed.Module
---@field [integer] heed.Module
---@operator len: integer
local ModuleList = {}

---Puts a module at the end.
---@param m heed.Module
---@return heed.ModuleList self
function ModuleList:append(m) end

---Puts the modules of a table or of another container at the end.
---@param list heed.Module[]|heed.ModuleList
---@return heed.ModuleList self
function ModuleList:extend(list) end

---Puts a module before the one at index i.
---@param i integer
---@param m heed.Module
---@return heed.ModuleList self
function ModuleList:insert(i, m) end

---Takes the module at index i out.
---@param i? integer -1
---@return heed.Module
function ModuleList:pop(i) end

---Modules applied one after another, each to the first result of the one before.
---@class heed.Sequential: heed.ModuleList

-- ---- Built-in modules ----

---@class heed.LinearOptions
---@field d_in integer also in_features
---@field d_out integer also out_features
---@field bias? boolean true
---@field generator? heed.Generator of the weights

---@class heed.Linear: heed.Module
---@field weight heed.Tensor [d_out, d_in]
---@field bias? heed.Tensor [d_out]
---@field in_features integer
---@field out_features integer

---y = x weightᵀ + bias, x [..., d_in] to [..., d_out]; the weights are uniform in ±1/√d_in, drawn as
---PyTorch draws them.
---@overload fun(options: heed.LinearOptions): heed.Linear
---@param d_in integer
---@param d_out integer
---@param bias? boolean|{ bias: boolean?, generator: heed.Generator? }
---@return heed.Linear
---@nodiscard
function nn.Linear(d_in, d_out, bias) end

---@class heed.Dropout: heed.Module
---@field p number

---In training mode x with each element 0 with probability p, the rest times 1 / (1 - p); else x.
---@param p? number|{ p: number } 0.5
---@return heed.Dropout
---@nodiscard
function nn.Dropout(p) end

---@class heed.SelfAttentionOptions
---@field d_in integer
---@field d_out integer
---@field qkv_bias? boolean whether the projections have a bias; false
---@field generator? heed.Generator of the weights

---@class heed.SelfAttention: heed.Module
---@field W_query heed.Linear
---@field W_key heed.Linear
---@field W_value heed.Linear
---@field d_in integer
---@field d_out integer

---Every token sees every token. x [n, d_in] or [b, n, d_in] to […, n, d_out].
---@overload fun(options: heed.SelfAttentionOptions): heed.SelfAttention
---@param d_in integer
---@param d_out integer
---@param qkv_bias? boolean|{ qkv_bias: boolean?, generator: heed.Generator? }
---@return heed.SelfAttention
---@nodiscard
function nn.SelfAttention(d_in, d_out, qkv_bias) end

---@class heed.CausalAttentionOptions: heed.SelfAttentionOptions
---@field context_length integer the most tokens
---@field dropout number of the weights
---@field softmax_dim? integer the dimension of the weights that adds up to 1; -1

---@class heed.CausalAttention: heed.SelfAttention
---@field dropout heed.Dropout
---@field context_length integer

---A token sees itself and those before. x [n, d_in] or [b, n, d_in] to […, n, d_out]; n is at most
---context_length.
---@overload fun(options: heed.CausalAttentionOptions): heed.CausalAttention
---@param d_in integer
---@param d_out integer
---@param context_length integer
---@param dropout number
---@param qkv_bias? boolean|{ qkv_bias: boolean?, softmax_dim: integer?, generator: heed.Generator? }
---@return heed.CausalAttention
---@nodiscard
function nn.CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) end

---@class heed.WrapperOptions: heed.SelfAttentionOptions
---@field context_length integer
---@field dropout number
---@field num_heads integer

---@class heed.MultiHeadAttentionWrapper: heed.Module
---@field heads heed.CausalAttention[]
---@field num_heads integer

---num_heads CausalAttention heads, in `m.heads`, their outputs side by side: […, n, d_out · num_heads].
---@overload fun(options: heed.WrapperOptions): heed.MultiHeadAttentionWrapper
---@param d_in integer
---@param d_out integer
---@param context_length integer
---@param dropout number
---@param num_heads integer
---@param qkv_bias? boolean|{ qkv_bias: boolean?, generator: heed.Generator? }
---@return heed.MultiHeadAttentionWrapper
---@nodiscard
function nn.MultiHeadAttentionWrapper(d_in, d_out, context_length, dropout, num_heads, qkv_bias) end

---@class heed.MultiHeadAttentionOptions: heed.WrapperOptions
---@field causal? boolean a token sees itself and those before; true
---@field num_kv_heads? integer heads of keys and values; num_heads
---@field head_dim? integer d_out / num_heads
---@field out_proj? boolean with an output projection; true
---@field out_bias? boolean and a bias on it; true
---@field scale? number of the scores; 1 / √head_dim

---@class heed.MultiHeadAttention: heed.CausalAttention
---@field out_proj? heed.Linear
---@field num_heads integer
---@field num_kv_heads integer
---@field head_dim integer
---@field causal boolean
---@field scale number
local MultiHeadAttention = {}

---One projection each for queries, keys and values, split into heads; then an output projection: […, n,
---d_out].
---@overload fun(options: heed.MultiHeadAttentionOptions): heed.MultiHeadAttention
---@param d_in integer
---@param d_out integer
---@param context_length integer
---@param dropout number
---@param num_heads integer
---@param qkv_bias? boolean|heed.MultiHeadAttentionOptions
---@return heed.MultiHeadAttention
---@nodiscard
function nn.MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads, qkv_bias) end

---Views of head i's columns of the weights, [d_in, head_dim] each: the head's queries are x · W_query.
---@param i integer
---@return { W_query: heed.Tensor, W_key: heed.Tensor, W_value: heed.Tensor }
---@nodiscard
function MultiHeadAttention:head(i) end

---The same heads as modules of their own, on the same memory, without the output projection.
---@return heed.MultiHeadAttentionWrapper
---@nodiscard
function MultiHeadAttention:split() end
