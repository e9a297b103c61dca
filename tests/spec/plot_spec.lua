-- heed.plot: charts as text, SVG, PNG and HTML.
local heed = require "heed"
local plot = require "heed.plot"
local colours = require "heed.plot.colours"
local terminal = require "heed.plot.terminal"
local text = require "heed.plot.text"

local function as(format, options)
  options = options or {}
  options.to, options.format = "string", format
  return options
end

describe("colour maps", function()
  it("are near those published", function()
    for name, points in pairs {
      viridis = { [0] = { 68, 1, 84 }, [0.5] = { 33, 145, 140 }, [1] = { 253, 231, 37 } },
      cividis = { [0] = { 0, 34, 78 }, [0.5] = { 125, 124, 120 }, [1] = { 254, 232, 56 } },
    } do
      for at, expected in pairs(points) do
        local found = { colours.map(name)(at) }
        for c = 1, 3 do assert.is_true(math.abs(found[c] - expected[c]) <= 7, name .. " at " .. at) end
      end
    end
  end)

  it("have text with a contrast of at least 4.5 on every colour", function()
    for _, name in ipairs(colours.names) do
      for i = 0, 100 do
        local r, g, b = colours.map(name)(i / 100)
        assert.is_true(colours.contrast(colours.hex(r, g, b), colours.text_on(r, g, b)) >= 4.5)
      end
    end
  end)
end)

describe("labels", function()
  it("are cut by display width", function()
    assert.are.equal("ab\226\128\166", text.cut("abcd", 3))
    assert.are.equal(4, text.width "\230\188\162\229\173\151") -- two wide characters
    assert.are.equal(1, text.width "e\204\129") -- a combining accent
  end)

  it("have no control characters", function()
    assert.are.equal("a\\x1b[31m\\n\\x9b", text.clean "a\27[31m\n\194\155")
  end)

  it("have neither marks of direction nor noncharacters, which XML refuses", function()
    assert.are.equal("\\u200e\\u200f\\u061c", text.clean "\226\128\142\226\128\143\216\156")
    assert.are.equal("\\ufffe\\uffff\\u1ffff",
      text.clean "\239\191\190\239\191\191\240\159\191\191")
  end)

  it("have U+FFFD for invalid bytes", function()
    assert.are.equal("a\239\191\189b", text.clean "a\255b")
    assert.are.equal("\239\191\189\239\191\189", text.clean "\192\128")
  end)
end)

describe("the width of a terminal", function()
  it("is 80 where COLUMNS is no width", function()
    local getenv, columns = os.getenv, require("heed.core").files.terminal
    local value
    os.getenv = function() return value end -- luacheck: ignore 122
    require("heed.core").files.terminal = function() end
    local widths = {}
    for i, each in ipairs { "40", "-5", "0", "1e9", "nan", "wide", "" } do
      value = each
      widths[i] = terminal.detect().width
    end
    os.getenv, require("heed.core").files.terminal = getenv, columns -- luacheck: ignore 122
    assert.are.same({ 40, 80, 80, 80, 80, 80, 80 }, widths)
  end)
end)

describe("heat maps as text", function()
  it("show values as characters of a ramp", function()
    assert.are.equal("@@  \n  @@\n0 [ .:-=+*#%@] 1\n", plot.heatmap(heed.eye(2), as "txt"))
  end)

  it("are folded to the width, and show nan apart", function()
    local x = heed.tensor { { 0, 1, 0 / 0 } }
    assert.are.equal("columns ~\n  @@\ncolumns ~\n??\n0 to 1\n? nan\n", (plot.heatmap(x, as("txt", { width = 4 }))
      :gsub("colu?m?n?s?[ %d]*t?o?[ %d]*~", "columns ~")))
  end)

  it("show one value, equal values, infinities and empty tensors", function()
    for _, x in ipairs { heed.ones(1, 1), heed.zeros(3, 3), heed.full({ 2, 2 }, math.huge), heed.zeros(0, 3),
      heed.zeros(2, 0), heed.full({ 2 }, 0 / 0), heed.zeros(0, 2, 2) } do
      for _, format in ipairs { "txt", "svg", "png", "html" } do
        assert.is_string(plot.heatmap(x, as(format)))
      end
    end
  end)

  it("use the terminal's colours", function()
    local chart = { maps = { { { 0, 1 } } }, row_count = 1, column_count = 2, lo = 0, hi = 1, names = { "1" },
      map = colours.map "grey" }
    local function first_line(device) return terminal.heatmap(chart, device):match "[^\n]*" end
    assert.are.equal("\27[48;2;255;255;255m  \27[0m\27[48;2;0;0;0m  \27[0m",
      first_line { width = 20, colours = 2 ^ 24, unicode = false })
    assert.are.equal("\27[48;5;231m  \27[0m\27[48;5;16m  \27[0m",
      first_line { width = 20, colours = 256, unicode = false })
    assert.are.equal("\27[47m  \27[0m\27[40m  \27[0m", first_line { width = 20, colours = 16, unicode = false })
  end)
end)

