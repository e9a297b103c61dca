-- Views, joining and rearranging. See ../examples.lua.

--## x:view
local x = heed.range(1, 6)
local matrix = x:view(2, -1) -- -1: what fits
matrix[{ 1, 1 }] = 100 -- both are the same elements
print(matrix, x)

--## x:reshape
local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
print(x.T:reshape(6)) -- x.T:view(6) would be an error

--## x:expand
print(heed.tensor { { 1 }, { 2 } }:expand(2, 3))

--## x:expand_as
print(heed.tensor { 1, 2, 3 }:expand_as(heed.zeros(2, 3)))

--## x:view_as
print(heed.range(1, 4):view_as(heed.zeros(2, 2)))

--## x:reshape_as
print(heed.range(1, 4):reshape_as(heed.zeros(2, 2)))

--## x:permute
print(heed.zeros(2, 3, 4):permute(3, 1, 2).shape)

--## x:transpose
print(heed.zeros(2, 3, 4):transpose(2, 3).shape)
print(heed.tensor { { 1, 2 }, { 3, 4 } }:transpose(1, 2))

--## x:movedim
print(heed.zeros(2, 3, 4):movedim(1, -1).shape)

--## x:t
print(heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:t())

--## x:narrow
print(heed.range(10, 15):narrow(1, 2, 3))

--## x:select
local x = heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
print(x:select(2, 3), x:select(1, -1))

--## x:unsqueeze
print(heed.zeros(3):unsqueeze(1).shape, heed.zeros(3):unsqueeze(-1).shape)

--## x:squeeze
local x = heed.zeros(1, 3, 1)
print(x:squeeze().shape, x:squeeze(1).shape)

--## x:flatten
print(heed.zeros(2, 3, 4):flatten().shape, heed.zeros(2, 3, 4):flatten(2).shape)

--## x:unflatten
print(heed.zeros(2, 6):unflatten(2, { 3, -1 }).shape) -- 6 features as 3 heads of size 2

--## x:diagonal
local x = heed.tensor { { 1, 2 }, { 3, 4 } }
x:diagonal():fill_(0)
print(x, x:diagonal(1))

--## x:unfold
print(heed.range(1, 5):unfold(1, 3, 1))

--## x:unbind
for i, row in ipairs(heed.tensor { { 1, 2 }, { 3, 4 } }:unbind()) do print(i, row) end

--## x:split
local parts = heed.range(1, 5):split(2)
print(parts[1], parts[2], parts[3])
local q, k = table.unpack(heed.zeros(4, 6):split({ 4, 2 }, 2))
print(q.shape, k.shape)

--## x:chunk
local q, k, v = table.unpack(heed.zeros(4, 6):chunk(3, -1))
print(q.shape, k.shape, v.shape)

--## heed.cat
local a, b = heed.ones(2, 2), heed.zeros(1, 2)
print(heed.cat({ a, b }))
print(heed.cat({ a, a }, { dim = 2 }))

--## heed.stack
print(heed.stack { heed.tensor { 1, 2 }, heed.tensor { 3, 4 } })

--## heed.hstack
print(heed.hstack(heed.ones(2, 1), heed.zeros(2, 2)))

--## heed.vstack
print(heed.vstack(heed.tensor { 1, 2 }, heed.tensor { 3, 4 }))

--## heed.dstack
print(heed.dstack(heed.tensor { 1, 2 }, heed.tensor { 3, 4 }))

--## heed.column_stack
print(heed.column_stack(heed.tensor { 1, 2 }, heed.tensor { 3, 4 }))

--## heed.meshgrid
local grid = heed.meshgrid(heed.range(1, 2), heed.range(1, 3))
print(grid[1], grid[2])

--## x:flip
print(heed.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:flip(2))

--## x:roll
print(heed.range(1, 5):roll(2))

--## x:tile
print(heed.tensor { { 1, 2 } }:tile(2, 2))

--## x:repeat
print(heed.tensor { 1, 2 }["repeat"](heed.tensor { 1, 2 }, 3)) -- repeat is a word of Lua; tile does the same

--## x:pad
print(heed.tensor { { 1, 2 } }:pad { 1, 0, 0, 1 })
print(heed.range(1, 3):view(1, 3):pad({ 2, 2 }, "reflect"))

--## x:diag
print(heed.tensor { 1, 2 }:diag())
print(heed.tensor { { 1, 2 }, { 3, 4 } }:diag())

--## x:diag_embed
print(heed.tensor { { 1, 2 }, { 3, 4 } }:diag_embed())

--## x:diagflat
print(heed.tensor { 1, 2 }:diagflat(1))
