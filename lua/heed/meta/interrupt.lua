---@meta heed.interrupt
-- Ctrl-C at a time that suits the script: `local interrupt = require "heed.interrupt"`.

---@class heed.interrupt
local interrupt = {}

---Calls f(pressed, …) and returns its results. Meanwhile the first Ctrl-C only makes pressed() true, so that a loop can
---end between two steps and save; the second one interrupts, as without hold. A hold within another one holds one more.
---In the command `heed` only: in another interpreter or a host pressed() is false and Ctrl-C does what it does there.
---@param f fun(pressed: (fun(): boolean), ...: any): any what to call
---@param ... any
---@return any ...
function interrupt.hold(f, ...) end

return interrupt
