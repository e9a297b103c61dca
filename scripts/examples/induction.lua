-- Finds induction heads in a small model, and shows by ablation that they do the copying:
--   build/heed scripts/examples/induction.lua [SEED]
-- The model (scripts/examples/induction, made by scripts/dev/make_toys.lua) continues repeated text. An induction
-- head lets a character attend to the one that followed its last occurrence: "A B … A" → "B". It needs a head in an
-- earlier layer that tells each character its predecessor. Heads are written LAYER.HEAD, counted from 1.
-- Source: Olsson et al., "In-context Learning and Induction Heads" (2022, arXiv:2209.11895).
local heed = require "heed"
local interpret = require "heed.interpret"
local F = heed.nn.functional

local TEXTS, PERIOD = 64, 40 -- texts of so many characters, each written twice
local HIGH = 0.3 -- the score from which a head counts as one of its kind
local DRAWS = 10 -- sets of other heads to compare with

local seed = tonumber(arg[1] or 1)
if not seed or seed % 1 ~= 0 or seed < 0 then
  io.stderr:write "induction: the seed must be an integer from 0 up\n"
  os.exit(1)
end

-- ---- The model and its task ---------------------------------------------------------------------

local folder = (arg[0]:match "^(.*/)" or "") .. "induction"
local model = assert(require("heed.models.gpt2").load(folder))
model:eval()
local layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads

-- Ids [texts, 1 + 2 * period]: the beginning (id 1), then random characters, none of them twice, then the same again.
local generator = heed.Generator(seed)
local texts = {}
for i = 1, TEXTS do
  texts[i] = heed.randperm(model.config.vocab_size - 1, { generator = generator }):narrow(1, 1, PERIOD) + 1
end
local text = heed.stack(texts)
local ids = heed.cat({ heed.ones(TEXTS, 1):long(), text, text }, 2)

-- How much of the second copy is predicted, and the loss there. Its first character cannot be known.
local function copying(logits)
  logits = logits:narrow(2, PERIOD + 2, PERIOD - 1):flatten(1, 2)
  local wanted = text:narrow(2, 2, PERIOD - 1):flatten()
  return logits:argmax(-1):eq(wanted):float():mean():item(), F.cross_entropy(logits, wanted):item()
end

-- ---- Scores -------------------------------------------------------------------------------------

local logits, info = model(ids, { need_weights = { "weights" } })
local kinds = { { name = "previous token" }, { name = "induction" } }
for _, kind in ipairs(kinds) do kind.scores, kind.found = {}, {} end
for layer = 1, layers do
  local weights = info.layers[layer].weights -- [texts, heads, n, n]
  kinds[1].scores[layer] = interpret.previous_token_score(weights):mean(1)
  kinds[2].scores[layer] = interpret.induction_score(weights, { period = PERIOD }):mean(1)
end

print(("%d texts of %d random characters, each written twice\n"):format(TEXTS, PERIOD))
for _, kind in ipairs(kinds) do
  print(("%s score of heads 1 to %d"):format(kind.name, heads))
  for layer = 1, layers do
    local cells = {}
    for head, score in ipairs(kind.scores[layer]:tolist()) do
      local is_high = score >= HIGH
      if is_high then table.insert(kind.found, { layer, head }) end
      cells[head] = ("%6.2f%s"):format(score, is_high and "*" or " ")
    end
    print(("  layer %d %s"):format(layer, table.concat(cells)))
  end
end

-- ---- Ablation -----------------------------------------------------------------------------------

-- Copying without these heads, {{layer, head}…}.
local function without(list)
  local handles = {}
  for i, each in ipairs(list) do handles[i] = model.layers[each[1]].attention:ablate { each[2] } end
  local accuracy, loss = copying(model(ids))
  for _, handle in ipairs(handles) do handle:remove() end
  return accuracy, loss
end

local function names(list)
  local words = {}
  for i, each in ipairs(list) do words[i] = each[1] .. "." .. each[2] end
  return table.concat(words, " ")
end

print(("\n%-42s copied   loss"):format "without")
local function row(name, accuracy, loss) print(("%-42s %5.1f %%  %5.2f"):format(name, 100 * accuracy, loss)) end

row("nothing", copying(logits))
local special = {}
for _, kind in ipairs(kinds) do
  if #kind.found > 0 then row(("%s heads: %s"):format(kind.name, names(kind.found)), without(kind.found)) end
  for _, each in ipairs(kind.found) do special[names { each }] = true end
end

local others = {}
for layer = 1, layers do
  for head = 1, heads do
    if not special[layer .. "." .. head] then others[#others + 1] = { layer, head } end
  end
end
local count, sums = math.min(#kinds[2].found, #others), { 0, 0 }
for _ = 1, DRAWS do
  local drawn = {}
  for i, k in ipairs(heed.randperm(#others, { generator = generator }):tolist()) do
    if i <= count then drawn[i] = others[k] end
  end
  local accuracy, loss = without(drawn)
  sums[1], sums[2] = sums[1] + accuracy, sums[2] + loss
end
row(("%d other heads, mean of %d draws"):format(count, DRAWS), sums[1] / DRAWS, sums[2] / DRAWS)
row("all other heads: " .. names(others), without(others))
