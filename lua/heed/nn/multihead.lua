--- nn.MultiheadAttention: PyTorch's module, with its parameters and its masks, in which true hides a key. (heed's own
--- nn.MultiHeadAttention is written in C.) Shapes: b batch, l queries, s keys, e embed_dim, h heads, d = e / h. With
--- lengths, query [total, e] has the tokens of several sequences, and b is 1.

local core = require "heed.core"
local E = require "heed.nn.entries"
local init = require "heed.nn.initializers"
local Module = require "heed.nn.module"
local points = require "heed.nn.points"
local repr = require "heed.nn.repr"
local noted, options, Parameter = core.modules.noted, core.modules.options, core.nn.Parameter

local MultiheadAttention = Module.class "MultiheadAttention"

-- ---- Making one ---------------------------------------------------------------------------------

local NAMES = {
  "embed_dim", "num_heads", "dropout", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim", "batch_first",
}

local function parameter(...) return Parameter(core.empty(...)) end

function MultiheadAttention:init(...)
  E.check_self(self, "init")
  local class = "MultiheadAttention"
  local e, heads, dropout, bias, bias_kv, zero_attn, kdim, vdim, batch_first = options(class, NAMES, 1, ...)
  e, heads = E.size(e, nil, class, "embed_dim"), E.size(heads, nil, class, "num_heads")
  if e % heads ~= 0 then
    E.fail("%s: embed_dim is %d and num_heads is %d; embed_dim must be a multiple of num_heads", class, e, heads)
  end
  dropout = E.number(dropout, 0, class, "dropout", E.is_probability, E.PROBABILITY)
  bias = E.boolean(bias, true, class, "bias")
  bias_kv = E.boolean(bias_kv, false, class, "add_bias_kv")
  zero_attn = E.boolean(zero_attn, false, class, "add_zero_attn")
  kdim, vdim = E.size(kdim, e, class, "kdim"), E.size(vdim, e, class, "vdim")
  batch_first = E.boolean(batch_first, false, class, "batch_first")

  self.embed_dim, self.kdim, self.vdim = e, kdim, vdim
  self.num_heads, self.head_dim, self.dropout = heads, math.floor(e / heads), dropout
  self.batch_first, self.add_zero_attn = batch_first, zero_attn
  if kdim == e and vdim == e then
    self.in_proj_weight = parameter(3 * e, e)
  else
    self.q_proj_weight = parameter(e, e)
    self.k_proj_weight = parameter(e, kdim)
    self.v_proj_weight = parameter(e, vdim)
  end
  if bias then self.in_proj_bias = Parameter(core.zeros(3 * e)) end
  self.out_proj = core.nn.Linear(e, e, bias)
  if bias_kv then
    self.bias_k = parameter(1, 1, e)
    self.bias_v = parameter(1, 1, e)
  end

  for _, name in ipairs { "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight" } do
    if self[name] then init.xavier_uniform_(self[name]) end
  end
  if bias and not core.modules.placeholder(self.out_proj.bias) then init.zeros_(self.out_proj.bias) end
  if bias_kv then
    init.xavier_normal_(self.bias_k)
    init.xavier_normal_(self.bias_v)
  end
end

-- ---- Text ---------------------------------------------------------------------------------------

local plain_text = repr.method(function() return false end)

--- As PyTorch prints it, where the class of out_proj has another name.
function MultiheadAttention:__tostring()
  return (plain_text(self):gsub("%(out_proj%): Linear%(", "(out_proj): NonDynamicallyQuantizableLinear("))
end

-- ---- Masks --------------------------------------------------------------------------------------

local function fail_shape(name, tensor, needed, ...)
  E.reject("MultiheadAttention", name, tensor, needed, ...)
end

local function check_mask(mask, name)
  E.check_tensor(mask, "MultiheadAttention", name)
  if mask.dtype ~= "bool" and mask.dtype ~= "float32" then
    E.reject("MultiheadAttention", name, mask, "bool, true where a key is hidden, or float32, added to the scores")
  end
end

