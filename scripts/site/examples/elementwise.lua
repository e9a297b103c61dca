-- Elementwise operations. See ../examples.lua.

--## x:add
local x = heed.tensor { { 1, 2 }, { 3, 4 } }
print(x + heed.tensor { 10, 20 }) -- shapes broadcast
print(x:add(1, { alpha = 0.5 })) -- x + 0.5 · 1
x:add_(100)
print(x)

--## x:sub
local x = heed.tensor { 5, 6 }
print(x - 1, x:sub(1, { alpha = 2 }))

--## x:mul
local column, row = heed.tensor { { 1 }, { 2 } }, heed.tensor { 3, 4, 5 }
print(column * row)

--## x:div
local x = heed.tensor { 7, -7 }
print(x / 2)
print(x:div(2, { rounding_mode = "floor" }), x:div(2, "trunc"))

--## x:floor_divide
print(heed.tensor({ 7, -7 }, "int64"):floor_divide(2))

--## x:fmod
print(heed.tensor { 5, -5 }:fmod(3), heed.tensor { 5, -5 } % 3)

--## x:addcmul
local x, a, b = heed.tensor { 1, 1 }, heed.tensor { 2, 3 }, heed.tensor { 4, 5 }
print(x:addcmul(a, b, { value = 0.1 }))

--## x:addcdiv
local x, a, b = heed.tensor { 1, 1 }, heed.tensor { 2, 3 }, heed.tensor { 4, 5 }
print(x:addcdiv(a, b))

--## x:lerp
print(heed.zeros(3):lerp(heed.tensor { 10, 20, 30 }, 0.25))

--## x:remainder
print(heed.tensor { 5, -5 }:remainder(3))

--## x:pow
local x = heed.tensor { 1, 2, 3 }
print(x ^ 2, x:pow(0.5))

--## x:maximum
print(heed.tensor { 1, 5 }:maximum(heed.tensor { 4, 2 }), heed.tensor { 1, 5 }:maximum(3))

--## x:minimum
print(heed.tensor { 1, 5 }:minimum(heed.tensor { 4, 2 }))

--## x:exp
local x = heed.tensor { 0, 1, 2 }
print(x:exp())
print(heed.exp(x):equal(x:exp()))

--## x:log
print(heed.tensor { 1, 2.7183, 0, -1 }:log())

--## x:sqrt
print(heed.tensor { 1, 4, 2 }:sqrt())

--## x:rsqrt
print(heed.tensor { 1, 4, 2 }:rsqrt())

--## x:abs
print(heed.tensor { -1.5, 2 }:abs())

--## x:neg
print(-heed.tensor { -1.5, 2 })

--## x:sin
print(heed.tensor { 0, heed.pi / 2, heed.pi / 6 }:sin())

--## x:cos
print(heed.tensor { 0, heed.pi / 3, heed.pi }:cos())

--## x:tanh
print(heed.tensor { -1, 0, 10 }:tanh())

--## x:sigmoid
print(heed.tensor { -2, 0, 2 }:sigmoid())

--## x:relu
print(heed.tensor { -1, 0, 2 }:relu())

--## x:silu
print(heed.tensor { -1, 0, 2 }:silu())

--## x:floor
print(heed.tensor { 1.7, -1.2 }:floor())

--## x:ceil
print(heed.tensor { 1.2, -1.7 }:ceil())

--## x:trunc
print(heed.tensor { 1.7, -1.7 }:trunc())

--## x:sign
print(heed.tensor { -3, 0, 0.1 }:sign())

--## x:square
print(heed.tensor { -3, 2 }:square())

--## x:reciprocal
print(heed.tensor { 2, 4, 0 }:reciprocal())

--## x:exp2
print(heed.tensor { 0, 1, 10 }:exp2())

--## x:expm1
print(heed.tensor { 0, 1e-6 }:expm1())

--## x:log2
print(heed.tensor { 1, 8 }:log2())

--## x:log10
print(heed.tensor { 1, 1000 }:log10())

--## x:log1p
print(heed.tensor { 0, 1e-6 }:log1p())

--## x:erf
print(heed.tensor { 0, 0.5, 2 }:erf())

--## x:round
local x = heed.tensor { 0.5, 1.5, 2.346 }
print(x:round())
print(x:round { decimals = 2 })

--## x:nan_to_num
print(heed.tensor { heed.nan, heed.inf, 1 }:nan_to_num { nan = 0, posinf = 100 })

--## x:gelu
local x = heed.tensor { -1, 0, 1 }
print(x:gelu())
print(F.gelu(x, { approximate = "tanh" }))

--## x:logical_not
print(heed.tensor { 0, 2 }:logical_not())

--## x:isnan
print(heed.tensor { 1, heed.nan }:isnan())

--## x:isinf
print(heed.tensor { 1, -heed.inf }:isinf())

--## x:eq
local x = heed.tensor { 1, 2, 3 }
print(x:eq(2)) -- x == y asks whether both are the same tensor, as tables in Lua

--## x:ne
print(heed.tensor { 1, 2, 3 }:ne(2))

--## x:lt
print(heed.tensor { 1, 2, 3 }:lt(heed.tensor { 3, 2, 1 }))

--## x:le
print(heed.tensor { 1, 2, 3 }:le(2))

--## x:gt
local x = heed.tensor { 1, 2, 3 }
print(x:gt(1))
print(x[x:gt(1)])

--## x:ge
print(heed.tensor { 1, 2, 3 }:ge(2))

--## x:logical_and
local x = heed.tensor { 1, 2, 3, 4 }
print(x:gt(1):logical_and(x:lt(4))) -- in Lua 5.3 and later also x:gt(1) & x:lt(4)

--## x:logical_or
local x = heed.tensor { 1, 2, 3 }
print(x:eq(1):logical_or(x:eq(3))) -- in Lua 5.3 and later also x:eq(1) | x:eq(3)

--## x:logical_xor
print(heed.tensor { true, true }:logical_xor(heed.tensor { true, false }))

--## x:equal
local x = heed.tensor { 1, 2 }
print(x:equal(heed.tensor { 1, 2 }), x:equal(heed.tensor { 1, 2, 3 }))

--## x:allclose
local x = heed.tensor { 1, 2 }
print(x:allclose(x + 1e-7), x:allclose(x + 0.01), x:allclose(x + 0.01, { atol = 0.1 }))

--## x:isclose
print(heed.tensor { 1, 2 }:isclose(heed.tensor { 1.000001, 2.1 }))

--## x:clamp
local x = heed.tensor { -2, 0.5, 7 }
print(x:clamp(-1, 1), x:clamp { min = 0 })

--## x:masked_fill
local scores = heed.tensor { { 1, 2 }, { 3, 4 } }
local hidden = heed.ones(2, 2):triu(1):bool()
print(scores:masked_fill(hidden, -heed.inf))

--## x:where
local x = heed.tensor { -1, 2, -3 }
print(heed.where(x:gt(0), x, 0))

--## x:tril
print(heed.ones(3, 3):tril())
print(heed.ones(3, 3):tril(-1))

--## x:triu
print(heed.ones(3, 3):triu { diagonal = 1 })
