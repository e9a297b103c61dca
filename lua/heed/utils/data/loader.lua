--- DataLoader: a dataset in batches, in the order of a sampler. Draws as PyTorch's loader without workers.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local default_collate = require "heed.utils.data.collate"
local items = require "heed.utils.data.items"
local object = require "heed.utils.data.object"
local samplers = require "heed.utils.data.samplers"
local unpack = compat.unpack

local METHOD = "DataLoader"

-- ---- Batches ------------------------------------------------------------------------------------

--- The results of a batch: those of collate_fn, or the fields of what default_collate gives.
local function read(values, indices)
  if not values.collate_fn then
    local batch = items.batch(values.dataset, indices, METHOD)
    if batch then
      if E.is_tensor(batch) then return batch end
      return unpack(batch)
    end
  end
  local samples = {}
  for k, i in ipairs(indices:tolist()) do
    E.check_cancel(METHOD)
    samples[k] = items.sample(values.dataset, i, METHOD)
  end
  if values.collate_fn then return values.collate_fn(samples) end
  local batch = default_collate(samples)
  local is_list = object.is_list(samples[1]) and #samples[1] > 0
  if is_list then return unpack(batch) end
  return batch
end

--- Raises if the first result of collate_fn is nil, which would end the loop.
local function results(first, ...)
  if first == nil then E.fail "DataLoader: the first result of collate_fn is nil; it must be a batch" end
  return first, ...
end

-- An epoch is a table: order, the indices, int64 [n], once drawn; sizes of its batches, if a batch sampler gave them;
-- given, the number of samples that were returned, and batches, that of batches; finished, once the sampler was asked
-- for more than there is; done, once the loop has ended.

--- The indices of the next batch, or nil at the end.
local function advance(values, epoch)
  if epoch.done then return nil end
  if not epoch.order then
    local length = items.length(values.dataset, METHOD)
    if values.batch_sampler then
      epoch.order, epoch.sizes = samplers.start_batches(values.batch_sampler, length, METHOD)
    else
      epoch.order = samplers.start(values.sampler, length, METHOD)
    end
  end
  local left = epoch.order:numel() - epoch.given
  local wanted = epoch.sizes and epoch.sizes[epoch.batches + 1] or values.batch_size or left
  local size = math.min(wanted, left)
  if size < wanted and not epoch.finished or left == 0 then
    if not epoch.finished and values.sampler then samplers.finish(values.sampler) end
    epoch.finished = true
  end
  if size == 0 or size < wanted and values.drop_last then
    epoch.done = true
    return nil
  end
  return epoch.order:narrow(1, epoch.given + 1, size), size
end

local function next_batch(values, epoch)
  local indices, size = advance(values, epoch)
  if not indices then return nil end
  local batch = compat.pack(results(read(values, indices)))
  epoch.given, epoch.batches = epoch.given + size, epoch.batches + 1
  return unpack(batch, 1, batch.n)
end

-- ---- The object ---------------------------------------------------------------------------------

local methods = {}

--- Begins an epoch, or goes on with that of load_state_dict. An iterator over its batches.
function methods.iter(values)
  local epoch = values.loaded
  if epoch then
    values.loaded = nil
  else
    epoch = { given = 0, batches = 0 }
    samplers.draw_seed(values.generator) -- PyTorch's loader draws a seed for its workers, also when it has none
  end
  values.epoch = epoch
  return core.frame(function() return next_batch(values, epoch) end, true)
end

--- The number of batches of an epoch.
function methods.len(values)
  if not values.batch_sampler then return samplers.count_batches(values) end
  local n = samplers.length(values.batch_sampler)
  if not n then E.fail "len: the batch_sampler has no length; give it a method len" end
  return n
end

function methods.tostring(values)
  local n = items.length(values.dataset, METHOD)
  local what = values.batch_sampler and "batch_sampler" or ("batch_size=%d"):format(values.batch_size)
  return ("heed.DataLoader(%s, %s)"):format(E.count(n, "item"), what)
end

-- ---- State --------------------------------------------------------------------------------------

--- Where the current epoch is: tensors, numbers and texts, for heed.save.
function methods.state_dict(values)
  local epoch = values.loaded or values.epoch
  local state = { length = items.length(values.dataset, "state_dict"), running = epoch ~= nil and not epoch.done }
  if values.generator then state.generator = values.generator:get_state() end
  if state.running then
    state.given, state.batches, state.finished = epoch.given, epoch.batches, epoch.finished or false
    state.order = epoch.order and epoch.order:clone()
    if epoch.sizes and #epoch.sizes > 0 then state.sizes = core.tensor(epoch.sizes, { dtype = "int64" }) end
  end
  return state
