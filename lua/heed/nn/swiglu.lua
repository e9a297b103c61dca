--- nn.SwiGLU: the gated feed-forward layer of Llama, w2(silu(w1(x)) · w3(x)).

local core = require "heed.core"
local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local options, Linear = core.modules.options, core.nn.Linear

local SwiGLU = Module.class "SwiGLU"

SwiGLU.tp_plan = { w1 = "colwise", w3 = "colwise", w2 = "rowwise" }

function SwiGLU:init(...)
  E.check_self(self, "init")
  local NAMES = { "in_features", "hidden_features", "out_features", "bias", "generator" }
  local inputs, hidden, outputs, bias, generator = options("SwiGLU", NAMES, 1, ...)
  inputs = E.size(inputs, nil, "SwiGLU", "in_features")
  hidden = E.size(hidden, nil, "SwiGLU", "hidden_features")
  outputs = E.size(outputs, inputs, "SwiGLU", "out_features")
  bias = E.boolean(bias, false, "SwiGLU", "bias")
  self.w1 = Linear(inputs, hidden, { bias = bias, generator = generator })
  self.w2 = Linear(hidden, outputs, { bias = bias, generator = generator })
  self.w3 = Linear(inputs, hidden, { bias = bias, generator = generator })
end

function SwiGLU:forward(x, ...)
  E.check_input(self, x, ...)
  return (self.w2((self.w1(x)):silu() * (self.w3(x))))
end

return E.with_frames(SwiGLU, "forward")
