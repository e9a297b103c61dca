--- heed.nn: the modules. The built-in ones are in C (src/binding/lnn.c); the rest is made here, on the same
--- methods.

local core = require "heed.core"
local E = require "heed.nn.entries"

---@class heed.nn
local nn = {}
for name, constructor in pairs(core.nn) do nn[name] = constructor end
nn.Module = require "heed.nn.module"
nn.is_module = E.is_module
nn.Sequential = require "heed.nn.sequential"
nn.ModuleList = require "heed.nn.module_list"
nn.Residual = require "heed.nn.residual"
nn.utils = require "heed.nn.utils"

return nn
