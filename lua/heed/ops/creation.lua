--- Making tensors, composed of other operations.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"

local creation = {}

local OPTIONS = { "dtype" }

--- new_tensor(x, data, {dtype}): heed.tensor with the dtype of x.
function creation.new_tensor(x, data, ...)
  E.check_tensor(x, "new_tensor", "x")
  local dtype = A.options("new_tensor", OPTIONS, 3, x, data, ...)
  if dtype == nil then dtype = x.dtype end
  return core.tensor(data, { dtype = dtype })
end

return E.with_frames(creation)
