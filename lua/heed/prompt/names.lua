-- What an expression that is being typed refers to: names, fields and indices are read, calls are not made; their
-- results are known by the annotations.
local annotations = require "heed.prompt.annotations"
local heed = require "heed"
local host = require "heed.prompt.host"
local prompt = require "heed.prompt"
local state_dict = require "heed.nn.state_dict"
local find, match = string.find, string.match
local getmetatable, ipairs, pairs, pcall, rawget, tonumber, type = getmetatable, ipairs, pairs, pcall, rawget, tonumber,
  type

local names = {}

-- ---- Values ----

-- Tables of the library → their classes; made when first used, since heed compiles its parts when they are used.
local function class_of_table(value)
  if value == heed then return "heed" end
  if value == rawget(heed, "nn") then return "heed.nn" end
  local found
  for name, loaded in pairs(host.globals.package and host.globals.package.loaded or {}) do
    if loaded == value and type(name) == "string" then found = annotations.module(name) or found end
  end
  if found then return found end
  for _, owner in ipairs { "heed", "heed.nn" } do
    annotations.each(owner, function(field)
      local class = not field.is_function and annotations.class_in(field.type)
      if class and rawget(owner == "heed" and heed or heed.nn, field.name) == value then found = class end
    end)
  end
  return found
end

-- ---- Fields ----

local function index(value, key) return value[key] end

-- Whether a table's __index is a function of heed's: those of the user are not called. meta: what getmetatable gives.
local function is_ours(value, meta)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(name) == "string" and find(name, "^heed") then return true end
  return heed.nn.is_module(value) or state_dict.is_state_dict(value) or class_of_table(value) ~= nil
end

--- value[key], or nil if that is an error, or would call a function of the user.
function names.index(value, key)
  local at = value
  for _ = 1, 100 do
    if type(at) ~= "table" then break end
    local found, meta = rawget(at, key), getmetatable(at)
    if found ~= nil or meta == nil then return found end
    if is_ours(at, meta) then break end
    local following = type(meta) == "table" and rawget(meta, "__index")
    if type(following) ~= "table" and type(following) ~= "userdata" then return nil end
    at = following
  end
  local fine, result = pcall(index, value, key)
  if fine then return result end
end

--- The name of the class of a value in the annotations, or nil.
function names.class_of(value)
  if heed.is_tensor(value) then return "heed.Tensor" end
  if heed.nn.is_module(value) then
    local class = "heed." .. (names.index(value, "class_name") and value:class_name() or "")
    return annotations.class(class) and class or "heed.Module"
  end
  if type(value) ~= "table" and type(value) ~= "userdata" then return nil end
  local meta = getmetatable(value)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(name) == "string" then
    if annotations.class(name) then return name end
    if annotations.class("heed." .. name) then return "heed." .. name end
  end
  if type(value) == "table" then return class_of_table(value) end
end

--- The annotation of a function by its value, or nil.
function names.of_function(value)
  local found
  local function look(class, container)
    annotations.each(class, function(field)
      if not found and field.is_function and names.index(container, field.name) == value then found = field end
    end)
  end
  look("heed", heed)
  look("heed.nn", heed.nn)
  for name, loaded in pairs(host.globals.package and host.globals.package.loaded or {}) do
    local class = type(name) == "string" and type(loaded) == "table" and annotations.module(name)
    if class and not found then look(class, loaded) end
  end
  if not found then look("heed.Tensor", heed.zeros(1)) end
  return found
end

-- ---- Chains ----

