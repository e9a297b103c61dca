-- What communication takes beside the formulas of docs/machines-costs.md, with two ranks on two machines.
--   make bench-network         two machines made of network namespaces: it changes the rate of the cable by itself
--   mpirun … heed network.lua  on real machines: as their network is
-- With one core for each rank. Times are the shortest of several, and those of the slower rank.
local heed = require "heed"
local dist = require "heed.distributed"
dist.init_process_group { timeout = 60 }
local rank, size = dist.get_rank(), dist.get_world_size()
assert(size == 2, "network.lua: start it with two ranks: mpirun -n 2 …")
heed.set_num_threads(1)
heed.manual_seed(1)
local mesh = dist.init_device_mesh({ size }, { "cp" })
local CABLE = os.getenv "HEED_CABLE" -- a network interface whose rate this may change

local function say(...) if rank == 1 then print((...):format(select(2, ...))) end end

-- Limits what this machine sends to so many Mbit/s.
local function set_rate(rate)
  dist.barrier()
  assert(os.execute(("tc qdisc replace dev %s root handle 2: tbf rate %dmbit burst 128kb latency 100ms"):format(CABLE,
    rate)))
  dist.barrier()
end

-- The shortest seconds of f on the slower rank.
local function shortest(times, f)
  local best = math.huge
  f()
  for _ = 1, times do
    dist.barrier()
    local begin = heed.clock()
    f()
    local seconds = heed.tensor { heed.clock() - begin }
    best = math.min(best, dist.all_reduce(seconds, "max")[1])
  end
  return best
end

-- Half of the time of a message and its answer, for n float32.
local function one_way(times, n)
  local x = heed.zeros(n)
  return shortest(times, function()
    if rank == 1 then dist.isend(x, 2):wait() else dist.irecv(x, 1):wait() end
    if rank == 1 then dist.irecv(x, 2):wait() else dist.isend(x, 1):wait() end
  end) / 2
end

-- α in seconds, B in bytes per second.
local function measure_network()
  local latency, n = one_way(200, 1), 1000000
  return latency, 4 * n / (one_way(5, n) - latency)
end

local HEADS, KEY_HEADS, D = 8, 2, 64

-- A function that returns the seconds of causal attention for n tokens, as a ring.
local function ring(n)
  local parts = {}
  for i, heads in ipairs { HEADS, KEY_HEADS, KEY_HEADS } do
    local x = heed.randn(1, heads, n, D)
    dist.context_parallel(mesh, function(shard) parts[i] = shard(x, 3):contiguous() end)
  end
  return function(times)
    return shortest(times, function()
      dist.context_parallel(mesh, function()
        return heed.scaled_dot_product_attention(parts[1], parts[2], parts[3], { is_causal = true })
      end)
    end)
  end
end

local function measure_all_reduce(B, latency)
  for _, n in ipairs { 1, 1000000, 4000000 } do
    local x = heed.zeros(n)
    local seconds = shortest(n > 1 and 5 or 100, function() dist.all_reduce(x) end)
    local steps = n > 1 and 3 or 2 -- agreeing is one
    local predicted = 4 * n * 2 * (size - 1) / size / B + steps * latency
    say("  all_reduce of %8d bytes: %8.2f ms, predicted %8.2f, ratio %.2f", 4 * n, seconds * 1e3, predicted * 1e3,
      seconds / predicted)
  end
end

local UNLIMITED = 20000 -- Mbit/s

local function measure_ring(rate, n, B, latency)
  local seconds_of, seconds, fast = ring(n), math.huge, math.huge
  for _ = 1, 5 do -- in turn, as the processors may be busy with other things for a while
    if rate then
      set_rate(UNLIMITED)
      fast = math.min(fast, seconds_of(2))
      set_rate(rate)
    end
    seconds = math.min(seconds, seconds_of(2))
  end
  local sent = 2 * KEY_HEADS * D * 4 * n / size / B + 2 * latency
  if not rate then
    return say("  ring of %5d tokens: %8.2f ms; a step sends for %8.2f ms", n, seconds * 1e3, sent * 1e3)
  end
  local compute = fast / size
  local predicted = compute * (size - 1) + math.max(compute, sent)
  say("  ring of %5d tokens: a step computes for %7.2f ms, sends for %7.2f; %8.2f ms, predicted %8.2f, ratio %.2f; " ..
    "waiting %2.0f %%, predicted %2.0f %%", n, compute * 1e3, sent * 1e3, seconds * 1e3, predicted * 1e3,
    seconds / predicted, 100 * math.max(0, 1 - fast / seconds), 100 * (1 - fast / predicted))
end

local function measure(title, rate)
  local latency, B = measure_network()
  say("%s: latency %.3f ms, %.1f MB/s", title, latency * 1e3, B / 1e6)
  measure_all_reduce(B, latency)
  for _, n in ipairs { 512, 1024, 2048, 4096, 8192 } do measure_ring(rate, n, B, latency) end
end

if CABLE then
  for _, rate in ipairs { 1000, 100 } do
    set_rate(rate)
    measure(("%d Mbit/s"):format(rate), rate)
  end
else
  measure "this network"
end
dist.destroy_process_group()
