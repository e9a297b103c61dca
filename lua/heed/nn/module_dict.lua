--- nn.ModuleDict: modules by name, in order.

local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local names = require "heed.nn.named_items"

local ModuleDict = Module.class "ModuleDict"

local function check(value, name)
  E.check_module(value, "ModuleDict", ("'%s'"):format(name))
  return value
end

names.add_methods(ModuleDict, "module", check)

function ModuleDict:forward() E.fail("%s has no forward; call its modules by name", E.class_name(self)) end

return E.with_frames(ModuleDict)
