--- data_parallel(model, mesh, options): every rank has the whole model and its own part of the data; after each
--- backward pass the gradients are averaged over the ranks.

local attached = require "heed.nn.attached"
local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local passes = require "heed.autograd.passes"
local place_of = require "heed.parallel.place"
local primitives = core.modules

local METHOD = "data_parallel"
local BUCKET_MEGABYTES = 25 -- of gradients that are sent together; PyTorch's default
-- Elements from which on a gradient is sent by itself: copying 256 KiB to a bucket and back takes as long as the
-- messages of one more call at 10 Gbit/s.
local LARGE = 2 ^ 16

local parallel = {}

local function dist() return require "heed.distributed" end

-- ---- Equal parameters ---------------------------------------------------------------------------

--- Numbers that differ between parameters, float32 [n, 3]: the sum, the sum of squares, and a weighted sum, which
--- depends on the order. Of equal elements they are equal, bit for bit.
local function digests(list)
  local rows = {}
  for i, parameter in ipairs(list) do
    E.check_cancel(METHOD)
    local x = parameter:detach():float():reshape(-1)
    local places = core.range(1, x:numel()) / x:numel()
    rows[i] = core.stack({ x:sum(), (x * x):sum(), (x * places):sum() })
  end
  return core.stack(rows)
end

--- A number below 2^40 for the shape of x.
local function code_of_shape(x)
  local code = 0
  for d = 1, x.ndim do code = (code * 8191 + x.shape[d]) % 2 ^ 40 end
  return code
end

