--- Small SVG pictures for the pages, all in one style. A picture has a background of its own, so that it can be read on
--- light and dark pages alike, and follows the reader's colour scheme where the viewer knows it.

local picture = {}
picture.__index = picture

local STYLE = [[<style>
text { font: 12px system-ui, sans-serif; fill: #24292f } .muted { fill: #57606a; font-size: 11px }
.page { fill: #f6f8fa; stroke: #d0d7de } .frame { fill: none; stroke: #8c959f }
.a { fill: #2563a8 } .b { fill: #b4540a } .c { fill: #6e7781 } .d { fill: #2b7a4b } .e { fill: #8250a8 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .muted { fill: #a5afba } .page { fill: #161b22; stroke: #444c56 } .frame { stroke: #768390 }
.a { fill: #5b9be0 } .b { fill: #f0a050 } .c { fill: #9aa4af } .d { fill: #56b97f } .e { fill: #bd93e0 }
}
</style>]]

function picture.new() return setmetatable({}, picture) end

function picture:add(line, ...)
  self[#self + 1] = select("#", ...) > 0 and line:format(...) or line
end

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }

--- `class` is nil or "muted"; `anchor` is nil, "middle" or "end".
function picture:text(x, y, text, class, anchor)
  local attributes = (class and (' class="%s"'):format(class) or "")
    .. (anchor and (' text-anchor="%s"'):format(anchor) or "")
  self:add('<text x="%d" y="%d"%s>%s</text>', x, y, attributes, (text:gsub("[&<>]", ESCAPES)))
end

--- The whole file.
function picture:finish(width, height)
  local head = ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">')
    :format(width, height, width, height)
  local page = ('<rect class="page" x=".5" y=".5" width="%d" height="%d" rx="6"/>'):format(width - 1, height - 1)
  return table.concat({ head, STYLE, page, table.concat(self, "\n"), "</svg>" }, "\n") .. "\n"
end

function picture.write(path, text)
  local file = assert(io.open(path, "w"))
  assert(file:write(text))
  assert(file:close())
end

return picture
