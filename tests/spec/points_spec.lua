-- run_with_cache, run_with_hooks, add_hook and hook_names: the points of models.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local nn, close = heed.nn, tensors.close

local IDS = { 3, 1, 4, 1, 5, 9 }

local function gpt2() return cases.load "gpt2" end
local MODELS = {
  ["GPT-2"] = gpt2,
  Llama = function() return cases.load "llama" end,
  BERT = function() return assert(require("heed.models.bert").load "tests/golden/tiny_bert") end,
}

for name, load in pairs(MODELS) do
  describe("the points of " .. name, function()
    it("are stored by run_with_cache, whose result is that of the forward, bit for bit", function()
      local m = load()
      local y, cache = m:run_with_cache(IDS)
      close(m(IDS), y, 0)
      local count = 0
      for each, x in heed.pairs(cache) do
        count = count + 1
        assert.are.equal(x, cache[each])
      end
      assert.are.equal(#cache, count)
      for _, each in ipairs(m:hook_names()) do
        if not each:find "hook_result" then assert.is_not_nil(cache[each], each) end
      end
    end)

    it("hold together: what one is computed from gives the other", function()
      local m = load()
      local _, c = m:run_with_cache { IDS }
      for i = 0, #m.layers - 1 do
        local at = ("blocks.%d."):format(i)
        close(c[at .. "hook_resid_pre"] + c[at .. "hook_attn_out"], c[at .. "hook_resid_mid"], 0)
        local before = name == "BERT" and c[at .. "ln1.hook_normalized"] or c[at .. "hook_resid_mid"]
        close(before + c[at .. "hook_mlp_out"], c[at .. "hook_resid_post"], 0)
        close(c[at .. "attn.hook_attn_scores"]:softmax(-1), c[at .. "attn.hook_pattern"], 1e-6)
        local v = c[at .. "attn.hook_v"]:transpose(2, 3)
        local heads = c[at .. "attn.hook_pattern"]:size(2)
        v = v:repeat_interleave(math.floor(heads / v:size(2)), 2)
        close(c[at .. "attn.hook_pattern"]:matmul(v), c[at .. "attn.hook_z"]:transpose(2, 3), 1e-5)
      end
    end)

    it("change the result where a function changes them, and are then as before", function()
      local m = load()
      local y = m(IDS)
      for _, point in ipairs(m:hook_names()) do
        local seen
        local changed = m:run_with_hooks(IDS, { [point] = function(x, hook)
          seen = hook.name
          if not point:find "attn_scores" then return x * 0.5 end
          return x - heed.arange(x:size(-1)):float()
        end })
        assert.are.equal(point, seen)
        assert.is_true((changed - y):abs():max():item() > 0 or point:find "scale" ~= nil, point)
      end
      close(y, m(IDS), 0)
    end)

    it("give the same result where functions return the same values", function()
      local m = load()
      local y = m(IDS)
      for _, point in ipairs(m:hook_names()) do
        close(y, (m:run_with_hooks(IDS, { [point] = function(x) return x + 0 end })), 1e-4)
      end
    end)

    it("have no batch dimension for ids without one, and remove_batch_dim removes that of one item", function()
      local m = load()
      local _, plain = m:run_with_cache(IDS)
      local _, one = m:run_with_cache({ IDS }, { remove_batch_dim = true })
      local _, batch = m:run_with_cache { IDS, IDS }
      for each, x in heed.pairs(plain) do
        close(x, one[each], 1e-4)
        close(x, batch[each][2], 1e-4)
      end
    end)

    it("are as before after an error", function()
      local m = load()
      local y = m(IDS)
      for _, point in ipairs { m:hook_names()[1], "blocks.0.attn.hook_pattern" } do
        local fine, message = pcall(m.run_with_hooks, m, IDS, { [point] = function() error("no", 0) end })
        assert.are.same({ false, "no" }, { fine, message })
        close(y, m(IDS), 0)
      end
    end)
  end)
end

describe("the activations of run_with_cache", function()
  local function load(name)
    if name == "bert" then return MODELS.BERT() end
    return assert(cases.class_of(name).load(cases.top .. "decoders/" .. name))
  end
  for _, case in ipairs(dofile "tests/golden/activations.lua") do
    it("are those of TransformerLens' computation in PyTorch, for " .. case.name, function()
      local _, cache = load(case.name):run_with_cache(cases.from_one(case.ids))
      local names = {}
      for _, each in ipairs(case.activations) do
        names[each.name] = true
        close(tensors.golden(each.x), cache[each.name], 2e-4)
      end
      for name in heed.pairs(cache) do assert.is_true(names[name], name) end
    end)
  end
end)

describe("run_with_cache", function()
  it("stores what names chooses: a name, a list, or a function", function()
    local m, one = gpt2(), "blocks.1.hook_resid_post"
    local _, cache = m:run_with_cache(IDS, { names = one })
    assert.are.same({ one }, cache:names())
    _, cache = m:run_with_cache(IDS, { names = { one, "hook_embed" } })
    assert.are.same({ "hook_embed", one }, cache:names())
    _, cache = m:run_with_cache(IDS, { names = function(name) return name:find "pattern" end })
    assert.are.equal(#m.layers, #cache)
  end)

  it("passes the other options on, a cache of keys and values among them", function()
    local m = gpt2()
    local whole, all = m:run_with_cache(IDS)
    local kv = m:new_cache()
    m({ 3, 1, 4, 1 }, { cache = kv })
    local y, rest = m:run_with_cache({ 5, 9 }, { cache = kv })
    close(whole[{ { 5, 6 }, {} }], y, 1e-5)
    close(all["blocks.1.hook_resid_post"][{ { 5, 6 }, {} }], rest["blocks.1.hook_resid_post"], 1e-5)
    close(all["blocks.1.attn.hook_pattern"][{ {}, { 5, 6 }, {} }], rest["blocks.1.attn.hook_pattern"], 1e-5)
    local k = rest["blocks.0.attn.hook_k"]:clone()
    m({ 1 }, { cache = kv })
    close(k, rest["blocks.0.attn.hook_k"], 0)
    local _, info, cache = m:run_with_cache(IDS, { need_weights = true, names = "blocks.0.attn.hook_pattern" })
    close(info.layers[1].weights, cache["blocks.0.attn.hook_pattern"], 0)
  end)

  it("lists the nearest names of an unknown one, before anything runs", function()
    local m = gpt2()
    local function with(names) return function() m:run_with_cache(IDS, { names = names }) end end
    raises("run_with_cache: the model has no point 'blocks.0.attn.hook_patern'; did you mean "
      .. "'blocks.0.attn.hook_pattern'?", with "blocks.0.attn.hook_patern")
    raises("run_with_cache: names is the number 3; it must be a name, a list of names or a function of the name",
      with(3))
    raises("run_with_cache: names[1] is the number 3; it must be a name", with { 3 })
    raises("run_with_cache: remove_batch_dim is the number 1; it must be a boolean",
      function() m:run_with_cache(IDS, { remove_batch_dim = 1 }) end)
  end)

  it("returns a cache that finds activations by the end of their names, and stacks layers", function()
    local _, cache = gpt2():run_with_cache(IDS)
    assert.are.equal(cache["blocks.1.attn.hook_pattern"], cache:get("pattern", 2))
    assert.are.equal(cache["blocks.0.ln1.hook_scale"], cache:get("ln1.hook_scale", 1))
    close(cache["blocks.1.hook_resid_mid"], cache:stack("resid_mid")[2], 0)
    raises("get: 'hook_scale' stands for 2 activations, 'blocks.0.ln1.hook_scale' and 'blocks.0.ln2.hook_scale' among "
      .. "them; give more of the name", function() cache:get("hook_scale", 1) end)
    raises("get: layer is 99; the cache has no 'pattern' of it (layers count from 1)",
      function() cache:get("pattern", 99) end)
    raises("heed.ActivationCache: it cannot be changed", function() cache.x = 1 end)
    assert.is_truthy(tostring(cache):find("blocks.0.attn.hook_pattern [4, 6, 6]", 1, true))
  end)
end)

describe("run_with_hooks", function()
  it("refuses results of another shape, and names the point", function()
    local m = gpt2()
    local shapes = { ["blocks.0.hook_resid_pre"] = "[6, 48]", ["blocks.0.attn.hook_pattern"] = "[4, 6, 6]" }
    for point, shape in pairs(shapes) do
      raises(("run_with_hooks: the result of the hook at '%s' is the number 1; it must be nil or a tensor %s of dtype "
        .. "float32"):format(point, shape), function() m:run_with_hooks(IDS, { [point] = function() return 1 end }) end)
    end
  end)

  it("takes a list of names or functions of names, in order", function()
    local m, seen = gpt2(), {}
    m:run_with_hooks(IDS, {
      { "hook_embed", function(x) seen[1] = x return x * 0 end },
      { function(name) return name == "hook_embed" end, function(x) seen[2] = x:abs():max():item() end },
    })
    assert.are.equal(0, seen[2])
  end)

  it("refuses unknown names and what is not a function", function()
    local m = gpt2()
    raises("run_with_hooks: the model has no point 'hook_embd'; did you mean 'hook_embed'?",
      function() m:run_with_hooks(IDS, { hook_embd = print }) end)
    raises("run_with_hooks: the model has no point 'zzz'; hook_names() lists all",
      function() m:run_with_hooks(IDS, { zzz = print }) end)
    local _, cache = m:run_with_cache(IDS)
    raises("get: the cache has no 'patern'; did you mean 'blocks.0.attn.hook_pattern', "
      .. "'blocks.1.attn.hook_pattern' or 'blocks.2.attn.hook_pattern'?",
      function() return cache:get("patern", 1) end)
    raises("stack: the cache has no 'zzz'; names() lists all", function() return cache:stack "zzz" end)
    raises("run_with_hooks: hooks['hook_embed'] is the number 1; it must be a function",
      function() m:run_with_hooks(IDS, { hook_embed = 1 }) end)
    raises("run_with_hooks: hooks is nil; it must be a table of functions by name",
      function() m:run_with_hooks(IDS) end)
    raises("run_with_hooks: hooks[1] chooses none of the 58 points; hook_names lists them",
      function() m:run_with_hooks(IDS, { { function() end, print } }) end)
  end)

  it("changes nothing with listeners that give nothing, at the norms of queries or keys either", function()
    heed.manual_seed(25)
    local x = heed.randn(2, 5, 8)
    for _, options in ipairs { { qk_norm = true }, { qk_norm = true, rope = {}, num_kv_heads = 2 } } do
      local m = nn.MultiHeadAttention(8, 8, 10, 0, 4, options)
      local y = m(x)
      for _, name in ipairs(m:hook_names()) do
        assert.is_true(m:run_with_hooks(x, { [name] = function() end }):equal(y), name)
      end
    end
  end)

  it("may be left by a coroutine that is dropped", function()
    local m, calls = gpt2(), 0
    local y = m(IDS)
    local co = coroutine.create(function()
      m:run_with_hooks(IDS, { hook_embed = function(x) calls = calls + 1 coroutine.yield() return x * 0 end })
    end)
    coroutine.resume(co)
    co = nil -- luacheck: ignore
    for _ = 1, 4 do collectgarbage() end
    close(y, m(IDS), 0)
    assert.are.equal(1, calls)
  end)
end)

describe("add_hook", function()
  it("hooks every pass, those of generate among them, until its handle is removed", function()
    local m, calls = gpt2(), 0
    local ids = m:generate(IDS, { max_new_tokens = 3 })
    local handle = m:add_hook("blocks.0.attn.hook_z", function(x) calls = calls + 1 return x * 0 end)
    m:generate(IDS, { max_new_tokens = 3 })
    assert.are.equal(3, calls)
    handle:remove()
    assert.are.same(ids, m:generate(IDS, { max_new_tokens = 3 }))
  end)
end)

describe("a model of one's own", function()
  local Block = nn.Module.class "Block"
  Block.points = { "hook_resid_pre", "hook_resid_post" }
  Block.part_names = { attention = "attn" }
  function Block:init()
    self.attention = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 10, num_heads = 2, dropout = 0 }
  end
  function Block:forward(x)
    x = self:point("hook_resid_pre", x)
    local y = self:point("hook_resid_post", x + self.attention(x))
    return y:mul_(2)
  end
  local Model = nn.Module.class "Model"
  Model.part_names = { layers = "blocks" }
  function Model:init() self.layers = nn.ModuleList { Block(), Block() } end
  function Model:forward(x)
    for _, layer in heed.ipairs(self.layers) do x = layer(x) end
    return x
  end

  it("declares its points in a line, and has those of its attention", function()
    local m = Model()
    local names = m:hook_names()
    assert.are.equal("blocks.0.hook_resid_pre", names[1])
    local y, cache = m:run_with_cache(heed.ones(3, 8))
    for i, size in ipairs { 2, 3, 3 } do assert.are.equal(size, cache["blocks.1.attn.hook_pattern"].shape[i]) end
    close(y, cache["blocks.1.hook_resid_post"] * 2, 0)
  end)

  it("refuses points that its class does not list", function()
    local Wrong = nn.Module.class("Wrong", Block)
    Wrong.points = { "hook_a" }
    local m = Wrong()
    local fine, message = pcall(m.run_with_cache, m, heed.ones(3, 8))
    assert.is_false(fine)
    local wanted = "point: Wrong has no point 'hook_resid_pre'; it must be one of Wrong.points: 'hook_a'"
    assert.is_truthy(message:find(wanted, 1, true))
  end)

  it("may be a built-in module alone", function()
    local m = Block().attention
    local _, cache = m:run_with_cache(heed.ones(1, 3, 8), { names = "hook_pattern" })
    for i, size in ipairs { 1, 2, 3, 3 } do assert.are.equal(size, cache.hook_pattern.shape[i]) end
  end)
end)
