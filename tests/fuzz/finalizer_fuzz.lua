-- Calls many functions of heed while a finalizer modifies the objects in use in the middle of the call:
--   build/heed tests/fuzz/finalizer_fuzz.lua [seed [count]]
-- The modification happens in a random one of the call's allocations by Lua. Errors are fine; the process must not
-- crash, and the modules must stay valid. The same seed gives the same calls. With HEED_FUZZ_TRACE, each call is named
-- on standard error before it is made. Most bugs are only detected by `make sanitize`.
local support = require "tests.support"
local heed = require "heed"
local core = require "heed.core"
local nn = heed.nn

local arguments = arg or {}
local seed, count = tonumber(arguments[1]) or 1, tonumber(arguments[2]) or 500
local trace = os.getenv "HEED_FUZZ_TRACE"
math.randomseed(seed)
local random = math.random

-- ---- Objects ------------------------------------------------------------------------------------

local Own = nn.Module.class "Own"
function Own:init()
  self.weight, self.part = nn.Parameter(heed.rand(3, 3)), nn.Linear(3, 3)
  self:register_buffer("mask", heed.ones(2, 2))
end
function Own:forward(x)
  local y = self.part(x) + self.weight
  return y
end

--- A part of attention modules that is written in Lua.
local Around = nn.Module.class "Around"
function Around:init(part) self.part = part end
function Around:forward(x) return self.part(x) end

local function attention() return nn.MultiHeadAttention(4, 4, 8, 0.1, 2, { qk_norm = true, sinks = true }) end

-- New objects for a call; the changes refer to them by these names.
local function new_world()
  local w = {
    x = heed.rand(3, 4), y = heed.rand(3, 4), whole = heed.tensor { 1, 2, 3 }:long(), flags = heed.rand(3, 4):gt(0.5),
    long = heed.rand(40, 5), lengths = heed.tensor { 2 }:long(), linear = nn.Linear(4, 4):to "int8", mha = attention(),
    wrapper = nn.MultiHeadAttentionWrapper(4, 2, 8, 0.1, 2), own = Own(), generator = heed.Generator(3),
    numbers = { { 1, 2 }, { 3, 4 } }, sizes = { 2, 1 }, options = { dim = 1, keepdim = true },
  }
  w.pair, w.model, w.state = { w.x, w.y }, nn.Sequential(nn.Linear(4, 4), w.own, nn.Dropout(0.5)), w.mha:state_dict()
  w.cache = w.mha:new_cache { capacity = 8 }
  w.mha(w.x, { cache = w.cache })
  w.steps = w.mha:steps(heed.rand(2, 6, 4), { ms = 0, generator = w.generator, need_weights = true })
  w.steps()
  w.named = { x = w.x, y = w.y }
  w.around = attention()
  for _, name in ipairs { "W_query", "W_value", "out_proj", "dropout" } do w.around[name] = Around(w.around[name]) end
  w.wrapper.heads[2].W_key = Around(w.wrapper.heads[2].W_key)
  return w
end

-- ---- Changes made by the finalizer --------------------------------------------------------------

local dtypes = { "float32", "int8", "bfloat16", "float16" }

local changes = {
  dtypes = function(w)
    w.linear:to(w.linear.weight_scale and "float32" or "int8")
    w.mha:to(dtypes[random(4)])
    w.model:to(dtypes[random(4)])
  end,
  tensors = function(w)
    for _, name in ipairs { "x", "y", "whole", "flags", "long", "lengths" } do pcall(w[name].release, w[name]) end
  end,
  caches = function(w)
    pcall(w.cache.truncate, w.cache, 1)
    pcall(w.cache.reorder, w.cache, { 1 })
    pcall(w.mha, heed.rand(1, 4), { cache = w.cache })
    if random(2) == 1 then pcall(w.cache.release, w.cache) end
  end,
  steps = function(w)
    pcall(w.steps)
    if random(2) == 1 then pcall(w.steps.release, w.steps) end
    pcall(function() w.steps = w.mha:steps(heed.rand(6, 4), { ms = 0 }) end)
  end,
  parts = function(w)
    local other = attention()
    for _, name in ipairs { "W_query", "W_key", "W_value", "out_proj", "q_norm", "k_norm", "dropout" } do
      w.mha[name] = other[name]
    end
    w.wrapper.heads = nn.MultiHeadAttentionWrapper(4, 2, 8, 0.1, 2).heads
    w.wrapper.heads[1] = nn.CausalAttention(4, 2, 8, 0.1)
    w.own.part, w.own.weight, w.model[1] = nn.Linear(3, 3), nil, nn.Linear(4, 4)
    w.model:append(nn.ReLU())
  end,
  own_parts = function(w)
    local other = attention()
    for _, name in ipairs { "W_query", "W_value", "out_proj", "dropout" } do
      w.around[name] = random(2) == 1 and other[name] or Around(other[name])
    end
    pcall(function() w.mha.W_key = Around(w.mha.W_key) end)
    w.wrapper.heads[random(2)].W_key = Around(nn.Linear(4, 2))
    if random(2) == 1 then pcall(w.around, heed.rand(2, 4), { cache = w.cache }) end
  end,
  settings = function(w)
    for _, m in ipairs { w.mha, w.around } do
      m.causal, m.scale, m.softcap, m.context_length = random(2) == 1, random(), random(), 8 + random(3)
      m.window, m.rope = random(2) == 1 and { left = 1 } or nil, random(2) == 1 and { base = 9 } or nil
      pcall(function() m.dropout.p = random() end)
    end
  end,
  parameters = function(w)
    w.mha.out_proj.weight = heed.rand(4, 4)
    w.mha.sinks = heed.rand(2)
    w.own.weight = heed.rand(3, 3)
    w.mha:load_state_dict(attention():state_dict(), { assign = random(2) == 1 })
  end,
  tables = function(w)
    w.pair[2], w.named.y, w.sizes[2], w.numbers[2], w.options.dim = nil, nil, nil, nil, nil
    w.numbers[1][3], w.options[1], w.state["out_proj.weight"] = 5, 2, nil
    for i = 1, 50 do w.pair[i + 2] = w.x end
  end,
  values = function(w)
    for _, name in ipairs { "x", "y", "long" } do w[name]:fill_(-3e38) end
    w.lengths:fill_(1000000)
    w.whole:fill_(-7)
    w.generator:manual_seed(9)
  end,
  errors = function()
    pcall(heed.zeros, -1)
    heed.limit { threads = 1 }
    heed.set_num_threads(1)
  end,
  garbage = function() collectgarbage() end, -- older Luas allow this in finalizers
}

