-- Collectives of tensors of every dtype, of any strides and of many sizes.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local dist, rank, size = ranks.dist, ranks.rank, ranks.size
local describe, it = ranks.describe, ranks.it

local DTYPES = { "float32", "int64", "bool", "bfloat16", "float16", "int8" }
local sum_of_ranks = size * (size + 1) / 2

-- The values 1, 2, 3 … and the rank, in a dtype.
local function numbers(count, of, dtype)
  local values = {}
  for i = 1, count do values[i] = (i + of) % 5 - (dtype == "bool" and 0 or 2) end
  return heed.tensor(values, { dtype = "float32" }):to(dtype)
end

-- 0, 1, 2, … as float32.
local function floats(count) return heed.arange(0, count):float() end

local function same(a, b) return a.dtype == b.dtype and a:eq(b):all():item() end

local function equal_floats(a, b) return same(a:float(), b:float()) end

describe("all_reduce", function()
  it("adds the tensors of all ranks in place", function()
    local x = heed.full({ 2, 3 }, rank)
    assert.are.equal(x, dist.all_reduce(x))
    assert.is_true(same(heed.full({ 2, 3 }, sum_of_ranks), x))
  end)

  it("has the ops sum, prod, min, max and avg", function()
    local function reduce(op) return dist.all_reduce(heed.full({ 3 }, rank), op)[2] end
    local product = 1
    for i = 1, size do product = product * i end
    assert.are.equal(sum_of_ranks, reduce "sum")
    assert.are.equal(product, reduce "prod")
    assert.are.equal(1, reduce "min")
    assert.are.equal(size, reduce "max")
    assert.are.equal((size + 1) / 2, reduce "avg")
  end)

  it("reduces int64 beyond 2^53, and bool by min and max", function()
    local x = heed.full({ 3 }, 1, { dtype = "int64" }) * 1000000007 * 1000000009
    local expected = x * size
    assert.is_true(same(expected, dist.all_reduce(x:clone(), "sum")))
    local flags = heed.tensor { rank == 1, true, false, rank == size }
    assert.is_true(same(heed.tensor { size == 1, true, false, size == 1 }, dist.all_reduce(flags:clone(), "min")))
    assert.is_true(same(heed.tensor { true, true, false, true }, dist.all_reduce(flags:clone(), "max")))
  end)

  it("passes nan on", function()
    for _, op in ipairs { "sum", "prod", "min", "max", "avg" } do
      for from = 1, size do
        local x = dist.all_reduce(heed.tensor { rank == from and 0 / 0 or rank, 1 }, op)
        assert.is_true(x[1] ~= x[1] and x[2] == x[2])
      end
    end
  end)

  it("gives the sum in the order of the ranks, bit for bit", function()
    for _, count in ipairs { 1, 5, 1000, 70000 } do
      heed.manual_seed(rank)
      local x = heed.randn(count) * 1000
      local all = dist.all_gather(x)
      local expected = all[1]:clone()
      for i = 2, size do expected:add_(all[i]) end
      assert.is_true(same(expected, dist.all_reduce(x, "sum", { ordered = true })))
    end
  end)

  it("takes sizes around the number of ranks and around its pieces", function()
    for _, count in ipairs { 0, 1, size - 1, size, size + 1, 4095, 4096, 16385, 65537, 4194304 / size + 1, 4194305 } do
      local x = heed.full({ math.floor(count) }, rank)
      dist.all_reduce(x)
      assert.are.equal(0, x:ne(sum_of_ranks):sum():item())
    end
  end)

  it("writes tensors with gaps, and no element beside them", function()
    local base = heed.zeros(6, 5)
    local view = base[{ { 1, 6, 2 }, { 2, 4 } }]
    view:fill_(rank)
    dist.all_reduce(view)
    assert.are.equal(9 * sum_of_ranks, base:sum():item())
    local turned = floats(6):view(2, 3).T
    dist.all_reduce(turned)
    assert.is_true(same((floats(6) * size):view(2, 3).T, turned))
  end)

  it("takes a tensor without dimensions", function()
    assert.are.equal(sum_of_ranks, dist.all_reduce(heed.tensor(rank)):item())
  end)

  it("refuses dtypes that are not computed with, on all ranks alike", function()
    for _, dtype in ipairs { "bfloat16", "float16", "int8" } do
      assert.are.equal(("all_reduce: x is %s; for the op sum it must be float32 or int64; use x:float()"):format(dtype),
        ranks.message_of(dist.all_reduce, heed.ones(3):to(dtype)))
    end
    assert.are.equal("all_reduce: x is bool; for the op sum it must be float32 or int64; use x:float()",
      ranks.message_of(dist.all_reduce, heed.tensor { true }))
    assert.are.equal("all_reduce: x is int64; for the op avg it must be float32; use x:float()",
      ranks.message_of(dist.all_reduce, heed.tensor({ 1 }, { dtype = "int64" }), "avg"))
  end)

  it("refuses tensors whose elements share memory, and changes nothing", function()
    local x = heed.ones(1):expand(3)
    assert.are.equal("all_reduce: x has elements that share memory, as those of an expanded tensor do; use x:clone()",
      ranks.message_of(dist.all_reduce, x))
    assert.are.equal(3, x:sum():item())
  end)

  ranks.with(2, "is noticed by a backward pass that needs the old elements", function()
    local weight = heed.ones(3, { requires_grad = true })
    local x = heed.full({ 3 }, rank)
    local y = heed.enable_grad(function() return (weight * x):sum() end)
    dist.all_reduce(x)
    assert.is_truthy(ranks.message_of(y.backward, y):find("changed", 1, true))
  end)

  it("refuses a tensor that requires a gradient while operations are recorded", function()
    local weight = heed.ones(3, { requires_grad = true })
    heed.enable_grad(function()
      assert.are.equal("all_reduce: x requires a gradient, which would not include what other ranks send; use " ..
        "heed.no_grad or x:detach()", ranks.message_of(dist.all_reduce, weight))
    end)
    heed.no_grad(function() dist.all_reduce(weight) end)
    assert.are.equal(size, weight[1])
  end)
end)

