-- OpenBLAS, which heed loads when a product first needs it: only on processors without vector kernels.
local support = require "tests.support"

-- Functions for the scripts below: process information from the operating system, and products of integers, which are
-- exact in any order of summation, compared with those of int64.
local prelude = [[
  local heed = require "heed"
  local function of_process(file, pattern)
    for line in io.lines("/proc/self/" .. file) do
      local found = line:match(pattern)
      if found then return found end
    end
    return "none"
  end
  local function state() return heed.info().blas .. ", " .. of_process("maps", "openblas") end
  local function threads() return tonumber(of_process("status", "^Threads:%s*(%d+)")) end
  local function multiplies(...)
    local a, b = heed.randint(-9, 9, { ... }), heed.randint(-9, 9, { ... })
    return heed.equal(heed.matmul(a:float(), b:float()), heed.matmul(a, b):float())
  end
]]

-- The output of the code, run in a new process with these environment variables.
local function prints(environment, code)
  local result = support.run(("env %s %s -e %s"):format(environment, support.heed, support.quote(prelude .. code)))
  assert.equal("", result.err)
  return (result.out:gsub("\n$", ""))
end

local SCALAR = "HEED_CPU=scalar"
local linux = io.open "/proc/self/maps"
if linux then linux:close() end
local first = linux and prints(SCALAR, "print(heed.info().blas)")
local it_if_built = first and first ~= "none" and it or function(title, test)
  pending(title .. (linux and " (built without BLAS)" or " (this system has no /proc)"), test)
end

describe("BLAS", function()
  it_if_built("is not loaded, and no thread is started, where heed has kernels for the processor", function()
    local kernels, works, blas, count = prints("-u HEED_CPU -u OPENBLAS_NUM_THREADS", [[
      local works = multiplies(300, 300) and multiplies(9, 40, 40)
      print(heed.info().kernels, works, state(), threads())]]):match "^(%S+)\t(%S+)\t([^\t]+)\t(%d+)$"
    if kernels == "scalar" then return end -- there are no vector kernels for this processor
    assert.same({ "true", "none, none", "1" }, { works, blas, count })
  end)

  it_if_built("is loaded by the first product that is large enough for it", function()
    assert.equal("not loaded, none", prints(SCALAR, "print(state())"))
    assert.equal("true\tnot loaded, none\t1", prints(SCALAR, "print(multiplies(20, 20), state(), threads())"))
    local works, name = prints(SCALAR, "print(multiplies(40, 40), state())"):match "^(%S+)\t(%S+), openblas$"
    assert.equal("true", works)
    assert.truthy(name == "OpenBLAS" or name == "none") -- none: a build of OpenBLAS that heed cannot use
  end)

  it_if_built("is loaded before threads share the products of a batch", function()
    assert.equal("true\ttrue", prints(SCALAR, [[
      heed.set_num_threads(3)
      print(multiplies(64, 40, 40), (state():find ", openblas$") ~= nil)]]))
  end)

  it_if_built("leaves products to heed where it cannot be loaded", function()
    local name = assert(support.read(support.runner):match "lib%w*blas%w*%.[%w.]+")
    local folder = support.copy_folder "tests/golden/files"
    support.write(folder .. "/" .. name, "no library")
    local found = prints(SCALAR .. " LD_LIBRARY_PATH=" .. folder,
      "print(multiplies(40, 40), multiplies(300, 300), state())")
    support.remove_folder(folder)
    assert.equal("true\ttrue\tnone, none", found)
  end)
end)
