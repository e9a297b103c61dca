--- Making tensors, composed of other operations.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"

local creation = {}

local OPTIONS = { "dtype", "requires_grad" }

--- new_tensor(x, data, {dtype, requires_grad}): heed.tensor with the dtype of x.
function creation.new_tensor(x, data, ...)
  E.check_tensor(x, "new_tensor", "x")
  local dtype, requires_grad = A.options("new_tensor", OPTIONS, 3, x, data, ...)
  if dtype == nil then dtype = x.dtype end
  return core.tensor(data, { dtype = dtype, requires_grad = requires_grad })
end

local LOGSPACE = { "base", "dtype", "requires_grad" }

--- logspace(start, end, steps, base = 10): base to the powers of linspace(start, end, steps).
function creation.logspace(first, last, steps, ...)
  local base, dtype, requires_grad = A.options("logspace", LOGSPACE, 4, first, last, steps, ...)
  if base == nil then base = 10 end
  if type(first) ~= "number" then E.reject("logspace", "start", first, "a number") end
  if type(last) ~= "number" then E.reject("logspace", "end", last, "a number") end
  if type(base) ~= "number" then E.reject("logspace", "base", base, "a number") end
  steps = A.integer(steps, "logspace", "steps")
  if steps < 0 then E.reject("logspace", "steps", steps, "0 or more") end
  local result = base ^ core.linspace(first, last, steps)
  if dtype ~= nil then result = result:to(dtype) end
  return requires_grad ~= nil and result:requires_grad_(requires_grad) or result
end

return E.with_frames(creation)
