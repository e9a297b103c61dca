--- heed: an attention runtime. `require "heed"` returns one table and sets no global.
--
-- Tensors, random numbers and built-in modules are written in C ("heed.core"); containers, user-defined modules and
-- the methods that all modules share are written in Lua ("heed.nn").

return require("heed.core").open(require, "0.1.0")
