-- lighttpd's mod_magnet runs this for each request. It keeps one Lua state for this file in each process:
-- package.loaded lasts from one request to the next; globals do not.
local here = debug.getinfo(1, "S").source:match "^@?(.*/)"
local requests = assert(loadfile(here .. "requests.lua", "t", _ENV))() -- with lighty

local function encode(text, found)
  local parts = {}
  for i, at in ipairs(found) do
    parts[i] = ('{"line": %d, "score": %.6f, "text": %s}'):format(at.line, at.score, requests.quote(at.text))
  end
  return ('{"text": %s, "nearest": [%s]}'):format(requests.quote(text), table.concat(parts, ", "))
end

return requests.serve("/similar", function()
  local text = requests.parameters { text = true }.text
  if not text then requests.refuse(400, "text is missing; ask as in /similar?text=a+word+or+more") end
  requests.check_text(text)
  local nearest = package.loaded["similar.nearest"]
  if not nearest then
    nearest = assert(loadfile(here .. "nearest.lua"))(here)
    package.loaded["similar.nearest"] = nearest
  end
  return encode(text, nearest(text))
end)
