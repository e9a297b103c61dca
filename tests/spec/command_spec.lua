-- The command `heed`: options, scripts, exit codes.
local support = require "tests.support"
local heed, run, with_script = support.heed, support.run, support.with_script

-- Runs the command; options are quoted for the shell.
local function command(options, input) return run(heed .. " " .. options, input) end

local function prints(expected, result)
  assert.are.equal("", result.err)
  assert.are.equal(expected, result.out)
  assert.are.equal(0, result.code)
end

describe("heed SCRIPT", function()
  it("runs the script with its arguments in ... and arg", function()
    with_script("print(#arg, arg[0], arg[-1], arg[-2], ...)", function(path)
      prints(("2\t%s\t%s\tnil\ta\tb c\n"):format(path, support.runner), command(path .. " a 'b c'"))
    end)
  end)

  it("skips a first line that starts with #", function()
    with_script("#!/usr/bin/env heed\nprint 'here'", function(path) prints("here\n", command(path)) end)
  end)

  it("takes the argument after -- as the script", function()
    with_script("print(arg[-1])", function(path) prints("--\n", command("-- " .. path)) end)
  end)

  it("names the file that it cannot open", function()
    local result = command "no/such/file.lua"
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("^heed: cannot open no/such/file.lua"))
  end)

  -- Its folder leads to Lua files and modules beside it: on Linux /proc names it, elsewhere what it was called by.
  it("finds its own folder", function()
    local code = support.quote "print(package.path:match '([^;]*)/../lua/%?.lua;')"
    local within = "unshare --mount sh -c %s"
    local shell = "umount -l /proc && cd / && PATH=/nowhere:%s:/bin && %s -e %s"
    if os.getenv "ASAN_OPTIONS" then return pending "the sanitizers need /proc" end
    if run(within:format "'umount -l /proc'").code ~= 0 then pending "needs root, for a system without /proc" end
    local folder = support.build
    for _, name in ipairs { "heed", support.runner } do
      prints(folder .. "\n", run(within:format(support.quote(shell:format(folder, name, code)))))
    end
    local link = support.new_folder()
    run(("ln -s %s %s/linked"):format(support.quote(support.runner), link))
    prints(folder .. "\n", run(within:format(support.quote(shell:format(link, "linked", code)))))
    prints(folder .. "\n", run(("%s/linked -e %s"):format(link, code)))
    support.remove_folder(link)
    -- called by a name that no folder has, it has none of its own
    local other = "umount -l /proc && cd / && PATH=/nowhere:/bin && exec -a absent %s -e %s"
    local bash = "unshare --mount bash -c %s"
    prints("nil\n", run(bash:format(support.quote(other:format(support.runner, code)))))
  end)

  it("gives no arguments to the script if code of -e has removed them", function()
    with_script("print(arg, ...)", function(path) prints("nil\n", command("-e 'arg = nil' " .. path .. " a b")) end)
  end)

  it("has the same globals as lua", function()
    with_script("require 'heed'; print(rawget(_G, 'heed'), rawget(_G, 'nn'))", function(path)
      prints("nil\tnil\n", command(path))
    end)
  end)
end)

describe("heed -e CODE", function()
  it("has heed and nn as globals, which a script after it does not see", function()
    local code = "print(heed == require 'heed', nn == heed.nn)"
    prints("true\ttrue\n", command("-e " .. support.quote(code)))
    with_script("print(rawget(_G, 'heed'), rawget(_G, 'nn'))", function(path)
      prints("nil\tnil\n", command("-e 'x = 1' " .. path))
      prints("5\tnil\n", command("-e 'heed = 5' " .. path))
    end)
  end)
  it("runs the code", function() prints("3\n", command "-e 'print(1 + 2)'") end)
  it("accepts the code without a space, too", function() prints("3\n", command "'-eprint(1 + 2)'") end)
  it("may be given several times", function() prints("7\n", command "-e 'x = 7' -e 'print(x)'") end)
  it("runs before the script", function()
    with_script("print(x, ...)", function(path) prints("5\ta\n", command("-e 'x = 5' " .. path .. " a")) end)
  end)
  it("reports missing code", function()
    local result = command "-e"
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("^heed: '%-e' needs code\nusage: "))
  end)
  it("reports errors with a traceback", function()
    local result = command [[-e 'local function f() error "bad luck" end f()']]
    assert.are.equal(1, result.code)
    assert.are.equal("", result.out)
    assert.truthy(result.err:find("^heed: %(command line%):1: bad luck\nstack traceback:\n"))
  end)
  it("stops after an error", function()
    local result = command [[-e 'error "first"' -e 'print "second"']]
    assert.are.equal("", result.out)
    assert.are.equal(1, result.code)
  end)
end)

