-- Measures caches with one thread: a step of 8 sequences of different lengths against an even batch with as many keys,
-- a step after a shared prefix against copies of it, and loading a saved cache with the first token after it.
--   heed scripts/bench/caches.lua [part of a row's name]
-- Milliseconds of processor time, the minimum of some rounds in which both sides take turns, and ratios.
local heed = require "heed"

heed.set_num_threads(1)
heed.manual_seed(1)
local only = arg[1] or ""
local HEADS, SIZE, ROUNDS = 8, 64, tonumber(os.getenv "BENCH_ROUNDS") or 25
local WIDTH = HEADS * SIZE
local mha = heed.nn.MultiHeadAttention(WIDTH, WIDTH, 8192, 0.0, HEADS, { rope = {} }):eval()
local DTYPES = { "float32", "bfloat16", "int8", "int4" }

local function wanted(name) return name:find(only, 1, true) ~= nil end

-- The least times of both functions, in ms; `undo` follows each of their calls, unmeasured.
local function race(one, other)
  local least = { math.huge, math.huge }
  for _ = 1, ROUNDS do
    for i, side in ipairs { one, other } do
      local begun = os.clock()
      side.run()
      least[i] = math.min(least[i], (os.clock() - begun) * 1000)
      side.undo()
    end
  end
  return least[1], least[2]
end

local function step(x, cache, lengths)
  return {
    run = function() mha(x, { cache = cache }) end,
    undo = function() cache:truncate(lengths) end,
  }
end

local function filled(lengths, dtype)
  local total = 0
  for _, n in ipairs(lengths) do total = total + n end
  local cache = mha:new_cache { batch = #lengths, dtype = dtype, capacity = 4100 }
  mha(heed.randn(total, WIDTH), { cache = cache, lengths = lengths })
  return cache, total
end

print(("%-36s %10s %10s %7s"):format("", "this", "other", "ratio"))
local function report(name, this, other)
  print(("%-36s %10.3f %10.3f %7.2f"):format(name, this, other, this / other))
end

local RAGGED = { 4000, 500, 1500, 3000, 700, 2500, 1000, 2000 }
for _, dtype in ipairs(DTYPES) do
  local name = "8 of different lengths, " .. dtype
  if wanted(name) then
    local ragged, total = filled(RAGGED, dtype)
    local lengths = {}
    for i = 1, 8 do lengths[i] = total / 8 end
    local even = filled(lengths, dtype)
    local x = heed.randn(8, 1, WIDTH)
    report(name, race(step(x, ragged, RAGGED), step(x, even, total / 8)))
    ragged:release()
    even:release()
  end
end

for _, dtype in ipairs(DTYPES) do
  for _, batch in ipairs { 8, 32 } do
    local name = ("%d after 4096 shared, %s"):format(batch, dtype)
    if wanted(name) then
      local tokens, lengths = heed.randn(1, 4096, WIDTH), {}
      local prefix = mha:new_cache { dtype = dtype, capacity = 4100 }
      mha(tokens, { cache = prefix })
      for i = 1, batch do lengths[i] = 4096 end
      local shared = mha:new_cache { batch = batch, prefix = prefix, capacity = 4100 }
      local copies = mha:new_cache { batch = batch, dtype = dtype, capacity = 4100 }
      mha(tokens:expand(batch, 4096, WIDTH):contiguous(), { cache = copies })
      local x = heed.randn(batch, 1, WIDTH)
      report(name, race(step(x, shared, lengths), step(x, copies, lengths)))
      for _, cache in ipairs { prefix, shared, copies } do cache:release() end
    end
  end
end

-- Here the first column is loading with the first token after it, the second the next token.
for _, dtype in ipairs(DTYPES) do
  local name = "4096 tokens from a file, " .. dtype
  if wanted(name) then
    local path, x, loaded = os.tmpname() .. ".safetensors", heed.randn(1, 1, WIDTH), nil
    local cache = filled({ 4096 }, dtype)
    assert(cache:save(path))
    report(name, race({
      run = function()
        loaded = assert(mha:load_cache(path))
        mha(x, { cache = loaded })
      end,
      undo = function() end,
    }, {
      run = function() mha(x, { cache = loaded }) end,
      undo = function() loaded:release() end,
    }))
    os.remove(path)
    cache:release()
  end
end
