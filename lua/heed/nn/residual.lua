--- nn.Residual(m): x + m(x).

local E = require "heed.nn.entries"
local Module = require "heed.nn.module"

local Residual = Module.class "Residual"

function Residual:init(module)
  E.check_self(self, "init")
  if not E.is_module(module) then
    E.fail("%s: module must be a module, got %s", E.class_name(self), E.what(module))
  end
  self.module = module
end

local function add(x, y, ...) return x + y, ... end

--- The module's further arguments and results pass through.
function Residual:forward(x, ...)
  E.check_self(self, "forward")
  return add(x, self.module(x, ...))
end

return E.with_frames(Residual, "forward")
