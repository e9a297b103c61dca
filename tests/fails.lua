-- For specs: f(...) must raise exactly `message`, at any location.
local assert = require "luassert"

return function(message, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.are.equal(message, (tostring(err):gsub("^.-:%d+: ", "")))
end
