-- heed's side of model.py: answers each line of standard input.
--   heed model.lua MODEL      text TEXT | forget: adds a sentence, or removes all
--                             one N | many N: encodes the first sentence, or all, N times; answers the processor time
--                             padded N: the same as many, but in batches of similar lengths with padding
--                             parts: answers the parts of the time of one sentence, as lines "seconds name", then "."
local heed = require "heed"
local model = assert(require("heed.models.bert").load(arg[1]))
local first = model:encode { "Your journey starts with one step" }
print(("ready %.9g"):format(first[1][1]))
io.stdout:flush()

local sentences = {}

local BATCH_TOKENS = 256

--- The embeddings of texts [n, d] in batches that are padded.
local function encode_padded(texts)
  local lists = {}
  for i, text in ipairs(texts) do lists[i] = model.tokenizer:encode(text, { max_length = model.max_seq_length }) end
  table.sort(lists, function(a, b) return #a < #b end)
  local results, from = {}, 1
  while from <= #lists do
    local to = from
    while lists[to + 1] and (to + 2 - from) * #lists[to + 1] <= BATCH_TOKENS do to = to + 1 end
    local rows, lengths, most = {}, {}, #lists[to]
    for i = from, to do
      rows[#rows + 1], lengths[#lengths + 1] = lists[i], #lists[i]
      for at = #lists[i] + 1, most do lists[i][at] = 1 end
    end
    lengths = heed.tensor(lengths)
    local mask = heed.arange(1, most + 1):le(lengths:unsqueeze(2)) -- [b, n]
    local hidden = model(heed.tensor(rows, { dtype = "int64" }), { attention_mask = mask })
    local y = (mask / lengths:unsqueeze(2)):unsqueeze(2):matmul(hidden):squeeze(2)
    results[#results + 1] = heed.nn.functional.normalize(y, { dim = -1 })
    from = to + 1
  end
  return heed.cat(results)
end

local function seconds(encode, texts, turns)
  local start = os.clock()
  for _ = 1, turns do encode(texts) end
  return os.clock() - start
end

local function encode(texts) return model:encode(texts) end
for line in io.lines() do
  local command, rest = line:match "^(%a+) ?(.*)$"
  if command == "text" then
    sentences[#sentences + 1] = rest
  elseif command == "forget" then
    sentences = {}
  elseif command == "embeddings" then
    for _, row in model:encode(sentences):iter() do print(table.concat(row:tolist(), " ")) end
  elseif command == "one" then
    print(seconds(encode, { sentences[1] }, tonumber(rest)))
  elseif command == "many" then
    print(seconds(encode, sentences, tonumber(rest)))
  elseif command == "padded" then
    -- a hook on a part keeps the model from leaving out the padding
    local hook = model.layers[1].norm:register_forward_hook(function() end)
    print(seconds(encode_padded, sentences, tonumber(rest)))
    hook:remove()
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
