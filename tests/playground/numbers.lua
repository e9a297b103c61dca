-- Prints numbers of many kernels at sizes around their widths, for comparison between builds.
local heed = require "heed"
local nn, F = heed.nn, heed.nn.functional
heed.manual_seed(7)

local function summary(name, x)
  x = x:to "float32":flatten()
  print(("%s %.4f %.4f"):format(name, x:mean():item(), x[x:numel()]))
end

for _, n in ipairs { 1, 3, 4, 5, 17, 64 } do
  local x, y = heed.randn(3, n), heed.randn(3, n)
  for _, name in ipairs { "exp", "sigmoid", "tanh", "sin", "cos", "expm1", "erf", "exp2" } do
    summary(name .. " " .. n, x[name](x))
  end
  for _, name in ipairs { "log", "log2", "log10", "log1p", "sqrt", "rsqrt" } do
    summary(name .. " " .. n, heed[name](x:abs() + 0.5))
  end
  summary("gelu " .. n, F.gelu(x))
  summary("softmax " .. n, x:softmax(-1))
  summary("fmod " .. n, x:fmod(y:abs() + 0.1))
  summary("remainder " .. n, x:remainder(y:abs() + 0.1))
  for _, dtype in ipairs { "float16", "bfloat16" } do summary(dtype .. " " .. n, x:to(dtype)) end
  summary("matmul " .. n, x:matmul(y:transpose(1, 2)))
  summary("layer_norm " .. n, F.layer_norm(x, { n }))
end
for _, size in ipairs { 5, 33, 130 } do
  local a, b = heed.randn(size, size + 1), heed.randn(size + 1, size - 2)
  summary("product " .. size, a:matmul(b))
  local q, k, v = heed.randn(1, 2, size, 20), heed.randn(1, 2, size, 20), heed.randn(1, 2, size, 20)
  summary("attention " .. size, F.scaled_dot_product_attention(q, k, v, { is_causal = true }))
  local layer = nn.Linear(size, 16)
  for _, dtype in ipairs { "float16", "bfloat16", "int8" } do
    summary(dtype .. " weights", layer:to(dtype)(heed.randn(4, size)))
  end
end
local mha = nn.MultiHeadAttention(24, 24, 40, 0.0, 3)
summary("module", mha(heed.randn(2, 40, 24)))
heed.set_grad_enabled(true)
local leaf = heed.randn(5, 24):requires_grad_()
mha(leaf:reshape(1, 5, 24)):sum():backward()
summary("gradient", leaf.grad)
print(heed.randn(20))
