--- The query, keys and values of one head, for m:explain: projected alone where the parts of the module are heed's own
--- and nothing listens, else taken from a whole forward pass, which also says what is wrong with the operands.
--- Shapes: b batch, n queries, s keys, d head_dim, e d_in.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

local operands = {}

local FLOATS = { float32 = true, bfloat16 = true, float16 = true }
local TAKEN = { attn_mask = true, key_padding_mask = true, kv_lengths = true, key = true, value = true,
  generator = true }

local function is_tensor(x, dtype)
  local kind = primitives.kind(x)
  return (kind == "tensor" or kind == "parameter") and x.dtype == dtype
end

--- Whether a mask broadcasts to these sizes.
local function fits(mask, sizes)
  if mask.ndim > #sizes then return false end
  for dim = 1, mask.ndim do
    local size, want = mask.shape[dim], sizes[#sizes - mask.ndim + dim]
    if size ~= 1 and size ~= want then return false end
  end
  return true
end

--- The part of a tensor that belongs to a batch item, [n, e]; nil unless it is float32 with that many features.
local function tokens_of(x, batched, b, features)
  if not is_tensor(x, "float32") or x.ndim ~= (batched and 3 or 2) or x.shape[x.ndim] ~= features then return nil end
  return batched and x:select(1, b) or x
end

local function are_lengths(lengths, batches, s)
  if not is_tensor(lengths, "int64") or lengths.ndim ~= 1 or lengths.shape[1] ~= batches then return false end
  for _, length in ipairs(lengths:tolist()) do
    if length < 0 or length > s then return false end
  end
  return true
end

--- Rows of a projection of x [n, e].
local function project(linear, x, first, count)
  local weight, bias = linear.weight, linear.bias
  bias = bias and bias:narrow(1, first, count)
  if FLOATS[weight.dtype] then return x:linear(weight:narrow(1, first, count), bias) end
  return x:linear_int8(weight:narrow(1, first, count), linear.weight_scale:narrow(1, first, count), bias)
end

local function norm_and_turn(m, name, x, positions)
  if m.qk_norm then x = primitives.forward(m[name], x) end
  if m.rope then x = x:rope(positions, m.rope) end
  return x
end

local PARTS = { W_query = "Linear", W_key = "Linear", W_value = "Linear", out_proj = "Linear", dropout = "Dropout",
  q_norm = "RMSNorm", k_norm = "RMSNorm" }

local function is_plain(m, forward)
  for name in pairs(forward) do
    if not TAKEN[name] then return false end
  end
  if primitives.holds_watched(m) then return false end
  for _, part in ipairs(E.parts(m)) do
    if E.record(part.value) or E.class_name(part.value) ~= PARTS[part.name] then return false end
  end
  return true
end

--- Raises for packed sequences, which would have to be found first.
function operands.refuse_packed(method, options)
  if options ~= nil and (options.lengths ~= nil or options.key_lengths ~= nil) then
    E.fail("%s: lengths are given; give the tokens of one sequence alone, as x:narrow(1, first, n)", method)
  end
end

--- The projections of head h for batch item b and query i, as {query [d], keys [s, d], values [s, d], queries = n,
--- batches = b}; nil where only a whole pass can tell. at: {batch =, head =, query =, any_mode =
--- true if dropout does not matter}; wrapper: the MultiHeadAttentionWrapper whose head m is
function operands.of_head(m, x, forward, at, wrapper)
  local class = E.class_name(m)
  local multi = class == "MultiHeadAttention"
  if E.record(m) or wrapper and primitives.holds_watched(wrapper) then return nil end
  if not is_plain(m, forward) then return nil end
  if not multi and (forward.key ~= nil or forward.value ~= nil or forward.kv_lengths ~= nil) then return nil end
  if forward.generator ~= nil then primitives.copy_generator(forward.generator, core.Generator()) end
  if class == "CausalAttention" and m.softmax_dim ~= -1 then return nil end
  if class ~= "SelfAttention" and m.training and m.dropout.p > 0 and not at.any_mode then return nil end

  local batched, from = x.ndim == 3, forward.key or x
  local of = forward.value or from
  local mine = tokens_of(x, batched, at.batch, m.d_in)
  if not mine or not is_tensor(from, "float32") or not is_tensor(of, "float32") then return nil end
  if from.ndim ~= x.ndim or of.ndim ~= x.ndim then return nil end
  local batches, n, s = batched and x.shape[1] or 1, mine.shape[1], from.shape[from.ndim - 1]
  if batched and (from.shape[1] ~= batches or of.shape[1] ~= batches) or of.shape[of.ndim - 1] ~= s then return nil end
  local theirs = tokens_of(from, batched, at.batch, multi and m.kdim or m.d_in)
  local values = tokens_of(of, batched, at.batch, multi and m.vdim or m.d_in)
  if not theirs or not values or n == 0 or s == 0 then return nil end
  if class ~= "SelfAttention" and (n > m.context_length or s > m.context_length) then return nil end

  local mask, padding, lengths = forward.attn_mask, forward.key_padding_mask, forward.kv_lengths
  if mask ~= nil then
    if not is_tensor(mask, "bool") and not is_tensor(mask, "float32") then return nil end
    local sizes = { n, s }
    if multi or wrapper then table.insert(sizes, 1, (wrapper or m).num_heads) end
    if batched then table.insert(sizes, 1, batches) end
    if not fits(mask, sizes) then return nil end
  end
  if padding ~= nil and not (is_tensor(padding, "bool") and padding.ndim == (batched and 2 or 1) and
      fits(padding, batched and { batches, s } or { s })) then
    return nil
  end
  if lengths ~= nil and not are_lengths(lengths, batches, s) then return nil end

  local d = multi and m.head_dim or m.d_out
  local h = multi and at.head or 1
  local kv = multi and math.ceil(h * m.num_kv_heads / m.num_heads) or 1
  local q = project(m.W_query, mine:narrow(1, at.query, 1), (h - 1) * d + 1, d)
  local k = project(m.W_key, theirs, (kv - 1) * d + 1, d)
  local v = project(m.W_value, values, (kv - 1) * d + 1, d)
  if multi then
    q = norm_and_turn(m, "q_norm", q, { at.query })
    k = norm_and_turn(m, "k_norm", k)
  end
  return { query = q:select(1, 1), keys = k, values = v, queries = n, batches = batches }
end

--- An intermediate result of a pass as [b, h, …, …].
local function with_all_dims(x, batched, headed)
  if not headed then x = x:unsqueeze(-3) end
  return batched and x or x:unsqueeze(1)
end
operands.with_all_dims = with_all_dims

--- The same from a forward pass on a copy of the cache and of the generator, with dropped, the row of weights after
--- dropout, and scores_of(j), the products of all queries [b, n] with key j.
function operands.of_pass(m, x, forward, at, headed, wrapper)
  local generator, cache = core.Generator(), forward.cache
  primitives.copy_generator(forward.generator, generator)
  forward.generator = generator
  local copied = cache ~= nil and primitives.kind(cache) == nil and type(cache) == "userdata"
  if copied then forward.cache = cache:clone() end
  forward.need_weights = { "queries", "keys", "values", "weights", "dropped_weights", heads = { at.head },
    queries = { at.query } }
  local _, info = m:forward(x, forward)
  if copied then forward.cache:release() end

  local batched = x.ndim == 3
  local q = with_all_dims(info.queries, batched, headed)
  local k, v = with_all_dims(info.keys, batched, headed), with_all_dims(info.values, batched, headed)
  local tapped = wrapper and 1 or at.head -- a wrapper has the chosen head only
  local kv = math.ceil(tapped * k.shape[2] / q.shape[2])
  local dropped = info.dropped_weights
  return {
    query = q:select(1, at.batch):select(1, tapped):select(1, at.query), queries = q.shape[3], batches = q.shape[1],
    keys = k:select(1, at.batch):select(1, kv), values = v:select(1, at.batch):select(1, kv),
    dropped = dropped and with_all_dims(dropped, batched, headed)[{ at.batch, 1, 1 }]:tolist(),
    scores_of = function(j)
      local key = k:select(2, kv):select(2, j)
      return (q:select(2, tapped) * key:unsqueeze(2)):sum(-1):tolist()
    end,
  }
end

return operands
