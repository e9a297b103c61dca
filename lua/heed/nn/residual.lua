--- nn.Residual(m): x + m(x).

local E = require "heed.nn.entries"
local Module = require "heed.nn.module"

local Residual = Module.class "Residual"

function Residual:init(module)
  E.check_self(self, "init")
  E.check_module(module, E.class_name(self), "module")
  self.module = module
end

local function add(x, y, ...) return x + y, ... end

--- Further arguments are passed on to the module, and its further results are returned.
function Residual:forward(x, ...)
  E.check_self(self, "forward")
  E.check_tensor(x, E.class_name(self), "x")
  return add(x, self.module(x, ...))
end

return E.with_frames(Residual, "forward")
