--- nn.BatchNorm1d: normalization of each channel over the batch.

local core = require "heed.core"
local E = require "heed.nn.entries"
local F = require "heed.nn.functional"
local Module = require "heed.nn.module"
local options, python_number, Parameter = core.modules.options, core.modules.python_number, core.nn.Parameter

local BatchNorm1d = Module.class "BatchNorm1d"

local NAMES = { "num_features", "eps", "momentum", "affine", "track_running_stats", "bias" }

function BatchNorm1d:init(...)
  E.check_self(self, "init")
  local class = "BatchNorm1d"
  local features, eps, momentum, affine, track, bias = options(class, NAMES, 1, ...)
  features = E.size(features, nil, class, "num_features")
  eps = E.number(eps, 1e-5, class, "eps")
  if momentum ~= false then
    momentum = E.number(momentum, 0.1, class, "momentum", nil, "a number, or false for a cumulative average")
  end
  affine = E.boolean(affine, true, class, "affine")
  track = E.boolean(track, true, class, "track_running_stats")
  bias = E.boolean(bias, true, class, "bias")
  self.num_features, self.eps, self.momentum = features, eps, momentum
  self.affine, self.track_running_stats = affine, track
  if affine then
    self.weight = Parameter(core.ones(features))
    if bias then self.bias = Parameter(core.zeros(features)) end
  end
  if track then
    self:register_buffer("running_mean", core.zeros(features))
    self:register_buffer("running_var", core.ones(features))
    self:register_buffer("num_batches_tracked", core.tensor(0, { dtype = "int64" }))
  end
end

function BatchNorm1d:forward(x, ...)
  E.check_input(self, x, ...)
  if x.ndim ~= 2 and x.ndim ~= 3 or x.shape[2] ~= self.num_features then
    E.reject("BatchNorm1d", "x", x, "[n, %d] or [n, %d, length]", self.num_features, self.num_features)
  end
  local own = self.running_mean ~= nil -- statistics of its own
  local count, momentum = self.num_batches_tracked, self.momentum
  local update = self.training and own
  if update and momentum == false then momentum = 1 / (count:item() + 1) end
  local keep = update or not self.training and own
  local mean, variance = keep and self.running_mean or nil, keep and self.running_var or nil
  if update then mean, variance = mean:clone(), variance:clone() end -- the buffers are written together, at the end
  local y = F.batch_norm(x, mean, variance, {
    weight = self.weight, bias = self.bias, training = self.training or not own, momentum = momentum or nil,
    eps = self.eps,
  })
  if update then
    core.modules.copy_all({ self.running_mean, self.running_var, count }, { mean, variance, count and count + 1 })
  end
  return y
end

function BatchNorm1d:extra_repr()
  local function text(flag) return flag and "True" or "False" end
  return ("%d, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s"):format(self.num_features,
    python_number(self.eps), self.momentum and python_number(self.momentum) or "None", text(self.affine),
    text(self.bias ~= nil), text(self.track_running_stats))
end

return E.with_frames(BatchNorm1d)
