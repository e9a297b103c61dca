-- For specs: one row of one head of nn.MultiHeadAttention by plain loops over doubles.
-- Shapes: n queries, s keys, d head_dim, e features.
local naive = {}

local function rows_of(linear, x, first, count)
  local weight, bias, y = linear.weight:float():tolist(), linear.bias and linear.bias:tolist(), {}
  for i, token in ipairs(x) do
    y[i] = {}
    for r = 1, count do
      local sum = bias and bias[first + r] or 0
      for c = 1, #token do sum = sum + weight[first + r][c] * token[c] end
      y[i][r] = sum
    end
  end
  return y
end

local function normed(norm, row)
  local weight, squares = norm.weight:tolist(), 0
  for _, each in ipairs(row) do squares = squares + each * each end
  local scale = 1 / math.sqrt(squares / #row + norm.eps)
  for c = 1, #row do row[c] = row[c] * scale * weight[c] end
end

local function turned(row, position)
  local half = #row / 2
  for i = 1, half do
    local angle = (position - 1) / 10000 ^ (2 * (i - 1) / #row)
    local a, b = row[i], row[i + half]
    row[i], row[i + half] = a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)
  end
end

local function prepared(m, rows, norm)
  for position, row in ipairs(rows) do
    if m.qk_norm then normed(norm, row) end
    if m.rope then turned(row, position) end
  end
  return rows
end

-- The row of query i, in head h: lists dot, scaled, capped, biased, weight, value by key; row_max, row_sum.
-- x, key, value: [n][e] of one batch item; hidden(j): whether key j is hidden; bias(j): what a mask adds;
-- at: the position of the query among the keys, for alibi.
function naive.row(m, x, key, value, h, i, at, hidden, bias)
  local d, kv = m.head_dim, math.ceil(h * m.num_kv_heads / m.num_heads)
  local q = prepared(m, rows_of(m.W_query, x, (h - 1) * d, d), m.qk_norm and m.q_norm)[i]
  local k = prepared(m, rows_of(m.W_key, key, (kv - 1) * d, d), m.qk_norm and m.k_norm)
  local row = { dot = {}, scaled = {}, capped = {}, biased = {}, weight = {}, row_max = -math.huge, row_sum = 0 }
  row.value = rows_of(m.W_value, value, (kv - 1) * d, d)
  for j = 1, #k do
    local dot = 0
    for c = 1, d do dot = dot + q[c] * k[j][c] end
    local scaled = dot * m.scale
    local capped = scaled
    if m.softcap and m.softcap > 0 then
      local e = math.exp(2 * scaled / m.softcap)
      capped = m.softcap * (e - 1) / (e + 1)
    end
    row.dot[j], row.scaled[j], row.capped[j] = dot, scaled, capped
    row.biased[j] = capped + bias(j) - (m.alibi and 2 ^ (-8 * h / m.num_heads) * math.abs(at - j) or 0)
    if not hidden(j) then row.row_max = math.max(row.row_max, row.biased[j]) end
  end
  local sink = m.sinks and m.sinks:tolist()[h]
  if sink and row.row_max > -math.huge then
    row.row_max = math.max(row.row_max, sink)
    row.row_sum = math.exp(sink - row.row_max)
  end
  for j = 1, #k do
    if not hidden(j) then row.row_sum = row.row_sum + math.exp(row.biased[j] - row.row_max) end
  end
  for j = 1, #k do
    row.weight[j] = hidden(j) and 0 or math.exp(row.biased[j] - row.row_max) / row.row_sum
  end
  return row
end

return naive
