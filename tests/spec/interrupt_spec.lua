-- Ctrl-C in scripts and -e: what runs ends with exit code 130. (prompt_spec.lua has the prompt.)
local support = require "tests.support"
local run = support.run

-- Runs the script, which sends itself SIGINT after a moment; none of the scripts would end within hours.
local function interrupt(code, setup)
  return support.with_script([[
    local heed = require "heed"
    local big = heed.ones(1) ]] .. (setup or "") .. [[
    os.execute "(sleep 0.1; kill -INT $PPID) &" ]] .. code, function(path)
    return run(support.heed .. " " .. path)
  end)
end

local function ends(code, setup)
  local result = interrupt(code, setup)
  assert.are.equal("", result.out)
  assert.truthy(result.err:find "^heed: [^\n]*interrupted\n$", result.err)
  assert.are.equal(130, result.code)
end

describe("Ctrl-C in a script", function()
  it("ends large products", function() ends("while true do big:matmul(big) end", "big = heed.ones(4000, 4000)") end)
  it("ends sorting", function() ends("while true do big:sort() end", "big = heed.rand(10000000)") end)
  it("ends attention", function()
    ends("heed.scaled_dot_product_attention(big, big, big)", "big = heed.rand(1, 64, 40000, 64)")
  end)
  it("ends a pcall of heed in a loop", function()
    ends("while true do pcall(function() pcall(big.matmul, big, big) end) end", "big = heed.ones(4000, 4000)")
  end)

  local it_with_hooks = support.where("hooks", it, pending)
  it_with_hooks("ends an endless loop", function() ends "while true do end" end)
  it_with_hooks("shows one line, with the position", function()
    local result = interrupt "\n\nwhile true do end"
    assert.truthy(result.err:find "^heed: [^\n]*:%d+: interrupted\n$", result.err)
  end)
  it_with_hooks("ends a loop that catches errors", function()
    ends "while true do pcall(function() while true do pcall(function() while true do end end) end end) end"
  end)
  it_with_hooks("ends a loop in a coroutine", function()
    ends "coroutine.wrap(function() while true do end end)()"
    ends "coroutine.resume(coroutine.create(function() coroutine.wrap(function() while true do end end)() end))"
  end)
  it_with_hooks("ends a loop of coroutines that catch errors", function()
    ends [[while true do
      coroutine.resume(coroutine.create(function() pcall(function() while true do end end) end))
    end]]
  end)
  it_with_hooks("ends a loop over a generator", function()
    ends [[local next_number = coroutine.wrap(function()
        local i = 0
        while true do i = i + 1; coroutine.yield(i) end
      end)
      while true do next_number() end]]
  end)
  it_with_hooks("lets the script clean up", function()
    local result = interrupt "pcall(function() while true do end end) print 'clean'"
    assert.are.equal("clean\n", result.out)
    assert.are.equal("heed: interrupted\n", result.err)
    assert.are.equal(130, result.code)
  end)

  it("ends a wait for input", function()
    local result = run("sleep 2 | " .. support.heed ..
      [[ -e 'os.execute "(sleep 0.1; kill -INT $PPID) &" io.read()'; echo $? >&2]])
    assert.truthy(result.err:find "interrupted\n130\n$", result.err)
  end)

  it("leaves the values to the prompt after it", function()
    local code = [[kept = heed.ones(2000, 2000)
      os.execute "(sleep 0.1; kill -INT $PPID) &"
      while true do kept:matmul(kept) end]]
    local result = run(support.heed .. " -e " .. support.quote(code) .. " -i", "kept:matmul(kept):eq(2000):all()")
    assert.are.equal("tensor(True)\n", result.out)
    assert.truthy(result.err:find "interrupted\n$", result.err)
    assert.are.equal(0, result.code)
  end)
end)

describe("coroutines in the command", function()
  local function prints(expected, code)
    local result = run(support.heed .. " -e " .. support.quote(code))
    assert.are.equal("", result.err)
    assert.are.equal(expected, result.out)
  end

  it("return values and errors as in lua", function()
    prints("true\t1\t2\nfalse\tnil\nfalse\n", [[
      print(coroutine.resume(coroutine.create(function(...) return ... end), 1, 2))
      local co = coroutine.create(function() error() end)
      print(coroutine.resume(co))
      print((coroutine.resume(co)))]])
    prints("1\tnil\n2\t3\n", [[
      local f = coroutine.wrap(function(a, b) print(a, b) local c, d = coroutine.yield() print(c, d) end)
      f(1) f(2, 3)]])
  end)
  it("keep error objects", function()
    prints("true\n", [[local t = {}
      local _, e = pcall(coroutine.wrap(function() error(t) end))
      print(e == t)]])
  end)
  it("reject what is not a coroutine", function()
    prints("bad argument #1 to 'resume' (coroutine expected)\n",
      [[local _, message = pcall(function() coroutine.resume(1) end)
        print((message:gsub("^.-:1: ", "")))]])
  end)
  it("nest", function()
    prints("50\n", [[local function nest(n)
        return n == 0 and 0 or coroutine.wrap(function() return 1 + nest(n - 1) end)()
      end
      print(nest(50))]])
  end)
end)

describe("heed.interrupt.hold", function()
  local function hold(code)
    return support.with_script("local interrupt = require 'heed.interrupt'\n" .. code, function(path)
      return run(support.heed .. " " .. path)
    end)
  end

  it("lets a script end by itself after Ctrl-C", function()
    local result = hold [[
      local heed = require "heed"
      print(interrupt.hold(function(pressed, a)
        os.execute "(sleep 0.1; kill -INT $PPID) &"
        local x = heed.ones(300, 300)
        while not pressed() do x:matmul(x) end
        return a, x:matmul(x):eq(300):all():item()
      end, 7))]]
    assert.are.equal("7\ttrue\n", result.out)
    assert.are.equal("", result.err)
    assert.are.equal(0, result.code)
  end)

  it("is interrupted by the second Ctrl-C", function()
    local result = hold [[
      local heed = require "heed"
      local big = heed.ones(4000, 4000)
      interrupt.hold(function()
        os.execute "(sleep 0.1; kill -INT $PPID; sleep 0.1; kill -INT $PPID) &"
        while true do big:matmul(big) end
      end)]]
    assert.truthy(result.err:find "interrupted\n$", result.err)
    assert.are.equal(130, result.code)
  end)

  it("holds one more in a hold within", function()
    local result = hold [[
      local function press() assert(io.popen("kill -INT $PPID")):close() end
      print(interrupt.hold(function(pressed)
        local before = pressed()
        press()
        local within = interrupt.hold(function(again)
          local forgotten = not again()
          press()
          return forgotten and again()
        end)
        return before, within, pressed()
      end))
      print(interrupt.hold(function(pressed)
        interrupt.hold(press)
        return pressed()
      end))]]
    assert.are.equal("false\ttrue\ttrue\ntrue\n", result.out)
    assert.are.equal("", result.err)
    assert.are.equal(0, result.code)
  end)

  it("ends with the function, also by an error", function()
    local result = hold [[
      local heed = require "heed"
      local big = heed.ones(4000, 4000)
      print(pcall(interrupt.hold, function(pressed)
        assert(not pressed())
        error("no", 0)
      end))
      io.stdout:flush()
      os.execute "(sleep 0.1; kill -INT $PPID) &"
      while true do big:matmul(big) end]]
    assert.are.equal("false\tno\n", result.out)
    assert.are.equal(130, result.code)
  end)

  it("refuses what is not a function", function()
    require "tests.raises"("hold: f is nil; it must be a function", function() require("heed.interrupt").hold() end)
  end)
end)
