-- Draws the pictures of the pages on examples:
--   build/heed scripts/dev/draw_pictures.lua
-- writes induction.svg, surgery.svg and logit_lens.svg to docs/images, and pronoun.svg if the build folder has the
-- model of `make model`.
local heed = require "heed"
local plot = require "heed.plot"

local function draw(name, maps, options)
  options.file = ("docs/images/%s.svg"):format(name)
  options.range = { 0, 1 }
  assert(plot.heatmap(maps, options))
end

-- ---- The induction model ------------------------------------------------------------------------

local ALPHABET = "^.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
local text, ids, labels = "^Kw7.hLua5Kw7.hLua5", {}, {}
for i = 1, #text do
  labels[i] = text:sub(i, i)
  ids[i] = ALPHABET:find(labels[i], 1, true)
end
local model = assert(require("heed.models.gpt2").load "scripts/examples/induction")
model:eval()

local _, cache = model:run_with_cache(ids)
local function map(of, layer, head) return of:get("pattern", layer)[head] end
draw("induction", heed.stack { map(cache, 1, 4), map(cache, 2, 2) }, {
  labels = labels, names = { "layer 1, head 4: the character before", "layer 2, head 2: what followed last time" },
})

-- The same head of layer 2, when that of layer 1 is ablated.
local handle = model.layers[1].attention:ablate { 4 }
local _, ablated = model:run_with_cache(ids)
handle:remove()
draw("surgery", heed.stack { map(cache, 2, 2), map(ablated, 2, 2) }, {
  labels = labels, names = { "layer 2, head 2", "the same, head 4 of layer 1 ablated" },
})

-- The probability of the character that follows, read after each layer.
local following = heed.tensor(ids, { dtype = "int64" }):narrow(1, 2, #text - 1):unsqueeze(2)
local rows, read = {}, {}
for i, stream in ipairs { cache:get("resid_pre", 1), cache:get("resid_post", 1), cache:get("resid_post", 2) } do
  local probabilities = model.lm_head(model.norm(stream)):softmax(-1):narrow(1, 1, #text - 1)
  rows[i] = probabilities:gather(2, following):squeeze(2)
end
for i = 1, #text - 1 do read[i] = labels[i] end
draw("logit_lens", heed.stack(rows), {
  row_labels = { "embedding", "layer 1", "layer 2" }, column_labels = read,
  title = "Probability of the character that follows",
})

-- ---- "it" in two sentences ----------------------------------------------------------------------

local bert = require("heed.models.bert").load "build/models/all-MiniLM-L6-v2"
if not bert then
  io.stderr:write "draw_pictures: there is no model for pronoun.svg; `make model` fetches it\n"
  os.exit(1)
end
local maps, tokens = {}, nil
for i, last in ipairs { "hungry", "ripe" } do
  local sentence = ("The cat ate the apple because it was %s."):format(last)
  tokens = bert.tokenizer:tokenize(sentence)
  table.insert(tokens, 1, "[CLS]")
  table.insert(tokens, "[SEP]")
  local _, found = bert(bert.tokenizer:encode(sentence), { need_weights = { "weights" } })
  maps[i] = found.layers[4].weights[2]
end
tokens[#tokens - 2] = "…" -- the word that differs
draw("pronoun", heed.stack(maps), { labels = tokens, names = { "… was hungry", "… was ripe" } })
