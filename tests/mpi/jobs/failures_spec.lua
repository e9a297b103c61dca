-- What a job says and does when one of its ranks fails.
local heed = require "heed"
local support = require "tests.support"

local START = [[
local heed = require "heed"
local dist = require "heed.distributed"
dist.init_process_group { timeout = %s }
local rank, size = dist.get_rank(), dist.get_world_size()
local function endless() while true do heed.ones(100, 100):matmul(heed.ones(100, 100)) end end
]]

-- Runs the code on several ranks, after `first`, if it is given, and START.
local function job(ranks, code, timeout, first)
  local launcher = os.getenv "MPIRUN" or "mpirun"
  return support.with_script((first or "") .. START:format(timeout or 60) .. code, function(script)
    local begin = heed.clock()
    local result = support.run(("timeout 50 %s -n %d %s %s"):format(launcher, ranks, support.heed, script))
    result.seconds = heed.clock() - begin
    result.all = result.out .. result.err
    return result
  end)
end

-- Checks that a job fails, before a timeout of a minute is over, and says these texts; of a list of texts one: where
-- several ranks fail, the first may end the job before others have said why.
local function check_failure(result, ...)
  for _, texts in ipairs { ... } do
    local found = false
    for _, text in ipairs(type(texts) == "table" and texts or { texts }) do
      found = found or result.all:find(text, 1, true)
    end
    if not found then
      error(("no '%s' in: %s"):format(type(texts) == "table" and texts[1] or texts, result.all), 2)
    end
  end
  assert.are_not.equal(0, result.code)
  assert.is_true(result.seconds < 45)
end

describe("a job", function()
  it("ends well when all scripts end, with or without destroy_process_group", function()
    for _, last in ipairs { "", "dist.destroy_process_group()", "os.exit(0)", "os.exit(true)" } do
      local result = job(2, "dist.all_reduce(heed.ones(2)) io.write 'done\\n' " .. last)
      assert.are.equal(0, result.code, result.all)
      assert.are.equal("done\ndone\n", result.out)
      assert.are.equal("", result.err)
    end
  end)

  it("ends when one rank raises an error, and names it", function()
    check_failure(job(2, "if rank == 2 then error 'boom' end endless()"), "rank 2 of 2 failed: ", "boom",
      "stack traceback")
    check_failure(job(2, "if rank == 2 then error 'boom' end dist.all_reduce(heed.ones(2))"), "rank 2 of 2 failed: ")
    check_failure(job(2, "if rank == 1 then error({}) end dist.barrier()"), "rank 1 of 2 failed: ")
  end)

  it("ends when one rank is interrupted, and names it", function()
    check_failure(job(2, "if rank == 2 then os.execute '(sleep 0.3; kill -INT $PPID) &' endless() end dist.barrier()"),
      "rank 2 of 2 failed: ", ": interrupted")
  end)

  it("ends when one rank is killed", function()
    check_failure(job(2, "if rank == 2 then os.execute 'kill -9 $PPID' end dist.barrier()"), "ignal 9")
  end)

  it("ends when one rank calls os.exit, and names it", function()
    check_failure(job(2, "if rank == 2 then os.exit(3) end endless()"), "rank 2 of 2 ended before the others")
    check_failure(job(2, "if rank == 2 then os.exit(0) end dist.barrier()"),
      { "barrier: rank 2 has ended", "rank 2 of 2 ended before the others" })
  end)

  it("ends when one script ends before a call of the others", function()
    local sides = { "barrier: rank 2 has ended", "destroy_process_group: rank 1 calls barrier here (call 1)" }
    check_failure(job(2, "if rank == 1 then dist.barrier() end"), sides)
    check_failure(job(2, "if rank == 2 then dist.destroy_process_group() else dist.barrier() end"), sides)
  end)

  it("says who calls with another number of elements, or another dtype", function()
    check_failure(job(2, "dist.all_reduce(heed.ones(rank == 1 and 4 or 3))"), {
      "all_reduce: x is float32 of 4 elements here, and float32 of 3 on rank 2; they must be the same",
      "all_reduce: x is float32 of 3 elements here, and float32 of 4 on rank 1; they must be the same",
    })
    check_failure(job(2, "dist.all_reduce(rank == 1 and heed.ones(4) or heed.ones(2):long())"), {
      "all_reduce: x is float32 of 4 elements here, and int64 of 2 on rank 2; they must be the same",
      "all_reduce: x is int64 of 2 elements here, and float32 of 4 on rank 1; they must be the same",
    })
  end)

  it("says who calls something else", function()
    check_failure(job(2, "dist.barrier() if rank == 2 then dist.barrier() else dist.all_reduce(heed.ones(2)) end"),
      { "all_reduce: rank 2 calls barrier here (call 2)", "barrier: rank 1 calls all_reduce here (call 2)" })
  end)

  it("ends when a rank does not come in time", function()
    check_failure(job(2, "dist.barrier() if rank == 2 then endless() end dist.all_reduce(heed.ones(2))", 1),
      "all_reduce (number 2): after 1.0 seconds rank 2 has not come to it", "rank 1 of 2 failed: ")
    check_failure(job(2, "if rank == 2 then os.execute 'kill -STOP $PPID' end dist.barrier()", 1),
      "barrier (number 1): after 1.0 seconds rank 2 has not come to it")
    check_failure(job(4, [[
      local group = dist.new_group { 4, 1, 3 }
      if rank == 3 then endless() end
      if rank == 2 then dist.barrier() else dist.all_reduce(heed.ones(2), { group = group }) end]], 2),
      { "seconds rank 3 has not come to it", "seconds ranks 1 and 3 have not come to it",
        "seconds ranks 4 and 3 have not come to it", "seconds ranks 1, 3 and 4 have not come to it" })
  end)

  it("ends when a message does not come in time", function()
    check_failure(job(2, "if rank == 2 then endless() end dist.irecv(heed.ones(2), 2, { tag = 5 }):wait()", 1),
      "irecv: after 1.0 seconds rank 2 has sent nothing (tag 5)")
    check_failure(job(2, "if rank == 2 then endless() end dist.isend(heed.ones(1000000), 2):wait()", 1),
      "isend: after 1.0 seconds rank 2 has not received x (tag 0)")
  end)
end)

