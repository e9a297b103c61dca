--- Operations on shapes, composed of others: rolling, repeating, moving dimensions.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"

local shapes = {}

-- ---- Rolling and repeating ----

local ROLL = { "shifts", "dims" }

--- roll(x, shifts, dims): element i moves to i + shift, and what leaves the end comes back at the beginning. Without
--- dims, x is rolled as if flattened.
function shapes.roll(x, ...)
  E.check_tensor(x, "roll", "x")
  local shifts, dims = A.options("roll", ROLL, 2, x, ...)
  shifts = A.integer_or_list(shifts, "roll", "shifts")
  if dims == nil then
    if #shifts ~= 1 then
      E.fail("roll: shifts has %d values and dims is nil; dims must name as many dimensions", #shifts)
    end
    return shapes.roll(x:flatten(), shifts, 1):reshape(x.shape)
  end
  dims = A.integer_or_list(dims, "roll", "dims")
  if #shifts ~= #dims then
    E.fail("roll: shifts has %s and dims %s; there must be one shift for each dimension",
      E.count(#shifts, "value"), E.count(#dims, "value"))
  end
  local sizes, ndim = A.sizes(x)
  for i = 1, #dims do dims[i] = A.dim(dims[i], ndim, "roll", "dims") end
  local result
  for i = 1, #dims do
    local size = sizes[dims[i]] or 1
    local shift = size > 0 and shifts[i] % size or 0
    if shift > 0 then
      local y = result or x
      result = core.cat({ y:narrow(dims[i], size - shift + 1, shift), y:narrow(dims[i], 1, size - shift) }, dims[i])
    end
  end
  return result or x:clone()
end

--- x, as often along each dimension as `counts` says; there are at least as many counts as dimensions.
local function repeated(x, counts, method)
  local sizes, ndim = A.sizes(x)
  local shape, wanted, total = {}, {}, 1.0
  for i = 1, #counts do
    shape[i] = sizes[i - (#counts - ndim)] or 1
    if counts[i] < 0 then E.fail("%s: repeats[%d] is %d; it must be 0 or more", method, i, counts[i]) end
    local size = 1.0 * shape[i] * counts[i]
    total = total * size
    if size >= 2 ^ 53 or total >= 2 ^ 62 then
      E.fail("%s: x is %s and repeats is %s; the result would be too large", method, A.text(sizes), A.text(counts))
    end
    wanted[i] = shape[i] * counts[i]
  end
  if total == 0 then return core.zeros(wanted, { dtype = x.dtype }) end
  local result, inner = nil, 1 -- inner: the size of all dimensions from i on
  for i = #counts, 1, -1 do
    inner = inner * shape[i]
    if counts[i] ~= 1 then
      local outer = A.product(shape, 1, i - 1)
      result = (result or x):reshape(outer, 1, inner):expand(outer, counts[i], inner):contiguous()
      inner = inner * counts[i]
    end
  end
  return (result or x:clone()):reshape(wanted)
end

--- tile(x, repeats…): ones are added in front of too few counts.
function shapes.tile(x, ...)
  E.check_tensor(x, "tile", "x")
  local counts, ndim = A.integers("tile", "repeats", ...), x.ndim
  while #counts < ndim do table.insert(counts, 1, 1) end
  return repeated(x, counts, "tile")
end

--- x["repeat"](x, repeats…): one count for each dimension, or more for new ones in front.
shapes["repeat"] = function(x, ...)
  E.check_tensor(x, "repeat", "x")
  local counts, ndim = A.integers("repeat", "repeats", ...), x.ndim
  if #counts < ndim then
    E.fail("repeat: repeats has %s and x has %s; there must be at least as many: use tile, which adds ones in front",
      E.count(#counts, "value"), E.count(ndim, "dimension"))
  end
  return repeated(x, counts, "repeat")
end

-- ---- Splitting ----

local UNBIND = { "dim" }
local MOST = 2 ^ 20 -- a view takes some 400 bytes

--- unbind(x, dim = 1): a list of views, one for each element of the dimension.
function shapes.unbind(x, ...)
  E.check_tensor(x, "unbind", "x")
  local dim = A.options("unbind", UNBIND, 2, x, ...)
  local sizes, ndim = A.sizes(x)
  if ndim == 0 then E.fail "unbind: x has no dimensions; it must have at least 1" end
  dim = A.dim(dim == nil and 1 or dim, ndim, "unbind", "dim")
  local count = sizes[dim]
  if count > MOST then
    E.fail("unbind: the result would be %d tensors; it must be at most %d", count, MOST)
  end
  local list = {}
  for i = 1, count do
    if i % 1024 == 0 then E.check_cancel "unbind" end
    list[i] = x:select(dim, i)
  end
  return list
end

-- ---- Moving dimensions ----

local MOVE = { "source", "destination" }

local function move(method, x, ...)
  E.check_tensor(x, method, "x")
  local source, destination = A.options(method, MOVE, 2, x, ...)
  source = A.integer_or_list(source, method, "source")
  destination = A.integer_or_list(destination, method, "destination")
  local ndim, from, taken = x.ndim, {}, {}
  if #source ~= #destination then
    E.fail("%s: source has %s and destination %s; there must be as many", method, E.count(#source, "dimension"),
      E.count(#destination, "dimension"))
  end
  for i = 1, #source do
    local a = A.dim(source[i], ndim, method, "source")
    local b = A.dim(destination[i], ndim, method, "destination")
    if taken[a] then E.fail("%s: source names dimension %d twice; it must name it once", method, a) end
    if from[b] then E.fail("%s: destination names dimension %d twice; it must name it once", method, b) end
    from[b], taken[a] = a, true
  end
  if ndim == 0 then return x:permute {} end
  local next_one = 1
  for i = 1, ndim do
    if not from[i] then
      while taken[next_one] do next_one = next_one + 1 end
      from[i], taken[next_one] = next_one, true
    end
  end
  return x:permute(from)
end

--- movedim(x, source, destination): dimensions, or tables of as many; the others keep their order.
function shapes.movedim(x, ...) return move("movedim", x, ...) end
function shapes.moveaxis(x, ...) return move("moveaxis", x, ...) end

-- ---- Shapes of other tensors ----

--- expand_as(x, other), view_as, reshape_as: x:expand(other.shape) and so on.
for _, name in ipairs { "expand", "view", "reshape" } do
  local method = name .. "_as"
  shapes[method] = function(x, other)
    E.check_tensor(x, method, "x")
    E.check_tensor(other, method, "other")
    return x[name](x, other.shape)
  end
end

local UNFLATTEN = { "dim", "sizes" }

--- unflatten(x, dim, sizes): a view with the dimension divided; one size may be -1.
function shapes.unflatten(x, ...)
  E.check_tensor(x, "unflatten", "x")
  local dim, sizes = A.options("unflatten", UNFLATTEN, 2, x, ...)
  local shape, ndim = A.sizes(x)
  if ndim == 0 then E.fail "unflatten: x has no dimensions; it must have at least 1" end
  dim = A.dim(dim, ndim, "unflatten", "dim")
  if type(sizes) ~= "table" then E.reject("unflatten", "sizes", sizes, "a table of sizes") end
  sizes = A.integers("unflatten", "sizes", sizes)
  if #sizes == 0 then E.fail "unflatten: sizes is empty; it must have at least 1 size" end
  local product, open = 1, nil
  for i = 1, #sizes do
    if sizes[i] < -1 or sizes[i] == -1 and open then
      E.fail("unflatten: sizes is %s; it must have sizes of 0 or more and at most one of -1", A.text(sizes))
    end
    if sizes[i] == -1 then open = i else product = product * sizes[i] end
  end
  local wanted = A.text(sizes)
  if open and product > 0 and shape[dim] % product == 0 then
    sizes[open] = math.floor(shape[dim] / product)
    product = shape[dim]
  end
  if product ~= shape[dim] or open and sizes[open] == -1 then
    E.fail("unflatten: dimension %d has size %d and sizes is %s; their product must be %d", dim, shape[dim], wanted,
      shape[dim])
  end
  table.remove(shape, dim)
  for i = #sizes, 1, -1 do table.insert(shape, dim, sizes[i]) end
  return x:view(shape)
end

E.with_names(shapes, {
  roll = "RollBackward0", tile = "RepeatBackward0", ["repeat"] = "RepeatBackward0", unbind = "UnbindBackward0",
})
return E.with_frames(shapes)
