--- The options of a forward pass by name, from the values that core.modules.read_forward and read_steps return: another
--- one first, then these in order.

local NAMES = {
  "attn_mask", "key_padding_mask", "need_weights", "generator", "kv_lengths", "key", "value", "cache", "need_lse",
  "lengths", "key_lengths",
}

return function(values)
  local options = {}
  for i, name in ipairs(NAMES) do options[name] = values[i + 1] end
  return options
end
