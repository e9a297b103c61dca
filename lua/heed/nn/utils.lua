--- nn.utils: helpers for making modules.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

local utils = {}

--- Class(...) without initial weights: the built-in modules in it draw no random numbers, and their parameters are
--- zeros without memory until a state is loaded.
function utils.skip_init(class, ...)
  local record = E.record(class)
  if type(class) ~= "function" and not (record and record.metatable) then
    E.reject("skip_init", "class", class, "a class of modules or a constructor")
  end
  return primitives.skip_init(class, ...)
end

return E.with_frames(utils)
