--- Products of tensors, composed of other operations.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"

local products = {}

--- outer(a, b): a [n] and b [m] give [n, m], the products of all pairs.
function products.outer(a, b)
  E.check_operand(a, "outer", "a", 1)
  E.check_operand(b, "outer", "b", 1)
  return a:unsqueeze(2) * b
end

--- Raises that the shapes of a and b do not fit.
local function fail_shapes(method, a_name, a, b_name, b, rule, ...)
  E.fail("%s: %s is %s and %s is %s; " .. rule, method, a_name, A.text(A.sizes(a)), b_name, A.text(A.sizes(b)), ...)
end

--- The product of matrices (or batches of them) with these numbers of dimensions, whose shapes are checked here, so
--- that messages name `method` and its arguments.
local function product(method, a_name, a, a_ndim, b_name, b, b_ndim)
  E.check_operand(a, method, a_name, a_ndim)
  E.check_operand(b, method, b_name, b_ndim)
  local m, n = A.sizes(a), A.sizes(b)
  if a_ndim == 3 and m[1] ~= n[1] then
    fail_shapes(method, a_name, a, b_name, b, "the first sizes must be equal (%d and %d)", m[1], n[1])
  end
  local inner = n[math.max(b_ndim - 1, 1)]
  if m[a_ndim] ~= inner then
    fail_shapes(method, a_name, a, b_name, b, "the last size of %s (%d) must equal the %s size of %s (%d)", a_name,
      m[a_ndim], b_ndim == 3 and "second" or "first", b_name, inner)
  end
  return a:matmul(b)
end

--- mv(x, vec): x [n, m] and vec [m] give [n].
function products.mv(x, vec) return product("mv", "x", x, 2, "vec", vec, 1) end

--- bmm(x, mat2): x [b, n, m] and mat2 [b, m, p] give [b, n, p].
function products.bmm(x, mat2) return product("bmm", "x", x, 3, "mat2", mat2, 3) end

-- ---- With addition: beta · x + alpha · (a · b) ----

local FACTORS = { "beta", "alpha" }