--- attn_mask, [l, s] or [b · h, l, s], so that it broadcasts to [b, h, l, s].
local function read_attn_mask(mask, b, h, l, s)
  check_mask(mask, "attn_mask")
  local shape = mask.shape
  if mask.ndim == 2 and shape[1] == l and shape[2] == s then return mask end
  if mask.ndim == 3 and shape[1] == b * h and shape[2] == l and shape[3] == s then
    return mask:reshape(b, h, l, s)
  end
  fail_shape("attn_mask", mask, "[%d, %d] (queries, keys) or [%d, %d, %d] (batch · heads, queries, keys)", l, s, b * h,
    l, s)
end

--- key_padding_mask, [b, s], or [s] without a batch, as [b, 1, 1, s].
local function read_padding(mask, batched, b, s)
  check_mask(mask, "key_padding_mask")
  local shape = mask.shape
  if batched and mask.ndim == 2 and shape[1] == b and shape[2] == s or not batched and mask.ndim == 1 and
    shape[1] == s then
    return mask:reshape(b, 1, 1, s)
  end
  if batched then fail_shape("key_padding_mask", mask, "[%d, %d] (batch, keys)", b, s) end
  fail_shape("key_padding_mask", mask, "[%d] (keys)", s)
end

local function as_bias(mask)
  if mask.dtype ~= "bool" then return mask end
  return core.zeros(mask.shape):masked_fill(mask, -math.huge)
end

--- The lengths of packed sequences, int64, checked for x [total, e].
local function read_lengths(lengths, name, x, of)
  lengths = core.modules.indices(lengths, "MultiheadAttention", name)
  if lengths.ndim ~= 1 then fail_shape(name, lengths, "a list or a tensor [b], the length of each sequence") end
  local total = 0
  for i, length in ipairs(lengths:tolist()) do
    if length < 0 then
      E.fail("MultiheadAttention: element %d of %s is %d; it must be at least 0", i, name, length)
    end
    total = total + length
  end
  if total == x.shape[1] then return lengths end
  E.fail("MultiheadAttention: %s add up to %d; they must add up to %d, the tokens of %s", name, total, x.shape[1], of)
end

--- Raises if something is given that packed sequences exclude.
local function check_packed(self, lengths, batched, excluded)
  local class = "MultiheadAttention"
  if lengths == nil then E.fail("%s: key_lengths are given without lengths; give both", class) end
  if batched then
    E.fail("%s: lengths are given and query has a batch; it must be [total, %d]", class, self.embed_dim)
  end
  for name, value in pairs(excluded) do
    if value then E.fail("%s: lengths and %s are both given; packed sequences do not have it", class, name) end
  end
  if self.bias_k or self.add_zero_attn then
    E.fail("%s: lengths are given; the module must have neither add_bias_kv nor add_zero_attn", class)
  end
end

--- The attention of packed sequences: q, k, v and the result are [1, h, n, d].
local function attend_packed(q, k, v, given)
  local function rows(x) return x:squeeze(1):transpose(1, 2) end -- [n, h, d]
  return rows(q):varlen_attention(rows(k), rows(v), given):transpose(1, 2):unsqueeze(1)
end

--- One mask of both, either of which may be nil: bool if both are.
local function joined(a, b)
  if not (a and b) then return a or b end
  if a.dtype == "bool" and b.dtype == "bool" then return a:logical_or(b) end
  return as_bias(a) + as_bias(b)
end

--- The mask with `count` more keys, which all queries see.
local function widened(mask, count)
  if not mask or count == 0 then return mask end
  local shape = {}
  for i = 1, mask.ndim do shape[i] = mask.shape[i] end
  shape[mask.ndim] = count
  return core.cat({ mask, core.zeros(shape, { dtype = mask.dtype }) }, -1)
end

-- ---- Forward ------------------------------------------------------------------------------------

