-- Entries as Markdown.
local top, annotations, types, runner = ...

local render = {}

local function add(page, ...)
  for i = 1, select("#", ...) do page[#page + 1] = (select(i, ...)) end
end

--- The name of a heading in links, as GitHub makes it.
function render.anchor(heading)
  return (heading:gsub("`", ""):lower():gsub("[^%w%-_ \128-\255]", ""):gsub(" ", "-"))
end

--- Lines of a description as a list of lines of Markdown; lines indented by four spaces are code.
function render.prose(doc)
  local lines, in_code = {}, false
  for i, line in ipairs(doc) do
    local code = line:match "^   ? ?(%s*%S.*)$"
    if line:find "^    ?" and code then
      if not in_code then
        if lines[#lines] and lines[#lines] ~= "" then lines[#lines + 1] = "" end
        lines[#lines + 1] = "<!-- not run: explained -->"
        lines[#lines + 1] = "```lua"
      end
      in_code = true
      lines[#lines + 1] = (line:gsub("^    ?", ""))
      if not (doc[i + 1] and doc[i + 1]:find "^   ") then
        lines[#lines + 1], in_code = "```", false
        lines[#lines + 1] = ""
      end
    else
      local escaped = types.escape(line)
      local before = lines[#lines]
      if escaped:find "^%* " and before and before ~= "" and not before:find "^%* " and not before:find "^  " then
        lines[#lines + 1] = ""
      end
      lines[#lines + 1] = escaped
    end
  end
  return lines
end

-- ---- Signatures ---------------------------------------------------------------------------------

local function arguments(params, from)
  local names = {}
  for i = from, #params do names[#names + 1] = params[i].name .. (params[i].optional and "?" or "") end
  return table.concat(names, ", ")
end

local function signature(name, record)
  local list = arguments(record.params, 1)
  if name:find "^heed%." and record.method then list = "x" .. (list ~= "" and ", " .. list or "") end
  return ("`%s(%s)`"):format(name, list)
end

local function signatures(entry)
  local lines = { signature(entry.name, entry.record) }
  if entry.name == "x:repeat" then return '`x["repeat"](x, ...)`, `heed["repeat"](x, ...)`' end
  local in_place = {}
  for _, other in ipairs(entry.others) do
    if other.name:find "_$" and not entry.name:find "_$" then
      in_place[#in_place + 1] = signature(other.name, other.record)
    elseif not other.name:find("^heed%.") or other.record ~= entry.record or entry.class ~= "heed" then
      lines[#lines + 1] = signature(other.name, other.record)
    end
  end
  local text = table.concat(lines, ", ")
  if #in_place > 0 then text = text .. "  \nIn place: " .. table.concat(in_place, ", ") end
  for _, overload in ipairs(entry.record.overloads) do
    local inside = overload:match "^fun(%b())"
    local names = {}
    for name, mark, kind in inside:sub(2, -2):gmatch "([%w_.]+)(%??):%s*([^,]+)" do
      if name ~= "self" and not (types.is_options(kind) and name == "options") then
        names[#names + 1] = name .. (mark or "")
      end
    end
    if not overload:find "^fun%(options" then
      text = text .. ("  \nOr: `%s(%s)`"):format(entry.name, table.concat(names, ", "))
    end
  end
  return text
end

-- ---- Arguments and results ----------------------------------------------------------------------

-- An argument that is nothing but a table of options needs no row if its fields say all: without a meaning of its own,
-- or with one that is that of its only field.
local function without_tables(rows)
  local kept = {}
  for _, row in ipairs(rows) do
    local fields = {}
    for _, other in ipairs(rows) do
      if other.name:sub(1, #row.name + 1) == row.name .. "." then fields[#fields + 1] = other end
    end
    if #fields == 1 and fields[1].doc == "" then fields[1].doc, row.doc = row.doc, "" end
    if row.doc ~= "" or types.markdown(row.type, true) ~= "table of options" then kept[#kept + 1] = row end
  end
  return kept
end

local function rows_of(record)
  local rows, by_name, by_options = {}, {}, {}
  for _, param in ipairs(record.params) do
    local row = { name = param.name, optional = param.optional, type = param.type, doc = param.doc[1] or "",
      positional = true }
    if not (param.type == "any" and row.doc == "" and param.name == "...") then
      rows[#rows + 1] = row
      by_name[param.name] = row
    end
  end
  local sources = {} -- of options: {type, the argument that is nothing but options}
  for _, param in ipairs(record.params) do
    local alone = types.markdown(param.type, true) == "table of options"
    local argument = alone and param.name .. "." or ""
    sources[#sources + 1] = { kind = param.type, argument = argument, doc = param.doc[1] or "" }
  end
  for _, overload in ipairs(record.overloads) do
    local kind = annotations.options_and_result(overload)
    if kind then sources[#sources + 1] = { kind = kind, argument = "", doc = "" } end
  end
  for _, source in ipairs(sources) do
    local fields = types.options(source.kind)
    for _, field in ipairs(fields) do
      local row = by_name[field.name]
      if row and row.positional and source.argument == "" then
        row.named = true
        if row.doc == "" then row.doc = field.doc[1] or "" end
      elseif not row then
        local kind = field.type:gsub("%s+$", "")
        row = { name = source.argument .. field.name, optional = field.optional or kind:find "%?$" ~= nil,
          type = kind:gsub("%?$", ""), doc = field.doc[1] or "", named = source.argument == "" }
        if #fields == 1 and row.named and row.doc == "" then row.doc = source.doc end
        by_name[field.name] = row
        by_options[#by_options + 1] = row
      elseif row.doc == "" then
        row.doc = field.doc[1] or ""
      end
    end
  end
  for _, row in ipairs(by_options) do rows[#rows + 1] = row end
  return without_tables(rows)
end

render.rows_of = rows_of

local function table_of(page, rows, heading)
  add(page, "", ("| %s | type | meaning |"):format(heading), "| --- | --- | --- |")
  for _, row in ipairs(rows) do
    local kind = types.markdown(row.type, row.positional):gsub("|", "\\|")
    if kind == "table of options" then kind = "table" end
    local meaning = row.doc:gsub("^%.%.%.%s*", "") -- of a type such as "any ...", any number of values
    add(page, ("| `%s`%s | %s | %s |"):format(row.name, row.optional and "?" or "", kind, types.cell(meaning)))
  end
end

local function results_of(page, record)
  if #record.returns == 0 then return end
  local parts = {}
  for i, result in ipairs(record.returns) do
    local name, rest = result.doc:match "^([%a_][%w_]*)%s*(.*)$"
    local is_name = name and (rest == "" or #name > 1 or #record.returns > 1) and not result.doc:find "^of " and
      not result.doc:find "^as " and not result.doc:find "^such "
    local text = types.markdown(result.type)
    local doc = result.doc
    if is_name and name ~= "self" then
      text, doc = ("`%s`, %s"):format(name, text), rest
    elseif name == "self" then
      text, doc = "the object itself", rest
    end
    if doc ~= "" then text = text .. (doc:find "^[%[:(]" and " " or ": ") .. types.escape(doc:gsub("^:%s*", "")) end
    parts[i] = text
  end
  if #parts == 1 then
    add(page, "", "Result: " .. parts[1] .. ".")
  else
    add(page, "", "Results:", "")
    for i, part in ipairs(parts) do add(page, ("%d. %s"):format(i, part)) end
  end
end

-- ---- Entries ------------------------------------------------------------------------------------

--- The example of an entry with its output, or why it has none.
function render.example(page, name)
  local run = runner.run(name)
  if not run then
    local reason = runner.reason(name)
    if reason then add(page, "", "No example: " .. reason .. ".") end
    return
  end
  add(page, "", "```lua", (run.code:gsub("\n$", "")), "```")
  if run.output ~= "" then add(page, "", "```text", (run.output:gsub("\n$", "")), "```") end
end

local function is_derived(name, ancestor)
  if name == ancestor then return true end
  for _, parent in ipairs(annotations.class(name) and annotations.class(name).parents or {}) do
    if is_derived(parent, ancestor) then return true end
  end
  return false
end

-- Classes whose fields are not listed again with those that are derived from them.
local BASES = { "heed.Module", "heed.Decoder", "heed.Encoder" }

local function fields_of(page, class)
  local rows = {}
  annotations.each(class, function(field)
    local inherited = false
    for _, base in ipairs(BASES) do
      inherited = inherited or class ~= base and annotations.class(base).fields[field.name] == field
    end
    if not field.is_function and not field.type:find "^fun%(self" and not inherited then
      rows[#rows + 1] = { name = field.name, optional = field.optional, type = field.type, doc = field.doc[1] or "" }
    end
  end)
  if #rows > 0 then table_of(page, rows, "field") end
end

--- What a class is, its call and its fields.
function render.class(page, name)
  local class = annotations.class(name)
  if #class.doc > 0 then
    add(page, "")
    add(page, table.unpack(render.prose(class.doc)))
  end
  for _, overload in ipairs(class.overloads) do
    local inside, result = overload:match "^fun(%b()):?%s*(.*)$"
    local names = {}
    for parameter, mark in inside:sub(2, -2):gmatch "([%w_.]+)(%??):" do names[#names + 1] = parameter .. mark end
    local kinds = {}
    for kind in (result .. ", "):gmatch "(.-), " do kinds[#kinds + 1] = types.markdown(kind) end
    local maker = name:match "^heed%.(%w+)Class$"
    local object = is_derived(name, "heed.Module") and "m" or name:match("[%w_]+$"):lower()
    add(page, "", ("A call: `%s(%s)` gives %s."):format(maker or object,
      table.concat(names, ", "), #kinds > 0 and table.concat(kinds, " and ") or "nothing"))
  end
  fields_of(page, name)
end

--- One entry, under a heading of that level ("##"). `class` is what it makes, if that is described here.
function render.entry(page, entry, class, level)
  local record = entry.record
  add(page, "", level .. " " .. types.plain(entry.name), "", signatures(entry))
  if #record.doc > 0 then
    add(page, "")
    add(page, table.unpack(render.prose(record.doc)))
  end
  local rows, named = rows_of(record), {}
  for _, row in ipairs(rows) do
    if row.named then named[#named + 1] = "`" .. row.name .. "`" end
  end
  if #rows > 0 then table_of(page, rows, "argument") end
  if #named > 0 then add(page, "", "By name, in a table at the end: " .. table.concat(named, ", ") .. ".") end
  results_of(page, record)
  if class then render.class(page, class) end
  render.example(page, entry.name)
end

render.add = add
render.top = top
return render
