--- nn.Sequential(a, b, …): modules applied one after another.

local E = require "heed.nn.entries"
local Module = require "heed.nn.module"

local Sequential = Module.class("Sequential", require "heed.nn.container")

function Sequential:forward(...)
  E.check_self(self, "forward")
  local x = ...
  if select("#", ...) == 0 then E.fail("%s: 0 arguments are given; it takes one input", E.class_name(self)) end
  E.check_single(self, select(2, ...))
  for _, entry in ipairs(E.parts(self)) do
    E.check_cancel "Sequential"
    x = entry.value(x)
  end
  return x
end

return E.with_frames(Sequential, "forward")
