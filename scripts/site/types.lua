-- Types of the annotations as Markdown, and what a table of options may contain.
-- The parser; a function from the name of a class or an alias to its link, or nil; whether a text is the name of a
-- function.
local annotations, link_of, is_name = ...

local types = {}

-- Names of functions, and calls of them, as code: the site makes links of these.
local function with_code(text)
  local parts, at = {}, 1
  while true do
    local first, last = text:find("%f[%w_]%a[%w_]*[.:][%w_.:]*[%w_]", at)
    if not first then break end
    local name = text:sub(first, last)
    if is_name(name) then
      last = select(2, text:find("^%b()", last + 1)) or select(2, text:find("^ ?%b{}", last + 1)) or last
      parts[#parts + 1] = text:sub(at, first - 1) .. "`" .. text:sub(first, last) .. "`"
    else
      parts[#parts + 1] = text:sub(at, last)
    end
    at = last + 1
  end
  return table.concat(parts) .. text:sub(at)
end

-- Calls f for what is outside of code spans.
local function outside_code(text, f)
  local parts, at = {}, 1
  for before, span, after in text:gmatch "([^`]*)(`[^`]*`)()" do
    parts[#parts + 1] = f(before) .. span
    at = after
  end
  return table.concat(parts) .. f(text:sub(at))
end

--- Markdown that shows a text as it is.
function types.plain(text)
  text = text:gsub("<", "&lt;"):gsub("%*", "\\*"):gsub("%]%(", "]\\(")
  text = text:gsub("([^%w_\\])_", "%1\\_"):gsub("_([^%w_])", "\\_%1")
  return (text:gsub("^_", "\\_"):gsub("_$", "\\_"))
end

--- The same, but for code spans and the bullets at the beginnings of lines, and with names of functions as code.
function types.escape(text)
  text = outside_code(outside_code(text, with_code), types.plain)
  return (text:gsub("^\\%* ", "* "):gsub("^([#+-] ?)", "\\%1"))
end

--- The same on one line, for a cell of a table.
function types.cell(text) return (types.escape(text):gsub("|", "\\|"):gsub("\n", " ")) end

local PLURALS = { integer = "integers", number = "numbers", string = "strings", boolean = "booleans", any = "values",
  table = "tables" }

local function split_list(text)
  local list, depth, from = {}, 0, 1
  for i = 1, #text do
    local c = text:sub(i, i)
    if c:find "[%(%{<]" then depth = depth + 1 elseif c:find "[%)%}>]" then depth = depth - 1 end
    if c == "," and depth == 0 then
      list[#list + 1] = text:sub(from, i - 1)
      from = i + 1
    end
  end
  if text:find "%S" then list[#list + 1] = text:sub(from) end
  return list
end

local function function_text(kind)
  local inside, after = kind:match "^fun(%b())(.*)$"
  local names = {}
  for _, parameter in ipairs(split_list(inside:sub(2, -2))) do names[#names + 1] = parameter:match "[%w_.]+" end
  local results = {}
  for i, result in ipairs(split_list(after:match "^:%s*(.*)$" or "")) do results[i] = types.markdown(result) end
  local text = "function(" .. table.concat(names, ", ") .. ")"
  return #results > 0 and ("%s giving %s"):format(text, table.concat(results, " and ")) or text
end

local function one(kind)
  local optional = kind:find "%?$"
  kind = kind:gsub("%?$", ""):gsub("^%s+", ""):gsub("%s+$", "")
  local text
  if kind:find "^fun%(" then
    text = function_text(kind)
  elseif kind:find '^"' or kind:find "^%-?%d" then
    text = "`" .. kind .. "`"
  elseif kind:find "^%(" then
    local item, is_list = kind:match "^(%b())(.*)$"
    text = (is_list == "[]" and "list of " or "") .. types.markdown(item:sub(2, -2))
  elseif kind:find "%[%]$" then
    local item = kind:sub(1, -3)
    text = "list of " .. (PLURALS[item] or item == "heed.Tensor" and "tensors" or one(item))
  elseif kind:find "^table<" then
    text = "table"
  elseif kind:find "^{" then
    local fields = {}
    for _, field in ipairs(split_list(kind:sub(2, -2))) do fields[#fields + 1] = field:match "[%w_%[%]]+" end
    text = "table {" .. table.concat(fields, ", ") .. "}"
  elseif kind == "heed.Tensor" then
    text = "tensor"
  elseif kind == "any" then
    text = "any value"
  else
    if kind:find "^heed%." and not annotations.class(kind) and not annotations.aliases()[kind] then
      error("the annotations have no type " .. kind, 0)
    end
    local link = link_of(kind)
    text = link and ("[%s](%s)"):format(kind:gsub("^heed%.", ""), link) or kind:gsub("^heed%.", "")
  end
  return text .. (optional and " or nil" or "")
end

--- Whether a class describes a table of options: it has fields, and neither functions nor calls.
function types.is_options(name)
  local class = annotations.class(name)
  if not class or not name:find "%u%w*$" then return false end
  local fields = 0
  local object = #class.overloads > 0
  annotations.each(name, function(field)
    fields = fields + 1
    object = object or field.is_function == true
  end)
  return fields > 0 and not object
end

local STANDS_FOR_OPTIONS = {} -- names that are options by their endings are not shown as types
for _, ending in ipairs { "Options", "Option", "Forward", "Part" } do STANDS_FOR_OPTIONS[ending] = true end

local function is_table_of_options(part)
  part = part:gsub("%?$", "")
  if part:find "^{" then return not part:find "^{%s*%[" end
  if not types.is_options(part) then return false end
  for ending in pairs(STANDS_FOR_OPTIONS) do
    if part:find(ending .. "$") then return true end
  end
  return part:find "^heed%.Init%u" ~= nil or part == "heed.Limits"
end

--- A type: "integer or list of integers". Tables of options are left out if there is something else, as their fields
--- are shown elsewhere.
function types.markdown(kind, leave_out)
  local shown, seen = {}, {}
  for _, part in ipairs(annotations.alternatives(kind)) do
    if not (leave_out and is_table_of_options(part)) then
      local text = one(part)
      if not seen[text] then shown[#shown + 1] = text end
      seen[text] = true
    end
  end
  if #shown == 0 then return "table of options" end
  local last = table.remove(shown)
  return #shown > 0 and table.concat(shown, ", ") .. " or " .. last or last
end

--- The fields of the tables of options in a type.
function types.options(kind)
  local list = {}
  for _, part in ipairs(annotations.alternatives(kind)) do
    if is_table_of_options(part) then annotations.add_options((part:gsub("%?$", "")), list) end
  end
  return list
end

return types
