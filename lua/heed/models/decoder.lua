--- The base class of decoders: from ids to logits, with a cache, and text generation. A subclass has `config`, `layers`
--- (modules whose part `attention` is a MultiHeadAttention, called with its options), `norm`, `lm_head`, and a method
--- embed(ids, past, positions), where positions are given for packed texts [total], and for the items of a cache [b, n]
--- whose lengths differ. Classes of layers with `packs = true` take packed texts. Shape legend: b batch, n tokens,
--- total all tokens of packed texts, v vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local packing = require "heed.models.packing"
local slices = require "heed.nn.slices"
local options_of, fail = core.modules.options, E.fail

local Decoder = nn.Module.class "Decoder"

Decoder.tp_plan = { lm_head = "colwise_gather" } -- unless it is tied
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

--- The positions of new tokens that follow past[i] tokens of item i: [b, n], or [total] with lengths [b]; nil where all
--- items have the same.
local function positions_of(past, n, lengths)
  local even = not lengths
  for i = 2, #past do even = even and past[i] == past[1] end
  if even then return nil end
  past = core.tensor(past, { dtype = "int64" })
  return lengths and packing.positions(lengths, past) or past:unsqueeze(2) + core.range(1, n, { dtype = "int64" })
end

--- The rows of the last `kept` tokens of each packed text, int64 [b * kept].
local function last_rows(name, lengths, kept)
  if lengths:min():item() < kept then
    E.reject(name, "logits_to_keep", kept, "an integer from 1 to the length of the shortest text, %d",
      lengths:min():item())
  end
  return (lengths:cumsum(1):unsqueeze(2) + core.range(1 - kept, 0, { dtype = "int64" })):flatten()
end

--- The caches of the layers, and the numbers of old and new tokens of each item. Raises unless these fit the model.
local function begin(self, ids, cache, lengths)
  local name, config = E.class_name(self), self.config
  local n, batch = ids.shape[ids.ndim], ids.ndim == 2 and ids.shape[1] or 1
  local draft, inner, past, added = nil, nil, { 0 }, { n }
  if cache ~= nil then
    draft, inner, past, added = caches.begin(name, cache, #E.entries(self.layers), batch, n, lengths)
  elseif lengths ~= nil then
    past, added = {}, {} -- packing.check has compared the lengths with the most
    for i = 1, lengths.shape[1] do past[i] = 0 end
  end
  for i, count in ipairs(added) do
    if past[i] + count > config.max_position_embeddings then
      local before = past[i] > 0 and ("cache has %s and "):format(E.count(past[i], "token")) or ""
      fail("%s: %sids have %s; together they must be at most %d, %s", name, before, E.count(count, "token"),
        config.max_position_embeddings, config.names.max_position_embeddings)
    end
  end
  return draft, inner, past, added
end

--- Logits, and what attention found in each layer if that is wanted. `options` are those of the layers.
local function logits_of(self, ids, options, cache, kept)
  local lengths, n, found = options.lengths, ids.shape[ids.ndim], {}
  local rows = kept and lengths and last_rows(E.class_name(self), lengths, kept)
  local config = self.config
  local own = packing.positions_of_shard(E.class_name(self), n, cache, config.max_position_embeddings,
    config.names.max_position_embeddings)
  local draft, inner, past, added
  if not own then draft, inner, past, added = begin(self, ids, cache, lengths) end
  local x = self:embed(ids, own and 0 or past[1], own or positions_of(past, n, lengths))
  for i, layer in ipairs(E.entries(self.layers)) do
    if draft then caches.check_draft(draft) end -- a slice may have ended
    options.cache = own and cache or inner and inner[i]
    x, found[i] = layer.value(x, options)
  end
  if rows then
    x = x:index_select(1, rows)
  elseif kept and kept < n then
    x = x:narrow(-2, n - kept + 1, kept)
  end
  local logits, cap = slices.call(self.lm_head, (self.norm(x))), config.final_logit_softcapping
  if cap then logits = (logits / cap):tanh() * cap end
  if draft then caches.commit(cache, draft, added) end
  return logits, found
end

--- Logits [b, n, v] of ids [b, n], or [n, v] of ids [n]; only those of the last logits_to_keep tokens if it is given.
--- kv_lengths [b]: ids behind these lengths are padding. Without a cache it costs nothing, and its logits are 0.
--- lengths [b]: ids [total] are the ids of b texts, one after another, or with a cache the new ones of its items:
--- logits [total, v], or [b * logits_to_keep, v].
--- need_weights adds a second result, where info.layers[i] holds the intermediate results of attention in layer i.
function Decoder:forward(ids, ...)
  local name, config = E.class_name(self), self.config
  local cache, mask, padding, kv_lengths, wanted, kept, lengths = options_of(name, OPTIONS, 3, self, ids, ...)
  ids = loading.ids(name, ids)
  local n, most = ids.shape[ids.ndim], config.max_position_embeddings
  if kept ~= nil and packing.is_divided() then
    fail("%s: logits_to_keep is not available in context_parallel; use shard:gather(logits, dim), then narrow", name)
  end
  if kept ~= nil and (not compat.is_integer(kept) or kept < 1 or not lengths and kept > n) then
    E.reject(name, "logits_to_keep", kept, lengths and "an integer of at least 1"
      or "an integer from 1 to the number of tokens, %d", n)
  end
  if lengths ~= nil then
    if padding or kv_lengths then
      fail("%s: lengths and %s are both given; packed texts have no padding", name,
        padding and "key_padding_mask" or "kv_lengths")
    end
    lengths = packing.check(name, lengths, ids, most, config.names.max_position_embeddings)
  end
  if kv_lengths ~= nil then
    if cache or padding then
      fail("%s: kv_lengths and %s are both given; use key_padding_mask to hide keys in a cache", name,
        cache and "cache" or "key_padding_mask")
    end
    kv_lengths = lengths_of(name, kv_lengths, ids)
    local packed = n <= most and not (mask or wanted or kept) and packing.lengths(self, ids, nil, kv_lengths)
    if packed then return (logits_of(self, ids:pack(packed), { lengths = packed })):unpack(packed, n) end
  end
  local options = {
    attn_mask = mask, key_padding_mask = padding, kv_lengths = kv_lengths, need_weights = wanted, lengths = lengths,
  }
  local logits, found = logits_of(self, ids, options, cache, kept)
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
function Decoder:load_cache(path, ...)
  E.check_self(self, "load_cache")
  options_of("load_cache", {}, 3, self, path, ...)
  return caches.load(self, attentions_of(self), path)
end

local generate = require "heed.models.generate"
Decoder.generate, Decoder.generate_steps = generate.generate, generate.generate_steps

return E.with_frames(Decoder, "forward", "generate", "generate_steps")
