-- The prompt `heed -i`, through a pipe and on a pseudo-terminal.
local support = require "tests.support"
local heed, run = support.heed, support.run

local function session(lines, options)
  return run(heed .. " " .. (options or "-i"), table.concat(lines, "\n") .. "\n")
end

local function shows(expected, ...)
  local result = session { ... }
  assert.are.equal("", result.err)
  assert.are.equal(expected, result.out)
  assert.are.equal(0, result.code)
end

describe("the prompt", function()
  it("shows the value of an expression", function() shows("3\n", "1 + 2") end)
  it("shows each of several values", function() shows("1\nnil\ntrue\n", "1, nil, true") end)
  it("shows strings in quotes", function() shows('"a \\"b\\"\\n\\\\ é\\000"\n', [['a "b"\n\\ é\0']]) end)
  it("does not show a single nil", function() shows("", "nil", "print == nil and 1 or nil") end)
  it("shows nothing for a statement", function() shows("", "x = 1", "local y = 2", "-- a comment", "") end)
  it("accepts = expression", function() shows("4\n", "= 2 + 2") end)
  it("keeps globals from chunk to chunk", function() shows("7\n", "x = 7", "x") end)
  it("has heed and nn as globals", function()
    shows("tensor([2., 4.])\ntrue\n", "heed.tensor {1, 2} * 2", "nn == heed.nn")
  end)

  it("reads chunks of several lines", function()
    shows("1\n2\n", "for i = 1, 2 do", "print(i)", "end")
    shows("6\n", "(1 +", "2 +", "3)")
    shows("2\n", "#{", "1,", "2}")
    shows('"a\\nb"\n', "[[a", "b]]")
  end)

  it("continues after errors", function()
    local result = session { "error 'one'", "x x", "nil + 1", "setmetatable({}, {__tostring = error})",
      "'still here'" }
    assert.are.equal('"still here"\n', result.out)
    assert.are.equal(0, result.code)
    local location = rawget(_G, "jit") and "" or "stdin:1: " -- LuaJIT loses the location of tail calls
    assert.truthy(result.err:find("heed: " .. location .. "one\nstack traceback:\n", 1, true))
    assert.truthy(result.err:find("heed: stdin:1: [^\n]*near 'x'\n"))
    assert.truthy(result.err:find("attempt to perform arithmetic on a nil value", 1, true))
  end)

  it("reports an incomplete chunk when the input ends", function()
    local result = session { "for i = 1, 2 do" }
    assert.truthy(result.err:find "'end' expected near '?<eof>")
    assert.are.equal(0, result.code)
  end)

  it("starts after a script or -e, and sees its globals", function()
    assert.are.equal("5\n", session({ "x" }, "-e 'x = 5' -i").out)
    support.with_file(function(path)
      support.write(path, "y = ...")
      assert.are.equal('"a"\n', session({ "y" }, "-i " .. path .. " a").out)
    end)
  end)

  it("exits with the code given to os.exit", function() assert.are.equal(4, session({ "os.exit(4)" }).code) end)
end)

describe("the prompt on a terminal", function()
  local has_terminal = run("script -qec true /dev/null").code == 0
  local home

  before_each(function() home = support.new_folder() end)
  after_each(function() support.remove_folder(home) end)

  -- The contents of the screen after typing these keys at intervals of `seconds`.
  local function type_keys(keys, seconds)
    local typing = {}
    for _, key in ipairs(keys) do typing[#typing + 1] = ("sleep %s; printf '%s'"):format(seconds, key) end
    return run(("{ sleep 0.3; %s; } | HOME=%s XDG_STATE_HOME= TERM=xterm script -qec %s /dev/null"):format(
      table.concat(typing, "; "), home, support.quote(heed))).out:gsub("\r", "")
  end

  -- Types the keys; more slowly again if the texts do not appear, since the machine may be busy.
  local function on_screen(keys, ...)
    local screen
    for _, seconds in ipairs { 0.1, 0.5, 2 } do
      screen = type_keys(keys, seconds)
      local all = true
      for _, text in ipairs { ... } do all = all and screen:find(text, 1, true) end
      if all then return end
    end
    error("the screen shows\n" .. screen, 0)
  end

  local function it_on_terminal(name, test)
    it(name, has_terminal and test or function() pending "pseudo-terminals are not available" end)
  end

  it_on_terminal("greets, shows values and ends with Ctrl-D", function()
    on_screen({ "1 + 2\\n", "\\004" }, "heed 0.", "Ctrl-D ends", "> 1 + 2\n3\n> ")
  end)

  it_on_terminal("keeps a history", function()
    on_screen({ "x = 123\\n", "os.exit()\\n" }, "> os.exit()")
    assert.truthy(support.read(home .. "/.heed_history"):find("123", 1, true))
    on_screen({ "\\033[A\\033[A\\n", "x * 2\\n", "\\004" }, "246")
  end)

  it_on_terminal("cancels the line with Ctrl-C", function()
    on_screen({ "for i = 1, 2 do\\n", "\\003", "4 + 5\\n", "\\004" }, "> 4 + 5\n9\n")
  end)

  support.where("hooks", it_on_terminal, pending)("stops the running chunk on Ctrl-C", function()
    on_screen({ "while true do end\\n", "\\003", "4 + 5\\n", "\\004" }, "heed: interrupted!", "> 4 + 5\n9\n")
  end)
end)
