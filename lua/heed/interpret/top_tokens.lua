--- The likeliest tokens of each layer, as logit_lens gives them with the option top: a printable table.

local E = require "heed.nn.entries"
local core = require "heed.core"

local TopTokens = { __name = "heed.TopTokens" }

local function text_of(id, decode)
  local text = decode and tostring(decode(id)) or ("%d"):format(id)
  return (text:gsub("[%c]", " "))
end

--- The length of UTF-8 text in characters.
local function width(text) return #text:gsub("[\128-\191]", "") end

--- One line per layer, one column per position, of the first batch item: the likeliest token and its share in percent.
function TopTokens.__tostring(self)
  local ids, shares = self.ids, self.probabilities
  while ids.ndim > 3 do ids, shares = ids:select(2, 1), shares:select(2, 1) end
  ids, shares = ids:tolist(), shares:tolist()
  local cells, widths = { { "layer" } }, { 5 }
  for p, position in ipairs(self.positions) do cells[1][p + 1] = ("position %d"):format(position) end
  for i, row in ipairs(ids) do
    cells[i + 1] = { i == 1 and "embed" or ("%d"):format(i - 1) }
    for p, best in ipairs(row) do
      cells[i + 1][p + 1] = ("%s %.0f%%"):format(text_of(best[1], self.decode), 100 * shares[i][p][1])
    end
  end
  for _, row in ipairs(cells) do
    for p, cell in ipairs(row) do widths[p] = math.max(widths[p] or 0, width(cell)) end
  end
  local lines = {}
  for i, row in ipairs(cells) do
    for p, cell in ipairs(row) do row[p] = cell .. (" "):rep(widths[p] - width(cell)) end
    lines[i] = table.concat(row, "  "):gsub(" +$", "")
  end
  return table.concat(lines, "\n")
end

--- {ids =, probabilities =} [layers + 1, .., positions, k] of x [layers + 1, .., positions, d], layer by layer, so that
--- the logits of one are in memory at a time.
return function(x, logits, positions, k, decode)
  local ids, shares = {}, {}
  for i = 1, x.shape[1] do
    E.check_cancel "logit_lens"
    local y = logits(x:select(1, i))
    local size = y.shape[y.ndim]
    if k > size then E.reject("logit_lens", "top", k, "at most the number of tokens, %d", size) end
    shares[i], ids[i] = y:softmax(-1):topk(k, -1)
  end
  local found = { ids = core.stack(ids), probabilities = core.stack(shares), positions = positions, decode = decode }
  return setmetatable(found, TopTokens)
end
