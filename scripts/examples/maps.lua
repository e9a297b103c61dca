-- Draws what every head of a small model attends to while it reads a text:
--   build/heed scripts/examples/maps.lua [TEXT]
-- The model (scripts/examples/induction) continues repeated text of dots, digits and letters; no spaces. Head 4 of
-- layer 1 attends to the character before, the heads of layer 2 to the one that followed the last occurrence of the
-- same character: scripts/examples/induction.lua measures both.
local heed = require "heed"
local plot = require "heed.plot"

local ALPHABET = "^.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" -- ids 1 to 64; ^ begins a text

local function stop(...)
  io.stderr:write("maps: ", string.format(...), "\n")
  os.exit(1)
end

local text = "^" .. (arg[1] or "heed.Lua5.heed.Lua5")
local folder = (arg[0]:match "^(.*/)" or "") .. "induction"
local model = assert(heed.models.load(folder))
local context = model.config.max_position_embeddings
if #text > context then stop("the text has %d characters; it must have at most %d", #text - 1, context - 1) end

local ids, labels = {}, {}
for i = 1, #text do
  labels[i] = text:sub(i, i)
  ids[i] = ALPHABET:find(labels[i], 1, true)
  if not ids[i] or i > 1 and ids[i] == 1 then
    stop("character %d is %q; it must be a dot, a digit or a letter from a to z", i - 1, labels[i])
  end
end

local _, info = model({ ids }, { need_weights = { "weights" } })
local layers = {}
for i, layer in ipairs(info.layers) do layers[i] = layer.weights[1] end

plot.heatmap(layers[1][4], { labels = labels, title = "Layer 1, head 4: the character before" })
plot.heatmap(layers[2][1], { labels = labels, title = "Layer 2, head 1: what followed the last time" })
plot.attention(layers, labels, { title = text })