-- Something that an expression refers to: {value, class = name of its class, record = a function's annotation}; all may
-- be nil.

local function of_value(value) return { value = value, class = value ~= nil and names.class_of(value) or nil } end

--- The field of a referent.
function names.member(of, name)
  local record = of.class and annotations.find(of.class, name)
  local value
  if of.value ~= nil then value = names.index(of.value, name) end
  local result = { value = value }
  if record and record.is_function then
    result.record = record
  elseif value ~= nil then
    result.class = names.class_of(value)
  end
  if record and not record.is_function and not result.class then result.class = annotations.class_in(record.type) end
  return result
end

--- The annotation of what a call of the referent runs, or nil.
function names.callee(of)
  if of.record then return of.record end
  local class = of.class and annotations.class(of.class)
  for i = 1, class and #class.overloads or 0 do
    local _, result = annotations.options_and_result(class.overloads[i])
    if result then
      local record = { name = of.class, params = {}, doc = class.doc, overloads = class.overloads }
      record.returns = { { type = result } }
      return record
    end
  end
  if of.class and annotations.find(of.class, "forward") then return annotations.find(of.class, "forward") end
  if type(of.value) == "function" then return names.of_function(of.value) end
end

local function result_of(of, argument, receiver)
  if argument and of.value ~= nil and of.value == host.globals.require then
    local name = match(argument, "^[\"'](.*)[\"']$")
    local loaded = host.globals.package and host.globals.package.loaded
    if name == "heed" then return of_value(heed) end
    return loaded and loaded[name] ~= nil and of_value(loaded[name]) or { class = annotations.module(name) }
  end
  local record = names.callee(of)
  local first = record and record.returns[1]
  if not first then return {} end
  local class = annotations.class_in(first.type)
  if first.doc == "self" and receiver and receiver.class then class = receiver.class end
  return { class = class }
end

local OPENING = { [")"] = "(", ["]"] = "[", ["}"] = "{" }

-- The index of the bracket that list[i] closes, or nil.
local function opening(list, i)
  local open, close, depth = OPENING[list[i].text], list[i].text, 0
  for k = i, 1, -1 do
    if list[k].kind == "symbol" then
      if list[k].text == close then depth = depth + 1 end
      if list[k].text == open then depth = depth - 1 end
      if depth == 0 then return k end
    end
  end
end

-- The steps of the expression that ends at list[i], from its first name on; nil if it is of another form.
local function steps_to(list, i)
  local steps = {}
  while true do
    local token = list[i]
    if not token then return nil end
    if token.kind == "name" then
      local before = list[i - 1]
      local joined = before and before.kind == "symbol" and (before.text == "." or before.text == ":")
      table.insert(steps, 1, { kind = joined and "field" or "name", name = token.text })
      if not joined then return steps end
      i = i - 2
    elseif token.kind == "string" then
      table.insert(steps, 1, { kind = "call", argument = token.text })
      i = i - 1
    elseif token.kind == "symbol" and OPENING[token.text] then
      local open = opening(list, i)
      local before = open and list[open - 1]
      if not before or before.kind == "keyword" or (before.kind == "symbol" and not OPENING[before.text]) then
        return nil
      end
      if token.text == "]" then
        local negative = list[open + 1].text == "-"
        local literal = i == open + (negative and 3 or 2) and list[i - 1] -- other indices are not evaluated
        local key = literal and (tonumber(literal.text) or match(literal.text, "^[\"'](.*)[\"']$"))
        table.insert(steps, 1, { kind = "index", key = negative and type(key) == "number" and -key or key })
      else
        local argument = open == i - 2 and list[open + 1].kind == "string" and list[open + 1].text or nil
        table.insert(steps, 1, { kind = "call", argument = argument })
      end
      i = open - 1
    else
      return nil
    end
  end
end

--- The referent of the expression that ends at list[i] (tokens), or nil.
function names.at(list, i)
  local steps = steps_to(list, i)
  if not steps then return nil end
  local of, receiver = of_value(prompt.lookup(steps[1].name)), nil
  for k = 2, #steps do
    local step = steps[k]
    if step.kind == "field" then
      receiver, of = of, names.member(of, step.name)
    elseif step.kind == "index" then
      local value
      if of.value ~= nil and step.key ~= nil then value = names.index(of.value, step.key) end
      of = value ~= nil and of_value(value) or { class = of.class == "heed.Tensor" and of.class or nil }
    else
      of = result_of(of, step.argument, receiver)
    end
  end
  return of
end

--- The referent of a path such as "nn.Linear", "x:sum" or "heed.Tensor.sum", or nil.
function names.by_path(path)
  local of
  for word in string.gmatch(path, "[%w_]+") do
    if not of then
      local value = prompt.lookup(word)
      if value == nil and word == "nn" then value = heed.nn end
      if value == nil and word == "heed" then value = heed end
      of = of_value(value)
    else
      of = names.member(of, word)
    end
    if of.value == nil and not of.class and not of.record then return nil end
  end
  return of
end

return names
