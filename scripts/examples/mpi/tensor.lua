-- A model whose heads, columns and rows are divided among ranks:
--   mpirun -n 2 build/heed scripts/examples/mpi/tensor.lua [FOLDER [ID...]]
-- FOLDER holds a GPT-2 or Llama as Hugging Face saves it; without one, a Llama with fresh weights is used. The ids
-- count from 1. Without mpirun, the same script runs in one process and prints the same ids.
local heed = require "heed"
local dist = require "heed.distributed"

dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()

-- Only rank 1 writes.
local function say(...) if rank == 1 then io.stdout:write(string.format(...), "\n") end end

local function divide(model) return dist.tensor_parallel(model) end

-- ---- The model ----------------------------------------------------------------------------------

local SMALL = {
  vocab_size = 1000, hidden_size = 384, intermediate_size = 1152, num_hidden_layers = 6, num_attention_heads = 12,
  max_position_embeddings = 512,
}

local folder = arg[1]
local model
if folder then
  for _, name in ipairs { "llama", "gpt2" } do
    local problem
    model, problem = dist.load(require("heed.models." .. name), folder, divide) -- reads this rank's share only
    if model then break end
    if name == "gpt2" then error(problem, 0) end
  end
else
  heed.manual_seed(1) -- the same weights on every rank
  model = divide(require "heed.models.llama"(SMALL):eval())
end

local elements = 0
for parameter in model:parameters() do elements = elements + parameter:numel() end
say("%d rank%s; rank 1 has %.1f million parameters and %d of the heads", size, size == 1 and "" or "s", elements / 1e6,
  model.layers[1].attention.num_heads)

-- ---- A prompt and its continuation --------------------------------------------------------------

local ids = {}
for i = 2, #arg do ids[#ids + 1] = tonumber(arg[i]) end
if #ids == 0 then ids = { 1, 20, 300, 4, 50, 6 } end

local begin = heed.clock()
local made = model:generate(ids, { max_new_tokens = 16 })
local seconds = heed.clock() - begin
say("%s -> %s", table.concat(ids, " "), table.concat(made, " "))

local sent = dist.counted().all_reduce
io.stderr:write(("rank %d: %.1f tokens a second, %.1f KiB sent in all_reduce for each token\n"):format(rank,
  #made / seconds, (sent and sent.bytes or 0) / 1024 / (#ids + #made)))
