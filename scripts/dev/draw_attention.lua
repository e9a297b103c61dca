-- Draws docs/attention.svg: the weights that one head gives to eight tokens, under several kinds of attention. A row
-- is a query, a column a key; the darker a cell, the larger its weight, and keys that a query does not see stay empty.
--   build/heed scripts/dev/draw_attention.lua > docs/attention.svg
local heed = require "heed"

local tokens, size, cell, gap, top = 8, 16, 14, 20, 24
heed.manual_seed(123)
local x = heed.randn(1, tokens, size)

-- The attention weights of one head as rows of numbers. The module's weights are the same for all panels.
local function weights_of(settings, options)
  local module = { d_in = size, d_out = size, context_length = tokens, dropout = 0, num_heads = 1,
    generator = heed.Generator(5) }
  for name, value in pairs(settings) do module[name] = value end
  options = options or {}
  options.need_weights = true
  local _, info = heed.nn.MultiHeadAttention(module)(x, options)
  return info.weights[1][1]:tolist()
end

local prefix = heed.range(1, tokens):le(heed.range(1, tokens):clamp(3):unsqueeze(2))
local document = heed.tensor { 1, 1, 1, 2, 2, 2, 2, 2 } -- of each token
local documents = document:eq(document:unsqueeze(2))
local panels = {
  { "causal", weights_of {} },
  { "bidirectional", weights_of { causal = false } },
  { "window of 3", weights_of { window = { left = 2 } } },
  { "prefix mask", weights_of({ causal = false }, { attn_mask = prefix }) },
  { "two documents", weights_of({}, { attn_mask = documents }) },
  { "sharper scale", weights_of { scale = 1 } },
}

local panel_width = tokens * cell + gap
local width, height = #panels * panel_width + gap, top + tokens * cell + 10
print(('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">')
  :format(width, height, width, height))
print [[<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .frame { fill: none; stroke: #8c959f; } .cell { fill: #2563a8; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .frame { stroke: #6e7681; } .cell { fill: #5b9be0; } }
</style>]]
for i, panel in ipairs(panels) do
  local left = gap + (i - 1) * panel_width
  print(('<text x="%d" y="%d">%s</text>'):format(left, top - 8, panel[1]))
  for query, row in ipairs(panel[2]) do
    for key, weight in ipairs(row) do
      if weight > 0 then
        print(('<rect class="cell" x="%d" y="%d" width="%d" height="%d" opacity="%.2f"/>')
          :format(left + (key - 1) * cell, top + (query - 1) * cell, cell, cell, weight ^ 0.6))
      end
    end
  end
  print(('<rect class="frame" x="%d" y="%d" width="%d" height="%d"/>'):format(left, top, tokens * cell, tokens * cell))
end
print "</svg>"
