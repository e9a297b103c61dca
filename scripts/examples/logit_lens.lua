-- Shows what a model would say after each of its layers: the residual stream there, read through the last norm and the
-- output layer:
--   build/heed scripts/examples/logit_lens.lua [TEXT]
-- The model (scripts/examples/induction) continues repeated text of dots, digits and letters; no spaces. Source:
-- nostalgebraist, "interpreting GPT: the logit lens" (2020).
require "heed"

local ALPHABET = "^.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" -- ids 1 to 64; ^ begins a text

local function stop(...)
  io.stderr:write("logit_lens: ", string.format(...), "\n")
  os.exit(1)
end

local text = "^" .. (arg[1] or "heed.Lua5.heed.Lua5.heed")
local folder = (arg[0]:match "^(.*/)" or "") .. "induction"
local model = assert(require("heed.models.gpt2").load(folder))
model:eval()
local context = model.config.max_position_embeddings
if #text > context then stop("the text has %d characters; it must have at most %d", #text - 1, context - 1) end

local ids = {}
for i = 1, #text do
  ids[i] = ALPHABET:find(text:sub(i, i), 1, true)
  if not ids[i] or i > 1 and ids[i] == 1 then
    stop("character %d is %q; it must be a dot, a digit or a letter from a to z", i - 1, text:sub(i, i))
  end
end

-- The stream before the first layer and after each layer, and the probabilities [n, vocabulary] that follow from it.
local layers = model.config.num_hidden_layers
local names = { "blocks.0.hook_resid_pre" }
for layer = 1, layers do names[layer + 1] = ("blocks.%d.hook_resid_post"):format(layer - 1) end
local _, cache = model:run_with_cache(ids, { names = names })
local guesses, certain = {}, {}
for i, name in ipairs(names) do
  local probabilities = model.lm_head(model.norm(cache[name])):softmax(-1)
  if probabilities.ndim == 3 then probabilities = probabilities[1] end
  local most, guess = probabilities:max(-1)
  guesses[i], certain[i] = guess:tolist(), most:tolist()
end

local head = { "read  next  embedding" }
for layer = 1, layers do head[layer + 1] = ("layer %d"):format(layer) end
print(table.concat(head, "   "))
for position = 1, #text do
  local cells = {}
  for i = 1, layers + 1 do
    local guess = guesses[i][position]
    cells[i] = ("%s %3.0f %%"):format(ALPHABET:sub(guess, guess), 100 * certain[i][position])
  end
  local following = position < #text and text:sub(position + 1, position + 1) or "?"
  print(("%s     %s     %-9s   %s"):format(text:sub(position, position), following, cells[1],
    table.concat(cells, "    ", 2)))
end
