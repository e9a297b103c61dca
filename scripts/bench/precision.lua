-- heed.set_matmul_precision: linear, matmul and attention in "highest" and "medium" precision, and the error that this
-- causes. HEED_CPU chooses other kernels of this processor.
--   heed scripts/bench/precision.lua
local heed = require "heed"

local DTYPES = { "float32", "bfloat16", "int8", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k" }

heed.set_num_threads(1)
heed.manual_seed(1)

-- The least milliseconds of several calls.
local function least(f, calls)
  local best = math.huge
  for _ = 1, calls do
    local start = os.clock()
    f()
    best = math.min(best, os.clock() - start)
  end
  return best * 1e3
end

-- The root mean square of the difference, relative to the wanted result.
local function error_of(got, wanted)
  return ((got - wanted):square():mean() / wanted:square():mean()):sqrt():item()
end

local function row(name, f)
  heed.set_matmul_precision "highest"
  local wanted, before = f(), least(f, 5)
  heed.set_matmul_precision "medium"
  local got, after = f(), least(f, 7)
  heed.set_matmul_precision "highest"
  local text = "| %s | %.2f ms | %.2f ms (%.1f×) | %.1e |"
  print(text:format(name, before, after, before / after, error_of(got, wanted)))
end

heed.set_matmul_precision "medium"
print("kernels " .. heed.info().kernels .. ", 1 thread\n")
print "| | highest | medium | error |"
print "| --- | ---: | ---: | ---: |"
for _, size in ipairs { { 512, 4096, 4096 }, { 64, 4096, 4096 }, { 16, 4096, 4096 }, { 1024, 768, 768 } } do
  local m, n, k = size[1], size[2], size[3]
  local x, wide = heed.randn(m, k), heed.randn(n, k)
  for _, dtype in ipairs(DTYPES) do
    local name = ("linear, %d rows, %d × %d, %s"):format(m, n, k, dtype)
    if dtype == "int8" then
      local weight, scale = heed.quantize_int8(wide)
      row(name, function() return heed.linear_int8(x, weight, scale) end)
    else
      local weight = wide:to(dtype)
      row(name, function() return heed.linear(x, weight) end)
    end
  end
  local name = "matmul, %d × %d with %d × %d%s"
  local right = heed.randn(k, n)
  row(name:format(m, k, k, n, ""), function() return heed.matmul(x, right) end)
  row(name:format(m, k, k, n, ", transposed"), function() return heed.matmul(x, wide.T) end)
end
for _, size in ipairs { { 2048, 64 }, { 512, 64 }, { 2048, 128 } } do
  local n, d = size[1], size[2]
  local q, k, v = heed.randn(1, 8, n, d), heed.randn(1, 8, n, d), heed.randn(1, 8, n, d)
  for _, dtype in ipairs { "float32", "bfloat16" } do
    local low_k, low_v = k:to(dtype), v:to(dtype)
    for _, causal in ipairs { true, false } do
      row(("attention%s, 8 × %d × %d, %s"):format(causal and ", causal" or "", n, d, dtype), function()
        return heed.scaled_dot_product_attention(q, low_k, low_v, { is_causal = causal })
      end)
    end
  end
end
