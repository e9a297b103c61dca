---@meta _
-- heed.nn: the attention modules and their key-value caches. Shape legend: b batch, h heads, n tokens, d size of a head.

---@class heed.nn
local nn = {}

-- ---- Attention modules ----

---@class heed.SelfAttentionOptions
---@field d_in integer the size of a token
---@field d_out integer the size of the result
---@field qkv_bias? boolean whether the projections have a bias; false by default
---@field generator? heed.Generator draws the weights

---The parts W_query, W_key, W_value, out_proj and dropout may be replaced by modules of one's own, `m.W_query =
---Lora(m.W_query)`, or other built-in ones. Their forward(x) receives the tokens, the outputs of the heads [..., n, h · d]
---(out_proj) or the attention weights (dropout), and must return what the original part would: the shape is checked.
---Errors in it leave a cache as it was. It may yield (not in 5.1 and LuaJIT, and not in the heads of a wrapper). With
---such parts, head, split and another softmax_dim raise an error.
---@class heed.SelfAttention: heed.Module, heed.Surgery, heed.Inspected
---@overload fun(x: heed.Tensor, options?: heed.ForwardOptions): heed.Tensor, heed.Taps?
---@field W_query heed.Linear|heed.Module from tokens to queries
---@field W_key heed.Linear|heed.Module from tokens to keys
---@field W_value heed.Linear|heed.Module from tokens to values
---@field d_in integer the size of a token
---@field d_out integer the size of the result
---@field scale number a factor of the scores, 1 / √d_out at first; can be set

---Self-attention with one head, in which every token sees all tokens. x [n, d_in] or [b, n, d_in] gives […, n, d_out].
---@overload fun(options: heed.SelfAttentionOptions): heed.SelfAttention
---@param d_in integer the size of a token
---@param d_out integer the size of queries, keys and values
---@param qkv_bias? boolean|{ qkv_bias: boolean?, generator: heed.Generator? }
---@return heed.SelfAttention
---@nodiscard
function nn.SelfAttention(d_in, d_out, qkv_bias) end

---@class heed.CausalAttentionOptions: heed.SelfAttentionOptions
---@field context_length integer the largest number of tokens
---@field dropout number dropout probability of the attention weights
---@field softmax_dim? integer the dimension of the attention weights that adds up to 1; -1 by default

---@class heed.CausalAttention: heed.SelfAttention
---@overload fun(x: heed.Tensor, options?: heed.ForwardOptions): heed.Tensor, heed.Taps?
---@field dropout heed.Dropout|heed.Module of the attention weights
---@field context_length integer can be set
---@field softmax_dim integer can be set (not in MultiHeadAttention)

---Causal self-attention with one head: a token sees itself and the tokens before it. x [n, d_in] or [b, n, d_in] gives
---[…, n, d_out]; more than context_length tokens raise an error.
---@overload fun(options: heed.CausalAttentionOptions): heed.CausalAttention
---@param d_in integer the size of a token
---@param d_out integer the size of queries, keys and values
---@param context_length integer the largest number of tokens
---@param dropout number probability with which an attention weight is dropped in training
---@param qkv_bias? boolean|{ qkv_bias: boolean?, softmax_dim: integer?, generator: heed.Generator? }
---@return heed.CausalAttention
---@nodiscard
function nn.CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) end

---@class heed.WrapperOptions: heed.SelfAttentionOptions
---@field context_length integer the largest number of tokens
---@field dropout number probability with which an attention weight is dropped in training
---@field num_heads integer the number of heads

---@class heed.MultiHeadAttentionWrapper: heed.Module, heed.Surgery, heed.Inspected
---@overload fun(x: heed.Tensor, options?: heed.ForwardOptions): heed.Tensor, heed.Taps?
---@field heads heed.CausalAttention[]|heed.Module `#m.heads`, `m.heads[1]`, `m.heads:iter()`, ipairs (from 5.2 on)
---@field num_heads integer the number of heads

---num_heads separate CausalAttention modules, in `m.heads`, with concatenated outputs: x [n, d_in] or [b, n, d_in] gives
---[…, n, d_out · num_heads].
---@overload fun(options: heed.WrapperOptions): heed.MultiHeadAttentionWrapper
---@param d_in integer the size of a token
---@param d_out integer the size of each head
---@param context_length integer the largest number of tokens
---@param dropout number probability with which an attention weight is dropped in training
---@param num_heads integer the number of heads
---@param qkv_bias? boolean|{ qkv_bias: boolean?, generator: heed.Generator? }
---@return heed.MultiHeadAttentionWrapper
---@nodiscard
function nn.MultiHeadAttentionWrapper(d_in, d_out, context_length, dropout, num_heads, qkv_bias) end

