--- The forward pass of an attention module with parts in Lua, watched parts or listeners, while gradients are recorded:
--- composed of operations, each of which is recorded. (Without such parts: src/nn/attention/recorded.c.)
--- Shapes: b batch, h heads, n queries, s keys, d head_dim; everything has a batch until the end.

local core = require "heed.core"
local E = require "heed.nn.entries"
local forward_options = require "heed.nn.forward_options"
local points = require "heed.nn.points"
local primitives = core.modules

local function is_own_dropout(dropout) return dropout ~= nil and E.class_name(dropout) ~= "Dropout" end

--- What the module's constructor made, or nil where it made none.
local function part(m, name)
  for _, each in ipairs(E.parts(m)) do
    if each.name == name then return each.value end
  end
end

--- The settings that all attention modules have in common, with those of MultiHeadAttention alone.
local function settings_of(m)
  local c = { scale = m.scale }
  if E.class_name(m) ~= "MultiHeadAttention" then
    c.heads, c.kv_heads, c.dim, c.one_head = 1, 1, m.d_out, true
    c.causal = E.class_name(m) == "CausalAttention"
    return c
  end
  c.heads, c.kv_heads, c.dim, c.causal = m.num_heads, m.num_kv_heads, m.head_dim, m.causal
  c.window, c.softcap, c.alibi, c.sinks, c.rope = m.window, m.softcap, m.alibi, m.sinks, m.rope
  return c
end

local function check_projection(m, name, y, x, size)
  if primitives.kind(y) == "tensor" and y.ndim == x.ndim and y.dtype == "float32" and y.shape[y.ndim] == size then
    return y
  end
  E.reject(E.class_name(m), ("the result of %s (%s)"):format(name, E.class_name(part(m, name))), y,
    "float32 of the shape of its input, with a last size of %d", size)
end

--- The visible keys, bool [b or 1, h or 1, n or 1, s], or nil for all; and the float mask that is added, or nil.
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
  if mask ~= nil then
    if c.one_head and mask.ndim == 3 then mask = mask:unsqueeze(2) end
    if mask.dtype == "bool" then hide(mask:logical_not()) else added = mask end
  end
  return visible, added, distance
end

--- Masked scores [b, h, n, s] before softmax, hidden keys -inf.
local function scores_of(c, q, k, options)
  if c.heads > c.kv_heads then k = k:repeat_interleave(math.floor(c.heads / c.kv_heads), 2) end
  local scores = q:matmul(k:transpose(3, 4)) * c.scale
  if c.softcap then scores = (scores / c.softcap):tanh() * c.softcap end
  local visible, added, distance = masks(c, q, k, options)
  if c.alibi then scores = scores - core.alibi_slopes(c.heads):view(-1, 1, 1) * distance:abs() end
  if added then scores = scores + added end
  if visible then scores = scores:masked_fill(visible:logical_not(), -math.huge) end
  return scores
end

--- softmax with an optional sink; rows without visible keys give zeros.
local function weights_of(c, scores)
  local none = scores:amax(-1, true):eq(-math.huge)
  local weights
  if c.sinks then
    local sink = c.sinks:view(1, -1, 1, 1):expand { scores.shape[1], scores.shape[2], scores.shape[3], 1 }
    weights = core.cat({ scores, sink }, -1):softmax(-1):narrow(-1, 1, scores.shape[4])
  else
    weights = scores:masked_fill(none, 0):softmax(-1)
  end
  return weights:masked_fill(none, 0)
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
  local list = points.listeners(m) or {}
  local batched = x.ndim == 3
  local listened = {}
  for _, entry in ipairs(list) do listened[entry.name] = true end
  local function at(point, y)
    return listened[point] and points.call(m, point, y, list, 0, batched) or y
  end

  local from = { x, options.key or x, options.value or options.key or x }
  local c = settings_of(m)
  local made = {}
  for i, which in ipairs { "W_query", "W_key", "W_value" } do
    local h = i == 1 and c.heads or c.kv_heads
    local y = check_projection(m, which, part(m, which)(from[i]), from[i], h * c.dim)
    y = y:view(batched and y.shape[1] or 1, y.shape[y.ndim - 1], h, c.dim)
    made[i] = at(({ "q", "k", "v" })[i], y):transpose(2, 3)
    local norm = i < 3 and part(m, i == 1 and "q_norm" or "k_norm")
    if norm then made[i] = norm(made[i]) end
    if i < 3 and c.rope then made[i] = core.rope(made[i], c.rope) end
    local rotated = ({ "rot_q", "rot_k" })[i]
    if rotated and listened[rotated] then made[i] = at(rotated, made[i]:transpose(2, 3)):transpose(2, 3) end
  end
  local q, k, v = made[1], made[2], made[3]
  local scores = at("attn_scores", scores_of(c, q, k, options))
  local weights = at("pattern", weights_of(c, scores))
  local dropout, dropped = part(m, "dropout"), weights
  if is_own_dropout(dropout) then
    dropped = dropout(weights)
  elseif dropout and dropout.training and dropout.p > 0 then
    dropped = weights:dropout(dropout.p, { generator = options.generator })
  end
  if c.heads > c.kv_heads then v = v:repeat_interleave(math.floor(c.heads / c.kv_heads), 2) end
  local z = at("z", dropped:matmul(v):transpose(2, 3))
  local y = z:reshape(z.shape[1], z.shape[2], c.heads * c.dim)
  if not batched then y = y:squeeze(1) end
  local out_proj = part(m, "out_proj")
  if listened.result then
    y = points.call(m, "result", z, list, 0, batched) or (out_proj and out_proj(y) or y)
    if not batched and y.ndim == 3 then y = y:squeeze(1) end
  elseif out_proj then
    y = out_proj(y)
  end
  if not options.need_weights and not options.need_lse then return y end
  local all = {
    scores = scores, weights = weights, dropped_weights = dropped ~= weights and dropped or nil,
    queries = q, keys = k, values = made[3],
  }
  local taps = {}
  for which, t in pairs(all) do
    if c.one_head then t = t:squeeze(2) end
    taps[which] = batched and t or t:squeeze(1)
  end
  if options.need_lse then taps.lse = scores:logsumexp(-1) end
  return y, taps
end
