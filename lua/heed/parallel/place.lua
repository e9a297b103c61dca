--- Where a rank stands: {group =, rank =, size =} of a mesh of one dimension, of a group, or of all ranks; and how a
--- size is divided among them.

local compat = require "heed.compat"
local E = require "heed.nn.entries"

local place = {}

--- The place of this rank in `mesh`, or among all ranks if it is nil. Raises for a mesh of several dimensions.
function place.of(mesh, method)
  local dist = require "heed.distributed"
  if not dist.is_initialized() then
    E.fail("%s: the ranks are not connected; call heed.distributed.init_process_group() first", method)
  end
  local group
  if mesh ~= nil then
    if type(mesh) ~= "table" or mesh.get_group == nil then
      E.reject(method, "mesh", mesh, "a mesh of one dimension, such as mesh.tp of init_device_mesh, or nil for all ranks")
    end
    if mesh.ndim > 1 then
      E.fail("%s: mesh has %d dimensions, %s; pass one of them, such as mesh.%s", method, mesh.ndim,
        table.concat(mesh.names, ", "), mesh.names[1])
    end
    group = mesh:get_group()
  end
  return { group = group, rank = dist.get_rank(group), size = dist.get_world_size(group) }
end

--- The part of a rank of `size` elements: its first, from 1, and their number. The first ranks have one more where the
--- size does not divide.
function place.split(size, rank, ranks)
  local least = compat.divide(size - size % ranks, ranks)
  local more = size % ranks
  return (rank - 1) * least + math.min(rank - 1, more) + 1, least + (rank <= more and 1 or 0)
end

return place
