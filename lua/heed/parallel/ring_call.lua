--- scaled_dot_product_attention of shards: the description of a call for ring attention (heed.parallel.ring), and its
--- gradient. Shapes: b batch, h heads, n queries and s keys of all ranks, l queries of this one, p past keys, which all
--- ranks have.

local core = require "heed.core"
local compat = require "heed.compat"
local agreement = require "heed.parallel.agreement"
local caches = require "heed.parallel.context_cache"
local division = require "heed.parallel.division"
local draws = require "heed.parallel.draws"
local ring = require "heed.parallel.ring"
local ring_options = require "heed.parallel.ring_options"
local E = require "heed.nn.entries"
local Function = require "heed.autograd.functions"
local primitives = core.modules

-- ---- Sizes --------------------------------------------------------------------------------------

--- The numbers of queries and keys of all ranks, n and s.
local function totals_of(link, name, q, k, v, o)
  local list = {}
  for i, x in ipairs { q, k, v } do list[i] = agreement.of(({ "q", "k", "v" })[i], x, x.ndim - 1) end
  local totals = agreement.totals(link, name, list, ring_options.settings(o))
  if totals[2] ~= totals[3] then
    E.fail("%s: k has %s and v has %d on all ranks; these must be equal", name, E.count(totals[2], "token"), totals[3])
  end
  return totals[1], totals[2]
end

-- ---- Masks --------------------------------------------------------------------------------------

--- The sizes of a mask's rows and columns: 1 where it broadcasts.
local function mask_sizes(mask)
  return mask.ndim > 1 and mask.shape[mask.ndim - 1] or 1, mask.ndim > 0 and mask.shape[mask.ndim] or 1
end

--- Raises unless the tensor has a row for each of n queries, or for each of this rank's.
local function check_mask(name, mask, n, l, keys)
  local rows, columns = mask_sizes(mask)
  if (rows == 1 or rows == n or rows == l) and columns <= math.max(keys, 1) then return end
  E.reject(name, "attn_mask", mask, "[..., %d, %d], for the tokens of all ranks, or [..., %d, %d], with this rank's "
    .. "rows", n, keys, l, keys)
end

--- The elements of a mask for a pair of segments.
local function cut_mask(mask, n, a, b)
  local rows, columns = mask_sizes(mask)
  if rows > 1 or n == 1 and mask.ndim > 1 then
    mask = mask:narrow(-2, (rows == n and a.first or a.at) + 1, a.size)
  end
  if columns > 1 then mask = mask:narrow(-1, b.first + 1, b.size) end
  return mask
end

--- Hides the elements of `hidden`, bool, in a mask, which may be nil.
local function hide(mask, hidden)
  if not mask then return hidden:logical_not() end
  if mask.dtype == "bool" then return mask:logical_and(hidden:logical_not()) end
  return mask:masked_fill(hidden, -math.huge)
end

-- ---- Items with positions of their own ----------------------------------------------------------

--- Item i of a batch [b, h, …]; x itself for i nil, or if all items share it.
local function item_of(x, i)
  if not i or x.ndim < 4 or x.shape[x.ndim - 3] == 1 then return x end
  return x:narrow(x.ndim - 3, i, 1)
end

