--- Diagonals and triangles of matrices, composed of other operations.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"
local noted = core.modules.noted

local diagonals = {}

local WHOLE = { dtype = "int64" }
local EMBED, DIAG, OFFSET = { "offset", "dim1", "dim2" }, { "diagonal" }, { "offset" }

--- A matrix, or several, with x along the diagonal in dimensions dim1 < dim2 of the result (from 1).
local function embed(method, x, offset, dim1, dim2)
  local shape, ndim = A.sizes(x)
  local count = table.remove(shape) or 1
  local size = count + math.abs(offset)
  if size >= 2 ^ 53 then E.fail("%s: offset is %d; the result would be too large", method, offset) end
  table.insert(shape, dim1, size)
  table.insert(shape, dim2, size)
  local result = core.zeros(shape, { dtype = x.dtype })
  if count == 0 then return result end
  local places, whole = {}, {}
  for d = 1, #shape do places[d] = whole end
  local row, column = math.max(0, -offset), math.max(0, offset)
  places[dim1] = core.range(row + 1, row + count, WHOLE)
  places[dim2] = core.range(column + 1, column + count, WHOLE)
  if ndim == 0 then x = x:unsqueeze(1) end
  result[places] = x:movedim(-1, dim2 == dim1 + 1 and dim1 or 1) -- where the indices put their dimension
  return result
end

--- diag_embed(x, offset = 0, dim1 = -2, dim2 = -1): the last dimension of x becomes a diagonal.
function diagonals.diag_embed(x, ...)
  E.check_tensor(x, "diag_embed", "x")
  local offset, dim1, dim2 = A.options("diag_embed", EMBED, 2, x, ...)
  local ndim = math.max(x.ndim, 1) + 1
  offset = offset == nil and 0 or A.integer(offset, "diag_embed", "offset")
  dim1 = A.dim(dim1 == nil and -2 or dim1, ndim, "diag_embed", "dim1")
  dim2 = A.dim(dim2 == nil and -1 or dim2, ndim, "diag_embed", "dim2")
  if dim1 == dim2 then E.fail("diag_embed: dim1 and dim2 are both %d; they must differ", dim1) end
  if dim1 > dim2 then dim1, dim2, offset = dim2, dim1, -offset end
  return embed("diag_embed", x, offset, dim1, dim2)
end

--- diag(x, diagonal = 0): the matrix with x [n] on that diagonal, or that diagonal of a matrix x, copied.
function diagonals.diag(x, ...)
  E.check_tensor(x, "diag", "x")
  local offset = A.options("diag", DIAG, 2, x, ...)
  offset = offset == nil and 0 or A.integer(offset, "diag", "diagonal")
  if x.ndim == 1 then return noted("DiagEmbedBackward0", x, embed("diag", x, offset, 1, 2)) end
  if x.ndim == 2 then return noted("DiagonalBackward0_copy", x, x:diagonal(offset):clone()) end
  return E.reject("diag", "x", x, "a tensor of 1 or 2 dimensions (use diagonal or diag_embed)")
end

--- diagflat(x, offset = 0): the matrix with the elements of x on that diagonal.
function diagonals.diagflat(x, ...)
  E.check_tensor(x, "diagflat", "x")
  local offset = A.options("diagflat", OFFSET, 2, x, ...)
  offset = offset == nil and 0 or A.integer(offset, "diagflat", "offset")
  return embed("diagflat", x:flatten(), offset, 1, 2)
end

--- trace(x): the sum of the diagonal of a matrix.
function diagonals.trace(x)
  E.check_operand(x, "trace", "x", 2)
  return x:diagonal():sum()
end

--- block_diag(tensors…): the matrix with these matrices (numbers and rows, too) along its diagonal.
function diagonals.block_diag(...)
  local list, count = A.tensors({ n = select("#", ...), ... }, "block_diag")
  local blocks, parts, rows, columns = {}, {}, 0, 0
  for i = 1, count do
    if list[i].ndim > 2 then
      E.reject("block_diag", ("tensors[%d]"):format(i), list[i], "a tensor of at most 2 dimensions")
    end
    if i % 1024 == 0 then E.check_cancel "block_diag" end
    blocks[i] = list[i].ndim < 2 and list[i]:view(1, -1) or list[i]
    parts[i] = blocks[i]:narrow(1, 1, 0):flatten() -- no elements: for their common dtype
    rows, columns = rows + blocks[i].shape[1], columns + blocks[i].shape[2]
  end
  local result = core.zeros(rows, columns, { dtype = core.cat(parts).dtype })
  local row, column = 1, 1
  for i = 1, count do
    if i % 1024 == 0 then E.check_cancel "block_diag" end
    local height, width = blocks[i].shape[1], blocks[i].shape[2]
    result[{ { row, row + height - 1 }, { column, column + width - 1 } }] = blocks[i]
    row, column = row + height, column + width
  end
  return result
end

-- ---- Indices of triangles ----

local function triangle(method, keep, row, col, ...)
  local offset = A.options(method, OFFSET, 3, row, col, ...)
  row, col = A.integer(row, method, "row"), A.integer(col, method, "col")
  offset = offset == nil and 0 or A.integer(offset, method, "offset")
  if row < 0 then E.reject(method, "row", row, "0 or more") end
  if col < 0 then E.reject(method, "col", col, "0 or more") end
  local mask = core.ones(row, col, { dtype = "bool" })
  mask = mask[keep](mask, offset)
  local rows, columns = core.arange(1, row + 1):view(row, 1), core.arange(1, col + 1):view(1, col)
  return core.stack { rows:expand(row, col):masked_select(mask), columns:expand(row, col):masked_select(mask) }
end

--- tril_indices(row, col, offset = 0): the indices, from 1, of the lower triangle of a matrix, int64 [2, count].
function diagonals.tril_indices(...) return triangle("tril_indices", "tril", ...) end

--- triu_indices(row, col, offset = 0): of the upper triangle.
function diagonals.triu_indices(...) return triangle("triu_indices", "triu", ...) end

E.with_names(diagonals, {
  diag_embed = "DiagEmbedBackward0", diagflat = "DiagEmbedBackward0", trace = "TraceBackward0",
  block_diag = "BlockDiagBackward0",
})
return E.with_frames(diagonals)
