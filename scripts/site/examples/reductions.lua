-- Reductions, operations along a dimension, and products. See ../examples.lua.

--## x:sum
local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
print(x:sum())
print(x:sum(1), x:sum(-1))
print(x:sum { dim = 2, keepdim = true })

--## x:mean
local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
print(x:mean(), x:mean(1))

--## x:any
local x = heed.tensor { { 0, 0 }, { 0, 1 } }
print(x:any(), x:any(2))

--## x:all
local x = heed.tensor { { 1, 2 }, { 0, 1 } }
print(x:all(), x:all(2))

--## x:var
local x = heed.tensor { 1, 2, 3, 4 }
print(x:var(), x:var { correction = 0 })

--## x:std
local x = heed.tensor { { 1, 2 }, { 1, 9 } }
print(x:std(), x:std(-1))

--## x:max
local x = heed.tensor { { 1, 9, 3 }, { 4, 5, 6 } }
print(x:max())
local values, indices = x:max(2)
print(values, indices)

--## x:min
local x = heed.tensor { { 1, 9, 3 }, { 4, 5, 6 } }
local values, indices = x:min { dim = 1 }
print(values, indices)

--## x:argmax
local x = heed.tensor { { 1, 9, 3 }, { 4, 5, 6 } }
print(x:argmax(-1)) -- from 1
print(x:argmax())

--## x:argmin
print(heed.tensor { 3, 1, 2 }:argmin())

--## x:amax
print(heed.tensor { { 1, 9, 3 }, { 4, 5, 6 } }:amax(2))

--## x:amin
print(heed.tensor { { 1, 9, 3 }, { 4, 5, 6 } }:amin { dim = { 1, 2 } })

--## x:prod
print(heed.tensor { { 1, 2 }, { 3, 4 } }:prod(2))

--## x:norm
local x = heed.tensor { { 3, 4 }, { 6, 8 } }
print(x:norm())
print(x:norm { dim = 2 }, x:norm(1, 2))

--## x:logsumexp
print(heed.tensor { { 1, 2 }, { 1000, 1000 } }:logsumexp(2))

--## x:count_nonzero
print(heed.tensor { { 1, 0 }, { 2, 3 } }:count_nonzero())

--## x:median
print(heed.tensor { 3, 1, 4, 1 }:median())
local values, indices = heed.tensor { { 3, 1, 2 } }:median(2)
print(values, indices)

--## x:quantile
print(heed.tensor { 1, 2, 3, 4 }:quantile(0.5))
print(heed.tensor { 1, 2, 3, 4 }:quantile { 0.25, 0.75 })

--## x:softmax
local scores = heed.tensor { { 1, 2, 3 }, { 0, 0, -heed.inf } }
print(scores:softmax(-1))
print(F.softmax(scores, { dim = -1 }):sum(-1))

--## x:log_softmax
print(heed.tensor { 1, 2, 3 }:log_softmax(1))

--## x:cumsum
print(heed.tensor { 1, 2, 3, 4 }:cumsum(1))

--## x:cumprod
print(heed.tensor { 1, 2, 3, 4 }:cumprod(1))

--## x:topk
local values, indices = heed.tensor { 3, 9, 1, 7 }:topk(2)
print(values, indices)

--## x:sort
local values, indices = heed.tensor { 3, 1, 2 }:sort { descending = true }
print(values, indices)

--## x:argsort
local x = heed.tensor { 3, 1, 2 }
print(x:argsort(), x[x:argsort()])

--## x:layer_norm
local x = heed.tensor { { 1, 2, 3 }, { 10, 0, -10 } }
print(x:layer_norm())
print(x:layer_norm(heed.tensor { 2, 2, 2 }, heed.tensor { 0, 0, 1 }))

--## x:rms_norm
local x = heed.tensor { 3, 4 }
print(x:rms_norm(), x:rms_norm(heed.tensor { 10, 1 }))

--## x:rope
local queries = heed.ones(3, 4) -- three tokens, one head of size 4
print(queries:rope())
print(queries:narrow(1, 3, 1):rope { 3 }) -- a token at position 3

--## x:matmul
local a, b = heed.tensor { { 1, 2 }, { 3, 4 } }, heed.tensor { { 0, 1 }, { 1, 0 } }
print(a:matmul(b))
print(heed.ones(5, 2, 3):matmul(heed.ones(3, 4)).shape) -- leading dimensions broadcast

--## x:bmm
print(heed.ones(2, 2, 3):bmm(heed.ones(2, 3, 2)))

--## x:mv
print(heed.tensor { { 1, 2 }, { 3, 4 } }:mv(heed.tensor { 10, 1 }))

--## x:addmm
local bias, a, b = heed.tensor { 100, 200 }, heed.eye(2), heed.tensor { { 1, 2 }, { 3, 4 } }
print(bias:addmm(a, b))
print(bias:addmm(a, b, { beta = 0, alpha = 2 }))

--## x:addmv
print(heed.tensor { 10, 20 }:addmv(heed.eye(2), heed.tensor { 1, 2 }))

--## x:baddbmm
print(heed.tensor { 10, 20 }:baddbmm(heed.ones(1, 2, 3), heed.ones(1, 3, 2)))

--## x:inner
print(heed.tensor { { 1, 2 }, { 3, 4 } }:inner(heed.tensor { { 1, 0 }, { 1, 1 } }))

--## x:tensordot
print(heed.ones(2, 3, 4):tensordot(heed.ones(3, 4, 5)).shape)
print(heed.ones(2, 3):tensordot(heed.ones(3, 4), { { 2 }, { 1 } }))

--## x:cross
print(heed.tensor { 1, 0, 0 }:cross(heed.tensor { 0, 1, 0 }))

--## x:trace
print(heed.tensor { { 1, 2 }, { 3, 4 } }:trace())

--## x:dot
print(heed.tensor { 1, 2, 3 }:dot(heed.tensor { 4, 5, 6 }))

--## x:outer
print(heed.tensor { 1, 2 }:outer(heed.tensor { 3, 4, 5 }))

--## x:linear
local x, weight, bias = heed.tensor { 1, 2 }, heed.tensor { { 1, 0 }, { 0, 1 }, { 1, 1 } }, heed.tensor { 10, 20, 30 }
print(F.linear(x, weight, bias))

--## x:quantize_int8, x:dequantize_int8
local weight, scale = heed.tensor { { 1, -0.5, 0.1 } }:quantize_int8()
print(weight, scale)
print(weight:dequantize_int8(scale))

--## x:linear_int8
local weight, scale = heed.tensor { { 1, 2 }, { 3, 4 } }:quantize_int8()
print(heed.tensor { 1, 1 }:linear_int8(weight, scale))

--## x:embedding
local vectors = heed.tensor { { 1, 1 }, { 2, 2 }, { 3, 3 } }
print(heed.tensor({ 3, 1 }, "int64"):embedding(vectors))

--## heed.einsum
local q, k = heed.rand(2, 4, 3, 8), heed.rand(2, 4, 5, 8)
print(heed.einsum("bhid,bhjd->bhij", q, k).shape)
print(heed.einsum("ii->i", heed.tensor { { 1, 2 }, { 3, 4 } })) -- the diagonal
