--- heed.autograd.Function: operations with a gradient that a script writes.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local primitives = core.modules
local pack, unpack = compat.pack, compat.unpack

local STATE = {} -- the key of a context's {name =, saved =, versions =, plain =}

-- ---- The context of one call --------------------------------------------------------------------

local Context = {}
local PYTORCH = { save_for_backward = "ctx:save(x, ...)", saved_tensors = "ctx:saved(), which gives all of them" }

--- The methods; anything else is a field that the script sets, or nil.
function Context.__index(_, key)
  if PYTORCH[key] then E.fail("heed.autograd.Function: ctx has no '%s'; write %s", key, PYTORCH[key]) end
  return rawget(Context, key)
end
Context.__name = "heed.autograd.Context"

local function state_of(ctx, method)
  local state = type(ctx) == "table" and rawget(ctx, STATE)
  if not state then E.reject(method, "ctx", ctx, "what forward gets first; call the method with a colon") end
  return state
end

--- ctx:save(x, …): keeps tensors, or other values, for backward, where ctx:saved() gives them. They are kept without
--- what computed them.
function Context.save(ctx, ...)
  local state, saved, versions = state_of(ctx, "save"), pack(...), {}
  for i = 1, saved.n do
    if E.is_tensor(saved[i]) then
      saved[i] = saved[i]:detach()
      versions[i] = primitives.version(saved[i])
    end
  end
  state.saved, state.versions = saved, versions
end

--- ctx:saved(): what ctx:save got. An error if a tensor was changed in place since.
function Context.saved(ctx)
  local state = state_of(ctx, "saved")
  local saved = state.saved
  if not saved then return end
  for i, version in pairs(state.versions) do
    local now, writer = primitives.version(saved[i])
    if now ~= version then
      E.fail("saved: %s has saved %s (number %d), which was changed in place by %s; save a clone, or use the "
        .. "operation that makes a new tensor", state.name, E.what(saved[i]), i, writer)
    end
  end
  return unpack(saved, 1, saved.n)
end

