--- Datasets: TensorDataset, Subset, ConcatDataset and random_split.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local items = require "heed.utils.data.items"
local object = require "heed.utils.data.object"
local unpack = compat.unpack

local M = {}

--- Adds len, get(i) and x[i] to the methods of a dataset whose class has `length` and `sample`.
local function dataset_class(name, readable, dataset)
  local class
  class = object.class(name, readable, {
    len = function(values) return dataset.length(values, "len") end,
    item = function(values, i)
      return dataset.sample(values, object.index(i, dataset.length(values, name), name), name)
    end,
    get = function(values, i)
      local sample = dataset.sample(values, object.index(i, dataset.length(values, "get"), "get"), "get")
      if object.is_list(sample) and #sample > 0 then return unpack(sample) end
      return sample
    end,
    tostring = function(values) return ("heed.%s(%d items)"):format(name, dataset.length(values, name)) end,
  }, { "get" })
  class.length, class.sample, class.batch = dataset.length, dataset.sample, dataset.batch
  return class
end

-- ---- TensorDataset ----

local Tensors = dataset_class("TensorDataset", { "tensors" }, {
  length = function(values) return values.tensors[1].shape[1] end,
  sample = function(values, i)
    local sample = {}
    for k, tensor in ipairs(values.tensors) do sample[k] = tensor:select(1, i) end
    return sample
  end,
  batch = function(values, indices)
    local batch = {}
    for k, tensor in ipairs(values.tensors) do batch[k] = tensor:index_select(1, indices) end
    return batch
  end,
})

--- Items along dimension 1 of several tensors: item i is the list {a[i], b[i], …}.
function M.TensorDataset(...)
  local given, method = compat.pack(...), "TensorDataset"
  if given.n == 1 and object.is_list(given[1]) then
    given = { n = #given[1], unpack(given[1]) }
  end
  if given.n == 0 then E.fail("%s: no tensor is given; it takes one or several", method) end
  local tensors = {}
  for k = 1, given.n do
    E.check_tensor(given[k], method, ("tensor %d"):format(k))
    if given[k].ndim == 0 then
      E.reject(method, ("tensor %d"):format(k), given[k], "a tensor of at least 1 dimension")
    end
    tensors[k] = given[k]
    if given[k].shape[1] ~= given[1].shape[1] then
      E.fail("%s: tensor %d has %d items and tensor 1 has %d; the tensors must agree in the size of dimension 1",
        method, k, given[k].shape[1], given[1].shape[1])
    end
  end
  return Tensors.new { tensors = tensors }
end

-- ---- Subset ----

local Subset = dataset_class("Subset", { "dataset", "indices" }, {
  length = function(values) return values.indices.shape[1] end,
  sample = function(values, i, method)
    return items.sample(values.dataset, values.indices:select(1, i):item(), method)
  end,
  batch = function(values, indices, method)
    return items.batch(values.dataset, values.indices:index_select(1, indices), method)
  end,
})

--- The items of a list or int64 tensor of indices, from 1 to n, as a new tensor [k].
function M.indices(given, n, method, argument)
  local list = given
  if E.is_tensor(given) then
    if given.dtype ~= "int64" or given.ndim ~= 1 then
      E.reject(method, argument, given, "int64 of 1 dimension, or a list")
    end
    list = given:clone()
  elseif object.is_list(given) then
    local own = {}
    for i = 1, #given do
      if i % 1024 == 0 then E.check_cancel(method) end
      own[i] = E.integer(given[i], nil, method, ("%s[%d]"):format(argument, i), "an integer")
    end
    list = #own > 0 and core.tensor(own, { dtype = "int64" }) or core.zeros(0, { dtype = "int64" })
  else
    E.reject(method, argument, given, "a list of indices, or an int64 tensor")
  end
  if list:numel() > 0 and (list:min():item() < 1 or list:max():item() > n) then
    local wrong = list:min():item() < 1 and list:min():item() or list:max():item()
    E.fail("%s: %s contains %d; the indices must be from 1 to %d, the number of items", method, argument, wrong, n)
  end
  return list
end

function M.Subset(dataset, indices)
  local method = "Subset"
  items.check(dataset, method, "dataset")
  indices = M.indices(indices, items.length(dataset, method), method, "indices")
  return Subset.new { dataset = dataset, indices = indices }
end

-- ---- ConcatDataset ----

local Concat = dataset_class("ConcatDataset", { "datasets" }, {
  length = function(values) return values.ends[#values.ends] end,
  sample = function(values, i, method)
    local low, high = 1, #values.ends -- the first dataset that ends at i or later
    while low < high do
      local middle = compat.divide(low + high, 2)
      if values.ends[middle] >= i then high = middle else low = middle + 1 end
    end
    return items.sample(values.datasets[low], i - (values.ends[low - 1] or 0), method)
  end,
})

--- The items of several datasets, one after the other. Their lengths are read once.
function M.ConcatDataset(datasets)
  local method = "ConcatDataset"
  if not object.is_list(datasets) or #datasets == 0 then
    E.reject(method, "datasets", datasets, "a list of at least one dataset")
  end
  local own, ends, total = {}, {}, 0
  for k = 1, #datasets do
    local dataset = datasets[k]
    if k % 64 == 0 then E.check_cancel(method) end
    items.check(dataset, method, ("dataset %d"):format(k))
    total = total + items.length(dataset, method)
    own[k], ends[k] = dataset, total
  end
  return Concat.new { datasets = own, ends = ends }
end

-- ---- random_split ----

-- Fractions as lengths, as PyTorch rounds them: down, and the rest one by one from the first.
local function lengths_of(lengths, n)
  local sum = 0
  for k = 1, #lengths do sum = sum + lengths[k] end
  if math.abs(sum - 1) > 1e-9 then return lengths, sum end
  local counts, left = {}, n
  for k = 1, #lengths do
    counts[k] = math.floor(n * lengths[k])
    left = left - counts[k]
  end
  for k = 1, left do
    local at = (k - 1) % #counts + 1
    counts[at] = counts[at] + 1
  end
  return counts, n
end

--- Subsets of random items, of these lengths or fractions, drawn as PyTorch draws them.
function M.random_split(dataset, lengths, ...)
  local method = "random_split"
  local generator = core.modules.options(method, { "generator" }, 3, dataset, lengths, ...)
  object.check_generator(generator, method)
  items.check(dataset, method, "dataset")
  if not object.is_list(lengths) or #lengths == 0 then
    E.reject(method, "lengths", lengths, "a list of lengths or fractions")
  end
  local own = {}
  for k = 1, #lengths do
    own[k] = E.number(lengths[k], nil, method, ("lengths[%d]"):format(k), function(x) return x >= 0 end,
      "a length or a fraction, at least 0")
  end
  local n = items.length(dataset, method)
  local counts, sum = lengths_of(own, n)
  for k, count in ipairs(counts) do
    counts[k] = E.integer(count, nil, method, ("lengths[%d]"):format(k), "an integer, or the sum must be 1")
  end
  if sum ~= n then
    E.fail("%s: the lengths add up to %s; they must add up to %d, the number of items, or be fractions that add up "
      .. "to 1", method, sum, n)
  end
  local order, parts, first = core.randperm(n, { generator = generator }), {}, 1
  for k, count in ipairs(counts) do
    parts[k] = Subset.new { dataset = dataset, indices = order:narrow(1, first, count):clone() }
    first = first + count
  end
  return parts
end

return M
