-- Specs that all ranks of a job run together: mpirun -n 4 build/heed tests/mpi/collectives.lua
--   local ranks = require "tests.ranks"
--   ranks.describe("all_reduce", function() ranks.it("adds", function() … end) end)
--   ranks.finish()
-- A failure on one rank ends the job, since the ranks are then at different calls.
local dist = require "heed.distributed"

if not dist.is_initialized() then dist.init_process_group { timeout = 30 } end

local ranks = { dist = dist, rank = dist.get_rank(), size = dist.get_world_size(), passed = 0 }

local prefix = {}

function ranks.describe(title, f)
  prefix[#prefix + 1] = title
  f()
  prefix[#prefix] = nil
end

-- Runs f on all ranks; fails if it raises on one of them.
function ranks.it(title, f)
  title = table.concat(prefix, " ") .. " " .. title
  local ok, message = xpcall(f, function(problem) return debug.traceback(tostring(problem)) end)
  if not ok then error(("%s: %s"):format(title, message), 0) end
  ranks.passed = ranks.passed + 1
end

-- Like it, for specs that need at least so many ranks.
function ranks.with(count, title, f)
  if ranks.size >= count then ranks.it(title, f) end
end

-- The message of an error that f must raise, without its position; all ranks go on.
function ranks.message_of(f, ...)
  local ok, message = pcall(f, ...)
  if ok then error("no error was raised", 2) end
  return (tostring(message):gsub("^[^:]*:%d+: ", ""))
end

function ranks.finish()
  dist.barrier()
  if ranks.rank == 1 then print(("%d passed, 0 failed"):format(ranks.passed)) end
  dist.destroy_process_group()
end

return ranks
