--- Modules of which each rank has a part: which elements of which original tensor they have. Shards of a model whose
--- weights are not read yet (heed.nn.utils.skip_init) have no memory; the loader then asks for their origins.

local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local primitives = core.modules

local shards = {}

-- Attached to a shard as `parallel`, which its copies have, too:
--   place     where this rank stands
--   origins   by the entry's name {dim =, first =, count =} of the original tensor; {} for all of it; {only = 1} for
--             all of it on rank 1, and nothing on others. While the original has no memory, also its owner
--   connect   connect(module) registers the hooks of a shard

local function store_of(module, place)
  local store = attached(module, true)
  store.parallel = store.parallel or { place = place, origins = {} }
  return store.parallel
end

--- The place and the origins of a module's entries by name; nil if it is not a shard.
function shards.origins(module)
  local store = attached(module)
  if store and store.parallel then return store.parallel.place, store.parallel.origins end
end

--- The origin of an entry of a module, or nil if the module is not a shard.
function shards.origin(module, name)
  local _, origins = shards.origins(module)
  return origins and origins[name]
end

--- Registers the hooks of a shard, and again those of its copies.
function shards.connect(module, place, connect)
  store_of(module, place).connect = connect
  connect(module)
  return module
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
function shards.take(new, original, name, place, dim, first, count)
  local source = entry_of(original, name)
  local origin = { dim = dim, first = first, count = count }
  store_of(new, place).origins[name] = origin
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

--- The same for an entry that is added to a sum over the ranks: whole on rank 1, absent on the others.
function shards.take_once(new, original, name, place)
  if place.rank == 1 then shards.take(new, original, name, place) end
  local origins = store_of(new, place).origins
  origins[name] = origins[name] or {}
  origins[name].only = 1
end

return shards
