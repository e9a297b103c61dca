--- heed.autograd: backward passes, functions with a gradient of one's own, and tests of gradients.

local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local passes = require "heed.autograd.passes"

local autograd = {
  Function = require "heed.autograd.functions",
  gradcheck = require "heed.autograd.gradcheck",
}

E.with_frames(autograd, "gradcheck")
autograd.backward = passes.backward_of
autograd.grad = passes.grad
autograd.detect_anomaly = mode.detect_anomaly
autograd.no_grad = mode.no_grad
autograd.enable_grad = mode.enable_grad
autograd.inference_mode = mode.inference_mode
autograd.set_grad_enabled = core.set_grad_enabled
autograd.is_grad_enabled = core.is_grad_enabled

return core.modules.guard(autograd, "heed.autograd")
