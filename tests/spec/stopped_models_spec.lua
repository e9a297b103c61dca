-- The state after forward or generate of a model was cancelled by a limit, or failed in a layer or in on_token.
-- Continuing from there must give bit-identical results to an undisturbed run.
local heed = require "heed"
local GPT2, Llama = require "heed.models.gpt2", require "heed.models.llama"

local LAYERS, VOCABULARY = 4, 61

local function llama(window)
  return Llama { vocab_size = VOCABULARY, hidden_size = 32, intermediate_size = 48, num_hidden_layers = LAYERS,
    num_attention_heads = 4, num_key_value_heads = 2, head_dim = 8, max_position_embeddings = 600, rms_norm_eps = 1e-6,
    hidden_act = "silu", attention_dropout = 0, sliding_window = window, model_type = window and "mistral" }
end

local MAKERS = {
  ["Llama"] = function() return llama() end,
  ["Llama with a window of 16"] = function() return llama(16) end,
  ["Llama with a window of 300"] = function() return llama(300) end,
  ["GPT-2"] = function()
    return GPT2 { vocab_size = VOCABULARY, hidden_size = 32, num_hidden_layers = LAYERS, num_attention_heads = 4,
      max_position_embeddings = 600, intermediate_size = 64, layer_norm_epsilon = 1e-5, hidden_act = "gelu_new",
      scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false, tie_word_embeddings = true, resid_pdrop = 0.1,
      embd_pdrop = 0.1, attn_pdrop = 0.1 }
  end,
}

local function unlimited() heed.limit { memory = math.huge, seconds = math.huge } end