---@class heed.MultiHeadAttentionOptions: heed.WrapperOptions
---@field causal? boolean a token sees itself and the tokens before it; true by default
---@field num_kv_heads? integer the number of key and value heads, a divisor of num_heads; num_heads by default
---@field head_dim? integer the size of a head; d_out / num_heads by default
---@field out_proj? boolean whether there is an output projection; true by default
---@field out_bias? boolean whether the output projection has a bias; true by default
---@field scale? number a factor of the scores; 1 / √head_dim by default
---@field kdim? integer the size of the tokens that keys are computed from; d_in by default
---@field vdim? integer the size of the tokens that values are computed from; d_in by default
---@field window? heed.Window sliding-window attention: the keys that a token sees; a missing side is unbounded
---@field softcap? number c: scores become c · tanh(score / c); off by default
---@field rope? heed.RopeOptions rotary position embeddings; {} selects the defaults; off by default
---@field alibi? boolean attention with linear biases: subtracts slope · distance from the scores; false by default
---@field sinks? boolean attention sinks: a parameter `sinks`, an additional logit of each head without a value; false by default
---@field qk_norm? boolean|{ eps: number? } RMSNorm of each head's queries and keys, before rope; eps is 1e-6 by default; off by default

---Settings that can be set are checked as in the constructor; nil selects the default. A forward in slices that has begun
---keeps those it began with.
---@class heed.MultiHeadAttention: heed.CausalAttention
---@overload fun(x: heed.Tensor, options?: heed.ForwardOptions): heed.Tensor, heed.Taps?
---@field out_proj? heed.Linear|heed.Module from the joined heads to the result
---@field num_heads integer heads of queries
---@field num_kv_heads integer heads of keys and values
---@field head_dim integer the size of a head
---@field causal boolean can be set
---@field scale number can be set
---@field kdim integer the size of the tokens that keys are computed from
---@field vdim integer the size of those that values are computed from
---@field window? heed.Window can be set (as a whole: the table is a copy)
---@field softcap? number can be set
---@field rope? heed.RopeOptions can be set (as a whole: the table is a copy)
---@field alibi boolean whether scores fall with the distance
---@field qk_norm boolean whether queries and keys are normalised
---@field sinks? heed.Tensor [num_heads]
---@field q_norm? heed.RMSNorm with qk_norm
---@field k_norm? heed.RMSNorm with qk_norm
local MultiHeadAttention = {}

---Multi-head attention: one projection each for queries, keys and values, split into heads, followed by an output
---projection. x [n, d_in] or [b, n, d_in] gives […, n, d_out].
---@overload fun(options: heed.MultiHeadAttentionOptions): heed.MultiHeadAttention
---@param d_in integer the size of a token
---@param d_out integer the size of the result; heads have d_out / num_heads
---@param context_length integer the largest number of tokens
---@param dropout number probability with which an attention weight is dropped in training
---@param num_heads integer the number of heads
---@param qkv_bias? boolean|heed.MultiHeadAttentionOptions
---@return heed.MultiHeadAttention
---@nodiscard
function nn.MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads, qkv_bias) end

---The weights of head i as views [d_in, head_dim]: the head's queries are x · W_query. For keys and values, those of the
---key head that head i uses.
---@param i integer from 1
---@return { W_query: heed.Tensor, W_key: heed.Tensor, W_value: heed.Tensor }
---@nodiscard
function MultiHeadAttention:head(i) end

---The heads as separate modules that share this module's memory, without the output projection. Raises an error unless
---the module is causal and has no further options (window, rope, …).
---@return heed.MultiHeadAttentionWrapper
---@nodiscard
function MultiHeadAttention:split() end

---A resumable forward pass in time slices: after `for done, total in steps do … end`, where `steps = m:steps(x, {ms = 2})`,
---steps.result is the output. SelfAttention, CausalAttention (with softmax over the keys) and Linear have this method, too.
---@param x heed.Tensor the input of the forward pass
---@param options? heed.StepsOptions
---@return heed.Steps
---@nodiscard
function MultiHeadAttention:steps(x, options) end

---@class heed.CacheOptions
---@field batch? integer the batch size; 1 by default
---@field capacity? integer the largest number of tokens; by default context_length, or unbounded if the module has a smaller left window
---@field dtype? "float32"|"bfloat16"|"float16"|"int8"|"int4" how keys and values are stored; by default as in prefix, or "float32"
---@field prefix? heed.Cache a cache of batch 1 whose tokens all items begin with; shared, not copied, and read once for the whole batch

---A key-value cache for m(x, {cache = cache}), empty or with the tokens of prefix. All memory is allocated immediately. With a left window, only the
---tokens that can still be seen are kept, and a few more.
---@param options? heed.CacheOptions
---@return heed.Cache
---@nodiscard
function MultiHeadAttention:new_cache(options) end

---The cache that cache:save wrote. The file is mapped: rows are read when they are first used, and copied when tokens are
---appended. Files of a module with other weights, sizes, positions or another window are refused.
---@param path string of the file
---@return heed.Cache? cache
---@return string? problem
---@nodiscard
function MultiHeadAttention:load_cache(path) end

---The key-value cache of a MultiHeadAttention. int8 stores one scale for each token and head: its largest magnitude /
---127. int4 stores the rows multiplied by a Hadamard matrix, with the largest magnitude / 7. A forward pass that fails leaves
---the cache unchanged.
---@class heed.Cache
---@field length integer the number of tokens seen, of the longest item
---@field lengths integer[] that of each item
---@field capacity number the largest number of tokens; math.huge if unbounded
---@field batch integer the batch size
---@field dtype string how keys and values are stored
local Cache = {}

