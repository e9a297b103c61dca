-- Draws the pictures of the pages on examples, maps of attention weights: a row is a query, a column a key; the darker
-- a cell, the larger its weight.
--   build/heed scripts/dev/draw_pictures.lua
-- writes docs/images/induction.svg, and pronoun.svg if the build folder has the model of `make model`.
require "heed"

local CELL, GAP, TOP = 15, 24, 26

-- Writes an SVG file with panels {title, rows of weights, labels} side by side. `left` is the room for labels.
local function draw(path, left, panels)
  local count = #panels[1][3]
  local side = count * CELL
  local width, height = #panels * (left + side + GAP), TOP + side + 10
  local lines = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">'):format(width, height, width,
      height),
    [[<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f; } .label { font-size: 11px; text-anchor: end; }
  .frame { fill: none; stroke: #8c959f; } .cell { fill: #2563a8; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .frame { stroke: #6e7681; } .cell { fill: #5b9be0; } }
</style>]],
  }
  for i, panel in ipairs(panels) do
    local x = left + (i - 1) * (left + side + GAP)
    table.insert(lines, ('<text x="%d" y="%d">%s</text>'):format(x, TOP - 9, panel[1]))
    for query, row in ipairs(panel[2]) do
      local y = TOP + (query - 1) * CELL
      table.insert(lines, ('<text class="label" x="%d" y="%d">%s</text>'):format(x - 5, y + 11, panel[3][query]))
      for key, weight in ipairs(row) do
        if weight >= 0.01 then
          table.insert(lines, ('<rect class="cell" x="%d" y="%d" width="%d" height="%d" opacity="%.2f"><title>%s: %.2f'
            .. '</title></rect>'):format(x + (key - 1) * CELL, y, CELL, CELL, weight ^ 0.6, panel[3][key], weight))
        end
      end
    end
    table.insert(lines, ('<rect class="frame" x="%d" y="%d" width="%d" height="%d"/>'):format(x, TOP, side, side))
  end
  table.insert(lines, "</svg>\n")
  local file = assert(io.open(path, "w"))
  file:write(table.concat(lines, "\n"))
  file:close()
end

-- ---- The two kinds of heads of the induction model ----------------------------------------------

local ALPHABET = "^.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
local text, ids, labels = "^Kw7.hLua5Kw7.hLua5", {}, {}
for i = 1, #text do
  labels[i] = text:sub(i, i)
  ids[i] = ALPHABET:find(labels[i], 1, true)
end
local model = assert(require("heed.models.gpt2").load "scripts/examples/induction")
model:eval()
local _, info = model(ids, { need_weights = { "weights" } })
local function map(layer, head) return info.layers[layer].weights:reshape(-1, #text, #text)[head]:tolist() end
draw("docs/images/induction.svg", 20, {
  { "layer 1, head 3: the character before", map(1, 3), labels },
  { "layer 2, head 2: what followed last time", map(2, 2), labels },
})

-- ---- "it" in two sentences ----------------------------------------------------------------------

local bert = require("heed.models.bert").load "build/models/all-MiniLM-L6-v2"
if not bert then
  io.stderr:write "draw_pictures: there is no model for pronoun.svg; `make model` fetches it\n"
  os.exit(1)
end
local panels = {}
for i, last in ipairs { "hungry", "ripe" } do
  local sentence = ("The cat ate the apple because it was %s."):format(last)
  local tokens = bert.tokenizer:tokenize(sentence)
  table.insert(tokens, 1, "[CLS]")
  table.insert(tokens, "[SEP]")
  local _, found = bert(bert.tokenizer:encode(sentence), { need_weights = { "weights" } })
  panels[i] = { "layer 4, head 2: " .. last, found.layers[4].weights[2]:tolist(), tokens }
end
draw("docs/images/pronoun.svg", 60, panels)
