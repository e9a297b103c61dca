--- m:check(x, options): warnings about a forward pass before it runs, as a list of strings; empty where all is well.

local compat = require "heed.compat"
local dense_mask = require "heed.nn.dense_mask"
local E = require "heed.nn.entries"
local operands = require "heed.nn.operands"
local parts = require("heed.nn.explain").parts

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

local function check_float_mask(warn, mask)
  if mask.dtype ~= "float32" or mask:numel() == 0 then return end
  if mask:isnan():any():item() or mask:eq(math.huge):any():item() then
    warn("attn_mask has nan or +inf, which make weights nan; a hidden key has -inf")
  end
end

local function check_padding(warn, padding, s)
  if padding.dtype ~= "bool" or padding:numel() == 0 or padding.ndim == 0 then return end
  if padding:all(-1):any():item() then
    warn("key_padding_mask marks every key of a batch item as padding, which gives zeros; true is padding: write "
      .. "key_padding_mask:logical_not() if true means a token in yours")
    return
  end
  local everywhere = padding.ndim == 2 and padding:all(1):tolist() or padding:tolist()
  local unused = 0
  while type(everywhere) == "table" and unused < #everywhere and everywhere[#everywhere - unused] do
    unused = unused + 1
  end
  if unused > 0 and #everywhere == s then
    warn("the last %s padding in every batch item; cut x (or key and value) to %s, which gives the same and is faster",
      unused == 1 and "key is" or unused .. " keys are", E.count(s - unused, "token"))
  end
end

local function check_lengths(warn, lengths, s)
  local least, most = math.huge, -math.huge
  for _, length in ipairs(lengths) do
    if type(length) ~= "number" then return end
    least, most = math.min(least, length), math.max(most, length)
  end
  if most > s or least < 0 then
    warn("kv_lengths has %d and there are %s: the forward pass will raise an error; lengths are from 0 to %d",
      most > s and most or least, E.count(s, "key"), s)
  elseif least == 0 then
    warn("kv_lengths has 0: queries of that batch item see no key and give zeros; leave the item out")
  end
end

--- [n, b, d], PyTorch's order without batch_first, shows in the sizes of the masks.
local function check_order(warn, x, attn_mask, padding, lengths)
  if x.ndim ~= 3 or x.shape[1] == x.shape[2] then return end
  local b, n = x.shape[1], x.shape[2]
  local swapped = is_tensor(attn_mask) and attn_mask.ndim >= 2 and attn_mask.shape[attn_mask.ndim] == b
    and attn_mask.shape[attn_mask.ndim - 1] == b
  swapped = swapped or is_tensor(padding) and padding.ndim == 2 and padding.shape[1] == n and padding.shape[2] == b
  swapped = swapped or lengths ~= nil and #lengths == n and n > 1
  if swapped then
    warn("x is a batch of %d with %s, and the masks are for a batch of %d with %s; x is [batch, tokens, d_in]: "
      .. "write x:transpose(1, 2)", b, E.count(n, "token"), n, E.count(b, "token"))
  end
end

local function check_context(warn, unit, n, s)
  local most = unit.context_length
  for name, count in pairs { x = n, key = s ~= n and s or nil } do
    if type(most) == "number" and count > most then
      warn("%s has %d tokens and context_length is %d: the forward pass will raise an error; give at most %d tokens",
        name, count, most, most)
    end
  end
end

local function check_settings(warn, unit, class, n, s, given)
  if class == "CausalAttention" and unit.softmax_dim ~= -1 then
    warn("softmax_dim is %d, so the weights of a query do not add up to 1; set softmax_dim to -1 unless you compare "
      .. "with code that has this mistake", unit.softmax_dim)
  end
  if class ~= "MultiHeadAttention" then return end
  if unit.causal and is_tensor(given.key) and s ~= n and given.kv_lengths == nil then
    warn("the module is causal, and x has %s and key %d: query i sees the keys 1 to i; give kv_lengths to align the "
      .. "last ones, or make the module with causal = false", E.count(n, "token"), s)
  end
  local window = unit.window
  if window and window.left == 0 and (unit.causal or window.right == 0) then
    warn("window.left is 0, so each query sees its own key alone and attention does nothing; give a larger window")
  end
  local scaling = unit.rope and unit.rope.scaling
  if scaling and scaling.original_context_length then
    local most = scaling.original_context_length * (scaling.factor or 1)
    local past = E.kind(given.cache) == nil and type(given.cache) == "userdata" and given.cache.length or 0
    if past + n > most then
      warn("rope is scaled for %g positions (original_context_length times factor), and x reaches %d; give a larger "
        .. "factor", most, past + n)
    end
  end
end

local function equal_tokens(x)
  local dim = x.ndim - 1
  return x:numel() > 0 and x.shape[dim] > 1 and x:eq(x:narrow(dim, 1, 1)):all():item()
end

local GAP, RANGE = 30, 1e-5 -- between scores, from where softmax is one-hot or uniform

