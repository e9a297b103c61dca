--- Writes a drawing (svg.lua describes it) as a PNG file (ISO 15948), two pixels for each of its units.

local core = require "heed.core"
local colours = require "heed.plot.colours"
local E = require "heed.nn.entries"
local font = require "heed.plot.font"
local text = require "heed.plot.text"

local png = {}

local SCALE = 2
local MOST = 2 ^ 24 -- pixels; each takes 16 bytes while the picture is drawn

-- The three bytes of a colour.
local function bytes_of(colour)
  if colour == "ink" then colour = "#1a1a1a" elseif colour == "paper" then colour = "#ffffff" end
  return string.char(colours.channels(colour))
end

local function round(x) return math.floor(x + 0.5) end

-- Fills pixels x1..x2 - 1, y1..y2 - 1, as far as they are in the picture.
local function fill(image, x1, y1, x2, y2, pixel)
  for y = math.max(0, y1), math.min(image.height, y2) - 1 do
    local row = image[y + 1]
    for x = math.max(0, x1) + 1, math.min(image.width, x2) do row[x] = pixel end
  end
  core.check_cancel "plot"
end

local draw = {}

function draw.rect(image, shape)
  local x, y = round(shape[2] * SCALE), round(shape[3] * SCALE)
  local right, bottom = round((shape[2] + shape[4]) * SCALE), round((shape[3] + shape[5]) * SCALE)
  fill(image, x, y, right, bottom, bytes_of(shape[6]))
end

-- A segment is a row of squares as wide as the line, one for each pixel along its longer side.
function draw.line(image, shape)
  local points, pixel, width = shape[2], bytes_of(shape[3]), math.max(1, round(shape[4] * SCALE))
  for i = 1, #points - 3, 2 do
    local x, y = points[i] * SCALE, points[i + 1] * SCALE
    local dx, dy = points[i + 2] * SCALE - x, points[i + 3] * SCALE - y
    local steps = math.max(1, math.ceil(math.max(math.abs(dx), math.abs(dy))))
    for k = 0, steps do
      local left, top = round(x + dx * k / steps - width / 2), round(y + dy * k / steps - width / 2)
      fill(image, left, top, left + width, top + width, pixel)
    end
  end
end

function draw.text(image, shape)
  local style, pixel = shape[5], bytes_of(shape[5].fill or "ink")
  local size = (style.size or 12) >= 15 and SCALE + 1 or SCALE -- pixels of a dot
  local characters = text.characters(shape[4])
  local length = #characters * font.width * size
  local before = style.anchor == "middle" and length / 2 or style.anchor == "end" and length or 0
  local x, y = round(shape[2] * SCALE), round(shape[3] * SCALE)
  for i, character in ipairs(characters) do
    for column, bits in ipairs(font.glyph(character)) do
      local along = round((i - 1) * font.width * size + (column - 1) * size - before)
      for row = 0, 7 do
        if math.floor(bits / 2 ^ row) % 2 == 1 then
          local up = (7 - row) * size
          if style.rotate then
            fill(image, x - up, y - along - size, x - up + size, y - along, pixel)
          else
            fill(image, x + along, y - up, x + along + size, y - up + size, pixel)
          end
        end
      end
    end
  end
end

local function integer(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256, math.floor(n / 256) % 256, n % 256)
end

local function chunk(kind, data)
  return integer(#data) .. kind .. data .. integer(core.files.crc32(kind .. data))
end

--- The drawing as the bytes of a PNG file.
function png.render(drawing)
  local image = { width = math.ceil(drawing.width * SCALE), height = math.ceil(drawing.height * SCALE) }
  if image.width * image.height > MOST then
    E.fail("plot: the PNG picture has %d × %d pixels; it must have at most %d in all: give a smaller width and height, "
      .. "or write an SVG file", image.width, image.height, MOST)
  end
  local paper = bytes_of "paper"
  for y = 1, image.height do
    local row = {}
    for x = 1, image.width do row[x] = paper end
    image[y] = row
    core.check_cancel "plot"
  end
  for _, shape in ipairs(drawing.shapes) do draw[shape[1]](image, shape) end
  local lines = {}
  for y, row in ipairs(image) do
    lines[y] = "\0" .. table.concat(row) -- filter 0
    core.check_cancel "plot"
  end
  local header = integer(image.width) .. integer(image.height) .. "\8\2\0\0\0" -- 8 bits, RGB
  return "\137PNG\r\n\26\n" .. chunk("IHDR", header) .. chunk("IDAT", core.files.compress(table.concat(lines)))
    .. chunk("IEND", "")
end

return png
