--- heed.optim.lr_scheduler: schedules of learning rates.

local core = require "heed.core"

local M = {}
for _, file in ipairs { "factors", "cosine", "plateau", "sequential" } do
  for name, make in pairs(require("heed.optim.schedules." .. file)) do M[name] = make end
end

return core.modules.guard(M, "heed.optim.lr_scheduler")
