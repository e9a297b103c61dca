--- nn.ModuleList{a, b, …}: modules in a list, whose parameters are found; it has no forward of its own.

local Module = require "heed.nn.module"
local repr = require "heed.nn.repr"

local ModuleList = Module.class("ModuleList", require "heed.nn.container")

function ModuleList:__tostring() return repr(self, true) end

return ModuleList