--- query, key and value as [b, n, …].
local function check_inputs(self, query, key, value)
  local class = "MultiheadAttention"
  E.check_tensor(query, class, "query")
  if key == nil then E.reject(class, "key", key, "a tensor; for self-attention, write m(x, x, x)") end
  if value == nil then E.reject(class, "value", value, "a tensor; for self-attention, write m(x, x, x)") end
  local batched = query.ndim == 3
  if not batched and query.ndim ~= 2 then
    fail_shape("query", query, self.batch_first and "[b, l, %d] or [l, %d]" or "[l, b, %d] or [l, %d]", self.embed_dim,
      self.embed_dim)
  end
  local function check_size(name, tensor, size)
    E.check_operand(tensor, class, name, query.ndim)
    if tensor.shape[tensor.ndim] ~= size then fail_shape(name, tensor, "a tensor whose last size is %d", size) end
  end
  check_size("query", query, self.embed_dim)
  check_size("key", key, self.kdim)
  check_size("value", value, self.vdim)
  local function batch_first(x)
    if not batched then return x:unsqueeze(1) end
    return self.batch_first and x or x:transpose(1, 2)
  end
  local q, k, v = batch_first(query), batch_first(key), batch_first(value)
  if k.shape[1] ~= q.shape[1] then fail_shape("key", key, "of the batch of query, %d", q.shape[1]) end
  if v.shape[1] ~= k.shape[1] or v.shape[2] ~= k.shape[2] then
    fail_shape("value", value, "of as many items and tokens as key, %d and %d", k.shape[1], k.shape[2])
  end
  return batched, q, k, v
end

--- The projections of query, key and value.
local function project(self, q, k, v)
  local e, bias, packed = self.embed_dim, self.in_proj_bias, self.in_proj_weight
  local function part(i, x, weight)
    weight = weight or packed:narrow(1, (i - 1) * e + 1, e)
    return x:linear(weight, bias and bias:narrow(1, (i - 1) * e + 1, e))
  end
  return part(1, q, self.q_proj_weight), part(2, k, self.k_proj_weight), part(3, v, self.v_proj_weight)
end

--- The scores [b, h, l, s], for a mask as of `joined` or nil, and their weights. A query that sees no key has zeros.
--- (The fused attention would give them, too, together with the scores of each step, which takes much longer.)
local function score(q, k, hidden)
  local scores = (q * math.sqrt(1 / q.shape[4])):matmul(k:transpose(3, 4))
  if not hidden then return scores end
  return hidden.dtype == "bool" and scores:masked_fill(hidden, -math.huge) or scores + hidden
end

local function weigh(scores)
  local unseen = (scores:max(-1, true)):eq(-math.huge)
  return scores:softmax(-1):masked_fill(unseen, 0)
end

local function take_weights(listeners)
  local names = listeners.read .. listeners.edited
  return names:find "attn_scores" or names:find "pattern"
end

--- The weights that listeners changed, or nil, for masks as of `joined`. (heed.nn.points)
local function changed_weights(self, listeners, q, k, hidden, batched)
  if not take_weights(listeners) then return nil end
  local scores = score(q, k, hidden)
  local changed = points.call(self, "attn_scores", scores, listeners, 0, batched)
  local weights = weigh(changed or scores)
  local pattern = points.call(self, "pattern", weights, listeners, 0, batched)
  return pattern or changed and weights
end

local FORWARD = {
  "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal", "lengths", "key_lengths",
}

