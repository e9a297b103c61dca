--- pipeline(model, mesh, options): each rank has some of a model's layers, one after another. A batch goes through in
--- micro-batches, so that the ranks work at the same time.
---
--- A model has a method embed(ids, ...), whose result is the input [..., d] of its `layers`, a ModuleList; after them
--- come `norm` and `lm_head`, if it has these. A Sequential is divided by its parts.

local compat = require "heed.compat"
local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local place_of = require "heed.parallel.place"
local nn, primitives = require "heed.nn", core.modules

local METHOD, STEP = "pipeline", "pipeline_step"
local MOST_DIMS = 8

local parallel = {}

local function dist() return require "heed.distributed" end

-- ---- Sending ------------------------------------------------------------------------------------

--- The shape of x as int64 [9]: the number of dimensions, and the sizes.
local function header_of(x)
  local sizes = { x.ndim }
  for i = 1, MOST_DIMS do sizes[i + 1] = i <= x.ndim and x.shape[i] or 0 end
  return core.tensor(sizes, { dtype = "int64" })
end

local function empty_of(header)
  local sizes, shape = header:tolist(), {}
  for i = 1, sizes[1] do shape[i] = sizes[i + 1] end
  return core.empty(shape)
end

--- Sends x to a rank without waiting for it.
local function send(stage, x, to)
  stage.sent[#stage.sent + 1] = dist().isend(x:detach():contiguous(), to, { group = stage.place.group })
end

--- Sends the result of this rank's layers to the next rank, after its shape if that rank cannot know it.
local function send_output(stage, y)
  if stage.sends_shapes then send(stage, header_of(y), stage.place.rank + 1) end
  send(stage, y, stage.place.rank + 1)
end

--- Waits until everything is sent.
local function wait(stage)
  for _, work in ipairs(stage.sent) do work:wait() end
  stage.sent = {}
end

--- A tensor of that shape from a rank; the shape is sent before it if it is nil.
local function receive(stage, from, shape)
  local options, header = { group = stage.place.group }, nil
  if not shape then
    header = core.zeros(MOST_DIMS + 1, { dtype = "int64" })
    dist().irecv(header, from, options):wait()
  end
  local x = shape and core.empty(shape) or empty_of(header)
  dist().irecv(x, from, options):wait()
  return x
end

--- The input of this rank's layers, from the previous rank. A leaf while gradients are recorded.
local function receive_input(stage, shape)
  local x = receive(stage, stage.place.rank - 1, shape)
  if stage.trains then stage.input = x:requires_grad_(true) end
  return x
end

--- y of the last rank, on all ranks.
local function share(stage, y)
  local place = stage.place
  local options = { group = place.group }
  local header = y and header_of(y) or core.zeros(MOST_DIMS + 1, { dtype = "int64" })
  dist().broadcast(header, place.size, options)
  y = y and y:contiguous() or empty_of(header)
  dist().broadcast(y, place.size, options)
  return y
end

-- ---- Micro-batches ------------------------------------------------------------------------------

local BY_ITEM = { key_padding_mask = true, kv_lengths = true, attention_mask = true, token_type_ids = true }
local SHARED = { logits_to_keep = true }

--- Whether options can be cut with the batch of b items.
local function can_cut(options, b)
  for name, value in pairs(options) do
    local fits = BY_ITEM[name] and E.is_tensor(value) and value.ndim > 0 and value.shape[1] == b
    if not fits and not SHARED[name] then return false end
  end
  return true
end

--- The micro-batches: a list of {x, options}. A batch that cannot be cut is one.
local function micro_batches(stage, x, options)
  local b = x.shape[1] or 0
  local count = math.min(stage.micro_batches, b)
  if count < 2 or not stage.is_list and x.ndim < 2 or not can_cut(options, b) then return { { x, options } } end
  local list = {}
  for i = 1, count do
    local first, items = place_of.split(b, i, count)
    local cut = {}
    for name, value in pairs(options) do cut[name] = BY_ITEM[name] and value:narrow(1, first, items) or value end
    list[i] = { x:narrow(1, first, items), cut, items = items }
  end
  return list
end

-- ---- Forward ------------------------------------------------------------------------------------

--- The layers of this rank on one micro-batch: what the next rank gets, or the model's results.
local function run(stage, model, x, options)
  if stage.is_list then -- a Sequential: x is the input of its first part
    if options then E.fail("%s: options are given; a Sequential takes none", METHOD) end
    return stage.forward(model, stage.place.rank > 1 and receive_input(stage) or x)
  end
  if not stage.is_last and options and options.logits_to_keep then
    local others = {}
    for name, value in pairs(options) do others[name] = name ~= "logits_to_keep" and value or nil end
    options = others
  end
  return stage.forward(model, x, options)
end

--- The tensor x, or the ids that a model takes.
local function input_of(stage, x)
  if E.is_tensor(x) then return x end
  if stage.is_list then E.reject(METHOD, "x", x, "a tensor") end
  return primitives.indices(x, METHOD, "ids")
end

--- The model's forward pass on all ranks: its results, and of need_weights those of this rank's layers.
local function forward(model, x, ...)
  local stage = attached(model).pipeline
  if core.is_grad_enabled() then
    E.fail("%s: gradients are recorded, and a result that other ranks have computed has none; use "
      .. "heed.distributed.pipeline_step, or heed.no_grad", METHOD)
  end
  local options, others = ..., select("#", ...)
  stage.trains = false
  if others > 1 or others == 1 and options ~= nil and not E.is_list(options) then
    E.fail("%s: options are given by position; pass them by name, in a table", METHOD)
  end
  x = input_of(stage, x)
  local results, info = {}, nil
  for i, batch in ipairs(micro_batches(stage, x, options or {})) do
    results[i], info = run(stage, model, batch[1], next(batch[2]) ~= nil and batch[2] or nil)
    if not stage.is_last then send_output(stage, results[i]) end
  end
  wait(stage)
  local y = stage.is_last and (#results == 1 and results[1] or core.cat(results, 1)) or nil
  if stage.shares then y = share(stage, y) end
  if info ~= nil then return y, info end
  return y
end

-- ---- Training -----------------------------------------------------------------------------------

--- Adds the gradients of a weight that is the embedding of the first rank and the lm_head of the last.
local function add_tied(stage)
  local place, weight = stage.place, stage.tied.weight
  local other = place.rank == 1 and place.size or 1
  send(stage, weight.grad, other)
  weight.grad = weight.grad + receive(stage, other, weight.grad.shape)
  wait(stage)
end

local function backward_all(stage, batches)
  local place = stage.place
  for i = #batches, 1, -1 do
    local batch = batches[i]
    if stage.is_last then
      batch.y:backward()
    else
      local dy = receive(stage, place.rank + 1, batch.y.shape)
      if batch.y.requires_grad then batch.y:backward(dy) end -- false if all parameters of the first rank are frozen
    end
    if place.rank > 1 then send(stage, batch.input.grad, place.rank - 1) end
    batches[i] = nil
  end
end

local function step(stage, model, x, targets, loss)
  local batches, total = micro_batches(stage, x, {}), 0
  local first, b = 1, x.shape[1]
  for _, batch in ipairs(batches) do
    local items = batch.items or b
    batch.y = run(stage, model, batch[1])
    batch.input, stage.input = stage.input, nil
    if stage.is_last then
      batch.y = loss(batch.y, targets:narrow(1, first, items)) * (items / b)
      total = total + batch.y:item()
    else
      send_output(stage, batch.y)
    end
    first = first + items
  end
  wait(stage)
  backward_all(stage, batches)
  wait(stage)
  return total
end

--- step, whose gradients of a tied weight are added over both ranks.
local function step_with_tied(stage, weight, ...)
  local value = mode.enable_grad(step, stage, ...)
  if weight then mode.no_grad(add_tied, stage) end
  return value
end

--- pipeline_step(model, x, targets, loss): a forward and a backward pass of a model that pipeline got, in
--- micro-batches; loss(y, targets), a mean over the batch, is called on the last rank. Adds to the gradients of this
--- rank's parameters. Returns the loss, a number, on all ranks.
function parallel.pipeline_step(model, x, targets, loss)
  local stage = E.is_module(model) and (attached(model) or {}).pipeline
  if not stage then E.reject(STEP, "model", model, "a model that pipeline got") end
  x = input_of(stage, x)
  if not E.is_tensor(targets) or targets.ndim < 1 or targets.shape[1] ~= x.shape[1] then
    E.reject(STEP, "targets", targets, "a tensor with one element or row for each item of the batch, %d",
      x.shape[1])
  end
  if type(loss) ~= "function" and not E.is_module(loss) then
    E.reject(STEP, "loss", loss, "a function loss(y, targets), or a module")
  end
  local weight, before = stage.tied and stage.tied.weight, nil
  if weight and not weight.requires_grad then weight = nil end
  if weight then before, weight.grad = weight.grad, nil end
  stage.trains = true -- until the next forward pass
  local fine, value = pcall(step_with_tied, stage, weight, model, x, targets, loss)
  if before then weight.grad = fine and weight.grad + before or before end
  if not fine then
    stage.sent, stage.input = {}, nil
    error(value, 0)
  end
  local shared = core.tensor { value }
  dist().broadcast(shared, stage.place.size, { group = stage.place.group })
  return shared:item()
end

-- ---- Dividing -----------------------------------------------------------------------------------

--- Removes the parts of a list that are not from `first` on, `count` of them. The others keep their names.
local function keep_parts(list, first, count)
  local names = {}
  for i, entry in ipairs(E.parts(list)) do
    if i < first or i >= first + count then names[#names + 1] = entry.name end
  end
  for _, name in ipairs(names) do list[name] = nil end
end

--- Of lm_head and an embedding with the same weight the one that this rank has, if another rank has the other.
local function tied_part(model, place)
  local head = model.lm_head
  if place.size == 1 or not head or E.class_name(head) ~= "Linear" then return nil end
  local _, identity = primitives.identity(head.weight)
  for _, entry in ipairs(E.parts(model)) do
    if E.class_name(entry.value) == "Embedding" then
      local _, other = primitives.identity(entry.value.weight)
      if other == identity then
        return place.rank == 1 and entry.value or place.rank == place.size and head or nil
      end
    end
  end
end

local AFTER_LAYERS = { norm = true, lm_head = true, pooler = true, layers = true }

--- Leaves a model the parts that this rank needs. size: that of the input of its layers, if it is known.
local function divide_model(stage, model, size, first, count)
  local place = stage.place
  keep_parts(model.layers, first, count)
  if place.rank > 1 then
    for _, entry in ipairs({ compat.unpack(E.parts(model)) }) do
      if not AFTER_LAYERS[entry.name] then model[entry.name] = nil end
    end
    model.embed = function(_, ids)
      if not size then return receive_input(stage) end
      local shape = {}
      for i = 1, ids.ndim do shape[i] = ids.shape[i] end
      shape[#shape + 1] = size
      return receive_input(stage, shape)
    end
  end
  if not stage.is_last then
    for _, name in ipairs { "norm", "lm_head" } do
      if model[name] then model[name] = nn.Identity() end
    end
  end
end

local OPTIONS = { "micro_batches", "broadcast" }

--- pipeline(model, mesh, {micro_batches = 1, broadcast = true}): leaves each rank of a mesh of one dimension its share
--- of the layers, and returns the model. Calls with the same input on all ranks then give the result on all of them, or
--- without broadcast on the last alone. Results are those of one process on the same micro-batches, bit for bit.
function parallel.pipeline(model, mesh, ...)
  E.check_module(model, METHOD, "model")
  local count, shares = primitives.options(METHOD, OPTIONS, 3, model, mesh, ...)
  count = E.size(count, 1, METHOD, "micro_batches")
  shares = E.boolean(shares, true, METHOD, "broadcast")
  local place = place_of.of(mesh, METHOD)
  local is_list = E.class_name(model) == "Sequential"
  if not is_list and not (E.record(model) and type(model.embed) == "function" and E.is_module(model.layers)) then
    E.reject(METHOD, "model", model, "a Sequential, or a model with a method embed and a list of layers")
  end
  if (attached(model) or {}).pipeline then E.fail("%s: model is divided already; call it once", METHOD) end
  local layers = is_list and model or model.layers
  local total = #E.parts(layers)
  if total < place.size then
    E.fail("%s: model has %s; it must have at least %d, one for each rank", METHOD, E.count(total, "layer"), place.size)
  end
  local config = not is_list and model.config
  local size = type(config) == "table" and config.hidden_size or nil
  local stage = {
    place = place, micro_batches = count, shares = shares, is_last = place.rank == place.size, is_list = is_list,
    sends_shapes = not size, tied = not is_list and tied_part(model, place) or nil, sent = {}, forward = model.forward,
  }
  local first, own = place_of.split(total, place.rank, place.size)
  attached(model, true).pipeline = stage
  if is_list then keep_parts(layers, first, own) else divide_model(stage, model, size, first, own) end
  model.forward = forward
  return model
end

return E.with_frames(parallel, "pipeline_step")
