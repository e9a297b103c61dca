-- What a rank says when MPI itself fails: each call of MPI in turn, which tests/mpi/failing lets fail.
local support = require "tests.support"

-- Makes each kind of call, with pieces of 1000 bytes, prints what they raise, and ends.
local SCRIPT = [[
local heed = require "heed"
local dist, mpi = require "heed.distributed", require "heed_mpi"
local init = mpi.init
function mpi.init(settings)
  settings.piece = 1000
  return init(settings)
end
local function try(f, ...)
  local fine, result = pcall(f, ...)
  if fine then return result end
  print(result)
end
try(dist.init_process_group, { timeout = 5 })
if dist.is_initialized() then
  try(dist.new_group, { 1 })
  try(dist.all_reduce, heed.ones(2))
  try(dist.all_reduce, heed.ones(5000))
  try(dist.all_gather, heed.ones(2))
  try(dist.reduce_scatter, heed.ones(2))
  try(dist.broadcast, heed.ones(2), 1)
  try(dist.barrier)
  local got = try(dist.irecv, heed.zeros(2), 1)
  local sent = try(dist.isend, heed.ones(2), 1)
  if got then try(got.wait, got) end
  if sent then try(sent.wait, sent) end
  try(dist.destroy_process_group)
end
print "the end"
]]

describe("a call of MPI that fails", function()
  it("is an error, which names the function and MPI's reason, and leaves the script running", function()
    support.with_script(SCRIPT, function(script)
      local launcher, preloaded = os.getenv "MPIRUN" or "mpirun", os.getenv "LD_PRELOAD" or ""
      local n, step = 1, support.nightly(1, 5)
      repeat
        local result = support.run(("timeout 50 %s -n 1 env HEED_FAILING_MPI=%d LD_PRELOAD='%s %s' %s %s"):format(
          launcher, n, support.build .. "/failing_mpi.so", preloaded, support.heed, script))
        local calls = result.err:match "MPI calls: (%d+)"
        assert.truthy(result.out:find("the end\n", 1, true), n .. ": " .. result.out .. result.err)
        if not calls then
          local first = result.out:match "^[^\n]*"
          assert.truthy(first:find "^[%w_]+: MPI[: ]", n .. ": " .. result.out)
        end
        n = n + step
      until calls
      assert.is_true(n > 50)
    end)
  end)
end)
