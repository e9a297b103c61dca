---@meta _
-- The objects that heed.models.gpt2 and heed.models.llama make. Token ids count from 1: they are those of Hugging Face plus 1. Shape legend:
-- b batch, n tokens, v vocab_size.

---The fields of a config.json, with Hugging Face's names and defaults. Keys that change no result are ignored; other
---unknown keys are an error.
---@class heed.DecoderConfig
---@field model_type? string "gpt2" for GPT-2, "llama" or "mistral" for Llama; other types are an error
---@field vocab_size integer the number of tokens
---@field hidden_act? "gelu"|"gelu_fast"|"gelu_new"|"gelu_pytorch_tanh"|"relu"|"silu"|"swish" by default "gelu_new" for GPT-2, "silu" for Llama
---@field tie_word_embeddings? boolean lm_head shares the embeddings' weight; by default true for GPT-2, false for Llama; Llama.load: true if the file has no lm_head
---@field initializer_range? number the standard deviation of fresh weights; 0.02 by default
---@field eos_token_id? integer|integer[] the ids that end a text, counted from 0 as in config.json

---Hugging Face's names for the settings of all models are taken, too: hidden_size, num_hidden_layers,
---num_attention_heads, max_position_embeddings, intermediate_size, hidden_act.
---@class heed.GPT2Config: heed.DecoderConfig
---@field n_embd integer the size of a hidden state
---@field n_layer integer the number of layers
---@field n_head integer heads of attention
---@field n_positions? integer the largest number of tokens; 1024 by default; n_ctx in old files
---@field n_inner? integer 4 · n_embd by default
---@field activation_function? string as hidden_act
---@field layer_norm_epsilon? number 1e-5 by default
---@field scale_attn_weights? boolean true by default
---@field scale_attn_by_inverse_layer_idx? boolean false by default
---@field resid_pdrop? number dropout of the residual branches; 0.1 by default
---@field embd_pdrop? number dropout of the embeddings; 0.1 by default
---@field attn_pdrop? number dropout of the attention weights; 0.1 by default

---@class heed.LlamaConfig: heed.DecoderConfig
---@field hidden_size integer the size of a hidden state
---@field intermediate_size integer the size inside of the feed-forward part
---@field num_hidden_layers integer the number of layers
---@field num_attention_heads integer heads of queries
---@field num_key_value_heads? integer num_attention_heads by default
---@field head_dim? integer hidden_size / num_attention_heads by default
---@field max_position_embeddings? integer the largest number of tokens; by default 2048 for Llama, 131072 for Mistral
---@field rms_norm_eps? number 1e-6 by default
---@field rope_theta? number 10000 by default
---@field rope_scaling? table { type (or rope_type) = "linear"|"dynamic"|"yarn"|"llama3"|"longrope", factor = … }
---@field rope_interleaved? boolean heed's own: neighbouring elements of a head are rotated, not its halves; false by default
---@field rope_parameters? table rope_scaling and rope_theta in one table, as in newer files
---@field sliding_window? integer Mistral: the number of tokens that a token sees, including itself; unbounded by default
---@field attention_bias? boolean Llama; false by default
---@field mlp_bias? boolean Llama; false by default
---@field attention_dropout? number 0 by default

---@class heed.Qwen2Config: heed.LlamaConfig
---@field use_sliding_window? boolean false by default; sliding_window then has no effect
---@field max_window_layers? integer the layers behind it have the window; 28 by default
---@field layer_types? string[] "full_attention" or "sliding_attention" for each layer, instead

---@class heed.Qwen3Config: heed.Qwen2Config

---@class heed.MixtralConfig: heed.LlamaConfig
---@field num_local_experts? integer experts in each layer; 8 by default
---@field num_experts_per_tok? integer experts that work for a token; 2 by default

---@class heed.Qwen3MoeConfig: heed.LlamaConfig
---@field num_local_experts? integer or num_experts: experts in each layer; 128 by default
---@field num_experts_per_tok? integer experts that work for a token; 8 by default
---@field moe_intermediate_size? integer of an expert; 768 by default
---@field norm_topk_prob? boolean the weights of a token's experts add up to 1; false by default

---@class heed.SmolLM3Config: heed.Qwen2Config
---@field no_rope_layers? integer[] 0 for layers without positions, 1 for others
---@field no_rope_layer_interval? integer without no_rope_layers, each of these has no positions; 4 by default

---@class heed.Phi3Config: heed.LlamaConfig
---@field partial_rotary_factor? number the part of each head that is rotated; 1 by default

