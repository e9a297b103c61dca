-- Changes the attention of a small model while it runs: heads without effect, maps given by hand, and other functions
-- instead of softmax, each in a few lines; prints what the model can still do:
--   build/heed scripts/examples/surgery.lua [SEED]
-- The model (scripts/examples/induction) continues repeated text; examples/induction.lua shows how.
local heed = require "heed"

local TEXTS, PERIOD = 32, 40 -- texts of so many characters, each written twice

local seed = tonumber(arg[1] or 1)
if not seed or seed % 1 ~= 0 or seed < 0 then
  io.stderr:write "surgery: the seed must be an integer from 0 up\n"
  os.exit(1)
end

-- ---- Other maps ---------------------------------------------------------------------------------
-- Functions from the weights of heads, [b, h, n, s], to others of the same shape. Hidden keys have the weight 0, and
-- keep it: a function sees no scores of keys that the causal mask hides.

-- The k largest weights of each row, rescaled to the sum 1.
local function top_k(k)
  return function(weights)
    local least = weights:topk(math.min(k, weights.shape[4]), -1):amin(-1, true)
    local kept = weights:masked_fill(weights:lt(least), 0)
    return kept / kept:sum(-1, true)
  end
end

-- The point nearest to the scores among all rows of weights: many of its weights are exactly 0. Martins and Astudillo,
-- "From Softmax to Sparsemax" (2016, arXiv:1602.02068), algorithm 1. Scores differ from the logarithms of softmax's
-- weights by a constant for each row, which changes nothing here.
local function sparsemax(weights)
  local z = weights:log():clamp(-100) -- of hidden keys: -100 is as good as -inf, and can be added up
  local sorted = z:sort(-1, true)
  local sums = sorted:cumsum(-1)
  local k = heed.range(1, z.shape[4])
  local in_support = (sorted * k + 1):gt(sums):float()
  local size = in_support:sum(-1, true)
  local threshold = ((sorted * in_support):sum(-1, true) - 1) / size
  return (z - threshold):clamp(0)
end

-- Each weight becomes the mean of its own and its neighbours', among the keys that the query sees.
local function smooth(weights)
  local n, s = weights.shape[3], weights.shape[4]
  local near, seen = heed.ones(s, s):tril(1):triu(-1), heed.ones(n, s):tril(s - n)
  local spread = weights:matmul(near) * seen
  return spread / spread:sum(-1, true)
end

-- Heads a and b of a layer exchange their maps.
local function swap(a, b)
  return function(weights)
    local order = heed.range(1, weights.shape[2]):tolist()
    order[a], order[b] = b, a
    return weights:index_select(2, order)
  end
end

-- ---- The model and its task ---------------------------------------------------------------------

local folder = (arg[0]:match "^(.*/)" or "") .. "induction"
local model = assert(require("heed.models.gpt2").load(folder))
model:eval()
local first, second = model.layers[1].attention, model.layers[2].attention

-- Ids [texts, 1 + 2 * period]: the beginning (id 1), then random characters, none of them twice, then the same again.
local generator = heed.Generator(seed)
local texts = {}
for i = 1, TEXTS do
  texts[i] = heed.randperm(model.config.vocab_size - 1, { generator = generator }):narrow(1, 1, PERIOD) + 1
end
local text = heed.stack(texts)
local ids = heed.cat({ heed.ones(TEXTS, 1):long(), text, text }, 2)
local n = ids.shape[2]

local original = model(ids)

-- Prints how much of the second copy is predicted, and the mean change of its probabilities: the share of each
-- distribution that moves elsewhere. Then undoes the change.
local function report(name, handle)
  local logits = model(ids)
  if handle then handle:remove() end
  local part = logits:narrow(2, PERIOD + 2, PERIOD - 1)
  local moved = (part:softmax(-1) - original:narrow(2, PERIOD + 2, PERIOD - 1):softmax(-1)):abs():sum(-1):mean() / 2
  local copied = part:argmax(-1):eq(text:narrow(2, 2, PERIOD - 1)):float():mean()
  print(("%-58s %5.1f %%  %5.1f %%"):format(name, 100 * copied:item(), 100 * moved:item()))
end

-- The head of layer 1 that attends most to the character before, and the head of layer 2 that attends most to the
-- character after the last occurrence.
local _, info = model(ids, { need_weights = { "weights" } })
local function head_at(layer, distance)
  return info.layers[layer].weights:diagonal(-distance, 3, 4):mean(-1):mean(1):argmax():item()
end
local previous, induction = head_at(1, 1), head_at(2, PERIOD - 1)
local other = induction % second.num_heads + 1

-- Maps [n, n]: all weight on the character before, and the same weight on every character so far.
local before = heed.eye(n):roll(-1, 2)
before[1] = heed.eye(n)[1]
local even = heed.ones(n, n):tril()
even = even / even:sum(-1, true)

print(("%-58s copied    moved"):format "change")
report("none")
report(("head %d of layer 1 ablated"):format(previous), first:ablate { previous })
report("  its map patched: all weight on the character before", first:patch(previous, before))
report("  its map patched: the same weight on all characters", first:patch(previous, even))
report(("head %d of layer 2 ablated"):format(induction), second:ablate { induction })
report("the largest weight of each row alone, in layer 2", second:on_weights(top_k(1)))
report("the 4 largest weights of each row alone, in layer 1", first:on_weights(top_k(4)))
report("sparsemax, in layer 1", first:on_weights(sparsemax))
report("sparsemax, in layer 2", second:on_weights(sparsemax))
report("maps smoothed over neighbours, in layer 1", first:on_weights(smooth))
report("maps smoothed over neighbours, in layer 2", second:on_weights(smooth))
report(("heads %d and %d of layer 2 exchanged"):format(induction, other), second:on_weights(swap(induction, other)))
report(("heads %d and %d of layer 1 exchanged"):format(previous, previous % first.num_heads + 1),
  first:on_weights(swap(previous, previous % first.num_heads + 1)))
