--- Samplers: the order in which a loader visits a dataset. Their draws are PyTorch's.
--
-- A sampler of heed's draws an epoch with `start`: int64 [n], counted from 1. `finish` is called when a loader asks for
-- more than that. A sampler of the user is a list of indices, a function that returns an iterator over indices, or an
-- object with the method iter, which returns one.

local core = require "heed.core"
local E = require "heed.nn.entries"
local datasets = require "heed.utils.data.datasets"
local items = require "heed.utils.data.items"
local object = require "heed.utils.data.object"
local options = core.modules.options

local M = {}

-- 32 random bits: what PyTorch's seeds of 64 bits contribute. One draw of 64 bits.
local function draw_seed(generator) return core.randint(0, 4294967295, { 1 }, { generator = generator })[1] end
M.draw_seed = draw_seed

-- The generator of an epoch: without one, a new one seeded by the default generator, as in PyTorch.
local function generator_of(values)
  return values.generator or core.Generator(draw_seed())
end

local function sampler_class(name, readable, sampler)
  local class
  class = object.class(name, readable, {
    len = function(values) return sampler.length(values) end,
    iter = function(values)
      local order, i = nil, 0
      return core.frame(function()
        if not order then order = sampler.start(values) end
        i = i + 1
        if i <= order:numel() then return order[i] end
        if i == order:numel() + 1 and sampler.finish then sampler.finish(values) end
      end)
    end,
    tostring = function(values) return ("heed.%s(%d items)"):format(name, sampler.length(values)) end,
  })
  class.start, class.finish, class.length, class.sampler = sampler.start, sampler.finish, sampler.length, true
  return class
end

-- ---- One after the other ----

local Sequential = sampler_class("SequentialSampler", { "data_source" }, {
  length = function(values) return items.length(values.data_source, "SequentialSampler") end,
  start = function(values)
    local n = items.length(values.data_source, "SequentialSampler")
    return n > 0 and core.range(1, n):long() or core.zeros(0, { dtype = "int64" })
  end,
})

function M.SequentialSampler(dataset)
  items.check(dataset, "SequentialSampler", "dataset")
  return Sequential.new { data_source = dataset }
end

-- ---- Shuffled ----

local function count_of(values) return values.num_samples or items.length(values.data_source, "RandomSampler") end

