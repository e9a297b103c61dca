-- Draws the pictures of docs/plot.md:
--   build/heed scripts/dev/draw_plots.lua
local heed = require "heed"
local plot = require "heed.plot"

heed.manual_seed(123)
local tokens = { "the", "cat", "sat", "because", "it", "slept" }
local scores = heed.randn(6, 6):masked_fill(heed.ones(6, 6):triu(1):bool(), -math.huge)
assert(plot.heatmap(scores:softmax(2), { file = "docs/images/heatmap.svg", labels = tokens, title = "Weights of a head",
  values = true }))
assert(plot.line({ { 3, 2.1, 1.6, 1.3, 1.2 }, { 3, 2.6, 2.2, 2, 1.9 } }, { file = "docs/images/line.svg",
  names = { "with attention", "without" }, title = "Loss by epoch", height = 260 }))
