-- Random numbers. See ../examples.lua.

--## heed.manual_seed
heed.manual_seed(123)
print(heed.rand(3))
heed.manual_seed(123)
print(heed.rand(3)) -- torch.manual_seed(123); torch.rand(3)

--## heed.set_dropout_stream
heed.set_dropout_stream "mkl" -- as PyTorch on processors from Intel
print(heed.ones(8):dropout(0.5))

--## heed.rand
print(heed.rand(2, 3))

--## heed.randn
print(heed.randn(2, 3))
print(heed.randn({ 2 }, { generator = heed.Generator(7) }))

--## heed.randint
print(heed.randint(1, 6, { 2, 4 })) -- both ends are included

--## heed.randperm
print(heed.randperm(5))

--## x:rand_like
print(heed.zeros(2, 2):rand_like())

--## x:randn_like
print(heed.zeros(2, 2):randn_like())

--## x:randint_like
print(heed.zeros(2, 2):randint_like(1, 10))

--## x:bernoulli
print(heed.tensor { 0, 0.5, 0.5, 1 }:bernoulli())

--## x:multinomial
local weights = heed.tensor { 0, 1, 9 }
print(weights:multinomial { num_samples = 6, replacement = true })

--## x:uniform_
print(heed.empty(3):uniform_ { from = -1, to = 1 })

--## x:normal_
print(heed.empty(3):normal_ { mean = 10, std = 0.1 })

--## x:dropout
local x = heed.ones(2, 4)
print(x:dropout(0.5)) -- what remains is multiplied by 1 / (1 - p)
print(F.dropout(x, { p = 0.5, training = false }))

--## heed.Generator
local g = heed.Generator(7) -- draws without changing the default generator
print(heed.rand(2, { generator = g }), heed.rand(2, { generator = g }))

--## Generator:manual_seed
local g = heed.Generator()
print(heed.rand(2, { generator = g:manual_seed(7) }))

--## Generator:kind
print(heed.Generator(7):kind(), heed.Generator(7, "philox"):kind())

--## Generator:clone
local g = heed.Generator(7)
local copy = g:clone()
print(heed.rand(1, { generator = g }), heed.rand(1, { generator = copy }))

--## Generator:part
local g = heed.Generator(7, "philox") -- the stream of PyTorch on a GPU
local right = g:part { whole = { 2, 4 }, first = { 1, 3 } }
print(heed.rand(2, 2, { generator = right }))
print(heed.rand(2, 4, { generator = g }))

--## Generator:get_offset, Generator:set_offset
local g = heed.Generator(7, "philox")
local first = heed.rand(2, { generator = g })
print(g:get_offset())
print(first:equal(heed.rand(2, { generator = g:set_offset(0) })))

--## Generator:get_state, Generator:set_state
local g = heed.Generator(7)
local state = g:get_state()
local first = heed.rand(2, { generator = g })
print(first:equal(heed.rand(2, { generator = g:set_state(state) })))
