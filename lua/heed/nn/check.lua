--- m:check(x, options): warnings about a forward pass before it runs, as a list of strings; empty where all is well.

local compat = require "heed.compat"
local E = require "heed.nn.entries"

local check = {}

local ATTENTION = { SelfAttention = true, CausalAttention = true, MultiHeadAttentionWrapper = true,
  MultiHeadAttention = true }

local function is_tensor(value)
  local kind = E.kind(value)
  return kind == "tensor" or kind == "parameter"
end

--- Whether all elements are finite: nan and inf are not less than inf.
local function is_finite(x) return x:numel() == 0 or x:float():abs():lt(math.huge):all():item() end

local function check_values(warn, name, x)
  if not is_finite(x) then warn("%s has nan or inf, which reach y; find them with isnan() and isinf()", name) end
end

local function check_mask(warn, mask)
  if mask:numel() == 0 then return end
  if mask.dtype == "bool" then
    if not mask:any():item() then
      warn("attn_mask hides every key, so attention gives zeros; in heed true is visible: write "
        .. "attn_mask:logical_not() if true means hidden in yours, as in PyTorch's nn.MultiheadAttention")
    elseif mask.ndim > 0 and not mask:any(-1):all():item() then
      warn("attn_mask has rows that hide every key, which give zeros; in heed true is visible: write "
        .. "attn_mask:logical_not() if true means hidden in yours")
    end
  elseif mask.dtype == "float32" then
    local ones = mask:eq(1)
    if ones:any():item() and ones:logical_or(mask:eq(0)):all():item() then
      warn("attn_mask is float32 with only 0 and 1, which are added to the scores and hide nothing; write "
        .. "attn_mask:bool()")
    end
  end
end

local function check_padding(warn, padding)
  if padding.dtype ~= "bool" or padding:numel() == 0 or padding.ndim == 0 then return end
  if padding:all(-1):any():item() then
    warn("key_padding_mask marks every key of a batch item as padding, which gives zeros; true is padding: write "
      .. "key_padding_mask:logical_not() if true means a token in yours")
  end
end

--- Warnings about m(x, options), each with the fix. The options are those of the forward pass.
function check.check(self, x, options)
  E.check_self(self, "check")
  local class = E.class_name(self)
  if not ATTENTION[class] or E.record(self) then E.reject("check", "self", self, "an attention module") end
  E.check_tensor(x, "check", "x")
  if options ~= nil and not E.is_list(options) then E.reject("check", "options", options, "a table of options") end
  local given, warnings = {}, {}
  for name, value in compat.pairs(options or {}) do given[name] = value end
  local function warn(message, ...)
    warnings[#warnings + 1] = select("#", ...) > 0 and message:format(...) or message
  end

  check_values(warn, "x", x)
  for _, name in ipairs { "key", "value" } do
    if is_tensor(given[name]) then check_values(warn, name, given[name]) end
  end
  for name, parameter in self:named_parameters() do
    E.check_cancel "check"
    check_values(warn, name, parameter)
  end
  if is_tensor(given.attn_mask) then check_mask(warn, given.attn_mask) end
  if is_tensor(given.key_padding_mask) then check_padding(warn, given.key_padding_mask) end

  local unit = class == "MultiHeadAttentionWrapper" and self.heads[1] or self
  if class ~= "SelfAttention" and x.ndim >= 2 and given.cache == nil then
    local n, most = x.shape[x.ndim - 1], unit.context_length
    if type(most) == "number" and n > most then
      warn("x has %d tokens and context_length is %d: the forward pass will raise an error; give at most %d tokens", n,
        most, most)
    end
  end
  if self.training and given.need_weights and class ~= "SelfAttention" then
    local dropout = unit.dropout
    if not E.record(dropout) and type(dropout.p) == "number" and dropout.p > 0 then
      warn("dropout is active, so the output does not belong to the weights alone; call m:eval() first")
    end
  end
  return warnings
end

return E.with_frames(check, "check")
