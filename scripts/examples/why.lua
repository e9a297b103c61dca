-- Looks for the heads of MiniLM that link a pronoun to its noun, shows what the strongest one does, and for how many
-- sentences it holds:
--   build/heed scripts/examples/why.lua [FILE]
-- FILE: x.svg receives the map of that head, x.html a page with all layers and heads that opens at it. Needs the model
-- that `make model` downloads (HEED_MODEL may name its folder). Each pair of sentences differs in one word, which
-- decides what "it" is. A head that links "it" to its noun must move its weight when that word changes.
require "heed"

-- A sentence, the word that makes "it" the first noun, the one that makes it the second, and the two nouns.
local PAIRS = {
  { "The cat ate the apple because it was %s.", "hungry", "ripe", "cat", "apple" },
  { "The animal didn't cross the street because it was too %s.", "tired", "wide", "animal", "street" },
  { "The dog chewed the shoe because it was %s.", "bored", "soft", "dog", "shoe" },
  { "The horse ate the hay because it was %s.", "hungry", "fresh", "horse", "hay" },
  { "The boy dropped the stone because it was %s.", "tired", "heavy", "boy", "stone" },
  { "The bird left the tree because it was %s.", "afraid", "dead", "bird", "tree" },
  { "The child read the book because it was %s.", "bored", "funny", "child", "book" },
  { "The rabbit ate the carrot because it was %s.", "hungry", "sweet", "rabbit", "carrot" },
  { "The mouse ate the cheese because it was %s.", "hungry", "old", "mouse", "cheese" },
  { "The truck hit the wall because it was %s.", "fast", "high", "truck", "wall" },
}
local CLEAR = 0.1 -- the difference of weights from which a link counts

local function stop(...)
  io.stderr:write("why: ", string.format(...), "\n")
  os.exit(1)
end

if arg[2] then stop "usage: why.lua [FILE]" end
local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local folder = os.getenv "HEED_MODEL" or top .. "build/models/all-MiniLM-L6-v2"
local weights_file = io.open(folder .. "/model.safetensors", "rb")
if not weights_file then stop("there is no model in '%s'; `make model` fetches it", folder) end
weights_file:close()
local bert, problem = require("heed.models.bert").load(folder)
if not bert then stop("%s", problem) end

-- ---- Reading ------------------------------------------------------------------------------------

local function position_of(tokens, word)
  for i, token in ipairs(tokens) do
    if token == word then return i end
  end
  error(("there is no token %q"):format(word))
end

-- The tokens of a text, the weights of each layer, [heads, n, n], and the last hidden states [n, d].
local function read(text)
  local tokens = bert.tokenizer:tokenize(text)
  table.insert(tokens, 1, "[CLS]") -- encode puts these two around the text
  table.insert(tokens, "[SEP]")
  local hidden, info = bert(bert.tokenizer:encode(text), { need_weights = { "weights" } })
  return tokens, info.layers, hidden
end

-- For every head, how much more weight "it" gives to `noun` than to `other`: a table [layer][head].
local function preference(text, noun, other)
  local tokens, layers = read(text)
  local it, yes, no = position_of(tokens, "it"), position_of(tokens, noun), position_of(tokens, other)
  local found = {}
  for i, layer in ipairs(layers) do
    found[i] = (layer.weights:select(2, it):select(2, yes) - layer.weights:select(2, it):select(2, no)):tolist()
  end
  return found
end

-- ---- Heads --------------------------------------------------------------------------------------

local heads, by_name = {}, {}
for _, pair in ipairs(PAIRS) do
  local first = preference(pair[1]:format(pair[2]), pair[4], pair[5])
  local second = preference(pair[1]:format(pair[3]), pair[5], pair[4])
  for layer, row in ipairs(first) do
    for head in ipairs(row) do
      local name = layer .. "." .. head
      if not by_name[name] then
        by_name[name] = { layer = layer, head = head, links = {}, mean = 0, clear = 0 }
        table.insert(heads, by_name[name])
      end
      local of, a, b = by_name[name], first[layer][head], second[layer][head]
      table.insert(of.links, { a, b })
      of.mean = of.mean + (a + b) / 2 / #PAIRS
      if math.min(a, b) >= CLEAR then of.clear = of.clear + 1 end
    end
  end
end
table.sort(heads, function(a, b) return a.mean > b.mean end)

print(('How much more weight "it" gives to its noun than to the other one, in %d pairs of sentences:\n'):format(#PAIRS))
print(("head            mean   clear (both at least %.1f)"):format(CLEAR))
for i = 1, 4 do
  local of = heads[i]
  print(("layer %d, head %-2d %4.2f   in %d of %d"):format(of.layer, of.head, of.mean, of.clear, #PAIRS))
end

local best = heads[1]
print(("\nLayer %d, head %d, sentence by sentence:\n"):format(best.layer, best.head))
for i, pair in ipairs(PAIRS) do
  print(("%5.2f %5.2f  %s"):format(best.links[i][1], best.links[i][2], pair[1]:format(pair[2] .. " / " .. pair[3])))
end

-- ---- The map of one sentence --------------------------------------------------------------------

local pair = PAIRS[1]
local text = pair[1]:format(pair[2])
local tokens, layers, hidden = read(text)
local map = layers[best.layer].weights[best.head]
print(("\nIts weights in hundredths, each row a token that reads: %s\n"):format(text))
for query, row in ipairs(map:tolist()) do
  local cells = {}
  for key, weight in ipairs(row) do cells[key] = weight >= 0.005 and ("%4.0f"):format(100 * weight) or "   ·" end
  print(("%-8s%s"):format(tokens[query], table.concat(cells)))
end
if arg[1] then
  local plot = require "heed.plot"
  local written, why
  if arg[1]:find "%.html?$" then
    written, why = plot.attention(bert, text, { file = arg[1], head = { best.layer, best.head } })
  else
    local title = ("layer %d, head %d: %s"):format(best.layer, best.head, text)
    written, why = plot.heatmap(map, { labels = tokens, title = title, file = arg[1] })
  end
  if not written then stop("%s", why) end
end

-- How the weight of "it" on its noun comes about: the head's input is the residual stream before its layer.
local attention = bert.layers[best.layer].attention
local _, cache = bert:run_with_cache(bert.tokenizer:encode(text),
  { names = ("blocks.%d.hook_resid_pre"):format(best.layer - 1) })
local input = cache:get("resid_pre", best.layer)
print(("\nThe weight of \"it\" on \"%s\":\n"):format(pair[4]))
print(attention:explain(input,
  { head = best.head, query = position_of(tokens, "it"), key = position_of(tokens, pair[4]) }))

-- ---- Does it matter? ----------------------------------------------------------------------------

-- The similarity of the last hidden states of "it" and its noun, with this head and without it.
local function similarity(states)
  local it, noun = states[position_of(tokens, "it")], states[position_of(tokens, pair[4])]
  return (it:dot(noun) / (it:dot(it) * noun:dot(noun)):sqrt()):item()
end

local handle = attention:ablate { best.head }
local _, _, ablated = read(text)
handle:remove()
print(("\nSimilarity of \"it\" and \"%s\" after the last layer: %.2f; without this head: %.2f"):format(pair[4],
  similarity(hidden), similarity(ablated)))
