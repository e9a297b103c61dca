---@meta _
-- The objects that heed.tokenizers.wordpiece and heed.models.bert make. Token ids count from 1: they are those of Hugging Face plus 1. Shape legend: b batch,
-- n tokens, d hidden_size.

-- ---- Tokenizers ----

---The options in tokenizer_config.json.
---@class heed.WordPieceOptions
---@field do_lower_case? boolean true by default
---@field strip_accents? boolean as do_lower_case by default
---@field tokenize_chinese_chars? boolean Chinese characters are words of their own; true by default

---BERT's tokenizer, with the ids of Hugging Face's BertTokenizer plus 1.
---@class heed.WordPiece
---@field vocab_size integer
---@field unk_token_id integer
---@field cls_token_id integer
---@field sep_token_id integer
---@field pad_token_id? integer
---@field mask_token_id? integer
---@field do_lower_case boolean
---@field strip_accents boolean
---@field tokenize_chinese_chars boolean
local WordPiece = {}

---The ids of a text, with [CLS] first and [SEP] last. Text that is not valid UTF-8 raises an error.
---@param text string valid UTF-8
---@param options? { max_length: integer? } the largest number of ids, at least 2; the last remains [SEP]
---@return integer[]
---@nodiscard
function WordPiece:encode(text, options) end

---The pieces of a text, without [CLS] and [SEP].
---@param text string valid UTF-8
---@return string[]
---@nodiscard
function WordPiece:tokenize(text) end

---@class heed.DecodeOptions
---@field skip_special_tokens? boolean omit [CLS], [SEP] and the other special tokens; false by default
---@field clean_up_tokenization_spaces? boolean "isn't" instead of "isn ' t"; false by default

---The text of a list of ids or of an int64 tensor [n]. An id outside the vocabulary raises an error.
---@param ids integer[]|heed.Tensor
---@param options? heed.DecodeOptions
---@return string
---@nodiscard
function WordPiece:decode(ids, options) end

-- ---- BERT ----

---The fields of a config.json, with Hugging Face's names and defaults. Keys that change no result are ignored; other
---unknown keys are an error.
---@class heed.BertConfig
---@field model_type? "bert" other types are an error
---@field vocab_size integer
---@field hidden_size integer
---@field num_hidden_layers integer
---@field num_attention_heads integer
---@field intermediate_size integer
---@field max_position_embeddings? integer the largest number of tokens; 512 by default
---@field type_vocab_size? integer 2 by default
---@field layer_norm_eps? number 1e-12 by default
---@field hidden_act? "gelu"|"gelu_fast"|"gelu_new"|"gelu_pytorch_tanh"|"relu"|"silu"|"swish" "gelu" by default
---@field initializer_range? number the standard deviation of fresh weights; 0.02 by default
---@field hidden_dropout_prob? number 0.1 by default
---@field attention_probs_dropout_prob? number 0.1 by default

---A BERT with fresh weights, in training mode and with a pooler; biases are 0, matrices drawn from a normal distribution
---with the standard deviation initializer_range.
---@class heed.Bert: heed.Module
---@field config heed.BertConfig
---@overload fun(config: heed.BertConfig): heed.Bert
---@field tokenizer? heed.WordPiece made from the vocab.txt beside the weights
---@field max_seq_length integer the number of tokens to which `encode` truncates a text
---@field pooling? "mean"|"cls" how `encode` combines the hidden states into one vector
local Bert = {}

---@class heed.BertOptions
---@field attention_mask? heed.Tensor [b, n], 0 or false for padding
---@field kv_lengths? heed.Indices [b]: tokens beyond these lengths are padding, which costs nothing and has hidden states of 0
---@field lengths? heed.Indices [b]: ids [total] are those of b texts, one after another; not together with padding
---@field token_type_ids? heed.Indices [b, n] or [n]; 1 by default
---@field need_weights? boolean|heed.WantedTaps return the intermediate results of attention; false by default

---The hidden states of the tokens. With need_weights, info.layers[i] holds the intermediate results of attention in layer i.
---@param ids heed.Indices [n], [b, n], or [total] with lengths
---@param options? heed.BertOptions
---@return heed.Tensor hidden [n, d], [b, n, d] or [total, d]
---@return { layers: heed.Taps[] }? info
function Bert:forward(ids, options) end

---BERT's pooled output: tanh of the pooler on the first token. Raises an error if the model has no pooler.
---@param hidden heed.Tensor [b, n, d] or [n, d]
---@return heed.Tensor [b, d] or [d]
---@nodiscard
function Bert:pooled(hidden) end

---Sentence embeddings, normalized to length 1: the dot product of two is their cosine similarity. Texts are truncated to
---max_seq_length tokens. Not recorded; for gradients call the model itself. Raises an error if the model has no
---tokenizer.
---@param texts string[] valid UTF-8
---@return heed.Tensor [n, d]
---@nodiscard
function Bert:encode(texts) end

---The same in slices of time, one text at a time: steps:advance(ms) in each frame, then steps.result.
---@param texts string[]
---@param options? {ms?: number} milliseconds of a slice; 2 by default
---@return heed.ModelSteps steps
---@nodiscard
function Bert:encode_steps(texts, options) end
