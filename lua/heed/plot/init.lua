--- Charts: heat maps, lines, bars and histograms for terminals, and as SVG, PNG, HTML or text in a file.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local colours = require "heed.plot.colours"
local drawing = require "heed.plot.drawing"
local terminal = require "heed.plot.terminal"
local primitives = core.modules

local plot = { display = false }

-- ---- Output -------------------------------------------------------------------------------------

local FORMATS = { "txt", "svg", "png", "html" }
local PLAIN = { colours = 0, unicode = false }

local function format_of(method, file, format)
  if format == nil and file == nil then return nil end
  if format == nil then format = file:lower():match "%.(%w+)$" or "" end
  for _, known in ipairs(FORMATS) do
    if format == known then return known end
  end
  if file == nil then E.check_choice(format, FORMATS, method, "format") end
  E.reject(method, "file", file, "a path that ends in .svg, .png, .html or .txt; or give format = 'svg'")
end

-- The options that all charts have, checked.
local function output_options(method, chart)
  if chart.title ~= nil then E.check_type(chart.title, "string", method, "title") end
  if chart.file ~= nil then E.check_type(chart.file, "string", method, "file") end
  if chart.to ~= nil and chart.to ~= "string" then E.reject(method, "to", chart.to, "'string' or nil") end
  if chart.file ~= nil and chart.to ~= nil then
    E.fail("%s: file and to are both given; at most one of them must be", method)
  end
  chart.format = format_of(method, chart.file, chart.format)
  chart.width = chart.width and E.size(chart.width, nil, method, "width")
  chart.height = chart.height and E.size(chart.height, nil, method, "height")
  for _, name in ipairs { "width", "height" } do
    if (chart[name] or 0) > 8192 then E.reject(method, name, chart[name], "at most 8192") end
  end
end

-- Prints or displays the chart; or returns its text; or writes it and returns true, or nil and a message.
local function deliver(kind, chart)
  local result
  local display = chart.format == nil and not chart.to and plot.display
  if display then return display(require "heed.plot.svg".render(drawing[kind](chart)), "svg", chart.title) end
  if chart.format == nil or chart.format == "txt" then
    local device = chart.format == nil and terminal.detect() or PLAIN
    result = terminal[kind](chart, { width = chart.width or device.width or 80, colours = device.colours,
      unicode = device.unicode })
  else
    result = require("heed.plot." .. chart.format).render(drawing[kind](chart))
  end
  if chart.to then return result end
  if chart.file then return core.files.write(chart.file, result) end
  if io then io.write(result) else print((result:gsub("\n$", ""))) end -- a sandbox may lack io
end

-- ---- Values -------------------------------------------------------------------------------------

local function is_tensor(x)
  local kind = primitives.kind(x)
  return kind == "tensor" or kind == "parameter"
end

-- A tensor, or a list as one.
local function tensor_of(method, argument, x)
  if is_tensor(x) then return x:float() end
  if not E.is_list(x) then E.reject(method, argument, x, "a tensor or a list of numbers") end
  return core.tensor(x):float()
end

local function vector(method, argument, x)
  local t = tensor_of(method, argument, x)
  if t.ndim ~= 1 then E.reject(method, argument, t, "a tensor of 1 dimension or a list of numbers") end
  return t:tolist()
end

