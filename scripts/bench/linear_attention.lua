-- heed's rows of sequences.py, the gated delta rule: heed.linear_attention, and the same written in operations of heed,
-- in chunks of 64 tokens as transformers' torch_chunk_gated_delta_rule does it. "Training" is forward and, with the
-- gradients of all inputs, backward.
local heed = require "heed"
local rows = dofile((arg[0]:match "^.*[/\\]" or "") .. "lua_rows.lua")

local N, H, D, C = 2048, 8, 128, 64 -- tokens, heads, their size; tokens of a chunk
local lower = heed.ones(C, C):tril():bool() -- i sees j <= i
local strict = heed.ones(C, C):tril(-1):bool()

local function fused(q, k, v, decay, beta)
  return (heed.linear_attention(q, k, v, { rule = "gated_delta", decay = decay, beta = beta }))
end

local function chunked(q, k, v, decay, beta)
  local chunks = N / C
  local function split(x) return x:reshape(1, H, chunks, C, -1) end
  q, k, v, beta = split(q * (1 / math.sqrt(D))), split(k), split(v), split(beta)
  local g = split(decay):cumsum(-2) -- [1, H, chunks, C, 1]
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
  local state, outs = heed.zeros(1, H, D, D), {}
  for i = 1, chunks do
    local at = { {}, {}, i }
    local new = u[at] - w[at]:matmul(state)
    outs[i] = read[at]:matmul(state) + p[at]:matmul(new)
    state = state * whole[at] + written[at]:matmul(new)
  end
  return heed.stack(outs, 3):reshape(1, H, N, D)
end

local function normalized(x) return x / x:square():sum(-1, { keepdim = true }):sqrt() end
local inputs = { normalized(heed.randn(1, H, N, D)), normalized(heed.randn(1, H, N, D)), heed.randn(1, H, N, D),
  -heed.rand(1, H, N) * 0.2, heed.rand(1, H, N) } -- q, k, v, decay, beta

local function forward(of)
  return function() return function() return of(rows.unpack(inputs)) end end
end

rows.group("gated delta rule, 2048 tokens, 8 heads of 128", {
  { "linear_attention", nil, forward(fused) },
  { "in operations of heed", nil, forward(chunked) },
})

local function training(of)
  return function()
    return function()
      return heed.enable_grad(function()
        for _, x in ipairs(inputs) do
          x:requires_grad_()
          x.grad = nil
        end
        of(rows.unpack(inputs)):sum():backward()
        return inputs[1].grad
      end)
    end
  end
end

rows.group("training of the gated delta rule", {
  { "linear_attention", nil, training(fused) },
  { "in operations of heed", nil, training(chunked) },
})

rows.answer()
