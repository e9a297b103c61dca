---@meta _
-- The objects that heed.tokenizers.wordpiece makes. Token ids count from 1: they are those of Hugging Face plus 1. Shape legend: b batch,
-- n tokens, d hidden_size.

-- ---- Tokenizers ----

---The options in tokenizer_config.json.
---@class heed.WordPieceOptions
---@field do_lower_case? boolean true by default
---@field strip_accents? boolean as do_lower_case by default
---@field tokenize_chinese_chars? boolean Chinese characters are words of their own; true by default

---BERT's tokenizer, with the ids of Hugging Face's BertTokenizer plus 1.
---@class heed.WordPiece
---@field vocab_size integer the largest id
---@field unk_token_id integer of unknown words
---@field cls_token_id integer of [CLS]
---@field sep_token_id integer of [SEP]
---@field pad_token_id? integer of [PAD]
---@field mask_token_id? integer of [MASK]
---@field do_lower_case boolean whether texts become lower case
---@field strip_accents boolean whether accents are removed
---@field tokenize_chinese_chars boolean whether Chinese characters are words of their own
local WordPiece = {}

---@class heed.WordPieceEncodeOptions
---@field max_length? integer the largest number of ids, at least 2; the last remains [SEP]
---@field add_special_tokens? boolean false leaves out [CLS] and [SEP]; true by default

---The ids of a text, with [CLS] first and [SEP] last. Text that is not valid UTF-8 raises an error.
---@param text string valid UTF-8
---@param options? heed.WordPieceEncodeOptions
---@return integer[]
---@nodiscard
function WordPiece:encode(text, options) end

---The pieces of a text, without [CLS] and [SEP].
---@param text string valid UTF-8
---@return string[]
---@nodiscard
function WordPiece:tokenize(text) end

---@class heed.WordPieceDecodeOptions
---@field skip_special_tokens? boolean omit [CLS], [SEP] and the other special tokens; false by default
---@field clean_up_tokenization_spaces? boolean "isn't" instead of "isn ' t"; false by default

---The text of a list of ids or of an int64 tensor [n]. An id outside the vocabulary raises an error.
---@param ids integer[]|heed.Tensor from 1
---@param options? heed.WordPieceDecodeOptions
---@return string
---@nodiscard
function WordPiece:decode(ids, options) end
