-- For specs: f must raise exactly `message`, perhaps with a hint, located at one of f's own lines.
local assert = require "luassert"
local without_hint = require "tests.hints"
local support = require "tests.support"

return function(message, f)
  local ok, got = pcall(f)
  assert.is_false(ok, "no error was raised; expected: " .. message)
  local file, line, text = tostring(got):match "^(.-):(%d+): (.*)$"
  assert.equal(message, without_hint(tostring(text or got), message))
  if not file and not support.has.locations then return end -- lost if f makes a tail call
  local info = debug.getinfo(f, "S")
  assert.equal(info.short_src, file)
  line = tonumber(line)
  assert.is_true(line >= info.linedefined and line <= info.lastlinedefined, "the error points at line " .. line)
end
