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
  it("shows nil for an expression that is nil", function() shows("nil\nnil\n", "nil", "print == nil and 1 or nil") end)
  it("shows nothing for a function without results", function() shows("", "(function() end)()") end)
  it("shows nothing for a statement", function() shows("", "x = 1", "local y = 2", "-- a comment", "") end)
  it("shows the value of an expression that ends a chunk", function()
    shows("tensor(2.)\n", "local x = heed.ones(2); x:sum()")
    shows("5\n7\n", "x = 5; x", "for i = 1, 2 do y = i end y + 5")
    shows("2\n-1\n", "a = 1 b = 2 b", "a = 1; -a")
    shows("3\n", "if true then", "x = 3", "end", "x -- the end")
  end)
  it("does not take the end of an expression for a new one", function()
    shows("", "a = 5", "b = a -1", "c = math.abs (b)", "d = type {}", "e = type 'x'", "f = #'abc' - #'a'")
  end)
  it("accepts = expression", function() shows("4\n", "= 2 + 2") end)
  it("keeps globals from chunk to chunk", function() shows("7\n", "x = 7", "x") end)
  it("has heed and nn as globals", function()
    shows("tensor([2., 4.])\ntrue\n", "heed.tensor {1, 2} * 2", "nn == heed.nn")
  end)

  it("shows tables as constructors, with the shapes of tensors", function()
    shows('{ 1, 2, "a", x = true }\n{}\n', "{1, 2, 'a', x = true}", "{}")
    shows("{ tensor [2] float32, tensor [1] int64 }\n", "{heed.ones(2), heed.ones(1):long()}")
    shows("{\n  keys = tensor [1, 2, 2] float32,\n  name = \"a\",\n}\n", "{keys = heed.ones(1, 2, 2), name = 'a'}")
    shows("{ {…} (contains itself) }\n", "t = {}", "t[1] = t", "t")
    local result = session { "(function() local t = {} for i = 1, 500 do t[i] = i end return t end)()" }
    assert.truthy(result.out:find("… 400 more", 1, true))
  end)
  it("shows the intermediate results of attention by name, with their shapes", function()
    local result = session { "m = nn.MultiHeadAttention(4, 4, 6, 0, 2)",
      "local y, info = m(heed.ones(2, 3, 4), {need_weights = true})", "info" }
    assert.truthy(result.out:find("  weights = tensor [2, 2, 3, 3] float32,\n", 1, true))
    assert.truthy(result.out:find("  queries = tensor [2, 2, 3, 2] float32,\n", 1, true))
  end)

  describe("keeps locals, which", function()
    it("later chunks see", function()
      shows("7\n1\nnil\n", "local x = 7", "x", "local a, b = 1", "a", "b")
      shows("4\n", "local function double(x)", "return 2 * x", "end", "double(2)")
    end)
    it("later chunks can assign", function() shows("8\nnil\n", "local x = 7", "x = 8", "x", "_G.x") end)
    it("are shared with the functions of their chunk", function()
      shows("2\n10\n", "local n = 0 local function inc() n = n + 1 return n end", "inc() n = n + 1", "n",
        "n = 9 inc()")
    end)
    it("may shadow others, whose functions keep theirs", function()
      shows("1\t2\n", "local x = 1", "local function f() return x end", "local x = 2", "print(f(), x)")
      shows("1\t2\n", "local x = 1; local function f() return x end; local x = 2", "print(f(), x)")
      shows("P\t1\n", "local print = function(...) print('P', ...) end", "print(1)")
      shows("3\n", "local x = 1", "local x = x + 2", "x")
    end)
    it("do not leave blocks and functions", function()
      shows("nil\nnil\n", "do local inside = 1 end", "inside", "local function f() local deep = 1 end", "deep")
      shows("5\n", "x = 5", "for i = 1, 2 do local x = i end if true then local x = 1 end", "x")
    end)
    it("are kept only if the chunk ends without an error", function()
      assert.are.equal("nil\n", session({ "local x = 1 error 'no' x = 2", "x" }).out)
    end)
    it("shadow a global while they are nil", function() shows("nil\n5\n", "x = 5 local x", "x", "_G.x") end)
    it("are not seen by code of load", function()
      shows("nil\n", "local x = 1", "(loadstring or load)('return x')()")
    end)
    it("may be many", function()
      local lines = {}
      for i = 1, 300 do lines[i] = ("local v%d = %d"):format(i, i) end
      lines[301] = "v1 + v300"
      shows("301\n", support.unpack(lines))
    end)
    it("stay when the chunk returns", function() shows("1\n2\n", "local x = 2 return 1", "x") end)
  end)

  support.where("close", it, pending)("keeps locals with attributes, which cannot be assigned", function()
    local result = session { "local x <const>, y = 1, 2", "y = 3", "x + y", "x = 2",
      "local t <close> = heed.ones(1)", "t" }
    assert.are.equal("4\ntensor(released)\n", result.out)
    assert.truthy(result.err:find("attempt to assign to const variable 'x'", 1, true))
  end)

  it("runs README's example as it stands there", function()
    local readme = support.read "README.md"
    local code, expected = readme:match "## An example\n\n```lua\n(.-)```\n.-```text\n(.-)```"
    local result = run(heed .. " -i", code)
    assert.are.equal("", result.err)
    assert.are.equal(expected, result.out:sub(-#expected))
  end)

  it("ends with exit, quit and exit()", function()
    for _, line in ipairs { "exit", "quit", "exit()", "quit()" } do shows("1\n", "1", line, "2") end
    assert.are.equal(3, session({ "exit(3)" }).code)
    shows("5\n", "exit = 5", "exit")
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
    local location = support.lua == "luajit" and "" or "stdin:1: " -- LuaJIT loses the location of tail calls
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
  local home, state -- the environment's HOME and XDG_STATE_HOME

  before_each(function() home, state = support.new_folder(), "" end)
  after_each(function() support.remove_folder(home) end)

  -- The contents of the screen after typing these keys at intervals of `seconds`.
  local function type_keys(keys, seconds)
    local typing = {}
    for _, key in ipairs(keys) do typing[#typing + 1] = ("sleep %s; printf -- '%s'"):format(seconds, key) end
    return run(("{ sleep 0.3; %s; } | HOME=%s XDG_STATE_HOME=%s TERM=xterm timeout 60 script -qec %s /dev/null"):format(
      table.concat(typing, "; "), home, state, support.quote(heed))).out:gsub("\r", "")
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
    assert.truthy(support.read(home .. "/.local/state/heed/history"):find("123", 1, true))
    on_screen({ "\\033[A\\033[A\\n", "x * 2\\n", "\\004" }, "246")
  end)

  it_on_terminal("recalls a chunk of several lines as one entry", function()
    on_screen({ "for i = 1, 2 do\\n", "print(i + 10)\\n", "end\\n", "x = 1\\n", "\\033[A\\033[A\\n", "\\004" },
      "11\n12\n> x = 1\n", "for i = 1, 2 do\nprint(i + 10)\nend\n11\n12\n> ")
  end)

  it_on_terminal("takes over the history of earlier versions", function()
    support.write(home .. "/.heed_history", "_HiStOrY_V2_\nfrom\\040before\\040=\\0405\n")
    on_screen({ "from_now = 6\\n", "\\004" }, "> from_now = 6")
    local history = support.read(home .. "/.local/state/heed/history")
    assert.truthy(history:find("before", 1, true))
    assert.truthy(history:find("from_now", 1, true))
    assert.is_nil(io.open(home .. "/.heed_history"))
  end)

  it_on_terminal("works without a folder for its history", function()
    local folder = home
    home = "/proc/nowhere"
    on_screen({ "1 + 2\\n", "\\004" }, "> 1 + 2\n3\n> ")
    home = folder
  end)

  it_on_terminal("keeps its history where XDG_STATE_HOME says, if that is an absolute path", function()
    state = home .. "/state"
    on_screen({ "x = 123\\n", "  \\n", "os.exit()\\n" }, "> os.exit()")
    assert.truthy(support.read(state .. "/heed/history"):find("123", 1, true))
    state = "relative"
    on_screen({ "x = 456\\n", "os.exit()\\n" }, "> os.exit()")
    assert.truthy(support.read(home .. "/.local/state/heed/history"):find("456", 1, true))
    local folder = home
    home, state = "", ""
    on_screen({ "1 + 2\\n", "\\004" }, "> 1 + 2\n3\n> ")
    home = folder
  end)

  it_on_terminal("indents with Tab at the start of a line, and leaves a name that it does not know", function()
    on_screen({ "\\t1 + 2\\n", " \\t4 + 4\\n", "nothing_of_this_name", "\\t", " = 5\\n", "nothing_of_this_name\\n",
      "\\004" }, ">   1 + 2\n3\n", "4 + 4\n8\n", "\n5\n")
  end)

  it_on_terminal("completes with Tab", function()
    on_screen({ "x = heed.ones(2, 3)\\n", "x:softm", "\\t", "-1)\\n", "\\004" }, "softmax(dim)", "x:softmax(-1)\n",
      "0.3333")
    on_screen({ "heed.ones_", "\\t", "{1}):sum(", "\\t", ")\\n", "\\004" }, "ones_like(", "sum(dim?, keepdim?)")
    on_screen({ "x = {alpha = 1, alpine = 2}\\n", "x.al", "\\t", "ine\\n", "\\004" }, "alpha\nalpine",
      "> x.alpine\n2\n")
  end)

  it_on_terminal("keeps its values after Ctrl-C", function()
    on_screen({ "x = heed.ones(2)\\n", "half typed", "\\003", "\\003", "x\\n", "\\004" },
      "> x\ntensor([1., 1.])\n")
    on_screen({ "x = heed.ones(3000, 3000)\\n", "while true do x:matmul(x) end\\n", "\\003", "\\003", "x.shape\\n",
      "\\004" }, "\ninterrupted\n", "heed.Size([3000, 3000])\n")
  end)

  it_on_terminal("cancels the line with Ctrl-C", function()
    on_screen({ "for i = 1, 2 do\\n", "\\003", "4 + 5\\n", "\\004" }, "> 4 + 5\n9\n")
  end)

  it_on_terminal("stops the running chunk on Ctrl-C", function()
    on_screen({ "while true do end\\n", "\\003", "4 + 5\\n", "\\004" }, "\ninterrupted\n", "> 4 + 5\n9\n")
  end)
end)
