-- A filter for pandoc: adds to each section a line "Related: …" with links to the two sections that are nearest in
-- meaning.  LUA_CPATH='build/lua5.3/?.so;;' HEED_MODEL=FOLDER pandoc -L pandoc_related.lua book.md -o book.html
-- Debian's pandoc is linked with Lua 5.3 and loads C modules; pandoc's own binaries have Lua 5.4 (build/?.so).
local MOST = tonumber(os.getenv "HEED_RELATED") or 2

local heed = require "heed"
heed.limit { seconds = 120, memory = 2 ^ 30 } -- for each call
local folder = os.getenv "HEED_MODEL" or error("HEED_MODEL is not set; it must be the folder of a sentence encoder", 0)
local model = assert(heed.models.load(folder))

function Pandoc(doc)
  -- Sections: a header, and the text up to the next header, of any level.
  local sections = {}
  for _, block in ipairs(doc.blocks) do
    local section = sections[#sections]
    if block.t == "Header" then
      sections[#sections + 1] = { header = block, text = { pandoc.utils.stringify(block) }, blocks = { block } }
    elseif section then
      table.insert(section.text, pandoc.utils.stringify(block))
      table.insert(section.blocks, block)
    else
      sections[1] = { blocks = { block } } -- what comes before the first header
    end
  end
  local texts, of = {}, {}
  for _, section in ipairs(sections) do
    if section.header then
      texts[#texts + 1] = table.concat(section.text, "\n")
      of[#texts] = section
    end
  end
  if #texts < 2 then return nil end
  local vectors = model:encode(texts)
  local scores = vectors:matmul(vectors:transpose(1, 2))
  scores:diagonal():fill_(-2) -- no section is related to itself
  for i, section in ipairs(of) do
    local _, order = scores[i]:topk(math.min(MOST, #texts - 1))
    local line = { pandoc.Emph { pandoc.Str "Related:" } }
    for n, index in ipairs(order:tolist()) do
      local header = of[index].header
      if n > 1 then table.insert(line, pandoc.Str ",") end
      table.insert(line, pandoc.Space())
      table.insert(line, pandoc.Link(header.content, "#" .. header.identifier))
    end
    table.insert(section.blocks, pandoc.Para(line))
  end
  local blocks = {}
  for _, section in ipairs(sections) do
    for _, block in ipairs(section.blocks) do blocks[#blocks + 1] = block end
  end
  return pandoc.Pandoc(blocks, doc.meta)
end
