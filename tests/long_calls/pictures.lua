-- Long calls of charts and of encoders: many values, long texts.
local heed = require "heed"
local plot = require "heed.plot"

return function(inputs)
  local call = inputs.call
  local FORMATS = { "txt", "svg", "png" } -- html is svg in a page

  -- No character begins at a byte whose number is a multiple of 4.
  local function long_text() return ("<&\195\169"):rep(400000) end

  for _, format in ipairs(FORMATS) do
    local options = { to = "string", format = format }
    local function with(more)
      for name, value in pairs(options) do more[name] = value end
      return more
    end

    call("a heat map of many values, " .. format, function()
      local x = heed.rand(1000, 1000)
      return function() return plot.heatmap(x, with {}) end
    end)
    call("a line of many values, " .. format, function()
      local y = heed.rand(1000000)
      return function() return plot.line(y, with {}) end
    end)
    call("bars of many values, " .. format, function()
      local y = heed.rand(300000)
      return function() return plot.bars(y, with {}) end
    end)
    call("a chart with a long title, " .. format, function()
      local title = long_text()
      return function() return plot.line({ 1, 2, 3 }, with { title = title }) end
    end)
    call("bars with long labels, " .. format, function()
      local text = long_text()
      return function() return plot.bars({ 1, 2, 3 }, with { labels = { text, text, text } }) end
    end)
    call("lines with long names, " .. format, function()
      local text = long_text()
      return function() return plot.line({ { 1, 2 }, { 3, 4 } }, with { names = { text, text } }) end
    end)
    call("a heat map with long labels, " .. format, function()
      local text = long_text()
      return function() return plot.heatmap({ 1, 2 }, with { column_labels = { text, text } }) end
    end)
  end
  call("a histogram of many values", function()
    local x = heed.rand(1000000)
    return function() return plot.hist(x, { to = "string", bins = 4096 }) end
  end)
  for _, format in ipairs { "html", "txt" } do
    call("a page of attention, " .. format, function()
      local weights = heed.ones(16, 400, 400) / 400
      local labels = {}
      for i = 1, 400 do labels[i] = "token" end
      return function() return plot.attention(weights, labels, { to = "string", format = format }) end
    end).seconds = 0.002
    call("a page of attention with a long title, " .. format, function()
      local title = long_text()
      return function() return plot.attention(heed.ones(2, 2) / 2, { 1, 2 }, { to = "string", format = format,
        title = title }) end
    end)
  end

  call("encode of many texts", function()
    local bert, list = assert(heed.models.load "tests/golden/tiny_bert"), inputs.copies("one step", 100000)
    return function() return bert:encode(list) end
  end).frames = true
end
