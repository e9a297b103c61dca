-- Training on all ranks, each with its part of every batch; the gradients are averaged:
--   mpirun -n 2 build/heed scripts/examples/mpi/data.lua [STEPS]
-- A small GPT learns to repeat what it has read. The losses are those of one process with the whole batch, up to
-- rounding. Without mpirun, the same script is that process.
local heed = require "heed"
local dist = require "heed.distributed"
local GPT2 = require "heed.models.gpt2"

local STEPS = tonumber(arg[1]) or 60
local BATCH, LENGTH, LETTERS = 24, 8, 20 -- texts in a step; a text is LENGTH letters, twice

dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()
if BATCH % size ~= 0 then error(("a batch has %d texts; use 1, 2, 3, 4, 6, 8, 12 or 24 ranks"):format(BATCH), 0) end

heed.manual_seed(1) -- the same weights on every rank, and the same batches
local model = dist.data_parallel(GPT2 {
  vocab_size = LETTERS, n_embd = 96, n_layer = 2, n_head = 4, n_positions = 2 * LENGTH, resid_pdrop = 0, embd_pdrop = 0,
  attn_pdrop = 0,
})
local optimiser = heed.optim.AdamW(model:parameters(), { lr = 3e-3 })
heed.set_grad_enabled(true)

local part = math.floor(BATCH / size)
local begin = heed.clock()
for step = 1, STEPS do
  local half = heed.randint(1, LETTERS, { BATCH, LENGTH })
  local texts = heed.cat({ half, half }, 2):narrow(1, (rank - 1) * part + 1, part) -- of this rank
  local logits = model(texts):narrow(2, LENGTH, LENGTH) -- those from which the second half follows
  local loss = heed.nn.functional.cross_entropy(logits:flatten(1, 2),
    texts:narrow(2, LENGTH + 1, LENGTH):flatten())
  optimiser:zero_grad()
  loss:backward() -- averages the gradients of all ranks at its end
  optimiser:step()
  if step % 10 == 0 or step == STEPS then
    local mean = dist.all_reduce(loss:detach(), "avg"):item()
    if rank == 1 then print(("step %d: loss %.3f"):format(step, mean)) end
  end
end

local sent = dist.counted().all_reduce
io.stderr:write(("rank %d: %.1f steps a second, %.1f MiB of gradients sent in a step\n"):format(rank,
  STEPS / (heed.clock() - begin), (sent and sent.bytes or 0) / STEPS / 2 ^ 20))
