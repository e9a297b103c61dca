-- The module heed_mpi called directly, without the checks of heed.distributed: every rank makes the same mistakes, and
-- the job goes on.
local heed = require "heed"
local found, mpi = pcall(require, "heed_mpi")
if not found or not (os.getenv "OMPI_COMM_WORLD_SIZE" or os.getenv "PMI_SIZE" or os.getenv "PMIX_RANK") then
  print "1 passed, 0 failed" -- without a launcher, heed.distributed does without the module
  return
end

local function message_of(f, ...)
  local fine, message = pcall(f, ...)
  assert(not fine, "no error was raised")
  return message
end
local function says(wanted, f, ...)
  local message = message_of(f, ...)
  assert(message:find(wanted, 1, true), message)
end
for _, name in ipairs { "rank", "size", "barrier" } do
  says("the process group is not there; call init_process_group first", mpi[name])
end
says("sit on fire", mpi.abort, "sit on fire") -- without a job an error like others

local ranks = require "tests.ranks"
local assert = require "luassert"
local size, it = ranks.size, ranks.it
local tensors = require "tests.tensors"
local int64 = tensors.int64

ranks.describe("heed_mpi", function()
  it("starts once", function() says("init_process_group: it was called before", mpi.init, {}) end)

  it("refuses arguments of the wrong kind", function()
    says("a tensor expected", mpi.all_reduce, 1, "sum")
    says("a tensor expected", mpi.all_reduce, io.stdout, "sum")
    says("sum, prod, min, max or avg expected", mpi.all_reduce, heed.ones(1), "median")
    for _, root in ipairs { 0, size + 1, 1.5 } do
      says("out of range", mpi.broadcast, heed.ones(1), root)
    end
    says("out of range", mpi.broadcast, heed.ones(1), "1")
    says("out of range", mpi.isend, heed.ones(1), 1, 32768)
    says("out of range", mpi.irecv, heed.ones(1), size + 1)
  end)

  it("refuses an op for a dtype that it does not suit", function()
    says("all_reduce: x is int64; for the op avg it must be float32", mpi.all_reduce, int64 { 1 }, "avg")
    says("all_reduce: x is bool; for the op sum it must be float32 or int64", mpi.all_reduce, int64({ 1 }):eq(1), "sum")
    says("all_reduce: x is float16; for the op min it must be float32, int64 or bool", mpi.all_reduce,
      heed.ones(1):to "float16", "min")
    says("reduce_scatter: x is int64; for the op avg it must be float32", mpi.reduce_scatter, int64(heed.ones(size)
      :tolist()), "avg")
  end)

  it("refuses shapes and gradients", function()
    says("reduce_scatter: ", mpi.reduce_scatter, heed.tensor(1), "sum")
    if size > 1 then says("reduce_scatter: ", mpi.reduce_scatter, heed.ones(size + 1), "sum") end
    heed.enable_grad(function()
      says("x requires a gradient, which would not include what other ranks send", mpi.all_reduce,
        heed.ones(2):requires_grad_(), "sum")
    end)
    says("x has elements that share memory", mpi.all_reduce, heed.ones(1):expand(3), "sum")
  end)

  it("reduces each dtype with each op", function()
    local rank = ranks.rank
    local function reduced(x, op) return mpi.all_reduce(x, op):tolist() end
    local product = 1
    for i = 1, size do product = product * (i + 1) end
    assert.are.same({ product, 2 ^ size }, reduced(int64 { rank + 1, 2 }, "prod"))
    assert.are.same({ 1, -size }, reduced(int64 { rank, -rank }, "min"))
    assert.are.same({ size, -1 }, reduced(int64 { rank, -rank }, "max"))
    assert.are.same({ size == 1, false }, reduced(int64({ rank, 0 }):eq(1), "min"))
    assert.are.same({ true, false }, reduced(int64({ rank, 0 }):eq(1), "max"))
    assert.are.same({ 1, size }, { reduced(heed.tensor { rank }, "min")[1], reduced(heed.tensor { rank }, "max")[1] })
    assert.are.same({ (size + 1) / 2 }, reduced(heed.tensor { rank }, "avg"))
  end)
end)
ranks.finish()
