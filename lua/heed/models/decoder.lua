--- The base class of decoders: from ids to logits, with a cache, and text generation. A subclass has `config`, `layers`
--- (modules whose part `attention` is a MultiHeadAttention, called with its options), `norm`, `lm_head`, and a method
--- embed(ids, past, positions), where positions [total] are given for packed texts. Classes of layers with
--- `packs = true` take these. Shape legend: b batch, n tokens, total all tokens of packed texts, v vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local packing = require "heed.models.packing"
local options_of, fail = core.modules.options, E.fail

local Decoder = nn.Module.class "Decoder"

Decoder.part_names = { layers = "blocks", norm = "ln_final" } -- in the names of points

local OPTIONS = {
  "cache", "attn_mask", "key_padding_mask", "kv_lengths", "need_weights", "logits_to_keep", "lengths",
}

--- kv_lengths as an int64 tensor [b], checked for ids [b, n].
local function lengths_of(name, lengths, ids)
  lengths = core.modules.indices(lengths, name, "kv_lengths")
  if lengths.ndim ~= 1 or ids.ndim ~= 2 or lengths.shape[1] ~= ids.shape[1] then
    E.reject(name, "kv_lengths", lengths, "a list or a tensor [b] of lengths for ids [b, n]; ids have the shape [%s]",
      table.concat(ids.shape, ", "))
  end
  return lengths
end

--- The rows of the last `kept` tokens of each packed text, int64 [b * kept].
local function last_rows(name, lengths, kept)
  if lengths:min():item() < kept then
    E.reject(name, "logits_to_keep", kept, "an integer from 1 to the length of the shortest text, %d",
      lengths:min():item())
  end
  return (lengths:cumsum(1):unsqueeze(2) + core.range(1 - kept, 0, { dtype = "int64" })):flatten()
end

--- Logits of packed texts: [total, v], or [b * kept, v] if only those of the last `kept` tokens of each are wanted.
local function packed_logits(self, ids, lengths, kept, mask, wanted)
  local name, found = E.class_name(self), {}
  local rows = kept and last_rows(name, lengths, kept)
  local x = self:embed(ids, 0, packing.positions(lengths))
  local options = { lengths = lengths, attn_mask = mask, need_weights = wanted }
  for i, layer in ipairs(E.entries(self.layers)) do
    x, found[i] = layer.value(x, options)
  end
  if rows then x = x:index_select(1, rows) end
  return self.lm_head(self.norm(x)), found
end

--- Logits [b, n, v] of ids [b, n], or [n, v] of ids [n]; only those of the last logits_to_keep tokens if that is given.
--- kv_lengths [b]: ids behind these lengths are padding. Without a cache it costs nothing, and its logits are 0.
--- lengths [b]: ids [total] are the ids of b texts, one after another: logits [total, v], or [b * logits_to_keep, v].
--- need_weights adds a second result, where info.layers[i] holds the intermediate results of attention in layer i.
function Decoder:forward(ids, ...)
  local name, config = E.class_name(self), self.config
  local cache, mask, padding, lengths, wanted, kept, packed = options_of(name, OPTIONS, 3, self, ids, ...)
  ids = loading.ids(name, ids)
  local most, bound = config.max_position_embeddings, config.names.max_position_embeddings
  if packed ~= nil then
    if cache or padding or lengths then
      fail("%s: lengths and %s are both given; packed texts have no padding and no past", name,
        cache and "cache" or padding and "key_padding_mask" or "kv_lengths")
    end
    if kept ~= nil and (not compat.is_integer(kept) or kept < 1) then
      E.reject(name, "logits_to_keep", kept, "an integer of at least 1")
    end
    packed = packing.check(name, packed, ids, most, bound)
    local logits, found = packed_logits(self, ids, packed, kept, mask, wanted)
    if wanted then return logits, { layers = found } end
    return logits
  end
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
    if n <= most and not (mask or wanted or kept) then
      packed = packing.lengths(self, ids, nil, lengths)
      if packed then return (packed_logits(self, ids:pack(packed), packed)):unpack(packed, n) end
    end
  end
  local work, inner, past = nil, nil, 0
  if cache ~= nil then work, inner, past = caches.begin(name, cache, #layers, batch, n) end
  if past + n > most then
    local before = past > 0 and ("cache has %s and "):format(E.count(past, "token")) or ""
    fail("%s: %sids have %s; together they must be at most %d, %s", name, before, E.count(n, "token"),
      most, bound)
  end

  local x, found = self:embed(ids, past), {}
  local options = { attn_mask = mask, key_padding_mask = padding, kv_lengths = lengths, need_weights = wanted }
  for i, layer in ipairs(layers) do
    options.cache = inner and inner[i]
    x, found[i] = layer.value(x, options)
  end
  if kept and kept < n then x = x:narrow(-2, n - kept + 1, kept) end
  local logits = self.lm_head(self.norm(x))
  if cache then caches.commit(cache, work, n) end
  if wanted then return logits, { layers = found } end
  return logits
end

--- An empty cache for all layers of the model.
function Decoder:new_cache(...)
  E.check_self(self, "new_cache")
  local attentions = {}
  for i, layer in ipairs(E.entries(self.layers)) do attentions[i] = layer.value.attention end
  return caches.new(self, attentions, ...)
end

Decoder.generate = require "heed.models.generate"

return E.with_frames(Decoder, "forward", "generate")
