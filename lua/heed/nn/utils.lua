--- nn.utils: what does not belong to a module of its own.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

local utils = {}

--- Class(...), whose built-in parts draw no weights and have none: zeros without memory stand for their
--- parameters until a state is loaded.
function utils.skip_init(class, ...)
  local record = E.record(class)
  if type(class) ~= "function" and not (record and record.metatable) then
    E.fail("skip_init: class must be a class of modules or a constructor, got %s", E.what(class))
  end
  return primitives.skip_init(class, ...)
end

return E.with_frames(utils)
