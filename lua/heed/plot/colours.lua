--- Colours of charts: maps from 0..1 to red, green, blue (0 to 255), a palette for series, and a readable text colour.
--
-- viridis (van der Walt, Smith 2015) and cividis (Nuñez and others 2018) are perceptually uniform and readable with
-- any colour blindness, as are ColorBrewer's RdBu (Brewer 2002) and the palette of Okabe and Ito (2008). Between
-- control points, sRGB is interpolated linearly: viridis stays within 4 of 255 of the published table, cividis
-- within 7.

local colours = {}

local POINTS = {
  viridis = "440154 481466 482575 463480 414487 3b528b 345f8d 2f6c8e 2a788e 25848e 21908c 1e9c89 22a884 "
    .. "2fb47c 43bf71 5dc963 7ad151 9ad93d bcdf27 dde318 fde725",
  cividis = "00224e 002a61 003171 1d396f 2d416d 3a496c 46506c 50586c 5b606e 646770 6e6f73 777777 "
    .. "817f78 8c8878 979077 a29975 ada272 b8ab6e c4b468 d0bd62 dcc759 e8d14f f5dc41 fee838",
  diverging = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f",
  grey = "ffffff 000000",
}

--- The names of the maps, in the order in which messages list them.
colours.names = { "viridis", "cividis", "diverging", "grey" }

local function channels(hex)
  return tonumber(hex:sub(1, 2), 16), tonumber(hex:sub(3, 4), 16), tonumber(hex:sub(5, 6), 16)
end

local maps = {}
for name, text in pairs(POINTS) do
  local list = {}
  for hex in text:gmatch "%x+" do list[#list + 1] = { channels(hex) } end
  maps[name] = function(value)
    value = value ~= value and 0 or math.max(0, math.min(1, value)) * (#list - 1)
    local i = math.min(math.floor(value), #list - 2)
    local a, b, t = list[i + 1], list[i + 2], value - i
    local function mix(c) return math.floor(a[c] + (b[c] - a[c]) * t + 0.5) end
    return mix(1), mix(2), mix(3)
  end
end

--- The map of that name, a function of 0..1 to r, g, b; nil if there is none. Values outside are clamped.
function colours.map(name) return maps[name] end

--- "#rrggbb".
function colours.hex(r, g, b) return ("#%02x%02x%02x"):format(r, g, b) end

--- r, g, b of "#rrggbb".
function colours.channels(hex) return channels(hex:sub(2)) end

--- The colour of cells whose value is nan: no map contains it.
colours.missing = "#ff00ff"

-- Okabe and Ito's colours, those with the most contrast on white first.
local PALETTE = { "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442" }

--- The colour of series i, from 1; they repeat after eight.
function colours.series(i) return PALETTE[(i - 1) % #PALETTE + 1] end

-- Relative luminance (WCAG 2).
local function luminance(r, g, b)
  local function linear(c)
    c = c / 255
    return c <= 0.04045 and c / 12.92 or ((c + 0.055) / 1.055) ^ 2.4
  end
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
end

--- The contrast ratio of two colours "#rrggbb", from 1 to 21 (WCAG 2).
function colours.contrast(a, b)
  local x, y = luminance(colours.channels(a)), luminance(colours.channels(b))
  return (math.max(x, y) + 0.05) / (math.min(x, y) + 0.05)
end

--- Black or white, whichever has more contrast on that background; at least 4.5.
function colours.text_on(r, g, b)
  return luminance(r, g, b) > 0.179 and "#000000" or "#ffffff"
end

return colours
