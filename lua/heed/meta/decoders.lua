---@meta _
-- The objects that heed.models.gpt2 and heed.models.llama make. Token ids count from 1: they are those of Hugging Face plus 1. Shape legend:
-- b batch, n tokens, v vocab_size.

---The settings in config.json, with Hugging Face's names; alternative names are listed as "or".
---@class heed.DecoderConfig
---@field model_type? string "gpt2" for GPT-2, "llama" or "mistral" for Llama; other types are an error
---@field vocab_size integer
---@field hidden_size integer or d_model, n_embd (GPT-2)
---@field num_hidden_layers integer or layers, n_layer (GPT-2)
---@field num_attention_heads integer or heads, n_head (GPT-2)
---@field max_position_embeddings integer the largest number of tokens; or context_length, n_positions (GPT-2)
---@field hidden_act? "gelu"|"gelu_new"|"relu"|"silu" by default "gelu_new" for GPT-2, "silu" for Llama
---@field tie_word_embeddings? boolean lm_head shares the embeddings' weight; by default true for GPT-2; for Llama, if the file has no lm_head
---@field eos_token_id? integer|integer[] the ids that end a text, counted from 0 as in config.json

---@class heed.GPT2Config: heed.DecoderConfig
---@field intermediate_size? integer or d_hidden, n_inner; 4 · hidden_size by default
---@field layer_norm_epsilon? number or norm_eps; 1e-5 by default
---@field scale_attn_weights? boolean true by default
---@field scale_attn_by_inverse_layer_idx? boolean false by default
---@field resid_pdrop? number dropout of the residual branches; 0.1 by default
---@field embd_pdrop? number dropout of the embeddings; 0.1 by default
---@field attn_pdrop? number dropout of the attention weights; 0.1 by default

---@class heed.LlamaConfig: heed.DecoderConfig
---@field intermediate_size integer or d_hidden
---@field num_key_value_heads? integer or kv_heads; num_attention_heads by default
---@field head_dim? integer hidden_size / num_attention_heads by default
---@field rms_norm_eps? number or norm_eps; 1e-6 by default
---@field rope_theta? number or rope_base; 10000 by default
---@field rope_scaling? table { type (or rope_type) = "linear"|"dynamic"|"yarn"|"llama3", factor = … }
---@field rope_parameters? table rope_scaling and rope_theta in one table, as in newer files
---@field sliding_window? integer the number of tokens that a token sees, including itself; unbounded by default
---@field attention_bias? boolean false by default
---@field mlp_bias? boolean false by default
---@field attention_dropout? number 0 by default

---@class heed.DecoderOptions
---@field cache? heed.ModelCache the ids follow the tokens in it, and are appended to it
---@field attn_mask? heed.Tensor as for heed.MultiHeadAttention
---@field key_padding_mask? heed.Tensor bool [b, n], with a cache [b, all tokens]: true for padding
---@field kv_lengths? heed.Tensor|integer[] int64 [b]: ids beyond these lengths are padding; not together with a cache
---@field need_weights? boolean return the intermediate results of attention; false by default
---@field logits_to_keep? integer compute logits for this number of last tokens only; for all by default

---The base class of GPT2 and Llama.
---@class heed.Decoder: heed.Module
---@field layers heed.ModuleList
---@field lm_head heed.Linear
local Decoder = {}

---The logits of the tokens. With need_weights, info.layers[i] holds the intermediate results of attention in layer i.
---@param ids heed.Tensor|integer[]|integer[][] int64 [n] or [b, n]
---@param options? heed.DecoderOptions
---@return heed.Tensor logits [n, v] or [b, n, v]
---@return { layers: heed.Taps[] }? info
function Decoder:forward(ids, options) end

---An empty cache for all layers. Raises an error if memory is insufficient.
---@param options? heed.CacheOptions
---@return heed.ModelCache
---@nodiscard
function Decoder:new_cache(options) end

---@class heed.GenerateOptions
---@field max_new_tokens? integer 20 by default, or fewer if the context or the cache is full before
---@field temperature? number 0 means greedy decoding; 0 by default, or 1 if top_k, top_p or generator is given
---@field top_k? integer sample from this number of likeliest ids
---@field top_p? number sample from the smallest set of likeliest ids with this total probability, above 0 and at most 1
---@field generator? heed.Generator draws the random numbers
---@field on_token? fun(id: integer, position: integer): boolean? receives each token as it is generated; return false to stop
---@field stop? integer|integer[] ids that end the text; those of the config by default; {} for none
---@field cache? heed.ModelCache its tokens precede ids
---@field capacity? integer the capacity of a new cache, in tokens; enough for ids and max_new_tokens by default
---@field dtype? "float32"|"bfloat16"|"float16"|"int8" the dtype of a new cache; "float32" by default

---Generates the tokens that follow ids; the last may be a stop token. The cache then holds all tokens except the last:
---to continue, pass that token, and any text after it, together with the cache. A call that fails or is cancelled (by a
---limit, the host or an error in on_token) leaves the cache and the generator as if on_token had stopped it at the last
---token it received, so it can be continued in the same way. Without on_token, or if it received no token, both stay as
---before the call.
---@param ids heed.Tensor|integer[] int64 [n] or [1, n]
---@param options? heed.GenerateOptions
---@return integer[] tokens
---@return heed.ModelCache cache
function Decoder:generate(ids, options) end

---The keys and values of all attention layers of a model. A forward pass that fails leaves it unchanged; for this, with a
---sliding window, a pass that drops tokens works on a copy.
---@class heed.ModelCache
---@field length integer the number of tokens seen
---@field capacity number the largest number of tokens; math.huge if unbounded
---@field batch integer the batch size
---@field dtype string
local ModelCache = {}

---Keeps the first n tokens only.
---@param n integer from 0 to length
---@return heed.ModelCache self
function ModelCache:truncate(n) end

---Batch item i becomes a copy of item indices[i], as needed for beam search.
---@param indices heed.Tensor|integer[] int64 [b], counted from 1
---@return heed.ModelCache self
function ModelCache:reorder(indices) end

---An independent copy of the cache.
---@return heed.ModelCache
---@nodiscard
function ModelCache:clone() end

---Frees the memory immediately. Any other use of a released cache raises an error.
function ModelCache:release() end

---@class heed.GPT2: heed.Decoder
---@field config heed.GPT2Config

---@class heed.Llama: heed.Decoder
---@field config heed.LlamaConfig
