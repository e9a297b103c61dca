-- Completion by Tab: globals, locals and keywords; fields and methods; options in a table of arguments; the arguments
-- of a call.
local annotations = require "heed.prompt.annotations"
local heed = require "heed"
local host = require "heed.prompt.host"
local names = require "heed.prompt.names"
local prompt = require "heed.prompt"
local show = require "heed.prompt.show"
local state_dict = require "heed.nn.state_dict"
local tokens = require "heed.prompt.tokens"
local concat, sort = table.concat, table.sort
local find, match, sub = string.find, string.match, string.sub
local getmetatable, ipairs, next, pairs, pcall, rawget, type = getmetatable, ipairs, next, pairs, pcall, rawget, type

local complete = {}

local LISTED = 24 -- so many candidates are shown with their signatures, more as columns of names

-- A candidate: {name, value, record = its annotation, option = whether it is one}.

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function if in local nil not or repeat return then true until
  while]]):gmatch "%a+" do
  KEYWORDS[#KEYWORDS + 1] = word
end

-- ---- Collecting ----

-- Collects candidates that begin with `partial`, each name once.
local function collector(partial)
  local list, seen = {}, {}
  return list, function(name, value, record)
    if type(name) ~= "string" or seen[name] or sub(name, 1, #partial) ~= partial then return end
    if not find(name, "^[%a_][%w_]*$") or (find(name, "^_") and partial == "") then return end
    seen[name] = true
    list[#list + 1] = { name = name, value = value, record = record }
  end
end

-- The first keys of a state dict, whose entries may be large to open: "model" for "model.weight".
local function add_names(state, add)
  for name in state_dict.names(state) do
    if type(name) == "string" then add(match(name, "^[^.]*")) end
  end
end

local function add_keys(value, add)
  if state_dict.is_state_dict(value) then return add_names(value, add) end
  for _ = 1, 5 do
    if type(value) ~= "table" then return end
    for key, field in next, value do add(key, field) end
    local meta = getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index") or nil
  end
end

local function add_parts(m, add)
  for name, part in m:named_children() do add(name, part) end
  for name, parameter in m:named_parameters { recurse = false } do add(name, parameter) end
  for name, buffer in m:named_buffers { recurse = false } do add(name, buffer) end
  for name, value in heed.pairs(m) do add(name, value) end
end

-- The fields or, after a colon, the methods of what stands before.
local function members(of, colon, partial)
  local list, collect = collector(partial)
  local value = of.value
  local instance = value == nil or type(value) == "userdata" or heed.nn.is_module(value)
  local function add(name, field, record)
    local callable = record and record.is_function or (not record and type(field) == "function")
    if colon and not callable then return end
    if not colon and instance and callable then return end
    collect(name, field, record)
  end
  if of.class then
    annotations.each(of.class, function(record)
      if colon and not record.method then return end
      local exists = value == nil or record.is_function or names.index(value, record.name) ~= nil
      if exists then add(record.name, nil, record) end
    end)
  end
  if heed.nn.is_module(value) then pcall(add_parts, value, add) end
  if type(value) == "string" then value = host.globals.string end
  local meta = getmetatable(value)
  if type(value) == "table" or state_dict.is_state_dict(value) then
    add_keys(value, add)
  elseif type(meta) == "table" and type(rawget(meta, "__index")) == "table" then
    add_keys(rawget(meta, "__index"), add)
  end
  return list
end

local function variables(partial)
  local list, add = collector(partial)
  prompt.each_local(function(name) add(name, prompt.lookup(name)) end)
  for name, value in pairs(host.globals) do add(name, value) end
  for _, word in ipairs(KEYWORDS) do add(word) end
  return list
end

-- ---- Arguments ----

local CLOSING = { [")"] = true, ["}"] = true, ["]"] = true }
local OPENING = { ["("] = true, ["{"] = true, ["["] = true }

-- The index of the bracket around list[i], or nil.
local function enclosing(list, i)
  local depth = 0
  for k = i, 1, -1 do
    if list[k].kind == "symbol" then
      if CLOSING[list[k].text] then depth = depth + 1 end
      if OPENING[list[k].text] then
        if depth == 0 then return k end
        depth = depth - 1
      end
    end
  end
end

-- The annotation of the function that is called with the bracket at list[i], or nil.
local function called(list, i)
  local before = list[i - 1]
  if not before or before.kind == "keyword" then return nil end
  if before.kind == "symbol" and not CLOSING[before.text] then return nil end
  local of = names.at(list, i - 1)
  return of and names.callee(of)
end

-- The options that the table which begins at list[brace] may have: fields.
local function options_of(list, brace, depth)
  local found = {}
  local before, key = list[brace - 1], list[brace - 2]
  if before and before.text == "=" and key and key.kind == "name" and depth < 5 then
    local outer = enclosing(list, brace - 1)
    if not outer or list[outer].text ~= "{" then return found end
    for _, option in ipairs(options_of(list, outer, depth + 1)) do
      if option.name == key.text then annotations.add_options(option.type, found) end
    end
    return found
  end
  local record = called(list, brace)
  if not record then
    local outer = enclosing(list, brace - 1)
    record = outer and list[outer].text == "(" and called(list, outer)
  end
  if not record then return found end
  for _, param in ipairs(record.params) do annotations.add_options(param.type, found) end
  for _, overload in ipairs(record.overloads) do
    local kind = annotations.options_and_result(overload)
    if kind then annotations.add_options(kind, found) end
  end
  return found
end

local function options(list, partial)
  local last = list[#list]
  if not last or last.kind ~= "symbol" or not find("{,;", last.text, 1, true) then return nil end
  local brace = enclosing(list, #list)
  if not brace or list[brace].text ~= "{" then return nil end
  local candidates, add = collector(partial)
  for _, option in ipairs(options_of(list, brace, 0)) do add(option.name, nil, option) end
  for _, candidate in ipairs(candidates) do candidate.option = true end
  return #candidates > 0 and candidates or nil
end

-- ---- Text before the cursor ----

local function in_string(list)
  local string = list[#list]
  local word = list[#list - 1]
  if word and word.text == "(" then word = list[#list - 2] end
  local partial = sub(string.text, 2)
  if word and word.text == "help" then
    if not find(partial, "^[%a_][%w_]*$") then return complete.find(partial) end
    local found, add = collector(partial)
    for _, class in ipairs { "heed", "heed.Tensor", "heed.nn" } do
      annotations.each(class, function(record) add(record.name) end)
    end
    return found, partial
  end
  if not word or word.text ~= "require" then return {}, "" end
  local found = {}
  local function add(name)
    if type(name) == "string" and sub(name, 1, #partial) == partial and not found[name] then
      found[name] = true
      found[#found + 1] = { name = name }
    end
  end
  local package = host.globals.package
  for name in pairs(type(package) == "table" and package.preload or {}) do add(name) end
  for name in pairs(type(package) == "table" and package.loaded or {}) do add(name) end
  for name in pairs(annotations.modules()) do add(name) end
  return found, partial
end

--- The candidates for the end of the text, what they begin with, and whether the cursor is in arguments that have no
--- beginning yet: the annotation of the function.
function complete.find(text)
  local list = tokens.of(text)
  if list.open then
    if list.comment or #list == 0 or list[#list].kind ~= "string" then return {}, "" end
    return in_string(list)
  end
  local last, partial = list[#list], ""
  if last and last.last == #text and (last.kind == "name" or last.kind == "keyword") then
    partial = last.text
    list[#list] = nil
    last = list[#list]
  end
  if last and last.kind == "symbol" and (last.text == "." or last.text == ":") then
    local before = list[#list - 1]
    if before and before.text ~= "." then
      local of = names.at(list, #list - 1)
      return of and members(of, last.text == ":", partial) or {}, partial
    end
  end
  local found = options(list, partial)
  if found then return found, partial end
  if partial ~= "" then return variables(partial), partial end
  local bracket = enclosing(list, #list)
  return {}, "", bracket and called(list, bracket)
end

-- ---- Results ----

local function is_callable(candidate)
  local record = candidate.record
  if record then return record.is_function or find(record.type, "^fun%(") ~= nil end
  return type(candidate.value) == "function"
end

local function described(candidate)
  local record = candidate.record
  if not record then return candidate.name end
  if record.is_function then return annotations.signature(record) end
  return candidate.name .. (candidate.option and " = " or ": ") .. record.type
end

local function common_beginning(list)
  local text = list[1].name
  for i = 2, #list do
    while sub(list[i].name, 1, #text) ~= text do text = sub(text, 1, -2) end
  end
  return text
end

local function by_name(a, b) return a.name < b.name end

--- The names of the candidates, sorted.
function complete.candidates(text)
  local list = complete.find(text)
  local found = {}
  for i, candidate in ipairs(list) do found[i] = candidate.name end
  sort(found)
  return found
end

local function only(candidate, partial)
  local rest, record = sub(candidate.name, #partial + 1), candidate.record
  if candidate.option then return rest .. " = ", described(candidate) end
  if not is_callable(candidate) then return rest end
  if not record or not record.is_function then return rest .. "(" end
  if #record.params == 0 then return rest .. "()" end
  return rest .. "(", annotations.signature(record)
end

--- What to insert and what to show for a Tab at the end of the text; nil for nothing.
function complete.at_end(text, width)
  local list, partial, record = complete.find(text)
  if record then return nil, annotations.signature(record) .. "\n" .. (record.doc[1] or "") end
  if #list == 0 then return nil end
  if #list == 1 then return only(list[1], partial) end
  sort(list, by_name)
  local texts = {}
  for i, candidate in ipairs(list) do texts[i] = #list <= LISTED and described(candidate) or candidate.name end
  local shown = #list <= LISTED and concat(texts, "\n") or show.columns(texts, width)
  return sub(common_beginning(list), #partial + 1), shown
end

return complete
