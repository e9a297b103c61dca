--- heed.utils: data for training, checkpoints, and a progress bar.

local core = require "heed.core"
local E = require "heed.nn.entries"

local utils = {
  data = require "heed.utils.data",
  load_checkpoint = require "heed.utils.load_checkpoint",
  progress = require "heed.utils.progress",
}

return core.modules.guard(E.with_frames(utils, "load_checkpoint"), "heed.utils")
