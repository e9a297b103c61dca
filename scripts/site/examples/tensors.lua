-- Making and reading tensors. See ../examples.lua.

--## heed.tensor
print(heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } })
print(heed.tensor { true, false })
print(heed.tensor({ 1, 2, 3 }, "int64"))
print(heed.tensor(2.5))

--## heed.zeros
print(heed.zeros(2, 3))
print(heed.zeros({ 3 }, { dtype = "int64" }))

--## heed.ones
print(heed.ones(2, 3))

--## heed.empty
local x = heed.empty(2, 3) -- contents are unspecified
print(x.shape, x:fill_(7))

--## heed.full
print(heed.full({ 2, 2 }, 0.5))
print(heed.full(3, true))

--## heed.eye
print(heed.eye(3))
print(heed.eye(2, 3, { dtype = "int64" }))

--## heed.range
print(heed.range(1, 5))
print(heed.range(0, 1, 0.25))

--## heed.arange
print(heed.arange(1, 6)) -- the end is not included, as in PyTorch
print(heed.arange(0, 1, 0.25))

--## heed.linspace
print(heed.linspace(0, 1, 5))

--## heed.logspace
print(heed.logspace(0, 3, 4))
print(heed.logspace(0, 3, 4, { base = 2 }))

--## heed.from_string
local x = heed.tensor { { 1, 2 }, { 3, 4 } }
local bytes = x:to_string()
print(#bytes, heed.from_string(bytes, "float32", 2, 2):equal(x))

--## heed.block_diag
print(heed.block_diag(heed.ones(2, 2), heed.tensor(5)))

--## heed.tril_indices
local indices = heed.tril_indices(3, 3)
print(indices)
print(heed.range(1, 9):view(3, 3)[{ indices[1], indices[2] }])

--## heed.triu_indices
print(heed.triu_indices(3, 3, 1))

--## x:zeros_like
print(heed.tensor({ { 1, 2 }, { 3, 4 } }, "int64"):zeros_like())

--## x:ones_like
print(heed.zeros(2, 3):ones_like())

--## x:empty_like
local x = heed.zeros(2, 3)
print(x:empty_like().shape, x:empty_like { dtype = "int64" }.dtype)

--## x:full_like
print(heed.zeros(2, 3):full_like(0.1))

--## x:new_zeros
local ids = heed.tensor({ 1, 2 }, "int64")
print(ids:new_zeros(2, 3))

--## x:new_ones
print(heed.rand(2):new_ones(3))

--## x:new_empty
print(heed.rand(2):new_empty(4, 5).shape)

--## x:new_full
print(heed.rand(2):new_full({ 2, 2 }, 3))

--## x:new_tensor
print(heed.tensor({ 1 }, "int64"):new_tensor { 2, 3 })

--## heed.is_tensor
print(heed.is_tensor(heed.ones(2)), heed.is_tensor { 1, 1 })

--## heed.Size
local shape = heed.Size { 2, 3 }
print(shape, shape == heed.ones(2, 3).shape, shape[-1])

--## Size:numel
print(heed.Size(2, 3):numel())

--## Tensor
local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
print(x.shape, x.dtype, x.ndim)
print(x[2], x[{ 2, 3 }]) -- indices count from 1
print(x[{ {}, { 2, 3 } }]) -- ranges include their end
print(x.T)
print(x * 2 + 1)

--## x:size
local x = heed.zeros(2, 3)
print(x:size(), x:size(1), x:size(-1))

--## x:stride
local x = heed.zeros(2, 3)
print(x:stride(1), x:stride(2), x.T:stride(1))

--## x:numel, x:nelement
print(heed.zeros(2, 3):numel(), heed.zeros(2, 3):nelement())

--## x:element_size
print(heed.zeros(2):element_size(), heed.zeros(2):to("bfloat16"):element_size())

--## x:dim
print(heed.zeros(2, 3):dim(), heed.tensor(1):dim())

--## x:is_contiguous
local x = heed.zeros(2, 3)
print(x:is_contiguous(), x.T:is_contiguous())

--## x:item
print(heed.tensor { 1, 2, 3 }:sum():item())

--## x:tolist
local rows = heed.tensor { { 1, 2 }, { 3, 4 } }:tolist()
print(rows[2][1])

--## x:iter
for i, row in heed.tensor { { 1, 2 }, { 3, 4 } }:iter() do print(i, row) end

--## heed.ipairs
for i, value in heed.ipairs(heed.tensor { 10, 20 }) do print(i, value) end

--## heed.pairs
for name, p in heed.pairs(nn.Linear(2, 3):state_dict()) do print(name, p.shape) end

--## x:type_as
print(heed.tensor { 1.7, -2.2 }:type_as(heed.tensor({ 1 }, "int64")))

--## x:to
local x = heed.tensor { 1.7, -2.2, 0 }
print(x:to "int64")
print(x:to "bool")
print(x:to "bfloat16")

--## x:float
print(heed.tensor({ 1, 2 }, "int64"):float())

--## x:long
print(heed.tensor { 1.9, -1.9 }:long())

--## x:bool
print(heed.tensor { 0, 0.5, -3 }:bool())

--## x:clone
local x = heed.tensor { 1, 2 }
local copy = x:clone()
copy[1] = 9
print(x, copy)

--## x:contiguous
local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
print(x.T:contiguous():view(6))

--## x:copy_
print(heed.zeros(2, 3):copy_(heed.tensor { 1, 2, 3 }))

--## x:fill_
print(heed.empty(2, 2):fill_(0.5))

--## x:zero_
print(heed.ones(3):zero_())

--## x:to_string
print(#heed.tensor { 1, 2, 3 }:to_string()) -- 4 bytes each

--## x:release, x:is_released
local x = heed.zeros(1000, 1000)
x:release() -- now, instead of when the garbage collector comes
print(x:is_released(), (pcall(heed.sum, x)))

--## heed.set_printoptions
local x = heed.tensor { 1 / 3, 1e-6 }
print(x)
heed.set_printoptions { precision = 2, sci_mode = false }
print(x)
