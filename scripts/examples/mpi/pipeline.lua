-- A model whose layers are on one rank after the other:
--   mpirun -n 2 build/heed scripts/examples/mpi/pipeline.lua [MICRO_BATCHES]
-- The batch goes through in micro-batches, so that the ranks work at the same time. The results are those of one
-- process; without mpirun, the same script is that process.
local heed = require "heed"
local dist = require "heed.distributed"
local Llama = require "heed.models.llama"

local MICRO_BATCHES = tonumber(arg[1]) or 4

dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()

heed.manual_seed(1) -- the same weights on every rank
local model = dist.pipeline(Llama {
  vocab_size = 1000, hidden_size = 384, intermediate_size = 1152, num_hidden_layers = 8, num_attention_heads = 12,
  max_position_embeddings = 512,
}:eval(), nil, { micro_batches = MICRO_BATCHES })

local names = {}
for name in model.layers:named_children() do names[#names + 1] = tonumber(name) + 1 end
io.stderr:write(("rank %d of %d has the layers %d to %d\n"):format(rank, size, names[1], names[#names]))

local ids = heed.randint(1, 1000, { 8, 128 })
local begin = heed.clock()
local logits = model(ids, { logits_to_keep = 1 })
local seconds = heed.clock() - begin
if rank == 1 then
  local _, likeliest = logits:squeeze(2):max(-1)
  print("the likeliest next ids: " .. table.concat(likeliest:tolist(), " "))
  io.stderr:write(("%d tokens in %.0f ms; at best %d of %d steps of the pipeline do useful work\n"):format(ids:numel(),
    seconds * 1000, MICRO_BATCHES, MICRO_BATCHES + size - 1))
end

-- A step of training: loss and gradients, of this rank's layers alone.
local function loss_of(y, targets) return heed.nn.functional.cross_entropy(y:flatten(1, 2), targets:flatten()) end
local loss = dist.pipeline_step(model, ids:narrow(2, 1, 127), ids:narrow(2, 2, 127), loss_of)
if rank == 1 then print(("loss %.4f"):format(loss)) end
