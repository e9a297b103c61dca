--- heed.utils: data for training, checkpoints, a progress bar, and forward passes that are computed twice.

local core = require "heed.core"
local E = require "heed.nn.entries"

local utils = {
  checkpoint = require "heed.utils.checkpoint",
  data = require "heed.utils.data",
  load_checkpoint = require "heed.utils.load_checkpoint",
  progress = require "heed.utils.progress",
}

return core.modules.guard(E.with_frames(utils, "checkpoint", "load_checkpoint"), "heed.utils")
