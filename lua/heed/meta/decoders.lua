---@meta _
-- heed.models.gpt2 and heed.models.llama. Ids count from 1: id + 1 of a vocabulary that is counted from 0. Shape
-- legend: b batch, n tokens, v vocab_size.

---What config.json says, in Hugging Face's names, after the names that are known besides.
---@class heed.DecoderConfig
---@field model_type? string "gpt2" for GPT-2, "llama" or "mistral" for Llama; other models are refused
---@field vocab_size integer
---@field hidden_size integer also d_model, n_embd (GPT-2)
---@field num_hidden_layers integer also layers, n_layer (GPT-2)
---@field num_attention_heads integer also heads, n_head (GPT-2)
---@field max_position_embeddings integer the most tokens; also context_length, n_positions (GPT-2)
---@field hidden_act? "gelu"|"gelu_new"|"relu"|"silu" gelu_new for GPT-2, silu for Llama
---@field tie_word_embeddings? boolean lm_head has the embeddings' weight; true for GPT-2, for Llama as in the file
---@field eos_token_id? integer|integer[] counted from 0, as there

---@class heed.GPT2Config: heed.DecoderConfig
---@field intermediate_size? integer also d_hidden, n_inner; 4 · hidden_size
---@field layer_norm_epsilon? number also norm_eps; 1e-5
---@field scale_attn_weights? boolean true
---@field scale_attn_by_inverse_layer_idx? boolean false
---@field resid_pdrop? number 0.1
---@field embd_pdrop? number 0.1
---@field attn_pdrop? number 0.1

---@class heed.LlamaConfig: heed.DecoderConfig
---@field intermediate_size integer also d_hidden
---@field num_key_value_heads? integer also kv_heads; num_attention_heads
---@field head_dim? integer hidden_size / num_attention_heads
---@field rms_norm_eps? number also norm_eps; 1e-6
---@field rope_theta? number also rope_base; 10000
---@field rope_scaling? table { type (or rope_type) = "linear"|"dynamic"|"yarn"|"llama3", factor = … }
---@field rope_parameters? table the same and rope_theta, as newer files have it
---@field sliding_window? integer tokens that a token sees, itself among them; all before it
---@field attention_bias? boolean false
---@field mlp_bias? boolean false
---@field attention_dropout? number 0

---@class heed.DecoderOptions
---@field cache? heed.ModelCache ids are put behind the tokens in it
---@field attn_mask? heed.Tensor as of heed.MultiHeadAttention
---@field key_padding_mask? heed.Tensor bool [b, n], or with a cache [b, all tokens]: true is padding
---@field kv_lengths? heed.Tensor|integer[] int64 [b]: ids behind these are padding; not with a cache
---@field need_weights? boolean
---@field logits_to_keep? integer logits of so many tokens at the end alone; of all

---What GPT-2 and Llama have in common.
---@class heed.Decoder: heed.Module
---@field layers heed.ModuleList
---@field lm_head heed.Linear
local Decoder = {}

---Logits; with need_weights also info.layers[i], what the attention of layer i found.
---@param ids heed.Tensor|integer[]|integer[][] int64 [n] or [b, n]
---@param options? heed.DecoderOptions
---@return heed.Tensor logits [n, v] or [b, n, v]
---@return { layers: heed.Internals[] }? info
function Decoder:forward(ids, options) end

---An empty cache of all layers.
---@param options? heed.CacheOptions
---@return heed.ModelCache
---@nodiscard
function Decoder:new_cache(options) end

---@class heed.GenerateOptions
---@field max_new_tokens? integer 20, or as many as there is room for
---@field temperature? number 0 is greedy; 0, or 1 if top_k, top_p or generator is given
---@field top_k? integer draw among so many of the likeliest
---@field top_p? number and of these among the fewest with this probability together, above 0, at most 1
---@field generator? heed.Generator to draw with
---@field on_token? fun(id: integer, position: integer): boolean? called with each token as it comes; false stops
---@field stop? integer|integer[] ids that end the text; those of the config; {} for none
---@field cache? heed.ModelCache whose tokens come before ids
---@field capacity? integer tokens that the new cache has room for; those of ids and max_new_tokens
---@field dtype? "float32"|"bfloat16"|"float16"|"int8" of the new cache

---The tokens that follow ids; the last is a stop token if one came. The cache holds all tokens but the last: to go on,
---give that one, and what is to come after it, with the cache. A call that fails or is stopped (by a limit, the host,
---an error in on_token) leaves cache and generator as if on_token had ended it at the last token that it was called
---with: the same way it can be gone on. If it was called with none, or there is no on_token, they are as before the call.
---@param ids heed.Tensor|integer[] int64 [n] or [1, n]
---@param options? heed.GenerateOptions
---@return integer[] tokens
---@return heed.ModelCache cache
function Decoder:generate(ids, options) end

---A cache for each attention layer of a model, used as one. A pass that fails leaves it as it was. For that, with a
---sliding window, a pass that drops tokens works on a copy of it.
---@class heed.ModelCache
---@field length integer tokens seen
---@field capacity number the most tokens; math.huge without a bound
---@field batch integer
---@field dtype string
local ModelCache = {}

---Forgets all but the first n tokens.
---@param n integer
---@return heed.ModelCache self
function ModelCache:truncate(n) end

---Item i becomes what item indices[i] was.
---@param indices heed.Tensor|integer[] int64 [b]
---@return heed.ModelCache self
function ModelCache:reorder(indices) end

---@return heed.ModelCache
---@nodiscard
function ModelCache:clone() end

---Gives the memory back at once.
function ModelCache:release() end

---@class heed.GPT2: heed.Decoder
---@field config heed.GPT2Config
local GPT2 = {}

---A model in evaluation mode from a folder (config.json, model.safetensors or its index) or from a weights file in one.
---Matrices are copied, for the file has them transposed; the rest is mapped. nil and a message if files are missing,
---broken, or contradict each other.
---@param path string
---@param config? heed.GPT2Config in the place of config.json
---@return heed.GPT2?
---@return string? problem
function GPT2.load(path, config) end

---@class heed.Llama: heed.Decoder
---@field config heed.LlamaConfig
local Llama = {}

---A Llama or Mistral in evaluation mode, likewise; its weights are mapped, not read.
---@param path string
---@param config? heed.LlamaConfig in the place of config.json
---@return heed.Llama?
---@return string? problem
function Llama.load(path, config) end
