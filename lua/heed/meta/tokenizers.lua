---@meta heed.tokenizers

---@class heed.EncodeOptions
---@field add_special_tokens? boolean the tokens of the tokenizer's template around the text; default true
---@field allowed_special? boolean special tokens in the text become their ids, not text; default false

---@class heed.DecodeOptions
---@field skip_special_tokens? boolean default false

---A tokenizer of any kind. Ids count from 1: they are those of the file plus 1.
---@class heed.Tokenizer
---@field vocab_size integer the largest id
---@field bos_token_id? integer
---@field eos_token_id? integer
---@field unk_token_id? integer
---@field pad_token_id? integer
---@field cls_token_id? integer
---@field sep_token_id? integer
---@field mask_token_id? integer
---@field chat_template? string of tokenizer_config.json
local Tokenizer = {}

---The ids of a text, which must be UTF-8.
---@param text string
---@param options? heed.EncodeOptions
---@return integer[] ids
function Tokenizer:encode(text, options) end

---The text of ids. Bytes that are no UTF-8 become U+FFFD.
---@param ids integer[]|heed.Tensor a list, or a tensor [n]
---@param options? heed.DecodeOptions
---@return string
function Tokenizer:decode(ids, options) end

---The token of an id, as the vocabulary writes it; nil if there is none.
---@param id integer
---@return string?
function Tokenizer:token(id) end

---The id of a token; nil if the vocabulary lacks it.
---@param token string
---@return integer?
function Tokenizer:id(token) end

---@class heed.tokenizers
local tokenizers = {}

---Loads tokenizer.json, vocab.json with merges.txt beside it, a SentencePiece .model or vocab.txt, or a folder with one
---of them. Returns nil and a message if there is none, or for what is not supported.
---@param path string
---@return heed.Tokenizer? tokenizer
---@return string? problem
function tokenizers.load(path) end

return tokenizers