local function add_product(method, x, a_name, a, a_ndim, b_name, b, b_ndim, ...)
  E.check_operand(x, method, "x")
  local beta, alpha = A.options(method, FACTORS, 4, x, a, b, ...)
  for i, factor in ipairs { beta == nil and 1 or beta, alpha == nil and 1 or alpha } do
    if type(factor) ~= "number" then E.reject(method, FACTORS[i], factor, "a number") end
  end
  local y = product(method, a_name, a, a_ndim, b_name, b, b_ndim)
  local sizes, wanted = A.sizes(x), A.sizes(y)
  local fits = #sizes <= #wanted
  for i = 1, fits and #sizes or 0 do
    local size = sizes[#sizes + 1 - i]
    fits = fits and (size == 1 or size == wanted[#wanted + 1 - i])
  end
  if not fits then fail_shapes(method, "x", x, "the product", y, "x must broadcast to the product") end
  if alpha ~= nil and alpha ~= 1 then y = y * alpha end
  if beta == 0 then return y end -- as in PyTorch: what x holds, nan included, does not matter
  return (beta == nil or beta == 1) and x + y or x * beta + y
end

--- addmm(x, mat1, mat2, {beta = 1, alpha = 1}): x broadcasts to [n, p]; mat1 [n, m], mat2 [m, p].
function products.addmm(x, mat1, mat2, ...) return add_product("addmm", x, "mat1", mat1, 2, "mat2", mat2, 2, ...) end

--- addmv(x, mat, vec, {beta = 1, alpha = 1}): x broadcasts to [n]; mat [n, m], vec [m].
function products.addmv(x, mat, vec, ...) return add_product("addmv", x, "mat", mat, 2, "vec", vec, 1, ...) end

--- baddbmm(x, batch1, batch2, {beta = 1, alpha = 1}): x broadcasts to [b, n, p]; batch1 [b, n, m], batch2 [b, m, p].
function products.baddbmm(x, batch1, batch2, ...)
  return add_product("baddbmm", x, "batch1", batch1, 3, "batch2", batch2, 3, ...)
end

-- ---- Over chosen dimensions ----

--- The sum over dimensions a_dims of a and b_dims of b (lists from 1), which have equal sizes: the other dimensions of
--- a, then those of b.
local function contract(a, b, a_dims, b_dims)
  local a_sizes, a_ndim = A.sizes(a)
  local b_sizes, b_ndim = A.sizes(b)
  local function others(ndim, dims)
    local named, list = {}, {}
    for _, d in ipairs(dims) do named[d] = true end
    for d = 1, ndim do
      if not named[d] then list[#list + 1] = d end
    end
    return list
  end
  local a_order, b_order, shape = others(a_ndim, a_dims), {}, {}
  local rows, inner, columns = 1, 1, 1
  for _, d in ipairs(a_order) do
    rows, shape[#shape + 1] = rows * a_sizes[d], a_sizes[d]
  end
  for _, d in ipairs(a_dims) do a_order[#a_order + 1], inner = d, inner * a_sizes[d] end
  for _, d in ipairs(b_dims) do b_order[#b_order + 1] = d end
  for _, d in ipairs(others(b_ndim, b_dims)) do
    b_order[#b_order + 1], columns, shape[#shape + 1] = d, columns * b_sizes[d], b_sizes[d]
  end
  return a:permute(a_order):reshape(rows, inner):matmul(b:permute(b_order):reshape(inner, columns)):reshape(shape)
end

--- inner(x, other): the sum over the last dimensions; for numbers, their product.
function products.inner(x, other)
  E.check_operand(x, "inner", "x")
  E.check_operand(other, "inner", "other")
  local a, b = x.ndim, other.ndim
  if a == 0 or b == 0 then return x * other end
  if x.shape[a] ~= other.shape[b] then
    fail_shapes("inner", "x", x, "other", other, "the last sizes must be equal (%d and %d)", x.shape[a], other.shape[b])
  end
  return contract(x, other, { a }, { b })
end

local TENSORDOT = { "dims" }

--- tensordot(x, other, dims = 2): over the last `dims` dimensions of x and the first of other, or over
--- {dimensions of x, dimensions of other}.
function products.tensordot(x, other, ...)
  E.check_operand(x, "tensordot", "x")
  E.check_operand(other, "tensordot", "other")
  local dims = A.options("tensordot", TENSORDOT, 3, x, other, ...)
  local a, b = x.ndim, other.ndim
  local a_dims, b_dims = {}, {}
  if type(dims) == "table" then
    a_dims = A.integer_or_list(rawget(dims, 1), "tensordot", "dims[1]")
    b_dims = A.integer_or_list(rawget(dims, 2), "tensordot", "dims[2]")
  else
    local count = dims == nil and 2 or A.integer(dims, "tensordot", "dims")
    if count < 0 or count > math.min(a, b) then
      E.fail("tensordot: dims is %d; it must be from 0 to %d, the number of dimensions that both have", count,
        math.min(a, b))
    end
    for i = 1, count do a_dims[i], b_dims[i] = a - count + i, i end
  end
  if #a_dims ~= #b_dims then
    E.fail("tensordot: dims names %s of x and %d of other; there must be as many", E.count(#a_dims, "dimension"),
      #b_dims)
  end
  local named = { {}, {} }
  for i = 1, #a_dims do
    a_dims[i] = A.dim(a_dims[i], a, "tensordot", "dims[1]")
    b_dims[i] = A.dim(b_dims[i], b, "tensordot", "dims[2]")
    if named[1][a_dims[i]] or named[2][b_dims[i]] then E.fail "tensordot: dims names a dimension twice" end
    named[1][a_dims[i]], named[2][b_dims[i]] = true, true
    if x.shape[a_dims[i]] ~= other.shape[b_dims[i]] then
      fail_shapes("tensordot", "x", x, "other", other, "dimension %d of x and %d of other must have equal sizes",
        a_dims[i], b_dims[i])
    end
  end
  return contract(x, other, a_dims, b_dims)
end

local CROSS = { "dim" }

--- cross(x, other, dim): the vector product along a dimension of size 3, by default the first one.
function products.cross(x, other, ...)
  E.check_operand(x, "cross", "x")
  E.check_operand(other, "cross", "other")
  local dim = A.options("cross", CROSS, 3, x, other, ...)
  local ndim = x.ndim
  if other.ndim ~= ndim then fail_shapes("cross", "x", x, "other", other, "they must have as many dimensions") end
  local a, b, shape = A.sizes(x), A.sizes(other), {}
  for i = 1, ndim do
    if a[i] ~= b[i] and a[i] ~= 1 and b[i] ~= 1 then
      fail_shapes("cross", "x", x, "other", other, "the sizes must be equal, or one of them 1")
    end
    shape[i] = a[i] == 1 and b[i] or a[i]
    if dim == nil and shape[i] == 3 then dim = i end
  end
  if dim == nil then fail_shapes("cross", "x", x, "other", other, "a dimension of both must have size 3") end
  dim = A.dim(dim, ndim, "cross", "dim")
  if a[dim] ~= 3 or b[dim] ~= 3 then
    fail_shapes("cross", "x", x, "other", other, "dimension %d of both must have size 3", dim)
  end
  local part = {}
  for i = 1, 3 do
    local j, k = i % 3 + 1, (i + 1) % 3 + 1
    part[i] = x:select(dim, j) * other:select(dim, k) - x:select(dim, k) * other:select(dim, j)
  end
  return core.stack(part, dim)
end

E.with_names(products, {
  bmm = "BmmBackward0", addmm = "AddmmBackward0", addmv = "AddmvBackward0", baddbmm = "BaddbmmBackward0",
  cross = "LinalgCrossBackward0",
})
return E.with_frames(products)
