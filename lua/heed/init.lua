--- heed: an attention runtime. `require "heed"` gives one table; no global is set.
--
-- The tensors, random numbers and built-in modules are in C ("heed.core"); containers and modules of one's
-- own, and what all modules have in common, are in Lua ("heed.nn").

return require("heed.core").open(require)
