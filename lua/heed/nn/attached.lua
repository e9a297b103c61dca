--- attached(module, create): the table of what heed keeps with a module besides its entries: hooks and listeners. It
--- lives as long as the module, also where its values refer to the module. nil if there is none and `create` is not
--- true.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

return function(module, create)
  local own = E.record(module)
  if not own then return primitives.attached(module, create) end
  if create and not own.attached then own.attached = {} end
  return own.attached
end
