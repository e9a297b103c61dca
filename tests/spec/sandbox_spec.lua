-- scripts/examples/host_sandbox.c survives the scripts of tests/hostile and reports how each ended.
local support = require "tests.support"

-- The example is written and built for Lua 5.4 only.
local it = support.lua == "5.4" and it or pending

local sandbox = (os.getenv "HEED_BUILD" or "build") .. "/examples/host_sandbox"

-- Limits in seconds: for scripts that only a time limit ends, and for the others, which must not reach it even on a
-- busy machine. Slow builds, such as those with sanitizers, set a longer one.
local short, long = os.getenv "SANDBOX_SECONDS" or 1, 60

local function run(arguments, seconds)
  return support.run(("%s -s %s %s"):format(sandbox, seconds or long, arguments))
end

local with_script = support.with_script

describe("the sandbox", function()
  it("prints the results of a script", function()
    with_script("return heed.nn.CausalAttention(3, 2, 6, 0.0)(heed.rand(2, 6, 3)):numel()", function(path)
      local result = run(path)
      assert.are.equal(path .. ": 24\n", result.out)
      assert.are.equal(0, result.code)
    end)
  end)

  for path in io.popen("ls tests/hostile/*.lua"):lines() do
    it("survives " .. path, function()
      local code = support.read(path)
      local expected = code:match "^%-%- expect: ([^\n]*)\n" or "binary chunk" -- a binary chunk has no such line
      local is_endless = code:find "\n%-%- ends only at the time limit\n"
      assert.is_truthy(is_endless or expected ~= "time limit exceeded", path .. " lacks the mark of endless scripts")
      with_script("return heed.ones(2, 3):sum():item()", function(good)
        local result = run(path .. " " .. good, is_endless and short)
        local lines = {}
        for line in result.out:gmatch "[^\n]+" do lines[#lines + 1] = line end
        assert.are.equal(path .. ":", lines[1]:sub(1, #path + 1))
        assert.is_truthy(lines[1]:find(expected), result.out)
        assert.are.equal(good .. ": 6.0", lines[#lines])
        assert.are.equal(1, result.code)
        assert.are.equal("", result.err)
      end)
    end)
  end

  it("reports a missing script, and a memory limit too small for Lua", function()
    assert.is_truthy(run("nowhere.lua").out:find "^nowhere.lua: failed: cannot open")
    assert.are.equal(2, run("").code)
    assert.are.equal(2, run("-m 0 x.lua").code)
  end)
end)
