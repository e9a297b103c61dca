-- For specs: f must raise exactly `message`, at a line of its own.
local assert = require "luassert"
local support = require "tests.support"

return function(message, f)
  local ok, got = pcall(f)
  assert.is_false(ok, "no error was raised; expected: " .. message)
  local file, line, text = tostring(got):match "^(.-):(%d+): (.*)$"
  assert.equal(message, text or got)
  if not file and not support.has.places then return end -- f's last call may have taken its place
  local place = debug.getinfo(f, "S")
  assert.equal(place.short_src, file)
  line = tonumber(line)
  assert.is_true(line >= place.linedefined and line <= place.lastlinedefined, "the error points at line " .. line)
end
