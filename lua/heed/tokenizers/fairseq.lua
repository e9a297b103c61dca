--- The tokenizer of XLM-RoBERTa: a SentencePiece model whose pieces are numbered as fairseq did. Ids 1 to 4 are <s>,
--- <pad>, </s> and <unk>; the pieces after SentencePiece's own <unk>, <s> and </s> follow; the last one is <mask>.

local core = require "heed.core"
local E = require "heed.nn.entries"
local tokenizers = require "heed.tokenizers"
local options_of = core.modules.options

local M = {}
local Tokenizer = {}
local metatable = { __name = "heed.FairseqTokenizer", __index = Tokenizer }

local SPECIAL = { "<s>", "<pad>", "</s>", "<unk>" }
local IDS = { ["<s>"] = 1, ["<pad>"] = 2, ["</s>"] = 3, ["<unk>"] = 4 }
local INNER_UNK, INNER_SPECIAL = 1, 3 -- ids in the SentencePiece model: <unk>, and the last of <unk>, <s>, </s>

--- Loads a SentencePiece model. Returns nil and a message if it is missing, damaged, or numbered in another way.
function M.load(path)
  local inner, problem = tokenizers.load(path)
  if not inner then return nil, problem end
  for i, token in ipairs { "<unk>", "<s>", "</s>" } do
    if inner:id(token) ~= i then
      return nil, ("load: '%s' has %s as piece %d; it must be %s, as in the models of XLM-RoBERTa")
        :format(path, E.what(inner:token(i)), i, token)
    end
  end
  local self = setmetatable({ inner = inner, vocab_size = inner.vocab_size + 2 }, metatable)
  self.bos_token_id, self.cls_token_id, self.pad_token_id = 1, 1, 2
  self.eos_token_id, self.sep_token_id, self.unk_token_id = 3, 3, 4
  self.mask_token_id = self.vocab_size
  self.between = 2 -- separators between two texts
  return self
end

local function check(self, method)
  if getmetatable(self) ~= metatable then
    E.reject(method, "self", self, "a tokenizer; call the method with a colon")
  end
end

--- The ids of a text, between <s> and </s> unless add_special_tokens is false. Special tokens in it are text.
function Tokenizer:encode(text, ...)
  check(self, "encode")
  local special = options_of("encode", { "add_special_tokens" }, 3, self, text, ...)
  special = E.boolean(special, true, "encode", "add_special_tokens")
  local ids = { special and IDS["<s>"] or nil }
  for _, id in ipairs(self.inner:encode(text, { add_special_tokens = false })) do
    ids[#ids + 1] = id == INNER_UNK and IDS["<unk>"] or id + 1
  end
  if special then ids[#ids + 1] = IDS["</s>"] end
  return ids
end

--- The token of an id; nil if there is none.
function Tokenizer:token(id)
  check(self, "token")
  if id == self.mask_token_id then return "<mask>" end
  return SPECIAL[id] or type(id) == "number" and id > 4 and self.inner:token(id - 1) or nil
end

--- The id of a token; nil if the vocabulary lacks it.
function Tokenizer:id(token)
  check(self, "id")
  if token == "<mask>" then return self.mask_token_id end
  local id = IDS[token] or self.inner:id(token)
  return id and (IDS[token] and id or id + 1)
end

--- The text of a list of ids, or of a tensor [n] of them. Special tokens are left out if skip_special_tokens is true.
function Tokenizer:decode(ids, ...)
  check(self, "decode")
  local skip = options_of("decode", { "skip_special_tokens" }, 3, self, ids, ...)
  skip = E.boolean(skip, false, "decode", "skip_special_tokens")
  if E.kind(ids) == "tensor" and ids.ndim == 1 then ids = core.modules.indices(ids, "decode", "ids"):tolist() end
  if type(ids) ~= "table" then E.reject("decode", "ids", ids, "a list of ids") end
  local parts, run = {}, {}
  local function flush()
    if #run > 0 then parts[#parts + 1] = self.inner:decode(run) end
    run = {}
  end
  for i, id in ipairs(ids) do
    local token = self:token(id)
    if not token then
      E.reject("decode", ("element %d of ids"):format(i), id, "an integer from 1 to %d", self.vocab_size)
    end
    if id > INNER_SPECIAL + 1 and id ~= self.mask_token_id then
      run[#run + 1] = id - 1
    elseif not skip then
      flush()
      parts[#parts + 1] = token
    end
  end
  flush()
  return table.concat(parts)
end

function metatable:__tostring() return ("FairseqTokenizer(vocab_size=%d)"):format(self.vocab_size) end

E.with_frames(Tokenizer)
return E.with_frames(M)
