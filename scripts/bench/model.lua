-- heed's side of model.py: answers each line of standard input.
--   heed model.lua MODEL      one N | many N: encodes the first sentence, or all, N times; answers the processor time
--                             parts: answers the parts of the time of one sentence, as lines "seconds name", then "."
local heed = require "heed"
local model = assert(require("heed.models.bert").load(arg[1]))
local first = model:encode { "Your journey starts with one step" }
print(("ready %.9g"):format(first[1][1]))
io.stdout:flush()

local sentences = {}
for line in io.lines() do
  local command, rest = line:match "^(%a+) ?(.*)$"
  if command == "text" then
    sentences[#sentences + 1] = rest
  elseif command == "forget" then
    sentences = {}
  elseif command == "embeddings" then
    for _, row in model:encode(sentences):iter() do print(table.concat(row:tolist(), " ")) end
  elseif command == "one" or command == "many" then
    local texts = command == "one" and { sentences[1] } or sentences
    local start = os.clock()
    for _ = 1, tonumber(rest) do model:encode(texts) end
    print(os.clock() - start)
  elseif command == "parts" then
    local text, ids = sentences[1], nil
    local function time(name, f)
      local best = math.huge
      for _ = 1, 50 do
        local start = heed.clock()
        f()
        best = math.min(best, heed.clock() - start)
      end
      print(best, name)
    end
    time("tokens", function() ids = model.tokenizer:encode(text) end)
    local x = heed.tensor({ ids }, { dtype = "int64" })
    time("hidden states", function() model(x) end)
    local layer, h = model.layers[1], heed.randn(1, #ids, model.config.hidden_size)
    local wide = layer.up(h)
    time("a layer", function() layer(h) end)
    time("its attention", function() layer.attention(h) end)
    time("its linear up", function() layer.up(h) end)
    time("its activation", function() layer.activation(wide) end)
    time("its linear down", function() layer.down(wide) end)
    time("a norm", function() layer.norm(h) end)
    time("a sum", function() return h + h end)
    print "."
  end
  io.stdout:flush()
end