--- The offsets of the items' queries, in one list, or one number where they are equal.
local function offsets_of(lengths, n, past, moves)
  if not lengths or not moves then return past end
  local list, equal = lengths:tolist(), true
  for i, length in ipairs(list) do
    list[i] = length - n
    equal = equal and list[i] == list[1]
  end
  return (equal or #list == 0) and (list[1] or 0) or list
end

local function least(x, pick) return type(x) == "table" and pick(compat.unpack(x)) or x end

-- ---- Dropout ------------------------------------------------------------------------------------

--- A number that differs between generators with different states.
local function digest(generator)
  local state, sum = generator:get_state(), 0
  for i = 1, #state do sum = (sum * 257 + state:byte(i)) % 2 ^ 40 end
  return sum
end

--- The generator of dropout with probability p, nil for none; raises unless its numbers depend on the weight alone and
--- it is the same on all ranks.
local function generator_of(link, name, p, generator)
  if p == 0 then return nil end
  generator = draws.generator(generator, p, name, " in context_parallel", "set dropout to 0, or call eval()")
  local own = digest(generator)
  for rank, other in ipairs(link.gather(core.tensor({ own }, { dtype = "int64" }))) do
    if other:tolist()[1] ~= own then
      E.fail("%s: the generator of dropout is not that of rank %d; all ranks must give it the same seed, and draw the "
        .. "same from it", name, rank)
    end
  end
  return generator
end

--- Raises for lengths that are not from 0 to s, or not of the batch of q.
local function check_lengths(name, q, o, s)
  local lengths = o.kv_lengths
  if not lengths or lengths:numel() == 0 then return end
  if q.ndim == 4 and lengths:numel() > 1 and lengths:numel() ~= q.shape[1] then
    E.reject(name, "kv_lengths", lengths, "[%d], a length for each item of the batch", q.shape[1])
  end
  for i, length in ipairs(lengths:flatten():tolist()) do
    if length < 0 or length > s then
      E.fail("%s: element %d of kv_lengths is %d; it must be from 0 to %d, the keys of all ranks", name, i, length, s)
    end
  end
end

-- ---- A call -------------------------------------------------------------------------------------

--- A list with one segment of all tokens, where positions do not matter.
local function one_segment(first, size) return size > 0 and { { first = first, size = size, at = 0 } } or {} end

--- The call of ring attention for q of this rank, n queries and s keys, and the options
---   is_causal, window, softcap, scale, alibi_slopes, attn_mask, past_key, past_value   as the function's
---   kv_lengths   int64 [b]; with `moves` it aligns the last query with the last key, as in the function
---   most         tokens, for a context_length
---   dropout_p, generator
---   before       tokens of a cache, before the queries; with them `cached(rank)`, the segments of a rank's keys
---   padding      bool [b, 1, 1, s], true for hidden keys
local function new_call(link, name, q, queries, n, s, o)
  check_lengths(name, q, o, s)
  local past = o.before or o.past_key and o.past_key.shape[o.past_key.ndim - 1] or 0
  if o.most and math.max(n, s) + (o.before or 0) > o.most then
    E.fail("%s: there are %d tokens on all ranks%s; there must be at most %d, the context_length", name,
      math.max(n, s) + (o.before or 0), o.before and " with those of the cache" or "", o.most)
  end
  local mask, value, lengths = o.attn_mask, nil, o.kv_lengths
  if primitives.is_mask(mask) then mask, value = nil, mask end
  if mask then check_mask(name, mask, n, q.shape[q.ndim - 1], past + s) end
  local offset = offsets_of(lengths, n, past, o.moves)
  local window, longest = o.window or {}, lengths and lengths:numel() > 0 and lengths:max():item() or math.huge
  local columns = mask and select(2, mask_sizes(mask)) or 1
  local visible = math.min(longest, columns > 1 and columns or math.huge) -- keys behind it are hidden
  local alone = o.whole and n == 1 -- the last token of all, which sees all keys
  local of_rows = o.is_causal and not alone or o.window or o.alibi_slopes or value or type(offset) == "table"
    or mask and (mask_sizes(mask)) > 1
  of_rows = of_rows or o.generator
  local of_keys = of_rows or mask or lengths or o.padding
  local c = { link = link, queries = of_rows and queries or one_segment(0, q.shape[q.ndim - 1]) }
  local cached = o.cached
  local drawing = o.generator and o.generator:clone() -- backward, too

  --- The generator that draws for the weights of a pair.
  local function drawn(a, b, item)
    local whole, first = {}, {}
    for d = 1, q.ndim do whole[d], first[d] = q.shape[d], 1 end
    whole[q.ndim - 1], whole[q.ndim] = n, past + s
    first[q.ndim - 1], first[q.ndim] = a.first + 1, b.first + 1
    if item then first[q.ndim - 3] = item end
    return drawing:part(whole, first)
  end

  --- The number of a rank's keys.
  function c.count(rank)
    if not cached then return division.count(s, link.size, rank) end
    local last = cached(rank)[#cached(rank)]
    return last and last.at + last.size or 0
  end

  --- The segments of a rank's keys, without those that no query sees.
  function c.keys(rank)
    local first, list = cached and 0 or past, cached and cached(rank) or division.segments(s, link.size, rank)
    if not of_keys then list = one_segment(0, c.count(rank)) end
    local kept = {}
    for _, each in ipairs(list) do
      local own = { first = each.first + first, size = each.size, at = each.at }
      own.size = math.min(own.size, visible - own.first)
      if own.size > 0 then kept[#kept + 1] = own end
    end
    return kept
  end

  if not o.before and past > 0 and visible > 0 then
    c.past = { first = 0, size = math.min(past, visible), at = 0, k = o.past_key, v = o.past_value }
  end

  local lowest, highest = least(offset, math.min), least(offset, math.max)
  function c.shown(a, b)
    local first, last = a.first + lowest, a.first + a.size - 1 + highest
    return not (o.is_causal and b.first > last or window.right and b.first > last + window.right
      or window.left and b.first + b.size - 1 < first - window.left)
  end

  --- The mask of a pair for the items at `own`, an offset; item: one of them, or nil.
  local function mask_for(a, b, own, item)
    local found = mask and item_of(cut_mask(mask, n, a, b), item)
    if value then
      found = primitives.mask_part(value, n, past + s, own, a.first + 1, a.size, b.first + 1, b.size,
        item or lengths and 0 or nil)
      if o.padding then found = found:dense(a.size, b.size, a.first + own - b.first) end
    end
    if o.padding then found = hide(found, item_of(o.padding:narrow(-1, b.first + 1, b.size), item)) end
    return found
  end

  --- The options of a pair.
  local function options_for(a, b, own, item)
    local hidden
    if lengths then
      hidden = ((item and lengths:narrow(1, item, 1) or lengths) - b.first):clamp(0, b.size)
    end
    return {
      attn_mask = mask_for(a, b, own, item), is_causal = o.is_causal, window = o.window, softcap = o.softcap,
      scale = o.scale, alibi_slopes = o.alibi_slopes, kv_lengths = hidden, enable_gqa = o.enable_gqa,
      offset = a.first + own - b.first,
      dropout_p = drawing and o.dropout_p, generator = drawing and drawn(a, b, item),
    }
  end

  function c.part(qa, kb, vb, a, b)
    if type(offset) ~= "table" then return qa:attention_partial(kb, vb, options_for(a, b, offset)) end
    local outs, stats = {}, {}
    for i, own in ipairs(offset) do
      outs[i], stats[i] = item_of(qa, i):attention_partial(item_of(kb, i), item_of(vb, i), options_for(a, b, own, i))
    end
    return core.cat(outs, 1), core.cat(stats, 1)
  end

  function c.part_backward(qa, kb, vb, a, b, out, lse, dout)
    local function gradients(own, i)
      local given = options_for(a, b, own, i)
      given.of_slopes = c.slopes ~= nil
      given.out, given.lse = item_of(out, i):contiguous(), i and lse:narrow(1, i, 1) or lse
      given.dout = item_of(dout, i):contiguous()
      return primitives.attention_part_backward(item_of(qa, i), item_of(kb, i), item_of(vb, i), given)
    end
    if type(offset) ~= "table" then return gradients(offset) end
    local sums = { core.zeros(qa.shape), core.zeros(kb.shape), core.zeros(vb.shape) }
    if c.slopes then sums[5] = core.zeros(c.slopes.shape) end
    if mask then sums[4] = core.zeros(cut_mask(mask, n, a, b).shape) end
    for i, own in ipairs(offset) do
      local found = { gradients(own, i) }
      for which, sum in pairs(sums) do
        if found[which] then item_of(sum, i):add_(found[which]) end
      end
    end
    return compat.unpack(sums, 1, 5)
  end

  if o.alibi_slopes and o.alibi_slopes.requires_grad then c.slopes = o.alibi_slopes end
  if mask and mask.requires_grad then
    c.mask = mask
    function c.mask_of(whole, a, b) return cut_mask(whole, n, a, b) end
  end
  return c
end

-- ---- With a gradient ----------------------------------------------------------------------------

--- The output and the statistics with a sink for each head, float32 [hq], as one more part without keys.
local function with_sinks(out, stats, sinks)
  local shape = {}
  for d = 1, stats.ndim - 1 do shape[d] = stats.shape[d] end
  local largest = sinks:view(-1, 1):expand(shape)
  return core.attention_merge({ out, core.zeros(out.shape) },
    { stats, core.stack({ largest, core.ones(shape) }, -1) })
end

--- The sum over all dimensions but that of the heads.
local function over_heads(x, heads) return x:transpose(-1, -2):reshape(-1, heads):sum(1) end

local RingAttention = Function("RingAttention", {
  forward = function(ctx, c, q, k, v, _, sinks)
    local out, stats = ring.forward(c, q, k, v)
    local unseen = stats:select(-1, 1):eq(-math.huge)
    if sinks then out, stats = with_sinks(out, stats, sinks) end
    local lse = stats:select(-1, 1) + stats:select(-1, 2):log()
    ctx.call = c
    ctx:save(q, k, v, out, lse, sinks)
    local seen = lse:masked_fill(unseen, -math.huge)
    ctx:mark_non_differentiable(seen)
    return out, seen
  end,
  backward = function(ctx, dout)
    local q, k, v, out, lse, sinks = ctx:saved()
    local dq, dk, dv, dmask, dslopes, dpast_key, dpast_value = ring.backward(ctx.call, q, k, v, out, lse, dout)
    local dsinks
    if sinks then
      dsinks = over_heads((sinks:view(-1, 1) - lse):exp() * -(dout * out):sum(-1), sinks.shape[1])
    end
    return nil, dq, dk, dv, dmask, dsinks, dslopes, dpast_key, dpast_value
  end,
})

local ring_call = {}

--- The attention of this rank's queries to all keys, [..., hq, l, dv], and the logarithm of the sum of e^score of each,
--- [..., hq, l], by the options of new_call and `sinks`. n and s: the numbers of queries and keys of all ranks, if they
--- are known. A mistake is raised as one of the function `name`.
function ring_call.attend(link, name, q, k, v, o, n, s)
  ring_options.check_kinds(name, o)
  if not n then
    ring_options.check(name, q, k, v, o)
    n, s = totals_of(link, name, q, k, v, o)
  end
  o.generator = generator_of(link, name, o.dropout_p, o.generator)
  local c = new_call(link, name, q, division.segments(n, link.size, link.rank), n, s, o)
  if o.generator then draws.move_on(o.generator) end
  return RingAttention(c, q, k, v, c.mask, o.sinks, o.alibi_slopes, c.past and c.past.k, c.past and c.past.v)
end

local function lse_of(stats) return stats:select(-1, 1) + stats:select(-1, 2):log() end

--- The same for a module whose keys and values go into a cache. whole: q, k and v are those of all tokens, on each
--- rank; then only the rank that keeps them adds them to its own, and the ranks' results are gathered instead of their
--- keys. n: the number of new tokens.
function ring_call.attend_cached(link, name, q, k, v, o, n, whole)
  local cache = caches.check(o.cache, link, name)
  ring_options.check_kinds(name, o)
  if o.kv_lengths then
    E.fail("%s: kv_lengths and cache are given; with a cache, use key_padding_mask to hide keys", name)
  end
  if core.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad) then
    E.fail("%s: cache is given while gradients are recorded, and a cache keeps none; call it under no_grad", name)
  end
  if o.dropout_p > 0 then E.fail("%s: dropout is %s and cache is given; call eval()", name, tostring(o.dropout_p)) end
  o.generator = nil
  local layer = caches.layer(cache, o.module)
  local segments, owner
  if whole then segments, owner = caches.appended(cache, layer, n) else segments = caches.divided(cache, layer, n) end
  local added = (not whole or owner == link.rank) and n or 0
  o.before, o.whole = layer.length, whole
  function o.cached(rank) return segments[rank] end
  local queries = whole and { { first = 0, size = n, at = 0 } } or division.segments(n, link.size, link.rank)
  local c = new_call(link, name, q, n > 0 and queries or {}, n, n, o)
  if added == 0 and whole then k, v = k:narrow(3, 1, 0), v:narrow(3, 1, 0) end
  local keys, values = caches.put(cache, layer, k, v, name)
  local out, stats
  if whole then out, stats = ring.gathered(c, q, keys, values) else out, stats = ring.forward(c, q, keys, values) end
  local unseen = stats:select(-1, 1):eq(-math.huge)
  if o.sinks then out, stats = with_sinks(out, stats, o.sinks) end
  caches.commit(cache, layer, segments, n, owner)
  return out, lse_of(stats):masked_fill(unseen, -math.huge)
end

return ring_call
