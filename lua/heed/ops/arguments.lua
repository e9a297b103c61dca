--- Reading arguments of operations that are written in Lua: integers, dimensions, sizes, lists of tensors.

local E = require "heed.nn.entries"
local core = require "heed.core"

local MAX_DIMS = 16
local MOST = 2 ^ 20 -- growing a larger table takes longer than a call may take to stop

local arguments = { options = core.modules.options, MAX_DIMS = MAX_DIMS }

--- The value of an integer, which may be a float with an integral value.
function arguments.integer(value, method, name)
  if type(value) ~= "number" or value % 1 ~= 0 or value < -2 ^ 63 or value >= 2 ^ 63 then
    E.reject(method, name, value, "an integer")
  end
  return math.floor(value)
end

--- A dimension of a tensor with `ndim` dimensions, counted from 1.
function arguments.dim(value, ndim, method, name)
  local dim = arguments.integer(value, method, name)
  local count = math.max(ndim, 1) -- a tensor without dimensions has dimension 1, as in PyTorch
  if dim == 0 or dim > count or dim < -count then
    E.fail("%s: %s is %d and the tensor has %s; it must be %s", method, name, dim, E.count(ndim, "dimension"),
      count == 1 and "1 or -1" or ("from 1 to %d, or from -1 to -%d"):format(count, count))
  end
  return dim < 0 and dim + count + 1 or dim
end

--- Whether a key is the index of an element of a list, of `count` elements if that is given.
local function is_index(key, count)
  return type(key) == "number" and key % 1 == 0 and key >= 1 and (not count or key <= count)
end

local function fail_key(method, name, key)
  E.fail("%s: the table of %s has the key %s; options must be in a table of their own", method, name,
    type(key) == "string" and ("'%s'"):format(key) or tostring(key))
end

--- The number of elements of a list, without metamethods; at most one more than `most`.
local function length(list, most, method)
  local count = 0
  while count <= most and rawget(list, count + 1) ~= nil do
    count = count + 1
    if count % 4096 == 0 then E.check_cancel(method) end
  end
  return count
end

--- A copy of a table of at most `most` integers.
function arguments.integers_of(list, most, method, name)
  local copy, count = {}, length(list, most, method)
  if count > most then
    E.fail("%s: %s has more than %d values; it must have at most %d", method, name, most, most)
  end
  for key in next, list do
    if is_index(key) and key > count then E.reject(method, ("%s[%d]"):format(name, count + 1), nil, "an integer") end
    if not is_index(key) then fail_key(method, name, key) end
  end
  for i = 1, count do copy[i] = arguments.integer(rawget(list, i), method, ("%s[%d]"):format(name, i)) end
  return copy
end

--- A list of integers, given as numbers or as one table. Returns a copy.
function arguments.integers(method, name, ...)
  local given, count = { ... }, select("#", ...)
  if type(given[1]) == "table" then
    if count > 1 then E.reject(method, name, given[2], "in the same table as the others") end
    return arguments.integers_of(given[1], MAX_DIMS, method, name)
  end
  if count > MAX_DIMS then E.fail("%s: a tensor has at most %d dimensions", method, MAX_DIMS) end
  for i = 1, count do
    given[i] = arguments.integer(given[i], method, count == 1 and name or ("%s[%d]"):format(name, i))
  end
  return given
end

--- One integer, or a table of them: a list.
function arguments.integer_or_list(value, method, name)
  if type(value) == "table" then return arguments.integers(method, name, value) end
  return { arguments.integer(value, method, name) }
end

--- A copy of a list of tensors. It may be one table, or separate arguments in {n =, …}. `name` is that of the list.
function arguments.tensors(given, method, name)
  name = name or "tensors"
  local list, count = given, given.n
  if count == 1 and type(given[1]) == "table" then
    local source, seen = given[1], 0
    list, count = {}, length(source, MOST, method)
    if count > MOST then
      E.fail("%s: %s has more than %d tensors; it must have at most %d (cat and stack take more)", method, name, MOST,
        MOST)
    end
    for key, value in next, source do
      seen = seen + 1
      if seen % 1024 == 0 then E.check_cancel(method) end
      if is_index(key, count) then
        list[key] = value
      elseif is_index(key) or key == "n" and is_index(value) and value > count then
        E.fail("%s: %s[%d] is nil; it must be a tensor: a list must have no holes", method, name, count + 1)
      elseif key ~= "n" then
        fail_key(method, name, key)
      end
    end
  end
  if count == 0 then E.fail("%s: %s is empty; it must have at least 1 tensor", method, name) end
  for i = 1, count do
    local kind = E.kind(list[i])
    if kind ~= "tensor" and kind ~= "parameter" then E.check_tensor(list[i], method, ("%s[%d]"):format(name, i)) end
    if i % 4096 == 0 then E.check_cancel(method) end
  end
  return list, count
end

--- The sizes of a tensor as a plain list, and how many they are.
function arguments.sizes(x)
  local shape, sizes = x.shape, {}
  for i = 1, #shape do sizes[i] = shape[i] end
  return sizes, #sizes
end

--- The product of list[first…last].
function arguments.product(list, first, last)
  local product = 1
  for i = first or 1, last or #list do product = product * list[i] end
  return product
end

--- "[2, 3]"
function arguments.text(sizes)
  local parts = {}
  for i = 1, #sizes do parts[i] = ("%d"):format(sizes[i]) end
  return ("[%s]"):format(table.concat(parts, ", "))
end

return arguments