--- Refuses models with different numbers or shapes of parameters.
local function check_shapes(names, list, place)
  local counts = dist().all_gather(core.tensor({ #list }, { dtype = "int64" }), { group = place.group })
  for rank, count in ipairs(counts) do
    if count:item() ~= counts[1]:item() then
      E.fail("%s: model has %s on rank 1, and %d on rank %d; build the same model on every rank", METHOD,
        E.count(counts[1]:item(), "parameter"), count:item(), rank)
    end
  end
  local codes = {}
  for i, parameter in ipairs(list) do codes[i] = code_of_shape(parameter) end
  for rank, theirs in ipairs(dist().all_gather(core.tensor(codes, { dtype = "int64" }), { group = place.group })) do
    for i, code in ipairs(theirs:tolist()) do
      if code ~= codes[i] then
        E.fail("%s: %s is [%s] here, and has another shape on rank %d; build the same model on every rank", METHOD,
          names[i], table.concat(list[i].shape, ", "), rank)
      end
    end
  end
end

--- Refuses parameters that differ between the ranks, as after different seeds.
local function check_equal(names, list, place)
  local all = dist().all_gather(digests(list), { group = place.group })
  local first = all[1]
  for rank = 2, place.size do
    local same = first:to_string() == all[rank]:to_string()
    for i = 1, same and 0 or #list do
      if first[i]:to_string() ~= all[rank][i]:to_string() then
        E.fail("%s: %s differs on rank 1 and rank %d; call heed.manual_seed with the same number on every rank before "
          .. "the model is made, or pass {broadcast = true} for the parameters of rank 1", METHOD, names[i], rank)
      end
    end
  end
end

--- Gives all ranks the parameters and buffers of rank 1.
local function broadcast(model, place)
  for _, list in ipairs { model:parameters(), model:buffers() } do
    for _, tensor in ipairs(list) do
      local sent = tensor:detach():contiguous()
      dist().broadcast(sent, 1, { group = place.group })
      mode.no_grad(function() tensor:detach():copy_(sent) end)
    end
  end
end

-- ---- Averages -----------------------------------------------------------------------------------

--- Averages gradients in place: large ones directly, small ones together in buckets.
local function average(list, place, bucket)
  local together, size = {}, 0
  local function send()
    if #together == 0 then return end
    local flat = {}
    for i, gradient in ipairs(together) do flat[i] = gradient:reshape(-1) end
    local all, first = core.cat(flat), 1
    dist().all_reduce(all, "avg", { group = place.group })
    for _, gradient in ipairs(together) do
      local count = gradient:numel()
      gradient:copy_(all:narrow(1, first, count):view(gradient.shape))
      first = first + count
    end
    together, size = {}, 0
  end
  for _, gradient in ipairs(list) do
    E.check_cancel "backward"
    local count = gradient:numel()
    if (count >= LARGE or 2 * count > bucket) and gradient:is_contiguous() then
      dist().all_reduce(gradient, "avg", { group = place.group })
    else
      if size + count > bucket then send() end
      together[#together + 1], size = gradient, size + count
    end
  end
  send()
end

--- Averages the gradients of the parameters that have one on any rank; the others count as 0.
local function average_all(parameters, place, bucket)
  local present = core.zeros(#parameters)
  for i, parameter in ipairs(parameters) do
    if parameter.grad then present[i] = 1 end
  end
  dist().all_reduce(present, "max", { group = place.group })
  present = present:tolist()
  local list = {}
  for i = #parameters, 1, -1 do -- the order in which a backward pass computes them
    local parameter = parameters[i]
    if present[i] > 0 then
      if not parameter.grad then parameter.grad = core.zeros(parameter.shape) end
      list[#list + 1] = parameter.grad
    end
  end
  average(list, place, bucket)
end

-- ---- Models -------------------------------------------------------------------------------------

--- The {skips =} of a model that data_parallel got, else nil.
local function state_of(model)
  local store = attached(model)
  return store and store.data_parallel
end

--- Averages the gradients of the model after each backward pass that reaches it. The model keeps what the hooks need:
--- hooks live as long as their parameters, which would live as long as hooks that refer to them.
local function watch(model, place, bucket)
  local parameters, state = {}, { skips = false }
  function state.finish()
    if not state.skips then mode.no_grad(average_all, parameters, place, bucket) end
  end
  local kept = setmetatable({ state }, { __mode = "v" })
  for _, parameter in ipairs(model:parameters()) do
    if parameter.requires_grad then
      parameters[#parameters + 1] = parameter
      parameter:register_hook(function() if kept[1] then passes.at_end(kept[1].finish) end end)
    end
  end
  attached(model, true).data_parallel = state
end

local OPTIONS = { "broadcast", "bucket_mb" }

--- data_parallel(model, mesh, {broadcast = false, bucket_mb = 25}): averages the model's gradients over the ranks after
--- each backward pass. Its parameters must be the same on all ranks; with broadcast they become those of rank 1.
--- Returns the model.
function parallel.data_parallel(model, mesh, ...)
  E.check_module(model, METHOD, "model")
  local sends, megabytes = primitives.options(METHOD, OPTIONS, 3, model, mesh, ...)
  sends = E.boolean(sends, false, METHOD, "broadcast")
  megabytes = E.number(megabytes, BUCKET_MEGABYTES, METHOD, "bucket_mb", function(n) return n > 0 end, "more than 0")
  local place = place_of.of(mesh, METHOD)
  if state_of(model) then E.fail("%s: the gradients of model are averaged already; call it once", METHOD) end
  local names, list = {}, {}
  for name, parameter in model:named_parameters() do
    names[#names + 1], list[#list + 1] = name, parameter
  end
  if #list == 0 then E.fail("%s: %s has no parameters", METHOD, E.class_name(model)) end
  if place.size > 1 then
    check_shapes(names, list, place)
    if sends then broadcast(model, place) else check_equal(names, list, place) end
  end
  watch(model, place, megabytes * 2 ^ 20 / 4)
  return model
end

--- no_sync(model, f, ...): f(...), while backward passes leave the gradients of this rank as they are. The next one
--- outside averages their sum.
function parallel.no_sync(model, f, ...)
  local state = E.is_module(model) and state_of(model)
  if not state then E.reject("no_sync", "model", model, "a model that data_parallel got") end
  E.check_type(f, "function", "no_sync", "f")
  if state.skips then return f(...) end
  state.skips = true
  local function finish(fine, ...)
    state.skips = false
    if not fine then error((...), 0) end
    return ...
  end
  return finish(pcall(f, ...))
end

return E.with_frames(parallel, "no_sync")