--- ctx:mark_non_differentiable(y, …): these results of forward have no gradient.
function Context.mark_non_differentiable(ctx, ...)
  local state = state_of(ctx, "mark_non_differentiable")
  for i = 1, select("#", ...) do
    local y = select(i, ...)
    E.check_tensor(y, "mark_non_differentiable", ("argument %d"):format(i))
    state.plain[#state.plain + 1] = y
  end
end

E.with_frames(Context)

-- ---- The gradient of one call -------------------------------------------------------------------

local function sizes_of(x)
  local sizes = {}
  for i = 1, x.ndim do sizes[i] = ("%d"):format(x.shape[i]) end
  return ("[%s]"):format(table.concat(sizes, ", "))
end

--- Checks what backward gave, and returns it as a list with an element for each of `inputs`, {at =, sizes =, wants =}.
local function check_gradients(name, inputs, count, given)
  local last = 0 -- the last argument whose gradient is wanted
  for _, input in ipairs(inputs) do last = input.wants and input.at or last end
  local too_many = given.n > count
  if given.n < last or too_many then
    E.fail("%s: backward gave %s; it must give %s, one for each argument of forward%s", name,
      E.count(given.n, "gradient"), E.count(too_many and count or last, "gradient"),
      last > 1 and ", nil for those without one" or "")
  end
  local list = {}
  for i, input in ipairs(inputs) do
    local gradient = given[input.at]
    list[i] = false
    if input.wants and gradient ~= nil then
      E.check_tensor(gradient, name, ("gradient %d of backward"):format(input.at))
      if gradient.dtype ~= "float32" or sizes_of(gradient) ~= input.sizes then
        E.fail("%s: gradient %d of backward is %s %s; it must be float32 %s, as argument %d of forward", name, input.at,
          gradient.dtype, sizes_of(gradient), input.sizes, input.at)
      end
      list[i] = gradient
    end
  end
  return list
end

--- The function that a backward pass calls: list of gradients of results → list of gradients of inputs.
local function make_backward(name, backward, ctx, inputs, count, shapes, places)
  return function(list)
    local gradients = {}
    for i, place in ipairs(places) do
      gradients[place] = list[i] or core.zeros(shapes[i])
    end
    return check_gradients(name, inputs, count, pack(backward(ctx, unpack(gradients, 1, places.n))))
  end
end

-- ---- Functions ----------------------------------------------------------------------------------

local Function = { __name = "heed.autograd.Function" }
local DEFINITION = {} -- the key of {name =, forward =, backward =}

local function contains(list, value)
  for i = 1, #list do
    if rawequal(list[i], value) then return true end
  end
  return false
end

local function call(self, ...)
  local definition = type(self) == "table" and rawget(self, DEFINITION)
  if not definition then E.reject("apply", "self", self, "what heed.autograd.Function made") end
  local name = definition.name
  local arguments, inputs, tensors, wanted = pack(...), {}, {}, false
  local ctx = setmetatable({ [STATE] = { name = name, plain = {} }, needs_input_grad = {} }, Context)
  for i = 1, arguments.n do
    local x = arguments[i]
    local wants = E.is_tensor(x) and x.requires_grad
    ctx.needs_input_grad[i] = wants
    if E.is_tensor(x) then
      tensors[#tensors + 1] = x
      inputs[#inputs + 1] = { at = i, sizes = sizes_of(x), wants = wants }
    end
    wanted = wanted or wants
  end
  local results = pack(mode.run(false, nil, definition.forward, ctx, ...))
  if results.n == 0 then E.fail("%s: forward gave nothing; it must give a tensor", name) end
  for i = 1, results.n do
    if results[i] == nil then E.reject(name, ("result %d of forward"):format(i), nil, "a tensor") end
  end
  if not wanted or not core.is_grad_enabled() then return unpack(results, 1, results.n) end
  local outputs, shapes, places = {}, {}, { n = results.n }
  for i = 1, results.n do
    local y = results[i]
    if E.is_differentiable(y) and not contains(ctx[STATE].plain, y) then
      if y.requires_grad or contains(tensors, y) then
        y = y:detach() -- an input itself, or a view of one
        results[i] = y
      end
      outputs[#outputs + 1], shapes[#shapes + 1], places[#places + 1] = y, y.shape, i
    end
  end
  if #outputs == 0 then return unpack(results, 1, results.n) end
  ctx[STATE].plain = {}
  primitives.record(name .. "Backward",
    make_backward(name, definition.backward, ctx, inputs, arguments.n, shapes, places), tensors, outputs)
  return unpack(results, 1, results.n)
end

function Function.__call(self, ...) return call(self, ...) end

function Function.__index(self, key)
  local definition = rawget(self, DEFINITION)
  if key == "apply" then
    return function(...)
      if rawequal((...), self) then E.fail("apply: it is called with a colon; write %s.apply(x)", definition.name) end
      return call(self, ...)
    end
  end
  if key == "name" or key == "forward" or key == "backward" then return definition[key] end
  if type(key) == "string" and not key:find "^_" then
    E.fail("heed.autograd.Function has no field %s; it has apply, name, forward and backward", key)
  end
end

function Function.__newindex(_, key)
  E.fail("heed.autograd.Function has no field that can be set, such as %s", tostring(key))
end

function Function.__tostring(self) return ("heed.autograd.Function(%s)"):format(rawget(self, DEFINITION).name) end

local KNOWN = { forward = true, backward = true }

--- Function(name, {forward = function(ctx, …), backward = function(ctx, dy, …)}): an operation that is called like a
--- function, with the arguments of forward. backward gives a gradient for each of them, nil for those without one.
return function(name, definition)
  if type(name) ~= "string" then
    E.reject("Function", "name", name, 'a string, as in Function("Clip", {forward = ..., backward = ...})')
  end
  if not name:find "^[%a_][%w_]*$" or #name > 50 then
    E.reject("Function", "name", name, "a name of at most 50 letters, digits and underscores")
  end
  if not E.is_list(definition) then
    E.reject("Function", "definition", definition, "a table {forward = function(ctx, x) ... end, backward = "
      .. "function(ctx, dy) ... end}")
  end
  for key in next, definition do
    if not KNOWN[key] then E.fail("Function: there is no field %s; there are forward and backward", tostring(key)) end
  end
  local forward, backward = rawget(definition, "forward"), rawget(definition, "backward")
  E.check_type(forward, "function", "Function", "forward")
  E.check_type(backward, "function", "Function", "backward")
  return setmetatable({ [DEFINITION] = { name = name, forward = forward, backward = backward } }, Function)
end
