-- Draws the charts of the pages on speed from the tables of these pages, which have every number.
--   lua5.4 scripts/dev/draw_performance.lua [FOLDER]
-- writes images/performance/*.svg to FOLDER, or docs, and prints the table with which docs/performance.md begins.
local picture = dofile "scripts/dev/picture.lua"

-- ---- Tables -------------------------------------------------------------------------------------

local function trim(text) return (text:gsub("^%s+", ""):gsub("%s+$", ""):gsub('[`"]', "")) end

-- The rows of a page's first table with the columns `head` and `column`, of which `head` is the first, each a list of
-- texts. The first row is the names of the columns.
local function rows_of(path, head, column)
  local file = assert(io.open(path))
  local rows
  for line in file:lines() do
    local cells = {}
    if line:find "^|" then
      for cell in line:sub(2):gmatch "([^|]*)|" do cells[#cells + 1] = trim(cell) end
    end
    if not rows then
      local names = "|" .. table.concat(cells, "|") .. "|"
      if cells[1] == head and names:find("|" .. column .. "|", 1, true) then rows = { cells } end
    elseif #cells == 0 then
      break
    elseif not cells[1]:find "^:?%-" then
      rows[#rows + 1] = cells
    end
  end
  file:close()
  return assert(rows, ("%s has no table with '%s' and '%s'"):format(path, head, column))
end

-- The cell of a row, by their names.
local function cell(rows, row, column)
  for _, cells in ipairs(rows) do
    for i, name in ipairs(rows[1]) do
      if cells[1] == row and name == column then return cells[i] end
    end
  end
  error(("there is no '%s' of '%s'"):format(column, row))
end

-- What the other library's time is, divided by heed's: the number in "6.96 ms (2.51×)".
local function times(text) return tonumber(text:match "%(([%d.]+)×%)") end

-- ---- Drawing ------------------------------------------------------------------------------------

local BAR, SPACE, LEFT, LENGTH, RIGHT = 13, 10, 16, 310, 100
local CLASSES = { "a", "b", "d", "e", "c" } -- of the first, second … bar of each group

-- Groups of horizontal bars. A group is {label, values…}, a value {number, text} or false. Bars longer than `most` are
-- cut, with a gap near their end; their text has the number.
local function draw(title, names, groups, most)
  local image, x, y = picture.new(), LEFT, 46
  image:text(LEFT, 24, title)
  for i, name in ipairs(names) do
    local width = 28 + math.floor(6.3 * #name)
    if x + width > LEFT + LENGTH + RIGHT then x, y = LEFT, y + 17 end
    image:add('<rect class="%s" x="%d" y="%d" width="11" height="11"/>', CLASSES[i], x, y - 10)
    image:text(x + 16, y, name, "muted")
    x = x + width
  end
  y = y + 16
  for _, group in ipairs(groups) do
    image:text(LEFT, y + 11, group[1])
    y = y + 17
    for i = 2, #group do
      local value = group[i]
      if value then
        local width = math.floor(math.min(value[1] / most, 1) * LENGTH + 0.5)
        image:add('<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>', CLASSES[i - 1], LEFT, y, width, BAR - 2)
        if value[1] > most then
          image:add('<path class="page" d="M%d %dh6l-6 %dh-6z"/>', LEFT + width - 18, y - 1, BAR)
        end
        image:text(LEFT + width + 6, y + 10, value[2], "muted")
        y = y + BAR
      end
    end
    y = y + SPACE
  end
  return image:finish(LEFT + LENGTH + RIGHT, y + 4)
end

-- heed's time is 1, the others' are multiples of it.
local function compare(title, rows, list, most)
  local columns = { "PyTorch fused", "ONNX Runtime", "ggml" }
  local groups = {}
  for i, name in ipairs(list) do
    local group = { name, { 1, cell(rows, name, "heed") } }
    for _, column in ipairs(columns) do
      local factor = times(cell(rows, name, column))
      group[#group + 1] = factor and { factor, ("%s×"):format(cell(rows, name, column):match "%(([%d.]+)×") }
    end
    groups[i] = group
  end
  return draw(title, { "heed", "PyTorch", "ONNX Runtime", "ggml" }, groups, most)
end

-- ---- Charts -------------------------------------------------------------------------------------

local files = {}
local speed, precision = "docs/performance.md", "docs/precision.md"

do
  local rows = rows_of(speed, "1 thread", "ggml")
  files.attention = compare("Attention: time beside heed's, shorter is faster", rows, {
    "causal, 128 tokens", "causal, 512 tokens", "causal, 2048 tokens", "causal, 8192 tokens", "dense, 2048 tokens",
    "dense, 2048 tokens, boolean mask", "decode, 4096 keys, warm", "decode, 32768 keys, warm",
    "MultiHeadAttention 1024 × 768, 12 heads",
  }, 3.2)
  files.operations = compare("Operations: time beside heed's, shorter is faster", rows, {
    "matmul 1024 × 1024 × 1024", "linear 1024 × 768 → 768", "softmax", "layer_norm", "rms_norm", "gelu", "silu",
    "sum of the rows",
  }, 5)
end

do
  local rows = rows_of(speed, "model", "decoded, tokens/s")
  local bars = { highest = 2, high = 3, medium = 4, ["llama.cpp"] = 5 } -- where each is in a group
  local names = { "heed, highest", "heed, high", "heed, medium", "llama.cpp" }
  local function chart(column, title, most)
    local groups = {}
    for i = 2, #rows do
      local cells = rows[i]
      if cells[1] ~= "" then groups[#groups + 1] = { cells[1]:gsub(" %(.*", ""), false, false, false, false } end
      groups[#groups][bars[cells[2]]] = { tonumber(cells[column]), cells[column] .. " tokens/s" }
    end
    return draw(title, names, groups, most)
  end
  files["gguf-read"] = chart(3, "Reading a prompt of 512 tokens: longer is faster", 1950)
  files["gguf-written"] = chart(4, "Writing token by token: longer is faster", 90)
end

do
  local rows, groups = rows_of(speed, "1 thread", "the others, divided by it"), {}
  local labels = { "a batch", "PyTorch, a batch", "PyTorch, FlexAttention" }
  for i, name in ipairs {
    "32 documents of 128, causal: lengths", "16 documents of 256, causal: lengths",
    "window of 128, 8192 tokens: window",
  } do
    local others = cell(rows, name, "the others, divided by it")
    local group = { name:match "^(.-)[,:]", { 1, cell(rows, name, "heed"):match "^[^,]+" } }
    for _, label in ipairs(labels) do
      local factor = (" " .. others):match("[; ]" .. label .. " ([%d.]+)×")
      group[#group + 1] = factor and { tonumber(factor), factor .. "×" } or false
    end
    groups[i] = group
  end
  files.sequences = draw("Sequences: time beside heed's, shorter is faster",
    { "heed", "heed, a batch", "PyTorch, a batch", "PyTorch, FlexAttention" }, groups, 5.5)
end

do
  local rows, groups = rows_of(precision, "linear", "float32"), {}
  for i, name in ipairs { "512 rows, 4096 × 4096", "64 rows, 4096 × 4096", "16 rows, 4096 × 4096" } do
    local group = { name, { 1, cell(rows, name, "float32") } }
    for _, column in ipairs { "medium float32", "bfloat16", "int8 with AMX", "int8 with VNNI" } do
      local text = cell(rows, name, column)
      group[#group + 1] = { 1 / times(text), text }
    end
    groups[i] = group
  end
  files.precision = draw("Linear layers: time beside float32, shorter is faster",
    { "float32", "medium float32", "bfloat16", "int8, AMX", "int8, VNNI" }, groups, 1)
end

local folder = arg[1] or "docs"
for name, text in pairs(files) do picture.write(("%s/images/performance/%s.svg"):format(folder, name), text) end

-- ---- The first table of the page ----------------------------------------------------------------

-- "least to most" of the numbers in a list.
local function span(list)
  table.sort(list)
  local least, most = ("%.2f"):format(list[1]), ("%.2f"):format(list[#list])
  return least == most and least or least .. " to " .. most
end

print "| one thread | PyTorch | ONNX Runtime | ggml, llama.cpp |"
print "| --- | ---: | ---: | ---: |"
local rows = rows_of(speed, "1 thread", "ggml")
for _, kind in ipairs {
  { "attention of 128 to 8192 tokens", { "causal", "dense" } },
  { "attention of one new token to thousands", { "decode" } },
  { "matrix products and linear layers", { "matmul", "linear" } },
  { "softmax, norms, activations", { "softmax", "log_softmax", "layer_norm", "rms_norm", "gelu", "silu" } },
} do
  local line = "| " .. kind[1]
  for _, column in ipairs { "PyTorch fused", "ONNX Runtime", "ggml" } do
    local factors = {}
    for i = 2, #rows do
      for _, name in ipairs(kind[2]) do
        if rows[i][1]:match "^[%w_]+" == name then factors[#factors + 1] = times(cell(rows, rows[i][1], column)) end
      end
    end
    line = line .. (" | %s ×"):format(span(factors))
  end
  print(line .. " |")
end

local gguf, read, written = rows_of(speed, "model", "decoded, tokens/s"), {}, {}
local high
for i = 2, #gguf do
  local row = gguf[i]
  if row[2] == "high" then high = row end
  if row[2] == "llama.cpp" then
    read[#read + 1] = tonumber(high[3]) / tonumber(row[3])
    written[#written + 1] = tonumber(high[4]) / tonumber(row[4])
  end
end
print(("| a model in a GGUF file reads a prompt | – | – | %s × |"):format(span(read)))
print(("| it writes token by token | – | – | %s × |"):format(span(written)))
