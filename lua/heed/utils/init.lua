--- heed.utils: data for training, and checkpoints.

local core = require "heed.core"
local E = require "heed.nn.entries"

local utils = {
  data = require "heed.utils.data",
  load_checkpoint = require "heed.utils.load_checkpoint",
}

return core.modules.guard(E.with_frames(utils, "load_checkpoint"), "heed.utils")
