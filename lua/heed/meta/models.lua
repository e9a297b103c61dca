---@meta _
-- heed.tokenizers and heed.models. Ids count from 1: id + 1 of a vocabulary file that is counted from 0. Shape
-- legend: b batch, n tokens, d hidden_size.

-- ---- require "heed.tokenizers.wordpiece" ----

---@class heed.wordpiece
local wordpiece = {}

---As in tokenizer_config.json.
---@class heed.WordPieceOptions
---@field do_lower_case? boolean true
---@field strip_accents? boolean as do_lower_case
---@field tokenize_chinese_chars? boolean Chinese characters are words of their own; true

---The tokenizer of a vocabulary: a text file with a piece on each line.
---@param path string
---@param options? heed.WordPieceOptions
---@return heed.WordPiece? tokenizer nil if the file is missing or no vocabulary
---@return string? problem
function wordpiece.load(path, options) end

---BERT's tokenizer, with the ids of Hugging Face's BertTokenizer, plus 1.
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

---The ids of a text between those of [CLS] and [SEP].
---@param text string valid UTF-8
---@param options? { max_length: integer? } at most so many ids; the last stays [SEP]
---@return integer[]
---@nodiscard
function WordPiece:encode(text, options) end

---The pieces of a text, without [CLS] and [SEP].
---@param text string valid UTF-8
---@return string[]
---@nodiscard
function WordPiece:tokenize(text) end

---@class heed.DecodeOptions
---@field skip_special_tokens? boolean leave out [CLS], [SEP]…; false
---@field clean_up_tokenization_spaces? boolean "isn't" and not "isn ' t"; false

---The text of a list or an int64 tensor [n] of ids.
---@param ids integer[]|heed.Tensor
---@param options? heed.DecodeOptions
---@return string
---@nodiscard
function WordPiece:decode(ids, options) end

-- ---- require "heed.models.bert" ----

---What config.json says, in Hugging Face's names.
---@class heed.BertConfig
---@field model_type? "bert" other models are refused
---@field vocab_size integer
---@field hidden_size integer
---@field num_hidden_layers integer
---@field num_attention_heads integer
---@field intermediate_size integer
---@field max_position_embeddings? integer 512
---@field type_vocab_size? integer 2
---@field layer_norm_eps? number 1e-12
---@field hidden_act? "gelu"|"gelu_new"|"relu"|"silu" gelu
---@field hidden_dropout_prob? number 0.1
---@field attention_probs_dropout_prob? number 0.1

---@class heed.Bert: heed.Module
---@field config heed.BertConfig
---@field tokenizer? heed.WordPiece of the vocab.txt beside the weights
---@field max_seq_length integer tokens of a text that `encode` reads
---@field pooling? "mean"|"cls" what `encode` makes one vector with
local Bert = {}

---A model in evaluation mode from a folder (config.json, model.safetensors or its index, vocab.txt) or from a
---weights file in one. The weights are mapped, not read. nil and a message if files are missing, broken, or
---contradict each other.
---@param path string
---@param config? heed.BertConfig in the place of config.json
---@return heed.Bert?
---@return string? problem
function Bert.load(path, config) end

---@class heed.BertOptions
---@field attention_mask? heed.Tensor [b, n], 0 or false for padding
---@field kv_lengths? heed.Tensor int64 [b]: tokens behind these are padding
---@field token_type_ids? heed.Tensor|integer[] [b, n] or [n], from 1; 1
---@field need_weights? boolean

---Hidden states of tokens; with need_weights also info.layers[i], what the attention of layer i found.
---@param ids heed.Tensor|integer[]|integer[][] int64 [n] or [b, n]
---@param options? heed.BertOptions
---@return heed.Tensor hidden [n, d] or [b, n, d]
---@return { layers: heed.Internals[] }? info
function Bert:forward(ids, options) end

---tanh of the pooler on the first token.
---@param hidden heed.Tensor [b, n, d] or [n, d]
---@return heed.Tensor [b, d] or [d]
---@nodiscard
function Bert:pooled(hidden) end

---A vector of length 1 for each text: the dot product of two says how much they have in common.
---@param texts string[] valid UTF-8
---@return heed.Tensor [n, d]
---@nodiscard
function Bert:encode(texts) end
