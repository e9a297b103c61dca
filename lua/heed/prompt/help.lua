-- help(value), help "name": the annotations as text.
local annotations = require "heed.prompt.annotations"
local heed = require "heed"
local names = require "heed.prompt.names"
local show = require "heed.prompt.show"
local suggest = require "heed.suggest"
local concat, sort = table.concat, table.sort
local gmatch, gsub, match, rep, sub = string.gmatch, string.gsub, string.match, string.rep, string.sub
local ipairs, pairs, select, tostring, type = ipairs, pairs, select, tostring, type

local help = {}

local USAGE = [[
help "softmax"     explains a function, by its name
help "nn.Linear"   a module and its arguments
help(x)            a value: a tensor, a module, a function, heed, nn
help.complete "x:so" lists what Tab offers
Tab completes names, fields, methods and options, and shows arguments after an opening parenthesis.]]

-- ---- Parts of a text ----

local function append(lines, more)
  for i = 1, #more do lines[#lines + 1] = more[i] end
end

-- Names in a column, types and descriptions beside them.
local function table_of(lines, fields)
  local width = 0
  local function name_of(field) return field.name .. (field.optional and "?" or "") end
  for _, field in ipairs(fields) do width = #name_of(field) > width and #name_of(field) or width end
  for _, field in ipairs(fields) do
    local doc, name = field.doc[1] or "", name_of(field)
    lines[#lines + 1] = "  " .. name .. rep(" ", width - #name) .. "  " .. field.type
    if doc ~= "" then lines[#lines] = lines[#lines] .. "  " .. doc end
  end
end

-- Whether tensors have what the class declares.
local function is_of_tensors(name)
  if name == "heed.Tensor" then return true end
  for _, parent in ipairs(annotations.class("heed.Tensor").parents) do
    if parent == name then return true end
  end
end

local function heading(record)
  local separator = record.method and ":" or "."
  local owner = gsub(record.owner, "^heed%.", "")
  if record.method and is_of_tensors(record.owner) then owner = "x" end
  return owner .. separator .. annotations.signature(record)
end

local function fields_and_methods(name)
  local fields, methods = {}, {}
  annotations.each(name, function(field)
    if field.is_function then
      if sub(field.name, -1) ~= "_" then methods[#methods + 1] = field.name end
    else
      fields[#fields + 1] = field
    end
  end)
  sort(methods)
  return fields, methods
end

local function function_text(record)
  local lines = { heading(record) }
  append(lines, record.doc)
  local params = {}
  for _, param in ipairs(record.params) do
    if param.type ~= "any" or param.doc[1] then params[#params + 1] = param end
  end
  table_of(lines, params)
  for _, overload in ipairs(record.overloads) do
    local class = annotations.options_and_result(overload)
    if class and annotations.class(class) then
      lines[#lines + 1] = "By name, in a table:"
      local options = {}
      annotations.add_options(class, options)
      table_of(lines, options)
    end
  end
  for _, result in ipairs(record.returns) do
    lines[#lines + 1] = "  → " .. result.type .. (result.doc ~= "" and "  " .. result.doc or "")
  end
  return concat(lines, "\n")
end

local function class_text(name, title)
  local class = annotations.class(name)
  local lines = { title or gsub(name, "^heed%.", "") }
  append(lines, class.doc)
  local fields, methods = fields_and_methods(name)
  table_of(lines, fields)
  if #methods > 0 then
    lines[#lines + 1] = "Methods:"
    lines[#lines + 1] = show.columns(methods)
  end
  return concat(lines, "\n")
end

local function field_text(owner, field)
  local lines = { gsub(owner, "^heed%.", "") .. "." .. field.name .. ": " .. field.type }
  append(lines, field.doc)
  local class = annotations.class_in(match(field.type, "%):%s*([%w_.]+)$") or field.type)
  if class then lines[#lines + 1] = class_text(class) end
  return concat(lines, "\n")
end

local function record_text(owner, record)
  return record.is_function and function_text(record) or field_text(owner, record)
end

-- ---- By name ----

-- The class of the first words of "nn.Linear.weight", or nil.
local function class_of_path(words)
  local class
  for i, word in ipairs(words) do
    local field = class and annotations.find(class, word)
    if i == 1 then
      local of = names.by_path(word)
      class = word == "nn" and "heed.nn" or word == "heed" and "heed" or of and of.class or
        (annotations.class("heed." .. word) and "heed." .. word) or (word == "x" and "heed.Tensor") or nil
    elseif field then
      class = annotations.class_in(field.is_function and field.returns[1] and field.returns[1].type or field.type or "")
    else
      class = annotations.class(class .. "." .. word) and class .. "." .. word or
        (annotations.class("heed." .. word) and "heed." .. word)
    end
    if not class then return nil end
  end
  return class
end

-- Where a bare name is looked for first.
local FIRST = { "heed", "heed.Tensor", "heed.nn", "heed.nn.functional" }

local function every_owner(name)
  local owners = {}
  for _, class in pairs(annotations.classes()) do
    if class.fields[name] and class.fields[name].is_function then owners[#owners + 1] = class.name end
  end
  sort(owners)
  return owners
end

-- What to say about a name that nothing has: similar ones, or what to write instead.
local function hint(word)
  local known = {}
  for _, class in pairs(annotations.classes()) do
    for _, name in ipairs(class.order) do
      if class.fields[name].is_function and sub(name, -1) ~= "_" then known[name] = true end
    end
  end
  return suggest.hint("heed", word, known)
end

local function named(path)
  local words = {}
  for word in gmatch(path, "[%w_]+") do words[#words + 1] = word end
  local name = words[#words]
  if not name then return USAGE end
  if annotations.module(path) then return class_text(annotations.module(path), path) end
  words[#words] = nil
  if #words > 0 then
    local class = class_of_path(words)
    local record = class and annotations.find(class, name)
    if record then return record_text(class, record) end
    words[#words + 1] = name
    local whole = class_of_path(words)
    if whole then return class_text(whole) end
  else
    for _, owner in ipairs(FIRST) do
      local record = annotations.find(owner, name)
      if record then return record_text(owner, record) end
    end
    if annotations.class("heed." .. name) then return class_text("heed." .. name) end
    if annotations.class(name) then return class_text(name) end
    local texts = {}
    for i, owner in ipairs(every_owner(name)) do texts[i] = function_text(annotations.find(owner, name)) end
    if #texts > 0 then return concat(texts, "\n\n") end
    local of = names.by_path(name)
    if of and of.value ~= nil then return help.text(of.value) end
  end
  return "help: nothing is called '" .. path .. "'" .. hint(name)
end

-- ---- By value ----

local function module_text(m, class)
  local name = gsub(class, "^heed%.", "")
  local constructor = annotations.find("heed.nn", name)
  local lines = { tostring(m) }
  if constructor then lines[#lines + 1] = record_text("heed.nn", constructor) end
  lines[#lines + 1] = class_text(class)
  return concat(lines, "\n")
end

--- The text for a value, or for a name if it is a string; without arguments, how to use help.
function help.text(...)
  if select("#", ...) == 0 then return USAGE end
  local value = ...
  if type(value) == "string" then return named(value) end
  local class = names.class_of(value)
  if heed.is_tensor(value) then return class_text("heed.Tensor", show.tensor(value)) end
  if heed.nn.is_module(value) then return module_text(value, class) end
  if class then return class_text(class) end
  if type(value) == "function" then
    local record = names.of_function(value)
    if record then return function_text(record) end
    return "a function without annotations; the manual of Lua explains Lua's own: https://www.lua.org/manual"
  end
  return type(value) == "table" and show.value(value) or tostring(value) .. " is a " .. type(value)
end

return help
