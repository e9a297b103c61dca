-- A text that is divided among the ranks of a job: a model reads it, each rank a part, and writes on with a cache whose
-- tokens are divided, too. The model has random weights, so that what it writes is noise; the numbers are what matters.
--   mpirun -n 4 heed scripts/examples/mpi/context.lua [tokens]   (4096; without mpirun the only rank has all of them)
local heed = require "heed"
local dist = require "heed.distributed"
local Llama = require "heed.models.llama"

local n = tonumber(arg and arg[1]) or 4096
dist.init_process_group { timeout = 60 }
local rank, size = dist.get_rank(), dist.get_world_size()
local mesh = dist.init_device_mesh({ size }, { "cp" })

heed.manual_seed(1) -- the same weights and the same text on all ranks
local model = Llama {
  vocab_size = 512, hidden_size = 256, intermediate_size = 512, num_hidden_layers = 4, num_attention_heads = 8,
  num_key_value_heads = 2, max_position_embeddings = n + 64,
}:eval()
local text = heed.randint(1, 512, { 1, n })

-- Reading: each rank computes its own tokens, and their keys and values stay on it.
local cache = dist.context_cache(mesh.cp)
dist.barrier()
local begin, mine = heed.clock(), nil
local last = dist.context_parallel(mesh.cp, function(shard)
  local ids = shard(text, 2)
  mine = ids:size(2)
  local logits = model(ids, { cache = cache })
  return shard:gather(logits, 2):narrow(2, n, 1) -- those of the last token, which any rank may have
end)
local seconds = heed.clock() - begin

local function in_turn(f)
  for each = 1, size do
    if each == rank then f() end
    dist.barrier()
  end
end

in_turn(function() print(("rank %d of %d read %d of %d tokens"):format(rank, size, mine, n)) end)

-- Writing: all ranks have the new token, each attends to the keys that it has, and all find the same next one.
local written = {}
for i = 1, 8 do
  local id = last:flatten():argmax()
  written[i] = id:item()
  last = dist.context_parallel(mesh.cp, function()
    return model(id:view(1, 1), { cache = cache })
  end, { decode = true })
end

if rank == 1 then
  local counted = dist.counted()
  local function megabytes(kind) return (counted[kind] and counted[kind].bytes or 0) / 1e6 end
  print("wrote " .. table.concat(written, " "))
  print(("the cache has %d tokens; sent by rank 1: %.2f MB around the ring, %.2f MB gathered"):format(cache.length,
    megabytes "isend", megabytes "all_gather"))
  io.stderr:write(("reading took %.2f s\n"):format(seconds))
end
dist.destroy_process_group()