describe("SVG", function()
  it("has a cell of the value's colour, with labels escaped", function()
    local svg = plot.heatmap({ { 0, 1 } }, as("svg", { row_labels = { "<b>&" }, column_labels = { "x", "'y'" } }))
    local r, g, b = colours.map "viridis"(1)
    assert.is_truthy(svg:find(('fill="%s"><title>&lt;b&gt;&amp;, &#39;y&#39;: 1</title>'):format(colours.hex(r, g, b)),
      1, true))
    assert.is_nil(svg:find("<b>", 1, true))
  end)

  it("is within an HTML page without links or scripts", function()
    local page = plot.bars({ 1, -2 }, as("html", { title = "</title><script>" }))
    assert.is_nil(page:find("<script", 1, true))
    assert.is_nil(page:find("href", 1, true))
    assert.is_truthy(page:find("prefers-color-scheme: dark", 1, true))
  end)
end)

describe("PNG", function()
  it("has a signature, sizes and checksums", function()
    local png = plot.line({ 1, 3, 2 }, as("png", { width = 100, height = 80 }))
    assert.are.equal("\137PNG\r\n\26\n\0\0\0\13IHDR\0\0\0\200\0\0\0\160\8\2\0\0\0", png:sub(1, 29))
    assert.are.equal("\0\0\0\0IEND\174\66\96\130", png:sub(-12))
  end)
end)

describe("long charts", function()
  it("stop at limits, and write no files where files are off", function()
    local x = heed.zeros(1500, 1500)
    heed.limit { seconds = 0.05, files = false }
    local ok, message = pcall(plot.heatmap, x, as "svg")
    local written, result, problem = pcall(plot.bars, { 1 }, { file = "x.svg" })
    heed.limit { seconds = math.huge, files = true }
    assert.is_false(ok)
    assert.is_truthy(tostring(message):find("time limit exceeded", 1, true), message)
    assert.is_false(written and result == true)
    assert.is_truthy(tostring(problem or result):find("files", 1, true), problem or result)
  end)
end)

describe("ticks", function()
  local ticks = require("heed.plot.drawing").ticks
  it("are round and cover the range", function()
    assert.are.same({ 0, 2, 4, 6, 8, 10 }, ticks(0, 10))
    assert.are.same({ -1, -0.5, 0, 0.5, 1 }, ticks(-1, 1))
    assert.are.same({ 5 }, ticks(5, 5))
  end)
  it("are few where numbers are too small, too large or too close together to be counted", function()
    local tiny = 2 ^ -1074
    for _, range in ipairs { { -tiny, tiny }, { 0, tiny }, { -1e308, 1e308 }, { 2 ^ 60, 2 ^ 60 + 256 },
      { 1e300, 1e300 * (1 + 2 ^ -50) } } do
      assert.is_true(#ticks(range[1], range[2]) <= 6)
      assert.is_true(#plot.line({ 1, 2 }, { range = range, to = "string", format = "svg" }) < 4000)
    end
  end)
end)

describe("histograms", function()
  it("count as numpy's", function()
    -- numpy.histogram([1, 2, 1, 4, 3, 4], 3): [2, 1, 3]
    local result = plot.hist({ 1, 2, 1, 4, 3, 4, 0 / 0 }, as("txt", { bins = 3, width = 40 }))
    local counts = {}
    for n in result:gmatch "(%d+)\n" do counts[#counts + 1] = tonumber(n) end
    assert.are.same({ 2, 1, 3 }, counts)
  end)
end)

describe("charts in files", function()
  it("are written, or return nil and a message", function()
    local path = os.tmpname()
    assert.is_true(plot.bars({ 1 }, { file = path, format = "svg" }))
    local file = assert(io.open(path))
    assert.are.equal("<svg ", file:read(5))
    file:close()
    os.remove(path)
    local done, message = plot.bars({ 1 }, { file = "missing_folder/x.svg" })
    assert.is_nil(done)
    assert.is_truthy(message:find("cannot be written", 1, true))
  end)
end)

-- f(...) must raise an error that begins with `message`.
local function refuses(message, f, ...)
  local ok, got = pcall(f, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(got):find(message, 1, true), got)
end

describe("bad arguments of charts", function()
  it("are refused", function()
    refuses("heatmap: labels has 1 label; there must be 2, one for each row", plot.heatmap, heed.eye(2),
      { labels = { "a" } })
    refuses("heatmap: x is a tensor of shape [1, 1, 1, 1]", plot.heatmap, heed.ones(1, 1, 1, 1))
    refuses("line: x has 1 value; there must be 2", plot.line, { 1, 2 }, { x = { 1 } })
    refuses("bars: file is a string ('x.gif'); it must be a path that ends in", plot.bars, { 1 }, { file = "x.gif" })
    refuses("heatmap: there is no option 'lables'", plot.heatmap, heed.eye(2), { lables = {} })
    refuses("hist: range is not two finite numbers in order", plot.hist, { 1 }, { range = { 2, 1 } })
  end)

  it("compress large pictures", function()
    local png = plot.heatmap(heed.eye(2), { to = "string", format = "png", width = 240, height = 100 })
    assert.is_true(#png < 480 * 200 * 3 / 20) -- 3 bytes for each pixel without compression
  end)

  it("have a limit of pixels", function()
    refuses("plot: the PNG picture has 16384 × 16316 pixels; it must have at most 16777216 in all", plot.heatmap,
      heed.eye(2), { to = "string", format = "png", width = 8192, height = 8192 })
  end)
end)
