--- The forward pass of an attention module with parts in Lua, watched parts or listeners, while gradients are recorded:
--- composed of operations, each of which is recorded. (Without such parts: src/nn/attention/recorded.c.)
--- Shapes: b batch, h heads, n queries, s keys, d head_dim; everything has a batch until the end.

local stages = require "heed.nn.attention_stages"
local core = require "heed.core"
local dense_mask = require "heed.nn.dense_mask"
local E = require "heed.nn.entries"
local forward_options = require "heed.nn.forward_options"
local part, primitives = stages.part, core.modules

local function is_own_dropout(dropout) return dropout ~= nil and E.class_name(dropout) ~= "Dropout" end

local function check_projection(m, name, y, x, size)
  if primitives.kind(y) == "tensor" and y.ndim == x.ndim and y.dtype == "float32" and y.shape[y.ndim] == size then
    return y
  end
  E.reject(E.class_name(m), ("the result of %s (%s)"):format(name, E.class_name(part(m, name))), y,
    "float32 of the shape of its input, with a last size of %d", size)
end

--- The visible keys, bool [b or 1, h or 1, n or 1, s], or nil for all; the float mask that is added, or nil; and how
--- far each key is from its query. A mask that is shorter than the keys hides the others.
local function masks(c, q, k, options)
  local n, s = q.shape[3], k.shape[3]
  local visible, added
  local function hide(hidden)
    local seen = hidden:logical_not()
    visible = visible and visible:logical_and(seen) or seen
  end
  local row, column = core.range(1, n):view(n, 1), core.range(1, s):view(1, s)
  local offset = 0
  if options.kv_lengths ~= nil then
    local lengths = options.kv_lengths
    if primitives.kind(lengths) ~= "tensor" then lengths = core.tensor(lengths) end
    lengths = lengths:float():view(-1, 1, 1, 1)
    hide(column:view(1, 1, 1, s):gt(lengths))
    if options.key then offset = lengths - n end
  end
  local distance = column - row - offset -- of a key behind its query
  if c.causal then hide(distance:gt(0)) end
  local window = c.window
  if window and window.left then hide(distance:lt(-window.left)) end
  if window and window.right then hide(distance:gt(window.right)) end
  if options.key_padding_mask ~= nil then
    local padding = options.key_padding_mask
    hide(padding:view(padding.ndim == 2 and padding.shape[1] or 1, 1, 1, padding.shape[padding.ndim]))
  end
  local mask = options.attn_mask
  if dense_mask.is_value(mask) then
    mask = dense_mask.dense(mask, n, s, 0, options.key and options.kv_lengths or nil)
  end
  if mask ~= nil then
    if c.one_head and mask.ndim == 3 then mask = mask:unsqueeze(2) end
    local given = mask.ndim > 0 and mask.shape[mask.ndim] or 1
    if given ~= 1 and given < s then -- the other keys are hidden
      local hidden = mask.dtype ~= "bool" and -math.huge or false
      mask = mask:pad({ 0, s - given }, "constant", hidden)
    end
    if mask.dtype == "bool" then hide(mask:logical_not()) else added = mask end
  end
  while visible and visible.ndim < 4 do visible = visible:unsqueeze(1) end
  return visible, added, distance
end

--- The products of queries and keys, and the masked scores before softmax, both [b, h, n, s], hidden keys -inf.
local function scores_of(c, q, k, visible, added, distance)
  if c.heads > c.kv_heads then k = k:repeat_interleave(math.floor(c.heads / c.kv_heads), 2) end
  local products = q:matmul(k:transpose(3, 4))
  local scores = products * c.scale
  if c.softcap then scores = (scores / c.softcap):tanh() * c.softcap end
  if c.alibi then scores = scores - core.alibi_slopes(c.heads):view(-1, 1, 1) * distance:abs() end
  if added then
    scores = scores + added
    products = products:masked_fill(added:eq(-math.huge), -math.huge)
  end
  if visible then
    local hidden = visible:logical_not()
    products, scores = products:masked_fill(hidden, -math.huge), scores:masked_fill(hidden, -math.huge)
  end
  return products, scores
end

--- The scores with the sink of each head as one more key, if there are sinks.
local function with_sinks(c, scores)
  if not c.sinks then return scores end
  local sink = c.sinks:view(1, -1, 1, 1):expand { scores.shape[1], scores.shape[2], scores.shape[3], 1 }
  return core.cat({ scores, sink }, -1)
end

--- The rows [b, h, n, 1] without a visible key. A sink alone is no key.
local function empty_rows(scores)
  if scores.shape[4] == 0 then return core.zeros(scores.shape[1], scores.shape[2], scores.shape[3], 1):eq(0) end
  return scores:amax(-1, true):eq(-math.huge)
end

