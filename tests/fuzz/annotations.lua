-- The public interface as the annotations in lua/heed/meta declare it, for fuzzers that grow with it.
-- A type is one of
--   {kind = "union", of = {type…}}          {kind = "list", item = type}            {kind = "table", key =, value =}
--   {kind = "record", fields = {field…}}    {kind = "function", returns = {type…}}  {kind = "literal", text = Lua's}
--   {kind = "name", name = "integer" or a class}
-- and `optional` where the annotation ends with "?". A field or parameter is {name =, type =, optional =}.
local annotations = {}

-- The folder of the repository, with a slash; "" if it is the current one.
local top = debug.getinfo(1, "S").source:match "^@(.*)tests/fuzz/annotations.lua$" or ""

-- ---- Types --------------------------------------------------------------------------------------

local parse_union

local function skip(text, at) return text:match("^%s*()", at) end

-- `name: type, name?: type` up to a closing bracket; returns the fields and the position behind the bracket.
local function parse_fields(text, at, closing)
  local fields = {}
  at = skip(text, at)
  while text:sub(at, at) ~= closing do
    local name, question, after = text:match("^([%w_.%[%]\"]+)(%??)%s*:%s*()", at)
    if name then
      local kind
      kind, at = parse_union(text, after)
      fields[#fields + 1] = { name = name, type = kind, optional = question == "?" or kind.optional }
    else -- a parameter without a type, such as "..."
      name, at = text:match("^([%w_.]+)()", at)
      assert(name, "not a field: " .. text)
      fields[#fields + 1] = { name = name, type = { kind = "name", name = "any" } }
    end
    at = skip(text, at)
    if text:sub(at, at) == "," then at = skip(text, at + 1) end
  end
  return fields, at + 1
end

local function parse_list(text, at)
  local list = {}
  repeat
    local kind
    kind, at = parse_union(text, skip(text, at))
    list[#list + 1] = kind
    local comma = text:match("^%s*,()", at)
    -- In a list of parameters, `name:` behind the comma is the next parameter.
    local more = comma and not text:find("^%s*[%w_.]+%??%s*:", comma)
    at = more and comma or at
  until not more
  return list, at
end

local function parse_one(text, at)
  local first = text:sub(at, at)
  if first == "(" then
    local kind, after = parse_union(text, skip(text, at + 1))
    return kind, text:match("^%s*%)()", after)
  elseif first == "{" then
    if text:find("^{%s*%[", at) then -- {[string]: any}
      local _, after = text:find("%b{}", at)
      return { kind = "name", name = "table" }, after + 1
    end
    local fields, after = parse_fields(text, at + 1, "}")
    return { kind = "record", fields = fields }, after
  elseif first == '"' then
    local literal, after = text:match('^("[^"]*")()', at)
    return { kind = "literal", text = literal }, after
  elseif text:find("^fun%(", at) then
    local parameters, after = parse_fields(text, at + 4, ")")
    local returns = {}
    local behind = text:match("^%s*:%s*()", after)
    if behind then returns, after = parse_list(text, behind) end
    return { kind = "function", parameters = parameters, returns = returns }, after
  end
  local number, behind = text:match("^(%-?%d[%d.]*)()", at)
  if number then return { kind = "literal", text = number }, behind end
  local name, after = text:match("^([%a_.][%w_.]*)()", at)
  assert(name, "not a type: " .. text:sub(at))
  if name == "true" or name == "false" or name == "nil" then return { kind = "literal", text = name }, after end
  if text:sub(after, after) == "<" then
    local of
    of, after = parse_list(text, after + 1)
    return { kind = "table", key = of[1], value = of[2] or of[1] }, text:match("^%s*>()", after)
  end
  return { kind = "name", name = name }, after
end

function parse_union(text, at)
  local of, optional = {}, false
  repeat
    local kind
    kind, at = parse_one(text, at)
    while text:find("^%[%]", at) do kind, at = { kind = "list", item = kind }, at + 2 end
    if text:sub(at, at) == "?" then optional, at = true, at + 1 end
    of[#of + 1] = kind
    local more = text:match("^%s*|%s*()", at)
    at = more or at
  until not more
  local result = #of == 1 and of[1] or { kind = "union", of = of }
  if optional then result.optional = true end
  return result, at
end

--- The type at the beginning of a text, and what follows it.
function annotations.type(text)
  local kind, at = parse_union(text, skip(text, 1))
  return kind, text:sub(at)
end

-- ---- Files --------------------------------------------------------------------------------------

local function files()
  local list = {}
  local pipe = assert(io.popen("ls " .. top .. "lua/heed/meta/*.lua"))
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  assert(#list > 0, "no annotations; run this in the folder of the repository")
  return list
end

local function class_of(api, name)
  local class = api.classes[name]
  if not class then
    class = { name = name, parents = {}, fields = {}, methods = {} }
    api.classes[name] = class
    api.class_names[#api.class_names + 1] = name
  end
  return class
end

local function read_file(api, path)
  local variables = {} -- local variables of the file: the class each one stands for
  local module, class, note = nil, nil, { parameters = {}, returns = {}, overloads = {} }
  local function add(owner, f)
    owner.methods[#owner.methods + 1] = f
    owner.methods[f.name] = f
  end
  for line in io.lines(path) do
    local word, rest = line:match("^%-%-%-@(%w+)%s*(.*)$")
    local variable, colon, member = line:match("^function (%w+)([.:])([%w_]+)%(")
    local left, right = line:match("^(%w+%.[%w_]+) = (%w+%.[%w_]+)$")
    if word == "meta" then
      module = rest ~= "_" and rest or nil
    elseif word == "class" then
      local name, parents = rest:match("^([%w_.]+):?%s*(.*)$")
      class = class_of(api, name)
      for parent in parents:gmatch("heed%.[%w_.]+") do class.parents[#class.parents + 1] = parent end
    elseif word == "field" then
      local name, question, after = rest:match("^%[?\"?([%w_]+)\"?%]?(%??)%s+(.*)$")
      if name and not rest:find "^%[%a" then -- else a type of keys
        local kind = annotations.type(after)
        class.fields[#class.fields + 1] = { name = name, type = kind, optional = question == "?" or kind.optional }
      end
    elseif word == "alias" then
      local name, after = rest:match("^([%w_.]+)%s+(.*)$")
      api.aliases[name] = annotations.type(after)
    elseif word == "param" then
      local name, question, after = rest:match("^([%w_.]+)(%??)%s+(.*)$")
      local kind = annotations.type(after)
      table.insert(note.parameters, { name = name, type = kind, optional = question == "?" or kind.optional })
    elseif word == "return" then
      note.returns[#note.returns + 1] = annotations.type(rest)
    elseif word == "overload" then
      local kind = annotations.type(rest)
      if class and #note.parameters == 0 and not note.of_function then class.call = class.call or kind end
      note.overloads[#note.overloads + 1] = kind
    elseif variable then
      add(assert(variables[variable], path .. ": " .. line), { name = member, method = colon == ":",
        parameters = note.parameters, returns = note.returns, overloads = note.overloads })
    elseif left then
      local of, name = left:match("^(%w+)%.(.*)$")
      local from, old = right:match("^(%w+)%.(.*)$")
      local same = variables[of] and variables[from] and variables[from].methods[old]
      if same then
        add(variables[of], { name = name, method = same.method, parameters = same.parameters, returns = same.returns,
          overloads = same.overloads })
      end
    elseif line:find "^%w+%.[%w_]+ = %w+$" then -- a table in another: Utils.data = data
      local of, name, from = line:match("^(%w+)%.([%w_]+) = (%w+)$")
      local type = { kind = "name", name = variables[from].name }
      table.insert(variables[of].fields, { name = name, type = type })
    elseif line:find "^local %w+ = {}" then
      variables[line:match("^local (%w+)")] = class
    elseif line:find "^return %w+" and module then
      api.modules[#api.modules + 1] = { path = module, class = variables[line:match("^return (%w+)")] }
    end
    if not line:find "^%-%-%-" then
      note = { parameters = {}, returns = {}, overloads = {} }
      if line == "" then class = nil end
    end
  end
end

--- The whole interface: classes[name] = {name, parents, fields, methods, call}, class_names in order, aliases[name] =
--- type, modules = {{path of require, class}…}.
function annotations.read()
  local api = { classes = {}, class_names = {}, aliases = {}, modules = {} }
  for _, path in ipairs(files()) do read_file(api, path) end
  return api
end

--- Calls f(class) for a class and what it inherits, each once.
function annotations.each_ancestor(api, name, f, seen)
  seen = seen or {}
  local class = api.classes[name]
  if not class or seen[name] then return end
  seen[name] = true
  f(class)
  for _, parent in ipairs(class.parents) do annotations.each_ancestor(api, parent, f, seen) end
end

return annotations