---Keeps the first n tokens only, of all items or n[i] of item i. With a left window, tokens that were dropped cannot be
---restored: this is an error.
---@param n integer|heed.Indices from 0 to length; or a list [b] of numbers, each at most the length of the item
---@return heed.Cache self
function Cache:truncate(n) end

---Batch item i becomes a copy of item indices[i], as needed for beam search.
---@param indices heed.Indices [b]; an index may occur several times
---@return heed.Cache self
function Cache:reorder(indices) end

---Saves the cache as .safetensors, whole or not at all, for load_cache of a module with the same weights.
---@param path string where to; its ending chooses the format
---@return true? saved
---@return string? problem
function Cache:save(path) end

---An independent copy of the cache.
---@return heed.Cache
---@nodiscard
function Cache:clone() end

---Frees the memory immediately; also `local cache <close> = m:new_cache()`.
function Cache:release() end

-- ---- Linear attention ----

---@class heed.GatedDeltaNetOptions
---@field hidden_size? integer the size of a token
---@field num_value_heads? integer the number of heads of values
---@field num_key_heads? integer divides num_value_heads, its default
---@field key_head_dim? integer hidden_size / num_value_heads by default
---@field value_head_dim? integer key_head_dim by default
---@field conv_kernel_size? integer 4 by default
---@field eps? number of the norm; 1e-6 by default
---@field generator? heed.Generator draws the weights

---@class heed.GatedDeltaNet: heed.Module
---@overload fun(x: heed.Tensor, options?: { cache: heed.StateCache? }): heed.Tensor
---@field hidden_size integer the size of a token
---@field num_value_heads integer heads of values
---@field num_key_heads integer heads of queries and keys
---@field key_head_dim integer the size of a key
---@field value_head_dim integer the size of a value
---@field conv_kernel_size integer taps of the convolution
---@field eps number of the norm
---@field conv1d heed.Module its weight is [channels, 1, k]
---@field in_proj_qkvz heed.Linear the columns of a key head with its value heads are adjacent: q, k, v, z
---@field in_proj_ba heed.Linear likewise what beta and the decay are computed from
---@field dt_bias heed.Tensor [num_value_heads]
---@field A_log heed.Tensor [num_value_heads]
---@field norm heed.RMSNorm of each head
---@field out_proj heed.Linear from the joined heads to the result
local GatedDeltaNet = {}

---The linear attention of Qwen3-Next, for x [b, n, hidden_size] or [n, hidden_size]: projections, a causal convolution
---with silu, the gated delta rule on keys and queries of length 1, an RMS norm that is multiplied by silu(z), and a
---projection. The names and shapes of the parameters are those of transformers.
---@overload fun(options: heed.GatedDeltaNetOptions): heed.GatedDeltaNet
---@param hidden_size integer the size of a token
---@param num_value_heads integer the number of heads of values
---@param num_key_heads? integer|heed.GatedDeltaNetOptions
---@param key_head_dim? integer|heed.GatedDeltaNetOptions
---@param value_head_dim? integer|heed.GatedDeltaNetOptions
---@return heed.GatedDeltaNet
---@nodiscard
function nn.GatedDeltaNet(hidden_size, num_value_heads, num_key_heads, key_head_dim, value_head_dim) end

---@class heed.StateCacheOptions
---@field batch? integer 1 by default, or that of state
---@field conv_state? heed.Tensor [b, channels, k - 1] of a cache to go on with, a loaded one for instance
---@field state? heed.Tensor [b, h, d, dv] of that cache
---@field length? integer of that cache

---A cache for m(x, {cache = cache}), which continues the sequences of earlier calls. It is empty, or has the states of
---another one, whose three fields are then given.
---@param batch? integer|heed.StateCacheOptions
---@param conv_state? heed.Tensor|heed.StateCacheOptions
---@param state? heed.Tensor|heed.StateCacheOptions
---@param length? integer|heed.StateCacheOptions
---@return heed.StateCache
---@nodiscard
function GatedDeltaNet:new_cache(batch, conv_state, state, length) end

---What a GatedDeltaNet remembers of the tokens so far: always as much memory, however many they are. A forward pass that
---fails leaves it unchanged.
---@class heed.StateCache
---@field length integer the number of tokens seen
---@field batch integer the number of sequences
---@field conv_state? heed.Tensor [b, channels, k - 1]; nil without tokens
---@field state? heed.Tensor [b, h, d, dv]; nil without tokens
local StateCache = {}

---An independent copy, which takes no time.
---@return heed.StateCache
---@nodiscard
function StateCache:clone() end

---Forgets all tokens.
---@return heed.StateCache self
function StateCache:reset() end

---Sequence i becomes what sequence indices[i] was, as needed for beam search.
---@param indices heed.Indices an index may occur several times
---@return heed.StateCache self
function StateCache:reorder(indices) end
