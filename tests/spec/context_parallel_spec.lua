-- What context_parallel is made of, in one process. tests/mpi has the specs of several ranks.
local heed = require "heed"
local division = require "heed.parallel.division"
local support = require "tests.support"
local primitives = require("heed.core").modules

describe("the division of a sequence", function()
  it("gives each token to one rank, in sizes that differ by at most one", function()
    for ranks = 1, 6 do
      for n = 0, 40 do
        local seen, least, most = {}, math.huge, 0
        for rank = 1, ranks do
          local count, at = division.count(n, ranks, rank), 0
          least, most = math.min(least, count), math.max(most, count)
          for _, each in ipairs(division.segments(n, ranks, rank)) do
            assert.are.equal(at, each.at)
            at = at + each.size
            for i = each.first + 1, each.first + each.size do
              assert.is_nil(seen[i])
              seen[i] = true
            end
          end
          assert.are.equal(count, at)
        end
        assert.are.equal(n, #seen)
        assert.is_true(most - least <= 1)
      end
    end
  end)

  it("gives all ranks the same work where queries see what is before them", function()
    local ranks, n = 4, 800
    for rank = 1, ranks do
      local pairs_seen = 0
      for _, each in ipairs(division.segments(n, ranks, rank)) do
        for i = each.first + 1, each.first + each.size do pairs_seen = pairs_seen + i end
      end
      assert.are.equal(n * (n + 1) / 2 / ranks, pairs_seen)
    end
  end)

  it("joins what it has cut", function()
    local x, shards = heed.randn(3, 11, 2), {}
    for rank = 1, 4 do shards[rank] = division.cut(x, 2, division.segments(11, 4, rank)) end
    assert.is_true(division.join(shards, 2, 11):equal(x))
    assert.are.same({ 1, 2, 11 }, division.positions(11, 4, 1):tolist())
  end)
end)

describe("a mask for a part of a call", function()
  local parents = {}
  for i = 1, 12 do parents[i] = math.floor(i / 2) end
  local ranges = heed.tensor({ { { { 1, 3 }, { 5, 7 } } } }, { dtype = "int64" }) -- [1, 1, 2, 2]
  local of_heads = heed.cat({ ranges, ranges + 2 }, 1):unsqueeze(1) -- [1, 2, 1, 2, 2]
  local masks = {
    heed.mask.documents { 3, 5, 4 }, heed.mask.prefix(6), heed.mask.tree(parents), heed.mask.intervals(ranges),
    heed.mask.intervals(of_heads), heed.mask.causal(), heed.mask.window(2, 3),
    heed.mask.documents({ 3, 5, 4 }):both(heed.mask.causal()), heed.mask.prefix(5):both(heed.mask.window(4, nil)),
  }

  it("is that part of the dense mask", function()
    for _, mask in ipairs(masks) do
      local whole = mask:dense(12, 12)
      for row = 1, 12, 4 do
        for key = 1, 12, 3 do
          local part = primitives.mask_part(mask, 12, 12, 0, row, 4, key, 3)
          local wanted = whole:narrow(-2, row, 4):narrow(-1, key, 3)
          assert.is_true(part:dense(4, 3, row - key):eq(wanted):all():item(), tostring(mask))
        end
      end
    end
  end)

  it("counts positions from an offset, and may be for one item of a batch", function()
    local items = heed.cat({ of_heads, of_heads + 1 }, 1) -- [2, 2, 1, 2, 2]
    local mask = heed.mask.intervals(items)
    local part = primitives.mask_part(mask, 4, 10, 6, 2, 3, 4, 5, 2)
    assert.is_true(part:dense(3, 5):eq(mask:dense(4, 10)[2][{ {}, { 2, 4 }, { 4, 8 } }]):all():item())
    local tree = heed.mask.tree { 0, 1, 1, 2, 3 }
    part = primitives.mask_part(tree, 5, 7, 2, 2, 3, 2, 5)
    assert.is_true(part:dense(3, 5, 2):equal(tree:dense(5, 7, 2)[{ { 2, 4 }, { 2, 6 } }]))
  end)

  it("must fit the call", function()
    local ok, message = pcall(primitives.mask_part, heed.mask.documents { 3, 5 }, 12, 12, 0, 1, 4, 1, 3)
    assert.is_false(ok)
    assert.is_truthy(message:find("the lengths of mask.documents add up to 8, and there are 12 keys", 1, true))
  end)
end)

describe("context_parallel without a launcher", function()
  it("gives what the function gives", function()
    local code = [[
      local heed = require "heed"
      local dist = require "heed.distributed"
      dist.init_process_group()
      local mesh = dist.init_device_mesh({ 1 }, { "cp" })
      heed.manual_seed(1)
      local mha = heed.nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 64, dropout = 0, num_heads = 2 }
      local x, cache = heed.randn(1, 9, 8), dist.context_cache(mesh)
      local function f(shard) return mha(shard(x, 2), { cache = cache }) end
      local y = dist.context_parallel(mesh, f, { gather = 2 })
      print(y:allclose(mha(x), { atol = 1e-6 }), cache)
      local ok, message = pcall(dist.context_parallel, mesh, function() local steps = mha:steps(x) return steps end)
      print(ok, (message:gsub("^.-:(%d+: )", "%1")))
      print(mha:steps(x).done)]]
    local result = support.with_script(code, function(script)
      return support.run(support.heed .. " " .. script)
    end)
    assert.are.same({ code = 0, err = "", out = table.concat({
      "true\theed.distributed.ContextCache(length=9, ranks=1, dtype=float32)",
      "false\t11: steps: it is not available in context_parallel", "0", "",
    }, "\n") }, result)
  end)

  it("has an example, which reads and writes a text", function()
    local result = support.run(support.heed .. " scripts/examples/mpi/context.lua 96")
    assert.are.equal(0, result.code)
    assert.is_truthy(result.out:find("rank 1 of 1 read 96 of 96 tokens", 1, true))
    assert.is_truthy(result.out:find("the cache has 104 tokens; sent by rank 1: 0.00 MB", 1, true))
  end)
end)
