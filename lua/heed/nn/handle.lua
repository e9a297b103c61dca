--- Handles of what was registered: hooks, points, changes of heads. handle:remove() undoes it, as does the end of a
--- `local handle <close>`.

local E = require "heed.nn.entries"

local UNDO = {} -- the key of the function that undoes it
local Handle = { __name = "heed.Handle" }

--- Undoes what the handle stands for; does nothing the second time.
local function remove(self)
  if type(self) ~= "table" or getmetatable(self) ~= Handle then
    E.reject("remove", "self", self, "a heed.Handle; call the method with a colon")
  end
  local undo = rawget(self, UNDO)
  rawset(self, UNDO, nil)
  if undo then undo() end
end

Handle.__index = E.with_frames { remove = remove }
Handle.__close = remove

function Handle.__newindex() E.fail "a heed.Handle has no fields; it has the method remove" end

function Handle.__tostring(self) return rawget(self, UNDO) and "heed.Handle" or "heed.Handle(removed)" end

local handle = {}

--- A new handle; `undo` is called once at most, and must not fail.
function handle.new(undo) return setmetatable({ [UNDO] = undo }, Handle) end

return handle
