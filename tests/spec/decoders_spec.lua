-- heed.models.gpt2 and llama: small models with random weights, compared with Hugging Face's transformers.
local heed = require "heed"
local tensors = require "tests.tensors"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"

local CLASSES, TOP, golden, class_of, load_golden = cases.classes, cases.top, cases.golden, cases.class_of, cases.load
local from_one, in_pieces, int64, close = cases.from_one, cases.in_pieces, tensors.int64, tensors.close

for name, case in pairs(golden) do
  describe("the golden " .. name, function()
    local prompt, greedy = from_one(case.prompt), from_one(case.greedy)

    it("gives the reference logits", function()
      local m = load_golden(name)
      close(heed.tensor(case.logits), m(prompt)[-1], 3e-5)
      close(m(prompt)[-1], m(int64(prompt))[-1], 0)
      close(m(prompt), m({ prompt, prompt })[2], 3e-5) -- logits up to 7.2, whose products add in another order
      close(m(prompt)[{ { 10, 11 }, {} }], m(prompt, { logits_to_keep = 2 }), 1e-5)
    end)

    it("generates the reference tokens with a cache", function()
      local m = load_golden(name)
      local ids, cache = m:generate(prompt, { max_new_tokens = #greedy })
      assert.are.same(greedy, ids)
      assert.are.equal(#prompt + #greedy - 1, cache.length)
    end)

    it("generates the reference tokens without a cache", function()
      local m, ids = load_golden(name), table.move(prompt, 1, #prompt, 1, {})
      for _, id in ipairs(greedy) do
        assert.are.equal(id, m(ids)[-1]:argmax():item())
        ids[#ids + 1] = id
      end
    end)

    it("gives the same logits in chunks, token by token and at once", function()
      local m, ids = load_golden(name), {}
      for _, list in ipairs { prompt, greedy } do table.move(list, 1, #list, #ids + 1, ids) end
      local whole = m(ids)
      for _, sizes in ipairs { {}, { 7, 1, 20 }, { #ids } } do
        close(whole, in_pieces(m, ids, sizes, m:new_cache()), 5e-5)
      end
    end)

    -- The logits have a standard deviation of about 2.
    for dtype, bound in pairs { bfloat16 = 0.03, float16 = 0.005, int8 = 0.15 } do
      local function near(want, got)
        local off = (want - got):pow(2):mean():sqrt():item()
        assert.is_true(off > 0 and off <= bound, "off by " .. off .. " in the mean")
      end

      it("gives close logits with a cache in " .. dtype, function()
        local m = load_golden(name)
        local cache = m:new_cache { dtype = dtype, capacity = 20 }
        assert.are.equal(dtype, cache.dtype)
        near(m(prompt), in_pieces(m, prompt, { 4 }, cache))
        assert.are.equal(dtype, select(2, m:generate(prompt, { dtype = dtype })).dtype)
      end)

      it("gives close logits with weights in " .. dtype, function()
        local m = load_golden(name)
        local before = m(prompt)
        near(before, m:to(dtype)(prompt))
        assert.are.equal(5, #m:generate(prompt, { max_new_tokens = 5 }))
      end)
    end
  end)
end

describe("a decoder gives the logits and tokens of Hugging Face's transformers:", function()
  for _, case in ipairs(cases.variants) do
    it(case.name, function()
      local m = assert(class_of(case.name).load(TOP .. "decoders/" .. case.name))
      local ids = int64(case.ids) + 1
      local logits = m(ids)
      close(heed.tensor(case.logits):view(logits.shape), logits, 3e-5)
      assert.are.same(from_one(case.greedy), (m:generate(ids[1], { max_new_tokens = #case.greedy })))
      local list = ids[1]:tolist()
      close(logits[1], in_pieces(m, list, { 3, 4 }, m:new_cache()), 5e-5)
    end)
  end
end)

describe("longrope", function()
  local case
  for _, each in ipairs(cases.variants) do
    if each.name == "phi3_longrope" then case = each end
  end
  local function load() return assert(heed.models.load(TOP .. "decoders/" .. case.name)) end

  it("gives texts of up to the original length other positions, as transformers does", function()
    local m, ids = load(), int64(case.ids) + 1
    ids = ids:narrow(2, 1, m.config.original_max_position_embeddings)
    for i = 1, #m.layers do m.layers[i].attention.rope = m.config.short_rope end
    local logits = m(ids)
    close(heed.tensor(case.short_logits):view(logits.shape), logits, 3e-5)
    for i = 1, #m.layers do m.layers[i].attention.rope = m.config.long_rope end
    close(heed.tensor(case.logits), m(int64(case.ids) + 1):flatten(), 3e-5)
  end)

  it("has the factors for max_position_embeddings, and those of other settings where they are given", function()
    local Phi3 = require "heed.models.phi3"
    local function scaling(change)
      local c = { vocab_size = 8, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1,
        num_attention_heads = 1, max_position_embeddings = 64, original_max_position_embeddings = 16,
        rope_scaling = { type = "su", short_factor = { 1, 2, 3, 4 }, long_factor = { 5, 6, 7, 8 } } }
      change(c)
      return Phi3(c).layers[1].attention.rope.scaling
    end
    local long = scaling(function() end)
    assert.are.same({ 5, 6, 7, 8 }, long.factors)
    assert.is_near((1 + math.log(64 / 16) / math.log(16)) ^ 0.5, long.attention_factor, 1e-12)
    local short = scaling(function(c) c.max_position_embeddings = 16 end)
    assert.are.same({ 1, 2, 3, 4 }, short.factors)
    assert.are.equal(1, short.attention_factor)
    assert.are.equal(1.5, scaling(function(c) c.rope_scaling.attention_factor = 1.5 end).attention_factor)
    assert.is_near((1 + math.log(8) / math.log(16)) ^ 0.5,
      scaling(function(c) c.rope_scaling.factor = 8 end).attention_factor, 1e-12)
  end)

  it("refuses a cache that was made with other factors", function()
    local m = load()
    local _, cache = m:generate({ 1, 2, 3 }, { max_new_tokens = 2 })
    require("tests.support").with_file(function(path)
      path = path .. ".safetensors"
      assert(cache:save(path))
      assert(m:load_cache(path))
      for i = 1, #m.layers do m.layers[i].attention.rope = m.config.short_rope end
      local found, problem = m:load_cache(path)
      os.remove(path)
      assert.is_nil(found)
      assert.is_truthy(problem:find("factors=", 1, true), problem)
    end)
  end)
end)

describe("a decoder", function()
  local m, ids
  before_each(function()
    m = load_golden "llama"
    ids = from_one(golden.llama.prompt)
  end)

  it("returns the intermediate results of its layers with need_weights", function()
    local logits, info = m(ids, { need_weights = true })
    close(m(ids), logits, 0)
    assert.are.equal(3, #info.layers)
    assert.are.equal("heed.Size([8, 11, 11])", tostring(info.layers[3].weights.shape))
  end)

  it("ignores the ids beyond kv_lengths", function()
    local short = { ids[1], ids[2], ids[3], 5, 6 }
    local logits = m({ short, table.move(ids, 1, 5, 1, {}) }, { kv_lengths = { 3, 5 } })
    close(m({ ids[1], ids[2], ids[3] }), logits[1][{ { 1, 3 }, {} }], 1e-5)
    close(m(table.move(ids, 1, 5, 1, {})), logits[2], 1e-5)
  end)

  it("ties lm_head to the embeddings, and keeps them tied", function()
    m = load_golden "gpt2"
    assert.is_true(m.lm_head.weight == m.token_embeddings.weight)
    m:to "bfloat16"
    assert.is_true(m.lm_head.weight == m.token_embeddings.weight)
  end)

  it("rejects invalid arguments", function()
    local long = {}
    for i = 1, 129 do long[i] = 1 end
    raises("Llama: ids have 129 tokens; together they must be at most 128, max_position_embeddings",
      function() m(long) end)
    raises("Llama: ids is a tensor of shape [0] and dtype float32; it must be a tensor [n] or [b, n] of ids, or a " ..
      "list, with at least one element",
      function() m(heed.ones(0)) end)
    raises("Llama: ids contains 0.5; it must have whole numbers: convert with x:long(), which drops fractions " ..
      "(element [1] of ids)", function() m(heed.ones(2) / 2) end)
    raises("Llama: logits_to_keep is the number 12; it must be an integer from 1 to the number of tokens, 11",
      function() m(ids, { logits_to_keep = 12 }) end)
    raises("Llama: cache is the number 3; it must be a cache made by the model's new_cache",
      function() m(ids, { cache = 3 }) end)
    raises("Llama: kv_lengths and cache are both given; use key_padding_mask to hide keys in a cache",
      function() m({ ids }, { cache = m:new_cache(), kv_lengths = { 3 } }) end)
    assert.has_error(function() m({ ids }, { kv_lengths = { 3, 4 } }) end)
    assert.has_error(function() m { 1, 198 } end)
    assert.has_error(function() m { 0 } end)
  end)
end)

describe("the cache of a model", function()
  local m, ids
  before_each(function()
    m = load_golden "gpt2"
    ids = from_one(golden.gpt2.prompt)
  end)

  it("needs at least one layer", function()
    while #m.layers > 0 do m.layers:pop() end
    raises("new_cache: the model has no layers; it must have at least one", function() m:new_cache() end)
  end)

  it("is truncated in all layers or in none, where their windows differ", function()
    m = require "heed.models.llama" { vocab_size = 40, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 2,
      num_attention_heads = 2, max_position_embeddings = 400 }:eval()
    m.layers[2].attention.window = { left = 2 }
    local cache = m:new_cache()
    while cache.length < 200 do m({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, { cache = cache }) end
    for _, n in ipairs { 5, { 5 } } do
      assert.is_false((pcall(cache.truncate, cache, n)))
      assert.are.equal(200, cache.length)
    end
    local copy = cache:clone()
    close(m({ 1, 2 }, { cache = copy }), m({ 1, 2 }, { cache = cache }), 1e-6)
    assert.are.equal(150, cache:truncate(150).length)
  end)

  it("can be truncated, cloned, reordered and released", function()
    local a, b = { 1, 2, 3 }, { 7, 8, 9 }
    local cache = m:new_cache { batch = 2, capacity = 9 }
    m({ a, b }, { cache = cache })
    assert.are.equal("heed.ModelCache(layers=3, length=3, capacity=9, batch=2, dtype=float32)", tostring(cache))
    local other = cache:clone():reorder { 2, 2 }
    local want = m({ 7, 8, 9, 4 })[-1]
    close(want, m({ { 4 }, { 4 } }, { cache = other })[1][1], 1e-5)
    assert.are.equal(3, cache.length)
    cache:truncate(1)
    close(m({ 7, 5 })[-1], m({ { 6 }, { 5 } }, { cache = cache })[2][1], 1e-5)
    cache:release()
    cache:release()
    assert.are.equal("heed.ModelCache(released)", tostring(cache))
    raises("GPT2: the cache has been released", function() m({ { 1 }, { 1 } }, { cache = cache }) end)
    raises("heed.ModelCache: the cache has been released", function() return cache.length end)
  end)

  it("may begin with the tokens of another one, which the batch shares", function()
    local prefix = m:new_cache()
    m({ 1, 2, 3 }, { cache = prefix })
    local cache = m:new_cache { batch = 2, prefix = prefix }
    assert.are.equal(3, cache.length)
    local got = m({ { 4, 5 }, { 8, 9 } }, { cache = cache })
    close(m({ 1, 2, 3, 4, 5 })[-1], got[1][2], 1e-5)
    close(m({ 1, 2, 3, 8, 9 })[-1], got[2][2], 1e-5)
    m({ 7 }, { cache = prefix })
    assert.are.equal(5, cache.length)
    raises("new_cache: prefix is the number 1; it must be a cache made by the model's new_cache",
      function() m:new_cache { prefix = 1 } end)
  end)

  it("may have sequences of different lengths", function()
    for _, name in ipairs { "gpt2", "llama" } do
      local model = load_golden(name)
      local texts, more = { { 1, 2, 3, 4 }, { 5 }, { 6, 7 } }, { { 8, 9 }, { 10, 11 }, { 12, 13 } }
      local cache = model:new_cache { batch = 3 }
      local logits = model({ 1, 2, 3, 4, 5, 6, 7 }, { cache = cache, lengths = { 4, 1, 2 } })
      assert.are.same({ 4, 1, 2 }, cache.lengths)
      assert.are.equal(4, cache.length)
      close(model(texts[1]), logits:narrow(1, 1, 4), 5e-5)
      close(model(texts[2]), logits:narrow(1, 5, 1), 5e-5)
      close(model(texts[3]), logits:narrow(1, 6, 2), 5e-5)
      local last = model({ 1, 2, 3, 4, 5, 6, 7 }, { cache = cache:clone():truncate(0), lengths = { 4, 1, 2 },
        logits_to_keep = 1 })
      close(logits:index_select(1, heed.tensor({ 4, 5, 7 }, { dtype = "int64" })), last, 5e-5)
      logits = model(more, { cache = cache })
      assert.are.same({ 6, 3, 4 }, cache.lengths)
      for i, text in ipairs(texts) do
        local whole = model(table.move(more[i], 1, 2, #text + 1, table.move(text, 1, #text, 1, {})))
        close(whole:narrow(1, #text + 1, 2), logits[i], 5e-5)
      end
      cache:truncate { 5, 1, 4 }:reorder { 2, 3, 1 }
      assert.are.same({ 1, 4, 5 }, cache.lengths)
      close(model { 5, 8, 9 }[-1], model(more, { cache = cache })[1][2], 5e-5)
    end
  end)

  it("reports lengths that do not fit, and stays unchanged", function()
    local cache = m:new_cache { batch = 2, capacity = 5 }
    m({ 1, 2, 3, 4 }, { cache = cache, lengths = { 3, 1 } })
    raises("GPT2: item 1 of cache has 3 tokens and ids have 3 more for it; together they must be at most 5, the " ..
      "capacity",
      function() m({ { 1, 2, 3 }, { 4, 5, 6 } }, { cache = cache }) end)
    raises("GPT2: lengths add up to 3; they must add up to 2, the number of ids",
      function() m({ 1, 2 }, { cache = cache, lengths = { 1, 2 } }) end)
    raises("GPT2: element 2 of lengths is -1; it must be at least 0",
      function() m({ 1, 2 }, { cache = cache, lengths = { 3, -1 } }) end)
    raises("GPT2: logits_to_keep is the number 2; it must be an integer from 1 to the length of the shortest text, 1",
      function() m({ 1, 2, 3 }, { cache = cache, lengths = { 2, 1 }, logits_to_keep = 2 }) end)
    assert.has_error(function() m({ 1, 2 }, { cache = cache, lengths = { 2 } }) end)
    assert.has_error(function() cache:truncate { 4, 1 } end)
    assert.are.same({ 3, 1 }, cache.lengths)
  end)

  it("reports what does not fit, and stays unchanged", function()
    local cache = m:new_cache { capacity = 12 }
    m(ids, { cache = cache })
    raises("GPT2: cache has 11 tokens and ids have 2 more; together they must be at most 12, the capacity",
      function() m({ 1, 2 }, { cache = cache }) end)
    raises("GPT2: cache has a batch of 1; it must be that of ids, 2",
      function() m({ { 1 }, { 2 } }, { cache = cache }) end)
    raises("truncate: n is 12; it must be from 0 to 11, the length", function() cache:truncate(12) end)
    raises("the field 'length' of a heed.ModelCache cannot be set; all of its fields are read-only",
      function() cache.length = 3 end)
    assert.has_error(function() return cache.size end)
    assert.has_error(function() cache:reorder { 2 } end)
    assert.has_error(function() m({ 999 }, { cache = cache }) end)
    assert.has_error(function() m:new_cache { capacity = 0 } end)
    assert.are.equal(11, cache.length)
    assert.are.equal(12, m:new_cache({ capacity = 12 }).capacity)
    assert.are.equal(96, m:new_cache().capacity)
    raises("GPT2: cache has 95 tokens and ids have 2 tokens; together they must be at most 96, " ..
      "n_positions", function()
      cache = m:new_cache { capacity = 200 }
      local long = {}
      for i = 1, 95 do long[i] = i end
      m(long, { cache = cache })
      m({ 1, 2 }, { cache = cache })
    end)
    raises("Llama: cache has 3 layers; it must have as many as the model, 2", function()
      assert(CLASSES.llama.load(TOP .. "decoders/llama"))(ids, { cache = m:new_cache() })
    end)
  end)

  it("is restored when a pass fails after some of the layers", function()
    local cache = m:new_cache()
    m(ids, { cache = cache })
    local want = m({ 5 }, { cache = cache:clone() })
    local class = getmetatable(m.layers[2])
    local forward, calls = class.forward, 0
    class.forward = function(...)
      calls = calls + 1
      if calls == 2 then error "no memory" end
      return forward(...)
    end
    local fine = pcall(m, { 9, 9 }, { cache = cache })
    class.forward = forward
    assert.is_false(fine)
    assert.are.equal(11, cache.length)
    close(want, m({ 5 }, { cache = cache }), 0)
  end)

  it("appends to one item where another is full, without a copy of the cache", function()
    m = assert(CLASSES.llama.load(TOP .. "decoders/llama"))
    local full, lengths = m:new_cache { batch = 64, capacity = 32 }, {}
    for i = 1, 64 do lengths[i] = i == 1 and 32 or 1 end
    m(heed.ones({ 95 }, { dtype = "int64" }), { cache = full, lengths = lengths, logits_to_keep = 1 })
    for i = 1, 64 do lengths[i] = i == 2 and 1 or 0 end
    collectgarbage()
    collectgarbage()
    heed.limit { memory = heed.info().memory_in_use + 2 ^ 17 } -- a fourth of the cache
    local fine, message = pcall(m, { 5 }, { cache = full, lengths = lengths })
    heed.limit { memory = math.huge }
    assert.is_true(fine, message)
    assert.are.equal(2, full.lengths[2])
  end)

  it("stores only the tokens that a sliding window can see", function()
    m = assert(CLASSES.llama.load(TOP .. "decoders/mistral"))
    assert.are.equal(math.huge, m:new_cache().capacity)
    assert.are.same({ 4, true }, { m.layers[1].attention.window.left, m.layers[1].attention.causal })
  end)
end)
