--- Modules of which each rank has a part: which elements of which original tensor they have. Shards of a model whose
--- weights are not read yet (heed.nn.utils.skip_init) have no memory; the loader then asks for their origins.

local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local primitives = core.modules

local shards = {}

-- Attached to a shard: origins, by the entry's name {dim =, first =, count =}, of the original tensor, or {} for all of
-- it. While the original has no memory, also its owner.

--- The origin of an entry of a module, or nil if the module is not a shard.
function shards.origin(owner, name)
  local store = attached(owner)
  return store and store.origins and store.origins[name]
end

--- The elements of an original tensor that a shard has. Rows are views.
function shards.cut(tensor, origin)
  if not origin.dim then return tensor end
  return tensor:narrow(origin.dim, origin.first, origin.count)
end

local function entry_of(module, name)
  for _, entry in ipairs(E.entries(module)) do
    if entry.name == name then return entry.value end
  end
end

--- Gives the entry `name` of the new module its part of the tensor of that name in `original`: `count` elements from
--- `first` of dimension `dim`, or everything. They are copied, so that the memory of the others can be freed.
function shards.take(new, original, name, dim, first, count)
  local source, store = entry_of(original, name), attached(new, true)
  local origin = { dim = dim, first = first, count = count }
  store.origins = store.origins or {}
  store.origins[name] = origin
  if primitives.placeholder(source) then
    origin.owner = original
    return
  end
  local part = shards.cut(source:detach(), origin)
  primitives.put(new, name, primitives.plain(dim and part:clone() or part))
  local wanted = source.requires_grad and source.dtype == "float32"
  local target = entry_of(new, name)
  if target.requires_grad ~= wanted then target:requires_grad_(wanted) end
end

return shards
