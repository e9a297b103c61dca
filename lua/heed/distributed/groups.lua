--- The groups of ranks of heed.distributed, and meshes of them.

local core = require "heed.core"
local E = require "heed.nn.entries"
local objects = require "heed.utils.data.object"
local raw_of = objects.is

local groups = {} -- transport: heed_mpi, or what stands for it; nil without a process group

local generation = 0 -- groups of an earlier process group cannot be used

function groups.open(transport, check)
  generation = generation + 1
  groups.transport, groups.check = transport, check
end

function groups.close() groups.transport = nil end

function groups.check_open(method)
  if not groups.transport then
    E.fail("%s: the process group is not there; call init_process_group first", method)
  end
end

-- ---- Groups -------------------------------------------------------------------------------------

local group_class = objects.class("distributed.Group", { "ranks" }, {
  size = function(self) return #self.ranks end,
  rank = function(self) return self.rank end,
  tostring = function(self) return ("heed.distributed.Group(ranks = {%s})"):format(table.concat(self.ranks, ", ")) end,
})

local mesh_class

--- The values of a group, of the group of a mesh of one dimension, or nil for the world, which nil stands for.
local function values_of(group, method)
  groups.check_open(method)
  if group == nil then return nil end
  local mesh = raw_of(group, mesh_class)
  if mesh then
    if #mesh.shape > 1 then
      E.fail("%s: group is a mesh of %d dimensions; give one of them, such as mesh.%s", method, #mesh.shape,
        mesh.names[1])
    end
    group = mesh.groups[1]
  end
  local values = raw_of(group, group_class)
  if not values then E.reject(method, "group", group, "a group of new_group, or a mesh of one dimension") end
  if values.generation ~= generation then
    E.fail("%s: the group is of an earlier process group; make it again", method)
  end
  return values
end

--- What the transport calls the group: nil is the world. Raises if this rank is not in it.
function groups.handle(group, method)
  local values = values_of(group, method)
  if not values then return nil end
  if not values.rank then
    E.fail("%s: this rank (%d) is not in the group, whose ranks are %s", method, groups.transport.rank(),
      table.concat(values.ranks, ", "))
  end
  return values.handle
end

function groups.size(group, method)
  local values = values_of(group, method)
  return values and #values.ranks or groups.transport.size()
end

function groups.rank(group, method)
  local values = values_of(group, method)
  if values then return values.rank end
  return groups.transport.rank()
end

