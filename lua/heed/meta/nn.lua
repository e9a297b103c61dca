---@meta _
-- heed.nn: modules. Shape legend: b batch, h heads, n tokens.

---@class heed.nn
---@field Module heed.ModuleClass the root of one's own modules
---@field Sequential fun(...: heed.Module|heed.Module[]): heed.Sequential
---@field ModuleList fun(...: heed.Module|heed.Module[]): heed.ModuleList
---@field Residual fun(m: heed.Module): heed.Residual
---@field utils heed.nn.utils
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

---Of attention modules; key, value and cache of MultiHeadAttention. s counts the keys: x's tokens, or those of
---key, or those of the cache and x's after them.
---@class heed.ForwardOptions
---@field attn_mask? heed.Tensor bool, true takes part; or float32, added; broadcasts to [b, h, n, s]; with fewer keys it hides the rest
---@field key_padding_mask? heed.Tensor bool [b, s], true is padding
---@field need_weights? boolean give the internals as second result; the first never changes
---@field generator? heed.Generator of the dropout
---@field kv_lengths? heed.Tensor int64 [b]: keys beyond are padding, and with causality the last query stands at the last key; not with a cache
---@field key? heed.Tensor cross attention: x attends to it in the place of itself [b, s, kdim]
---@field value? heed.Tensor what is taken from these tokens; key [b, s, vdim]
---@field cache? heed.Cache x's tokens are put behind those in it, and attend to all of them

---What an attention module found on the way. Modules of one head leave h out; without a batch b is left out. With a
---window and a cache s counts the last left + n keys at the most.
---@class heed.Internals
---@field scores heed.Tensor q·k before scaling, hidden places -inf [b, h, n, s]
---@field weights heed.Tensor after softmax [b, h, n, s]
---@field dropped_weights? heed.Tensor after dropout, in training [b, h, n, s]
---@field queries heed.Tensor as attention gets them, after norm and rotation [b, h, n, d]
---@field keys heed.Tensor likewise [b, num_kv_heads, s, d]
---@field values heed.Tensor [b, num_kv_heads, s, d]

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
---@field assign? boolean the module takes the tensors themselves instead of copying them; false

---@class heed.LoadResult
---@field missing_keys string[]
---@field unexpected_keys string[]

---Copies the tensors of a state dict, or of a table by name, into the module, between float32, bfloat16 and
---float16 converted: all of them, or none and one error that names every problem. A notebook's `mask` buffers are
---ignored. With assign the module takes the tensors themselves, bfloat16 and float16 only for the weights of Linear
---and Embedding: elsewhere such tensors are widened to float32.
---@param state heed.StateDict|table<string, heed.Tensor>
---@param strict? boolean|heed.LoadOptions
---@param assign? boolean|heed.LoadOptions
---@return heed.LoadResult
function Module:load_state_dict(state, strict, assign) end

---Stores the weights of all Linear and Embedding modules in it in another dtype, all of them or none;
---arithmetic, and all other parameters, stay float32. With int8 a Linear has a parameter weight_scale behind its
---weight (see quantize_int8), and embeddings stay as they are. Weights that were one tensor stay one.
---@param dtype "float32"|"bfloat16"|"float16"|"int8"|{ dtype: string }
---@return heed.Module self
function Module:to(dtype) end

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

---x + m(x), with m's options and further results.
---@class heed.Residual: heed.Module
---@field module heed.Module m

-- ---- Utilities ----

---@class heed.nn.utils
local utils = {}

---Class(…), for weights that come from a file: built-in modules in it draw nothing, and their parameters are zeros
---without memory, not to be written to, until load_state_dict or an assignment puts others in their place.
---@param class heed.ModuleClass|fun(...: any): any a class, a constructor, or a function that makes modules
---@param ... any
---@return any
function utils.skip_init(class, ...) end

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

---@class heed.EmbeddingOptions
---@field num_embeddings integer
---@field embedding_dim integer
---@field padding_idx? integer
---@field generator? heed.Generator of the weight

---@class heed.Embedding: heed.Module
---@field weight heed.Tensor [num_embeddings, embedding_dim]
---@field num_embeddings integer
---@field embedding_dim integer
---@field padding_idx? integer from 1

---A row of the weight for each id: ids int64 of any shape, from 1, to [..., embedding_dim]. The weight is normal
---(0, 1), drawn as PyTorch draws it; row padding_idx starts as zeros.
---@overload fun(options: heed.EmbeddingOptions): heed.Embedding
---@param num_embeddings integer
---@param embedding_dim integer
---@param padding_idx? integer|{ padding_idx: integer?, generator: heed.Generator? }
---@return heed.Embedding
---@nodiscard
function nn.Embedding(num_embeddings, embedding_dim, padding_idx) end

---@class heed.RMSNormOptions
---@field normalized_shape integer|integer[]
---@field eps? number
---@field elementwise_affine? boolean with a weight; true

---@class heed.LayerNormOptions: heed.RMSNormOptions
---@field bias? boolean and a bias; true

---@class heed.LayerNorm: heed.Module
---@field weight? heed.Tensor of normalized_shape
---@field bias? heed.Tensor of normalized_shape
---@field normalized_shape heed.Size
---@field eps number
---@field elementwise_affine boolean

