-- Groups of ranks and meshes of them.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local dist, rank, size = ranks.dist, ranks.rank, ranks.size
local describe, it = ranks.describe, ranks.it

describe("new_group", function()
  it("gives a group of some ranks, in the given order", function()
    local list = {}
    for i = size, 1, -2 do list[#list + 1] = i end
    local group = dist.new_group(list)
    local place
    for i, each in ipairs(list) do
      if each == rank then place = i end
    end
    assert.are.equal(place, dist.get_rank(group))
    assert.are.equal(#list, dist.get_world_size(group))
    assert.are.same(list, group.ranks)
    assert.are.equal(("heed.distributed.Group(ranks = {%s})"):format(table.concat(list, ", ")), tostring(group))
    if not place then return end
    local gathered = dist.all_gather(heed.tensor(rank), { group = group })
    for i, each in ipairs(list) do assert.are.equal(each, gathered[i]:item()) end
    assert.are.equal(list[#list], dist.broadcast(heed.full({ 2 }, rank), #list, { group = group })[2])
    local into = heed.zeros(1)
    local receive = dist.irecv(into, (place - 2) % #list + 1, { group = group })
    dist.isend(heed.tensor { rank }, place % #list + 1, { group = group }):wait()
    receive:wait()
    assert.are.equal(list[(place - 2) % #list + 1], into[1])
  end)

  ranks.with(2, "refuses calls of ranks that are not in it", function()
    local group = dist.new_group { 2 }
    if rank == 2 then return dist.barrier(group) end
    assert.is_nil(dist.get_rank(group))
    assert.are.equal(("all_reduce: this rank (%d) is not in the group, whose ranks are 2"):format(rank),
      ranks.message_of(dist.all_reduce, heed.ones(1), { group = group }))
  end)

  it("refuses invalid lists", function()
    local range = ("a rank from 1 to %d"):format(size)
    assert.are.equal("new_group: ranks is nil; it must be a list of ranks", ranks.message_of(dist.new_group))
    assert.are.equal("new_group: ranks is a table; it must be a list of ranks", ranks.message_of(dist.new_group, {}))
    assert.are.equal(("new_group: ranks[2] is the number %d; it must be %s"):format(size + 1, range),
      ranks.message_of(dist.new_group, { 1, size + 1 }))
    assert.are.equal("new_group: rank 1 is given twice", ranks.message_of(dist.new_group, { 1, 1 }))
  end)

  ranks.with(2, "refuses ranks that differ, and names one", function()
    local other = rank == 1 and 2 or 1
    local list = rank == 1 and { 1 } or { 1, 2 }
    local message = ranks.message_of(dist.new_group, list)
    if rank <= 2 then
      assert.are.equal(("new_group: ranks is {%s} here, and {%s} on rank %d; they must be the same"):format(
        rank == 1 and "1" or "1, 2", rank == 1 and "1, 2" or "1", other), message)
    end
    assert.are.equal(size, dist.all_reduce(heed.ones(1))[1])
  end)
end)

describe("a mesh", function()
  it("of one dimension is a group of all ranks", function()
    local mesh = dist.init_device_mesh({ size }, { "tp" })
    assert.are.equal(size, mesh:size())
    assert.are.equal(rank, mesh:get_local_rank())
    assert.are.equal(size, dist.all_reduce(heed.ones(1), { group = mesh })[1])
    assert.are.equal(size, dist.all_reduce(heed.ones(1), { group = mesh.tp })[1])
    assert.are.equal(size, dist.all_reduce(heed.ones(1), { group = mesh:get_group() })[1])
  end)

  it("gives its dimensions by name", function()
    local shape = size == 4 and { 2, 2 } or { size, 1 }
    local mesh = dist.init_device_mesh(shape, { "pp", "tp" })
    assert.are.equal(("heed.distributed.DeviceMesh(pp = %d, tp = %d)"):format(shape[1], shape[2]), tostring(mesh))
    assert.are.same(shape, { mesh:size "pp", mesh:size "tp" })
    assert.are.same(shape, mesh.shape)
    assert.are.same({ "tp" }, mesh.tp.names)
    local row, column = math.floor((rank - 1) / shape[2]) + 1, (rank - 1) % shape[2] + 1
    assert.are.equal(row, mesh:get_local_rank "pp")
    assert.are.equal(column, mesh:get_local_rank "tp")
    assert.are.equal(column, dist.get_rank(mesh.tp))
    local in_row, in_column = 0, 0
    for i = 1, shape[2] do in_row = in_row + (row - 1) * shape[2] + i end
    for i = 1, shape[1] do in_column = in_column + (i - 1) * shape[2] + column end
    assert.are.equal(in_row, dist.all_reduce(heed.tensor { rank }, { group = mesh.tp })[1])
    assert.are.equal(in_column, dist.all_reduce(heed.tensor { rank }, { group = mesh:get_group "pp" })[1])
  end)

  it("refuses shapes and names that do not fit the job", function()
    local message_of, mesh = ranks.message_of, dist.init_device_mesh
    local ranks_text = size == 1 and "1" or tostring(size)
    assert.are.equal(("init_device_mesh: shape is for %d ranks; the job has %s, so the product of the sizes " ..
      "must be %d"):format(size + 1, ranks_text, size), message_of(mesh, { size + 1 }, { "tp" }))
    assert.are.equal("init_device_mesh: names is nil; it must be a list of 1 name, one for each dimension",
      message_of(mesh, { size }))
    assert.are.equal("init_device_mesh: the name 'a' is given twice", message_of(mesh, { size, 1 }, { "a", "a" }))
    assert.are.equal("init_device_mesh: names[1] is a string ('size'); it must be a word, which no method of a mesh " ..
      "has for its name", message_of(mesh, { size }, { "size" }))
  end)

  it("names its dimensions where one must be chosen", function()
    local mesh = dist.init_device_mesh({ size, 1 }, { "pp", "tp" })
    assert.are.equal("barrier: group is a mesh of 2 dimensions; give one of them, such as mesh.pp",
      ranks.message_of(dist.barrier, mesh))
    assert.are.equal("get_group: the dimension is a string ('cp'); it must be one of the mesh: pp, tp",
      ranks.message_of(mesh.get_group, mesh, "cp"))
    assert.is_truthy(ranks.message_of(function() return mesh.cp end):find("no method or field 'cp'", 1, true))
  end)
end)

describe("a group", function()
  it("must be a group", function()
    assert.are.equal("barrier: group is the number 3; it must be a group of new_group, or a mesh of one dimension",
      ranks.message_of(dist.barrier, 3))
    assert.are.equal("barrier: group is a table; it must be a group of new_group, or a mesh of one dimension",
      ranks.message_of(dist.barrier, {}))
  end)

  it("can be one of many, each used in its own order", function()
    local groups = {}
    for i = 1, 20 do
      groups[i] = dist.new_group { i % size + 1, (i + 1) % size + 1 ~= i % size + 1 and (i + 1) % size + 1 or nil }
    end
    for i = 20, 1, -1 do
      if dist.get_rank(groups[i]) then dist.all_reduce(heed.ones(3), { group = groups[i] }) end
    end
  end)
end)

describe("init_process_group", function()
  it("refuses a second call", function()
    assert.are.equal("init_process_group: it was called before; call destroy_process_group first",
      ranks.message_of(dist.init_process_group))
    assert.is_true(dist.is_initialized())
  end)
end)

ranks.finish()
