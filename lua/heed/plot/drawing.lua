--- Lays charts out as drawings (svg.lua describes them), for SVG, PNG and HTML.

local colours = require "heed.plot.colours"
local core = require "heed.core"
local text = require "heed.plot.text"

local drawing = {}

local CHAR = 6.6 -- average width of a character of size 12

local function label_width(labels, longest)
  local width = 0
  for i, label in ipairs(labels or {}) do
    if i % 256 == 0 then core.check_cancel "plot" end
    width = math.max(width, math.min(longest, text.width(label)) * CHAR)
  end
  return width
end

--- The position of a value in a range, 0 to 1; a range of one value is shown by the middle.
function drawing.share(value, lo, hi)
  if value == math.huge then return 1 elseif value == -math.huge then return 0 end
  if hi <= lo then return 0.5 end
  return math.max(0, math.min(1, value / (hi - lo) - lo / (hi - lo)))
end

--- The colour of a value, as r, g, b.
function drawing.colour(chart, value)
  if value ~= value then return colours.channels(colours.missing) end
  return chart.map(drawing.share(value, chart.lo, chart.hi))
end

--- Round ticks that cover lo..hi: multiples of 1, 2 or 5 times a power of ten. Only lo where
--- floats are too close or too far apart for them.
function drawing.ticks(lo, hi, count)
  count = count or 5
  local rough = (hi - lo) / count
  local power = 10 ^ math.floor(math.log(rough) / math.log(10))
  if not (power > 0 and power < math.huge) then return { lo } end
  local step = power * (rough / power > 5 and 10 or rough / power > 2 and 5 or rough / power > 1 and 2 or 1)
  local list, first, last = {}, math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9)
  for k = 0, count do -- not from first to last: above 2^53 floats do not count on
    if first + k <= last then list[#list + 1] = (first + k) * step end
  end
  return list
end

local function begin(chart, top)
  local shapes = {}
  if chart.title then shapes[1] = { "text", 12, 22, chart.title, { size = 15 } } end
  return shapes, chart.title and top + 24 or top
end

-- ---- Heat maps ----------------------------------------------------------------------------------

local function add_map(shapes, chart, map, left, top, cell)
  for i, row in ipairs(map) do
    core.check_cancel "heatmap"
    local y = top + (i - 1) * cell.height
    for j, value in ipairs(row) do
      local x = left + (j - 1) * cell.width
      local r, g, b = drawing.colour(chart, value)
      local names = ("%s, %s: %s"):format(chart.rows and chart.rows[i] or i, chart.columns and chart.columns[j] or j,
        text.number(value))
      shapes[#shapes + 1] = { "rect", x, y, cell.width, cell.height, colours.hex(r, g, b), names }
      if chart.values then
        shapes[#shapes + 1] = { "text", x + cell.width / 2, y + cell.height / 2 + 4, text.number(value, 3),
          { size = 10, anchor = "middle", fill = colours.text_on(r, g, b) } }
      end
    end
    if chart.rows then
      shapes[#shapes + 1] = { "text", left - 6, y + cell.height / 2 + 4, text.cut(chart.rows[i], 24),
        { anchor = "end", size = 11 } }
    end
  end
end

--- chart: maps (lists of rows), row_count, column_count, rows, columns, values, lo, hi, map, title, width, height.
function drawing.heatmap(chart)
  local shapes, top = begin(chart, 12)
  local left = 12 + (chart.rows and label_width(chart.rows, 24) + 8 or 0)
  local head = chart.columns and label_width(chart.columns, 24) + 8 or 0
  local n, across = #chart.maps, math.max(1, math.ceil(math.sqrt(#chart.maps)))
  local size = math.max(chart.values and 40 or 4, math.min(chart.values and 40 or 24,
    600 / across / math.max(1, chart.column_count, chart.row_count)))
  local cell = { width = chart.values and 52 or size, height = chart.values and 24 or size }
  if chart.width then
    cell.width = math.max(1, (chart.width - left * across - 12) / across / math.max(1, chart.column_count))
    if not chart.height and not chart.values then cell.height = cell.width end
  end
  local down = math.ceil(n / across)
  if chart.height then
    cell.height = math.max(1, (chart.height - top - 50 - (head + 24) * down) / down / math.max(1, chart.row_count))
  end
  local map_width, map_height = chart.column_count * cell.width, chart.row_count * cell.height
  local block = head + map_height + (n > 1 and 24 or 12)
  for k, map in ipairs(chart.maps) do
    local x = left + (k - 1) % across * (map_width + left)
    local y = top + math.floor((k - 1) / across) * block + head + (n > 1 and 12 or 0)
    if n > 1 then shapes[#shapes + 1] = { "text", x, y - head - 3, chart.names[k], { size = 11 } } end
    for j, label in ipairs(chart.columns or {}) do
      shapes[#shapes + 1] = { "text", x + (j - 0.5) * cell.width + 4, y - 6, text.cut(label, 24),
        { rotate = true, size = 11 } }
    end
    add_map(shapes, chart, map, x, y, cell)
  end
  local width = math.max(left + across * (map_width + left) - left + 12, 240)
  local y = top + down * block + 6
  for i = 0, 49 do
    local r, g, b = chart.map(i / 49)
    shapes[#shapes + 1] = { "rect", 12 + i * 2, y, 2, 10, colours.hex(r, g, b) }
  end
  local legend = ("%s to %s"):format(text.number(chart.lo), text.number(chart.hi))
  shapes[#shapes + 1] = { "text", 118, y + 9, legend, { size = 11 } }
  if chart.has_nan then
    shapes[#shapes + 1] = { "rect", width - 52, y, 10, 10, colours.missing }
    shapes[#shapes + 1] = { "text", width - 38, y + 9, "nan", { size = 11 } }
  end
  return { width = width, height = y + 22, shapes = shapes, title = chart.title }
end

-- ---- Lines and bars -----------------------------------------------------------------------------

local function add_y_axis(shapes, chart, frame)
  for _, tick in ipairs(drawing.ticks(chart.lo, chart.hi)) do
    local y = frame.bottom - drawing.share(tick, chart.lo, chart.hi) * frame.height
    shapes[#shapes + 1] = { "line", { frame.left, y, frame.left + frame.width, y }, "#b0b0b0", 0.5 }
    shapes[#shapes + 1] = { "text", frame.left - 6, y + 4, text.number(tick), { anchor = "end", size = 11 } }
  end
  shapes[#shapes + 1] = { "line", { frame.left, frame.bottom, frame.left + frame.width, frame.bottom }, "ink", 1 }
end

local function frame_of(chart, top, foot)
  local width, height = chart.width or 640, chart.height or 360
  return { left = 64, width = math.max(10, width - 84), height = math.max(10, height - top - foot),
    bottom = math.max(top + 10, height - foot) }, width, math.max(height, top + foot + 10)
end

--- chart: series (lists of numbers), x (numbers), x_lo, x_hi, names, lo, hi, title. Gaps stand for nan and inf.
function drawing.line(chart)
  local shapes, top = begin(chart, 16)
  local frame, width, height = frame_of(chart, top, chart.names and 52 or 34)
  add_y_axis(shapes, chart, frame)
  for _, tick in ipairs(drawing.ticks(chart.x_lo, chart.x_hi, 6)) do
    local x = frame.left + drawing.share(tick, chart.x_lo, chart.x_hi) * frame.width
    shapes[#shapes + 1] = { "line", { x, frame.bottom, x, frame.bottom + 4 }, "ink", 1 }
    shapes[#shapes + 1] = { "text", x, frame.bottom + 18, text.number(tick), { anchor = "middle", size = 11 } }
  end
  local at = frame.left
  for k, series in ipairs(chart.series) do
    core.check_cancel "line"
    local points, colour = {}, colours.series(k)
    local function finish()
      if #points == 2 then
        shapes[#shapes + 1] = { "rect", points[1] - 1.5, points[2] - 1.5, 3, 3, colour }
      elseif #points > 2 then
        shapes[#shapes + 1] = { "line", points, colour, 2 }
      end
      points = {}
    end
    for i, value in ipairs(series) do
      if i % 4096 == 0 then core.check_cancel "line" end
      if value - value == 0 then
        points[#points + 1] = frame.left + drawing.share(chart.x[i], chart.x_lo, chart.x_hi) * frame.width
        points[#points + 1] = frame.bottom - drawing.share(value, chart.lo, chart.hi) * frame.height
      else
        finish()
      end
    end
    finish()
    if chart.names then
      shapes[#shapes + 1] = { "rect", at, height - 18, 10, 10, colour }
      shapes[#shapes + 1] = { "text", at + 14, height - 9, chart.names[k], { size = 11 } }
      at = at + 30 + text.width(chart.names[k]) * CHAR
    end
  end
  return { width = math.max(width, at), height = height, shapes = shapes, title = chart.title }
end

--- chart: heights, labels, lo, hi, title; for histograms edges.
function drawing.bars(chart)
  local shapes, top = begin(chart, 16)
  local rotate = label_width(chart.labels, 24) > 0 and #chart.heights * (label_width(chart.labels, 24) + 8) > 540
  local frame, width, height = frame_of(chart, top, rotate and label_width(chart.labels, 16) + 16 or 34)
  add_y_axis(shapes, chart, frame)
  local step = frame.width / math.max(1, #chart.heights)
  local gap = chart.edges and math.min(1, step / 10) or step * 0.2
  local zero = frame.bottom - drawing.share(0, chart.lo, chart.hi) * frame.height
  for i, value in ipairs(chart.heights) do
    if i % 256 == 0 then core.check_cancel "bars" end
    local x = frame.left + (i - 1) * step
    if value == value then
      local y = frame.bottom - drawing.share(value, chart.lo, chart.hi) * frame.height
      shapes[#shapes + 1] = { "rect", x + gap / 2, math.min(y, zero), step - gap, math.abs(zero - y),
        colours.series(1), ("%s: %s"):format(chart.labels[i], text.number(value)) }
    end
    if not chart.edges then
      local middle = x + step / 2
      shapes[#shapes + 1] = rotate
          and { "text", middle + 4, frame.bottom + 6, text.cut(chart.labels[i], 16),
            { rotate = true, anchor = "end", size = 11 } }
        or { "text", middle, frame.bottom + 18, text.cut(chart.labels[i], 24), { anchor = "middle", size = 11 } }
    end
  end
  local edges = chart.edges
  for _, tick in ipairs(edges and drawing.ticks(edges[1], edges[#edges], 6) or {}) do
    local x = frame.left + drawing.share(tick, edges[1], edges[#edges]) * frame.width
    shapes[#shapes + 1] = { "text", x, frame.bottom + 18, text.number(tick), { anchor = "middle", size = 11 } }
  end
  return { width = width, height = height, shapes = shapes, title = chart.title }
end

return drawing