---(x - mean) / √(var + eps) · weight + bias over the last dimensions of x, which normalized_shape gives the sizes
---of; the weight starts as ones, the bias as zeros.
---@overload fun(options: heed.LayerNormOptions): heed.LayerNorm
---@param normalized_shape integer|integer[]
---@param eps? number|{ eps: number?, elementwise_affine: boolean?, bias: boolean? } 1e-5
---@param elementwise_affine? boolean|{ elementwise_affine: boolean?, bias: boolean? }
---@param bias? boolean|{ bias: boolean? }
---@return heed.LayerNorm
---@nodiscard
function nn.LayerNorm(normalized_shape, eps, elementwise_affine, bias) end

---@class heed.RMSNorm: heed.Module
---@field weight? heed.Tensor of normalized_shape
---@field normalized_shape heed.Size
---@field eps? number
---@field elementwise_affine boolean

---x / √(mean(x²) + eps) · weight over the last dimensions of x; the weight starts as ones.
---@overload fun(options: heed.RMSNormOptions): heed.RMSNorm
---@param normalized_shape integer|integer[]
---@param eps? number|{ eps: number?, elementwise_affine: boolean? } nil: 2^-23, as in PyTorch
---@param elementwise_affine? boolean|{ elementwise_affine: boolean? }
---@return heed.RMSNorm
---@nodiscard
function nn.RMSNorm(normalized_shape, eps, elementwise_affine) end

---@class heed.GELU: heed.Module

---x Φ(x), or its approximation by tanh.
---@param approximate? "none"|"tanh"|{ approximate: "none"|"tanh" }
---@return heed.GELU
---@nodiscard
function nn.GELU(approximate) end

---@class heed.SiLU: heed.Module

---x / (1 + e^-x).
---@return heed.SiLU
---@nodiscard
function nn.SiLU() end

---@class heed.ReLU: heed.Module

---x where it is positive, else 0.
---@return heed.ReLU
---@nodiscard
function nn.ReLU() end

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
---@field kdim? integer size of the tokens that keys are made from; d_in
---@field vdim? integer and values; d_in
---@field window? heed.Window which keys around its own place a token sees; a missing side is unbounded
---@field softcap? number c: scores become c · tanh(score / c); none
---@field rope? heed.RopeOptions turn queries and keys by their positions; {} has the defaults
---@field alibi? boolean subtract slopes · distance from the scores; false
---@field sinks? boolean with a parameter `sinks`, a logit of each head that takes weight and gives no value; false
---@field qk_norm? boolean|{ eps: number? } RMSNorm of each head's queries and keys, before rope; eps is 1e-6; false

---@class heed.MultiHeadAttention: heed.CausalAttention
---@field out_proj? heed.Linear
---@field num_heads integer
---@field num_kv_heads integer
---@field head_dim integer
---@field causal boolean
---@field scale number
---@field kdim integer
---@field vdim integer
---@field window? heed.Window
---@field softcap? number
---@field rope? heed.RopeOptions
---@field alibi boolean
---@field qk_norm boolean
---@field sinks? heed.Tensor [num_heads]
---@field q_norm? heed.RMSNorm
---@field k_norm? heed.RMSNorm
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

---The same heads as modules of their own, on the same memory, without the output projection. Only of a module
---that is causal and has nothing else (no window, no rope, …).
---@return heed.MultiHeadAttentionWrapper
---@nodiscard
function MultiHeadAttention:split() end

---The forward in slices of time: `for done, total in m:steps(x, {ms = 2}) do … end`, then its `result`. SelfAttention
---and CausalAttention (with its softmax over the keys) have it, too.
---@param x heed.Tensor
---@param options? heed.StepsOptions
---@return heed.Steps
---@nodiscard
function MultiHeadAttention:steps(x, options) end

---@class heed.CacheOptions
---@field batch? integer items; 1
---@field capacity? integer the most tokens; context_length, or no bound with a window to the left that is smaller
---@field dtype? "float32"|"bfloat16"|"float16"|"int8" how keys and values are stored; "float32"

---An empty cache for m(x, {cache = cache}). All of its memory is taken at once. A module with a window to the left
---keeps in it what can still be seen, and a few tokens more.
---@param options? heed.CacheOptions
---@return heed.Cache
---@nodiscard
function MultiHeadAttention:new_cache(options) end

---The keys and values that a MultiHeadAttention has seen. int8 has a scale for each token and head, the largest
---magnitude / 127. A pass that fails leaves it as it was.
---@class heed.Cache
---@field length integer tokens seen
---@field capacity number the most tokens; math.huge without a bound
---@field batch integer
---@field dtype string
local Cache = {}

---Forgets all tokens but the first n.
---@param n integer
---@return heed.Cache self
function Cache:truncate(n) end

---Item i becomes what item indices[i] was; for beam search.
---@param indices heed.Tensor|integer[] from 1; one may come several times
---@return heed.Cache self
function Cache:reorder(indices) end

---A cache of its own with the same tokens.
---@return heed.Cache
---@nodiscard
function Cache:clone() end

---Gives the memory back at once; also `local cache <close> = m:new_cache()`.
function Cache:release() end