---@class heed.Gemma3Config: heed.LlamaConfig
---@field query_pre_attn_scalar? number scores are divided by its root; 256 by default
---@field rope_local_base_freq? number rope_theta of layers with a window; 10000 by default
---@field sliding_window_pattern? integer every layer whose number is a multiple has no window; 6 by default
---@field layer_types? string[] "full_attention" or "sliding_attention" for each layer, instead
---@field final_logit_softcapping? number c: logits become c · tanh(logit / c); none by default
---@field attn_logit_softcapping? number the same for scores; none by default

---@class heed.DecoderOptions
---@field cache? heed.ModelCache the ids follow the tokens in it, and are appended to it
---@field attn_mask? heed.Tensor|heed.Mask as for heed.MultiHeadAttention
---@field key_padding_mask? heed.Tensor bool [b, n], with a cache [b, all tokens]: true for padding
---@field kv_lengths? heed.Indices [b]: ids beyond these lengths are padding, which costs nothing and has logits of 0; not together with a cache
---@field lengths? heed.Indices [b]: ids [total] are those of b texts, one after another, and so are the logits; with a cache, the new ids of each of its items. Not together with padding
---@field need_weights? boolean|heed.WantedTaps return the intermediate results of attention; false by default
---@field logits_to_keep? integer compute logits for this number of last tokens only; for all by default

---The base class of GPT2, Llama and the other decoders.
---@class heed.Decoder: heed.Module
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field layers heed.ModuleList the layers in order
---@field lm_head heed.Linear from hidden states to logits
---@field tokenizer? heed.Tokenizer the one of the .gguf file or the folder
---@field tokenizer_problem? string why it has none, if that in the file cannot be loaded
---@field chat_template? string that of the tokenizer
local Decoder = {}

---The logits of the tokens. With need_weights, info.layers[i] holds the intermediate results of attention in layer i.
---@param ids heed.Indices [n], [b, n], or [total] with lengths
---@param options? heed.DecoderOptions
---@return heed.Tensor logits [n, v], [b, n, v] or [total, v]; with lengths and logits_to_keep [b * logits_to_keep, v]
---@return { layers: heed.Taps[] }? info
function Decoder:forward(ids, options) end

---An empty cache for all layers. Raises an error if memory is insufficient.
---@param options? heed.CacheOptions
---@return heed.ModelCache
---@nodiscard
function Decoder:new_cache(options) end

---The cache that cache:save wrote, so that a conversation goes on after a restart without computing its tokens again.
---@param path string of the file
---@return heed.ModelCache? cache
---@return string? problem
---@nodiscard
function Decoder:load_cache(path) end

---@class heed.GenerateOptions
---@field max_new_tokens? integer 20 by default, or fewer if the context or the cache is full before
---@field temperature? number 0 means greedy decoding; 0 by default, or 1 if top_k, top_p, min_p or generator is given
---@field top_k? integer sample from this number of likeliest ids
---@field top_p? number sample from the smallest set of likeliest ids with this total probability, above 0 and at most 1
---@field min_p? number sample from the ids with at least this share of the likeliest one's probability, from 0 to 1
---@field repetition_penalty? number divides positive logits of the ids so far and multiplies negative ones; those in a cache are not counted
---@field generator? heed.Generator draws the random numbers
---@field on_token? fun(id: integer, position: integer, item: integer): boolean? receives each token as it is generated; return false to end this text
---@field stop? integer|integer[] ids that end the text; those of the config by default; {} for none
---@field cache? heed.ModelCache its tokens precede ids
---@field capacity? integer the capacity of a new cache, in tokens; enough for ids and max_new_tokens by default
---@field dtype? "float32"|"bfloat16"|"float16"|"int8"|"int4" the dtype of a new cache; "float32" by default

---Generates the tokens that follow ids; the last may be a stop token. The cache then holds all tokens except the last:
---to continue, pass that token, and any text after it, together with the cache. A call that fails or is cancelled (by a
---limit, the host or an error in on_token) leaves the cache and the generator as if on_token had stopped it at the last
---token it received, so it can be continued in the same way. Without on_token, or if it received no token, both stay as
---before the call. Nothing is recorded. Several prompts may differ in length; each text ends by itself.
---@param ids heed.Indices|heed.Indices[] [n], or several: a list of them or a tensor [b, n]
---@param options? heed.GenerateOptions
---@return integer[]|integer[][] tokens of one text, or a list for each prompt
---@return heed.ModelCache cache
function Decoder:generate(ids, options) end

---@class heed.GenerateStepsOptions: heed.GenerateOptions
---@field ms? number milliseconds of a slice; 2 by default

