--- heed.utils.checkpoint: memory for time. What a function computes is not kept for the backward pass, but computed
--- again there.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local primitives = core.modules
local pack, unpack = compat.pack, compat.unpack

local DEFAULT = {} -- stands for the default generator

--- The default generator and those among the arguments, and copies of their states.
local function states_of(arguments)
  local states = { { generator = DEFAULT } }
  local function add(value)
    if E.is_generator(value) then states[#states + 1] = { generator = value } end
  end
  for i = 1, arguments.n do
    add(arguments[i])
    if E.is_list(arguments[i]) then add(rawget(arguments[i], "generator")) end
  end
  for _, state in ipairs(states) do
    state.copy = core.Generator()
    primitives.copy_generator(state.generator ~= DEFAULT and state.generator or nil, state.copy)
  end
  return states
end

--- Gives the generators the states, and returns those that they had.
local function exchange(states)
  local before = {}
  for i, state in ipairs(states) do
    local generator = state.generator ~= DEFAULT and state.generator or nil
    before[i] = { generator = state.generator, copy = core.Generator() }
    primitives.copy_generator(generator, before[i].copy)
  end
  for _, state in ipairs(states) do
    primitives.copy_generator(state.copy, state.generator ~= DEFAULT and state.generator or nil)
  end
  return before
end

--- The arguments for a second forward pass: tensors that want a gradient are leaves.
local function fresh_arguments(kept)
  local arguments, leaves, places = { n = kept.n }, {}, {}
  for i = 1, kept.n do
    local tensor = kept[i].tensor
    arguments[i] = kept[i].value
    if tensor then
      local now, writer = primitives.version(tensor)
      if now ~= kept[i].version then
        E.fail("checkpoint: argument %d, %s, was changed in place by %s, and the function is computed again; pass a "
          .. "clone", i, E.what(tensor), writer)
      end
      arguments[i] = tensor:detach()
      if kept[i].wants then
        local leaf = arguments[i]:float():requires_grad_(true)
        leaves[#leaves + 1], places[#places + 1] = leaf, kept[i].place
        arguments[i] = mode.run(true, nil, leaf.to, leaf, tensor.dtype) -- leaf itself, or in low precision
      end
    end
  end
  return arguments, leaves, places
end

local function make_backward(f, kept, states, outputs)
  return function(gradients)
    local after = primitives.recorded_count()
    local arguments, leaves, places = fresh_arguments(kept)
    local before = exchange(states)
    local results = pack(pcall(mode.run, true, nil, f, unpack(arguments, 1, arguments.n)))
    exchange(before)
    if not results[1] then error(results[2], 0) end
    local y, dy = {}, {}
    for i, place in ipairs(outputs) do
      local result = results[place + 1]
      if not E.is_tensor(result) then
        E.fail("checkpoint: result %d of f is %s; the first time it was a tensor", place, E.what(result))
      end
      if result.requires_grad and gradients[i] then y[#y + 1], dy[#dy + 1] = result, gradients[i] end
    end
    local found, list = primitives.backward_within(y, dy, leaves, after), {}
    for i = 1, kept.tensors do list[i] = false end
    for i, place in ipairs(places) do list[place] = found[i] end
    return list
  end
end

--- checkpoint(f, …): f(…), which is called again in the backward pass, with the same random numbers: of the default
--- generator, and of generators among the arguments. Parameters that f uses get their gradients.
return function(f, ...)
  if type(f) ~= "function" and not E.is_module(f) then E.reject("checkpoint", "f", f, "a function or a module") end
  if not core.is_grad_enabled() then return f(...) end
  local arguments = pack(...)
  local kept, states = { n = arguments.n, tensors = 1 }, states_of(arguments)
  -- a leaf of its own, so that the call is recorded even if only parameters inside want gradients
  local inputs = { core.zeros(1, { requires_grad = true }) }
  for i = 1, arguments.n do
    local x = arguments[i]
    kept[i] = { value = x }
    if E.is_tensor(x) then
      kept[i] = { tensor = x:detach(), version = (primitives.version(x)), wants = x.requires_grad }
      kept.tensors = kept.tensors + 1
      kept[i].place = kept.tensors
      inputs[kept.tensors] = x
    end
  end
  local results = pack(mode.run(false, nil, f, ...))
  local outputs, tensors = {}, {}
  for i = 1, results.n do
    local y = results[i]
    if E.is_differentiable(y) then
      if y.requires_grad then
        y = y:detach() -- an argument or a parameter itself
        results[i] = y
      end
      outputs[#outputs + 1], tensors[#tensors + 1] = i, y
    end
  end
  if #outputs == 0 then return unpack(results, 1, results.n) end
  primitives.record("CheckpointBackward", make_backward(f, kept, states, outputs), inputs, tensors)
  return unpack(results, 1, results.n)
end
