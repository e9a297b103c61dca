--- Draws charts as text, in the colours and characters of the terminal.

local colours = require "heed.plot.colours"
local core = require "heed.core"
local drawing = require "heed.plot.drawing"
local text = require "heed.plot.text"

local terminal = {}

local RAMP = " .:-=+*#%@"
local UPPER_HALF, BLOCK, ELLIPSIS = "\226\150\128", "\226\150\136", "\226\128\166"

local function variable(name)
  local value = os and os.getenv and os.getenv(name)
  return value ~= "" and value or nil
end

-- COLUMNS, if it is a width that the charts' own option allows.
local function columns_set()
  local value = tonumber(variable "COLUMNS")
  return value and value >= 1 and value <= 8192 and math.floor(value) or nil
end

--- What standard output can show: {width, colours = 0 | 16 | 256 | 2^24, unicode}. Colours follow NO_COLOR, COLORTERM
--- and TERM; files and pipes get plain characters.
function terminal.detect()
  local columns = core.files.terminal()
  local term = variable "TERM" or (columns and "dumb" or "")
  local locale = (variable "LC_ALL" or variable "LC_CTYPE" or variable "LANG" or ""):lower()
  local count = 0
  if columns and not variable "NO_COLOR" and term ~= "dumb" then
    local true_colour = variable "COLORTERM"
    count = (true_colour == "truecolor" or true_colour == "24bit" or term:find "direct") and 2 ^ 24
      or term:find "256" and 256 or 16
  end
  return {
    width = columns or columns_set() or 80,
    colours = count,
    unicode = locale:find "utf%-?8" ~= nil,
  }
end

-- ---- Colours ------------------------------------------------------------------------------------

local BASIC = { { 0, 0, 0 }, { 205, 0, 0 }, { 0, 205, 0 }, { 205, 205, 0 }, { 0, 0, 238 }, { 205, 0, 205 },
  { 0, 205, 205 }, { 229, 229, 229 } }

local function nearest_basic(r, g, b)
  local best, least
  for i, c in ipairs(BASIC) do
    local distance = (c[1] - r) ^ 2 + (c[2] - g) ^ 2 + (c[3] - b) ^ 2
    if not least or distance < least then best, least = i - 1, distance end
  end
  return best
end

-- The escape sequence that sets the foreground ("3") or background ("4").
local function paint(kind, count, r, g, b)
  if count == 16 then return ("\27[%s%dm"):format(kind, nearest_basic(r, g, b)) end
  if count > 256 then return ("\27[%s8;2;%d;%d;%dm"):format(kind, r, g, b) end
  local function level(c) return c < 48 and 0 or c < 115 and 1 or math.floor((c - 35) / 40) end
  return ("\27[%s8;5;%dm"):format(kind, 16 + 36 * level(r) + 6 * level(g) + level(b))
end

local RESET = "\27[0m"

