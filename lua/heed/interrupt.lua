--- Ctrl-C at a time that suits the script, in the command `heed`. Elsewhere Ctrl-C belongs to the interpreter or host.

local compat = require "heed.compat"
local E = require "heed.nn.entries"

local preload = package and package.preload -- a sandbox may lack it
local open = preload and preload["heed.command"]
local command = open and open()

local interrupt = {}

local function never() return false end

--- hold(f, ...): f(pressed, ...), during which the first Ctrl-C only makes pressed() true. The second one interrupts as
--- it does without hold. A hold within another one holds one more, as while a script saves after the first.
function interrupt.hold(f, ...)
  E.check_type(f, "function", "hold", "f")
  if not command then return f(never, ...) end
  local before, earlier = command.hold()
  local results = compat.pack(pcall(f, command.pressed, ...))
  command.resume(before, earlier)
  if not results[1] then error(results[2], 0) end
  return compat.unpack(results, 2, results.n)
end

return interrupt
