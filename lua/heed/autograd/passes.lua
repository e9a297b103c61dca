--- Backward passes: x:backward and x:backward_steps, heed.autograd.backward and grad, and hooks on tensors.

local core = require "heed.core"
local E = require "heed.nn.entries"
local handle = require "heed.nn.handle"
local primitives = core.modules

local passes = {}

--- The tensor or list of tensors as a list of its own.
local function list_of(value, method, name)
  if E.is_tensor(value) then return { value } end
  if not E.is_list(value) then E.reject(method, name, value, "a tensor or a table of tensors") end
  local list = {}
  for i = 1, #value do
    if i % 4096 == 0 then E.check_cancel(method) end
    list[i] = rawget(value, i)
    E.check_tensor(list[i], method, ("%s[%d]"):format(name, i))
  end
  if #list == 0 then E.fail("%s: %s has no tensors; it must have at least 1", method, name) end
  return list
end

--- A gradient for each of `count` tensors, false where there is none, from a tensor, a list with holes or nil.
local function gradients_of(value, count, method, name)
  local list = {}
  if E.is_tensor(value) then value = { value } end
  if value ~= nil and not E.is_list(value) then E.reject(method, name, value, "a tensor or a table of tensors") end
  for key in next, value or {} do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 or key > count then
      E.fail("%s: %s has %s; it must have one gradient for each of %s, nil for 1", method, name,
        type(key) == "number" and ("an element %s"):format(tostring(key)) or ("the key %s"):format(tostring(key)),
        E.count(count, "tensor"))
    end
  end
  for i = 1, count do
    list[i] = value and rawget(value, i) or false
    if list[i] then E.check_tensor(list[i], method, ("%s[%d]"):format(name, i)) end
  end
  return list
end

-- Of the pass that runs: functions that hooks of tensors have left for its end, as a list and as a set.
local ending = {}

