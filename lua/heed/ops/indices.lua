--- Operations on indices and values that occur several times, composed of other operations. Indices count from 1.

local A = require "heed.ops.arguments"
local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local options_of, fail = core.modules.options, E.fail

local indices = {}

local WHOLE = { dtype = "int64" }

--- The largest of the ids (int64), 0 if there are none; all must be at least 1.
local function largest_of(ids, method, argument)
  if ids:numel() == 0 then return 0 end
  local smallest = ids:min():item()
  if smallest < 1 then
    fail("%s: %s contains %d; it must contain integers from 1 on", method, argument, smallest)
  end
  return ids:max():item()
end

--- Raises unless the option is nil or a number of elements.
local function check_count(value, method, argument)
  if value ~= nil and not (compat.is_integer(value) and value >= 0) then
    E.reject(method, argument, value, "an integer, 0 or more")
  end
end

local ONE_HOT_OPTIONS = { "num_classes" }

--- one_hot(ids, num_classes): 1 at each id and 0 elsewhere, [..., num_classes], int64.
function indices.one_hot(ids, ...)
  local count = options_of("one_hot", ONE_HOT_OPTIONS, 2, ids, ...)
  if count == -1 then count = nil end
  check_count(count, "one_hot", "num_classes")
  ids = core.modules.indices(ids, "one_hot", "ids")
  local largest = largest_of(ids, "one_hot", "ids")
  if not count and ids:numel() == 0 then fail "one_hot: ids has no elements; num_classes must be given" end
  count = count or largest
  if largest > count then
    fail("one_hot: ids contains %d and num_classes is %d; it must be at least %d", largest, count, largest)
  end
  local shape = {}
  for d = 1, ids.ndim do shape[d] = ids.shape[d] end
  shape[#shape + 1] = count
  local result = core.zeros(shape, WHOLE)
  if ids:numel() == 0 then return result end
  return result:scatter_(-1, ids:unsqueeze(-1), 1)
end

--- argwhere(x): the indices of the elements that are not 0, [count, dimensions].
function indices.argwhere(x)
  E.check_tensor(x, "argwhere", "x")
  return x:nonzero()
end

local BINCOUNT_OPTIONS = { "weights", "minlength" }

--- bincount(ids, weights, minlength = 0): element i says how often i occurs, or the sum of its weights.
function indices.bincount(ids, ...)
  local weights, least = options_of("bincount", BINCOUNT_OPTIONS, 2, ids, ...)
  check_count(least, "bincount", "minlength")
  least = least or 0
  ids = core.modules.indices(ids, "bincount", "ids")
  if ids.ndim ~= 1 then E.reject("bincount", "ids", ids, "a tensor of 1 dimension") end
  if weights ~= nil then
    E.check_operand(weights, "bincount", "weights", 1)
    if #weights ~= #ids then
      fail("bincount: weights has %s and ids has %d; there must be a weight for each id",
        E.count(#weights, "element"), #ids)
    end
    weights = weights:float()
  else
    weights = core.ones(1, WHOLE):expand(#ids)
  end
  local count = largest_of(ids, "bincount", "ids")
  return core.zeros(count > least and count or least, { dtype = weights.dtype }):index_add_(1, ids, weights)
end

local TAKE_OPTIONS = { "indices", "dim" }

--- take_along_dim(x, indices, dim): gather with indices and x broadcast together except in dim; without dim, elements
--- of the flattened x.
function indices.take_along_dim(x, ...)
  local index, dim = options_of("take_along_dim", TAKE_OPTIONS, 2, x, ...)
  E.check_tensor(x, "take_along_dim", "x")
  index = core.modules.indices(index, "take_along_dim", "indices")
  if dim == nil then return x:flatten():gather(1, index:flatten()) end
  if x.ndim ~= index.ndim then
    fail("take_along_dim: indices has %s and x has %d; these numbers must be equal",
      E.count(index.ndim, "dimension"), x.ndim)
  end
  dim = A.dim(dim, x.ndim, "take_along_dim", "dim")
  local whole, wanted = {}, {}
  for d = 1, x.ndim do
    local a, b = x.shape[d], index.shape[d]
    whole[d], wanted[d] = a, b
    if d ~= dim then
      if a ~= b and a ~= 1 and b ~= 1 then
        fail("take_along_dim: indices has size %d and x has size %d in dimension %d; they must be equal, or 1", b, a, d)
      end
      local size = a == 1 and b or a
      whole[d], wanted[d] = size, size
    end
  end
  return x:expand(whole):gather(dim, index:expand(wanted))
end

local UNIQUE_OPTIONS = { "sorted", "return_inverse", "return_counts" }

--- unique(x, sorted = true, return_inverse = false, return_counts = false): the different elements, in order; then, if
--- wanted, the index among them of each element of x, and how often each occurs.
function indices.unique(x, ...)
  local ordered, inverse, counts = options_of("unique", UNIQUE_OPTIONS, 2, x, ...)
  E.check_operand(x, "unique", "x")
  E.boolean(ordered, true, "unique", "sorted")
  inverse = E.boolean(inverse, false, "unique", "return_inverse")
  counts = E.boolean(counts, false, "unique", "return_counts")
  local n = x:numel()
  local sorted, order = x:flatten():sort()
  local begins = core.ones(n, { dtype = "bool" }) -- where another value begins
  if n > 1 then begins:narrow(1, 2, n - 1):copy_(sorted:narrow(1, 2, n - 1):ne(sorted:narrow(1, 1, n - 1))) end
  local results, found = { sorted:masked_select(begins) }, 1
  if inverse then
    found = found + 1
    results[found] = core.zeros(n, WHOLE):scatter_(1, order, begins:cumsum(1)):view(x.shape)
  end
  if counts then
    found = found + 1
    local starts = begins:nonzero():flatten()
    results[found] = starts
    if n > 0 then
      results[found] = core.cat { starts:narrow(1, 2, #starts - 1), core.tensor({ n + 1 }, WHOLE) } - starts
    end
  end
  return compat.unpack(results, 1, found)
end

return E.with_frames(indices)
