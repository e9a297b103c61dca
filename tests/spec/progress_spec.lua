-- heed.utils.progress: what it writes on a terminal and elsewhere.
local progress = require("heed").utils.progress
local raises = require "tests.raises"

--- A bar, and a function that returns what it wrote since the last call.
local function bar(total, options)
  local written = {}
  options.write = function(text) written[#written + 1] = text end
  return progress(total, options), function()
    local text = table.concat(written)
    written = {}
    return text
  end
end

describe("a progress bar", function()
  it("writes a line every few percent where there is no terminal", function()
    local b, written = bar(200, { columns = false, parts = 4 })
    for i = 1, 200 do b:update(i, ("loss %.2f"):format(2 - i / 200)) end
    b:finish()
    local lines = {}
    for line in written():gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
    assert.are.equal(4, #lines)
    assert.truthy(lines[1]:find "^step 50/200  loss 1%.75  %d+:%d%d left$", lines[1])
    assert.truthy(lines[4]:find "^step 200/200  loss 1%.00  %d+:%d%d$", lines[4])
  end)

  it("redraws one line on a terminal, no longer than the terminal is wide", function()
    local b, written = bar(10, { columns = 60, unit = "tokens" })
    b:update(5, "loss 1.00", 1000)
    local text = written()
    assert.truthy(text:find "^\r%[#+%-+%] step 5/10  loss 1%.00  .*tokens/s  %d:%d%d left\27%[K$", text)
    assert.is_true(#text <= 60 + 4)
    b:update(6)
    assert.are.equal("", written()) -- too soon to redraw
    b:print "a sample"
    assert.truthy(written():find "^\r\27%[Ka sample\n\r%[#+%-+%] step 6/10  loss 1%.00")
    b:update(10, "loss 0.50")
    b:finish()
    b:finish()
    text = written()
    assert.truthy(text:find "\n$")
    assert.are.equal(1, select(2, text:gsub("\n", "")))
    local narrow, of_narrow = bar(10, { columns = 12 })
    narrow:update(3, "loss 1.00")
    assert.are.equal("\rstep 3/10  \27[K", of_narrow())
  end)

  it("goes on after the first steps", function()
    local b, written = bar(100, { columns = false, parts = 10, first = 50, name = "epoch" })
    b:update(51)
    assert.are.equal("", written())
    b:update(60)
    assert.truthy(written():find "^epoch 60/100  0:00 left\n$")
  end)

  it("shows numbers of any size", function()
    local b, written = bar(4, { columns = false })
    b:update(1e300)
    assert.truthy(written():find "^step 1%d+/4  0:00\n$")
  end)

  it("refuses wrong arguments", function()
    raises("progress: total is the number 0; it must be an integer, at least 1", function() progress(0) end)
    raises("progress: name is the number 3; it must be a string", function() progress(3, { name = 3 }) end)
    raises("progress: there is no option 'nam'; the options are name, unit, first, parts, write, columns; did you mean "
      .. "'name'?", function() progress(3, { nam = "x" }) end)
    raises("update: done is a string ('x'); it must be an integer from 0 up", function() progress(3):update "x" end)
    raises("update: text is the number 3; it must be a string", function() progress(3):update(1, 3) end)
  end)
end)