--- at_end(f): calls f once after the backward pass that runs, when the gradients are set; not if it fails.
function passes.at_end(f)
  if ending[f] then return end
  ending[#ending + 1], ending[f] = f, true
end

--- backward(...), a pass or a slice of one; list: what its earlier slices have left. In a hook of another pass
--- backward fails; the list of that pass is then put back.
local function run(list, backward, ...)
  local outer = ending
  ending = list
  local fine, done, total = pcall(backward, ...)
  ending = outer
  if not fine then error(done, 0) end
  for i = 1, done == total and #list or 0 do list[i]() end
  return done, total
end

local BACKWARD = { "gradient", "retain_graph" }

--- x:backward(gradient, {retain_graph})
function passes.backward(x, ...)
  E.check_tensor(x, "backward", "x")
  local gradient, retain = primitives.options("backward", BACKWARD, 2, x, ...)
  if gradient ~= nil then E.check_tensor(gradient, "backward", "gradient") end
  retain = E.boolean(retain, false, "backward", "retain_graph")
  run({}, primitives.backward, { x }, { gradient or false }, retain)
end

local SEVERAL = { "grad_tensors", "retain_graph" }

--- heed.autograd.backward(tensors, grad_tensors, {retain_graph})
function passes.backward_of(tensors, ...)
  local gradients, retain = primitives.options("backward", SEVERAL, 2, tensors, ...)
  local list = list_of(tensors, "backward", "tensors")
  gradients = gradients_of(gradients, #list, "backward", "grad_tensors")
  run({}, primitives.backward, list, gradients, E.boolean(retain, false, "backward", "retain_graph"))
end

local GRAD = { "grad_outputs", "retain_graph", "allow_unused" }

--- heed.autograd.grad(outputs, inputs, {grad_outputs, retain_graph, allow_unused}): the gradient of an input, or a
--- table of those of a table of inputs.
function passes.grad(outputs, inputs, ...)
  local grad_outputs, retain, unused = primitives.options("grad", GRAD, 3, outputs, inputs, ...)
  local y = list_of(outputs, "grad", "outputs")
  local x = list_of(inputs, "grad", "inputs")
  grad_outputs = gradients_of(grad_outputs, #y, "grad", "grad_outputs")
  retain = E.boolean(retain, false, "grad", "retain_graph")
  unused = E.boolean(unused, false, "grad", "allow_unused")
  local found = primitives.grad(y, grad_outputs, x, retain)
  local result = {}
  for i = 1, #x do
    if not found[i] and not unused then
      E.fail("grad: outputs do not depend on input %d; with {allow_unused = true} its gradient is nil", i)
    end
    result[i] = found[i] or nil
  end
  if E.is_tensor(inputs) then return result[1] end
  return result
end

--- x:register_hook(f): in each backward pass f gets the gradient of x, and may give another one. Returns a handle.
function passes.register_hook(x, f)
  E.check_tensor(x, "register_hook", "x")
  if type(f) ~= "function" then E.reject("register_hook", "f", f, "a function") end
  local id = primitives.add_hook(x, function(gradient)
    if f then return f(gradient) end
  end)
  return handle.new(function()
    f = nil -- an operation in place may have given x another history, where the hook is not found
    primitives.remove_hook(x, id)
  end)
end

-- ---- In slices of time --------------------------------------------------------------------------

local STATE = {} -- the key of {pass =, seconds =, ending =}
local Steps, methods = { __name = "heed.BackwardSteps" }, {}

local function state_of(self, method)
  local state = type(self) == "table" and rawget(self, STATE)
  if not state then E.reject(method, "self", self, "what x:backward_steps() gives; call the method with a colon") end
  return state
end

local function milliseconds(value, default, method)
  return E.number(value, default, method, "ms", function(ms) return ms >= 0 end, "a number, 0 or more")
end

local STEPS = { "gradient", "retain_graph", "ms" }

--- x:backward_steps{ms = 2, gradient =, retain_graph =}: x:backward() in slices of so many milliseconds, one for each
--- call of what it returns.
function passes.backward_steps(x, ...)
  E.check_tensor(x, "backward_steps", "x")
  local gradient, retain, ms = primitives.options("backward_steps", STEPS, 2, x, ...)
  if gradient ~= nil then E.check_tensor(gradient, "backward_steps", "gradient") end
  retain = E.boolean(retain, false, "backward_steps", "retain_graph")
  ms = milliseconds(ms, 2, "backward_steps")
  local pass = primitives.backward_steps({ x }, { gradient or false }, retain)
  return setmetatable({ [STATE] = { pass = pass, seconds = ms / 1000, ending = {} } }, Steps)
end

--- One slice. Returns how many operations are done, and all; nil when nothing is left, so that a `for` ends.
local function call(self)
  local state = state_of(self, "backward_steps")
  local done, total = primitives.backward_progress(state.pass)
  if done == total then return nil end
  return run(state.ending, primitives.backward_advance, state.pass, state.seconds)
end
call = core.frame(call)
function Steps.__call(self) return call(self) end

--- One slice, of that many milliseconds, or of those in the options.
function methods.advance(self, ms)
  local state = state_of(self, "advance")
  ms = milliseconds(ms, state.seconds * 1000, "advance")
  return run(state.ending, primitives.backward_advance, state.pass, ms / 1000)
end

--- Ends the pass without any change, and frees its memory at once; does nothing the second time.
function methods.release(self) primitives.backward_release(state_of(self, "release").pass) end

Steps.__close = methods.release
E.with_frames(methods)

function Steps.__index(self, name)
  if methods[name] then return methods[name] end
  if name == "done" then return (primitives.backward_progress(state_of(self, name).pass)) end
  if name == "total" then return (select(2, primitives.backward_progress(state_of(self, name).pass))) end
  E.fail("heed.BackwardSteps have no field %s; they have done, total, advance and release", tostring(name))
end

function Steps.__newindex(_, name)
  E.fail("heed.BackwardSteps have no field that can be set, such as %s", tostring(name))
end

function Steps.__tostring(self)
  return ("heed.BackwardSteps(done=%d, total=%d)"):format(self.done, self.total)
end

return E.with_frames(passes)
