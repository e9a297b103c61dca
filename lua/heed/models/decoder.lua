--- The base class of decoders: from ids to logits, with a cache, and text generation. A subclass has `config`, `layers`
--- (modules whose part `attention` is a MultiHeadAttention, called with its options), `norm`, `lm_head`, and a method
--- embed(ids, past, positions), the latter where the items of a cache have different lengths. Shape legend: b batch,
--- n tokens, v vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local options_of, fail = core.modules.options, E.fail

local Decoder = nn.Module.class "Decoder"

Decoder.part_names = { layers = "blocks", norm = "ln_final" } -- in the names of points

local OPTIONS = { "cache", "attn_mask", "key_padding_mask", "kv_lengths", "need_weights", "logits_to_keep",
  "lengths" }

--- kv_lengths as an int64 tensor [b], checked for ids [b, n].
local function lengths_of(name, lengths, ids)
  lengths = core.modules.indices(lengths, name, "kv_lengths")
  if lengths.ndim ~= 1 or ids.ndim ~= 2 or lengths.shape[1] ~= ids.shape[1] then
    E.reject(name, "kv_lengths", lengths, "a list or a tensor [b] of lengths for ids [b, n]; ids have the shape [%s]",
      table.concat(ids.shape, ", "))
  end
  return lengths
end

--- The positions of new tokens where the items of a cache differ: [b, n], or [total] if they are packed; else nil.
local function positions_of(past, added, packed)
  local rows, even = {}, not packed
  for i, count in ipairs(added) do
    even = even and past[i] == past[1]
    local row = packed and rows or {}
    for j = 1, count do row[#row + 1] = past[i] + j end
    if not packed then rows[i] = row end
  end
  return not even and core.tensor(rows, { dtype = "int64" }) or nil
end

--- The rows of the last `kept` tokens of each item in packed ones.
local function last_of(name, added, kept)
  local rows, ends = {}, 0
  for i, count in ipairs(added) do
    ends = ends + count
    if count < kept then
      fail("%s: logits_to_keep is %d; it must be at most %d, the number of ids of item %d", name, kept, count, i)
    end
    for j = ends - kept + 1, ends do rows[#rows + 1] = j end
  end
  return core.tensor(rows, { dtype = "int64" })
end

--- Logits [b, n, v] of ids [b, n], or [n, v] of ids [n]; only those of the last logits_to_keep tokens if that is given.
--- With lengths and a cache, ids [total] are those of all items, one after the other, and so are the logits.
--- need_weights adds a second result, where info.layers[i] holds the intermediate results of attention in layer i.
function Decoder:forward(ids, ...)
  local name, config = E.class_name(self), self.config
  local cache, mask, padding, lengths, wanted, kept, packed = options_of(name, OPTIONS, 3, self, ids, ...)
  ids = loading.ids(name, ids)
  local n, batch, layers = ids.shape[ids.ndim], ids.ndim == 2 and ids.shape[1] or 1, E.entries(self.layers)
  if kept ~= nil and (not compat.is_integer(kept) or kept < 1 or kept > n) then
    E.reject(name, "logits_to_keep", kept, "an integer from 1 to the number of tokens, %d", n)
  end
  if lengths ~= nil then
    if cache or padding then
      fail("%s: kv_lengths and %s are both given; use key_padding_mask to hide keys in a cache", name,
        cache and "cache" or "key_padding_mask")
    end
    lengths = lengths_of(name, lengths, ids)
  end
  if packed ~= nil and (cache == nil or ids.ndim ~= 1) then
    fail("%s: lengths are given %s; they are the numbers of ids [total] that each item of a cache receives", name,
      cache == nil and "without cache" or "with ids of a batch")
  end
  local work, inner, past, added = nil, nil, { 0 }, { n }
  if cache ~= nil then work, inner, past, added = caches.begin(name, cache, #layers, batch, n, packed) end
  for i, count in ipairs(added) do
    if past[i] + count > config.max_position_embeddings then
      local before = past[i] > 0 and ("cache has %s and "):format(E.count(past[i], "token")) or ""
      fail("%s: %sids have %s; together they must be at most %d, %s", name, before, E.count(count, "token"),
        config.max_position_embeddings, config.names.max_position_embeddings)
    end
  end

  local x, found = self:embed(ids, past[1], positions_of(past, added, packed ~= nil)), {}
  local options = { attn_mask = mask, key_padding_mask = padding, kv_lengths = lengths, need_weights = wanted,
    lengths = packed and added }
  for i, layer in ipairs(layers) do
    options.cache = inner and inner[i]
    x, found[i] = layer.value(x, options)
  end
  if kept and packed then
    x = x:index_select(1, last_of(name, added, kept))
  elseif kept and kept < n then
    x = x:narrow(-2, n - kept + 1, kept)
  end
  local logits = self.lm_head(self.norm(x))
  if cache then caches.commit(cache, work, added) end
  if wanted then return logits, { layers = found } end
  return logits
end

local function attentions_of(self)
  local attentions = {}
  for i, layer in ipairs(E.entries(self.layers)) do attentions[i] = layer.value.attention end
  return attentions
end

--- An empty cache for all layers of the model.
function Decoder:new_cache(...)
  E.check_self(self, "new_cache")
  return caches.new(self, attentions_of(self), ...)
end

--- The cache that cache:save wrote, for this model: no token is computed again. Or nil and a message.
function Decoder:load_cache(path)
  E.check_self(self, "load_cache")
  return caches.load(attentions_of(self), path)
end

Decoder.generate = require "heed.models.generate"

return E.with_frames(Decoder, "forward", "generate")