--- Returns y, and the weights unless need_weights is false. With lengths there are none, and attn_mask broadcasts to
--- [h, total, s], where s is the largest length of the keys.
function MultiheadAttention:forward(query, key, value, ...)
  E.check_self(self, "forward")
  local class = "MultiheadAttention"
  local padding, need_weights, attn_mask, average, is_causal, lengths, key_lengths =
    options(class, FORWARD, 5, self, query, key, value, ...)
  local is_packed = lengths ~= nil or key_lengths ~= nil
  need_weights = E.boolean(need_weights, not is_packed, class, "need_weights")
  average = E.boolean(average, true, class, "average_attn_weights")
  is_causal = E.boolean(is_causal, false, class, "is_causal")
  local batched, q, k, v = check_inputs(self, query, key, value)
  if is_packed then
    check_packed(self, lengths, batched, { key_padding_mask = padding ~= nil, need_weights = need_weights })
    lengths = read_lengths(lengths, "lengths", query, "query")
    key_lengths = key_lengths == nil and read_lengths(lengths, "lengths", key, "key")
      or read_lengths(key_lengths, "key_lengths", key, "key")
  end
  local b, l, s, h, e = q.shape[1], q.shape[2], k.shape[2], self.num_heads, self.embed_dim
  if padding ~= nil then padding = read_padding(padding, batched, b, s) end
  local listeners = points.listeners(self)
  local shown -- a heed.Mask, which shows keys; where others are combined with it, a mask that hides them
  if core.modules.is_mask(attn_mask) then
    if not is_packed and (padding or need_weights or listeners or self.bias_k or self.add_zero_attn) then
      attn_mask = attn_mask:dense(l, s):logical_not()
    else
      shown, attn_mask = attn_mask, nil
    end
    is_causal = false
  elseif attn_mask ~= nil and is_packed then
    check_mask(attn_mask, "attn_mask")
    is_causal = false
  elseif attn_mask ~= nil then
    attn_mask = read_attn_mask(attn_mask, b, h, l, s) -- is_causal then is only a hint
    is_causal = false
  end

  q, k, v = project(self, q, k, v)
  local function at(name, x) -- x [b, n, e]
    if not listeners then return x end
    local changed = points.call(self, name, x:view(b, x.shape[2], h, self.head_dim), listeners, 0, batched)
    return changed and changed:reshape(x.shape) or x
  end
  q, k, v = at("q", q), at("k", k), at("v", v)
  local added = 0 -- keys that are not tokens
  if self.bias_k then
    k, v = core.cat({ k, self.bias_k:expand(b, 1, e) }, 2), core.cat({ v, self.bias_v:expand(b, 1, e) }, 2)
    added = added + 1
  end
  if self.add_zero_attn then
    local zero = core.zeros(b, 1, e)
    k, v = core.cat({ k, zero }, 2), core.cat({ v, zero }, 2)
    added = added + 1
  end
  local function heads(x) return x:view(b, x.shape[2], h, self.head_dim):transpose(2, 3) end
  q, k, v = heads(q), heads(k), heads(v)

  local p = self.training and self.dropout or 0
  if is_causal and (padding or added > 0 or need_weights) then
    attn_mask, is_causal = core.ones({ l, s }, { dtype = "bool" }):triu(1), false
  end
  local hidden = widened(joined(attn_mask, padding), added)
  if is_packed and listeners and take_weights(listeners) then
    E.fail("%s: lengths are given and hooks take the scores or weights; call the module for each sequence", class)
  end
  local causal = is_causal and listeners and not is_packed and core.ones({ l, s }, { dtype = "bool" }):triu(1) or hidden
  local changed = listeners and not is_packed and changed_weights(self, listeners, q, k, causal, batched)
  local weights = changed or need_weights and weigh(score(q, k, hidden)) or nil
  local y
  if changed then
    weights = p > 0 and weights:dropout(p) or weights
    y = weights:matmul(v)
    if not need_weights then weights = nil end
  elseif weights and p > 0 then
    weights = weights:dropout(p)
    y = weights:matmul(v)
  else
    local given = {
      attn_mask = shown or hidden and (hidden.dtype == "bool" and hidden:logical_not() or hidden), dropout_p = p,
      is_causal = is_causal, lengths = lengths, key_lengths = key_lengths,
    }
    y = is_packed and attend_packed(q, k, v, given) or q:scaled_dot_product_attention(k, v, given)
  end

  local result
  if listeners then
    local z = y:transpose(2, 3)
    z = points.call(self, "z", z, listeners, 0, batched) or z
    result = points.call(self, "result", z, listeners, 0, batched)
    y = z:transpose(2, 3)
  end
  -- PyTorch's layout: a dropout of y draws in memory order
  y = result and result:transpose(1, 2) or (self.out_proj(y:permute(3, 1, 2, 4):reshape(l, b, e)))
  if weights and average then weights = weights:mean(2) end
  if not listeners then y = noted("ViewBackward0", nil, y) end
  if not batched then return y:squeeze(2), weights and weights:squeeze(1) end
  return self.batch_first and y:transpose(1, 2) or y, weights
end

for name, method in pairs(require "heed.nn.surgery") do MultiheadAttention[name] = method end

return E.with_frames(MultiheadAttention, "forward")