-- ---- Calls --------------------------------------------------------------------------------------

local function drain(iterator, ...)
  for _ in iterator, ... do end -- luacheck: ignore 542
end

local calls = {
  entries = function(w) core.modules.entries(w.linear) end,
  named_parameters = function(w) drain(w.linear:named_parameters()) end,
  parameters = function(w) drain(w.mha:parameters()) end,
  modules = function(w) drain(w.model:named_modules()) end,
  state_dict = function(w) return tostring(w.linear:state_dict()), w.model:state_dict() end,
  load_state_dict = function(w) w.mha:load_state_dict(w.state) end,
  assign_state_dict = function(w) w.linear:load_state_dict(w.linear:state_dict(), { assign = true }) end,
  fields = function(w) return w.linear.weight, w.linear.weight_scale, w.linear.bias, w.mha.q_norm, w.mha.window end,
  heads = function(w) return w.wrapper.heads[1].W_query.weight, w.wrapper.heads[-1], w.mha:head(1) end,
  unknown_field = function(w) return w.linear.no_such_field end,
  wrong_part = function(w) w.mha.out_proj = "a string" end,
  wrong_parameter = function(w) w.linear.weight_scale = heed.ones(1) end,
  set_parameter = function(w) w.linear.bias = heed.ones(4) end,
  set_part = function(w) w.mha.out_proj = nn.Linear(4, 4) end,
  text_of_module = function(w) return tostring(w.mha), tostring(w.model) end,
  to = function(w) w.mha:to "bfloat16" end,
  split = function(w) return w.mha:split().heads[2].W_key.weight end,
  forward = function(w) return w.mha(w.x, { need_weights = true, generator = w.generator }) end,
  forward_of_own_parts = function(w)
    return w.around(w.x, { need_weights = random(2) == 1, generator = w.generator })
  end,
  forward_of_own_heads = function(w) return w.wrapper(w.x), w.wrapper:clone() end,
  forward_of_own_cache = function(w) return w.around(heed.rand(2, 4), { cache = w.cache, kv_lengths = nil }) end,
  set_own_part = function(w)
    w.around.W_key = Around(w.around.W_key)
    w.around.W_query = nn.Linear(4, 4)
    w.wrapper.heads[1].dropout = Around(nn.Dropout(0.5))
    w.around:train(random(2) == 1)
    return w.around:state_dict(), tostring(w.around)
  end,
  set_settings = function(w)
    w.mha.scale, w.mha.window, w.mha.rope = 2, { left = 3 }, { base = 7 }
    w.mha.dropout.p = 0.5
  end,
  forward_of_model = function(w) return w.model(w.x) end,
  forward_with_cache = function(w) return w.mha(heed.rand(2, 4), { cache = w.cache, attn_mask = heed.ones(2, 5) }) end,
  cache = function(w) return tostring(w.cache), w.cache:clone(), w.cache:reorder { 1 } end,
  new_cache = function(w) return w.mha:new_cache { batch = 2, capacity = 3, dtype = "int8" } end,
  steps = function(w)
    drain(w.steps)
    return w.steps.result, w.steps.info, tostring(w.steps)
  end,
  new_steps = function(w) drain(w.mha:steps(w.x, { ms = 0, cache = w.cache, generator = w.generator })) end,
  text = function(w) return tostring(w.long), tostring(w.flags) end, -- without .., in which Lua 5.4.4 crashes
  text_of_shape = function(w) return tostring(w.x.shape), w.x:size(), w.x:stride() end,
  tolist = function(w) return w.x:tolist(), w.flags:tolist() end,
  tensor = function(w) return heed.tensor(w.numbers), heed.tensor { w.x, w.y }, heed.tensor(w.pair) end,
  cat = function(w) return heed.cat(w.pair, 1), heed.stack(w.pair) end,
  pieces = function(w) return w.x:split(w.sizes), w.x:split(1), w.y:chunk(2) end,
  sum = function(w) return w.x:sum(w.options), w.x:var { 1, 2 } end,
  shape = function(w) return heed.zeros(w.sizes), w.x:permute(w.sizes), heed.ones(w.sizes, w.options) end,
  index = function(w) return w.x[1], w.x[w.whole], w.x[w.flags], w.x[{ w.sizes, 1 }], w.x.T end,
  assign = function(w)
    w.x[1], w.y[w.flags], w.x[w.whole] = w.y[2], 0, w.y
    w.x[{ w.sizes }] = 1
  end,
  rows = function(w)
    for _, row in w.x:iter() do local t = row + 1 t:release() end
  end,
  in_place = function(w) return w.x:add_(w.y):clamp_ { min = 0, max = 1 } end,
  arithmetic = function(w) return (w.x + w.y) * 2 - w.x:matmul(w.y.T) end,
  several_results = function(w) return w.x:sort(), w.x:topk(2), w.x:max(1) end,
  attention = function(w)
    local q = heed.rand(1, 2, 3, 4)
    return heed.scaled_dot_product_attention(q, q, q, { kv_lengths = w.lengths, window = { left = 1 },
      need_weights = true, dropout_p = 0.5, generator = w.generator })
  end,
  rope = function(w) return heed.rope(w.x, { base = 1e4, scaling = { type = "linear", factor = 2 } }) end,
  draws = function(w) return heed.rand(w.sizes, { generator = w.generator }), w.x:randn_like(), heed.randperm(5) end,
  generator = function(w) w.generator:set_state(w.generator:get_state()) end,
  strings = function(w) return heed.from_string(w.x:to_string(), "float32", w.x.shape) end,
  constructors = function() return attention(), nn.LayerNorm { 2, 3 }, nn.Embedding(3, 4) end,
  limit = function() heed.limit { threads = 2, files = true } end,
  errors = function(w)
    pcall(heed.matmul, w.x, w.x)
    pcall(heed.add, w.x, "x")
    pcall(heed.rand, { generator = w.linear })
    pcall(heed.zeros, {}, {}, {})
  end,
  lacks_memory = function(w) return heed.cat { w.x, w.y, heed.ones(1):expand(2 ^ 45):unsqueeze(1) } end,
  lists_without_memory = function(w)
    heed.limit { memory = heed.info().memory_in_use + 1000 }
    pcall(core.modules.store, { w.mha, w.linear }, "bfloat16")
    pcall(core.modules.copy_all, { w.x, w.y }, { w.y, w.x })
    pcall(core.files.save, "/dev/null/x.npz", { "x", "y" }, { w.x, w.y }, { "key", "value" })
    pcall(heed.save, "/dev/null/x.safetensors", w.named)
  end,
  text_of_bytes = function()
    return core.text.lower "ÄB", core.text.nfd "é", core.text.replace("a.b", { P = " %0 " })
  end,
  vocabulary = function()
    local v = core.text.vocabulary "a\nab\n"
    return v:id "ab", v:piece(1), v:longest("abc", 1, "")
  end,
}

-- ---- The loop -----------------------------------------------------------------------------------

local function sorted(of)
  local names = {}
  for name in pairs(of) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local call_names, change_names = sorted(calls), sorted(changes)
local changed, problem = 0, nil

for i = 1, count do
  local call, change = call_names[(i - 1) % #call_names + 1], change_names[random(#change_names)]
  local number = random(random(50)) -- early allocations are more likely
  if trace then io.stderr:write(("%s, %s in allocation %d\n"):format(call, change, number)) end
  local world = new_world()
  if support.at_allocation(number, function()
    local fine, message = pcall(changes[change], world)
    if not fine then problem = ("%s, in %s: %s"):format(change, call, message) end
  end, calls[call], world) then changed = changed + 1 end
  heed.limit { memory = math.huge }
  assert(not problem or problem:find "memory", problem)
  for _, name in ipairs { "linear", "mha", "wrapper", "model", "around" } do
    local names = {}
    for each, parameter in world[name]:named_parameters() do
      assert(not names[each] and parameter.ndim > 0, each)
      names[each] = true
    end
  end
end
print(("%d calls"):format(count))
if trace then io.stderr:write(("%d were changed\n"):format(changed)) end