--- The rows of a few heads and queries whose softmax gives everything to one key, or the same to each.
local function check_scores(warn, self, unit, x, forward)
  local wrapper, n = unit ~= self, x.shape[x.ndim - 1]
  local heads = E.class_name(unit) == "MultiHeadAttention" and unit.num_heads or 1
  local rows, one_hot, uniform, largest = 0, 0, 0, 0
  for _, at in ipairs { { head = 1, query = n }, { head = heads, query = math.ceil(n / 2) },
    { head = math.ceil(heads / 2), query = n } } do
    at.batch, at.any_mode = 1, true
    local own = operands.of_head(unit, x, forward, at, wrapper and self or nil)
    if not own then return end
    local rules = parts.rules_of(self, unit, forward, at.head, 0, 0)
    local seen = {}
    for j, dot in ipairs(own.keys:matmul(own.query):tolist()) do
      local record = parts.record_of(rules, dot, 1, at.query, j, own.queries)
      if #record.hidden_by == 0 then seen[#seen + 1] = record.biased end
    end
    table.sort(seen, function(a, b) return a > b end)
    if #seen > 2 then
      rows = rows + 1
      if seen[1] - seen[2] > GAP then one_hot = one_hot + 1 end
      if seen[1] - seen[#seen] < RANGE then uniform = uniform + 1 end
      largest = math.max(largest, math.abs(seen[1]))
    end
  end
  local usual = 1 / math.sqrt(E.class_name(unit) == "MultiHeadAttention" and unit.head_dim or unit.d_out)
  if rows > 0 and one_hot == rows then
    warn("scores reach %.3g, so softmax gives all weight to one key; make x or the weights smaller, or m.scale, which "
      .. "is %.3g (1/√head_dim is %.3g)", largest, unit.scale, usual)
  elseif rows > 0 and uniform == rows then
    warn("scores differ by less than %.0e, so softmax gives all keys the same weight; make x or the weights larger, or "
      .. "m.scale, which is %.3g (1/√head_dim is %.3g)", RANGE, unit.scale, usual)
  end
end

--- Whether queries that are no padding see no key, though each mask alone leaves some.
local function check_blind(warn, rules, forward, x, n, s)
  local mask = forward.attn_mask
  if not is_tensor(mask) or mask.dtype ~= "bool" or not (rules.causal or rules.padding or rules.lengths) then return end
  if mask.ndim ~= 2 or mask.shape[1] ~= n or mask.shape[2] ~= s or not mask:any(-1):all():item() then return end
  parts.read_masks(rules)
  for b = 1, x.ndim == 3 and x.shape[1] or 1 do
    for i = 1, n do
      E.check_cancel "check"
      local seen = forward.key == nil and rules.padding and parts.is_padding(rules, b, i)
      for j = 1, s do
        if seen then break end
        seen = #parts.record_of(rules, 0, b, i, j, n).hidden_by == 0
      end
      if not seen then
        warn("query %d of batch item %d sees no key: attn_mask and the other rules together hide all, which gives "
          .. "zeros; write attn_mask:logical_not() if true means hidden in yours", i, b)
        return
      end
    end
  end
end

--- Warnings about m(x, options), each with the fix. The options are those of the forward pass.
function check.check(self, x, options)
  E.check_self(self, "check")
  local class = E.class_name(self)
  if not ATTENTION[class] or E.record(self) then E.reject("check", "self", self, "an attention module") end
  E.check_tensor(x, "check", "x")
  if options ~= nil and not E.is_list(options) then E.reject("check", "options", options, "a table of options") end
  operands.refuse_packed("check", options)
  local given, warnings = {}, {}
  for name, value in compat.pairs(options or {}) do given[name] = value end
  local wants_weights = given.need_weights
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
  local sound = #warnings == 0
  local unit = class == "MultiHeadAttentionWrapper" and self.heads[1] or self
  local mask, padding, lengths = given.attn_mask, given.key_padding_mask, given.kv_lengths
  if is_tensor(lengths) and lengths.ndim == 1 then lengths = lengths:tolist() end
  if not E.is_list(lengths) then lengths = nil end
  if dense_mask.is_value(mask) then
    local ok, problem = pcall(dense_mask.replace, given, x)
    if not ok then
      local message = problem:match "mask%.dense: (.*)"
      if not message then error(problem, 0) end
      warn("attn_mask is for other sizes, %s: the forward pass will raise an error", message)
    end
    mask = given.attn_mask
  end
  if is_tensor(mask) then
    check_mask(warn, mask)
    check_float_mask(warn, mask)
  end
  if x.ndim ~= 2 and x.ndim ~= 3 or x.shape[x.ndim] ~= unit.d_in then
    warn("x is %s; it must be [n, %d] or [b, n, %d], since d_in is %d: the forward pass will raise an error",
      tostring(x.shape):match "%[.*%]", unit.d_in, unit.d_in, unit.d_in)
  else
    local n, from = x.shape[x.ndim - 1], is_tensor(given.key) and given.key or x
    local s = from.ndim >= 2 and from.shape[from.ndim - 1] or 0
    local before = #warnings
    check_order(warn, x, mask, padding, lengths)
    local ordered = #warnings == before
    if is_tensor(padding) and given.cache == nil then check_padding(warn, padding, s) end
    if lengths and given.cache == nil then check_lengths(warn, lengths, s) end
    check_settings(warn, unit, E.class_name(unit), n, s, given)
    if class ~= "SelfAttention" and given.cache == nil then check_context(warn, unit, n, s) end
    if equal_tokens(x) then
      warn("all tokens of x are equal, so that weights tell positions at most; check how x was made")
    elseif #warnings == 0 and sound and ordered and given.cache == nil then
      given.need_weights, given.need_lse = nil, nil
      check_scores(warn, self, unit, x, given)
      if operands.of_head(unit, x, given, { head = 1, batch = 1, query = 1, any_mode = true }) then
        check_blind(warn, parts.rules_of(self, unit, given, 1, 0, 0), given, x, n, s)
      end
    end
  end
  if self.training and wants_weights and class ~= "SelfAttention" then
    local dropout = unit.dropout
    if not E.record(dropout) and type(dropout.p) == "number" and dropout.p > 0 then
      warn("dropout is active, so the output does not belong to the weights alone; call m:eval() first")
    end
  end
  return warnings
end

return E.with_frames(check)
