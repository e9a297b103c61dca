-- isend and irecv: what arrives, and what is said where it does not.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local dist, rank, size = ranks.dist, ranks.rank, ranks.size
local describe, it = ranks.describe, ranks.it

local DTYPES = { "float32", "int64", "bool", "bfloat16", "float16", "int8" }
local after, before = rank % size + 1, (rank - 2) % size + 1 -- the neighbours in a ring

-- Sends x to the next rank and returns what the one before sends.
local function pass_on(x, into, tag)
  local work = { dist.irecv(into, before, { tag = tag }), dist.isend(x, after, { tag = tag }) }
  for _, each in ipairs(work) do each:wait() end
  return into
end

describe("a message", function()
  it("arrives in every dtype and size", function()
    for _, dtype in ipairs(DTYPES) do
      for _, count in ipairs { 0, 1, 1000, 300000 } do
        local into = pass_on(heed.full({ count }, rank):to(dtype), heed.zeros(count):to(dtype))
        assert.are.equal(dtype, into.dtype)
        assert.is_true(into:float():eq(heed.full({ count }, before):to(dtype):float()):all():item())
      end
    end
  end)

  it("is read from views and written to views", function()
    local from, base = heed.full({ 3, 2 }, rank).T, heed.zeros(4, 4)
    pass_on(from, base[{ { 2, 3 }, { 1, 3 } }])
    assert.are.equal(6 * before, base:sum():item())
    assert.are.equal(6 * before, base[{ { 2, 3 }, { 1, 3 } }]:sum():item())
  end)

  it("keeps the elements of a view as they were sent", function()
    local x, into = heed.full({ 3, 2 }, rank), heed.zeros(2, 3)
    local receive, send = dist.irecv(into, before), dist.isend(x.T, after)
    x:fill_(-1)
    receive:wait()
    send:wait()
    assert.are.equal(6 * before, into:sum():item())
  end)

  it("overtakes no other with its tag, and is found by its tag", function()
    local first, second, third = heed.zeros(1), heed.zeros(1), heed.zeros(1)
    local work = {
      dist.isend(heed.full({ 1 }, 1), after, { tag = 7 }), dist.isend(heed.full({ 1 }, 2), after, { tag = 3 }),
      dist.isend(heed.full({ 1 }, 3), after, { tag = 7 }), dist.irecv(first, before, { tag = 3 }),
      dist.irecv(second, before, 7), dist.irecv(third, before, { tag = 7 }),
    }
    for i = #work, 1, -1 do work[i]:wait() end
    assert.are.same({ 2, 1, 3 }, { first[1], second[1], third[1] })
  end)

  it("can be waited for twice", function()
    local into = heed.zeros(2)
    local receive, send = dist.irecv(into, before), dist.isend(heed.ones(2), after)
    receive:wait()
    receive:wait()
    send:wait()
    send:wait()
    assert.is_true(receive:is_completed() and send:is_completed())
  end)

  it("tells without waiting whether it was received", function()
    local into = heed.zeros(2)
    local receive = dist.irecv(into, before)
    if size > 1 then
      dist.barrier()
      assert.is_false(receive:is_completed())
      dist.barrier()
    end
    local send = dist.isend(heed.ones(2), after)
    while not receive:is_completed() do heed.zeros(1) end
    assert.are.equal(2, into:sum():item())
    send:wait()
  end)

  it("keeps the memory of tensors that are released in flight", function()
    local into, x = heed.zeros(100000), heed.full({ 100000 }, rank)
    local alias = into:view(100000)
    local receive, send = dist.irecv(into, before), dist.isend(x, after)
    into:release()
    x:release()
    collectgarbage()
    receive:wait()
    send:wait()
    assert.are.equal(before, alias:mean():item())
  end)

  it("arrives when nobody waits for its sending", function()
    for _ = 1, 20 do dist.isend(heed.ones(10), after) end
    collectgarbage()
    local into = heed.zeros(10)
    for _ = 1, 20 do
      dist.irecv(into, before):wait()
      collectgarbage()
    end
    assert.are.equal(10, into:sum():item())
  end)

  it("goes on while a rank computes", function()
    local count = 1000000
    for threads = 1, 2 do
      heed.set_num_threads(threads)
      local into = heed.zeros(count)
      local receive, send = dist.irecv(into, before), dist.isend(heed.full({ count }, rank), after)
      local x = heed.randn(300, 300)
      for _ = 1, 20 do x = (x:matmul(x)):softmax(-1) end
      receive:wait()
      send:wait()
      assert.are.equal(before, into:mean():item())
    end
    heed.set_num_threads(1)
  end)

  it("arrives while the receiver waits in a collective", function()
    local into = heed.zeros(1000000)
    local receive = dist.irecv(into, before)
    if rank == size and size > 1 then dist.barrier() end -- the others come only when their messages were sent
    dist.isend(heed.full({ 1000000 }, rank), after):wait()
    if rank < size or size == 1 then dist.barrier() end
    receive:wait()
    assert.are.equal(before, into:mean():item())
  end)

  it("must have the dtype and the number of elements that are received", function()
    local cases = {
      { heed.ones(4), heed.zeros(3) }, { heed.ones(3), heed.zeros(4) }, { heed.ones(4), heed.zeros(2):long() },
      { heed.ones(100000), heed.zeros(3) },
    }
    for _, case in ipairs(cases) do
      local x, into = case[1], case[2]
      local receive, send = dist.irecv(into, before), dist.isend(x, after)
      local expected = ("irecv: x is %s of %d elements here, and %s of %d on rank %d; they must be the same"):format(
        into.dtype, into:numel(), x.dtype, x:numel(), before)
      assert.are.equal(expected, ranks.message_of(receive.wait, receive))
      assert.are.equal(expected, ranks.message_of(receive.wait, receive))
      send:wait()
    end
    assert.are.equal(3, pass_on(heed.ones(3), heed.zeros(3)):sum():item()) -- all goes on
  end)
end)

describe("isend and irecv", function()
  it("name a rank or tag that does not exist", function()
    local range = ("it must be a rank from 1 to %d"):format(size)
    assert.are.equal("isend: dst is the number 0; " .. range, ranks.message_of(dist.isend, heed.ones(1), 0))
    assert.are.equal("irecv: src is nil; " .. range, ranks.message_of(dist.irecv, heed.ones(1)))
    assert.are.equal("isend: tag is the number -1; it must be an integer from 0 to 32767",
      ranks.message_of(dist.isend, heed.ones(1), rank, { tag = -1 }))
    assert.are.equal("isend: there is no option 'tags'; the options are tag, group; did you mean 'tag'?",
      ranks.message_of(dist.isend, heed.ones(1), rank, { tags = 1 }))
  end)

  it("refuse values that are no tensors, and released tensors", function()
    local x = heed.ones(2)
    x:release()
    assert.is_truthy(ranks.message_of(dist.isend, x, rank):find("isend: x is a released tensor", 1, true))
    assert.are.equal("irecv: x is the number 3; it must be a tensor", ranks.message_of(dist.irecv, 3, rank))
  end)

  it("work in a loop of many", function()
    local into = heed.zeros(10)
    for i = 1, 500 do pass_on(heed.full({ 10 }, i), into, i % 5) end
    assert.are.equal(5000, into:sum():item())
  end)
end)

ranks.finish()
