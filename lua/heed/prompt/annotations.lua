-- The annotations of lua/heed/meta: classes with their fields and functions. Read when they are first used.
local host = require "heed.prompt.host"
local find, gmatch, gsub, match, sub = string.find, string.gmatch, string.gsub, string.match, string.sub
local ipairs, setmetatable = ipairs, setmetatable

local annotations = {}

-- A class: {name, doc = lines, parents = names, fields = by name, order = names, overloads = types of calls of its
-- values}. A field: {name, type, optional, doc},
-- or a function: {name, method = with a colon, params, returns, doc, overloads = types, section = the heading
-- `-- ---- section ----` above it}. A parameter is like a field.
local classes = {}
local aliases = {} -- name → {type, doc = lines}
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
    class = { name = name, doc = {}, parents = {}, fields = {}, order = {}, overloads = {} }
    classes[name] = class
  end
  return class
end

local function add_field(class, field)
  if not class.fields[field.name] then class.order[#class.order + 1] = field.name end
  class.fields[field.name] = field
end

-- ---- Reading: only names at first; what belongs to one is read when it is used ----

local FIELD = {
  __index = function(field, key)
    if key ~= "type" and key ~= "doc" then return nil end
    local kind, doc = split_type(field.described)
    field.type, field.doc = kind, { doc }
    return field[key]
  end,
}

local function new_field(name, mark, described)
  return setmetatable({ name = name, optional = mark == "?", described = described }, FIELD)
end

-- Reads the lines above a function.
local function describe(record)
  local params = {}
  record.doc, record.params, record.returns, record.overloads = {}, {}, {}, {}
  for _, line in ipairs(record.lines) do
    local tag, rest = match(line, "^%-%-%-@(%l+)%s*(.*)$")
    if not tag then
      record.doc[#record.doc + 1] = gsub(sub(line, 4), "^ ", "")
    elseif tag == "param" then
      local name, mark, described = match(rest, "^([%w_.]+)(%??)%s+(.*)$")
      if name then params[name] = new_field(name, mark, described) end
    elseif tag == "return" then
      local kind, doc = split_type(rest)
      record.returns[#record.returns + 1] = { type = kind, doc = doc }
    elseif tag == "overload" then
      record.overloads[#record.overloads + 1] = rest
    end
  end
  for name in gmatch(record.arguments, "[%w_.]+") do
    record.params[#record.params + 1] = params[name] or new_field(name, "", "any")
  end
end

local DESCRIBED = { doc = true, params = true, returns = true, overloads = true }
local FUNCTION = {
  __index = function(record, key)
    if not DESCRIBED[key] then return nil end
    describe(record)
    return record[key]
  end,
}

local function new_function(owner, name, method, lines, arguments, section)
  local record = { name = name, owner = owner.name, method = method, lines = lines, arguments = arguments,
    section = section }
  record.is_function = true
  add_field(owner, setmetatable(record, FUNCTION))
end

-- Reads one file; puts functions that must be called after all files have been read into a list.
local function read(text, later)
  local variables, module = {}, nil -- the classes of local variables; what `require` takes
  local lines, class = {}, nil -- the comment above the next line of code, and its class
  local section, open -- the heading above; a line of code whose list of arguments goes on

  local tags = {}
  function tags.meta(rest) module = match(rest, "^heed[%w_.]*") end
  function tags.class(rest)
    local name, parents = match(rest, "^([%w_.]+):?%s*(.*)$")
    class = class_named(name)
    for parent in gmatch(parents, "[%w_.]+") do class.parents[#class.parents + 1] = parent end
    for _, line in ipairs(lines) do class.doc[#class.doc + 1] = gsub(sub(line, 4), "^ ", "") end
    lines = {}
  end
  function tags.field(rest)
    local name, mark, described = match(rest, "^([%w_]+)(%??)%s+(.*)$")
    if name and class then add_field(class, new_field(name, mark, described)) end
  end
  function tags.overload(rest, line)
    local list = class and class.overloads or lines
    list[#list + 1] = class and rest or line
  end
  function tags.alias(rest)
    local name, kind = match(rest, "^([%w_.]+)%s+(.*)$")
    if not name then return end
    local doc = {}
    for i, line in ipairs(lines) do doc[i] = gsub(sub(line, 4), "^ ", "") end
    aliases[name] = { type = split_type(kind), doc = doc }
    lines = {}
  end

  local function code(line)
    local variable = match(line, "^local ([%w_]+) = ")
    if variable then
      variables[variable] = class
      return
    end
    local owner, separator, name, arguments = match(line, "^function ([%w_]+)([.:])([%w_]+)%((.-)%)")
    if owner then
      if variables[owner] then
        new_function(variables[owner], name, separator == ":", lines, arguments, section)
      end
      return
    end
    local part -- a table in another: Utils.data = data
    owner, name, part = match(line, "^([%w_]+)%.([%w_]+) = ([%w_]+)$")
    if owner then
      if variables[owner] and variables[part] and not variables[owner].fields[name] then
        add_field(variables[owner], new_field(name, "", variables[part].name))
      end
      return
    end
    local result = match(line, "^return ([%w_]+)$")
    if result then
      if module and variables[result] then modules[module] = variables[result].name end
      return
    end
    -- Tensor.exp_ = Tensor.exp; autograd.no_grad = heed.no_grad, which another file may declare
    local alias, target
    owner, alias, name, target = match(line, "^([%w_]+)%.([%w_]+) = ([%w_]+)%.([%w_]+)")
    if variables[owner] then
      local from = variables[name] or class_named(name)
      local function resolve()
        local original = from.fields[target]
        if not original then return false end
        new_function(variables[owner], alias, original.method, original.lines, original.arguments, original.section)
        return true
      end
      if not resolve() then later[#later + 1] = resolve end
    end
  end

  for line in gmatch(text, "([^\n]*)\n?") do
    if sub(line, 1, 3) == "---" then
      local tag, rest = match(line, "^%-%-%-@(%l+)%s*(.*)$")
      if tag and tags[tag] then tags[tag](rest, line) else lines[#lines + 1] = line end
    else
      local start = sub(line, 1, 1)
      section = match(line, "^%-%- %-%-%-%- (.-) %-%-%-%-$") or section
      local whole = (open or "") .. line
      open = nil
      if start == "" or start == "-" then
        lines, class = {}, nil
      elseif find(whole, "^function [^)]*$") then
        open = whole .. " "
      else
        code(whole)
        lines, class = {}, nil
      end
    end
  end
end

local loaded = false
local function load()
  if loaded then return end
  loaded = true
  local later = {}
  for _, text in ipairs(host.annotations()) do read(text, later) end
  for _, resolve in ipairs(later) do resolve() end
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
  return aliases[kind] and aliases[kind].type or kind
end

--- The aliases by name: {type, doc = lines}.
function annotations.aliases()
  load()
  return aliases
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
    else
      local fields, is_object = {}, false
      annotations.each(gsub(part, "%?$", ""), function(field)
        fields[#fields + 1] = field
        is_object = is_object or field.is_function
      end)
      for i = 1, is_object and 0 or #fields do list[#list + 1] = fields[i] end
    end
  end
end

--- The table of options of an overload "fun(options: heed.LinearOptions): heed.Linear", or nil; its result.
function annotations.options_and_result(overload)
  return match(overload, "^fun%([%w_]+%??: ([^,)]+)%): ?(.*)$")
end

--- "softmax(dim?)"
function annotations.signature(record)
  local names = {}
  for i, param in ipairs(record.params) do names[i] = param.name .. (param.optional and "?" or "") end
  return record.name .. "(" .. table.concat(names, ", ") .. ")"
end

return annotations
