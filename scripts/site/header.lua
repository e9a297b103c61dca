-- src/heed.h as a page of Markdown: its sections, its comments as text, and its declarations as code.
local top, render = ...

local header = {}

-- The elements of a list macro: "#define HEED_TEST_LIST(X) X(isnan) X(isinf)".
local function elements(code)
  local names = {}
  for name in code:gsub("^#define [%w_]+%(X%)", ""):gmatch "%f[%w_]X%(([%w_]+)" do names[#names + 1] = name end
  return names
end

-- The names that some lines of code declare, in order, with those that list macros make.
local function declared(code, lists)
  local names, seen = {}, {}
  local function add(name)
    if not seen[name] and not name:find "__" and name ~= "HEED_H" then names[#names + 1] = name end
    seen[name] = true
  end
  local flat = code:gsub("/%*.-%*/", ""):gsub("\\\n", " ")
  local pattern -- what X makes of a name: "heed_%s"
  local open -- whether a declaration goes on
  for line in flat:gmatch "[^\n]+" do
    local list = line:match "^#define (HEED_[%w_]+)%(X%)"
    local body = line:match "^#define X%b()%s*(.*)$"
    local macro = line:match "^#define (HEED_[%w_]+)"
    if list then
      lists[list] = elements(line)
    elseif body then
      local before = body:match "%f[%w_]([%w_]+)##name"
      pattern = before and before .. "%s"
    elseif line:find "^%s*HEED_[%w_]+_LIST%(X%)" then
      for _, name in ipairs(pattern and lists[line:match "HEED_[%w_]+"] or {}) do add(pattern:format(name)) end
    elseif macro then
      add(macro)
    elseif line:find "^#define heed_" then
      add(line:match "^#define (heed_[%w_]+)")
    elseif not line:find "^#" then
      local callback = not open and line:match "^typedef [%w_ *]- %*?(heed_[%w_]+)%("
      local made = line:match "^} (heed_[%w_]+);" or line:match "^typedef [%w_ ]+ (heed_[%w_]+);"
      local whole = line:match "^typedef enum [%w_]+ {(.*)} "
      if callback or made then add(callback or made) end
      if whole or open == "enum" then
        for name in (whole or line):gmatch "HEED_[%u%d_]+" do add(name) end
      end
      if whole then add(line:match "} (heed_[%w_]+);") end
      if open ~= "enum" and open ~= "struct" then
        local name = line:match "^HEED_%u+ .-(heed_[%w_]+)%(" or open == "function" and line:match "^%s*(heed_[%w_]+)%("
          or line:match "^(heed_[%w_]+)%("
        if name then add(name) end
      end
      if line:find "^typedef enum [%w_]+ {$" then open = "enum"
      elseif line:find "^typedef struct [%w_]+ {$" then open = "struct"
      elseif line:find "^}" then open = nil
      elseif line:find "^HEED_" and not line:find "%(" then open = "function"
      elseif open == "function" and line:find ";" then open = nil end
    end
  end
  return names
end

local function text_of(comment)
  local paragraphs, lines = {}, {}
  local inside = comment:gsub("^/%*%*?%s*", ""):gsub("%s*%*/%s*$", "")
  for indented in (inside .. "\n"):gmatch "([^\n]*)\n" do
    local line = indented:gsub("^%s*%* ?", "")
    if line == "" then
      if #lines > 0 then paragraphs[#paragraphs + 1] = lines end
      lines = {}
    else
      lines[#lines + 1] = line
    end
  end
  if #lines > 0 then paragraphs[#paragraphs + 1] = lines end
  return paragraphs
end

-- Functions and types, without the constants of an enum beside them; of many names the first ones.
local function heading_of(names)
  local shown = {}
  for _, name in ipairs(names) do
    if name:find "^heed" then shown[#shown + 1] = name end
  end
  if #shown == 0 then shown = names end
  return #shown <= 4 and table.concat(shown, ", ") or ("%s, %s and %d more"):format(shown[1], shown[2], #shown - 2)
end

-- The header as a list: {section = …}, {comment = …, code = …}.
local function read()
  local list, item, comment = {}, nil, nil
  local skipping = true -- up to the first section, but for the comment above
  for line in io.lines(top .. "src/heed.h") do
    local section = line:match "^/%* %-%-%-%- (.-) %-%-%-%- %*/$"
    if comment then
      comment[#comment + 1] = line
    elseif section then
      skipping = false
      list[#list + 1] = { section = (section:gsub(" %([%w_/., ]+%)$", "")) }
      item = nil
    elseif line:find "^#ifdef __cplusplus" and not skipping then
      break
    elseif line:find "^/%*" and not line:find "clang%-format" then
      comment = { line }
    elseif line == "" then
      item = nil
    elseif not skipping and not line:find "clang%-format" then
      if not item then
        item = { code = {} }
        list[#list + 1] = item
      end
      table.insert(item.code, line)
    end
    if comment and line:find "%*/%s*$" then
      item = { comment = table.concat(comment, "\n"), code = {} }
      comment = nil
      if not skipping or #list == 0 then list[#list + 1] = item end
    end
  end
  return list
end

-- A paragraph of the head comment begins with its subject: "Threads. A context, …".
local function add_text(lines, comment, is_head)
  for _, paragraph in ipairs(text_of(comment)) do
    for i, line in ipairs(paragraph) do
      if not line:find "`" then paragraph[i] = line:gsub("%f[%w_]heed_[%w_]*%w", "`%0`") end
    end
    local text = render.prose(paragraph)
    if is_head then text[1] = text[1]:gsub("^(%u[%w ]-)%. ", "**%1.** ", 1) end
    render.add(lines, "", table.unpack(text))
  end
end

--- The page as a list of lines, and the place of every declared name.
function header.page()
  local lines = { "# C", "", "`src/heed.h` is the complete C interface; this page shows it by its sections. "
    .. "[Embedding](../embedding.md) explains it with programs." }
  local places, lists, used = {}, {}, {}
  for i, item in ipairs(read()) do
    if item.section then
      render.add(lines, "", "## " .. item.section)
    else
      local code = table.concat(item.code, "\n")
      local names, new = declared(code, lists), {}
      for _, name in ipairs(names) do
        if not places[name] then new[#new + 1] = name end
      end
      if #new > 0 then
        local heading = heading_of(new)
        local anchor = render.anchor(heading)
        assert(not used[anchor], heading .. " is there twice")
        used[anchor] = true
        render.add(lines, "", "### " .. heading)
        for _, name in ipairs(new) do places[name] = "c.md#" .. anchor end
      end
      if item.comment then add_text(lines, item.comment, i == 1) end
      code = code:gsub(" +\\\n", " \\\n") -- the backslashes of the header stand in one column
      if code ~= "" then render.add(lines, "", "<!-- not run: a declaration -->", "```c", code, "```") end
    end
  end
  return lines, places
end

return header
