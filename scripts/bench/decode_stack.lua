-- heed's side of decode_stack.py: a stack of Llama's layers with random weights, one token at a time.
--   heed decode_stack.lua THREADS    answers each line of standard input:
--     DTYPE        converts the weights; answers "bytes B", the bytes of weights that one token reads
--     N            decodes N tokens; answers the seconds of the fastest one
--     parts        answers the parts of the time of a token, as lines "seconds name", then "."
local heed = require "heed"
local Llama = require "heed.models.llama"
local config = { -- 8 layers of 12.5 MB in float32
  vocab_size = 64, hidden_size = 512, intermediate_size = 1376, num_hidden_layers = 8, num_attention_heads = 8,
  num_key_value_heads = 8, head_dim = 64, max_position_embeddings = 256, rms_norm_eps = 1e-6, hidden_act = "silu",
  attention_bias = false, mlp_bias = false, attention_dropout = 0, tie_word_embeddings = false,
}
local BYTES = { float32 = 4, bfloat16 = 2, float16 = 2, int8 = 1 }

heed.set_num_threads(tonumber(arg[1]))
local model, cache, token = nil, nil, heed.tensor({ 5 }, { dtype = "int64" })

local function bytes()
  local sum = 0
  for name, t in pairs(model:state_dict()) do
    if name:find "^layers" then sum = sum + t:numel() * BYTES[t.dtype] end
  end
  return sum
end

local function fastest(turns, f)
  local best = math.huge
  for _ = 1, turns do
    local start = heed.clock()
    f()
    best = math.min(best, heed.clock() - start)
  end
  return best
end

local function decode()
  model(token, { cache = cache, logits_to_keep = 1 })
  if cache.length > 200 then cache:truncate(100) end
end

print "ready"
io.stdout:flush()
for line in io.lines() do
  if BYTES[line] then
    heed.manual_seed(1)
    model = Llama(config):eval():to(line)
    collectgarbage()
    cache = model:new_cache()
    model(heed.ones(1, 100):long(), { cache = cache })
    print("bytes " .. bytes())
  elseif tonumber(line) then
    print(fastest(tonumber(line), decode))
  elseif line == "parts" then
    local x, layers = heed.randn(1, config.hidden_size), model.layers
    local function over(name, f)
      print(fastest(20, function() for i = 1, #layers do f(layers[i]) end end), name)
    end
    print(fastest(20, decode), "a token")
    over("the layers", function(layer) layer(x) end)
    over("their attention", function(layer) layer.attention(x) end)
    over("its projections", function(layer)
      local a = layer.attention
      a.W_query(x)
      a.W_key(x)
      a.W_value(x)
      a.out_proj(x)
    end)
    over("gate and up", function(layer)
      layer.gate(x)
      layer.up(x)
    end)
    local h = heed.randn(1, config.intermediate_size)
    over("down", function(layer) layer.down(h) end)
    over("norms", function(layer)
      layer.norm(x)
      layer.attention_norm(x)
    end)
    over("silu, product, sums", function(layer) return layer.activation(h) * h, x + x, x + x end)
    print "."
  end
  io.stdout:flush()
end
