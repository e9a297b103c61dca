-- Calls of every kind, for the budget of work: rows {name =, make =}. make() makes the inputs, always the same, and
-- returns the call. tests/spec/work_spec.lua counts their units. As a script, this prints the units of each call:
--   HEED_CPU=scalar build/heed tests/work_loads.lua [THREADS]
package.path = "./?.lua;" .. package.path
local heed = require "heed"
local cases = require "tests.decoder_cases"
local apply_template = require "heed.tokenizers.chat"
local support = require "tests.support"
local nn, F = heed.nn, heed.nn.functional

local loads = {}
local function load(name, make)
  loads[#loads + 1] = { name = name, make = function()
    heed.manual_seed(1)
    return make()
  end }
end

-- ---- Operations ----

for name, arguments in pairs {
  relu = {}, sum = {}, std = {}, sort = { 1 }, cumsum = { 1 }, tolist = {}, clone = {}, nonzero = {}, topk = { 5 },
  softmax = { 1 }, softmax_of_rows = { 2 }, uniform_ = {}, to_string = {}, flip = { 1 }, allclose = {},
} do
  load(name, function()
    local x = heed.rand(400, 800)
    if name == "allclose" then arguments = { x:clone() } end
    return function() return x[name:match "^(.-)_of"  or name](x, support.unpack(arguments)) end
  end)
end
load("tensor of a table", function()
  local rows = heed.rand(30, 40):tolist()
  return function() return heed.tensor(rows) end
end)
load("writing a part", function()
  local x = heed.rand(30, 40)
  return function() x[{ {}, { 1, 20 } }] = heed.ones(30, 20) end
end)
load("elements at indices", function()
  local x, index = heed.rand(30, 40), heed.randint(1, 30, { 500 })
  return function() return x:index_select(1, index), x[index], x[x:gt(0.5)], x:index_fill_(1, index, 2) end
end)
for name, sizes in pairs {
  ["a small product"] = { { 3, 5 }, { 5, 7 } }, ["a product of a batch"] = { { 4, 60, 50 }, { 4, 50, 70 } },
  ["a large product"] = { { 300, 400 }, { 400, 500 } }, ["a product with a vector"] = { { 300, 400 }, { 400 } },
} do
  load(name, function()
    local x, y = heed.rand(support.unpack(sizes[1])), heed.rand(support.unpack(sizes[2]))
    return function() return x:matmul(y) end
  end)
end
load("a product in bfloat16", function()
  local x, y = heed.rand(300, 400), heed.rand(400, 500)
  return function()
    local before = heed.get_matmul_precision()
    heed.set_matmul_precision "medium"
    local fine, result = pcall(x.matmul, x, y)
    heed.set_matmul_precision(before)
    return fine or error(result, 0)
  end
end)
for _, dtype in ipairs { "float32", "bfloat16", "float16", "int8", "q8_0", "q4_k" } do
  load("linear of weights in " .. dtype, function()
    local layer, x = nn.Linear(512, 100):to(dtype), heed.rand(70, 512)
    return function() return layer(x) end
  end)
end

-- ---- Attention and modules ----

for name, options in pairs {
  plain = {}, causal = { is_causal = true }, dropout = { dropout_p = 0.5 },
  window = { is_causal = true, window = { left = 5 } }, masked = { attn_mask = true },
} do
  load("attention, " .. name, function()
    local q, k = heed.rand(2, 4, 70, 16), heed.rand(2, 2, 90, 16)
    if name == "masked" then options = { attn_mask = heed.rand(70, 90):gt(0.5) } end
    options.enable_gqa = true
    return function() return F.scaled_dot_product_attention(q, k, k, options) end
  end)
end
load("attention of one query", function()
  local q, k = heed.rand(1, 4, 1, 32), heed.rand(1, 4, 3000, 32)
  return function() return F.scaled_dot_product_attention(q, k, k) end
end)
load("attention of packed sequences", function()
  local x = heed.rand(60, 4, 16)
  return function() return heed.varlen_attention(x, x, x, { lengths = { 10, 20, 30 } }) end
end)
load("linear attention", function()
  local x = heed.rand(2, 3, 40, 8)
  return function() return heed.linear_attention(x, x, x) end
end)
local function small_attention()
  return nn.MultiHeadAttention(24, 24, 200, 0, 3), heed.rand(2, 100, 24)
