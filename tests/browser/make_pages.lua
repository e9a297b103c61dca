-- Writes the pages that attention.js tests into a folder, and beside each what it must show: make_pages.lua FOLDER
local heed = require "heed"
local plot = require "heed.plot"
local colours = require "heed.plot.colours"

local folder = arg[1]
local viridis = colours.map "viridis"

local function json(value)
  if type(value) == "table" then
    local parts = {}
    if #value > 0 then
      for i, x in ipairs(value) do parts[i] = json(x) end
      return "[" .. table.concat(parts, ",") .. "]"
    end
    for name, x in pairs(value) do parts[#parts + 1] = ('"%s":%s'):format(name, json(x)) end
    return "{" .. table.concat(parts, ",") .. "}"
  end
  return type(value) == "string" and ('"%s"'):format(value:gsub('[\\"]', "\\%0")) or tostring(value)
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

-- A page, and the weight and colour of the strongest cell of some rows: {layer, head, query, key, weight, r, g, b}.
local function make(name, layers, labels, options)
  options.file = folder .. "/" .. name .. ".html"
  assert(plot.attention(layers, labels, options))
  local cells = {}
  for i, layer in ipairs(layers) do
    for h = 1, layer.shape[1], 5 do
      for q = 1, layer.shape[2], math.max(1, math.floor(layer.shape[2] / 3)) do
        local row = layer:select(1, h):select(1, q):tolist()
        local best = 1
        for k, weight in ipairs(row) do
          if weight > row[best] then best = k end
        end
        local r, g, b = viridis(math.floor(255 * math.sqrt(row[best]) + 0.5) / 255)
        cells[#cells + 1] = { i, h, q, best, row[best], r, g, b }
      end
    end
  end
  write(folder .. "/" .. name .. ".json", json { cells = cells, maps = #layers * layers[1].shape[1] })
end

heed.manual_seed(1)

local function causal(heads, n)
  return heed.randn(heads, n, n):mul(2):masked_fill(heed.ones(n, n):triu(1):eq(1), -math.huge):softmax(-1)
end

make("small", { causal(3, 6), causal(3, 6) }, { "</script><b>bold</b>", '"&\'', "", "##ing", "\215\169\215\156",
  ("long"):rep(60) }, { title = "<i>Small</i>" })
local labels, layers = {}, {}
for i = 1, 512 do labels[i] = "token" .. i end
for i = 1, 12 do layers[i] = causal(12, 512) end
make("large", layers, labels, { title = "Large" })
make("cross", { heed.randn(2, 3, 5):softmax(-1) }, { queries = { "q1", "q2", "q3" },
  keys = { "k1", "k2", "k3", "k4", "k5" } }, { head = { 1, 2 } })
