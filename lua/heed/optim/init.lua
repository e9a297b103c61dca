--- heed.optim: optimisers and schedules of their learning rates, with PyTorch's names, options and numbers.

local core = require "heed.core"
local optimizer = require "heed.optim.optimizer"

local optim = {
  SGD = optimizer.SGD,
  Adam = optimizer.Adam,
  AdamW = optimizer.AdamW,
  RMSprop = optimizer.RMSprop,
  lr_scheduler = require "heed.optim.lr_scheduler",
}

return core.modules.guard(optim, "heed.optim")