end
load("a module with a cache", function()
  local m, x = small_attention()
  return function()
    local cache = m:new_cache { batch = 2 }
    return m(x, { cache = cache }), m(x, { cache = cache }), cache:clone()
  end
end)
for name, options in pairs { plain = {}, int4 = { dtype = "int4" }, window = { window = { left = 8 } } } do
  load("caches that begin with another, " .. name, function()
    local m = nn.MultiHeadAttention { d_in = 24, d_out = 24, context_length = 200, dropout = 0, num_heads = 3,
      window = options.window }
    local x, y = heed.rand(1, 20, 24), heed.rand(2, 3, 24)
    return function()
      local first = m:new_cache { dtype = options.dtype }
      m(x, { cache = first })
      local second = m:new_cache { prefix = first }
      m(x, { cache = second })
      local third = m:new_cache { prefix = second, batch = 2 }
      return m(y, { cache = third }), m(y, { cache = third, need_weights = true }), m(x, { cache = first })
    end
  end)
end
load("caches in files", function()
  local m, x = small_attention()
  x = x[1]:narrow(1, 1, 60)
  return function()
    return support.with_file(function(path)
      local first, file = m:new_cache(), path .. ".safetensors"
      local fine, message = pcall(function()
        m(x, { cache = first })
        local second = m:new_cache { prefix = first }
        m(x, { cache = second })
        assert(second:save(file))
        return m(x, { cache = assert(m:load_cache(file)) })
      end)
      os.remove(file)
      return fine or error(message, 0)
    end)
  end
end)
load("a forward pass", function()
  local m, x = small_attention()
  return function() return m(x) end
end)
load("a forward pass in slices", function()
  local m, x = small_attention()
  return function()
    local steps = m:steps(x)
    while not steps:advance(0) do end -- luacheck: ignore 542
    return steps.result
  end
end)
local function training(backward)
  local layer = nn.TransformerEncoderLayer(24, 3, { dim_feedforward = 40, dropout = 0, batch_first = true })
  local optimizer, x = heed.optim.AdamW(layer:parameters()), heed.rand(4, 20, 24)
  return function()
    optimizer:zero_grad()
    backward(heed.enable_grad(function() return F.mse_loss(layer(x), x) end))
    nn.utils.clip_grad_norm_(layer:parameters(), 1)
    optimizer:step()
  end
end
load("a step of training", function() return training(function(loss) loss:backward() end) end)
load("a step of training in slices", function()
  return training(function(loss)
    for _ in loss:backward_steps { ms = 0 } do end -- luacheck: ignore 542
  end)
end)
for _, kind in ipairs { "gpt2", "llama" } do
  load("generating with " .. kind, function()
    local m = cases.load(kind)
    return function() return m:generate({ 5, 17, 9 }, { max_new_tokens = 6, temperature = 0.8 }) end
  end)
end

-- ---- Texts and files ----

for _, name in ipairs {
  "gpt2.json", "llama3.json", "unigram.json", "bert.json", "bpe.model", "unigram.model", "bpe.gguf",
} do
  load("tokenizer " .. name, function()
    return function()
      local tokenizer = assert(heed.tokenizers.load("tests/golden/tokenizers/" .. name))
      local ids = tokenizer:encode(("Attention is all you need; "):rep(40))
      return tokenizer:decode(ids)
    end
  end)
end
load("a chat template", function()
  local chat = { chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content | upper }}\n{% endfor %}" }
  local messages = {}
  for i = 1, 30 do messages[i] = { role = "user", content = "number " .. i } end
  return function() return apply_template(chat, messages) end
end)
for _, ending in ipairs { ".safetensors", ".npz", ".npy" } do
  load("saving and loading " .. ending, function()
    local x = heed.rand(100, 100)
    return function()
      return support.with_file(function(path)
        local file = path .. ending
        local ok, message = pcall(function()
          assert(heed.save(file, ending == ".npy" and x or { x = x }))
          local loaded = assert(heed.load(file))
          return (ending == ".npy" and loaded or loaded.x):clone()
        end)
        os.remove(file)
        return ok or error(message, 0)
      end)
    end
  end)
end

table.sort(loads, function(a, b) return a.name < b.name end)

-- The units that a call needs, and its error if there was one.
function loads.units(f)
  local most = 2 ^ 53
  heed.limit { work = most }
  local fine, message = pcall(f)
  local left = heed.limit().work
  heed.limit { work = math.huge }
  return most - left, not fine and tostring(message) or nil
end

if arg and arg[0] and arg[0]:find "work_loads" then
  heed.set_num_threads(tonumber(arg[1] or 1))
  for _, row in ipairs(loads) do
    local units, message = loads.units(row.make())
    print(("%s: %.0f%s"):format(row.name, units, message and ", " .. message or ""))
  end
end

return loads
