-- The annotations of lua/heed/meta: classes with their fields and functions. Read when they are first used.
local host = require "heed.prompt.host"
local find, gmatch, gsub, match, sub = string.find, string.gmatch, string.gsub, string.match, string.sub
local ipairs, pairs = ipairs, pairs

local annotations = {}

-- A class: {name, doc = lines, parents = names, fields = by name, order = names}. A field: {name, type, optional, doc},
-- or a function: {name, method = with a colon, params, returns, doc, overloads = types}. A parameter is like a field.
local classes = {}
local aliases = {} -- name → type
local modules = {} -- what `require` takes → class name

local BRACKETS = { ["("] = 1, ["{"] = 1, ["["] = 1, ["<"] = 1, [")"] = -1, ["}"] = -1, ["]"] = -1, [">"] = -1 }

-- Splits "integer|{ dim: integer } 1 by default" into the type and the rest.
local function split_type(text)
  local word, more = match(text, "^([^%s({[<,:|]+) ?(.*)$")
  if word and (more == "" or not find(text, "^[({[<,:|]", #word + 1)) then return word, more end
  local depth, last = 0, ""
  for i = 1, #text do
    local c = sub(text, i, i)
    depth = depth + (BRACKETS[c] or 0)
    if c == " " and depth == 0 and not find(last, "[:,|]") then return sub(text, 1, i - 1), sub(text, i + 1) end
    last = c
  end
  return text, ""
end

--- The parts of a union type.
function annotations.alternatives(text)
  local list, depth, from = {}, 0, 1
  for i = 1, #text do
    local c = sub(text, i, i)
    depth = depth + (BRACKETS[c] or 0)
    if c == "|" and depth == 0 then
      list[#list + 1] = sub(text, from, i - 1)
      from = i + 1
    end
  end
  list[#list + 1] = sub(text, from)
  return list
end

local function class_named(name)
  local class = classes[name]
  if not class then
    class = { name = name, doc = {}, parents = {}, fields = {}, order = {} }
    classes[name] = class
  end
  return class
end

local function add_field(class, field)
  if not class.fields[field.name] then class.order[#class.order + 1] = field.name end
  class.fields[field.name] = field
end

-- Reads one file. `block` has the annotations above the next line of code.
local function read(text)
  local variables, block, class, module = {}, nil, nil, nil

  local function fresh() block = { doc = {}, params = {}, returns = {}, overloads = {} } end

  local tags = {}
  function tags.class(rest)
    local name, parents = match(rest, "^([%w_.]+):?%s*(.*)$")
    class = class_named(name)
    for parent in gmatch(parents, "[%w_.]+") do class.parents[#class.parents + 1] = parent end
    if #block.doc > 0 then class.doc = block.doc end
    block.doc, block.class = {}, class
    if module then
      modules[module] = name
      module = nil
    end
  end
  function tags.field(rest)
    local name, mark, described = match(rest, "^([%w_]+)(%??)%s+(.*)$")
    if not name or not class then return end
    local kind, doc = split_type(described)
    add_field(class, { name = name, type = kind, optional = mark == "?", doc = { doc } })
  end
  function tags.param(rest)
    local name, mark, described = match(rest, "^([%w_.]+)(%??)%s+(.*)$")
    if not name then return end
    local kind, doc = split_type(described)
    block.params[name] = { name = name, type = kind, optional = mark == "?", doc = { doc } }
  end
  tags["return"] = function(rest)
    local kind, doc = split_type(rest)
    block.returns[#block.returns + 1] = { type = kind, doc = doc }
  end
  function tags.overload(rest) block.overloads[#block.overloads + 1] = rest end
  function tags.alias(rest)
    local name, kind = match(rest, "^([%w_.]+)%s+(.*)$")
    if name then aliases[name] = split_type(kind) end
  end

  local function add_function(owner, separator, name, arguments)
    local record = {
      name = name, owner = owner.name, method = separator == ":", params = {}, doc = block.doc, returns = block.returns,
      overloads = block.overloads, is_function = true,
    }
    for argument in gmatch(arguments, "[%w_.]+") do
      record.params[#record.params + 1] = block.params[argument] or { name = argument, type = "any", doc = {} }
    end
    add_field(owner, record)
  end

  -- `Tensor.exp_ = Tensor.exp`
  local function add_alias(owner, name, target_owner, target)
    owner, target_owner = variables[owner], variables[target_owner]
    local original = owner and target_owner and target_owner.fields[target]
    if not original or not original.is_function then return end
    local copy = { name = name, owner = owner.name }
    for key, value in pairs(original) do copy[key] = copy[key] or value end
    add_field(owner, copy)
  end

  fresh()
  for line in gmatch(text, "([^\n]*)\n?") do
    local tag, rest = match(line, "^%-%-%-@(%w+)%s*(.*)$")
    if tag then
      if tags[tag] then tags[tag](rest) end
    elseif find(line, "^%-%-%-") then
      block.doc[#block.doc + 1] = gsub(sub(line, 4), "^ ", "")
    else
      local start = sub(line, 1, 1)
      if start == "-" then
        module = match(line, '^%- .*require "([%w_.]+)"') or module
      elseif start ~= "" then
        local variable = start == "l" and match(line, "^local ([%w_]+) = ")
        local owner, separator, name, arguments = match(line, "^function ([%w_]+)([.:])([%w_]+)%((.-)%)")
        if variable and block.class then
          variables[variable] = block.class
        elseif owner and variables[owner] then
          add_function(variables[owner], separator, name, arguments)
        else
          add_alias(match(line, "^([%w_]+)%.([%w_]+) = ([%w_]+)%.([%w_]+)"))
        end
      end
      fresh()
      class = nil
    end
  end
end

local loaded = false
local function load()
  if loaded then return end
  loaded = true
  for _, text in ipairs(host.annotations()) do read(text) end
end

--- A class, or nil.
function annotations.class(name)
  load()
  return classes[name]
end

--- All classes by name.
function annotations.classes()
  load()
  return classes
end

--- What `require` takes → the name of the class of its result.
function annotations.modules()
  load()
  return modules
end

--- The class of what `require` returns, or nil.
function annotations.module(name) return annotations.modules()[name] end

--- The field or function of a class, or of its parents; nil if there is none.
function annotations.find(name, field, depth)
  local class = annotations.class(name)
  if not class or (depth or 0) > 10 then return nil end
  local found = class.fields[field]
  for _, parent in ipairs(class.parents) do
    if found then break end
    found = annotations.find(parent, field, (depth or 0) + 1)
  end
  return found
end

--- Calls f with every field and function of a class and its parents, each name once.
function annotations.each(name, f, seen, depth)
  local class = annotations.class(name)
  seen, depth = seen or {}, depth or 0
  if not class or depth > 10 then return end
  for _, field in ipairs(class.order) do
    if not seen[field] then
      seen[field] = true
      f(class.fields[field])
    end
  end
  for _, parent in ipairs(class.parents) do annotations.each(parent, f, seen, depth + 1) end
end

--- The type that an alias stands for, otherwise the type itself.
function annotations.resolve(kind)
  load()
  return aliases[kind] or kind
end

--- The name of the class in a type such as "heed.Tensor?" or "heed.Taps|nil"; nil for other types.
function annotations.class_in(kind)
  for _, part in ipairs(annotations.alternatives(kind)) do
    local name = gsub(part, "%?$", "")
    if annotations.class(name) then return name end
  end
end

--- Adds the options that a table of this type has to the list: fields.
function annotations.add_options(kind, list)
  for _, part in ipairs(annotations.alternatives(annotations.resolve(kind))) do
    local inline = match(part, "^{(.*)}%??$")
    if inline then
      local rest = inline
      while find(rest, "%S") do
        local name, mark, after = match(rest, "^[%s,]*([%w_]+)(%??):%s*(.*)$")
        if not name then break end
        local depth, last = 0, #after
        for i = 1, #after do
          local c = sub(after, i, i)
          depth = depth + (BRACKETS[c] or 0)
          if c == "," and depth == 0 then
            last = i - 1
            break
          end
        end
        list[#list + 1] = { name = name, type = sub(after, 1, last), optional = mark == "?", doc = {} }
        rest = sub(after, last + 1)
      end
    elseif annotations.class(gsub(part, "%?$", "")) then
      annotations.each(gsub(part, "%?$", ""), function(field)
        if not field.is_function then list[#list + 1] = field end
      end)
    end
  end
end

--- "softmax(dim?)"
function annotations.signature(record)
  local names = {}
  for i, param in ipairs(record.params) do names[i] = param.name .. (param.optional and "?" or "") end
  return record.name .. "(" .. table.concat(names, ", ") .. ")"
end

return annotations