describe("a rank", function()
  it("can go on after an error that all ranks get", function()
    local result = job(3, [[
      assert(not pcall(dist.all_reduce, heed.ones(rank)))
      assert(not pcall(rank == 2 and dist.barrier or dist.broadcast, rank ~= 2 and heed.ones(2) or nil, 1))
      assert(not pcall(dist.broadcast, heed.ones(2), rank))
      assert(not pcall(dist.all_reduce, heed.ones(2), rank == 1 and "min" or "max"))
      assert(not pcall(dist.all_gather, rank == 1 and heed.ones(2, 3) or heed.ones(3, 2)))
      io.write(("%g\n"):format(dist.all_reduce(heed.ones(1))[1]))]])
    assert.are.equal("3\n3\n3\n", result.out, result.all)
    assert.are.equal(0, result.code)
  end)

  it("cannot use a group in which a call was not completed", function()
    check_failure(job(2, [[
      if rank == 2 then endless() end
      print(pcall(dist.barrier))
      print(pcall(dist.all_reduce, heed.ones(2)))]], 1),
      "all_reduce: the group cannot be used after a call that was not completed (barrier (number 1): after 1.0 " ..
        "seconds rank 2 has not come to it)", "rank 1 of 2 ended before the others")
  end)

  it("can wait again for a message that was late", function()
    local result = job(2, [[
      if rank == 2 then
        local begin = heed.clock()
        while heed.clock() < begin + 2 do heed.ones(100, 100):matmul(heed.ones(100, 100)) end
        dist.isend(heed.full({2}, 7), 1):wait()
      else
        local x = heed.zeros(2)
        local work = dist.irecv(x, 2)
        local ok, message
        repeat
          ok, message = pcall(work.wait, work)
          assert(ok or message:find "after 0.5 seconds")
        until ok
        print(x:sum():item())
      end]], 0.5)
    assert.is_truthy(result.out:find "^14", result.all)
    assert.are.equal(0, result.code)
  end)

  it("learns at the end of messages that nobody received or sent", function()
    local result = job(2, [[
      if rank == 1 then dist.isend(heed.ones(1000000), 2, { tag = 5 }) end
      local work = rank == 2 and dist.irecv(heed.ones(3), 1, { tag = 6 })
      local message = select(2, pcall(dist.destroy_process_group))
      io.write((message:gsub("^[^:]*:%d+: ", "")), "\n")
      assert(not dist.is_initialized())]])
    assert.are.equal(0, result.code, result.all)
    for _, text in ipairs { "rank 2 did not receive x of isend (tag 5)", "rank 1 sent nothing for irecv (tag 6)" } do
      assert.is_truthy(result.out:find("destroy_process_group: " .. text, 1, true), result.all)
    end
  end)

  it("can compute in a finalizer when its communication has ended", function()
    local result = job(2, "dist.irecv(heed.ones(3), 3 - rank)", nil, [[
      local heed = require "heed" -- before the finalizer, which runs before heed's
      local function last()
        local q, begin = heed.ones(1, 4, 256, 16), heed.clock()
        repeat heed.scaled_dot_product_attention(q, q, q) until heed.clock() > begin + 0.1
        io.write "computed\n"
      end
      if newproxy then
        local proxy = newproxy(true)
        getmetatable(proxy).__gc, kept = last, proxy
      else
        kept = setmetatable({}, { __gc = last })
      end
    ]])
    assert.are.equal(0, result.code, result.all)
    local _, times = result.out:gsub("computed\n", "") -- MPICH's UCX may warn of what was in flight, also here
    assert.are.equal(2, times, result.all)
  end)

  it("is stopped by a limit of time while it waits", function()
    check_failure(job(2, "if rank == 2 then endless() end heed.limit { seconds = 0.5 } dist.barrier()"),
      "barrier: time limit exceeded: 0.5 s since the call began")
  end)

  it("names the ranks of a group by their numbers in the job", function()
    check_failure(job(3, [[
      local group = dist.new_group { 3, 2 }
      if rank > 1 then dist.all_reduce(heed.ones(rank), { group = group }) end
      dist.barrier()]]), {
      "all_reduce: x is float32 of 2 elements here, and float32 of 3 on rank 3; they must be the same",
      "all_reduce: x is float32 of 3 elements here, and float32 of 2 on rank 2; they must be the same",
    })
  end)

  local with_fork = support.lua == "luajit" and it or pending -- by its FFI
  with_fork("cannot communicate after a fork, and its parent can", function()
    local result = job(2, [[
      local ffi = require "ffi"
      ffi.cdef "int fork(void); int waitpid(int, int *, int); void _exit(int);"
      if rank == 1 then
        io.stdout:flush()
        local child = ffi.C.fork()
        if child == 0 then
          io.write(select(2, pcall(dist.barrier)), "\n")
          io.stdout:flush()
          ffi.C._exit(0)
        end
        ffi.C.waitpid(child, nil, 0)
      end
      dist.barrier()
      dist.destroy_process_group()]])
    assert.is_truthy(result.out:find("barrier: this process is a fork of rank 1; only the process that called " ..
      "init_process_group can communicate", 1, true), result.all)
    assert.are.equal(0, result.code)
  end)

  it("must have the options of the others", function()
    local result = support.with_script([[
      local dist = require "heed.distributed"
      dist.init_process_group { check = os.getenv "OMPI_COMM_WORLD_RANK" ~= "1" and os.getenv "PMI_RANK" ~= "1" }
    ]], function(script)
      return support.run(("timeout 50 %s -n 2 %s %s"):format(os.getenv "MPIRUN" or "mpirun", support.heed, script))
    end)
    assert.is_truthy(result.err:find("init_process_group: the version of heed or the option check is not that of rank",
      1, true), result.err)
    assert.are_not.equal(0, result.code)
  end)
end)
