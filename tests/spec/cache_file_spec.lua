-- Caches in files: saving, mapped loading, caches of models, and files that do not fit.
local heed = require "heed"
local files = require "tests.files"
local tensors = require "tests.tensors"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"
local support = require "tests.support"
local module, close = tensors.small_mha, tensors.close

local DTYPES = { "float32", "bfloat16", "float16", "int8", "int4" }

before_each(function() heed.manual_seed(123) end)

describe("a saved cache", function()
  files.in_folders(before_each, after_each)
  local folder = files.path

  it("goes on as the one that was saved, for every dtype and kind of module", function()
    local path = folder "cache.safetensors"
    local kinds = { {}, { rope = {}, num_kv_heads = 2 }, { window = { left = 3 }, alibi = true }, { qk_norm = true } }
    for _, kind in ipairs(kinds) do
      local m = module(tensors.merged({ context_length = 400 }, kind))
      for _, dtype in ipairs(DTYPES) do
        for _, n in ipairs { 0, 1, 5, 150 } do
          local cache = m:new_cache { batch = 2, dtype = dtype, capacity = 390 }
          if n > 0 then m(heed.randn(2, n, 6), { cache = cache }) end
          assert.is_true(cache:save(path))
          local loaded = assert(m:load_cache(path))
          assert.equal(tostring(cache), tostring(loaded))
          local copy = loaded:clone()
          for _, more in ipairs { 1, 1, 7, 80 } do
            local x = heed.randn(2, more, 6)
            local y = m(x, { cache = cache })
            assert.is_true(y:equal(m(x, { cache = loaded })))
            assert.is_true(y:equal(m(x, { cache = copy })))
          end
          assert.equal(n + 89, loaded.length)
        end
      end
    end
  end)

  it("keeps the lengths of its items, and can be truncated, reordered and saved again before it is used", function()
    local m, path = module { rope = {} }, folder "cache.safetensors"
    local cache = m:new_cache { batch = 3 }
    m(heed.randn(12, 6), { cache = cache, lengths = { 3, 8, 1 } })
    cache:save(path)
    local loaded = m:load_cache(path)
    assert.same({ 3, 8, 1 }, loaded.lengths)
    for _, c in ipairs { cache, loaded } do c:truncate({ 2, 8, 0 }):reorder { 2, 1, 1 } end
    loaded:save(path)
    local again = m:load_cache(path)
    local x = heed.randn(3, 2, 6)
    local y = m(x, { cache = cache })
    assert.is_true(y:equal(m(x, { cache = loaded })))
    assert.is_true(y:equal(m(x, { cache = again })))
  end)

  it("ends a pass in slices whose new rows it clears, and no other", function()
    local m, path = module { context_length = 90 }, folder "cache.safetensors"
    local cache = m:new_cache { batch = 2 }
    m(heed.randn(9, 6), { cache = cache, lengths = { 2, 7 } })
    local x = heed.randn(2, 3, 6)
    local steps = m:steps(x, { cache = cache, ms = 0 })
    steps()
    assert.is_true(cache:save(path))
    raises("steps: the cache was used by another call between two slices; give each call a cache of its own, or " ..
      "finish one before the other", function() for _ in steps do end end)
    assert.same({ 2, 7 }, cache.lengths)
    cache:truncate(2)
    local y = m(x, { cache = cache:clone() })
    steps = m:steps(x, { cache = cache, ms = 0 })
    for _ in steps do assert.is_true(cache:save(path)) end
    assert.is_true(y:equal(steps.result))
  end)

  it("is mapped: it costs no memory until tokens are appended, and then as much as a new one", function()
    if support.big_endian then return pending "a big-endian machine copies the numbers of files" end
    local m, path = module { context_length = 3000, head_dim = 16 }, folder "cache.safetensors"
    local cache = m:new_cache()
    m(heed.randn(1, 2000, 6), { cache = cache })
    cache:save(path)
    cache:release()
    collectgarbage()
    local before = heed.info().memory_in_use
    local loaded = m:load_cache(path)
    assert.is_true(heed.info().memory_in_use - before < 20000)
    m(heed.randn(1, 1, 6), { cache = loaded })
    assert.is_true(heed.info().memory_in_use - before > 3000 * 4 * 16 * 2 * 4)
    loaded:release()
  end)

  it("does not change the file, nor other caches that were loaded from it", function()
    local m, path = module(), folder "cache.safetensors"
    local cache = m:new_cache()
    m(heed.randn(1, 4, 6), { cache = cache })
    cache:save(path)
    local one, other = m:load_cache(path), m:load_cache(path)
    one:truncate(2)
    m(heed.randn(1, 2, 6), { cache = one })
    local x = heed.randn(1, 1, 6)
    local y = m(x, { cache = cache })
    assert.is_true(y:equal(m(x, { cache = other })))
    assert.is_true(y:equal(m(x, { cache = m:load_cache(path) })))
  end)

  it("works with the same weights in another dtype", function()
    local m, path = module(), folder "cache.safetensors"
    local cache = m:new_cache()
    m(heed.randn(1, 4, 6), { cache = cache })
    cache:save(path)
    for _, dtype in ipairs { "bfloat16", "float16", "int8" } do assert(m:clone():to(dtype):load_cache(path)) end
    m = heed.nn.MultiHeadAttention(1100, 1100, 8, 0, 2) -- rows of more than one block of int8
    for _, linear in ipairs { m.W_key, m.W_value } do
      heed.no_grad(function() linear.weight:narrow(2, 1025, 76):mul_(100) end)
    end
    cache = m:new_cache()
    m(heed.randn(1, 2, 1100), { cache = cache })
    cache:save(path)
    assert(m:to("int8"):load_cache(path))
  end)

  it("of a model continues the conversation with the same tokens", function()
    for _, name in ipairs { "llama", "gpt2" } do
      local m, path = cases.load(name), folder "model.safetensors"
      local ids = cases.from_one(cases.golden[name].prompt)
      local tokens, cache = m:generate(ids, { max_new_tokens = 5, capacity = 64 })
      assert.is_true(cache:save(path))
      local rest = { tokens[5], ids[1] }
      local wanted = m:generate(rest, { max_new_tokens = 6, cache = cache })
      local restarted = cases.load(name)
      local loaded = assert(restarted:load_cache(path))
      assert.equal(#ids + 4, loaded.length)
      assert.same(wanted, (restarted:generate(rest, { max_new_tokens = 6, cache = loaded })))
      loaded:truncate(3)
      close(m(ids, { cache = cache:truncate(3) }), restarted(ids, { cache = loaded }))
      raises("load_cache: there is no option 'capacity'; it has none",
        function() restarted:load_cache(path, { capacity = 128 }) end)
    end
  end)
end)

describe("load_cache refuses", function()
  files.in_folders(before_each, after_each)
  local folder = files.path
  local m, path

  local function refused(problem, of, file)
    local cache, message = (of or m):load_cache(file or path)
    assert.is_nil(cache)
    assert.equal(("load_cache: '%s': %s"):format(file or path, problem), message)
  end

  -- The file with some of its tensors or texts changed.
  local function with(changes, metadata)
    local state, texts = heed.load(path)
    local all = {}
    for name, tensor in heed.pairs(state) do all[name] = tensor:clone() end
    for name, value in pairs(changes) do all[name] = value or nil end
    local other = folder "other.safetensors"
    assert(heed.save(other, all, { metadata = tensors.merged(texts, metadata) }))
    return other
  end

  before_each(function()
    m, path = module { rope = {} }, folder "cache.safetensors"
    local cache = m:new_cache { batch = 2 }
    m(heed.randn(2, 4, 6), { cache = cache })
    assert(cache:save(path))
  end)

  it("caches of other modules", function()
    refused("the cache has num_kv_heads 4 and head_dim 2; they must be 2 and 2", module { num_kv_heads = 2, rope = {} })
    refused("the cache has num_kv_heads 4 and head_dim 2; they must be 4 and 3", module { head_dim = 3 })
    refused("the cache is for a window with left -1; it must be that of the module, 3 (-1: none)",
      module { rope = {}, window = { left = 3 } })
    refused("it was made with other weights (2 of 2 parameters differ); it must be a cache of this model",
      module { rope = {} })
    local other = m:clone()
    heed.no_grad(function() other.W_value.weight:add_(0.001) end)
    refused("it was made with other weights (1 of 2 parameters differ); it must be a cache of this model", other)
    refused("the positions of its keys are 'rope base=10000 interleaved=0 dims=2 scaling=0 factor=1 original=0 " ..
      "beta=32,1 attention_factor=0 freq_factors=1,4'; they must be those of the module, 'none'", module())
    raises("load_cache: the module is a SelfAttention; it must be a MultiHeadAttention",
      function() heed.nn.SelfAttention(6, 6):load_cache(path) end)
    local model = cases.load "llama"
    local cache, message = model:load_cache(path)
    assert.is_nil(cache)
    assert.equal(("load_cache: '%s': the file holds the caches of 1 layer; there must be %d"):format(path,
      #model.layers), message)
  end)

  it("caches of models that differ in any parameter", function()
    local function qwen() return assert(heed.models.load "tests/golden/decoders/qwen3") end
    local model, file = qwen(), folder "model.safetensors"
    local _, cache = model:generate({ 5, 17, 9 }, { max_new_tokens = 3 })
    assert(cache:save(file))
    local changes = { ["token_embeddings.weight"] = "normal_", ["layers.0.attention.W_value.weight"] = "normal_",
      ["layers.1.down.weight"] = "normal_", ["layers.0.attention.k_norm.weight"] = "mul_", ["norm.weight"] = "mul_" }
    for name, change in pairs(changes) do
      for _, dtype in ipairs { "float32", "q8_0" } do
        local other = qwen()
        heed.no_grad(function()
          local x = other:state_dict()[name]
          x[change](x, 1.001)
        end)
        local loaded, message = other:to(dtype):load_cache(file)
        assert.is_nil(loaded, name)
        assert.truthy(message:find "%(1 of %d+ parameters differ%)", name)
      end
    end
    for _, dtype in ipairs { "bfloat16", "float16", "int8", "q8_0", "q4_0" } do
      assert(qwen():to(dtype):load_cache(file))
    end
    local copied = qwen()
    copied:load_state_dict(model:state_dict())
    assert(copied:load_cache(file))
  end)

  it("no file without samples of the parameters, as earlier versions wrote it", function()
    local model, file = cases.load "llama", folder "model.safetensors"
    local _, cache = model:generate({ 5, 17, 9 }, { max_new_tokens = 3 })
    assert(cache:save(file))
    local state, texts = heed.load(file)
    local older = {}
    for name, tensor in heed.pairs(state) do older[name] = not name:find "samples$" and tensor:clone() or nil end
    assert(heed.save(folder "older.safetensors", older, { metadata = texts }))
    assert(model:load_cache(folder "older.safetensors"))
  end)

  it("other files, and other versions", function()
    local other = folder "weights.safetensors"
    heed.save(other, m:state_dict())
    refused("the file holds no cache; it must be one that cache:save wrote", m, other)
    refused("the cache has version 2; it must be 1, the one that this heed reads", m,
      with({}, { ["heed.cache"] = "2" }))
    refused("the file holds the caches of 3 layers; there must be 1", m, with({}, { ["heed.layers"] = "3" }))
    local cache, message = m:load_cache(folder "none.safetensors")
    assert.is_nil(cache)
    assert.truthy(message:find("^load_cache: '.*cannot be opened"))
    raises("load_cache: path is nil; it must be a string", function() m:load_cache() end)
  end)

  it("truncated and damaged files", function()
    local bytes = support.read(path)
    local other = folder "short.safetensors"
    for _, n in ipairs { 0, 5, 100, #bytes - 200, #bytes - 1 } do
      support.write(other, bytes:sub(1, n))
      local cache, message = m:load_cache(other)
      assert.is_nil(cache)
      assert.equal(1, (message:find(("load_cache: '%s"):format(other), 1, true)))
    end
    local int64 = tensors.int64
    local contradiction = "lengths, dropped and sizes contradict each other; the file is damaged"
    for _, lengths in ipairs { { 5, 4 }, { 4, -1 }, { 13, 4 } } do
      refused(contradiction, m, with { ["layers.1.lengths"] = int64(lengths) })
    end
    refused(contradiction, m, with { ["layers.1.dropped"] = int64 { 1, 0 } })
    refused(contradiction, m, with { ["layers.1.sizes"] = int64 { 4, 2, -1, 0, 0 } })
    refused(contradiction, m, with { ["layers.1.sizes"] = int64 { 4, 2, -7, 12, 0 } })
    refused("the sizes do not fit keys of float32; the file is damaged", m,
      with { ["layers.1.sizes"] = int64 { 4, 2, -1, 12, 4 } })
    refused("sizes is [3] of int64, which does not fit the other tensors of the layer", m,
      with { ["layers.1.sizes"] = int64 { 4, 2, -1 } })
    refused("lengths is [2] of float32, which does not fit the other tensors of the layer", m,
      with { ["layers.1.lengths"] = heed.ones(2) })
    refused("dropped is [1] of int64, which does not fit the other tensors of the layer", m,
      with { ["layers.1.dropped"] = int64 { 0 } })
    refused("values is [2, 4, 3, 2] of float32, which does not fit the other tensors of the layer", m,
      with { ["layers.1.values"] = heed.ones(2, 4, 3, 2) })
    refused("keys are int64; they must be float32, bfloat16, float16 or int8", m,
      with { ["layers.1.keys"] = heed.ones(2, 4, 4, 2, { dtype = "int64" }) })
    refused("values is [2, 4, 4, 2] of float32, which does not fit the other tensors of the layer", m,
      with { ["layers.1.keys"] = heed.ones(2, 4, 4, 2):to "float16" })
    refused("key_scales are there, but keys are float32", m, with { ["layers.1.key_scales"] = heed.ones(2, 4, 4) })
    refused("values is missing", m, with { ["layers.1.values"] = false })
    refused("sizes is missing", m, with { ["layers.1.sizes"] = false })
    refused("keys have 20 rows; there must be at most 12", m,
      with { ["layers.1.keys"] = heed.ones(2, 4, 20, 2), ["layers.1.values"] = heed.ones(2, 4, 20, 2) })
    assert(m:load_cache(path))
  end)

  it("and save refuses what it cannot write", function()
    local cache = m:load_cache(path)
    local saved, message = cache:save(folder "none/cache.safetensors")
    assert.is_nil(saved)
    assert.truthy(message:find("save: ", 1, true))
    assert.has_error(function() cache:save(folder "cache.txt") end)
    assert.has_error(function() cache:save() end)
    cache:release()
    assert.has_error(function() cache:save(path) end)
  end)

  it("and what models call refuses what is no list of caches or modules", function()
    local functions = require("heed.core").modules
    for _, value in ipairs { "text", 5, io.stdout, false } do
      assert.has_error(function() functions.save_caches(path, value) end)
      assert.has_error(function() functions.load_caches(path, value) end)
    end
    raises("save: cache is the number 1; it must be a heed.Cache", function() functions.save_caches(path, { 1 }) end)
    raises("load_cache: module is the number 1; it must be a MultiHeadAttention",
      function() functions.load_caches(path, { 1 }) end)
  end)
end)
