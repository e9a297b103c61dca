-- Measures what need_weights costs: for each case the fused forward, the forward with the weights of all heads and
-- queries, of one head, with all intermediate results, and matmul, softmax, matmul written in Lua.
--   heed scripts/bench/need_weights.lua [threads] [part of a case's name]
-- The columns are milliseconds (the minimum of some rounds, in which all take turns), then ratios: weights to Lua,
-- weights to fused, one head to fused, all results to fused.
local heed = require "heed"

local threads, only = tonumber(arg[1]) or 1, arg[2] or ""
heed.set_num_threads(threads)
heed.manual_seed(1)
local attention, clock = heed.scaled_dot_product_attention, heed.clock
local HEADS, SIZE, SECONDS = 12, 64, tonumber(os.getenv "BENCH_SECONDS") or 0.5

local function mask_of(n, s, hidden)
  local mask = heed.zeros(n, s)
  local i, j = heed.arange(1, n + 1):unsqueeze(2) + (s - n), heed.arange(1, s + 1):unsqueeze(1)
  return mask:masked_fill(hidden(i, j), -math.huge)
end

local function causal(i, j) return j:gt(i) end
local function window(i, j) return j:gt(i):logical_or(j:le(i - 64)) end

-- Each case: what the call takes, what Lua does to the scores before the softmax, and the number of key heads.
local OPTIONS = {
  { "plain" },
  { "causal", call = { is_causal = true }, bias = causal },
  { "mask", bias = causal, masked = true },
  { "window", call = { is_causal = true, window = { left = 63 } }, bias = window },
  { "kv groups", kv = 3 },
  { "softcap", call = { softcap = 30 } },
  { "sinks", sinks = true },
  { "alibi", call = { alibi_slopes = heed.alibi_slopes(HEADS) }, alibi = true },
  { "dropout", call = { dropout_p = 0.1 } },
}

local function merged(a, b)
  local all = {}
  for k, v in pairs(a or {}) do all[k] = v end
  for k, v in pairs(b or {}) do all[k] = v end
  return all
end

local function variants_of(case, batch, n, s)
  local q = heed.randn(batch, HEADS, n, SIZE)
  local k, v = heed.randn(batch, case.kv or HEADS, s, SIZE), heed.randn(batch, case.kv or HEADS, s, SIZE)
  local options = merged(case.call)
  if (options.is_causal or case.alibi) and n < s then
    options.kv_lengths = heed.full({ batch }, s, { dtype = "int64" })
  end
  local bias = case.bias and mask_of(n, s, case.bias)
  if case.masked then options.attn_mask = bias:eq(0) end
  local sinks
  if case.sinks then
    options.sinks = heed.randn(HEADS)
    sinks = options.sinks:reshape(1, HEADS, 1, 1):expand(batch, HEADS, n, 1)
  end
  if case.alibi then
    local distance = (heed.arange(1, n + 1):unsqueeze(2) + (s - n) - heed.arange(1, s + 1):unsqueeze(1)):abs()
    bias = options.alibi_slopes:reshape(HEADS, 1, 1) * -distance
  end
  local scale = SIZE ^ -0.5
  local function lua()
    local kx, vx = k, v
    if case.kv then kx, vx = kx:repeat_interleave(HEADS / case.kv, 2), vx:repeat_interleave(HEADS / case.kv, 2) end
    local w = (q * scale):matmul(kx.mT)
    if options.softcap then w:div_(options.softcap):tanh_():mul_(options.softcap) end
    if bias then w:add_(bias) end
    if sinks then
      w = heed.cat({ w, sinks }, -1):softmax(-1)[{ {}, {}, {}, { 1, s } }]
    else
      w = w:softmax(-1)
    end
    if options.dropout_p then return heed.nn.functional.dropout(w, options.dropout_p):matmul(vx), w end
    return w:matmul(vx), w
  end
  local weights = merged(options, { need_weights = { "weights" } })
  local one = merged(options, { need_weights = { "weights", heads = { 5 } } })
  local all = merged(options, { need_weights = true })
  return {
    function() return attention(q, k, v, options) end,
    function() return attention(q, k, v, weights) end,
    function() return attention(q, k, v, one) end,
    function() return attention(q, k, v, all) end,
    lua,
  }, options.dropout_p
end

local function check(variants, name)
  local y = variants[1]()
  local again, info = variants[2]()
  local expected, weights = variants[5]()
  assert(again:equal(y), name .. ": need_weights changes the output")
  assert((expected - y):abs():max():item() < 1e-4, name .. ": the output differs")
  assert((weights - info.weights):abs():max():item() < 1e-5, name .. ": the weights differ")
end

local function measure(variants)
  local best, turns = {}, {}
  for i, f in ipairs(variants) do
    local start = clock()
    f()
    turns[i] = math.max(1, math.floor(1e-3 / math.max(clock() - start, 1e-6)))
    best[i] = math.huge
  end
  local stop, rounds = clock() + SECONDS, 0
  while clock() < stop or rounds < 5 do
    rounds = rounds + 1
    for i, f in ipairs(variants) do
      collectgarbage()
      local start = clock()
      for _ = 1, turns[i] do f() end
      best[i] = math.min(best[i], (clock() - start) / turns[i])
    end
  end
  return best
end

print(("%s kernels; %d heads of %d, threads: %d"):format(heed.info().kernels, HEADS, SIZE, threads))
local line = "%-28s %9s %9s %9s %9s %9s   %6s %6s %6s %6s"
print(line:format("case", "fused", "weights", "one head", "all", "Lua", "w/Lua", "w/fus", "1/fus", "all/f"))
local SIZES = { { 1, 1, 1 }, { 1, 16, 16 }, { 1, 128, 128 }, { 1, 1024, 1024 }, { 8, 1, 1 }, { 8, 16, 16 },
  { 8, 128, 128 }, { 8, 1024, 1024 }, { 1, 1, 16 }, { 1, 1, 128 }, { 1, 1, 1024 }, { 1, 1, 4096 }, { 8, 1, 128 },
  { 8, 1, 1024 }, { 1, 16, 1024 } }
for _, case in ipairs(OPTIONS) do
  for _, size in ipairs(SIZES) do
    local batch, n, s = size[1], size[2], size[3]
    local name = ("%s %d × %d on %d"):format(case[1], batch, n, s)
    if name:find(only, 1, true) then
      local variants, draws = variants_of(case, batch, n, s)
      if not draws then check(variants, name) end
      local t = measure(variants)
      local function ms(i) return ("%.4f"):format(1e3 * t[i]) end
      local function ratio(i, j) return ("%.2f"):format(t[i] / t[j]) end
      print(line:format(name, ms(1), ms(2), ms(3), ms(4), ms(5), ratio(2, 5), ratio(2, 1), ratio(3, 1), ratio(4, 1)))
      io.stdout:flush()
    end
  end
end
