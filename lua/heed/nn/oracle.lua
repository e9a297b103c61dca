--- The forward pass of an attention module by plain loops over Lua's numbers, which are doubles: what heed.nn.verify
--- compares the kernels with. Shapes: b batch, h heads, n queries, s keys, d head_dim, e features.

local E = require "heed.nn.entries"
local parts = require("heed.nn.explain").parts

local oracle = {}

local BLOCK = 64 -- elements of an int8 row that share a scale

local function dot(a, b)
  local sum = 0
  for c = 1, #a do sum = sum + a[c] * b[c] end
  return sum
end

-- ---- Parts --------------------------------------------------------------------------------------

--- The rows of a Linear's weight, as it is stored.
local function rows_of(linear)
  local weight = linear.weight
  local rows = weight:float():tolist()
  if weight.dtype ~= "int8" then return rows end
  local scales = linear.weight_scale:tolist()
  for r, row in ipairs(rows) do
    local scale = scales[r]
    for c = 1, #row do row[c] = row[c] * scale[math.floor((c - 1) / BLOCK) + 1] end
  end
  return rows
end

--- y = x Wᵀ + b of rows [n, e], as a list of rows; nil if the module is not heed's Linear.
local function linear(m, x)
  if E.record(m) or E.class_name(m) ~= "Linear" then return nil end
  local rows, bias, y = rows_of(m), m.bias and m.bias:tolist(), {}
  for i, token in ipairs(x) do
    local out = {}
    for r, row in ipairs(rows) do
      if r % 64 == 0 then E.check_cancel("verify") end
      out[r] = dot(row, token) + (bias and bias[r] or 0)
    end
    y[i] = out
  end
  return y
end

--- The elements (h - 1) d + 1 … h d of each row.
local function head_of(rows, h, d)
  local head = {}
  for i, row in ipairs(rows) do
    local part = {}
    for c = 1, d do part[c] = row[(h - 1) * d + c] end
    head[i] = part
  end
  return head
end

local function rms_norm(m, rows)
  local weight = m.weight and m.weight:tolist()
  for _, row in ipairs(rows) do
    local scale = 1 / math.sqrt(dot(row, row) / #row + m.eps)
    for c = 1, #row do row[c] = row[c] * scale * (weight and weight[c] or 1) end
  end
end

-- ---- Rotary positions ---------------------------------------------------------------------------

local function clamp(x) return math.min(math.max(x, 0), 1) end

--- The angle per position of each pair, and the factor of the result.
local function frequencies(rope, dims)
  local base, s = rope.base or 10000, rope.scaling or {}
  local factor, length = s.factor or 1, s.original_context_length
  if s.type == "ntk" then base = base * factor ^ (dims / (dims - 2)) end
  local list, magnitude = {}, 1
  for i = 1, dims / 2 do list[i] = base ^ (-2 * (i - 1) / dims) end
  if s.type == "linear" then
    for i = 1, #list do list[i] = list[i] / factor end
  elseif s.type == "yarn" then
    local function pair(turns) return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base)) end
    local first = math.max(math.floor(pair(s.beta_fast or 32)), 0)
    local last = math.min(math.ceil(pair(s.beta_slow or 1)), dims - 1)
    local span = last == first and 0.001 or last - first
    for i = 1, #list do
      local ramp = clamp((i - 1 - first) / span)
      list[i] = list[i] * (ramp / factor + 1 - ramp)
    end
    magnitude = s.attention_factor or factor > 1 and 0.1 * math.log(factor) + 1 or 1
  elseif s.type == "factors" then
    for i = 1, #list do list[i] = list[i] / s.factors[i] end
    magnitude = s.attention_factor or 1
  elseif s.type == "llama3" then
    local low, high = s.low_freq_factor or 1, s.high_freq_factor or 4
    for i = 1, #list do
      local kept = clamp((length * list[i] / (2 * math.pi) - low) / (high - low))
      list[i] = list[i] * ((1 - kept) / factor + kept)
    end
  end
  return list, magnitude
end

local function turn(rope, rows, d)
  local dims = rope.dims or d
  local list, magnitude = frequencies(rope, dims)
  for position, row in ipairs(rows) do
    for i, frequency in ipairs(list) do
      local one, two = i, i + dims / 2
      if rope.style == "interleaved" then one, two = 2 * i - 1, 2 * i end
      local angle = (position - 1) * frequency
      local cos, sin = math.cos(angle) * magnitude, math.sin(angle) * magnitude
      row[one], row[two] = row[one] * cos - row[two] * sin, row[two] * cos + row[one] * sin
    end
  end
end

-- ---- The pass -----------------------------------------------------------------------------------

--- The queries (name W_query) or keys or values of every head of one batch item: [h][n][d].
local function heads_of(m, name, x, count, d, given)
  local rows = linear(m[name], x)
  if not rows then return given end -- a part of one's own: its result is taken as it is
  local multi = E.class_name(m) == "MultiHeadAttention"
  local heads, norm = {}, name == "W_query" and "q_norm" or name == "W_key" and "k_norm"
  for h = 1, count do
    heads[h] = head_of(rows, h, d)
    if norm and multi then
      if m.qk_norm then rms_norm(m[norm], heads[h]) end
      if m.rope then turn(m.rope, heads[h], d) end
    end
  end
  return heads
end

--- Weights [n][s] and output [n][d] of one head of batch item b.
local function attend(rules, b, q, k, v, d)
  local weights, z = {}, {}
  for i, query in ipairs(q) do
    E.check_cancel("verify")
    local records, out = {}, {}
    for j, key in ipairs(k) do records[j] = parts.record_of(rules, dot(query, key), b, i, j, #q) end
    parts.weigh(records, rules.sink)
    for c = 1, d do out[c] = 0 end
    local row = {}
    for j, record in ipairs(records) do
      row[j] = record.weight
      if #record.hidden_by == 0 then
        for c = 1, #out do out[c] = out[c] + record.weight * v[j][c] end
      end
    end
    weights[i], z[i] = row, out
  end
  return weights, z
end

--- The pass of `unit`, m itself or head `only` of a wrapper, on one batch item: {weights [h][n][s], z [h][n][d],
--- y [n][d_out]}; y is nil if out_proj is a module of one's own. x, key, value: [n][e]; given: {queries =, keys =,
--- values =} of parts of one's own.
function oracle.pass(m, unit, forward, only, b, x, key, value, given)
  local multi = E.class_name(unit) == "MultiHeadAttention"
  local heads, kv = multi and unit.num_heads or 1, multi and unit.num_kv_heads or 1
  local d = multi and unit.head_dim or unit.d_out
  local q = heads_of(unit, "W_query", x, heads, d, given.queries)
  local k = heads_of(unit, "W_key", key, kv, d, given.keys)
  local v = heads_of(unit, "W_value", value, kv, d, given.values)
  local result = { weights = {}, z = {} }
  for h = 1, heads do
    local rules = parts.rules_of(m, unit, forward, only or h, 0, 0)
    parts.read_masks(rules)
    local of = math.ceil(h * kv / heads)
    result.weights[h], result.z[h] = attend(rules, b, q[h], k[of], v[of], d)
  end
  local joined = {}
  for i = 1, #x do
    local row = {}
    for h = 1, heads do
      for c = 1, d do row[(h - 1) * d + c] = result.z[h][i][c] end
    end
    joined[i] = row
  end
  result.y = joined
  if multi and unit.out_proj then result.y = linear(unit.out_proj, joined) end
  return result
end

return oracle
