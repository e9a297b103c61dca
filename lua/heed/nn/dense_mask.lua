--- Masks as values (heed.mask) as tensors, for code that reads elements of attn_mask. Shapes: b batch, n queries,
--- s keys.

local core = require "heed.core"
local primitives = core.modules

local function list_of(lengths)
  if primitives.kind(lengths) ~= nil then lengths = lengths:tolist() end
  return type(lengths) == "table" and lengths or { lengths }
end

--- The value for n queries and s keys: [..., n, s]. past: the tokens in a cache; lengths: the kv_lengths of a call with
--- key, which shift the queries of each batch item, or nil.
local function dense(mask, n, s, past, lengths)
  if lengths == nil then return mask:dense(n, s, past) end
  local items = {}
  for b, length in ipairs(list_of(lengths)) do
    local item = mask:dense(n, s, length - n)
    if item.ndim == 2 then item = item:unsqueeze(1) end -- all heads
    if item.ndim == 4 then item = item:select(1, item.shape[1] == 1 and 1 or b) end
    items[b] = item
  end
  return core.stack(items, 1)
end

local dense_mask = { dense = dense }

--- Whether the option is a mask value.
dense_mask.is_value = primitives.is_mask

--- Replaces options.attn_mask, if it is a value, by the mask for a forward pass on x [n, e] or [b, n, e].
function dense_mask.replace(options, x)
  local mask, cache, key = options.attn_mask, options.cache, options.key
  if not primitives.is_mask(mask) or x.ndim ~= 2 and x.ndim ~= 3 then return end
  local n, past = x.shape[x.ndim - 1], 0
  local s = n
  if primitives.kind(key) ~= nil and key.ndim == x.ndim then s = key.shape[key.ndim - 1] end
  if cache ~= nil and primitives.kind(cache) == nil and type(cache) == "userdata" then past = cache.length end
  local lengths = key ~= nil and options.kv_lengths or nil
  local made = dense(mask, n, s + past, past, lengths)
  if x.ndim == 2 and lengths ~= nil then made = made:select(1, 1) end
  options.attn_mask = made
end

return dense_mask
