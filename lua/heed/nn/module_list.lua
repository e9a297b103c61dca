--- nn.ModuleList{a, b, …}: modules in a list, whose parameters are found; it has no forward of its own.

local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local repr = require "heed.nn.repr"

local ModuleList = Module.class("ModuleList", require "heed.nn.container")

function ModuleList:forward() E.fail("%s has no forward; its modules are called one by one", E.class_name(self)) end

ModuleList.__tostring = repr.method(function() return true end)

return ModuleList
