--- nn.ModuleList{a, b, …}: a list of modules whose parameters are registered. It has no forward.

local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local repr = require "heed.nn.repr"

local ModuleList = Module.class("ModuleList", require "heed.nn.container")

function ModuleList:forward() E.fail("%s has no forward; call its modules one by one", E.class_name(self)) end

ModuleList.__tostring = repr.method(function() return true end)

return ModuleList
