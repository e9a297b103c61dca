--- How deeply calls of modules may be nested. Each takes at least one of the 200 levels of C's stack that most versions
--- of Lua allow; the rest is for the host, hooks and functions within a forward pass.

local core = require "heed.core"
local E = require "heed.nn.entries"
local count_calls = core.modules.count_calls

local nesting = {}

local MOST = 80
local depth = 0 -- of the running call; after an error too high, until it is counted

local function leave(before, ...)
  depth = before
  return ...
end

--- f(m, ...), as one more level.
function nesting.call(m, f, ...)
  local before = depth
  if before >= MOST then
    before = count_calls(nesting.call) - 1
    if before >= MOST then
      E.fail("%s: calls of modules are nested more than %d levels deep; they must be at most %d levels deep",
        E.class_name(m), MOST, MOST)
    end
  end
  depth = before + 1
  return leave(before, f(m, ...))
end

return nesting
