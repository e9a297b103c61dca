--- Handles of what was registered: hooks, points, changes of heads. handle:remove() undoes it, as does the end of a
--- `local handle <close>`.

local E = require "heed.nn.entries"

local Handle, removers = {}, setmetatable({}, { __mode = "k" }) -- handle → the function that undoes it

--- Undoes what the handle stands for; does nothing the second time.
local function remove(handle)
  if getmetatable(handle) ~= Handle then
    E.reject("remove", "self", handle, "a handle; call the method with a colon")
  end
  local undo = removers[handle]
  removers[handle] = nil
  if undo then undo() end
end

Handle.__name = "heed.Handle"
Handle.__index = E.with_frames { remove = remove }
Handle.__close = remove
Handle.__tostring = function(handle) return removers[handle] and "heed.Handle" or "heed.Handle(removed)" end

local handle = {}

--- A new handle; `undo` is called once at most.
function handle.new(undo)
  local new = setmetatable({}, Handle)
  removers[new] = undo
  return new
end

return handle
