-- Writes the reference as Markdown: build/heed scripts/site/reference.lua FOLDER
--
-- One page for each subject of subjects.lua, made from the annotations in lua/heed/meta; types.md; c.md, made from
-- src/heed.h; index.md with all names; and names.json, which maps every way to write a name ("x:sum", "heed.sum",
-- "heed_sum") to its place ("reductions.md#xsum"). Links between pages are those of a folder docs/reference.
--
-- The examples of scripts/site/examples are run; what they print is shown below them. The line
-- <!-- examples run after: CODE --> of a page is what each of its Lua blocks needs before it, and each block is a
-- script of its own.
local top = arg[0]:match "^(.*)scripts/site/[^/]*$"
local out = arg[1]
if not top or not out then
  io.stderr:write "usage: heed scripts/site/reference.lua FOLDER\n"
  os.exit(1)
end

-- Examples write files into the current folder, so the work is done in a temporary one.
if arg[2] ~= "here" then
  local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end
  local fine, _, code = os.execute(([[
    out=$(cd %s && pwd) && top=$(cd %s && pwd) && heed=$(command -v %s) || exit 1
    case $heed in /*) ;; *) heed=$PWD/$heed ;; esac
    folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
    cd "$folder" && "$heed" "$top/scripts/site/reference.lua" "$out" here
  ]]):format(quoted(out), quoted(top == "" and "." or top), quoted(arg[-1])))
  os.exit(fine and 0 or code)
end

local function part(name, ...) return assert(loadfile(top .. "scripts/site/" .. name .. ".lua"))(...) end

local entries = part("entries", top)
local annotations = entries.annotations
local subjects = part "subjects"
local links = {} -- by the name of a class or an alias
local names = {} -- how a name may be written → its place
local used = {} -- the types to which a page links
local types = part("types", annotations, function(name)
  used[name] = true
  return links[name]
end, function(name) return names[name] ~= nil end)
local runner = part("examples", top)
local render = part("render", top, annotations, types, runner)
local header = part("header", top, render)
local add, anchor = render.add, render.anchor

-- ---- Which entry is where -----------------------------------------------------------------------

local all = entries.read()
local by_name, by_class = {}, {}
for _, entry in ipairs(all) do
  assert(not by_name[entry.name], "two entries are called " .. entry.name)
  by_name[entry.name] = entry
  by_class[entry.class] = by_class[entry.class] or {}
  table.insert(by_class[entry.class], entry)
end

local function place(entry, page)
  assert(not entry.page, ("%s is on two pages, %s and %s"):format(entry.name, entry.page, page.file))
  entry.page = page.file
end

-- Parts with names come first, since they win.
for _, page in ipairs(subjects) do
  for _, group in ipairs(page.groups) do
    for i = 2, #group do
      if by_name[group[i]] then place(by_name[group[i]], page) end
    end
  end
end

local is_made = {} -- the class → the entry of its constructor
for _, entry in ipairs(all) do
  local class = entries.made_by(entry)
  if class then is_made[class] = entry end
end

-- A class of classes, such as that of nn.Transformer, is shown together with the class of its objects.
local HEADINGS = { ["heed.ModuleClass"] = "nn.Module", ["heed.TransformerClass"] = "nn.Transformer" }

local function heading_of(class) return HEADINGS[class] or class:gsub("Class$", ""):match "[%w_]+$" end

local function object_of(class)
  local object = class:match "^(.*)Class$"
  return object ~= "heed.Module" and annotations.class(object) and object
end

-- What a group shows: {entry = …} and {class = …}, in order.
local function contents(page, group)
  local shown = {}
  local function show(entry)
    shown[#shown + 1] = { entry = entry }
    local class = entries.made_by(entry)
    if class then
      links[class] = ("%s.md#%s"):format(page.file, anchor(entry.name))
      for _, method in ipairs(by_class[class] or {}) do
        if not method.page then
          place(method, page)
          show(method)
        end
      end
    end
  end
  for i = 2, #group do
    local name = group[i]
    if by_name[name] then
      show(by_name[name])
    else
      local only_fields = name:match "^fields of (.*)$"
      name = only_fields or name
      local class, section = name:match "^(.-):(.*)$"
      local owner = annotations.class(class or name)
      assert(owner, name .. " is neither an entry nor a class")
      if only_fields or not class and not is_made[name] and name:find "^heed%.%u" then
        shown[#shown + 1] = { class = name }
        links[name] = ("%s.md#%s"):format(page.file, anchor(heading_of(name)))
        if object_of(name) then links[object_of(name)] = links[name] end
      end
      for _, entry in ipairs(not only_fields and by_class[class or name] or {}) do
        if not entry.page and (not section or (entry.record.section or "") == section) then
          place(entry, page)
          show(entry)
        end
      end
    end
  end
  return shown
end

for _, page in ipairs(subjects) do
  page.shown = {}
  for i, group in ipairs(page.groups) do page.shown[i] = contents(page, group) end
end

-- Stops with a message that lists the names for which `is_wrong` is true.
local function refuse(message, list, is_wrong)
  local wrong = {}
  for _, each in ipairs(list) do
    if is_wrong(each) then wrong[#wrong + 1] = each.name or each end
  end
  if #wrong > 0 then error(message .. table.concat(wrong, ", "), 0) end
end

refuse("scripts/site/subjects.lua has no page for ", all, function(entry) return not entry.page end)
refuse("scripts/site/examples has no example of ", all, function(entry)
  return not runner.has(entry.name) and not runner.reason(entry.name)
end)

-- ---- Types that no page describes ---------------------------------------------------------------

local named_types = {}
for name in pairs(annotations.aliases()) do named_types[#named_types + 1] = name end
for name, class in pairs(annotations.classes()) do
  local fields = 0
  annotations.each(name, function() fields = fields + 1 end)
  if not links[name] and name:find "^heed%.%u" and (fields > 0 or #class.doc > 0) and not name:find "Class$"
    and not entries.of_tensor[name] then
    named_types[#named_types + 1] = name
  end
end
table.sort(named_types)
for _, name in ipairs(named_types) do links[name] = "types.md#" .. anchor(name:match "[%w_]+$") end

-- ---- How a name may be written ------------------------------------------------------------------

local function name_of_class(class) return class:match "[%w_]+$" end

local function register(name, target)
  if name then names[name] = names[name] or target end
end

local function register_entry(entry)
  local target = ("%s.md#%s"):format(entry.page, anchor(entry.name))
  local forms = { entry.name }
  for _, other in ipairs(entry.others) do forms[#forms + 1] = other.name end
  for _, name in ipairs(forms) do
    register(name, target)
    register(name:match "^x:" and name:gsub("^x:", "Tensor:"), target)
    register(name:match "^nn%." and "heed." .. name, target)
    register(name:match "^F%." and "heed.nn.functional" .. name:sub(2), target)
    register(name:match "^F%." and "nn.functional" .. name:sub(2), target)
    register(name:match "^Module:" and "m:" .. name:match ":(.*)$", target)
    register(name:match "^MultiHeadAttention:" and "mha:" .. name:match ":(.*)$", target)
    register(name:match "^heed%.optim%.lr_scheduler%." and name:match "lr_scheduler.*$", target)
    register(name:match "^heed%.utils%.data%." and name:match "data.*$", target)
    register(name:match "^dist%." and "heed.distributed" .. name:sub(5), target)
    register((name:match "^interpret%." or name:match "^plot%.") and "heed." .. name, target)
    register(name:match "^%u%w*:" and name:match "^%u%w*" ~= "Module" and name:gsub("^%u", string.lower), target)
  end
  local function register_in_class(record)
    register(("%s%s%s"):format(name_of_class(entry.class), record.method and ":" or ".", record.name), target)
    register(entries.of_tensor[entry.class] and "heed." .. record.name, target)
  end
  register_in_class(entry.record)
  for _, other in ipairs(entry.others) do register_in_class(other.record) end
  for path, class in pairs(annotations.modules()) do
    register(class == entry.class and path .. "." .. entry.record.name, target)
  end
end

for _, entry in ipairs(all) do register_entry(entry) end

-- ---- Writing ------------------------------------------------------------------------------------

local function write(name, text)
  local file = assert(io.open(out .. "/" .. name, "wb"))
  assert(file:write(text))
  assert(file:close())
end

local function write_page(file, lines) write(file .. ".md", table.concat(lines, "\n") .. "\n") end

local shown_classes = {} -- by heading

local function write_subject(page)
  local lines = { "# " .. page.title, "", ("<!-- examples run after: %s -->"):format(runner.SETUP), "", page.about }
  local guides = {}
  for i, guide in ipairs(page.guides) do guides[i] = ("[%s](../%s.md)"):format(guide.title, guide.file) end
  add(lines, "", (#guides > 1 and "Guides: " or "Guide: ") .. table.concat(guides, ", ") .. ".")
  local level = #page.groups > 1 and "###" or "##" -- a single group needs no heading
  for i, group in ipairs(page.groups) do
    if #page.groups > 1 then add(lines, "", "## " .. group[1]) end
    local owner = annotations.class(group[2])
    if owner and not group[2]:find "^heed%.%u" and not entries.of_tensor[group[2]] and #owner.doc > 0 then
      add(lines, "")
      add(lines, table.unpack(render.prose(owner.doc)))
    end
    for _, item in ipairs(page.shown[i]) do
      if item.class then
        add(lines, "", level .. " " .. heading_of(item.class))
        render.class(lines, item.class)
        if object_of(item.class) then render.class(lines, object_of(item.class)) end
        render.example(lines, heading_of(item.class))
        shown_classes[heading_of(item.class)] = true
      else
        render.entry(lines, item.entry, entries.made_by(item.entry), level)
      end
    end
  end
  write_page(page.file, lines)
end

local function write_types()
  local lines = { "# Types", "",
    "What arguments and results are, where that is not described with a function. Types of tables list their fields." }
  local shown = {} -- by name; a type that one links to is shown, too
  repeat
    local before = #shown
    for _, name in ipairs(named_types) do
      if used[name] and not shown[name] then
        local own = { "", "## " .. name_of_class(name) }
        local alias = annotations.aliases()[name]
        if alias then
          if #alias.doc > 0 then add(own, "", table.unpack(render.prose(alias.doc))) end
          add(own, "", "Is " .. types.markdown(alias.type) .. ".")
        else
          render.class(own, name)
        end
        shown[name] = own
        shown[#shown + 1] = name
      end
    end
  until #shown == before
  table.sort(shown)
  for _, name in ipairs(shown) do add(lines, table.unpack(shown[name])) end
  for name, link in pairs(links) do
    if link:find "^types%.md" and not shown[name] then links[name] = nil end
  end
  write_page("types", lines)
end

local function write_index(c_names)
  local lines = { "# Reference", "",
    "Every function, by subject and [by name](#all-names). `x` is a tensor, `nn` is `heed.nn`, `F` is "
      .. "`heed.nn.functional`; methods of tensors are functions of `heed`, too: `heed.sum(x)` is `x:sum()`. Examples "
      .. "begin with", "", "```lua", (runner.SETUP:gsub("; ", "\n")), "```", "", "| page | about |", "| --- | --- |" }
  local function row(file, title, about)
    add(lines, ("| [%s](%s.md) | %s |"):format(title, file, about:gsub("|", "\\|")))
  end
  for _, page in ipairs(subjects) do row(page.file, page.title, page.about) end
  row("types", "Types", "What arguments and results are.")
  row("c", "C", "Every function of `heed.h`.")
  add(lines, "", "## All names")
  local rows = {}
  for _, entry in ipairs(all) do
    local function add_name(name)
      local key = name:gsub("^heed%.", ""):gsub("^.*[.:]", "")
      rows[#rows + 1] = { name = name, key = key:lower(), target = names[name] }
    end
    add_name(entry.name)
    for _, other in ipairs(entry.others) do
      if not other.name:find "^heed%." or entry.name:find "^heed%." then add_name(other.name) end
    end
  end
  table.sort(rows, function(a, b) return a.key < b.key or a.key == b.key and a.name < b.name end)
  local letter
  for _, each in ipairs(rows) do
    local first = each.key:sub(1, 1):upper()
    if first ~= letter then
      letter = first
      add(lines, "", "### " .. letter, "")
    else
      lines[#lines] = lines[#lines] .. ","
    end
    add(lines, ("[`%s`](%s)"):format(each.name, each.target))
  end
  add(lines, "", ("The [C interface](c.md) has %d more names."):format(c_names))
  write_page("index", lines)
end

local function write_names()
  local keys, lines = {}, {}
  for name in pairs(names) do keys[#keys + 1] = name end
  table.sort(keys)
  for i, name in ipairs(keys) do lines[i] = ("%q: %q"):format(name, names[name]) end
  write("names.json", "{\n" .. table.concat(lines, ",\n") .. "\n}\n")
end

for _, page in ipairs(subjects) do write_subject(page) end
refuse("scripts/site/examples has examples of what is no function: ", runner.names(), function(name)
  return not by_name[name] and not shown_classes[name]
end)
write_types()
annotations.each("heed", function(field)
  register(not field.is_function and not field.type:find "^heed%.%l" and "heed." .. field.name, links["heed"])
end)
for class, link in pairs(links) do
  if class:find "^heed%.%u" then register(HEADINGS[class] or name_of_class(class), link) end
  register(HEADINGS[class] and "heed." .. HEADINGS[class], link)
end
for path, class in pairs(annotations.modules()) do register(links[class] and path, links[class]) end
local c_lines, c_places = header.page()
write_page("c", c_lines)
local count = 0
for name, target in pairs(c_places) do
  count = count + 1
  register(name, target)
end
write_index(count)
write_names()
io.write(("%d entries on %d pages, %d names in C, %d examples\n"):format(#all, #subjects, count, #runner.all()))
