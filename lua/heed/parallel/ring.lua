--- Ring attention: each rank has a shard of the queries, keys and values, and the shards of keys and values go from
--- rank to rank. In step t a rank attends to the keys of rank `rank - t`, while it sends them on and receives the next
--- ones; the results are merged by their statistics. Backward, the keys and values go round once more, and their
--- gradients with them. Source: arXiv:2310.01889.
---
--- A call c has the fields
---   link           rank, size, send(x, to, tag) and receive(x, from, tag), which return requests
---   queries        the rank's segments of the queries (heed.parallel.division)
---   keys(rank)     the segments of a rank's keys, whose `first` counts past keys, too
---   count(rank)    the number of a rank's keys
---   past           {first =, size =, at =}, k, v: keys that all ranks have; or nil
---   shown(a, b)    whether queries of segment a can see keys of segment b
---   part(q, k, v, a, b)   attention_partial of a pair of segments, whose q, k and v are given
---   part_backward(q, k, v, a, b, out, lse, dout)   what the pair contributes to the gradients of q, k, v, the
---                  mask's elements and the slopes, nil for none; the other tensors are those of a, over all keys
---   mask           the mask if its gradient is wanted, and mask_of(mask, a, b), the elements of a pair; or nil
---   slopes         alibi_slopes if their gradient is wanted
--- Shapes: q [..., hq, l, d], k [..., hkv, s, d], v [..., hkv, s, dv], out [..., hq, l, dv], lse [..., hq, l].

local core = require "heed.core"

local ring = {}

local function rows(x, segment) return x:narrow(-2, segment.at + 1, segment.size) end

--- The rank whose shard a rank has in a step, which counts from 0.
local function source_of(link, step) return (link.rank - 1 - step) % link.size + 1 end

