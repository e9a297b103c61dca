-- Indexing, finding and writing. See ../examples.lua.

--## x:index_select
print(heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:index_select(2, { 3, 1 }))

--## x:gather
local logprobs, targets = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }, heed.tensor({ { 3 }, { 1 } }, "int64")
print(logprobs:gather(2, targets))

--## x:masked_select
local x = heed.tensor { 1, -2, 3 }
print(x:masked_select(x:gt(0)))

--## x:repeat_interleave
print(heed.tensor { 1, 2 }:repeat_interleave(3))
print(heed.tensor { 1, 2 }:repeat_interleave { 1, 3 })

--## x:pack
local x = heed.tensor { { 1, 2, 0 }, { 3, 4, 5 } } -- two sequences, padded to 3
print(x:pack { 2, 3 })

--## x:unpack
print(heed.range(1, 5):unpack { 2, 3 })

--## x:take_along_dim
local x = heed.tensor { { 3, 1, 2 }, { 6, 5, 4 } }
print(x:take_along_dim(x:argsort(2), 2))

--## x:nonzero
local x = heed.tensor { { 1, 0 }, { 0, 2 } }
print(x:nonzero())
print(x[x:nonzero(true)])

--## x:argwhere
print(heed.tensor { 0, 5, 0, 7 }:argwhere())

--## x:searchsorted
local sorted = heed.tensor { 1, 3, 5 }
print(sorted:searchsorted(heed.tensor { 0, 3, 9 }))
print(sorted:searchsorted(heed.tensor { 3 }, { right = true }))

--## x:bucketize
print(heed.tensor { 0.5, 2, 10 }:bucketize(heed.tensor { 1, 2, 3 }))

--## x:unique
print(heed.tensor { 3, 1, 3 }:unique())
local values, counts = heed.tensor { 3, 1, 3 }:unique { return_counts = true }
print(values, counts)

--## x:bincount
print(heed.tensor({ 1, 3, 3 }, "int64"):bincount { minlength = 4 })

--## x:one_hot
print(F.one_hot({ 2, 1, 3 }, 3))

--## x:scatter
print(heed.zeros(2, 3):scatter(2, { { 3 }, { 1 } }, 1))

--## x:scatter_add
local words, weights = heed.tensor({ 1, 2, 1 }, "int64"), heed.tensor { 0.5, 0.2, 0.3 }
print(heed.zeros(2):scatter_add(1, words, weights))

--## x:index_add
print(heed.zeros(3, 2):index_add(1, { 3, 3 }, heed.ones(2, 2)))

--## x:index_copy
print(heed.zeros(3, 2):index_copy(1, { 2 }, heed.tensor { { 7, 8 } }))

--## x:index_fill
print(heed.zeros(2, 3):index_fill(2, { 1, 3 }, 9))

--## x:index_put
local x = heed.zeros(2, 2)
print(x:index_put({ { 1, 2 }, { 2, 1 } }, heed.tensor { 5, 6 }))
x[{ { { 1, 2 } }, 2 }] = -1 -- the same by an assignment
print(x)
