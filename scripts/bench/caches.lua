-- heed's rows of sequences.py, caches of 8 heads of 64: a step of 8 items of different lengths, a step after a shared
-- beginning, a saved cache. In each group the second row is the same without what the first one has.
local heed = require "heed"
local rows = dofile((arg[0]:match "^.*[/\\]" or "") .. "lua_rows.lua")

local HEADS, SIZE = 8, 64
local WIDTH, CAPACITY = HEADS * SIZE, 4100
local mha = heed.nn.MultiHeadAttention(WIDTH, WIDTH, 8192, 0.0, HEADS, { rope = {} }):eval()
local DTYPES = { "float32", "bfloat16", "int8", "int4" }
local ONE_TOKEN = heed.randn(1, 1, WIDTH)
local paths = {}

local function filled(lengths, dtype)
  local total = 0
  for _, n in ipairs(lengths) do total = total + n end
  local cache = mha:new_cache { batch = #lengths, dtype = dtype, capacity = CAPACITY }
  mha(heed.randn(total, WIDTH), { cache = cache, lengths = lengths })
  return cache
end

--- A step of all items, which is forgotten again.
local function step(x, cache, compared)
  local lengths = cache.lengths
  return function() return mha(x, { cache = cache }) end, compared, function() cache:truncate(lengths) end
end

local RAGGED, EVEN = { 4000, 500, 1500, 3000, 700, 2500, 1000, 2000 }, {} -- the same sum
for i = 1, 8 do EVEN[i] = 1900 end
for _, dtype in ipairs(DTYPES) do
  rows.group("a step of 8 items, 15200 keys, " .. dtype, {
    { "500 to 4000 keys", nil, function() return step(heed.randn(8, 1, WIDTH), filled(RAGGED, dtype), false) end },
    { "1900 keys each", nil, function() return step(heed.randn(8, 1, WIDTH), filled(EVEN, dtype), false) end },
  })
end

for _, dtype in ipairs { "float32", "bfloat16", "int8" } do -- int4 is copied, and so has nothing to gain
  local tokens, x
  rows.group("a step of 8 items after 4096 shared tokens, " .. dtype, {
    { "prefix", nil, function()
      tokens, x = heed.randn(1, 4096, WIDTH), heed.randn(8, 1, WIDTH)
      local prefix = mha:new_cache { dtype = dtype, capacity = CAPACITY }
      mha(tokens, { cache = prefix })
      return step(x, mha:new_cache { batch = 8, prefix = prefix, capacity = CAPACITY })
    end },
    { "copies", nil, function()
      local copies = mha:new_cache { batch = 8, dtype = dtype, capacity = CAPACITY }
      mha(tokens:expand(8, 4096, WIDTH):contiguous(), { cache = copies })
      return step(x, copies)
    end },
  })
end

for _, dtype in ipairs(DTYPES) do
  local x = heed.randn(1, 4096, WIDTH)
  rows.group("a token after 4096 tokens, " .. dtype, {
    { "of a loaded cache", nil, function()
      local name, loaded = os.tmpname(), nil
      os.remove(name) -- where tmpname makes a file
      local path = name .. ".safetensors"
      local cache = mha:new_cache { dtype = dtype, capacity = CAPACITY }
      paths[#paths + 1] = path
      mha(x, { cache = cache })
      assert(cache:save(path))
      return function()
        loaded = assert(mha:load_cache(path))
        return mha(ONE_TOKEN, { cache = loaded })
      end, nil, function() loaded:release() end
    end },
    { "of a cache in memory", nil, function()
      local cache = mha:new_cache { dtype = dtype, capacity = CAPACITY }
      mha(x, { cache = cache })
      return step(ONE_TOKEN, cache)
    end },
    { "of a cache that is computed", nil, function()
      local cache
      return function()
        cache = mha:new_cache { dtype = dtype, capacity = CAPACITY }
        mha(x, { cache = cache })
        return mha(ONE_TOKEN, { cache = cache })
      end, nil, function() cache:release() end
    end },
  })
end

rows.answer()
for _, path in ipairs(paths) do os.remove(path) end
