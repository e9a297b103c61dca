--- What decoders have in common: ids to logits, and on from there. A decoder has `config`, `layers` (of modules whose
--- part `attention` is a MultiHeadAttention, called with its options), `norm`, `lm_head`, and embed(ids, past).
--- Shape legend: b batch, n tokens, v vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local nn = require "heed.nn"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local options_of, fail = core.modules.options, E.fail

local Decoder = nn.Module.class "Decoder"

local OPTIONS = { "cache", "attn_mask", "key_padding_mask", "kv_lengths", "need_weights", "logits_to_keep" }

--- bool [b, n], true for what lies behind each item's length.
local function padding_of(name, lengths, ids)
  if type(lengths) == "table" then lengths = core.tensor(lengths, { dtype = "int64" }) end
  if E.kind(lengths) ~= "tensor" or lengths.dtype ~= "int64" or lengths.ndim ~= 1 or ids.ndim ~= 2
    or lengths.shape[1] ~= ids.shape[1] then
    fail("%s: kv_lengths must be int64 of shape [b], with ids [b, n]; got %s and ids of shape [%s]", name,
      E.what(lengths), table.concat(ids.shape, ", "))
  end
  return core.range(1, ids.shape[2]):gt(lengths:unsqueeze(2))
end

--- Logits [b, n, v] of ids [b, n] (or [n, v] of [n]), those of the last logits_to_keep tokens alone if that is given.
--- With need_weights a second result: info.layers[i], what layer i's attention found.
function Decoder:forward(ids, ...)
  local name, config = E.class_name(self), self.config
  local cache, mask, padding, lengths, wanted, kept = options_of(name, OPTIONS, 3, self, ids, ...)
  ids = loading.ids(name, ids)
  local n, batch, layers = ids.shape[ids.ndim], ids.ndim == 2 and ids.shape[1] or 1, E.entries(self.layers)
  if kept ~= nil and (not compat.is_integer(kept) or kept < 1 or kept > n) then
    fail("%s: logits_to_keep must be an integer from 1 to %d, the tokens; got %s", name, n, E.what(kept))
  end
  if lengths ~= nil then
    if cache or padding then
      fail("%s: kv_lengths is given and so is %s; with a cache, key_padding_mask hides keys", name,
        cache and "cache" or "key_padding_mask")
    end
    padding = padding_of(name, lengths, ids)
  end
  local work, inner, past = nil, nil, 0
  if cache ~= nil then work, inner, past = caches.begin(name, cache, #layers, batch, n) end
  if past + n > config.max_position_embeddings then
    local before = past > 0 and E.count(past, "token") .. " in the cache and " or ""
    fail("%s: there are %s%s, and max_position_embeddings is %d", name, before, E.count(n, "token"),
      config.max_position_embeddings)
  end

  local x, found = self:embed(ids, past), {}
  local options = { attn_mask = mask, key_padding_mask = padding, need_weights = wanted }
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

--- An empty cache for the model, of all layers.
function Decoder:new_cache(...)
  E.check_self(self, "new_cache")
  local attentions = {}
  for i, layer in ipairs(E.entries(self.layers)) do attentions[i] = layer.value.attention end
  return caches.new(self, attentions, ...)
end

Decoder.generate = require "heed.models.generate"

return E.with_frames(Decoder, "forward", "generate")