--- Sends a rank's shards to the next rank and receives those of the rank before: a function that waits for these and
--- returns them. Empty shards are not sent.
local function pass_on(link, tensors, count, tag)
  local from, to = (link.rank - 2) % link.size + 1, link.rank % link.size + 1
  local buffers, requests = {}, {}
  for i, x in ipairs(tensors) do
    local shape = {}
    for d = 1, x.ndim do shape[d] = x.shape[d] end
    shape[x.ndim - 1] = count
    buffers[i] = core.empty(shape, { dtype = x.dtype })
    if buffers[i]:numel() > 0 then requests[#requests + 1] = link.receive(buffers[i], from, tag + i) end
  end
  for i, x in ipairs(tensors) do
    if x:numel() > 0 then requests[#requests + 1] = link.send(x, to, tag + i) end
  end
  return function()
    for _, request in ipairs(requests) do request:wait() end
    return buffers
  end
end

--- Calls visit(source, k, v, step) for the shard of each rank, in the order of the ring, while the next one arrives.
local function rotate(c, k, v, visit)
  local link, current = c.link, { k:contiguous(), v:contiguous() }
  for step = 0, link.size - 1 do
    local arrived
    if step < link.size - 1 then arrived = pass_on(link, current, c.count(source_of(link, step + 1)), 0) end
    visit(source_of(link, step), current[1], current[2], step)
    if arrived then current = arrived() end
  end
end

--- Calls f(i, a, b) for the query segments a, number i, and key segments b with visible pairs.
local function each_pair(c, segments, f)
  for i, a in ipairs(c.queries) do
    for _, b in ipairs(segments) do
      if c.shown(a, b) then f(i, a, b) end
    end
  end
end

--- Collects the results of this rank's queries: a function that attends to segments of keys, and one that returns the
--- output and the statistics.
local function collector(c, q)
  local outs, stats = {}, {}
  local function attend(segments, keys, values)
    each_pair(c, segments, function(i, a, b)
      local out, sums = c.part(rows(q, a), rows(keys, b), rows(values, b), a, b)
      if outs[i] then out, sums = core.attention_merge({ outs[i], out }, { stats[i], sums }) end
      outs[i], stats[i] = out, sums
    end)
  end
  local function result(k, v)
    local no_k, no_v = k:narrow(-2, 1, 0), v:narrow(-2, 1, 0)
    for i, a in ipairs(c.queries) do
      if not outs[i] then outs[i], stats[i] = rows(q, a):attention_partial(no_k, no_v) end
    end
    if #outs == 0 then return q:attention_partial(no_k, no_v) end
    if #outs == 1 then return outs[1], stats[1] end
    return core.cat(outs, -2), core.cat(stats, -2)
  end
  return attend, result
end

--- The output and the statistics of this rank's queries.
function ring.forward(c, q, k, v)
  local attend, result = collector(c, q)
  if c.past then attend({ c.past }, c.past.k, c.past.v) end
  rotate(c, k, v, function(source, keys, values) attend(c.keys(source), keys, values) end)
  return result(k, v)
end

--- The same for queries that all ranks have: each attends to its own keys, and the results are gathered and merged, in
--- the order of the ranks.
function ring.gathered(c, q, k, v)
  local attend, result = collector(c, q)
  attend(c.keys(c.link.rank), k, v)
  local out, stats = result(k, v)
  if c.link.size == 1 then return out, stats end
  local outs, all, size = c.link.gather(core.cat({ out, stats }, -1)), {}, out.shape[out.ndim]
  for rank, each in ipairs(outs) do outs[rank], all[rank] = each:narrow(-1, 1, size), each:narrow(-1, size + 1, 2) end
  return core.attention_merge(outs, all)
end

--- Adds the gradient of a segment, if there is one.
local function add(sum, segment, gradient)
  if gradient then rows(sum, segment):add_(gradient) end
end

--- The gradients of q, k, v, the mask, the slopes and the past keys and values, from that of the output; lse: the
--- logarithm of the sum of e^score, with the sinks.
function ring.backward(c, q, k, v, out, lse, dout)
  local link, of_queries = c.link, {}
  local dq, dmask = core.zeros(q.shape), c.mask and core.zeros(c.mask.shape)
  local dslopes = c.slopes and core.zeros(c.slopes.shape)
  for i, a in ipairs(c.queries) do
    of_queries[i] = {
      out = rows(out, a):contiguous(), dout = rows(dout, a):contiguous(),
      lse = lse:narrow(-1, a.at + 1, a.size):contiguous(),
    }
  end
  local function gradients(segments, keys, values, dk, dv)
    each_pair(c, segments, function(i, a, b)
      local own = of_queries[i]
      local of_q, of_k, of_v, of_mask, of_slopes =
        c.part_backward(rows(q, a), rows(keys, b), rows(values, b), a, b, own.out, own.lse, own.dout)
      add(dq, a, of_q)
      add(dk, b, of_k)
      add(dv, b, of_v)
      if dmask and of_mask then c.mask_of(dmask, a, b):add_(of_mask) end
      if dslopes then dslopes:add_(of_slopes) end
    end)
  end
  local dpast = {}
  if c.past then
    dpast = { core.zeros(c.past.k.shape), core.zeros(c.past.v.shape) }
    gradients({ c.past }, c.past.k, c.past.v, dpast[1], dpast[2])
  end
  local sums, arrived -- of the gradients of the keys and values that are here, from the ranks before
  rotate(c, k, v, function(source, keys, values, step)
    sums = { core.zeros(keys.shape), core.zeros(values.shape) }
    gradients(c.keys(source), keys, values, sums[1], sums[2])
    for i, x in ipairs(arrived and arrived() or {}) do sums[i]:add_(x) end
    if link.size > 1 then arrived = pass_on(link, sums, c.count(source_of(link, step + 1)), 2) end
  end)
  if arrived then sums = arrived() end
  return dq, sums[1], sums[2], dmask, dslopes, dpast[1], dpast[2]
end

return ring
