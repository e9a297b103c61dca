--- Writes a drawing as one HTML page without scripts or links; hovering shows values, and the page follows the
--- reader's choice of dark or light.

local svg = require "heed.plot.svg"

local html = {}

local PAGE = [[<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1a1a1a; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e6e6e6; } }
body { margin: 1em; background: var(--paper); }
svg { max-width: 100%; height: auto; color: var(--ink); }
svg .paper { fill: var(--paper); }
rect:hover { stroke: var(--ink); }
</style>
</head>
<body>
SVG</body>
</html>
]]

--- The drawing as a page.
function html.render(drawing)
  local parts = { TITLE = svg.escape(drawing.title or "chart"), SVG = svg.render(drawing) }
  return (PAGE:gsub("%u%u%u%u?%u?", parts))
end

return html
