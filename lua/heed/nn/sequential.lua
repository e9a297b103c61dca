--- nn.Sequential(a, b, …): modules applied one after another.

local primitives = require("heed.core").modules
local E = require "heed.nn.entries"
local Module = require "heed.nn.module"

local Sequential = Module.class("Sequential", require "heed.nn.container")

function Sequential:forward(...)
  E.check_self(self, "forward")
  local given = select("#", ...)
  if given ~= 1 then
    if given > 1 then primitives.refuse_second_result(E.class_name(self), (select(given, ...))) end
    E.fail("%s: %d arguments are given; it takes one input", E.class_name(self), given)
  end
  local x = ...
  for _, entry in ipairs(E.parts(self)) do
    E.check_cancel "Sequential"
    x = entry.value(x)
  end
  return x
end

return E.with_frames(Sequential, "forward")