-- Ways to cancel a function that takes as long as f; most of them succeed. stop(g) returns the results of pcall(g).
-- Limits of time and memory cancel it anywhere, errors before and after its n-th call of a layer.
local function stops_of(m, f)
  local list = {}
  local start = heed.clock()
  f()
  local seconds = heed.clock() - start
  for i = 1, 6 do
    list[#list + 1] = function(g)
      heed.limit { seconds = seconds * i / 6 }
      local fine, result = pcall(g)
      unlimited()
      return fine, result
    end
  end
  for i = 0, 12, 2 do
    list[#list + 1] = function(g)
      collectgarbage()
      collectgarbage()
      heed.limit { memory = heed.info().memory_in_use + 500 * 2 ^ i }
      local fine, result = pcall(g)
      unlimited()
      return fine, result
    end
  end
  local class = getmetatable(m.layers[1])
  for _, call in ipairs { 1, 2, LAYERS, LAYERS + 1, 2 * LAYERS + 3, 5 * LAYERS } do
    for _, after in ipairs { false, true } do
      list[#list + 1] = function(g)
        local forward, calls = class.forward, 0
        class.forward = function(...)
          calls = calls + 1
          if calls == call and not after then error "stopped before a layer" end
          local y, found = forward(...)
          if calls == call then error "stopped after a layer" end
          return y, found
        end
        local fine, result = pcall(g)
        class.forward = forward
        return fine, result
      end
    end
  end
  return list
end

-- Every third of them, with another start each time: all models together cover them all.
local turn = 0
local function some_stops_of(m, f)
  turn = turn + 1
  local some = {}
  for i, stop in ipairs(stops_of(m, f)) do
    if (i + turn) % 3 == 0 then some[#some + 1] = stop end
  end
  return some
end

-- The lengths that a cache can be truncated to, as text.
local function lengths_back(cache)
  local can = {}
  for n = 0, cache.length do
    local clone = cache:clone()
    can[#can + 1] = pcall(clone.truncate, clone, n) and n or nil
    clone:release()
  end
  return table.concat(can, " ")
end

local function same(a, b) return a:eq(b):all():item() end

for name, make in pairs(MAKERS) do
  describe("a cancelled " .. name, function()
    setup(function() turn = turn + 1 end) -- a model takes 18 turns, so the next one starts elsewhere
    local m, ids
    before_each(function()
      heed.manual_seed(1)
      m = make():eval()
      ids = heed.randint(1, VOCABULARY, { 500 })
    end)
    after_each(unlimited)

    local function piece(first, last) return ids[{ { first, last } }] end

    it("forward leaves the cache unchanged", function()
      for _, sizes in ipairs { { 100, 200 }, { 0, 300 }, { 30, 10 }, { 143, 1 }, { 144, 2 }, { 428, 1 } } do
        local past, n = sizes[1], sizes[2]
        local before, stopped = m:new_cache(), 0
        local chunk = math.ceil(past * 2 / 3)
        if past > 0 then m(piece(1, chunk), { cache = before }) end
        for i = chunk + 1, past do m(piece(i, i), { cache = before }) end
        local new, after = piece(past + 1, past + n), before:clone()
        local want = m(new, { cache = after })
        local next_one = m(piece(past + n + 1, past + n + 1), { cache = after:clone() })
        local back_before, back_after = lengths_back(before), lengths_back(after)
        for _, stop in ipairs(some_stops_of(m, function() m(new, { cache = before:clone() }) end)) do
          local cache = before:clone()
          if not stop(function() m(new, { cache = cache }) end) then
            stopped = stopped + 1
            assert.equal(past, cache.length)
            if stopped % 4 == 1 then assert.equal(back_before, lengths_back(cache:clone():truncate(past))) end
            assert.is_true(same(want, m(new, { cache = cache:clone() })))
            assert.is_true(same(want, m(new, { cache = cache })))
            if stopped % 4 == 1 then assert.equal(back_after, lengths_back(cache)) end
            assert.is_true(same(next_one, m(piece(past + n + 1, past + n + 1), { cache = cache })))
          end
          cache:release()
        end
        assert.is_true(stopped > 1)
      end
    end)

    it("forward leaves no more memory in use than one that completes", function()
      local function memory_after(stop)
        local cache = m:new_cache()
        m(piece(1, 100), { cache = cache })
        if stop then assert.is_false(stop(function() m(piece(101, 300), { cache = cache }) end)) end
        m(piece(101, 300), { cache = cache })
        collectgarbage()
        collectgarbage()
        local held = heed.info().memory_in_use
        cache:release()
        return held
      end
      local stops = stops_of(m, function() m(piece(1, 20)) end)
      memory_after()
      assert.equal(memory_after(), memory_after(stops[#stops - 7]))
    end)

    local sampling = {
      ["greedy"] = {},
      ["drawn by a generator"] = { temperature = 1, top_k = 20, top_p = 0.9, own = true },
      ["drawn by the default generator"] = { temperature = 1 },
    }
    for how, chosen in pairs(sampling) do
      -- A cache of 100 tokens, a generator, and a call of generate with them; `told` receives on_token's arguments.
      local function set(told, on_token)
        local g = chosen.own and heed.Generator(5) or nil
        heed.manual_seed(7)
        local cache = m:new_cache()
        m(piece(1, 100), { cache = cache })
        local options = { temperature = chosen.temperature, top_k = chosen.top_k, top_p = chosen.top_p, stop = {},
          generator = g, cache = cache, max_new_tokens = 9 }
        if told then
          options.on_token = function(id, position)
            told[#told + 1] = id
            if on_token then return on_token(id, position) end
          end
        end
        return cache, options, g
      end
      local function undisturbed(prompt)
        return function()
          local _, options = set()
          m:generate(prompt, options)
        end
      end
      local function next_draws(g) return heed.rand(3, { generator = g }):to_string() end

      it("generate, " .. how .. ", keeps the state of the last token that on_token received", function()
        for _, n in ipairs { 40, 180 } do
          local prompt = piece(101, 100 + n)
          local _, options, g = set {}
          local want = m:generate(prompt, options)
          local after, untold, later = next_draws(g), 0, 0
          local list = some_stops_of(m, undisturbed(prompt))
          for i = 1, 9, 4 do list[#list + 1] = i end
          for _, stop in ipairs(list) do
            local told, at = {}, type(stop) == "number" and stop
            local cache
            cache, options, g = set(told, at and function() if #told == at then error "stopped by on_token" end end)
            if not (at and pcall or stop)(function() return m:generate(prompt, options) end) then
              for i, id in ipairs(told) do assert.equal(want[i], id) end
              options.on_token, options.max_new_tokens = nil, 9 - #told
              local rest
              if #told == 0 then
                untold = untold + 1
                assert.equal(100, cache.length)
                rest = m:generate(prompt, options)
              else
                later = later + 1
                assert.equal(100 + n + #told - 1, cache.length)
                rest = #told < 9 and m:generate({ told[#told] }, options) or {}
              end
              for _, id in ipairs(rest) do told[#told + 1] = id end
              assert.same(want, told)
              assert.equal(100 + n + 8, cache.length)
              assert.equal(after, next_draws(g))
            end
            cache:release()
          end
          assert.is_true(untold > 0 and later > 3)
        end
      end)

      it("generate, " .. how .. ", changes nothing if on_token received no token", function()
        for _, n in ipairs { 40, 180 } do
          local prompt = piece(101, 100 + n)
          local _, options, g = set()
          local want, stopped = m:generate(prompt, options), 0
          local after = next_draws(g)
          for _, stop in ipairs(some_stops_of(m, undisturbed(prompt))) do
            local cache
            cache, options, g = set()
            if not stop(function() m:generate(prompt, options) end) then
              stopped = stopped + 1
              assert.equal(100, cache.length)
              assert.same(want, (m:generate(prompt, options)))
              assert.equal(100 + n + 8, cache.length)
              assert.equal(after, next_draws(g))
            end
            cache:release()
          end
          assert.is_true(stopped > 1)
        end
      end)
    end
  end)
end

describe("generate", function()
  it("draws for sampling and for dropout from one generator while the model is in training mode", function()
    heed.manual_seed(2)
    local m = MAKERS["GPT-2"]():eval()
    m.layers[2]:train()
    heed.manual_seed(3)
    local first = m:generate({ 1, 2, 3 }, { temperature = 1 })
    heed.manual_seed(3)
    local told = {}
    m:generate({ 1, 2, 3 }, { temperature = 1, on_token = function(id) told[#told + 1] = id end })
    assert.same(first, told)
  end)

  it("rejects an invalid generator before it does anything", function()
    local m = llama():eval()
    local cache = m:new_cache()
    local fine, message = pcall(m.generate, m, { 1, 2 }, { temperature = 1, generator = 5, cache = cache })
    assert.is_false(fine)
    assert.truthy(message:find("generate: generator is the number 5; it must be a heed.Generator", 1, true))
    assert.equal(0, cache.length)
  end)

  it("reports that on_token released the cache", function()
    local m = llama():eval()
    local cache = m:new_cache()
    local fine, message = pcall(m.generate, m, { 1, 2 }, { cache = cache, on_token = function() cache:release() end })
    assert.is_false(fine)
    assert.truthy(message:find("generate: the cache has been released", 1, true))
  end)
end)
