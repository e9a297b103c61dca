-- For specs: f(...) must raise exactly `message`, perhaps with a hint, at any location.
local assert = require "luassert"
local without_hint = require "tests.hints"

return function(message, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.are.equal(message, without_hint((tostring(err):gsub("^.-:%d+: ", "")), message))
end
