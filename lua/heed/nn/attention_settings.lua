--- What the forward passes of attention modules in Lua read from a module.

local E = require "heed.nn.entries"

local settings = {}

--- What the module's constructor made, or nil where it made none.
function settings.part(m, name)
  for _, each in ipairs(E.parts(m)) do
    if each.name == name then return each.value end
  end
end

--- The settings that all attention modules have in common, with those of MultiHeadAttention alone.
function settings.of(m)
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

return settings
