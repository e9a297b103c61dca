-- Errors against double precision: those of several ranks are at most twice those of one process. Matrices are lists of
-- rows; h heads, n queries and keys, d head size, e features.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local unpack = require("heed.compat").unpack
local dist, rank, size = ranks.dist, ranks.rank, ranks.size
local describe, it = ranks.describe, ranks.it

local attention = heed.scaled_dot_product_attention
local mesh = dist.init_device_mesh({ size }, { "all" })
local TABLE = os.getenv "HEED_ERRORS" -- set: prints a line for each comparison

-- ---- In doubles ---------------------------------------------------------------------------------

local function zeros(rows, columns)
  local list = {}
  for i = 1, rows do
    list[i] = {}
    for j = 1, columns do list[i][j] = 0 end
  end
  return list
end

-- a [m, k] · bᵀ for b [n, k].
local function product(a, b)
  local c = {}
  for i, x in ipairs(a) do
    c[i] = {}
    for j, y in ipairs(b) do
      local sum = 0
      for k = 1, #x do sum = sum + x[k] * y[k] end
      c[i][j] = sum
    end
  end
  return c
end

local function transposed(a)
  local b = zeros(#a[1], #a)
  for i, row in ipairs(a) do
    for j, value in ipairs(row) do b[j][i] = value end
  end
  return b
end

-- The score of a scaled product, and its derivative.
local function score(o, x)
  if not o.softcap then return x, 1 end
  local e = math.exp(-2 * math.abs(x) / o.softcap)
  local tanh = (x < 0 and -1 or 1) * (1 - e) / (1 + e)
  return o.softcap * tanh, 1 - tanh * tanh
end

local function is_hidden(o, i, j)
  return o.is_causal and j > i or o.window and (j < i - o.window.left or j > i + (o.window.right or math.huge))
end

-- The probabilities of query i of head h, and the derivatives of its scores.
local function probabilities(o, h, i, products, scale)
  local weights, slopes, largest = {}, {}, o.sinks and o.sinks[h] or -math.huge
  for j, x in ipairs(products) do
    weights[j], slopes[j] = score(o, x * scale)
    weights[j] = weights[j] + (o.attn_mask and o.attn_mask[i][j] or 0)
      - (o.alibi_slopes and o.alibi_slopes[h] * math.abs(i - j) or 0)
    if is_hidden(o, i, j) then weights[j] = -math.huge end
    largest = math.max(largest, weights[j])
  end
  local sum = o.sinks and math.exp(o.sinks[h] - largest) or 0
  for j, x in ipairs(weights) do
    weights[j] = math.exp(x - largest)
    sum = sum + weights[j]
  end
  for j, x in ipairs(weights) do weights[j] = x / sum end
  return weights, slopes
end

-- The output [hq][n][d] of attention, and with dout [hq][n][d] the gradients of q, k and v.
local function exact_attention(q, k, v, o, dout)
  local out, dq, dk, dv = {}, {}, {}, {}
  local scale = 1 / math.sqrt(#q[1][1])
  for h = 1, #k do dk[h], dv[h] = zeros(#k[h], #k[h][1]), zeros(#v[h], #v[h][1]) end
  for h = 1, #q do
    local kv = math.ceil(h * #k / #q)
    local products, columns = product(q[h], k[kv]), transposed(v[kv])
    out[h], dq[h] = {}, zeros(#q[h], #q[h][1])
    for i = 1, #q[h] do
      local p, slopes = probabilities(o, h, i, products[i], scale)
      out[h][i] = product({ p }, columns)[1]
      local g = dout and dout[h][i]
      local dp, mean = g and product({ g }, v[kv])[1], g and product({ g }, { out[h][i] })[1][1]
      for j = 1, g and #p or 0 do
        local ds = p[j] * (dp[j] - mean) * slopes[j] * scale
        for c = 1, #g do
          dv[kv][j][c] = dv[kv][j][c] + p[j] * g[c]
          dq[h][i][c] = dq[h][i][c] + ds * k[kv][j][c]
          dk[kv][j][c] = dk[kv][j][c] + ds * q[h][i][c]
        end
      end
    end
  end
  return out, dq, dk, dv
end

-- ---- Comparing ----------------------------------------------------------------------------------

local function flat(x, list)
  list = list or {}
  if type(x) ~= "table" then
    list[#list + 1] = x
    return list
  end
  for _, each in ipairs(x) do flat(each, list) end
  return list
end

-- The root mean square of the differences.
local function error_of(exact, x)
  local sum, list = 0, flat(x:tolist())
  assert.are.equal(#exact, #list)
  for i, value in ipairs(list) do sum = sum + (value - exact[i]) ^ 2 end
  return math.sqrt(sum / #list)
end

-- Checks what several ranks computed, by the exact values and what one process computed.
local function compare(name, exact, whole, divided)
  exact = flat(exact)
  local one, many = error_of(exact, whole), error_of(exact, divided)
  if TABLE and rank == 1 then
    print(("%-40s %.1e %.1e %.2f"):format(name, one, many, many / one))
  end
  if many > 2 * one then
    error(("%s: the error is %.3g with %d ranks, and %.3g with one"):format(name, many, size, one), 0)
  end
end

-- ---- Attention ----------------------------------------------------------------------------------

local HQ, HKV, N, D = 4, 2, 64, 16

local OPTIONS = {
  { "no options", {} },
  { "is_causal", { is_causal = true } },
  { "a window", { is_causal = true, window = { left = 20 } } },
  { "a window to both sides", { window = { left = 9, right = 5 } } },
  { "softcap", { is_causal = true, softcap = 2 } },
  { "alibi_slopes", { is_causal = true, alibi_slopes = heed.alibi_slopes(HQ) } },
  { "sinks", { is_causal = true, sinks = heed.linspace(-1, 2, HQ) } },
  { "a float mask", { attn_mask = heed.linspace(-3, 3, N * N):view(N, N) } },
  { "large scores", { is_causal = true, factor = 10 } },
}

-- Outputs and gradients, each joined from the ranks' parts.
local function attend(inputs, o, dout, f)
  for _, x in ipairs(inputs) do
    x:requires_grad_(true)
    x.grad = nil
  end
  local out = heed.enable_grad(function()
    local y = f(o)
    ;(y * dout):sum():backward()
    return y:detach()
  end)
  return { out, inputs[1].grad, inputs[2].grad, inputs[3].grad }
end

describe("errors of context_parallel", function()
  for _, case in ipairs(OPTIONS) do
    it("are at most twice those of one process, with " .. case[1], function()
      heed.manual_seed(1)
      local q, k, v = heed.randn(1, HQ, N, D), heed.randn(1, HKV, N, D), heed.randn(1, HKV, N, D)
      local dout, given, plain = heed.randn(1, HQ, N, D), { enable_gqa = true }, {}
      q:mul_(case[2].factor or 1)
      for name, value in pairs(case[2]) do
        plain[name] = heed.is_tensor(value) and value:tolist() or value
        if name ~= "factor" then given[name] = value end
      end
      local exact = { exact_attention(q[1]:tolist(), k[1]:tolist(), v[1]:tolist(), plain, dout[1]:tolist()) }
      local inputs = { q, k, v }
      local whole = attend(inputs, given, dout, function(o) return attention(q, k, v, o) end)
      local divided = attend(inputs, given, dout, function(o)
        return dist.context_parallel(mesh, function(shard)
          return attention(shard(q, 3), shard(k, 3), shard(v, 3), o)
        end, { gather = 3 })
      end)
      for i = 2, 4 do dist.all_reduce(divided[i]) end
      for i, name in ipairs { "out", "the gradient of q", "the gradient of k", "the gradient of v" } do
        compare(case[1] .. ", " .. name, exact[i], whole[i], divided[i])
      end
    end)
  end

  it("are at most twice those of one process, with a divided cache", function()
    heed.manual_seed(2)
    local m = heed.nn.MultiHeadAttention { d_in = D, d_out = D, context_length = N, dropout = 0, num_heads = 2 }:eval()
    local x, token = heed.randn(1, N - 1, D), heed.randn(1, 1, D)
    local all = heed.cat({ x, token }, 2)
    local cache = dist.context_cache(mesh)
    dist.context_parallel(mesh, function(shard) return m(shard(x, 2), { cache = cache }) end)
    local last = dist.context_parallel(mesh, function() return m(token, { cache = cache }) end, { decode = true })
    local heads = {}
    for i, name in ipairs { "W_query", "W_key", "W_value" } do
      local rows = product(all[1]:tolist(), m[name].weight:tolist())
      heads[i] = { {}, {} }
      for t, row in ipairs(rows) do
        heads[i][1][t], heads[i][2][t] = { unpack(row, 1, D / 2) }, { unpack(row, D / 2 + 1, D) }
      end
    end
    local out = exact_attention(heads[1], heads[2], heads[3], { is_causal = true })
    local joined = flat { out[1][N], out[2][N] }
    local exact = product({ joined }, m.out_proj.weight:tolist())[1]
    for i, b in ipairs(m.out_proj.bias:tolist()) do exact[i] = exact[i] + b end
    compare("a token after a divided cache", exact, m(all)[1][N], last)
  end)
end)

-- ---- Models -------------------------------------------------------------------------------------

describe("errors of divided models", function()
  it("are at most twice those of one process, for columns and rows", function()
    heed.manual_seed(3)
    local model = heed.nn.Sequential(heed.nn.Linear(48, 96), heed.nn.ReLU(), heed.nn.Linear(96, 48))
    local x = heed.randn(32, 48)
    local hidden = product(x:tolist(), model[1].weight:tolist())
    local b1, b2 = model[1].bias:tolist(), model[3].bias:tolist()
    for _, row in ipairs(hidden) do
      for j, value in ipairs(row) do row[j] = math.max(0, value + b1[j]) end
    end
    local exact = product(hidden, model[3].weight:tolist())
    for _, row in ipairs(exact) do
      for j, value in ipairs(row) do row[j] = value + b2[j] end
    end
    local whole = model(x)
    dist.tensor_parallel(model, mesh, { ["0"] = dist.ColwiseParallel(), ["2"] = dist.RowwiseParallel() })
    compare("columns and rows", exact, whole, model(x))
  end)

  it("are at most twice those of one process, for averaged gradients", function()
    heed.manual_seed(4)
    local rows = 24
    local model, x, y = heed.nn.Linear(20, 7, false), heed.randn(rows, 20), heed.randn(rows, 7)
    local function gradient(m, from, count)
      heed.enable_grad(function()
        local difference = m(x:narrow(1, from, count)) - y:narrow(1, from, count);
        (difference * difference):mean():backward()
      end)
      return m.weight.grad
    end
    local delta, wanted = product(x:tolist(), model.weight:tolist()), y:tolist()
    for i, row in ipairs(delta) do
      for j, value in ipairs(row) do row[j] = 2 * (value - wanted[i][j]) / (rows * 7) end
    end
    local exact = product(transposed(delta), transposed(x:tolist()))
    local whole = gradient(model:clone(), 1, rows)
    local count = rows / size
    compare("averaged gradients", exact, whole, gradient(dist.data_parallel(model), (rank - 1) * count + 1, count))
  end)
end)

ranks.finish()