end

local function refuse(what, needed) E.reject("load_state_dict", "state", what, needed) end

-- The epoch of a state.
local function epoch_of(values, state, length)
  local method = "load_state_dict"
  local given = E.integer(state.given, nil, method, "state.given", "an integer")
  local batches = E.integer(state.batches, nil, method, "state.batches", "an integer")
  local finished = E.boolean(state.finished, false, method, "state.finished")
  local order, sizes = state.order, state.sizes
  if order ~= nil then
    E.check_tensor(order, method, "state.order", 1)
    order = order:long():clone()
    if order:numel() > 0 and (order:min():item() < 1 or order:max():item() > length) then
      refuse("a state with other indices", ("that of a loader of %d items"):format(length))
    end
  end
  if given < 0 or given > (order and order:numel() or 0) or batches < 0 then
    E.reject(method, "state.given", given, "the number of samples that were given")
  end
  if order and (sizes ~= nil) ~= (values.batch_sampler ~= nil and order:numel() > 0) then
    E.reject(method, "state.sizes", sizes, values.batch_sampler and "that of a loader with a batch_sampler"
      or "nil: this loader has no batch_sampler")
  end
  if sizes ~= nil then
    E.check_tensor(sizes, method, "state.sizes", 1)
    sizes = sizes:long():tolist()
    local before = 0
    for k = 1, math.min(batches, #sizes) do before = before + sizes[k] end
    if before ~= given then E.reject(method, "state.given", given, "the samples of the batches that were given") end
  end
  return { order = order, sizes = sizes, given = given, batches = batches, finished = finished }
end

--- The next iter() goes on where the loader was when it gave the state.
function methods.prepare(values, state)
  local method = "load_state_dict"
  if not object.is_list(state) then E.reject(method, "state", state, "a table that state_dict gave") end
  local running = state.running
  E.check_type(running, "boolean", method, "state.running")
  local length, generator = E.integer(state.length, nil, method, "state.length", "an integer"), state.generator
  if length ~= items.length(values.dataset, method) then
    E.fail("%s: the state is of a dataset of %s; this one has %d", method, E.count(length, "item"),
      items.length(values.dataset, method))
  end
  if (generator ~= nil) ~= (values.generator ~= nil) then
    E.fail("%s: the state is of a loader with%s a generator; this one has %s", method, generator == nil and "out" or "",
      values.generator and "one" or "none")
  end
  object.check_state(generator, values.generator, method)
  local epoch = running and epoch_of(values, state, length) or nil
  return function()
    if generator ~= nil then values.generator:set_state(generator) end
    values.loaded, values.epoch = epoch, nil
  end
end

local READABLE = { "dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "generator", "collate_fn" }
local Loader = object.class(METHOD, READABLE, methods, { "state_dict" })

local OPTIONS = { "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last", "generator" }

return function(dataset, ...)
  local batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, generator =
    core.modules.options(METHOD, OPTIONS, 2, dataset, ...)
  items.check(dataset, METHOD, "dataset")
  object.check_generator(generator, METHOD)
  shuffle = E.boolean(shuffle, nil, METHOD, "shuffle")
  drop_last = E.boolean(drop_last, nil, METHOD, "drop_last")
  if batch_size ~= nil then batch_size = E.size(batch_size, nil, METHOD, "batch_size") end
  if collate_fn ~= nil then E.check_type(collate_fn, "function", METHOD, "collate_fn") end
  if sampler ~= nil then
    samplers.check(sampler, METHOD, "sampler")
    if shuffle then E.fail "DataLoader: sampler and shuffle are given; give one: a sampler has its own order" end
  end
  if batch_sampler ~= nil then
    samplers.check(batch_sampler, METHOD, "batch_sampler")
    if batch_size or shuffle or sampler or drop_last then
      E.fail("DataLoader: batch_sampler and %s are given; batch_sampler gives the batches",
        batch_size and "batch_size" or shuffle and "shuffle" or sampler and "sampler" or "drop_last")
    end
  elseif sampler == nil then
    sampler = shuffle and samplers.RandomSampler(dataset, { generator = generator })
      or samplers.SequentialSampler(dataset)
  end
  return Loader.new {
    dataset = dataset, sampler = sampler, batch_sampler = batch_sampler, collate_fn = collate_fn, generator = generator,
    batch_size = not batch_sampler and (batch_size or 1) or nil, drop_last = drop_last or false,
  }
end