---Generates in slices of time, for programs that must not wait. Reads and checks the arguments; the model runs in the
---slices. Until the end only the steps may use the cache: a slice after another use raises an error. The tokens are those
---of `generate`.
---@param ids heed.Indices|heed.Indices[] as for generate
---@param options? heed.GenerateStepsOptions
---@return heed.ModelSteps steps
---@nodiscard
function Decoder:generate_steps(ids, options) end

---Work of a model in slices of time: `for done, total in steps do … end`, or steps:advance(ms) in each frame.
---@class heed.ModelSteps
---@field done integer new tokens so far; read-only
---@field total? integer the most new tokens, once that is known; read-only
---@field finished boolean read-only
---@field result any what the method without slices returns, once all is done; read-only
---@field cache? heed.ModelCache of generate, once all is done; read-only
---@operator call: integer?
local ModelSteps = {}

---Runs one slice. It ends within long products and attention, and else between two operations.
---@param ms? number milliseconds; by default those of the options
---@return boolean complete
function ModelSteps:advance(ms) end

---Drops the work. Caches and generators are left as by a call that fails.
function ModelSteps:release() end

---Writes config.json and model.safetensors with Hugging Face's names, which `load` and other libraries read; or, if the
---path ends in .gguf, one file that llama.cpp reads, too (not for GPT-2). Returns nil and a message if the folder does
---not exist, a file cannot be written, or a GGUF file cannot store a setting.
---@param path string a folder, or a .gguf file
---@param options? { dtype?: string } of the matrices in a .gguf file: "float32", "bfloat16", "float16", "q8_0", "q4_k" …; their own by default
---@return true? saved
---@return string? problem
function Decoder:save_pretrained(path, options) end

---The keys and values of all attention layers of a model. A forward pass that fails leaves it unchanged; for this, with a
---sliding window, a pass that drops tokens works on a copy.
---@class heed.ModelCache
---@field length integer the number of tokens seen, of the longest item
---@field lengths integer[] that of each item
---@field capacity number the largest number of tokens; math.huge if unbounded
---@field batch integer the batch size
---@field dtype string how keys and values are stored
local ModelCache = {}

---Keeps the first n tokens only, of all items or n[i] of item i.
---@param n integer|heed.Indices from 0 to length; or a list [b] of numbers, each at most the length of the item
---@return heed.ModelCache self
function ModelCache:truncate(n) end

---Batch item i becomes a copy of item indices[i], as needed for beam search.
---@param indices heed.Tensor|integer[] int64 [b], counted from 1
---@return heed.ModelCache self
function ModelCache:reorder(indices) end

---Saves the caches of all layers in one .safetensors file, for load_cache of the same model.
---@param path string where to; its ending chooses the format
---@return true? saved
---@return string? problem
function ModelCache:save(path) end

---An independent copy of the cache.
---@return heed.ModelCache
---@nodiscard
function ModelCache:clone() end

---Frees the memory immediately. Any other use of a released cache raises an error.
function ModelCache:release() end

---A GPT-2 with fresh weights, in training mode: GPT2 { vocab_size = 50257, n_embd = 768, n_layer = 12, n_head = 12 }.
---Matrices are drawn from a normal distribution with the standard deviation initializer_range, at the end of residual
---branches divided by √(2 · n_layer); biases are 0.
---@class heed.GPT2: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.GPT2Config its settings, with the defaults

---A Llama or Mistral with fresh weights, in training mode, drawn as those of a GPT2 but for the division.
---@class heed.Llama: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.LlamaConfig its settings, with the defaults

---A Qwen2 with fresh weights, in training mode, drawn as those of a Llama.
---@class heed.Qwen2: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.Qwen2Config its settings, with the defaults

---A Qwen3 with fresh weights, in training mode, drawn as those of a Llama.
---@class heed.Qwen3: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.Qwen3Config its settings, with the defaults

---A Gemma 3 with fresh weights, in training mode, drawn as those of a Llama.
---@class heed.Gemma3: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.Gemma3Config its settings, with the defaults

---A Phi-3 with fresh weights, in training mode, drawn as those of a Llama.
---@class heed.Phi3: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.Phi3Config its settings, with the defaults

---A Mixtral with fresh weights, in training mode, drawn as those of a Llama. layers[i].experts has a router and experts.
---@class heed.Mixtral: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.MixtralConfig its settings, with the defaults

---A Qwen3 with experts and fresh weights, in training mode, drawn as those of a Llama.
---@class heed.Qwen3Moe: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.Qwen3MoeConfig its settings, with the defaults

---A SmolLM3 with fresh weights, in training mode, drawn as those of a Llama.
---@class heed.SmolLM3: heed.Decoder
---@overload fun(ids: heed.Indices, options?: heed.DecoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field config heed.SmolLM3Config its settings, with the defaults
