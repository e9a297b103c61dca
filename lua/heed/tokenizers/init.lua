--- Tokenizers of any kind: `heed.tokenizers.load(path)`. The work is done in C (src/text); this is the object. Ids
--- count from 1: they are those of the file plus 1.

local core = require "heed.core"
local E = require "heed.nn.entries"
local tokenizer, files, options_of = core.tokenizer, core.files, core.modules.options

local M = {}
local Tokenizer = {}
local metatable = { __name = "heed.Tokenizer", __index = Tokenizer }
local NAMED = { "bos", "eos", "unk", "pad", "cls", "sep", "mask" }
-- Where no tokenizer_config.json names them.
local USUAL = {
  bos = { "<s>", "<bos>", "<|begin_of_text|>" }, eos = { "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>" },
  unk = { "<unk>", "[UNK]" }, pad = { "<pad>", "[PAD]" }, cls = { "[CLS]" }, sep = { "[SEP]" },
  mask = { "[MASK]", "<mask>" },
}

--- The table in a JSON file, or {} where there is no such file. Returns nil and a message for a file that is damaged.
local function config_of(path)
  if files.kind(path) ~= "file" then return {} end
  local config, problem = files.json(path)
  if type(config) ~= "table" then return nil, problem or ("load: '%s' must hold an object"):format(path) end
  return config
end

--- Sets bos_token_id, eos_token_id and so on: as the file itself says, by the names in tokenizer_config.json, or by the
--- usual ones.
local function name_special(self, config, about)
  for _, name in ipairs(NAMED) do
    self[name .. "_token_id"] = about[name]
    local given = config[name .. "_token"]
    if type(given) == "table" and not E.is_module(given) then given = given.content end
    local candidates = type(given) == "string" and { given } or USUAL[name]
    for _, token in ipairs(candidates) do
      self[name .. "_token_id"] = self[name .. "_token_id"] or tokenizer.id(self.file, token)
    end
  end
end

--- Loads tokenizer.json, vocab.json with merges.txt beside it, a SentencePiece .model, vocab.txt or the tokenizer in a
--- .gguf, or a folder with one of the others. Returns nil and a message if there is none, or for what is not supported.
function M.load(path)
  E.check_type(path, "string", "load", "path")
  local kind = files.kind(path)
  local folder = kind == "directory" and path:gsub("/$", "") .. "/" or path:match "^.*/" or ""
  local file, problem = tokenizer.load(path)
  if not file then return nil, problem end
  local about, config = tokenizer.about(file), {}
  local is_gguf = kind == "file" and files.format(path) == ".gguf"
  if not is_gguf then -- what lies beside a .gguf may belong to another model
    config, problem = config_of(folder .. "tokenizer_config.json")
    if not config then return nil, problem end
  end
  local self = setmetatable({ file = file, path = path, vocab_size = tokenizer.size(file) }, metatable)
  name_special(self, config, about)
  for _, name in ipairs(NAMED) do
    local id = self[name .. "_token_id"]
    if id then self[name .. "_token"] = tokenizer.token(file, id) end
  end
  self.special_tokens = tokenizer.special(file)
  local template = config.chat_template or about.chat_template
  if type(template) == "string" then self.chat_template = template end
  if not template and not is_gguf and files.kind(folder .. "chat_template.jinja") == "file" then
    self.chat_template, problem = files.text(folder .. "chat_template.jinja")
    if not self.chat_template then return nil, problem end
  end
  return self
end

local function check(self, method)
  if getmetatable(self) ~= metatable then
    E.reject(method, "self", self, "a tokenizer; call the method with a colon")
  end
end

local ENCODE_OPTIONS = { "add_special_tokens", "allowed_special" }

--- The ids of a text. With add_special_tokens, which is the default, those of the tokenizer's template around them.
--- Special tokens within the text are encoded as text, unless allowed_special is true.
function Tokenizer:encode(text, ...)
  check(self, "encode")
  local add, allowed = options_of("encode", ENCODE_OPTIONS, 3, self, text, ...)
  E.check_type(text, "string", "encode", "text")
  add = E.boolean(add, true, "encode", "add_special_tokens")
  return tokenizer.encode(self.file, text, add, E.boolean(allowed, false, "encode", "allowed_special"))
end

local DECODE_OPTIONS = { "skip_special_tokens" }

--- The text of a list of ids, or of a tensor [n] of them.
function Tokenizer:decode(ids, ...)
  check(self, "decode")
  local skip = options_of("decode", DECODE_OPTIONS, 3, self, ids, ...)
  skip = E.boolean(skip, false, "decode", "skip_special_tokens")
  if E.kind(ids) == "tensor" and ids.ndim == 1 then ids = core.modules.indices(ids, "decode", "ids"):tolist() end
  if type(ids) ~= "table" then E.reject("decode", "ids", ids, "a list of ids") end
  return tokenizer.decode(self.file, ids, skip)
end

--- The token of an id, as the vocabulary writes it; nil if there is none.
function Tokenizer:token(id)
  check(self, "token")
  return tokenizer.token(self.file, id)
end

--- The id of a token; nil if the vocabulary lacks it.
function Tokenizer:id(token)
  check(self, "id")
  E.check_type(token, "string", "id", "token")
  return tokenizer.id(self.file, token)
end

--- Chats, and tokens as a stream of text: see the files.
function Tokenizer:apply_chat_template(messages, options)
  check(self, "apply_chat_template")
  return require "heed.tokenizers.chat"(self, messages, options)
end

function Tokenizer:decoder(options)
  check(self, "decoder")
  return require "heed.tokenizers.stream"(self, options)
end

function metatable:__tostring() return ("Tokenizer(vocab_size=%d)"):format(self.vocab_size) end

E.with_frames(Tokenizer)
return E.with_frames(M)