local function labels_of(method, argument, labels, count, counted)
  if labels == nil then return nil end
  E.check_type(labels, "table", method, argument)
  local list = {}
  for i, label in compat.ipairs(labels) do
    if type(label) == "number" then label = tostring(label) end
    if type(label) ~= "string" then E.reject(method, ("%s[%d]"):format(argument, i), label, "a string") end
    list[i] = label
    if i % 1024 == 0 then E.check_cancel(method) end
  end
  if #list ~= count then
    E.fail("%s: %s has %s; there must be %d, one for each %s", method, argument, E.count(#list, "label"), count,
      counted)
  end
  return list
end

local function is_finite(value) return value - value == 0 end

-- The smallest and largest finite values, at most of what came before, and whether any is nan.
local function widen(values, lo, hi, has_nan)
  for i, value in ipairs(values) do
    if i % 4096 == 0 then E.check_cancel "plot" end
    if is_finite(value) then
      lo, hi = math.min(lo or value, value), math.max(hi or value, value)
    elseif value ~= value then
      has_nan = true
    end
  end
  return lo, hi, has_nan
end

local function set_range(method, chart)
  local range = chart.range
  chart.lo, chart.hi = chart.lo or 0, chart.hi or 0
  if range == nil then return end
  E.check_type(range, "table", method, "range")
  local lo, hi = range[1], range[2]
  if type(lo) ~= "number" or type(hi) ~= "number" or not is_finite(lo) or not is_finite(hi) or lo > hi then
    E.fail("%s: range is not two finite numbers in order; it must be {lowest, highest}", method)
  end
  chart.lo, chart.hi = lo, hi
end

-- The options by name in a table.
local function chart_of(method, names, first, ...)
  local chart, values = {}, { primitives.options(method, names, first, ...) }
  for i, name in ipairs(names) do chart[name] = values[i] end
  return chart
end

-- ---- Charts -------------------------------------------------------------------------------------

local HEATMAP = { "title", "labels", "row_labels", "column_labels", "names", "values", "colours", "range", "file",
  "format", "to", "width", "height" }

--- A heat map of x [l, s], of several [h, l, s] side by side, or of a row [s].
function plot.heatmap(x, ...)
  local chart = chart_of("heatmap", HEATMAP, 2, x, ...)
  local t = tensor_of("heatmap", "x", x)
  if t.ndim < 1 or t.ndim > 3 then
    E.reject("heatmap", "x", t, "a tensor [rows, columns] or [maps, rows, columns]; x[1] takes one of a batch")
  end
  output_options("heatmap", chart)
  chart.values = E.boolean(chart.values, false, "heatmap", "values")
  local shape = t.shape
  chart.column_count = shape[#shape]
  chart.row_count = t.ndim > 1 and shape[#shape - 1] or 1
  chart.maps = t:reshape(t.ndim == 3 and shape[1] or 1, chart.row_count, chart.column_count):tolist()
  if chart.labels ~= nil then
    chart.row_labels = chart.row_labels or chart.labels
    chart.column_labels = chart.column_labels or chart.labels
  end
  local both = chart.labels and "labels"
  chart.rows = labels_of("heatmap", both or "row_labels", chart.row_labels, chart.row_count, "row")
  chart.columns = labels_of("heatmap", both or "column_labels", chart.column_labels, chart.column_count, "column")
  chart.names = labels_of("heatmap", "names", chart.names, #chart.maps, "map")
  if not chart.names then
    chart.names = {}
    for k = 1, #chart.maps do chart.names[k] = tostring(k) end
  end
  for _, map in ipairs(chart.maps) do
    E.check_cancel "heatmap"
    for _, row in ipairs(map) do chart.lo, chart.hi, chart.has_nan = widen(row, chart.lo, chart.hi, chart.has_nan) end
  end
  local name = chart.colours or "viridis"
  E.check_choice(name, colours.names, "heatmap", "colours")
  chart.map = colours.map(name)
  if name == "diverging" and chart.lo then
    chart.hi = math.max(math.abs(chart.lo), math.abs(chart.hi))
    chart.lo = -chart.hi
  end
  set_range("heatmap", chart)
  return deliver("heatmap", chart)
end

local LINE = { "title", "x", "names", "range", "file", "format", "to", "width", "height" }

--- Lines of y [n], or of several series [k, n] or a list of tensors, over x (1 to n without it).
function plot.line(y, ...)
  local chart = chart_of("line", LINE, 2, y, ...)
  chart.series = {}
  if E.is_list(y) and (is_tensor(y[1]) or type(y[1]) == "table") then
    for k, series in compat.ipairs(y) do chart.series[k] = vector("line", ("y[%d]"):format(k), series) end
  else
    local t = tensor_of("line", "y", y)
    if t.ndim ~= 1 and t.ndim ~= 2 then E.reject("line", "y", t, "a tensor [n] or [series, n]") end
    chart.series = t.ndim == 2 and t:tolist() or { t:tolist() }
  end
  output_options("line", chart)
  chart.names = labels_of("line", "names", chart.names, #chart.series, "series")
  local longest = 0
  for _, series in ipairs(chart.series) do
    longest = math.max(longest, #series)
    chart.lo, chart.hi = widen(series, chart.lo, chart.hi)
  end
  if chart.x ~= nil then
    chart.x = vector("line", "x", chart.x)
    if #chart.x ~= longest then
      E.fail("line: x has %s; there must be %d, one for each value of y", E.count(#chart.x, "value"), longest)
    end
    for i, value in ipairs(chart.x) do
      if i % 4096 == 0 then E.check_cancel "line" end
      if not is_finite(value) then E.reject("line", ("x[%d]"):format(i), value, "finite") end
    end
  else
    chart.x = {}
    for i = 1, longest do
      if i % 4096 == 0 then E.check_cancel "line" end
      chart.x[i] = i
    end
  end
  chart.x_lo, chart.x_hi = widen(chart.x)
  chart.x_lo, chart.x_hi = chart.x_lo or 0, chart.x_hi or 0
  set_range("line", chart)
  return deliver("line", chart)
end

local BARS = { "labels", "title", "range", "file", "format", "to", "width", "height" }

local function add_bar_range(method, chart)
  chart.lo, chart.hi = widen(chart.heights, 0, 0)
  set_range(method, chart)
end

--- Bars of the values y [n], with labels.
function plot.bars(y, ...)
  local chart = chart_of("bars", BARS, 2, y, ...)
  chart.heights = vector("bars", "y", y)
  output_options("bars", chart)
  chart.labels = labels_of("bars", "labels", chart.labels, #chart.heights, "bar")
  if not chart.labels then
    chart.labels = {}
    for i = 1, #chart.heights do
      if i % 1024 == 0 then E.check_cancel "bars" end
      chart.labels[i] = tostring(i)
    end
  end
  add_bar_range("bars", chart)
  return deliver("bars", chart)
end

local HIST = { "bins", "range", "title", "file", "format", "to", "width", "height" }

-- Counts of the values in bins of equal width, as numpy.histogram: the last bin includes its upper edge.
local function count(values, bins, lo, hi)
  local counts, edges, labels = {}, {}, {}
  for i = 0, bins do edges[i + 1] = i == bins and hi or lo + (hi - lo) * i / bins end
  for i = 1, bins do
    counts[i] = 0
    labels[i] = ("%.4g to %.4g"):format(edges[i], edges[i + 1])
  end
  for i, value in ipairs(values) do
    if i % 4096 == 0 then E.check_cancel "hist" end
    if value >= lo and value <= hi then
      local bin = math.min(bins, math.floor((value - lo) / (hi - lo) * bins) + 1)
      if bin > 1 and value < edges[bin] then bin = bin - 1 end
      if bin < bins and value >= edges[bin + 1] then bin = bin + 1 end
      counts[bin] = counts[bin] + 1
    end
  end
  return counts, edges, labels
end

--- A histogram of x in `bins` (10) bins over `range`, as numpy.histogram counts; nan and inf are left out.
function plot.hist(x, ...)
  local chart = chart_of("hist", HIST, 2, x, ...)
  local values = tensor_of("hist", "x", x):reshape(-1):tolist()
  output_options("hist", chart)
  local bins = E.size(chart.bins, 10, "hist", "bins")
  if bins > 4096 then E.reject("hist", "bins", bins, "at most 4096") end
  chart.lo, chart.hi = widen(values)
  set_range("hist", chart)
  if chart.lo == chart.hi then chart.lo, chart.hi = chart.lo - 0.5, chart.hi + 0.5 end
  chart.heights, chart.edges, chart.labels = count(values, bins, chart.lo, chart.hi)
  chart.lo, chart.hi = widen(chart.heights, 0, 0)
  return deliver("bars", chart)
end

E.with_frames(plot)

return setmetatable(plot, {
  __index = function(_, name) -- the page is loaded when it is first used
    if name == "attention" then return require "heed.plot.attention" end
  end,
})
