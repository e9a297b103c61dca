-- heed.distributed without a launcher and without MPI. tests/mpi has the specs of several ranks.
local fails = require "tests.fails"
local heed = require "heed"
local support = require "tests.support"

local function run(code, environment)
  return support.with_script(code, function(script)
    return support.run(("%s %s %s"):format(environment or "", support.heed, script))
  end)
end

describe("heed.distributed", function()
  it("is one rank of one without a launcher", function()
    local result = run [[
      local heed, dist = require "heed", require "heed.distributed"
      assert(not dist.is_initialized())
      dist.init_process_group()
      assert(dist.is_initialized() and dist.get_rank() == 1 and dist.get_world_size() == 1)
      local x = dist.all_reduce(heed.full({ 2 }, 3), "avg")
      assert(x[2] == 3 and #dist.all_gather(x) == 1)
      dist.destroy_process_group()
      assert(not dist.is_initialized())
      print "done"]]
    assert.are.same({ code = 0, out = "done\n", err = "" }, result)
  end)

  it("needs init_process_group first", function()
    local dist = require "heed.distributed"
    for _, name in ipairs { "barrier", "get_rank", "all_gather", "new_group", "counted", "destroy_process_group" } do
      fails(name .. ": the process group is not there; call init_process_group first",
        function() dist[name](heed.ones(2)) end)
    end
  end)

  it("says what is missing where a launcher started several processes, but there is no heed_mpi", function()
    local result = run([[
      package.cpath = ""
      require("heed.distributed").init_process_group()]], "OMPI_COMM_WORLD_SIZE=2")
    assert.are.equal(1, result.code)
    assert.is_truthy(result.err:find("init_process_group: a launcher started this process as one of several, but " ..
      "heed_mpi cannot be loaded; build it with make MPI=1 (", 1, true), result.err)
  end)

  it("is refused where a script may open no files", function()
    local result = run [[
      require("heed").limit { files = false }
      print(pcall(function() require "heed.distributed" end))]]
    assert.is_truthy(result.out:find(".*:2: heed%.distributed: the limits of this Lua state allow no files, so it "
      .. "cannot reach other machines, either\n$"), result.out .. result.err)
  end)

  it("refuses unknown options and names", function()
    local dist = require "heed.distributed"
    fails("init_process_group: there is no option 'backend'; the options are timeout, check",
      function() dist.init_process_group { backend = "gloo" } end)
    fails("init_process_group: timeout is the number 0; it must be a number of seconds above 0",
      function() dist.init_process_group { timeout = 0 } end)
    fails("heed.distributed has no function or field 'all_reduced'",
      function() return dist.all_reduced end)
  end)

  it("frees a model that data_parallel got", function()
    local dist = require "heed.distributed"
    dist.init_process_group()
    local function in_use()
      collectgarbage()
      collectgarbage()
      return heed.info().memory_in_use
    end
    local before = in_use()
    for _ = 1, 30 do dist.data_parallel(heed.nn.Linear(64, 64)) end
    local after = in_use()
    dist.destroy_process_group()
    assert.is_true(after - before < 3 * 64 * 64 * 4) -- LuaJIT's compiled code may keep the last one
  end)
end)
