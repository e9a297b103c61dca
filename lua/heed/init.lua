--- heed: an attention runtime. `require "heed"` gives one table; no global is set.
--
-- The tensors, random numbers and built-in modules are in C ("heed.core"); containers and modules of one's
-- own, and what all modules have in common, are in Lua ("heed.nn").

local core = require "heed.core"

---@class heed
local heed = {}
for name, value in pairs(core) do heed[name] = value end
for _, name in ipairs { "files", "frame", "held", "modules", "object", "raise", "text" } do
  heed[name] = nil -- for heed's own files only
end
heed.nn = require "heed.nn"
local files = require "heed.files"
heed.load, heed.save = files.load, files.save

return heed
