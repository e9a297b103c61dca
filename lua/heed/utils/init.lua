--- heed.utils: data for training, and checkpoints.

local core = require "heed.core"
local E = require "heed.nn.entries"

local utils = { data = require "heed.utils.data" }

return core.modules.guard(E.with_frames(utils), "heed.utils")
