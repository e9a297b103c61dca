---@meta heed.tokenizers

---@class heed.EncodeOptions
---@field add_special_tokens? boolean the tokens of the tokenizer's template around the text; default true
---@field allowed_special? boolean special tokens in the text become their ids, not text; default false

---@class heed.DecodeOptions
---@field skip_special_tokens? boolean default false

---A tokenizer of any kind. Ids count from 1: they are those of the file plus 1.
---@class heed.Tokenizer
---@field vocab_size integer the largest id
---@field bos_token_id? integer of the first token of texts
---@field eos_token_id? integer of the last token of texts
---@field unk_token_id? integer of unknown tokens
---@field pad_token_id? integer of padding
---@field cls_token_id? integer of [CLS] or what it is called
---@field sep_token_id? integer of [SEP] or what it is called
---@field mask_token_id? integer of [MASK] or what it is called
---@field chat_template? string of tokenizer_config.json, chat_template.jinja or the GGUF file
---@field bos_token? string its text, as those of the other special tokens: eos_token, unk_token, …
---@field eos_token? string the text of the last token
---@field special_tokens string[] the texts of all special tokens
local Tokenizer = {}

---The ids of a text, which must be UTF-8.
---@param text string UTF-8
---@param options? heed.EncodeOptions
---@return integer[] ids
function Tokenizer:encode(text, options) end

---The text of ids. Bytes that are no UTF-8 become U+FFFD.
---@param ids integer[]|heed.Tensor a list, or a tensor [n]
---@param options? heed.DecodeOptions
---@return string
function Tokenizer:decode(ids, options) end

---@class heed.ChatMessage: {[string]: any}
---@field role string "system", "user", "assistant" or "tool"
---@field content? string|table[] a text, or parts such as {type = "text", text = "…"}

---@class heed.ChatOptions: {[string]: any} all other options are variables of the template
---@field add_generation_prompt? boolean end with the beginning of an answer; false by default
---@field continue_final_message? boolean end with the last message's content; false by default
---@field tools? table[] JSON schemas of functions
---@field documents? table[] for templates that use them
---@field chat_template? string another template
---@field tokenize? boolean ids instead of the text; false by default
---@field allowed_special? boolean special tokens in messages are not encoded as text; false by default
---@field now? integer the time that strftime_now writes, as os.time() gives it

---The messages of a chat as the text, or the ids, that the model was trained on. Raises where the template refuses them
---or uses what is not supported.
---@param messages heed.ChatMessage[] in order
---@param options? heed.ChatOptions
---@return string|integer[]
function Tokenizer:apply_chat_template(messages, options) end

---Ids one by one to pieces of text that are whole characters.
---@param options? heed.DecodeOptions
---@return heed.TextDecoder
---@nodiscard
function Tokenizer:decoder(options) end

---The token of an id, as the vocabulary writes it; nil if there is none.
---@param id integer from 1
---@return string?
function Tokenizer:token(id) end

---The id of a token; nil if the vocabulary lacks it.
---@param token string as the vocabulary writes it
---@return integer?
function Tokenizer:id(token) end

---@class heed.tokenizers
local tokenizers = {}

---Loads tokenizer.json, vocab.json with merges.txt beside it, a SentencePiece .model, vocab.txt or the tokenizer in a
---.gguf, or a folder with one of the others. Returns nil and a message if there is none, or for what is not supported.
---@param path string a file, or a folder with one
---@return heed.Tokenizer? tokenizer
---@return string? problem
function tokenizers.load(path) end

---@class heed.TextDecoder
local TextDecoder = {}

---The text of one more id; "" while a character is incomplete.
---@param id integer from 1
---@return string
function TextDecoder:add(id) end

---What is left of an incomplete character; then a new text begins.
---@return string
function TextDecoder:finish() end

return tokenizers
