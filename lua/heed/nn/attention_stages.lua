--- What the forward passes of attention modules in Lua have in common: the settings of a module, its listeners, the
--- projections, and the result. Shapes: b batch (1 without), h heads, l tokens, d head_dim.

local E = require "heed.nn.entries"
local points = require "heed.nn.points"

local stages = {}

--- What the module's constructor made, or nil where it made none.
function stages.part(m, name)
  for _, each in ipairs(E.parts(m)) do
    if each.name == name then return each.value end
  end
end

--- The settings that all attention modules have in common, with those of MultiHeadAttention alone.
function stages.settings(m)
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

--- The listeners at the points of a module: `has`, the points with some; at(point, y), y after theirs; and
--- result(z), what those at "result" return, or nil.
function stages.listeners(m, batched)
  local list, has = points.listeners(m) or {}, {}
  for _, entry in ipairs(list) do has[entry.name] = true end
  return {
    has = has,
    at = function(point, y) return has[point] and points.call(m, point, y, list, 0, batched) or y end,
    result = function(z) return points.call(m, "result", z, list, 0, batched) end,
  }
end

--- The queries, keys and values [b, h, l, d] of three inputs, with norms and rotary positions. project(part, x, size):
--- the result of a projection; rotate(i, y): rotary positions, for queries (1) and keys (2).
function stages.projections(m, c, from, batched, listeners, project, rotate)
  local made = {}
  for i, which in ipairs { "W_query", "W_key", "W_value" } do
    local h = i == 1 and c.heads or c.kv_heads
    local y = project(which, from[i], h * c.dim)
    y = y:view(batched and y.shape[1] or 1, y.shape[y.ndim - 1], h, c.dim)
    made[i] = listeners.at(({ "q", "k", "v" })[i], y):transpose(2, 3)
    local norm = i < 3 and stages.part(m, i == 1 and "q_norm" or "k_norm")
    if norm then made[i] = norm(made[i]) end
    if i < 3 and c.rope then made[i] = rotate(i, made[i]) end
    local rotated = ({ "rot_q", "rot_k" })[i]
    if rotated and listeners.has[rotated] then
      made[i] = listeners.at(rotated, made[i]:transpose(2, 3)):transpose(2, 3)
    end
  end
  return made
end

--- The result of the module from z [b, h, l, d], the output of attention.
function stages.result(m, c, z, batched, listeners)
  z = listeners.at("z", z:transpose(2, 3))
  local y = z:reshape(z.shape[1], z.shape[2], c.heads * c.dim)
  if not batched then y = y:squeeze(1) end
  local out_proj = stages.part(m, "out_proj")
  if listeners.has.result then
    y = listeners.result(z) or (out_proj and out_proj(y) or y)
    if not batched and y.ndim == 3 then y = y:squeeze(1) end
  elseif out_proj then
    y = out_proj(y)
  end
  return y
end

return stages
