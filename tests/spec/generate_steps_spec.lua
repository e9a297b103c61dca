-- generate in slices of time, and what limits sampling.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"

local function ones(n)
  local ids = {}
  for i = 1, n do ids[i] = i * 7 % 61 + 1 end
  return ids
end

for _, kind in ipairs { "gpt2", "llama" } do
  describe("generate_steps: " .. kind, function()
    local m
    before_each(function() m = cases.load(kind) end)

    it("gives the tokens of generate, in slices", function()
      local want, cache = m:generate(ones(12), { max_new_tokens = 9 })
      local steps, slices = m:generate_steps(ones(12), { max_new_tokens = 9, ms = 0 }), 0
      while not steps:advance() do slices = slices + 1 end
      assert.same(want, steps.result)
      assert.equal(cache.length, steps.cache.length)
      assert.is_true(slices > 9)
      assert.is_true(steps.finished)
      assert.is_true(steps:advance())
      assert.same({ #want, 9 }, { steps.done, steps.total })
    end)

    it("calls on_token within slices, which may use the model itself", function()
      local found = {}
      local steps = m:generate_steps(ones(5), { max_new_tokens = 4, ms = 0, on_token = function(id)
        found[#found + 1] = id
        assert.equal(1, #m:generate({ 3 }, { max_new_tokens = 1 }))
      end })
      for _ in steps do end -- luacheck: ignore 542
      assert.same(steps.result, found)
    end)

    it("goes on in a cache, and leaves it as it was when it is dropped halfway", function()
      local first, cache = m:generate(ones(5), { max_new_tokens = 3, capacity = 20 })
      local before, last = cache.length, { first[#first] }
      local want = m:generate(last, { cache = cache:clone(), max_new_tokens = 5 })
      local steps = m:generate_steps(last, { cache = cache, max_new_tokens = 5, ms = 0 })
      for _ = 1, 8 do steps:advance() end
      steps:release()
      assert.equal(before, cache.length)
      assert.same(want, (m:generate(last, { cache = cache, max_new_tokens = 5 })))
    end)

    it("leaves the modes of the caller between two slices", function()
      local steps = m:generate_steps(ones(5), { max_new_tokens = 3, ms = 0 })
      local before = heed.set_grad_enabled(true)
      local recording = true
      repeat
        local done = steps:advance()
        recording = recording and heed.is_grad_enabled()
      until done
      heed.set_grad_enabled(before)
      assert.is_true(recording)
    end)

    it("draws what generate draws", function()
      local function options() return { max_new_tokens = 8, top_p = 0.9, generator = heed.Generator(3) } end
      local given = options()
      given.ms = 0
      local steps = m:generate_steps({ 5, 17 }, given)
      for _ in steps do end -- luacheck: ignore 542
      assert.same((m:generate({ 5, 17 }, options())), steps.result)
    end)

    it("says what is wrong at once", function()
      for option, value in pairs { top_p = 2, max_new_tokens = -1, capacity = 3, stop = { 0 }, dtype = "float" } do
        assert.error_matches(function() m:generate_steps({ 5 }, { [option] = value }) end, option)
      end
      assert.error_matches(function() m:generate_steps({}, {}) end, "ids are empty")
    end)

    it("locates errors within a slice at the call of advance", function()
      local steps, rows = m:generate_steps({ 4, 0 }, {}), m:parameters()[1].shape[1]
      raises("Embedding: id 0 is out of range; weight has rows 1 to " .. rows .. " (element [2] of ids); ids count "
        .. "from 1, as arange(1, n + 1) does", function() steps:advance() end)
    end)

    it("reads its arguments when it is called", function()
      local ids, options = { 5, 17, 9 }, { max_new_tokens = 4, ms = 0, stop = {} }
      local want = m:generate(ids, { max_new_tokens = 4, stop = {} })
      local same_ids = heed.tensor(ids, { dtype = "int64" })
      local steps, others = m:generate_steps(ids, options), m:generate_steps(same_ids, options)
      ids[1], options.max_new_tokens, options.stop[1] = 40, 1, want[1]
      same_ids:fill_(3)
      for _ in steps do end -- luacheck: ignore 542
      for _ in others do end -- luacheck: ignore 542
      assert.same({ want, want }, { steps.result, others.result })
    end)

    it("calls on_token in the mode of the caller, as generate does", function()
      for _, recording in ipairs { true, false } do
        local found = {}
        local function on_token() found[#found + 1] = heed.is_grad_enabled() end
        local before = heed.set_grad_enabled(recording)
        m:generate({ 5 }, { max_new_tokens = 1, on_token = on_token })
        local steps = m:generate_steps({ 5 }, { max_new_tokens = 1, ms = 0, on_token = on_token })
        while not steps:advance() do assert.equal(recording, heed.is_grad_enabled()) end
        heed.set_grad_enabled(before)
        assert.same({ recording, recording }, found)
      end
    end)
  end)
end

describe("generate_steps", function()
  -- A Llama whose products are long enough to be divided.
  local function wide(more)
    heed.manual_seed(4)
    local c = { vocab_size = 3000, hidden_size = 128, intermediate_size = 512, num_hidden_layers = 2,
      num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 512 }
    for name, value in pairs(more or {}) do c[name] = value end
    return require("heed.models.llama")(c):eval()
  end

  local function count(steps)
    local slices = 0
    while not steps:advance() do slices = slices + 1 end
    return slices
  end

  local function prompt(n)
    local ids = {}
    for i = 1, n do ids[i] = i * 17 % 2999 + 1 end
    return ids
  end

  --- A model, and a cache with some tokens.
  local function begun()
    local m = wide()
    return m, (select(2, m:generate(prompt(50), { max_new_tokens = 2, capacity = 400 })))
  end

  for _, dtype in ipairs { "float32", "int8", "q8_0" } do
    it("ends slices within products and attention, with the bits of generate: " .. dtype, function()
      local m = wide():to(dtype)
      local want, cache = m:generate(prompt(200), { max_new_tokens = 3 })
      local steps = m:generate_steps(prompt(200), { max_new_tokens = 3, ms = 0 })
      assert.is_true(count(steps) > 300)
      assert.same(want, steps.result)
      -- all that is computed from the two caches has the same bits
      local y, other = m({ 5 }, { cache = cache }), m({ 5 }, { cache = steps.cache })
      assert.equal(y:to_string(), other:to_string())
    end)
  end

  it("reads a long prompt of a wide model in several passes", function()
    local m = wide { intermediate_size = 2 ^ 14, num_hidden_layers = 1 }
    local lengths = {}
    local hook = m.layers[1].norm:register_forward_hook(function(_, x) lengths[#lengths + 1] = x.shape[1] end)
    local steps = m:generate_steps(prompt(150), { max_new_tokens = 1, ms = 0 })
    count(steps)
    hook:remove()
    assert.same({ 32, 32, 32, 32, 22 }, lengths)
    assert.same((m:generate(prompt(150), { max_new_tokens = 1 })), steps.result)
  end)

  it("interleaves two generations of one model with two caches", function()
    local m = wide()
    local a, b = prompt(90), prompt(120)
    local one, other = m:generate_steps(a, { max_new_tokens = 4, ms = 0 }),
      m:generate_steps(b, { max_new_tokens = 4, ms = 0 })
    repeat
      local first, second = one:advance(), other:advance()
    until first and second
    assert.same((m:generate(a, { max_new_tokens = 4 })), one.result)
    assert.same((m:generate(b, { max_new_tokens = 4 })), other.result)
  end)

  it("refuses to go on where the cache was used by another call", function()
    local m = wide()
    local _, cache = m:generate(prompt(90), { max_new_tokens = 2, capacity = 400 })
    local steps = m:generate_steps(prompt(60), { cache = cache, max_new_tokens = 4, ms = 0 })
    for _ = 1, 30 do steps:advance() end
    m:generate({ 9 }, { cache = cache, max_new_tokens = 2 })
    assert.error_matches(function() count(steps) end, "cache was used by another call")
    assert.error_matches(function() steps:advance() end, "an earlier slice has failed")
  end)

  it("never goes on where the cache was used between any two slices, or changed", function()
    local m = cases.load "llama"
    local _, start = m:generate({ 5, 17, 9 }, { max_new_tokens = 2, capacity = 60 })
    local uses = {
      function(cache) m({ 1, 2, 3 }, { cache = cache }) end,
      function(cache) cache:truncate(2) end,
      function(cache) cache:reorder { 1 } end,
      function(cache) m:new_cache { prefix = cache, capacity = 60 } end,
    }
    for _, on_token in ipairs { false, function() end } do
      for _, use in ipairs(uses) do
        local pauses, finished = 1, false
        repeat
          local cache = start:clone()
          local steps = m:generate_steps({ 4, 8 }, { cache = cache, max_new_tokens = 3, ms = 0,
            on_token = on_token or nil })
          for _ = 1, pauses do finished = finished or steps:advance() end
          if not finished then
            use(cache)
            local length = cache.length
            local want = m({ 7 }, { cache = cache:clone() })
            -- or reorder has released the layer in which the slice had ended
            local fine, problem = pcall(count, steps)
            assert.is_false(fine)
            assert.truthy(problem:find "cache was used by another call" or problem:find "released cache", problem)
            assert.equal(length, cache.length)
            assert.is_true(want:equal(m({ 7 }, { cache = cache })))
          end
          pauses = pauses + 1
        until finished
        assert.is_true(pauses > 6)
      end
    end
  end)

  it("raises what on_token raises, and keeps the tokens before it", function()
    local m, cache = begun()
    local before, seen = cache.length, 0
    local steps = m:generate_steps({ 7 }, { cache = cache, max_new_tokens = 6, ms = 0, on_token = function()
      seen = seen + 1
      if seen == 3 then error("enough", 0) end
    end })
    assert.error_matches(function() count(steps) end, "^enough$")
    assert.equal(before + 3, cache.length)
    assert.equal(1, #m:generate({ 7 }, { cache = cache, max_new_tokens = 1 }))
  end)

  it("may be dropped halfway without a release, and by <close>", function()
    local m, cache = begun()
    local want = m:generate({ 7 }, { cache = cache:clone(), max_new_tokens = 3 })
    do
      local steps = m:generate_steps({ 7 }, { cache = cache, max_new_tokens = 3, ms = 0 })
      for _ = 1, 20 do steps:advance() end
      getmetatable(steps).__close(steps)
      steps = m:generate_steps({ 7 }, { cache = cache, max_new_tokens = 3, ms = 0 })
      for _ = 1, 20 do steps:advance() end
      steps = nil -- luacheck: ignore 311
    end
    collectgarbage()
    collectgarbage()
    assert.same(want, (m:generate({ 7 }, { cache = cache, max_new_tokens = 3 })))
  end)

  it("ends at limits.memory, and leaves the cache as it was", function()
    local m, cache = begun()
    local before = cache.length
    local steps = m:generate_steps(prompt(100), { cache = cache, max_new_tokens = 3, ms = 0 })
    collectgarbage()
    heed.limit { memory = heed.info().memory_in_use + 2 ^ 12 }
    local fine, message = pcall(count, steps)
    heed.limit { memory = math.huge }
    assert.is_false(fine)
    assert.truthy(tostring(message):find "memory", tostring(message))
    assert.equal(before, cache.length)
  end)

  it("ends at limits.seconds, and leaves the cache as it was", function()
    local m, cache = begun()
    local before = cache.length
    local steps = m:generate_steps(prompt(100), { cache = cache, max_new_tokens = 3, ms = 0 })
    for _ = 1, 20 do steps:advance() end
    heed.limit { seconds = 1e-9 }
    local fine, message = pcall(steps.advance, steps)
    heed.limit { seconds = math.huge }
    assert.is_false(fine)
    assert.truthy(tostring(message):find("time limit exceeded", 1, true), tostring(message))
    assert.equal(before, cache.length)
    assert.error_matches(function() steps:advance() end, "an earlier slice has failed")
  end)

  it("advances within a coroutine of the script", function()
    local m = wide()
    local want = m:generate(prompt(90), { max_new_tokens = 3 })
    local slices = 0
    local run = coroutine.wrap(function()
      local steps = m:generate_steps(prompt(90), { max_new_tokens = 3, ms = 0 })
      while not steps:advance() do coroutine.yield() end
      return steps.result
    end)
    local found
    repeat
      found = run()
      slices = slices + 1
    until found
    assert.is_true(slices > 50)
    assert.same(want, found)
  end)

  it("advances within on_token of another, and refuses to advance itself", function()
    local m = wide()
    local inner, outer, message = m:generate_steps(prompt(90), { max_new_tokens = 3, ms = 0 }), nil, nil
    outer = m:generate_steps(prompt(60), { max_new_tokens = 4, ms = 0, on_token = function()
      inner:advance(1e6)
      message = select(2, pcall(outer.advance, outer))
    end })
    assert.is_true(count(outer) > 100)
    assert.is_true(inner.finished)
    assert.truthy(tostring(message):find("a slice of these steps is running", 1, true), tostring(message))
    assert.same((m:generate(prompt(90), { max_new_tokens = 3 })), inner.result)
    assert.same((m:generate(prompt(60), { max_new_tokens = 4 })), outer.result)
  end)

  it("ends no slice in functions that C calls, such as finalizers", function()
    if not coroutine.isyieldable then return end -- 5.1 and 5.2 cannot tell (docs/lua-versions.md)
    local m, other, calls, problems = wide(), wide(), 0, {}
    local function use()
      local fine, problem = pcall(other, prompt(60))
      calls = calls + 1
      if not fine then problems[#problems + 1] = tostring(problem) end
    end
    local hook = m.layers[1].gate:register_forward_hook(function()
      string.gsub("x", "x", use)
      setmetatable({}, { __gc = use })
      collectgarbage()
      collectgarbage()
    end)
    local steps = m:generate_steps(prompt(60), { max_new_tokens = 2, ms = 0 })
    count(steps)
    hook:remove()
    assert.is_true(calls >= 2)
    assert.same({}, problems)
    assert.same((m:generate(prompt(60), { max_new_tokens = 2 })), steps.result)
  end)

  it("calls hooks and listeners within slices", function()
    local m, calls = wide(), 0
    local hook = m.layers[1].attention:register_forward_hook(function() calls = calls + 1 end)
    local other = m.layers[2].gate:register_forward_hook(function() calls = calls + 1 end)
    local steps = m:generate_steps(prompt(100), { max_new_tokens = 2, ms = 0 })
    count(steps)
    hook:remove()
    other:remove()
    assert.equal(4, calls)
    assert.same((m:generate(prompt(100), { max_new_tokens = 2 })), steps.result)
  end)
end)

describe("sampling", function()
  local m, prompt
  before_each(function() m, prompt = cases.load "llama", { 5, 17, 9 } end)

  it("with min_p = 1 takes the likeliest token", function()
    assert.same((m:generate(prompt, { max_new_tokens = 6 })), (m:generate(prompt, { max_new_tokens = 6, min_p = 1 })))
  end)

  it("with min_p draws no token below that share of the likeliest one's probability", function()
    local p = m(prompt)[-1]:softmax(-1)
    local least = p:max():item() * 0.5
    for seed = 1, 40 do
      local id = m:generate(prompt, { max_new_tokens = 1, min_p = 0.5, generator = heed.Generator(seed) })[1]
      assert.is_true(p[id] >= least)
    end
  end)

  it("with a repetition_penalty divides positive logits of seen tokens, and multiplies negative ones", function()
    local logits = m(prompt)[-1]:tolist()
    for _, id in ipairs(prompt) do logits[id] = logits[id] < 0 and logits[id] * 1.8 or logits[id] / 1.8 end
    local best = 1
    for id in ipairs(logits) do best = logits[id] > logits[best] and id or best end
    assert.equal(best, m:generate(prompt, { max_new_tokens = 1, repetition_penalty = 1.8 })[1])
  end)

  it("with a large repetition_penalty repeats no token where the logits are positive", function()
    local seen = {}
    for _, id in ipairs((m:generate(prompt, { max_new_tokens = 12, repetition_penalty = 1e6 }))) do
      assert.is_nil(seen[id])
      seen[id] = true
    end
  end)

  it("refuses shares and penalties that are none", function()
    for name, value in pairs { min_p = 1.5, repetition_penalty = 0 } do
      assert.error_matches(function() m:generate(prompt, { [name] = value }) end, "generate: " .. name .. " is")
    end
  end)
end)
