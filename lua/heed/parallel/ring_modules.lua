--- The forward pass of an attention module on shards: its projections, norms, rotary positions and hooks here,
--- attention as a ring over the ranks. (With whole tokens: src/nn/attention and heed.nn.recorded.)
--- Shapes: b batch (1 without), h heads, l tokens of this rank, n of all ranks, d head_dim.

local stages = require "heed.nn.attention_stages"
local core = require "heed.core"
local compat = require "heed.compat"
local E = require "heed.nn.entries"
local heads = require "heed.nn.own_heads"
local caches = require "heed.parallel.context_cache"
local ring_options = require "heed.parallel.ring_options"
local part, primitives = stages.part, core.modules

local OPTIONS = {
  "attn_mask", "key_padding_mask", "need_weights", "generator", "kv_lengths", "key", "value", "cache", "need_lse",
  "lengths", "key_lengths",
}

--- The options of m(x, …) by name.
local function read_options(name, m, x, ...)
  local options, values = {}, compat.pack(primitives.options(name, OPTIONS, 3, m, x, ...))
  for i, each in ipairs(OPTIONS) do options[each] = values[i] end
  E.check_tensor(x, name, "x")
  if x.ndim ~= 2 and x.ndim ~= 3 then E.reject(name, "x", x, "[tokens, size] or [batch, tokens, size]") end
  for _, each in ipairs { "key", "value" } do
    if options[each] ~= nil then E.check_operand(options[each], name, each, x.ndim) end
  end
  local key, value = options.key or x, options.value
  if value and value.shape[x.ndim - 1] ~= key.shape[x.ndim - 1] then
    E.reject(name, "value", value, "of as many tokens as key, %d", key.shape[x.ndim - 1])
  end
  return options
end

--- Raises for what a ring cannot do. Returns the probability of dropout.
local function check(name, m, options, listened)
  local function refuse(what, instead) E.fail("%s: %s in context_parallel; %s", name, what, instead) end
  if options.lengths or options.key_lengths then
    refuse("lengths are not available", "give attn_mask = heed.mask.documents(lengths)")
  end
  if options.need_weights then refuse("need_weights is not available", "need_lse is") end
  if listened.attn_scores or listened.pattern then
    refuse("hooks on attn_scores and pattern are not available", "remove them, or use other points")
  end
  if name == "CausalAttention" and m.softmax_dim ~= -1 then
    refuse("softmax_dim is " .. tostring(m.softmax_dim), "it must be -1")
  end
  if options.cache and options.key then refuse("key and cache are both given", "leave one of them out") end
  local dropout = part(m, "dropout")
  if dropout and E.class_name(dropout) ~= "Dropout" then
    refuse("a dropout of one's own is not available", "use nn.Dropout with p = 0")
  end
  return dropout and dropout.training and dropout.p or 0
end

--- The padding as bool [b, 1, 1, s], true for hidden keys.
local function padding_of(name, mask)
  if mask == nil then return nil end
  E.check_tensor(mask, name, "key_padding_mask")
  if mask.dtype ~= "bool" or mask.ndim < 1 or mask.ndim > 2 then
    E.reject(name, "key_padding_mask", mask, "bool [batch, tokens of all ranks]")
  end
  return mask:view(mask.ndim == 2 and mask.shape[1] or 1, 1, 1, mask.shape[mask.ndim])
end

local function lengths_of(name, lengths)
  if lengths == nil then return nil end
  return primitives.indices(lengths, name, "kv_lengths")
end

--- The same for a wrapper, head by head.
local function forward_heads(name, m, x, options)
  if options.need_weights then E.fail("%s: need_weights is not available in context_parallel; need_lse is", name) end
  local ys, sums, mask = {}, {}, options.attn_mask
  local count = #m.heads
  for i, head in m.heads:iter() do
    local own = {}
    for each, value in pairs(options) do own[each] = value end
    own.attn_mask = heads.mask_of(mask, i, count)
    local y, info = head(x, own)
    ys[i], sums[i] = y, info and info.lse
  end
  local y = core.cat(ys, -1)
  if not options.need_lse then return y end
  return y, { lse = core.stack(sums, -2) }
end

--- m(x, options) on shards. `ranks` has totals(name, x, key, settings), the numbers of tokens of all ranks;
--- positions(name, n, cache, m), those of this rank's tokens of n, which may follow those of m in a cache; and
--- attend(name, q, k, v, options, n, s), the output and the logarithms of the sums of e^score.
return function(ranks, m, x, ...)
  local name = E.class_name(m)
  local options = read_options(name, m, x, ...)
  if name == "MultiHeadAttentionWrapper" then return forward_heads(name, m, x, options) end
  local batched = x.ndim == 3
  local listeners = stages.listeners(m, batched)
  local p = check(name, m, options, listeners.has)

  local from = { x, options.key or x, options.value or options.key or x }
  local c = stages.settings(m)
  local most = (c.causal or not c.one_head) and m.context_length or nil
  local n, s = ranks.totals(name, x, options.key, ring_options.settings {
    causal = c.causal, window = c.window, softcap = c.softcap, scale = c.scale, dropout_p = p,
    length = caches.is(options.cache) and caches.layer(caches.is(options.cache), m).length or nil,
  })
  local at_query, at_key
  if c.rope then
    at_query = ranks.positions(name, n, options.cache, m)
    at_key = options.key and ranks.positions(name, s) or at_query
  end
  local made = stages.projections(m, c, from, batched, listeners, function(which, input)
    return part(m, which)(input)
  end, function(i, y)
    c.rope.positions = i == 1 and at_query or at_key
    return core.rope(y, c.rope)
  end)

  local mask = options.attn_mask
  if c.one_head and E.is_tensor(mask) and mask.ndim == 3 then mask = mask:unsqueeze(2) end
  local z, lse = ranks.attend(name, made[1], made[2], made[3], {
    attn_mask = mask, is_causal = c.causal, window = c.window, softcap = c.softcap, scale = c.scale,
    alibi_slopes = c.alibi and core.alibi_slopes(c.heads) or nil, sinks = c.sinks,
    padding = padding_of(name, options.key_padding_mask), kv_lengths = lengths_of(name, options.kv_lengths),
    moves = options.key ~= nil, most = most, cache = options.cache, module = m,
    dropout_p = p, generator = options.generator,
  }, n, s)
  local y = stages.result(m, c, z, batched, listeners)
  if not options.need_lse then return y end
  if c.one_head then lse = lse:squeeze(2) end
  return y, { lse = batched and lse or lse:squeeze(1) }
end
