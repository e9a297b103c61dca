-- The examples of tensor, data and pipeline parallelism print the same on any number of ranks.
local support = require "tests.support"

local launcher = os.getenv "MPIRUN" or "mpirun"

local function output_of(ranks, script)
  local launch = ranks and ("timeout 100 %s -n %d "):format(launcher, ranks) or ""
  local result = support.run(("%s%s scripts/examples/mpi/%s"):format(launch, support.heed, script))
  assert.are.equal(0, result.code, result.err)
  return result.out
end

describe("scripts/examples/mpi", function()
  it("tensor.lua generates the same ids", function()
    local function ids_of(ranks) return output_of(ranks, "tensor.lua"):match "\n(.*)" end
    local alone = ids_of(nil)
    assert.truthy(alone:find "^1 20 300 4 50 6 %-> [%d ]+\n$")
    for ranks = 2, 3 do assert.are.equal(alone, ids_of(ranks)) end
  end)

  it("tensor.lua reads a folder", function()
    local out = output_of(3, "tensor.lua tests/golden/decoders/gpt2 3 4")
    assert.truthy(out:find "\n3 4 %-> [%d ]+\n$")
  end)

  it("data.lua trains to the same losses", function()
    local alone = output_of(nil, "data.lua 20")
    assert.truthy(alone:find "^step 10: loss 2%.%d+\nstep 20: loss 1%.%d+\n$")
    for ranks = 2, 3 do assert.are.equal(alone, output_of(ranks, "data.lua 20")) end
  end)

  it("pipeline.lua gives the same results", function()
    local alone = output_of(nil, "pipeline.lua")
    assert.truthy(alone:find "^the likeliest next ids: [%d ]+\nloss %d%.%d+\n$")
    for ranks = 2, 3 do assert.are.equal(alone, output_of(ranks, "pipeline.lua")) end
  end)
end)
