--- Texts and pairs of texts as the input of encoders: their tokens, and passes over many of them, packed. Shape legend:
--- b batch, d hidden_size, total all tokens.

local core = require "heed.core"
local E = require "heed.nn.entries"
local slices = require "heed.nn.slices"
local fail = E.fail

local texts = {}

local BATCH_TOKENS = 1024 -- of a forward pass: enough rows for the fastest products; 256 took 1.2 times as long

local function check_text(method, what, text)
  E.check_type(text, "string", method, what)
  local wrong = core.text.invalid(text)
  if wrong then fail("%s: %s is not valid UTF-8 at byte %d", method, what, wrong) end
end

--- A copy of a list of texts; with `pairs_too`, its items may be pairs of texts, {a, b}. Raises if it is not such a
--- list. What hooks, finalizers, or the code between two slices do to the list has no effect on the copy.
function texts.check(model, method, list, argument, pairs_too)
  if not model.tokenizer then
    fail("%s: the model was loaded without a tokenizer (vocab.txt, tokenizer.json)", method)
  end
  local kinds = pairs_too and "a list of texts, or of pairs of texts {a, b}" or "a list of strings"
  if type(list) ~= "table" or E.is_module(list) then E.reject(method, argument, list, kinds) end
  local own = {}
  for i, item in ipairs(list) do
    E.check_cancel(method)
    slices.pause()
    own[i] = item
    if pairs_too and type(item) == "table" then
      for part = 1, 2 do check_text(method, ("text %d of pair %d"):format(part, i), item[part]) end
      if #item > 2 then fail("%s: pair %d has %d texts; it must have 2", method, i, #item) end
    else
      check_text(method, pairs_too and ("item %d"):format(i) or ("text %d"):format(i), item)
    end
  end
  return own
end

--- The ids of a text without special tokens, at least `most` if it has more.
local function body(tokenizer, text, most)
  local options = { add_special_tokens = false }
  if tokenizer.tokenize then options.max_length = most end -- WordPiece need not read on
  return tokenizer:encode(text, options)
end

--- The numbers of tokens that remain of two texts with n and m when they may have `most` together: the longer one is
--- cut first. Where both are cut the second has the odd token. (Hugging Face's longest_first)
local function shares(n, m, most)
  if n + m <= most then return n, m end
  local short = math.min(n, m)
  local long = short > most and short or math.max(short, most - short)
  if short + long > most then
    short = math.floor(most / 2)
    long = most - short
  end
  if n > m then return long, short end
  return short, long
end

local function append(ids, list, from, to)
  local count = #ids
  for i = from, to do ids[count + 1 + i - from] = list[i] end
end

--- The ids of a text, or of a pair {a, b}, with the special tokens around them, at most max_seq_length; and the number
--- of those that belong to the first text.
function texts.ids(model, item)
  local tokenizer, most = model.tokenizer, model.max_seq_length or model.config.max_tokens
  local first, last = tokenizer.cls_token_id or tokenizer.bos_token_id, tokenizer.sep_token_id or tokenizer.eos_token_id
  local ids = { first }
  if type(item) == "string" then
    most = math.max(most - 2, 0)
    local list = body(tokenizer, item, most)
    append(ids, list, 1, math.min(#list, most))
    ids[#ids + 1] = last
    return ids, #ids
  end
  local between = tokenizer.between or model.between
  most = math.max(most - 2 - between, 0)
  local a, b = body(tokenizer, item[1], most), body(tokenizer, item[2], most)
  local n, m = shares(#a, #b, most)
  append(ids, a, 1, n)
  ids[#ids + 1] = last
  local before = #ids
  for _ = 2, between do ids[#ids + 1] = last end
  append(ids, b, 1, m)
  ids[#ids + 1] = last
  return ids, before
end

--- The rows of the first tokens of packed texts, int64 [b].
function texts.first_rows(lengths) return lengths:cumsum(1) - lengths + 1 end

--- The results [n, k] of reduce(hidden [total, d], lengths [b]), which gives [b, k], for a list of n texts or pairs
--- without holes.
function texts.map(model, method, list, k, reduce)
  local results, done = nil, 0
  local ids, types, lengths = {}, {}, {}
  local between = model.tokenizer.between or model.between -- tokenizers with two separators count no types
  local typed = model.token_type_embeddings and model.config.type_vocab_size > 1 and between == 1

  local function finish()
    local packed = core.tensor(lengths, { dtype = "int64" })
    local hidden = model(core.tensor(ids, { dtype = "int64" }),
      { lengths = packed, token_type_ids = typed and core.tensor(types, { dtype = "int64" }) or nil })
    local result = reduce(hidden, packed)
    results = results or core.zeros(#list, result.shape[2], { dtype = result.dtype })
    results:narrow(1, done + 1, #lengths):copy_(result) -- joining all in the end would be long for a slice
    done = done + #lengths
    ids, types, lengths = {}, {}, {}
  end

  -- A batch is tokenized when its turn comes: the collector traverses all lists that are kept, again and again.
  for _, item in ipairs(list) do
    E.check_cancel(method)
    slices.pause()
    local of_item, before = texts.ids(model, item)
    local most = slices.active() and 1 or BATCH_TOKENS -- in slices a text at a time
    if #ids > 0 and #ids + #of_item > most then finish() end
    lengths[#lengths + 1] = #of_item
    local count = #ids
    for j, id in ipairs(of_item) do
      ids[count + j], types[count + j] = id, j <= before and 1 or 2
    end
  end
  if #ids > 0 then finish() end
  return results or core.zeros(0, k)
end

--- A method that calls f without recording gradients, so that many texts need no more memory than a batch.
function texts.unrecorded(f)
  return function(...)
    if core.is_grad_enabled() then return core.modules.with_modes(false, nil, f, ...) end
    return f(...)
  end
end

return texts
