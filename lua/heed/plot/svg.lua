--- Writes a drawing as SVG. A drawing is {width, height, title, shapes}; a shape is
--- {"rect", x, y, width, height, fill, title}, {"line", {x, y, x, y, …}, colour, width} or
--- {"text", x, y, text, {size, anchor = "start" | "middle" | "end", fill, rotate = true for upwards}}.
--- The colours "ink" and "paper" are the page's.

local core = require "heed.core"
local text = require "heed.plot.text"

local svg = {}

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

--- A label as text of XML and HTML.
function svg.escape(s) return (text.clean(s):gsub("[&<>\"']", ENTITIES)) end

local function number(x) return (("%.2f"):format(x):gsub(",", "."):gsub("%.?0+$", "")) end
local function colour(c) return c == "ink" and "currentColor" or c end

local write = {}

function write.rect(shape)
  local class = shape[6] == "paper" and ' class="paper" fill="#ffffff"' or (' fill="%s"'):format(colour(shape[6]))
  local tag = ('<rect x="%s" y="%s" width="%s" height="%s"%s'):format(number(shape[2]), number(shape[3]),
    number(shape[4]), number(shape[5]), class)
  return tag .. (shape[7] and ("><title>%s</title></rect>"):format(svg.escape(shape[7])) or "/>")
end

function write.line(shape)
  local points = {}
  for i = 1, #shape[2], 2 do
    points[#points + 1] = number(shape[2][i]) .. "," .. number(shape[2][i + 1])
    if i % 1024 == 1 then core.check_cancel "plot" end
  end
  return ('<polyline points="%s" fill="none" stroke="%s" stroke-width="%s" stroke-linejoin="round"/>'):format(
    table.concat(points, " "), colour(shape[3]), number(shape[4]))
end

function write.text(shape)
  local x, y, style = number(shape[2]), number(shape[3]), shape[5]
  local turn = style.rotate and (' transform="rotate(-90 %s %s)"'):format(x, y) or ""
  return ('<text x="%s" y="%s" font-size="%s" text-anchor="%s" fill="%s"%s>%s</text>'):format(x, y,
    number(style.size or 12), style.anchor or "start", colour(style.fill or "ink"), turn, svg.escape(shape[4]))
end

--- The drawing as one <svg> element.
function svg.render(drawing)
  local w, h = number(drawing.width), number(drawing.height)
  local lines = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" color="#1a1a1a" '
      .. 'font-family="Helvetica, Arial, sans-serif" role="img">'):format(w, h, w, h),
    drawing.title and ("<title>%s</title>"):format(svg.escape(drawing.title)) or "<title>chart</title>",
    ('<rect class="paper" width="%s" height="%s" fill="#ffffff"/>'):format(w, h),
  }
  for i, shape in ipairs(drawing.shapes) do
    if i % 256 == 0 then core.check_cancel "plot" end
    lines[#lines + 1] = write[shape[1]](shape)
  end
  lines[#lines + 1] = "</svg>\n"
  return table.concat(lines, "\n")
end

return svg
