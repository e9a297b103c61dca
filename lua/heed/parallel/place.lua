--- Where a rank stands: {group =, rank =, size =}, of a mesh of one dimension, a group, or all ranks; and how a size is
--- divided among them.

local compat = require "heed.compat"
local E = require "heed.nn.entries"

local place = {}

--- The place of this rank in `mesh`, or among all ranks if it is nil. Raises if it has none.
function place.of(mesh, method)
  local groups = require "heed.distributed.groups"
  groups.check_open(method)
  local rank = groups.rank(mesh, method)
  if not rank then E.fail("%s: this rank is not in the group of mesh; call it on the ranks of the group", method) end
  return { group = mesh, rank = rank, size = groups.size(mesh, method) }
end

--- The part of a rank of `size` elements: its first, from 1, and their number. Where the size does not divide, the
--- first ranks have one more.
function place.split(size, rank, ranks)
  local least, more = compat.divide(size, ranks), size % ranks
  return (rank - 1) * least + math.min(rank - 1, more) + 1, least + (rank <= more and 1 or 0)
end

return place
