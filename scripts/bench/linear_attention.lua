-- The gated delta rule: heed.linear_attention beside the same written in operations of heed, in chunks of 64 tokens as
-- transformers' torch_chunk_gated_delta_rule does it; forward and, with the gradients of all inputs, backward. One
-- thread, the fastest of several turns in alternation, in processor time.
--   heed linear_attention.lua [TOKENS HEADS SIZE]
local heed = require "heed"
local n, h, d = tonumber(arg[1]) or 2048, tonumber(arg[2]) or 8, tonumber(arg[3]) or 128
local C = 64

heed.set_num_threads(1)
heed.manual_seed(1)
local lower = heed.ones(C, C):tril():bool() -- i sees j <= i
local strict = heed.ones(C, C):tril(-1):bool()

local function chunked(q, k, v, decay, beta)
  local b, dv, chunks = q:size(1), v:size(-1), n / C
  local function split(x) return x:reshape(b, h, chunks, C, -1) end
  q, k, v, beta = split(q * (1 / math.sqrt(d))), split(k), split(v), split(beta)
  local g = split(decay):cumsum(-2) -- [b, h, chunks, C, 1]
  local ratio = (g - g:transpose(-1, -2)):masked_fill(lower:logical_not(), -heed.inf):exp()
  local kt, kb = k:transpose(-1, -2), k * beta
  -- T = (I - a)⁻¹ = (I + a) (I + a²) (I + a⁴) …, where -a is the part of the rule that reads tokens of the chunk
  local a = -(kb:matmul(kt) * ratio):masked_fill(strict:logical_not(), 0)
  local t = a + heed.eye(C)
  for _ = 1, 5 do
    a = a:matmul(a)
    t = t + t:matmul(a)
  end
  local u, w = t:matmul(v * beta), t:matmul(kb * g:exp())
  local p = q:matmul(kt) * ratio
  local last = g[{ {}, {}, {}, { C, C } }]
  local read, written, whole = q * g:exp(), (k * (last - g):exp()):transpose(-1, -2), last:exp()
  local state, outs = heed.zeros(b, h, d, dv), {}
  for i = 1, chunks do
    local at = { {}, {}, i }
    local new = u[at] - w[at]:matmul(state)
    outs[i] = read[at]:matmul(state) + p[at]:matmul(new)
    state = state * whole[at] + written[at]:matmul(new)
  end
  return heed.stack(outs, 3):reshape(b, h, n, dv), state
end

local function normalized(x) return x / x:square():sum(-1, { keepdim = true }):sqrt() end
local q, k = normalized(heed.randn(1, h, n, d)), normalized(heed.randn(1, h, n, d))
local v, beta, decay = heed.randn(1, h, n, d), heed.rand(1, h, n), -heed.rand(1, h, n) * 0.2
local inputs = { q, k, v, decay, beta }
local function fused(x, y, z, a, b)
  return heed.linear_attention(x, y, z, { rule = "gated_delta", decay = a, beta = b })
end

local function seconds(f)
  collectgarbage()
  local start = os.clock()
  f()
  return os.clock() - start
end
local function compare(title, turns, of)
  local best = { math.huge, math.huge }
  for _ = 1, turns do
    for i, f in ipairs { fused, chunked } do best[i] = math.min(best[i], seconds(function() of(f) end)) end
  end
  print(("%-9s linear_attention %7.2f ms, in operations %7.2f ms: %.2f times as fast"):format(title, best[1] * 1e3,
    best[2] * 1e3, best[2] / best[1]))
end

local y, wanted = fused(q, k, v, decay, beta), (chunked(q, k, v, decay, beta))
local difference = (y - wanted):abs():max():item()
assert(difference < 1e-4, difference)
compare("forward", 7, function(f) return f(q, k, v, decay, beta) end)
heed.set_grad_enabled(true)
for _, x in ipairs(inputs) do x:requires_grad_() end
compare("training", 3, function(f) ((f(q, k, v, decay, beta))):sum():backward() end)