describe("all_gather", function()
  it("gives the tensors of all ranks in their order, in every dtype", function()
    for _, dtype in ipairs(DTYPES) do
      for _, count in ipairs { 0, 1, 7, 3000 } do
        local list = dist.all_gather(numbers(count, rank, dtype))
        assert.are.equal(size, #list)
        for i = 1, size do
          assert.are.equal(dtype, list[i].dtype)
          assert.is_true(equal_floats(numbers(count, i, dtype), list[i]))
        end
      end
    end
  end)

  it("keeps the shape, also of views and of tensors without dimensions", function()
    local list = dist.all_gather((floats(6):view(2, 3) + rank).T)
    for i = 1, size do assert.is_true(same((floats(6):view(2, 3) + i).T, list[i])) end
    list = dist.all_gather(heed.tensor(rank))
    assert.are.equal(0, list[size].ndim)
    assert.are.equal(size, list[size]:item())
  end)

  it("takes tensors of different lengths with sizes = true", function()
    local list = dist.all_gather(heed.full({ 2 * (rank - 1), 3 }, rank), { sizes = true })
    for i = 1, size do assert.is_true(same(heed.full({ 2 * (i - 1), 3 }, i), list[i])) end
    for _, each in ipairs(dist.all_gather(heed.zeros(0, 2), { sizes = true })) do assert.are.equal(0, each:size(1)) end
  end)

  it("writes into one tensor, stacked or one after the other", function()
    local expected = {}
    for i = 1, size do expected[i] = heed.full({ 2, 3 }, i) end
    local stacked, joined = heed.zeros(size, 2, 3), heed.zeros(size * 2, 3)
    assert.are.equal(stacked, dist.all_gather_into_tensor(stacked, heed.full({ 2, 3 }, rank)))
    dist.all_gather_into_tensor(joined, heed.full({ 2, 3 }, rank))
    assert.is_true(same(heed.stack(expected), stacked))
    assert.is_true(same(heed.cat(expected), joined))
    assert.are.equal(("all_gather_into_tensor: out is float32 of 5 elements; it must be float32 of %d, for %d " ..
      "time%s of x"):format(6 * size, size, size == 1 and "" or "s"),
      ranks.message_of(dist.all_gather_into_tensor, heed.zeros(5), heed.zeros(2, 3)))
  end)
end)

describe("reduce_scatter", function()
  it("gives each rank its part of the sum", function()
    for _, rows in ipairs { 0, 1, 3, 4000 } do
      local x = floats(rows * size * 2):view(rows * size, 2) + rank
      local part = dist.reduce_scatter(x)
      local all = floats(rows * size * 2):view(rows * size, 2) * size + sum_of_ranks
      assert.is_true(same(all:narrow(1, 1 + (rank - 1) * rows, rows), part))
    end
  end)

  it("takes views, and other ops", function()
    local x = (floats(2 * size):view(2, size) * rank).T
    assert.is_true(same((floats(2 * size):view(2, size) * size).T:narrow(1, rank, 1),
      dist.reduce_scatter(x, "max")))
  end)

  ranks.with(2, "refuses a length that does not divide", function()
    assert.are.equal(("reduce_scatter: x has %d rows; their number must be a multiple of %d, the number of ranks")
      :format(size + 1, size), ranks.message_of(dist.reduce_scatter, heed.ones(size + 1)))
  end)
end)

describe("broadcast", function()
  it("gives all ranks the tensor of one, in every dtype", function()
    for _, dtype in ipairs(DTYPES) do
      for src = 1, size do
        for _, count in ipairs { 0, 1, 5000 } do
          local x = numbers(count, rank, dtype)
          assert.are.equal(x, dist.broadcast(x, src))
          assert.is_true(equal_floats(numbers(count, src, dtype), x))
        end
      end
    end
  end)

  it("writes tensors with gaps", function()
    local base = heed.zeros(4, 4)
    dist.broadcast(base:narrow(2, 2, 2):fill_(rank), size)
    assert.are.equal(8 * size, base:sum():item())
  end)

  it("names a rank that does not exist", function()
    assert.are.equal(("broadcast: src is the number %d; it must be a rank from 1 to %d"):format(size + 1, size),
      ranks.message_of(dist.broadcast, heed.ones(2), size + 1))
    assert.are.equal(("broadcast: src is nil; it must be a rank from 1 to %d"):format(size),
      ranks.message_of(dist.broadcast, heed.ones(2)))
  end)
end)

describe("a call", function()
  it("keeps no memory, whether it succeeds or fails", function()
    local other = rank % 2 + 3 -- elements that differ from those of other ranks
    local function calls()
      dist.all_reduce(heed.ones(1000))
      dist.all_reduce(heed.ones(30, 20).T)
      dist.all_gather(heed.ones(20, 30).T)
      dist.reduce_scatter(heed.ones(4 * size, 30))
      dist.broadcast(heed.ones(20, 30).T, size)
      local receive = dist.irecv(heed.zeros(20, 30).T, rank)
      dist.isend(heed.ones(20, 30).T, rank):wait()
      receive:wait()
      for _, f in ipairs { dist.all_reduce, dist.all_gather, dist.broadcast } do
        pcall(f, heed.ones(20, other).T, f == dist.broadcast and 1 or nil)
      end
      pcall(dist.reduce_scatter, heed.ones(size, other))
      pcall(dist.all_reduce, heed.ones(1):expand(3))
      collectgarbage()
      collectgarbage()
      return heed.info().memory_in_use
    end
    calls()
    local before = calls()
    for _ = 1, 5 do calls() end
    assert.are.equal(before, calls())
  end)
end)

describe("a limit of memory", function()
  it("is exceeded only after the garbage was collected", function()
    local x = heed.ones(250000)
    collectgarbage()
    collectgarbage()
    collectgarbage "stop"
    heed.limit { memory = heed.info().memory_in_use + (2 * size + 3) * 1000000 } -- for one call
    local ok, message = pcall(function()
      for _ = 1, 6 do
        dist.all_gather(x)
        dist.reduce_scatter(heed.ones(250000 * size))
        local receive = dist.irecv(heed.zeros(500000):narrow(1, 1, 250000), rank)
        dist.isend(x, rank):wait()
        receive:wait()
      end
    end)
    heed.limit { memory = math.huge }
    collectgarbage "restart"
    assert.is_true(ok, message)
  end)

  ranks.with(2, "stops one rank before it takes part, so that it can try again", function()
    local x = heed.ones(100000)
    if rank == 1 then
      collectgarbage()
      heed.limit { memory = heed.info().memory_in_use + 1000 }
      assert.is_truthy(ranks.message_of(dist.all_gather, x):find("memory limit exceeded", 1, true))
      heed.limit { memory = math.huge }
    end
    assert.are.equal(size, #dist.all_gather(x))
  end)
end)

describe("counted", function()
  it("counts the bytes that a rank sends to the others", function()
    local function bytes(kind, f)
      local before = dist.counted()[kind]
      f()
      local now = dist.counted()[kind]
      return now and now.bytes - (before and before.bytes or 0) or 0
    end
    local n = 40000 * size -- elements; each rank sends two of the `size` parts to each other rank
    local all = 2 * (size - 1) * 40000 * 4
    assert.are.equal(all, bytes("all_reduce", function() dist.all_reduce(heed.ones(n)) end))
    assert.are.equal((size - 1) * 4, bytes("all_reduce", function() dist.all_reduce(heed.ones(1)) end))
    assert.are.equal((size - 1) * n * 4, bytes("all_gather", function() dist.all_gather(heed.ones(n)) end))
    assert.are.equal((size - 1) * 40000 * 4, bytes("reduce_scatter", function() dist.reduce_scatter(heed.ones(n)) end))
    assert.are.equal(rank == size and (size - 1) * n * 4 or 0,
      bytes("broadcast", function() dist.broadcast(heed.ones(n), size) end))
    assert.are.equal((size - 1) * 40, bytes("agreement", dist.barrier))
  end)

  ranks.with(2, "has the seconds that a rank waited for others, agreeing included", function()
    local longest
    repeat -- a rank that the system has stopped meanwhile does not notice that it waits
      local late = heed.clock() + 0.01
      while rank == 2 and heed.clock() < late do end
      dist.barrier()
      local waited = dist.counted().barrier.waited
      assert.is_true(waited >= 0)
      longest = dist.all_reduce(heed.tensor { waited }, "max")[1]
    until longest > 0
  end)

  ranks.with(2, "has the seconds that a rank waited for a message", function()
    local x = heed.zeros(1)
    if rank == 1 then dist.irecv(x, 2):wait() end
    if rank == 2 then dist.isend(x, 1):wait() end
    local kind = dist.counted()[rank == 1 and "irecv" or "isend"]
    assert.is_true(rank > 2 or kind.waited > 0)
  end)
end)

ranks.finish()
