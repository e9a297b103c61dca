-- generate of decoders: greedy decoding, sampling, stopping, and rejected arguments.
local heed = require "heed"
local support = require "tests.support"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"

local CLASSES, TOP, golden, load_golden, from_one
  = cases.classes, cases.top, cases.golden, cases.load, cases.from_one

local function lists(prompts, f)
  local all = {}
  for i, prompt in ipairs(prompts) do all[i] = f(prompt, i) end
  return all
end

for _, kind in ipairs { "gpt2", "llama" } do
  describe("generate with several prompts: " .. kind, function()
    local m
    local prompts = { { 5, 17, 9 }, { 3 }, { 40, 2, 8, 1, 60, 33, 21 } }
    before_each(function() m = load_golden(kind) end)

    it("gives what each gives alone", function()
      local want = lists(prompts, function(prompt) return (m:generate(prompt, { max_new_tokens = 12 })) end)
      local texts, cache = m:generate(prompts, { max_new_tokens = 12 })
      assert.are.same(want, texts)
      assert.are.same({ 14, 12, 18 }, cache.lengths)
      assert.are.same({ want[1] }, (m:generate({ prompts[1] }, { max_new_tokens = 12 })))
      local even = m:generate(heed.tensor({ { 5, 17 }, { 9, 3 } }, { dtype = "int64" }), { max_new_tokens = 3 })
      assert.are.same(lists({ { 5, 17 }, { 9, 3 } }, function(prompt)
        return (m:generate(prompt, { max_new_tokens = 3 }))
      end), even)
    end)

    it("ends each text by itself, at a stop token or by on_token, and can continue", function()
      local whole = lists(prompts, function(prompt) return (m:generate(prompt, { max_new_tokens = 9 })) end)
      local stop = whole[1][4]
      local options = { max_new_tokens = 9, stop = stop, capacity = 40 }
      assert.are.same(m:generate(prompts, options), -- whole floats are integers
        (m:generate(prompts, { max_new_tokens = 18 / 2, stop = stop + 0.0, capacity = 80 / 2 })))
      local texts, cache = m:generate(prompts, options)
      assert.are.same(lists(prompts, function(prompt) return (m:generate(prompt, options)) end), texts)
      assert.are.same(lists(prompts, function(prompt, i) return #prompt + #texts[i] - 1 end), cache.lengths)

      local seen = { {}, {}, {} }
      texts, cache = m:generate(prompts, {
        max_new_tokens = 5, capacity = 40, stop = {},
        on_token = function(id, position, item)
          seen[item][#seen[item] + 1] = id
          assert.are.equal(#prompts[item] + #seen[item], position)
          return not (item == 2 and #seen[2] == 2)
        end,
      })
      assert.are.same(texts, seen)
      assert.are.same({ 5, 2, 5 }, lists(texts, function(text) return #text end))
      local further = lists(texts, function(text) return { text[#text] } end)
      local rest = m:generate(further, { max_new_tokens = 4, cache = cache, stop = {} })
      for i, text in ipairs(texts) do
        assert.are.same(table.move(whole[i], #text + 1, #text + 4, 1, {}), rest[i])
      end
    end)

    it("leaves the cache as on_token received it after an error, and the generator too", function()
      local options = { max_new_tokens = 6, temperature = 1.5, stop = {} }
      options.generator = heed.Generator(3)
      local want = m:generate(prompts, options)
      options.generator, options.cache = heed.Generator(3), m:new_cache { batch = 3, capacity = 40 }
      local told = { {}, {}, {} }
      local function collect(id, _, item)
        told[item][#told[item] + 1] = id
        if item == 3 and #told[3] == 2 then error "enough" end
      end
      options.on_token = collect
      assert.is_false((pcall(m.generate, m, prompts, options)))
      assert.are.same({ 4, 2, 8 }, options.cache.lengths)
      options.max_new_tokens = 4
      m:generate(lists(told, function(text) return { text[#text] } end), options)
      assert.are.same(want, told)
    end)
  end)
end

describe("generate", function()
  local m, ids
  before_each(function()
    m = load_golden "llama"
    ids = from_one(golden.llama.prompt)
  end)
  local greedy = from_one(golden.llama.greedy)

  it("calls on_token with each token and its position, and stops when it returns false", function()
    local seen = {}
    local tokens = m:generate(ids, {
      on_token = function(id, position)
        seen[#seen + 1] = { id, position }
        return #seen < 3
      end,
    })
    assert.are.same({ greedy[1], greedy[2], greedy[3] }, tokens)
    assert.are.same({ { greedy[1], 12 }, { greedy[2], 13 }, { greedy[3], 14 } }, seen)
    assert.are.equal(20, #m:generate(ids, { on_token = function() end }))
  end)

  it("records nothing, whether gradients are recorded or not", function()
    local expected, recording = m:generate(ids), {}
    local before = heed.set_grad_enabled(true)
    local without = m:generate(ids)
    local with = m:generate(ids, { on_token = function() recording[#recording + 1] = heed.is_grad_enabled() end })
    local co = coroutine.wrap(function() return m:generate(ids, { on_token = coroutine.yield, max_new_tokens = 1 }) end)
    local first, outside = co(), heed.is_grad_enabled()
    local fine, problem = pcall(m.generate, m, { 1, 10 ^ 6 })
    local after = heed.set_grad_enabled(before)
    assert.are.same(expected, without)
    assert.are.same(expected, with)
    assert.are.equal(expected[1], first)
    assert.is_true(recording[1] and outside and after)
    assert.is_false(fine)
    assert.matches("out of range", problem)
  end)

  it("stops after a stop token", function()
    assert.are.same({ greedy[1], greedy[2] }, (m:generate(ids, { stop = greedy[2] })))
    assert.are.same({ greedy[1] }, (m:generate(ids, { stop = { greedy[3], greedy[1] } })))
    local config = { eos_token_id = greedy[4] - 1 }
    for name, value in pairs(golden.llama.config) do config[name] = value end
    m = assert(CLASSES.llama.load(TOP .. golden.llama.file, config))
    assert.are.equal(4, #m:generate(ids))
    assert.are.equal(20, #m:generate(ids, { stop = {} }))
    config.eos_token_id = { 1, greedy[2] - 1 }
    m = assert(CLASSES.llama.load(TOP .. golden.llama.file, config))
    assert.are.equal(2, #m:generate(ids))
  end)

  it("continues with a cache", function()
    local first, cache = m:generate(ids, { max_new_tokens = 7, capacity = 60 })
    local second, same = m:generate({ first[7] }, { max_new_tokens = 8, cache = cache })
    assert.are.same(table.move(greedy, 8, 15, 1, {}), second)
    assert.are.equal(cache, same)
  end)

  it("is greedy with temperature 0 and with top_k 1", function()
    local want = m:generate(ids)
    assert.are.same(want, (m:generate(ids, { temperature = 0, top_p = 0.5 })))
    assert.are.same(want, (m:generate(ids, { top_k = 1 })))
    assert.are.same(want, (m:generate(ids, { top_p = 1e-9 })))
    assert.are.same(want, (m:generate(ids, { temperature = 1e-40 })))
    assert.are.same({}, (m:generate(ids, { max_new_tokens = 0 })))
  end)

  it("draws the same with the same seed", function()
    local options = { temperature = 1.5, top_k = 50, top_p = 0.95, generator = heed.Generator(7) }
    local first, other = m:generate(ids, options), m:generate(ids, options)
    options.generator = heed.Generator(7)
    assert.are.same(first, (m:generate(ids, options)))
    assert.are.not_same(first, other)
    heed.manual_seed(3)
    first = m:generate(ids, { temperature = 2 })
    heed.manual_seed(3)
    assert.are.same(first, (m:generate(ids, { temperature = 2 })))
  end)

  it("samples with the frequencies that the probabilities predict", function()
    local generator, draws = heed.Generator(1), 1000
    ids = { ids[1], ids[2] }
    local logits = m(ids)[-1]:tolist()
    for _, case in ipairs { { temperature = 0.7 }, { temperature = 1.3, top_k = 6 }, { temperature = 1, top_p = 0.6 },
      { temperature = 2, top_k = 20, top_p = 0.5 } } do
      -- the probabilities, computed in plain Lua
      local order, p, sum = {}, {}, 0
      for i = 1, #logits do order[i] = i end
      table.sort(order, function(a, b) return logits[a] > logits[b] end)
      for i = 1, case.top_k or #order do
        p[i] = math.exp(logits[order[i]] / case.temperature)
        sum = sum + p[i]
      end
      local kept, before = 0, 0
      for i = 1, #p do
        if before / sum >= (case.top_p or 2) then p[i] = nil else kept, before = i, before + p[i] end
      end
      local counts, rank = {}, {}
      for i = 1, kept do rank[order[i]], counts[i] = i, 0 end
      for _ = 1, draws do
        local id = m:generate(ids, { max_new_tokens = 1, generator = generator, temperature = case.temperature,
          top_k = case.top_k, top_p = case.top_p })[1]
        assert.is_truthy(rank[id], "a token that was cut off")
        counts[rank[id]] = counts[rank[id]] + 1
      end
      for i = 1, kept do -- within five standard deviations
        local want = p[i] / before
        assert.is_true(math.abs(counts[i] / draws - want) <= 5 * math.sqrt(want / draws) + 1e-3)
      end
    end
  end)

  it("names wrong arguments", function()
    local function refuses(message, options, prompt)
      raises("generate: " .. message, function() m:generate(prompt or ids, options) end)
    end
    refuses("temperature is the number -0.5; it must be a finite number of at least 0 (greedy)", { temperature = -0.5 })
    refuses("temperature is the number inf; it must be a finite number of at least 0 (greedy)",
      { temperature = math.huge })
    refuses("top_p is the number 0; it must be a number above 0 and at most 1", { top_p = 0 })
    refuses("top_p is the number 1.5; it must be a number above 0 and at most 1", { top_p = 1.5 })
    refuses("top_k is the number 0; it must be an integer of at least 1", { top_k = 0 })
    refuses("max_new_tokens is the number -1; it must be an integer of at least 0", { max_new_tokens = -1 })
    refuses("max_new_tokens is the number 1.5; it must be an integer of at least 0", { max_new_tokens = 1.5 })
    refuses("stop is the number 198; it must be an integer from 1 to 197", { stop = 198 })
    refuses("ids are empty; there must be at least one", nil, {})
    refuses("prompt 2 is empty; it must have at least one id", nil, { { 1 }, {} })
    refuses("prompt 2 is the number 2; it must be a tensor or a table of integers", nil, { { 1 }, 2 })
    refuses("prompt 1[2] is the number 1.5; it must be an integer", nil, { { 1, 1.5 }, { 1 } })
    refuses("prompt 2 is a table; it must be a list or a tensor [n] of ids", nil, { { 1 }, { { 1 } } })
    refuses("prompt 2: 2 ids and 127 new tokens make 129; max_position_embeddings is 128", { max_new_tokens = 127 },
      { { 1 }, { 1, 2 } })
    refuses("cache has a batch of 2; it must be 1, the number of prompts", { cache = m:new_cache { batch = 2 } })
    refuses("11 ids and 118 new tokens make 129; max_position_embeddings is 128", { max_new_tokens = 118 })
    refuses("max_new_tokens is the number " .. support.digits(math.maxinteger) ..
      "; it must be an integer of at least 0",
      { max_new_tokens = math.maxinteger })
    refuses("capacity is a string ('x'); it must be an integer of at least 1", { capacity = "x" })
    refuses("cache is the number 3; it must be a cache made by the model's new_cache", { cache = 3 })
    local released = m:new_cache()
    released:release()
    refuses("the cache has been released", { cache = released })
    refuses("cache and capacity are both given; use capacity for a new cache only",
      { cache = m:new_cache(), capacity = 40 })
    refuses("11 ids and 5 new tokens make 16; capacity is 15", { max_new_tokens = 5, capacity = 15 })
    refuses("11 ids and 5 new tokens make 16; the cache's capacity is 15",
      { max_new_tokens = 5, cache = m:new_cache { capacity = 15 } })
    refuses("on_token is the number 3; it must be a function", { on_token = 3 })
    assert.has_error(function() m:generate(ids, { top = 3 }) end)
    assert.has_error(function() m:generate(ids, { temperature = 1, generator = 5 }) end)
    assert.are.equal(117, #m:generate(ids, { max_new_tokens = 117 }))
  end)

  it("reports logits that are nan", function()
    m.norm.weight[1] = 0 / 0
    raises("generate: the model's logits contain nan", function() m:generate(ids) end)
    raises("generate: the model's logits contain nan or inf; they have no softmax",
      function() m:generate(ids, { temperature = 1 }) end)
  end)
end)