local Random = sampler_class("RandomSampler", { "data_source", "replacement", "generator" }, {
  length = count_of,
  start = function(values)
    local n, count = items.length(values.data_source, "RandomSampler"), count_of(values)
    if n < 1 then E.fail "RandomSampler: the dataset is empty; it must have at least 1 item" end
    local generator = generator_of(values)
    if values.replacement then return core.randint(1, n, { count }, { generator = generator }) end
    local parts, left = {}, count
    while left > 0 do
      E.check_cancel "RandomSampler"
      local order = core.randperm(n, { generator = generator })
      parts[#parts + 1] = left < n and order:narrow(1, 1, left):clone() or order
      left = left - n
    end
    return #parts == 1 and parts[1] or core.cat(parts)
  end,
  -- PyTorch draws one permutation more after the last whole one, and takes nothing of it.
  finish = function(values)
    local n, count = items.length(values.data_source, "RandomSampler"), count_of(values)
    if not values.replacement and values.generator and n > 0 and count % n == 0 then
      core.randperm(n, { generator = values.generator })
    end
  end,
})

function M.RandomSampler(dataset, ...)
  local method = "RandomSampler"
  local replacement, num_samples, generator =
    options(method, { "replacement", "num_samples", "generator" }, 2, dataset, ...)
  replacement = E.boolean(replacement, false, method, "replacement")
  num_samples = num_samples ~= nil and E.size(num_samples, nil, method, "num_samples") or nil
  object.check_generator(generator, method)
  items.check(dataset, method, "dataset")
  return Random.new {
    data_source = dataset, replacement = replacement, num_samples = num_samples, generator = generator,
  }
end

-- ---- Some of the items ----

local Chosen = sampler_class("SubsetRandomSampler", { "indices", "generator" }, {
  length = function(values) return values.indices:numel() end,
  start = function(values) -- from the default generator itself, as in PyTorch
    local order = core.randperm(values.indices:numel(), { generator = values.generator })
    return values.indices:index_select(1, order)
  end,
})

function M.SubsetRandomSampler(indices, ...)
  local method = "SubsetRandomSampler"
  local generator = options(method, { "generator" }, 2, indices, ...)
  object.check_generator(generator, method)
  return Chosen.new { indices = datasets.indices(indices, 2 ^ 53, method, "indices"), generator = generator }
end

local Weighted = sampler_class("WeightedRandomSampler", { "weights", "num_samples", "replacement", "generator" }, {
  length = function(values) return values.num_samples end,
  start = function(values)
    return values.weights:multinomial(values.num_samples, values.replacement, { generator = values.generator })
  end,
})

function M.WeightedRandomSampler(weights, num_samples, ...)
  local method = "WeightedRandomSampler"
  local replacement, generator = options(method, { "replacement", "generator" }, 3, weights, num_samples, ...)
  object.check_generator(generator, method)
  if object.is_list(weights) and #weights > 0 then weights = core.tensor(weights) end
  E.check_tensor(weights, method, "weights", 1)
  return Weighted.new {
    weights = weights:clone(), num_samples = E.size(num_samples, nil, method, "num_samples"),
    replacement = E.boolean(replacement, true, method, "replacement"), generator = generator,
  }
end

-- ---- Any sampler ----

local function iterator_of(sampler, method, argument)
  local iterator
  if type(sampler) == "function" then
    iterator = sampler()
  elseif E.is_list(sampler) and #sampler > 0 and type(sampler.iter) ~= "function" then
    local i = 0
    return function()
      i = i + 1
      return sampler[i]
    end
  elseif type(sampler) == "table" or type(sampler) == "userdata" then
    iterator = sampler:iter()
  end
  if type(iterator) ~= "function" then
    E.reject(method, argument, sampler, "a sampler whose iter returns an iterator")
  end
  return iterator
end

--- Whether a value has a method iter. Indexing userdata of other libraries may raise.
local function has_iter(value)
  if type(value) ~= "table" and type(value) ~= "userdata" then return false end
  local fine, iter = pcall(function() return value.iter end)
  return fine and type(iter) == "function"
end

--- Raises unless the value can be a sampler.
function M.check(sampler, method, argument)
  local _, class = object.of(sampler)
  if class and class.sampler or type(sampler) == "function" then return end
  if not class and not E.is_tensor(sampler) and not E.kind(sampler)
      and (E.is_list(sampler) and #sampler > 0 or has_iter(sampler)) then
    return
  end
  E.reject(method, argument, sampler, "a sampler, a list of indices, or an object with the method iter")
end

--- An epoch's indices, int64 [n], of a sampler for a dataset of `length` items.
function M.start(sampler, length, method)
  local values, class = object.of(sampler)
  if class then
    local order = class.start(values)
    if order:numel() > 0 and (order:min():item() < 1 or order:max():item() > length) then
      E.fail("%s: the sampler gives index %d; it must give indices from 1 to %d", method,
        order:max():item() > length and order:max():item() or order:min():item(), length)
    end
    return order
  end
  local list = {}
  for index in iterator_of(sampler, method, "sampler") do
    E.check_cancel(method)
    if type(index) ~= "number" or index % 1 ~= 0 or index < 1 or index > length then
      E.fail("%s: the sampler gives %s; it must give indices from 1 to %d", method, E.what(index), length)
    end
    list[#list + 1] = index
  end
  return #list > 0 and core.tensor(list, { dtype = "int64" }) or core.zeros(0, { dtype = "int64" })
end

--- Called when a loader asks for more items than there are.
function M.finish(sampler)
  local values, class = object.of(sampler)
  if class and class.finish then class.finish(values) end
end

--- An epoch of a batch sampler, which gives lists of indices: all indices, int64 [n], and the sizes of the batches.
function M.start_batches(sampler, length, method)
  local list, sizes = {}, {}
  for batch in iterator_of(sampler, method, "batch_sampler") do
    E.check_cancel(method)
    local indices = datasets.indices(batch, length, method, "a batch of batch_sampler")
    if indices:numel() == 0 then E.fail("%s: batch_sampler gives an empty batch", method) end
    sizes[#sizes + 1] = indices:numel()
    list[#list + 1] = indices
  end
  if #list == 0 then return core.zeros(0, { dtype = "int64" }), sizes end
  return core.cat(list), sizes
end

--- The number of indices, or of batches; nil if the sampler does not know it.
function M.length(sampler)
  local values, class = object.of(sampler)
  if class then return class.length(values) end
  if type(sampler) == "function" then return nil end
  if type(sampler.len) == "function" then return sampler:len() end
  if E.is_list(sampler) and #sampler > 0 then return #sampler end
  return nil
end

-- ---- Batches of indices ----

local function count_batches(values)
  local n = M.length(values.sampler)
  if not n then E.fail "len: the sampler has no length; give it a method len" end
  return math.floor((values.drop_last and n or n + values.batch_size - 1) / values.batch_size)
end
M.count_batches = count_batches

local Batches = object.class("BatchSampler", { "sampler", "batch_size", "drop_last" }, {
  iter = function(values)
    local order, i, finished = nil, 0, false
    return core.frame(function()
      if not order then order = M.start(values.sampler, 2 ^ 53, "BatchSampler") end
      local size = math.min(values.batch_size, order:numel() - i)
      if size < values.batch_size and not finished then
        finished = true
        M.finish(values.sampler)
      end
      if size < 1 or size < values.batch_size and values.drop_last then return nil end
      i = i + size
      return order:narrow(1, i - size + 1, size):tolist()
    end, true)
  end,
  len = count_batches,
}, { "iter" })
Batches.sampler, Batches.length = true, count_batches

function M.BatchSampler(sampler, batch_size, ...)
  local method = "BatchSampler"
  local drop_last = options(method, { "drop_last" }, 3, sampler, batch_size, ...)
  M.check(sampler, method, "sampler")
  return Batches.new {
    sampler = sampler, batch_size = E.size(batch_size, nil, method, "batch_size"),
    drop_last = E.boolean(drop_last, false, method, "drop_last"),
  }
end

return M