--- Raises unless all ranks give the same list of at most `most` integers.
local function agree(list, most, method, argument)
  if not groups.check or groups.transport.size() == 1 then return end
  local row = { #list }
  for i = 1, most do row[i + 1] = list[i] or 0 end
  local all = groups.transport.all_gather(core.tensor(row, { dtype = "int64" })):tolist()
  for rank, other in ipairs(all) do
    for i = 1, most + 1 do
      if other[i] ~= row[i] then
        local theirs = {}
        for j = 1, other[1] do theirs[j] = other[j + 1] end
        E.fail("%s: %s is {%s} here, and {%s} on rank %d; they must be the same", method, argument,
          table.concat(list, ", "), table.concat(theirs, ", "), rank)
      end
    end
  end
end

--- A group of these ranks, one of several disjoint ones that all ranks make together; color is its number.
local function split(ranks, color)
  local rank
  for i, each in ipairs(ranks) do
    if each == groups.transport.rank() then rank = i end
  end
  local handle = groups.transport.split(nil, rank and color or 0, rank or 0)
  return group_class.new { ranks = ranks, rank = rank, handle = handle, generation = generation }
end

--- A group of these ranks, in this order. All ranks of the job call it, also those that will not be in it.
function groups.new_group(ranks)
  local method = "new_group"
  groups.check_open(method)
  if not E.is_list(ranks) or #ranks == 0 then E.reject(method, "ranks", ranks, "a list of ranks") end
  local list, seen, size = {}, {}, groups.transport.size()
  for i = 1, #ranks do
    local rank = E.integer(ranks[i], nil, method, ("ranks[%d]"):format(i), ("a rank from 1 to %d"):format(size))
    if rank < 1 or rank > size then E.reject(method, ("ranks[%d]"):format(i), rank, "a rank from 1 to %d", size) end
    if seen[rank] then E.fail("%s: rank %d is given twice", method, rank) end
    seen[rank], list[i] = true, rank
  end
  agree(list, size, method, "ranks")
  return split(list, 1)
end

-- ---- Meshes -------------------------------------------------------------------------------------

--- The number of the dimension of that name; the only one for nil.
local function dimension(self, name, method)
  if name == nil and #self.shape == 1 then return 1 end
  for i, each in ipairs(self.names) do
    if each == name then return i end
  end
  E.reject(method, "the dimension", name, "one of the mesh: %s", table.concat(self.names, ", "))
end

mesh_class = objects.class("distributed.DeviceMesh", { "shape", "names" }, {
  --- The group of the ranks that differ from this one in that dimension alone.
  get_group = function(self, name) return self.groups[dimension(self, name, "get_group")] end,
  --- This rank in that group, from 1.
  get_local_rank = function(self, name)
    return groups.rank(self.groups[dimension(self, name, "get_local_rank")], "get_local_rank")
  end,
  --- The number of ranks in that dimension; without a name, of the mesh.
  size = function(self, name)
    if name ~= nil then return self.shape[dimension(self, name, "size")] end
    local count = 1
    for _, each in ipairs(self.shape) do count = count * each end
    return count
  end,
  tostring = function(self)
    local parts = {}
    for i, name in ipairs(self.names) do parts[i] = ("%s = %d"):format(name, self.shape[i]) end
    return ("heed.distributed.DeviceMesh(%s)"):format(table.concat(parts, ", "))
  end,
})

local index = mesh_class.meta.__index

--- mesh.tp: the dimension of that name, as a mesh of one dimension.
function mesh_class.meta.__index(self, key)
  local values = raw_of(self, mesh_class)
  for i, name in ipairs(values and values.names or {}) do
    if name == key then
      values.parts[i] = values.parts[i] or mesh_class.new {
        shape = { values.shape[i] }, names = { name }, groups = { values.groups[i] }, parts = {},
      }
      return values.parts[i]
    end
  end
  return index(self, key)
end

local RESERVED = { shape = true, names = true, get_group = true, get_local_rank = true, size = true }

local function check_names(names, count, method)
  if not E.is_list(names) or #names ~= count then
    E.reject(method, "names", names, "a list of %s, one for each dimension", E.count(count, "name"))
  end
  local list = {}
  for i = 1, count do
    local name, argument = names[i], ("names[%d]"):format(i)
    E.check_type(name, "string", method, argument)
    if RESERVED[name] or not name:find "^%a[%w_]*$" then
      E.reject(method, argument, name, "a word, which no method of a mesh has for its name")
    end
    for j = 1, i - 1 do
      if list[j] == name then E.fail("%s: the name '%s' is given twice", method, name) end
    end
    list[i] = name
  end
  return list
end

--- A mesh of all ranks; the last dimension has ranks that follow each other.
function groups.init_device_mesh(shape, names)
  local method = "init_device_mesh"
  groups.check_open(method)
  if not E.is_list(shape) or #shape == 0 then E.reject(method, "shape", shape, "a list of sizes") end
  local sizes, count, size = {}, 1, groups.transport.size()
  for i = 1, #shape do
    sizes[i] = E.size(shape[i], nil, method, ("shape[%d]"):format(i))
    count = count * sizes[i]
  end
  names = check_names(names, #sizes, method)
  if count ~= size then
    E.fail("%s: shape is for %s; the job has %d, so the product of the sizes must be %d", method,
      E.count(count, "rank"), size, size)
  end
  agree(sizes, 16, method, "shape")
  local list, step = {}, 1
  for i = #sizes, 1, -1 do
    local place = groups.transport.rank() - 1
    local first = place - math.floor(place / step) % sizes[i] * step -- where this coordinate is 0
    local ranks = {}
    for j = 1, sizes[i] do ranks[j] = first + (j - 1) * step + 1 end
    list[i] = split(ranks, first + 1)
    step = step * sizes[i]
  end
  return mesh_class.new { shape = sizes, names = names, groups = list, parts = {} }
end

return groups