describe("standard input", function()
  it("is run if the script is -", function() prints("-\ta\n", command("- a", "print(arg[0], ...)")) end)
  it("is run without arguments if it is not a terminal", function() prints("6\n", command("", "print(2 * 3)")) end)
  it("is not read with -e", function() prints("print 1\n", command("-e 'print(io.read())'", "print 1\n")) end)
end)

describe("heed", function()
  it("prints its version for -v", function()
    local result = command "-v"
    prints(result.out, result)
    assert.truthy(result.out:find("^heed %d+%.%d+%.%d+  Lua[J ][I5][T%.][^\n]*\n$"))
    assert.are.equal(result.out .. "1\n", command("-v -e 'print(1)'").out)
  end)

  it("prints its help for -h and --help", function()
    prints(command("-h").out, command "--help")
    assert.truthy(command("-h").out:find("^usage: heed "))
  end)

  for _, option in ipairs { "-x", "--unknown", "-vi" } do
    it("rejects " .. option, function()
      local result = command(option)
      assert.are.equal(1, result.code)
      assert.are.equal("", result.out)
      assert.truthy(result.err:find("heed: unrecognized option '" .. option .. "'\nusage: ", 1, true))
    end)
  end

  it("names the type of error objects without a text", function()
    for code, kind in pairs { ["error()"] = "nil", ["error({})"] = "table",
      ["error(setmetatable({}, {__tostring = function() return true end}))"] = "table" } do
      local result = command("-e " .. support.quote(code))
      assert.are.equal(1, result.code)
      assert.truthy(result.err:find("heed: (error object is a " .. kind .. " value)", 1, true), result.err)
    end
  end)

  it("refuses what is no coroutine, although it keeps track of them for Ctrl-C", function()
    local code = "for _, name in ipairs {'resume', 'close'} do print((pcall(coroutine[name], 5))) end"
    prints("false\nfalse\n", command("-e " .. support.quote(code)))
  end)

  it("prints error objects with tostring", function()
    local result = command [[-e 'error(setmetatable({}, {__tostring = function() return "an object" end}))']]
    assert.are.equal("heed: an object\n", result.err)
    assert.are.equal(1, result.code)
    assert.truthy(command("-e 'error({})'").err:find("^heed: %(error object is a table value%)\n"))
  end)

  it("exits with the code given to os.exit", function()
    assert.are.equal(3, command("-e 'os.exit(3)'").code)
    assert.are.equal(0, command("-e 'os.exit(0)'").code)
  end)

  support.where("os_exit", it, pending)("exits with the code given to os.exit as a boolean", function()
    assert.are.equal(0, command("-e 'os.exit(true, true)'").code)
    assert.are.equal(1, command("-e 'os.exit(false)'").code)
  end)

  it("does not report an error if the reader of its output exits", function()
    local result = run("{ " .. heed .. " -e 'for i = 1, 1e6 do print(i) end'; echo code $? >&2; } | head -n 1")
    assert.are.equal("1\n", result.out)
    assert.are.equal("code 0\n", result.err)
  end)

  it("lets a script see that the command it writes to has exited", function()
    prints("false\n", command [[-e 'if jit then jit.off() end -- compiled code loses errors of writes
      local p = io.popen("true", "w")
      local ok = true
      for i = 1, 1e4 do ok = ok and p:write(("x"):rep(100)) and true or false end
      print(ok)']])
  end)
end)

describe("the built-in library", function()
  it("is found by all its module names, in any order, as one library", function()
    prints("true\ttrue\n", command [[-e 'local nn, heed, core = require "heed.nn", require "heed", require "heed.core"
      print(heed.nn == nn, type(core) == "table")']])
  end)

  it("is found from any working directory, and through a symbolic link", function()
    support.with_file(function(link)
      os.remove(link)
      prints("tensor([1., 2.])\n", run(("ln -s %s %s && cd / && %s -e 'print(require \"heed\".tensor {1, 2})'")
        :format(heed, link, link)))
    end)
  end)

  it("leaves other modules to Lua's searchers", function()
    local result = command "-e 'require \"heed.no_such_part\"'"
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("module 'heed.no_such_part' not found", 1, true))
  end)
end)

-- Not with sanitizers, whose libraries a plain interpreter does not load.
describe("the loadable module heed.so #plain", function()
  local lua = support.plain_lua()
  local paths = {
    ["with the files of lua/"] = "LUA_PATH='lua/?.lua;lua/?/init.lua'",
    ["alone"] = "LUA_PATH='none'",
  }
  for name, path in pairs(paths) do
    it("makes the library available to a plain interpreter, " .. name, function()
      if not lua then return pending "there is no plain interpreter" end
      prints("tensor([2., 4.])\ttrue\tnil\n", run(("%s LUA_CPATH=%s %s -e '%s'"):format(path,
        support.quote(support.build .. "/?.so"), lua,
        [[local heed = require "heed"
          print(heed.tensor {1, 2} * 2, require "heed.nn" == heed.nn, rawget(_G, "heed"))]])))
    end)
  end
end)