--- softmax with an optional sink; rows without visible keys give zeros.
local function weights_of(c, scores)
  if scores.shape[4] == 0 then return scores end
  local none = empty_rows(scores)
  if not c.sinks then scores = scores:masked_fill(none, 0) end
  return with_sinks(c, scores):softmax(-1):narrow(-1, 1, scores.shape[4]):masked_fill(none, 0)
end

--- Zeros in keys or values [b, g, s, d] which no query sees, since 0 · nan is nan.
local function without_unseen(c, t, visible)
  if not visible or t:numel() == 0 then return t end
  local unseen = visible:any(3):logical_not() -- [b or 1, h or 1, s]
  local heads = unseen.shape[2]
  if heads > 1 and heads > c.kv_heads then -- a key of a group is unseen if no head of the group sees it
    unseen = unseen:view(unseen.shape[1], c.kv_heads, math.floor(heads / c.kv_heads), unseen.shape[3]):all(3)
  end
  return t:masked_fill(unseen:unsqueeze(4), 0)
end

-- ---- Intermediate results -----------------------------------------------------------------------

local NAMES = { "scores", "weights", "dropped_weights", "queries", "keys", "values", "lse" }
local OF_ROWS = { scores = true, weights = true, dropped_weights = true } -- [b, h, n, s]

--- The names that need_weights and need_lse ask for, as a set.
local function names_of(options)
  local wanted, names = options.need_weights, {}
  for _, name in ipairs(type(wanted) == "table" and #wanted > 0 and wanted or wanted and NAMES or {}) do
    names[name] = true
  end
  if type(wanted) ~= "table" or #wanted == 0 then names.lse = nil end
  if options.need_lse then names.lse = true end
  return names
end

--- The heads (a list) and queries (first and last) of t [b, h, n, s] that need_weights chooses.
local function rows_of(t, wanted)
  if type(wanted) ~= "table" then return t end
  local function from_first(i, size) return i < 0 and size + 1 + i or i end
  if wanted.heads then
    local list = {}
    for i, head in ipairs(wanted.heads) do list[i] = from_first(head, t.shape[2]) end
    t = t:index_select(2, core.tensor(list, { dtype = "int64" }))
  end
  if wanted.queries then
    local n = t.shape[3]
    local first, last = from_first(wanted.queries[1], n), from_first(wanted.queries[2], n)
    t = t:narrow(3, first, last - first + 1)
  end
  return t
end

return function(m, ...)
  local given = { primitives.read_forward(m, ...) } -- copies, which no listener can release
  local x, options = given[1], forward_options(given)
  local name = E.class_name(m)
  if options.lengths ~= nil then
    E.fail("%s: lengths are given while gradients are recorded and modules or hooks in Lua take part; call it under " ..
      "no_grad, or for each sequence", name)
  end
  if options.cache ~= nil then
    E.fail("%s: cache is given while gradients are recorded, and a cache keeps none; call it under no_grad", name)
  end
  local batched = x.ndim == 3
  local along = name == "CausalAttention" and m.softmax_dim or -1
  if along ~= -1 and along ~= x.ndim then
    E.fail("%s: softmax_dim is %d; with hooks or parts in Lua it must be that of the keys, -1 or %d", name, along,
      x.ndim)
  end
  local listeners = stages.listeners(m, batched)

  local from = { x, options.key or x, options.value or options.key or x }
  local c = stages.settings(m)
  local made = stages.projections(m, c, from, batched, listeners, function(which, input, size)
    return check_projection(m, which, part(m, which)(input), input, size)
  end, function(_, y) return core.rope(y, c.rope) end)
  local q, k, v = made[1], made[2], made[3]
  local visible, added, distance = masks(c, q, k, options)
  local products, scores = scores_of(c, q, without_unseen(c, k, visible), visible, added, distance)
  scores = listeners.at("attn_scores", scores)
  local weights = listeners.at("pattern", weights_of(c, scores))
  local dropout, dropped = part(m, "dropout"), weights
  if is_own_dropout(dropout) then
    dropped = dropout(weights)
  elseif dropout and dropout.training and dropout.p > 0 then
    dropped = weights:dropout(dropout.p, { generator = options.generator })
  end
  v = without_unseen(c, v, visible)
  if c.heads > c.kv_heads then v = v:repeat_interleave(math.floor(c.heads / c.kv_heads), 2) end
  local y = stages.result(m, c, dropped:matmul(v), batched, listeners)
  if not options.need_weights and not options.need_lse then return y end
  local names, taps = names_of(options), {}
  local all = {
    scores = products, weights = weights, dropped_weights = dropped ~= weights and dropped or nil,
    queries = q, keys = k, values = made[3],
  }
  if names.lse then
    all.lse = with_sinks(c, scores):logsumexp(-1):masked_fill(empty_rows(scores):squeeze(4), -math.huge)
  end
  for which, t in pairs(all) do
    if OF_ROWS[which] then t = rows_of(t, options.need_weights) end
    if c.one_head then t = t:squeeze(2) end
    if names[which] then taps[which] = batched and t or t:squeeze(1) end
  end
  return y, taps
end
