--- The options of attention in context_parallel: that they are valid, and those that all ranks must give alike.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

local M = {}

--- Calls f as if context_parallel were not there.
local function outside(f, ...)
  local elsewhere = primitives.redirected()
  primitives.redirect(nil)
  local ok, problem = pcall(f, ...)
  primitives.redirect(elsewhere)
  if not ok then error(problem, 0) end
end

--- Raises for options of scaled_dot_product_attention that are wrong in one process, too: the function itself checks
--- them, for no queries and no keys. Lengths and masks are those of all tokens, and checked in new_call.
function M.check(name, q, k, v, o)
  local none = {}
  for i, x in ipairs { q or false, k or false, v or false } do
    local which = ({ "q", "k", "v" })[i]
    E.check_tensor(x or nil, name, which)
    if x.ndim < 2 then E.reject(name, which, x, "[..., tokens, size]") end
    none[i] = x:detach():narrow(-2, 1, 0)
  end
  local lengths = o.kv_lengths and core.zeros(o.kv_lengths.shape, { dtype = "int64" })
  outside(none[1].scaled_dot_product_attention, none[1], none[2], none[3], {
    is_causal = o.is_causal, scale = o.scale, enable_gqa = o.enable_gqa, window = o.window, softcap = o.softcap,
    sinks = o.sinks, alibi_slopes = o.alibi_slopes, past_key = o.past_key, past_value = o.past_value,
    kv_lengths = lengths, generator = o.generator, need_lse = o.need_lse,
  })
end

--- Raises for masks and generators of the wrong kind.
function M.check_kinds(name, o)
  local mask = o.attn_mask
  if mask ~= nil and not primitives.is_mask(mask) then
    if not E.is_tensor(mask) then E.reject(name, "attn_mask", mask, "a tensor or a heed.Mask") end
    if mask.dtype ~= "bool" and mask.dtype ~= "float32" then
      E.fail("%s: attn_mask is %s; it must be bool (true is visible) or float32 (added)", name, mask.dtype)
    end
  end
  if o.generator ~= nil and not E.is_generator(o.generator) then
    E.reject(name, "generator", o.generator, "a heed.Generator")
  end
end

--- The settings that the ranks compare, {name, value}: of a module or of options.
function M.settings(o)
  local window = o.window or {}
  return {
    { "is_causal", o.causal or o.is_causal or false }, { "the window's left", window.left }, { "softcap", o.softcap },
    { "the window's right", window.right }, { "scale", o.scale }, { "dropout", o.dropout_p },
    { "the length of cache", o.length },
  }
end

return M
