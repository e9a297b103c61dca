-- Draws the pictures of the pages on attention: the weights that queries give to keys under each option and each mask.
--   build/heed scripts/dev/draw_attention.lua [FOLDER]
-- writes attention.svg and images/attention/*.svg to FOLDER, or docs. A row is a query, a column a key; the stronger
-- the colour of a cell, the larger its weight; keys that a query does not see stay empty. heed computes every weight.
local heed = require "heed"
local picture = dofile "scripts/dev/picture.lua"

local TOKENS, SIZE = 8, 16 -- of all pictures, where they need nothing else

-- ---- Weights ------------------------------------------------------------------------------------

heed.manual_seed(123)
local q, k = heed.randn(TOKENS, SIZE), heed.randn(TOKENS, SIZE)

-- Values that are the unit vectors: the result of attention is then its weights, as rows of numbers.
local function units(n) return heed.eye(n) end

local function weights(options, queries, keys)
  keys = keys or k
  return heed.scaled_dot_product_attention(queries or q, keys, units(keys.shape[1]), options or {}):tolist()
end

-- The weights of a module with one head. The module's parameters are the same for all pictures.
local function weights_of(settings, options, x, name)
  local module = { d_in = SIZE, d_out = SIZE, context_length = TOKENS, dropout = 0, num_heads = 1,
    generator = heed.Generator(5) }
  for key, value in pairs(settings) do module[key] = value end
  local call = { need_weights = true }
  for key, value in pairs(options or {}) do call[key] = value end
  local attention = heed.nn.MultiHeadAttention(module)
  local _, info = attention(x, call)
  return info[name or "weights"][1]:tolist()
end

-- The weights of each head: queries [heads, L, d], keys [key heads, S, d].
local function heads_of(options, queries, keys)
  local values = units(keys.shape[2]):expand { keys.shape[1], keys.shape[2], keys.shape[2] }
  return heed.scaled_dot_product_attention(queries, keys, values, options):tolist()
end

-- A column beside the keys with what `rows` lack to 1: the weight that a sink takes.
local function missing(rows)
  local column = {}
  for i, row in ipairs(rows) do
    local sum = 0
    for _, weight in ipairs(row) do sum = sum + weight end
    column[i] = { math.max(1 - sum, 0) }
  end
  return column
end

-- ---- Drawing ------------------------------------------------------------------------------------

local GAP, LEVELS = 16, 10

-- The cells of rows of weights as one path for each level of darkness.
local function cells(image, rows, left, top, cell, class)
  local paths = {}
  for i, row in ipairs(rows) do
    for j, weight in ipairs(row) do
      if weight > 0 then
        local level = math.max(1, math.min(LEVELS, math.floor(LEVELS * weight ^ 0.6 + 0.5)))
        paths[level] = (paths[level] or "")
          .. ("M%d %dh%dv%dh-%dz"):format(left + (j - 1) * cell, top + (i - 1) * cell, cell, cell, cell)
      end
    end
  end
  for level = 1, LEVELS do
    if paths[level] then
      image:add('<path class="%s" opacity="%s" d="%s"/>', class, ("%.1f"):format(level / LEVELS), paths[level])
    end
  end
end

-- Panels side by side. A panel is {title, rows}, with `extra`, rows of a column on the right in another colour, and
-- `class`, the colour of each row or of all.
local function draw(panels, settings)
  settings = settings or {}
  local cell = settings.cell or 14
  local image, left, height = picture.new(), GAP, 0
  local top = panels[1][1] and 30 or GAP
  for _, panel in ipairs(panels) do
    local rows = panel[2]
    local width = #rows[1] * cell
    if type(panel.class) == "table" then
      for i, row in ipairs(rows) do cells(image, { row }, left, top + (i - 1) * cell, cell, panel.class[i]) end
    else
      cells(image, rows, left, top, cell, panel.class or "a")
    end
    image:add('<path class="frame" d="M%d %dh%dv%dh-%dz"/>', left, top, width, #rows * cell, width)
    local right = left + width
    if panel.extra then
      cells(image, panel.extra, right + 4, top, cell, "b")
      image:add('<path class="frame" d="M%d %dh%dv%dh-%dz"/>', right + 4, top, cell, #rows * cell, cell)
      right = right + 4 + cell
    end
    if panel[1] then image:text(left, top - 9, panel[1]) end
    left = math.max(right, left + 6.2 * #(panel[1] or "")) + GAP
    left, height = math.floor(left), math.max(height, top + #rows * cell)
  end
  if settings.legend ~= false then
    height = height + 18
    local legend = settings.legend or "row: query · column: key · stronger: more weight"
    image:text(GAP, height, legend, "muted")
    left = math.max(left, 2 * GAP + math.floor(5.8 * #legend))
  end
  return image:finish(left, height + GAP - 4)
end

-- ---- Pictures -----------------------------------------------------------------------------------

local files = {} -- text by name
local numbers = heed.range(1, TOKENS)
local distance = (numbers:unsqueeze(2) - numbers):abs()
local document = heed.tensor { 1, 1, 1, 2, 2, 2, 2, 2 } -- of each token
local documents = document:eq(document:unsqueeze(2))

do
  local x = heed.randn(1, TOKENS, SIZE)
  local prefix = numbers:le(numbers:clamp(3):unsqueeze(2))
  local function of(settings, options) return weights_of(settings, options, x[1]) end
  files["attention.svg"] = draw({
    { "causal", of {} },
    { "bidirectional", of { causal = false } },
    { "window of 3", of { window = { left = 2 } } },
    { "prefix mask", of({ causal = false }, { attn_mask = prefix }) },
    { "two documents", of({}, { attn_mask = documents }) },
    { "sharper scale", of { scale = 1 } },
  }, { legend = false })
end

local function add(name, ...) files["images/attention/" .. name .. ".svg"] = draw(...) end

-- Which keys a query sees.
add("causal", { { "without an option", weights() }, { "is_causal", weights { is_causal = true } } })
add("window", {
  { "left = 2, right = 1", weights { window = { left = 2, right = 1 } } },
  { "left = 2, is_causal", weights { window = { left = 2 }, is_causal = true } },
})
do
  local function items(options)
    options.kv_lengths = { 8, 5 }
    local function both(x) return heed.stack { x, x }:unsqueeze(2) end
    return heed.scaled_dot_product_attention(both(q), both(k), both(units(TOKENS)), options):tolist()
  end
  local plain, causal = items {}, items { is_causal = true }
  add("lengths", {
    { "8 of 8 keys", plain[1][1] }, { "5 of 8 keys", plain[2][1] }, { "5 of 8, is_causal", causal[2][1] },
  })
end
add("past", { {
  "3 new queries after 5 past keys, is_causal",
  heed.scaled_dot_product_attention(q:narrow(1, 6, 3), k:narrow(1, 6, 3), units(TOKENS):narrow(1, 6, 3), {
    past_key = k:narrow(1, 1, 5), past_value = units(TOKENS):narrow(1, 1, 5), is_causal = true,
  }):tolist(),
} })
add("attn_mask", {
  { "bool, true: visible", weights { attn_mask = documents } },
  { "float32, added: -distance", weights { attn_mask = -distance } },
})
do
  local rows = heed.varlen_attention(q:unsqueeze(2), k:unsqueeze(2), units(TOKENS):unsqueeze(2), { lengths = { 3, 5 } })
  local causal = heed.varlen_attention(q:unsqueeze(2), k:unsqueeze(2), units(TOKENS):unsqueeze(2), {
    lengths = { 3, 5 }, is_causal = true,
  })
  add("packed", {
    { "lengths { 3, 5 }", rows:squeeze(2):tolist() }, { "is_causal", causal:squeeze(2):tolist() },
  })
end
add("cross", { { "4 queries of one text, 8 keys of another", weights({}, q:narrow(1, 1, 4)) } })

-- How scores become weights.
add("scale", {
  { "scale = 0.05", weights { scale = 0.05 } }, { "1/√d, the default", weights {} },
  { "scale = 1", weights { scale = 1 } },
})
add("softcap", {
  { "scale = 1", weights { scale = 1 } }, { "and softcap = 1.5", weights { scale = 1, softcap = 1.5 } },
})
do
  local slopes = heed.alibi_slopes(8)
  local equal = heed.zeros(8, TOKENS, SIZE) -- equal scores: the bias alone
  local heads, panels = heads_of({ alibi_slopes = slopes, is_causal = true }, equal, equal), {}
  for i = 1, 4 do panels[i] = { ("slope 1/%d"):format(1 / slopes[i]), heads[i] } end
  add("alibi", panels, { legend = "heads 1 to 4 of 8 with the slopes of heed.alibi_slopes(8); all scores are equal" })
end
do
  local sinks = weights({ sinks = heed.tensor { 1.5 }, is_causal = true })
  add("sinks", {
    { "is_causal", weights { is_causal = true } }, { "and sinks", sinks, extra = missing(sinks) },
  }, { legend = "row: query · column: key · orange: what the sink takes" })
end
do
  local queries = heed.stack { q, heed.randn(TOKENS, SIZE), heed.randn(TOKENS, SIZE), heed.randn(TOKENS, SIZE) }
  local keys = heed.stack { k, heed.randn(TOKENS, SIZE) }
  local panels = {}
  for i, rows in ipairs(heads_of({ is_causal = true }, queries, keys)) do
    panels[i] = { ("query head %d"):format(i), rows, class = i > 2 and "d" or "a" }
  end
  add("gqa", panels, { legend = "blue: both use key head 1 · green: both use key head 2" })
end
add("dropout", {
  { "dropout_p = 0", weights { is_causal = true } },
  { "dropout_p = 0.4", weights { is_causal = true, dropout_p = 0.4, generator = heed.Generator(7) } },
}, { legend = "empty: dropped · the others grow by 1 / (1 - p)" })
do
  local same = heed.randn(1, SIZE):expand { TOKENS, SIZE } -- one token, eight times
  add("rope", {
    { "one token 8 times", weights_of({}, {}, same) }, { "with rope", weights_of({ rope = {} }, {}, same) },
  })
  local x = heed.randn(TOKENS, SIZE)
  x[3] = x[3] * 6
  add("qk_norm", {
    { "token 3 is 6 times as long", weights_of({}, {}, x) }, { "with qk_norm", weights_of({ qk_norm = true }, {}, x) },
  })
end

-- Linear attention: what each token takes of each value, and with positive queries and keys none of it is negative.
do
  local queries, keys = (q / 2):exp():view(1, 1, TOKENS, SIZE), (k / 2):exp():view(1, 1, TOKENS, SIZE)
  local values = units(TOKENS):view(1, 1, TOKENS, TOKENS)
  local function shares(options)
    local taken = heed.linear_attention(queries, keys, values, options)[1][1]
    return (taken / taken:sum(-1, true)):tolist()
  end
  add("linear", {
    { "linear", shares {} }, { "gated, decay -0.5", shares { decay = heed.full({ 1, 1, TOKENS }, -0.5) } },
  }, { legend = "row: token · column: value · stronger: a larger share" })
end

-- Parts of the keys, and sequences on several machines.
do
  local function part(first, size)
    local keys, values = k:narrow(1, first, size), units(TOKENS):narrow(1, first, size)
    return heed.attention_partial(q, keys, values, { is_causal = true, offset = 1 - first })
  end
  local left, left_statistics = part(1, 5)
  local right, right_statistics = part(6, 3)
  local merged = heed.attention_merge({ left, right }, { left_statistics, right_statistics })
  add("parts", {
    { "keys 1 to 5", left:tolist() }, { "keys 6 to 8", right:tolist() }, { "merged", merged:tolist() },
  })
  local division, ranks = require "heed.parallel.division", 2
  local colours, tokens = {}, 12
  for rank = 1, ranks do
    for _, segment in ipairs(division.segments(tokens, ranks, rank)) do
      for i = segment.first + 1, segment.first + segment.size do colours[i] = rank == 1 and "a" or "b" end
    end
  end
  local x = heed.zeros(tokens, SIZE)
  local causal = { is_causal = true }
  add("ring", { { "12 tokens, 2 ranks", weights(causal, x, x), class = colours } },
    { legend = "blue: queries of rank 1 · orange: of rank 2" })
end

-- ---- Masks as values ----------------------------------------------------------------------------

local mask = heed.mask
local function add_mask(name, value)
  add("mask-" .. name, { { nil, weights { attn_mask = value } } }, { legend = false, cell = 11 })
end

add_mask("causal", mask.causal())
add_mask("window", mask.window(2, 1))
add_mask("documents", mask.documents { 3, 5 })
add_mask("documents-causal", mask.documents { 3, 5 }:both(mask.causal()))
add_mask("prefix", mask.prefix(3))
add_mask("tree", mask.tree { 0, 1, 1, 2, 2, 3, 4, 6 })
add_mask("intervals", mask.intervals {
  { { 1, 2 }, { 7, 8 } }, { { 1, 2 }, { 7, 8 } }, { { 1, 4 }, { 1, 0 } }, { { 1, 4 }, { 1, 0 } },
  { { 3, 6 }, { 1, 0 } }, { { 3, 6 }, { 1, 0 } }, { { 1, 2 }, { 5, 8 } }, { { 1, 2 }, { 5, 8 } },
})
do
  local blocks = mask.documents({ 300, 84, 128 }):blocks()
  local share = (blocks:float() / blocks:max():item()):tolist()
  add("blocks", { { nil, share } }, { cell = 22, legend = "each cell: 128 queries and 128 keys" })
end

local folder = arg[1] or "docs"
for name, text in pairs(files) do picture.write(folder .. "/" .. name, text) end
