--- The page of plot.attention: one HTML file without links, of packed weights (attention_data.lua), a style sheet and a
--- script (attention_script.lua).

local core = require "heed.core"
local E = require "heed.nn.entries"
local colours = require "heed.plot.colours"
local data = require "heed.plot.attention_data"
local svg = require "heed.plot.svg"

local M = {}

local STYLE = [==[
:root {
  color-scheme: light; --paper: #ffffff; --ink: #1c1e21; --soft: #5c636b; --line: #d9dce0; --card: #f6f7f8;
  --accent: #0b5cad; --mark: #fff0b3; --hatch: #c9cdd2;
}
@media (prefers-color-scheme: dark) { :root:not([data-theme="light"]) {
  color-scheme: dark; --paper: #14161a; --ink: #e8eaed; --soft: #a2a9b1; --line: #343a41; --card: #1d2026;
  --accent: #7db8f5; --mark: #5a4a10; --hatch: #4a5058;
} }
:root[data-theme="dark"] {
  color-scheme: dark; --paper: #14161a; --ink: #e8eaed; --soft: #a2a9b1; --line: #343a41; --card: #1d2026;
  --accent: #7db8f5; --mark: #5a4a10; --hatch: #4a5058;
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem; max-width: 90rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif;
}
h1 { margin: 0; font-size: 1.35rem; font-weight: 600; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 1.1rem; font-weight: 600; }
p { margin: 0.3rem 0; color: var(--soft); max-width: 65rem; }
[hidden] { display: none !important; }
.controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin: 1rem 0; }
.controls label { color: var(--soft); }
.space { flex: 1; }
button, select, input {
  font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: 5px;
  padding: 0.2rem 0.55rem;
}
button { cursor: pointer; }
button:hover { border-color: var(--soft); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.scale { display: flex; align-items: center; gap: 0.4rem; color: var(--soft); font-size: 0.85rem; }
.ticks { display: flex; flex-wrap: wrap; justify-content: space-between; width: 9rem; line-height: 1.2; }
.ticks canvas { width: 9rem; height: 0.7rem; border-radius: 2px; margin-bottom: 2px; }
.hidden-swatch { width: 0.9rem; height: 0.9rem; border: 1px solid var(--line); }
.hidden-swatch, .map, .small {
  background: repeating-linear-gradient(135deg, var(--paper) 0 3px, var(--hatch) 3px 4px);
}
.overview { overflow-x: auto; padding: 3px; }
.row { display: flex; gap: 6px; align-items: center; margin-bottom: 6px; }
.row .name { flex: none; width: 4.2rem; color: var(--soft); font-size: 0.85rem; }
.row.top span { flex: none; width: 66px; text-align: center; color: var(--soft); font-size: 0.85rem; }
.row.top span.name { width: 4.2rem; text-align: left; }
.row button { flex: none; padding: 0; border-radius: 3px; line-height: 0; overflow: hidden; }
.row button:hover { border-color: var(--accent); }
.small { width: 64px; height: 64px; image-rendering: pixelated; }
.bar { display: flex; gap: 0.6rem; align-items: center; margin-bottom: 0.6rem; flex-wrap: wrap; }
.status { min-height: 3em; max-height: 6em; margin: 0 0 0.6rem; overflow: auto; overflow-wrap: anywhere; }
.panes { display: flex; flex-wrap: wrap; gap: 2rem; align-items: flex-start; }
.chart {
  display: grid; grid-template-columns: auto auto; justify-content: start; max-width: 100%; overflow: auto;
  font-size: 12px;
}
.map { image-rendering: pixelated; cursor: crosshair; }
.side { text-align: right; padding-right: 5px; }
.side div, .over div { overflow: hidden; text-overflow: ellipsis; white-space: pre; color: var(--soft); }
.side div { max-width: 9em; margin-left: auto; }
.over { display: flex; grid-column: 2; align-items: flex-end; padding-bottom: 4px; }
.over div { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 9em; flex: none; }
.side .on, .over .on { color: var(--ink); font-weight: 600; }
.links {
  position: relative; flex: 1; display: grid; grid-template-columns: minmax(4em, 13em) 9rem minmax(7em, 17em);
  min-width: 20rem; max-width: 44rem; max-height: 80vh; padding: 0 0.5rem 0.5rem; overflow: auto;
  border: 1px solid var(--line); border-radius: 6px;
}
.links .head {
  position: sticky; top: 0; z-index: 1; padding: 0.4rem 6px; background: var(--paper); color: var(--soft);
  font-size: 0.85rem;
}
.links .head:first-child { text-align: right; }
.token {
  width: 100%; height: 20px; padding: 0 6px; border-radius: 3px; font-size: 13px; line-height: 20px;
  white-space: pre; overflow: hidden; text-overflow: ellipsis; cursor: default;
}
.from .token { text-align: right; cursor: pointer; }
.to .token { text-align: left; display: flex; gap: 0.5em; justify-content: space-between; }
.to .token span { overflow: hidden; text-overflow: ellipsis; }
.to .token b { font-weight: 600; font-variant-numeric: tabular-nums; }
.to .faint b { color: var(--soft); font-weight: 400; }
.token.on { background: var(--card); box-shadow: inset 0 0 0 1px var(--accent); }
.token.reached { background: var(--card); }
.token.found span, .from .token.found { background: var(--mark); }
.links svg { width: 100%; overflow: visible; color: var(--accent); }
.links path { fill: none; stroke: currentColor; }
.keys { font-size: 0.85rem; margin-top: 1.2rem; }
kbd {
  padding: 0 0.3em; border: 1px solid var(--line); border-radius: 3px; color: var(--ink); font: inherit;
  font-size: 0.9em;
}
@media (prefers-reduced-motion: no-preference) {
  .token, .row button { transition: border-color 0.1s, background 0.1s; }
}
@media print {
  :root, :root[data-theme] {
    color-scheme: light; --paper: #fff; --ink: #000; --soft: #333; --line: #999; --card: #eee; --hatch: #aaa;
    --accent: #0b5cad;
  }
  body { padding: 0; max-width: none; font-size: 10pt; }
  .controls label, .controls input, .controls button, .bar button, .keys { display: none; }
  canvas, .hidden-swatch { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .small { width: 12mm; height: 12mm; }
  .row.top span { width: calc(12mm + 2px); }
  .row { break-inside: avoid; }
  .links { max-height: none; overflow: visible; } .overview { overflow: visible; }
}
]==]

local PAGE = [==[
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
  script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<title>@TITLE@</title>
<style>
@STYLE@</style>
</head>
<body>
<header>
<h1 dir="auto">@TITLE@</h1>
<p>@ABOUT@</p>
<div class="controls">
<label>Layer <select id="layer"></select></label>
<label>Head <select id="head"></select></label>
<label>Token <input type="search" id="search" size="14" aria-describedby="found"></label>
<span id="found" role="status"></span>
<span class="space"></span>
<span class="scale"><span class="ticks">
<canvas id="scale" width="256" height="1" role="img" aria-label="The colours of weights"></canvas>
<span>0</span><span id="middle"></span><span id="most"></span></span>
<span class="hidden-swatch" role="img" aria-label="hatched"></span> hidden</span>
<button id="theme" type="button">Dark</button>
</div>
</header>
<main>
<section id="overview" class="overview" aria-label="All heads"></section>
<section id="detail" aria-label="One head" hidden>
<div class="bar">
<button id="close" type="button">← All heads</button>
<h2 id="name"></h2>
</div>
<div id="status" class="status" role="status" aria-live="polite"></div>
<div class="panes">
<div class="chart">
<div id="over" class="over" aria-hidden="true"></div>
<div id="side" class="side" aria-hidden="true"></div><canvas id="map" class="map" role="img"></canvas>
</div>
<div class="links" id="links">
<div class="head">from</div><div class="head"></div><div class="head">to</div>
<div class="from" id="from" role="listbox" aria-label="Queries"></div>
<svg id="curves" aria-hidden="true"></svg>
<div class="to" id="to" role="list" aria-label="Keys"></div></div>
</div>
</section>
<p class="keys"><kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> other heads, and tokens in the list ·
<kbd>Enter</kbd> enlarges, and keeps a token · <kbd>Esc</kbd> back · <kbd>/</kbd> finds tokens</p>
</main>
<noscript><p>This page draws its maps with JavaScript, which is turned off.</p></noscript>
<script type="application/json" id="data">@DATA@</script>
<script type="text/plain" id="weights">@WEIGHTS@</script>
<script type="text/plain" id="masks">@MASKS@</script>
<script>
@SCRIPT@</script>
</body>
</html>
]==]

-- ---- JSON ---------------------------------------------------------------------------------------

-- A clean text as JSON that is safe inside a script element.
local function json_string(s)
  return '"' .. s:gsub('[%z\1-\31"\\<>&\127]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function json_list(list, each)
  local parts = {}
  for i, value in ipairs(list) do
    if i % 1024 == 0 then E.check_cancel "attention" end
    parts[i] = each(value)
  end
  return "[" .. table.concat(parts, ",") .. "]"
end

local function integer(n) return ("%d"):format(n) end
local function number(x) return (("%.9g"):format(x):gsub(",", ".")) end

local function colour_table()
  local map, parts = colours.map "viridis", {}
  for i = 0, 255 do parts[i + 1] = colours.hex(map(i / 255)):sub(2) end
  return table.concat(parts)
end

local function as_json(chart, packed)
  local heads = {}
  for i, layer in ipairs(chart.layers) do heads[i] = layer.shape[1] end
  local fields = {
    '"form":' .. json_string(packed.form), '"scale":' .. number(packed.scale), '"heads":' .. json_list(heads, integer),
    '"queries":' .. json_list(chart.queries, json_string), '"colours":"' .. colour_table() .. '"',
  }
  if chart.keys ~= chart.queries then fields[#fields + 1] = '"keys":' .. json_list(chart.keys, json_string) end
  if packed.mask_of then fields[#fields + 1] = '"maskOf":' .. json_list(packed.mask_of, integer) end
  if chart.head then fields[#fields + 1] = '"open":' .. json_list(chart.head, integer) end
  return "{" .. table.concat(fields, ",") .. "}"
end

-- ---- Text ---------------------------------------------------------------------------------------

local function about(chart, packed)
  local layers, first = chart.layers, chart.layers[1]
  local heads, most = first.shape[1], first.shape[1]
  for _, layer in ipairs(layers) do heads, most = math.min(heads, layer.shape[1]), math.max(most, layer.shape[1]) end
  local size = ("%s × %s"):format(E.count(#layers, "layer"), heads == most and E.count(heads, "head")
    or ("%d to %d heads"):format(heads, most))
  local tokens = chart.keys == chart.queries and E.count(#chart.keys, "token")
    or ("%d queries and %d keys"):format(#chart.queries, #chart.keys)
  local parts = { size .. ", " .. tokens .. ". A row of a map is a token that looks, a column one that is looked at." }
  if packed.form == "sparse" then
    parts[#parts + 1] = ("This page keeps the strongest weights of each row, at most %d: %.0f %% of all weight. The "
      .. "others are summed for each row (“rest”). Weights are rounded by at most 1/255."):format(packed.kept,
      math.floor(packed.share * 100))
    if not packed.mask_of then
      parts[#parts + 1] = "The heads hide too many different places for these to be shown apart from small weights."
    end
  else
    parts[#parts + 1] = "The page holds all weights, rounded to 16 bits."
  end
  return table.concat(parts, " ")
end

--- The page as text. chart: layers (tensors [heads, l, s]), queries and keys (clean labels), title and head, which may
--- be nil. options: full and top, as attention_data.pack takes them. Without these two, the page has at most `most`
--- bytes.
function M.render(chart, options, most)
  local title = svg.escape(chart.title or "Attention")
  local parts = { STYLE = STYLE, SCRIPT = require "heed.plot.attention_script", TITLE = title }
  local json_bytes = #as_json(chart, { form = "sparse", scale = 1 })
  for _, layer in ipairs(chart.layers) do json_bytes = json_bytes + 6 * layer.shape[1] end
  local other = #PAGE + #STYLE + #parts.SCRIPT + json_bytes + 2 * #title + 2048
  local packed = data.pack(chart.layers, { bytes = most - other, full = options.full, top = options.top })
  parts.ABOUT, parts.DATA = about(chart, packed), as_json(chart, packed)
  parts.WEIGHTS, parts.MASKS = data.base64(packed.bytes), data.base64(packed.masks or "")
  core.check_cancel "attention"
  return (PAGE:gsub("@(%u+)@", parts))
end

return M
