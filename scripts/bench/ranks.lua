-- What two ranks on two cores of one machine gain, and what agreeing costs; `make bench-mpi` runs it.
--   heed ranks.lua [agree]    agree: only that; HEED_CHECK=0: without agreement
--   heed ranks.lua die HOW    the last rank dies by `kill`, `error` or `exit` while the others wait for it
-- One rank and all of them take turns; the shortest times count, of the slower rank. docs/machines-costs.md has the
-- results.
local heed = require "heed"
local dist = require "heed.distributed"
local GPT2 = require "heed.models.gpt2"
local Llama = require "heed.models.llama"

local checks = os.getenv "HEED_CHECK" ~= "0"
dist.init_process_group { timeout = 120, check = checks }
local rank, size = dist.get_rank(), dist.get_world_size()
local mesh = dist.init_device_mesh({ size }, { "all" })
heed.set_num_threads(1)

local function say(...)
  if rank == 1 then
    print((...):format(select(2, ...)))
    io.stdout:flush()
  end
end

local function waited()
  local sum = 0
  for _, kind in pairs(dist.counted()) do sum = sum + kind.waited end
  return sum
end

-- The largest value of all ranks.
local function largest(value) return dist.all_reduce(heed.tensor { value }, "max")[1] end

-- The shortest seconds of whole(), on rank 1 alone, and of divided(), on all ranks; and the smallest share of the time
-- that a rank waited.
local function shortest(times, whole, divided)
  local best, share = { math.huge, math.huge }, math.huge
  for round = 0, times do -- the first one is not counted
    for i, f in ipairs { whole, divided } do
      dist.barrier()
      local before, begin = waited(), heed.clock()
      if i == 2 or rank == 1 then f() end
      local seconds = heed.clock() - begin
      local own = (waited() - before) / seconds
      seconds, own = largest(seconds), largest(own)
      if round > 0 then best[i] = math.min(best[i], seconds) end
      if round > 0 and i == 2 then share = math.min(share, own) end
    end
  end
  return best[1], best[2], share
end

local function row(name, times, whole, divided)
  local one, all, share = shortest(times, whole, divided)
  say("%-48s %8.2f ms %8.2f ms %6.2f times, waits %5.2f %%", name, one * 1e3, all * 1e3, one / all, 100 * share)
end

-- ---- Models -------------------------------------------------------------------------------------

-- A Llama reads a prompt: the logits of its last token.
local function tensor_parallel()
  local function make()
    heed.manual_seed(1)
    return Llama {
      vocab_size = 1000, hidden_size = 768, intermediate_size = 2048, num_hidden_layers = 12, num_attention_heads = 12,
      max_position_embeddings = 1024,
    }:eval()
  end
  local whole, divided = make(), dist.tensor_parallel(make(), mesh)
  for _, n in ipairs { 128, 512, 1024 } do
    local ids = heed.randint(1, 1000, { n })
    row(("tensor_parallel, 12 layers of 768, %d tokens"):format(n), 16,
      function() whole(ids, { logits_to_keep = 1 }) end, function() divided(ids, { logits_to_keep = 1 }) end)
  end
end

-- A step of a GPT's training, with AdamW; every rank has a part of the texts.
local function data_parallel()
  local TEXTS = 8
  for _, n in ipairs { 128, 256 } do
    local function stepper(first, count, prepare)
      heed.manual_seed(1)
      local model = prepare(GPT2 {
        vocab_size = 65, n_embd = 384, n_layer = 6, n_head = 6, n_positions = n, resid_pdrop = 0, embd_pdrop = 0,
        attn_pdrop = 0,
      })
      local optimizer = heed.optim.AdamW(model:parameters(), { lr = 1e-3 })
      local ids = heed.randint(1, 65, { TEXTS, n + 1 }):narrow(1, first, count)
      local x, y = ids:narrow(2, 1, n), ids:narrow(2, 2, n)
      return function()
        heed.enable_grad(function()
          local loss = heed.nn.functional.cross_entropy(model(x):flatten(1, 2), y:flatten())
          optimizer:zero_grad()
          loss:backward()
          optimizer:step()
        end)
      end
    end
    local count = math.floor(TEXTS / size)
    row(("data_parallel, 10.7 M weights, %d texts of %d"):format(TEXTS, n), 16,
      stepper(1, TEXTS, function(model) return model end),
      stepper((rank - 1) * count + 1, count, function(model) return dist.data_parallel(model, mesh) end))
  end
end

-- Causal attention, forward.
local function ring()
  for _, n in ipairs { 1024, 2048, 4096, 8192 } do
    heed.manual_seed(1)
    local q, k, v = heed.randn(1, 8, n, 64), heed.randn(1, 8, n, 64), heed.randn(1, 8, n, 64)
    local parts = {}
    dist.context_parallel(mesh, function(shard)
      for i, x in ipairs { q, k, v } do parts[i] = shard(x, 3):contiguous() end
    end)
    row(("context_parallel, 8 heads of 64, %d tokens"):format(n), 3 + math.floor(40000 / n),
      function() heed.scaled_dot_product_attention(q, k, v, { is_causal = true }) end,
      function()
        dist.context_parallel(mesh, function()
          heed.scaled_dot_product_attention(parts[1], parts[2], parts[3], { is_causal = true })
        end)
      end)
  end
end

-- ---- Agreement ----------------------------------------------------------------------------------

-- An all_reduce of 1 MiB, and a barrier, which is an agreement and nothing else.
local function agreement()
  local x, best = heed.zeros(2 ^ 18), { math.huge, math.huge }
  for _ = 1, 500 do
    for i, f in ipairs { function() dist.all_reduce(x) end, dist.barrier } do
      dist.barrier()
      local begin = heed.clock()
      f()
      best[i] = math.min(best[i], heed.clock() - begin)
    end
  end
  best = { largest(best[1]), largest(best[2]) }
  say("all_reduce of 1 MiB, %d ranks, check = %-5s %16.1f µs; an agreement %.1f µs, %.1f %% of it", size,
    tostring(checks), best[1] * 1e6, best[2] * 1e6, 100 * best[2] / best[1])
end

-- ---- Failure ------------------------------------------------------------------------------------

-- Prints the clock when the last rank dies, for ranks.sh.
local function die(how)
  dist.barrier()
  if rank == size then
    print(heed.clock())
    io.stdout:flush()
    if how == "kill" then os.execute "kill -9 $PPID" end
    if how == "error" then error("this rank fails", 0) end
    os.exit(1)
  end
  dist.barrier()
end

if arg[1] == "die" then die(arg[2]) end
if arg[1] ~= "agree" then
  say("%d ranks: one rank, all of them", size)
  tensor_parallel()
  data_parallel()
  ring()
end
agreement()
dist.destroy_process_group()