local function ramp(chart, value)
  if value ~= value then return "?" end
  local i = math.floor(drawing.share(value, chart.lo, chart.hi) * (#RAMP - 1) + 0.5) + 1
  return RAMP:sub(i, i)
end

-- A cell of `width` columns: its number, if numbers are wanted, on its colour.
local function cell_of(chart, value, width, device)
  local mark = device.unicode and ELLIPSIS or "~"
  local label = chart.values and text.fit(text.number(value, 3), width - 1, true, mark) .. " "
  if device.colours == 0 then return label or ramp(chart, value):rep(width) end
  local r, g, b = drawing.colour(chart, value)
  local ink = ""
  if label then ink = paint("3", device.colours, colours.channels(colours.text_on(r, g, b))) end
  return paint("4", device.colours, r, g, b) .. ink .. (label or (" "):rep(width)) .. RESET
end

-- ---- Heat maps ----------------------------------------------------------------------------------

local function widest(labels, most)
  local width = 0
  for i, label in ipairs(labels or {}) do
    if i % 256 == 0 then core.check_cancel "plot" end
    width = math.max(width, text.width(label))
  end
  return math.min(width, most)
end

-- Two rows in one line of half blocks.
local function half_line(chart, upper, lower, first, last, device)
  local parts = {}
  for j = first, last do
    parts[#parts + 1] = paint("3", device.colours, drawing.colour(chart, upper[j]))
      .. (lower and paint("4", device.colours, drawing.colour(chart, lower[j])) or "") .. UPPER_HALF .. RESET
  end
  return table.concat(parts)
end

local function add_panel(lines, chart, map, first, last, cell, left, device)
  local mark = device.unicode and ELLIPSIS or "~"
  if chart.columns then
    local parts = { (" "):rep(left) }
    for j = first, last do
      parts[#parts + 1] = text.fit(chart.columns[j], math.max(1, cell - 1), false, mark) .. (cell > 1 and " " or "")
    end
    lines[#lines + 1] = (table.concat(parts):gsub("%s+$", ""))
  end
  local halves = device.unicode and device.colours > 16 and not chart.values and not chart.rows
  for i = 1, #map, halves and 2 or 1 do
    core.check_cancel "heatmap"
    if halves then
      lines[#lines + 1] = half_line(chart, map[i], map[i + 1], first, last, device)
    else
      local parts = { chart.rows and text.fit(chart.rows[i], left - 1, true, mark) .. " " or "" }
      for j = first, last do parts[#parts + 1] = cell_of(chart, map[i][j], cell, device) end
      lines[#lines + 1] = table.concat(parts)
    end
  end
end

local function add_title(lines, chart, device)
  local mark = device.unicode and ELLIPSIS or "~"
  if chart.title then lines[#lines + 1] = text.cut(chart.title, device.width, mark) end
end

--- The text of a heat map; the chart is that of drawing.heatmap.
function terminal.heatmap(chart, device)
  local lines = {}
  add_title(lines, chart, device)
  local left = chart.rows and widest(chart.rows, math.max(1, math.floor(device.width / 3) - 1)) + 1 or 0
  local halves = device.unicode and device.colours > 16 and not chart.values and not chart.rows
  local cell = chart.values and 9 or chart.columns and widest(chart.columns, 7) + 1 or halves and 1 or 2
  local across = math.max(1, math.floor((device.width - left) / cell))
  for k, map in ipairs(chart.maps) do
    if #chart.maps > 1 then lines[#lines + 1] = text.cut(chart.names[k], device.width) end
    for first = 1, chart.column_count, across do
      local last = math.min(chart.column_count, first + across - 1)
      if chart.column_count > across then
        lines[#lines + 1] = text.cut(("columns %d to %d"):format(first, last), device.width, "~")
      end
      add_panel(lines, chart, map, first, last, cell, left, device)
    end
  end
  local scale = {}
  for i = 0, 9 do
    local value = chart.lo + (chart.hi - chart.lo) * i / 9
    scale[#scale + 1] = device.colours == 0 and RAMP:sub(i + 1, i + 1)
      or paint("4", device.colours, chart.map(i / 9)) .. " " .. (value and RESET)
  end
  local lo, hi = text.number(chart.lo), text.number(chart.hi)
  local bar = device.width >= #lo + #hi + 14 and " [" .. table.concat(scale) .. "] " or " to "
  if device.colours == 0 and chart.values then bar = " to " end
  lines[#lines + 1] = lo .. bar .. hi
  if chart.has_nan then
    lines[#lines + 1] = (device.colours == 0 and "?" or paint("4", device.colours, colours.channels(colours.missing))
      .. " " .. RESET) .. " nan"
  end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- Lines and bars -----------------------------------------------------------------------------

local MARKERS = "*+ox#%@&"

--- The text of lines; the chart is that of drawing.line.
function terminal.line(chart, device)
  local lines, height = {}, chart.height or 15
  add_title(lines, chart, device)
  local lo, hi = text.number(chart.lo), text.number(chart.hi)
  local left = math.max(#lo, #hi) + 2
  local width = math.max(4, device.width - left)
  local grid = {}
  for y = 1, height do
    grid[y] = {}
    for x = 1, width do grid[y][x] = " " end
  end
  for k, series in ipairs(chart.series) do
    core.check_cancel "line"
    local i = (k - 1) % #MARKERS + 1
    local mark = MARKERS:sub(i, i)
    if device.colours > 0 then
      mark = paint("3", device.colours, colours.channels(colours.series(k))) .. mark .. RESET
    end
    for j, value in ipairs(series) do
      if j % 4096 == 0 then core.check_cancel "line" end
      if value - value == 0 then
        local x = math.floor(drawing.share(chart.x[j], chart.x_lo, chart.x_hi) * (width - 1) + 0.5) + 1
        local y = height - math.floor(drawing.share(value, chart.lo, chart.hi) * (height - 1) + 0.5)
        grid[y][x] = mark
      end
    end
  end
  for y = 1, height do
    local label = y == 1 and hi or y == height and lo or ""
    lines[#lines + 1] = ((" "):rep(left - 1 - #label) .. label .. "|" .. table.concat(grid[y])):gsub("%s+$", "")
  end
  local first, last = text.number(chart.x_lo), text.number(chart.x_hi)
  lines[#lines + 1] = (" "):rep(left - 1) .. "+" .. ("-"):rep(width)
  lines[#lines + 1] = (" "):rep(left) .. first .. (" "):rep(math.max(1, width - #first - #last)) .. last
  for k, name in ipairs(chart.names or {}) do
    local i = (k - 1) % #MARKERS + 1
    lines[#lines + 1] = text.cut(MARKERS:sub(i, i) .. " " .. name, device.width, device.unicode and ELLIPSIS or "~")
  end
  return table.concat(lines, "\n") .. "\n"
end

--- The text of horizontal bars; the chart is that of drawing.bars.
function terminal.bars(chart, device)
  local lines, numbers, most = {}, {}, 0
  add_title(lines, chart, device)
  for i, value in ipairs(chart.heights) do
    if i % 1024 == 0 then core.check_cancel "bars" end
    numbers[i] = text.number(value)
    most = math.max(most, #numbers[i])
  end
  local left = widest(chart.labels, math.max(1, math.floor(device.width / 3)))
  local width = math.max(1, device.width - left - most - 2)
  local zero = math.floor(drawing.share(0, chart.lo, chart.hi) * width + 0.5)
  for i, value in ipairs(chart.heights) do
    core.check_cancel "bars"
    local at = value == value and math.floor(drawing.share(value, chart.lo, chart.hi) * width + 0.5) or zero
    local from, to = math.min(at, zero), math.max(at, zero)
    local bar = (device.unicode and BLOCK or "#"):rep(to - from)
    if device.colours > 0 and to > from then
      bar = paint("3", device.colours, colours.channels(colours.series(1))) .. bar .. RESET
    end
    local label = text.fit(chart.labels[i], left, true, device.unicode and ELLIPSIS or "~")
    lines[#lines + 1] = label .. " " .. (" "):rep(from) .. bar .. (" "):rep(width - to) .. " "
      .. (" "):rep(most - #numbers[i]) .. numbers[i]
  end
  return table.concat(lines, "\n") .. "\n"
end

return terminal
