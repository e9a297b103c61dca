--- The methods that all modules have, built in or written in Lua. They see a module only through its entries
--- (heed.nn.entries), its own methods and `training`.

local core = require "heed.core"
local E = require "heed.nn.entries"
local repr = require "heed.nn.repr"
local state_dict = require "heed.nn.state_dict"
local primitives = core.modules
local entries = E.entries

local P = {}

-- ---- Walking ------------------------------------------------------------------------------------

--- Calls visit(module, prefix, entries) for `module` and all modules in it, depth first, a module that is
--- in several places only once. `prefix` is "" or ends with a dot.
local function walk(module, prefix, seen, visit)
  if seen[module] then return end
  seen[module] = true
  local list = entries(module)
  visit(module, prefix, list)
  for _, entry in ipairs(list) do
    if entry.kind == "module" then walk(entry.value, prefix .. entry.name .. ".", seen, visit) end
  end
end

--- The tensors of a kind in a module, as two lists: names and tensors; one that is in several places is
--- listed once.
local function members(module, kind, prefix, recurse)
  local names, values, seen = {}, {}, {}
  local function visit(_, at, list)
    for _, entry in ipairs(list) do
      if entry.kind == kind then
        local _, identity = primitives.identity(entry.value)
        if not seen[identity] then
          seen[identity] = true
          names[#names + 1], values[#values + 1] = at .. entry.name, entry.value
        end
      end
    end
  end
  local at = prefix == "" and "" or prefix .. "."
  if recurse then
    walk(module, at, {}, visit)
  else
    visit(module, at, entries(module))
  end
  return names, values
end

--- The direct parts of a module, as two lists, each part once.
local function parts(module)
  local names, values, seen = {}, {}, {}
  for _, entry in ipairs(entries(module)) do
    if entry.kind == "module" and not seen[entry.value] then
      seen[entry.value] = true
      names[#names + 1], values[#values + 1] = entry.name, entry.value
    end
  end
  return names, values
end

-- ---- What the methods give ----------------------------------------------------------------------

--- An iterator over pairs of both lists.
local function pairs_of(names, values)
  local i = 0
  return function()
    i = i + 1
    return names[i], values[i]
  end
end

--- A list that a `for` can also call, so that both `for p in m:parameters()` and `ipairs(m:parameters())`
--- work.
local function list_of(values)
  local at = 0
  return setmetatable(values, {
    __name = "heed.List",
    __call = function(list, _, last)
      at = last == nil and 1 or at + 1
      return list[at]
    end,
  })
end

local MEMBER_OPTIONS, RECURSE_OPTION = { "prefix", "recurse" }, { "recurse" }

local function named_members(kind, method)
  return function(self, ...)
    E.check_self(self, method)
    local prefix, recurse = primitives.options(method, MEMBER_OPTIONS, 2, self, ...)
    if prefix == nil then prefix = "" end
    if recurse == nil then recurse = true end
    E.check_type(prefix, "string", method, "prefix")
    E.check_type(recurse, "boolean", method, "recurse")
    return pairs_of(members(self, kind, prefix, recurse))
  end
end

local function listed_members(kind, method)
  return function(self, ...)
    E.check_self(self, method)
    local recurse = primitives.options(method, RECURSE_OPTION, 2, self, ...)
    if recurse == nil then recurse = true end
    E.check_type(recurse, "boolean", method, "recurse")
    local _, values = members(self, kind, "", recurse)
    return list_of(values)
  end
end

P.named_parameters = named_members("parameter", "named_parameters")
P.parameters = listed_members("parameter", "parameters")
P.named_buffers = named_members("buffer", "named_buffers")
P.buffers = listed_members("buffer", "buffers")

function P:named_children()
  E.check_self(self, "named_children")
  return pairs_of(parts(self))
end

function P:children()
  E.check_self(self, "children")
  local _, values = parts(self)
  return list_of(values)
end

local function all_modules(module)
  local names, values = {}, {}
  walk(module, "", {}, function(each, prefix)
    names[#names + 1], values[#values + 1] = prefix:sub(1, -2), each
  end)
  return names, values
end

function P:named_modules()
  E.check_self(self, "named_modules")
  return pairs_of(all_modules(self))
end

function P:modules()
  E.check_self(self, "modules")
  local _, values = all_modules(self)
  return list_of(values)
end

-- ---- Modes --------------------------------------------------------------------------------------

function P:train(mode)
  E.check_self(self, "train")
  if mode == nil then mode = true end
  E.check_type(mode, "boolean", "train", "mode")
  local own = E.record(self)
  if own then
    own.fields.training = mode
    for _, child in ipairs(select(2, parts(self))) do child:train(mode) end
  else
    primitives.train(self, mode)
  end
  return self
end

function P:eval()
  E.check_self(self, "eval")
  return self:train(false)
end

function P:apply(f)
  E.check_self(self, "apply")
  E.check_type(f, "function", "apply", "f")
  for _, child in ipairs(select(2, parts(self))) do child:apply(f) end
  f(self)
  return self
end

-- ---- Dtypes -------------------------------------------------------------------------------------

--- Appends the outermost built-in modules in a module.
local function built_in(module, list, seen)
  if seen[module] then return end
  seen[module] = true
  if not E.record(module) then
    list[#list + 1] = module
    return
  end
  for _, entry in ipairs(entries(module)) do
    if entry.kind == "module" then built_in(entry.value, list, seen) end
  end
end

local TO_OPTIONS = { "dtype" }

function P:to(...)
  E.check_self(self, "to")
  local dtype = primitives.options("to", TO_OPTIONS, 2, self, ...)
  local list = {}
  built_in(self, list, {})
  primitives.store(list, dtype)
  return self
end

-- ---- State --------------------------------------------------------------------------------------

local NO_OPTIONS, LOAD_OPTIONS = {}, { "strict", "assign" }

function P:state_dict(...)
  E.check_self(self, "state_dict")
  primitives.options("state_dict", NO_OPTIONS, 2, self, ...)
  return state_dict.of(self)
end

function P:load_state_dict(state, ...)
  E.check_self(self, "load_state_dict")
  local strict, assign = primitives.options("load_state_dict", LOAD_OPTIONS, 3, self, state, ...)
  if strict == nil then strict = true end
  if assign == nil then assign = false end
  E.check_type(strict, "boolean", "load_state_dict", "strict")
  E.check_type(assign, "boolean", "load_state_dict", "assign")
  return state_dict.load(self, state, strict, assign)
end

-- ---- Text ---------------------------------------------------------------------------------------

function P:class_name()
  E.check_self(self, "class_name")
  return E.class_name(self)
end

function P:extra_repr()
  E.check_self(self, "extra_repr")
  return E.record(self) and "" or primitives.describe(self)
end

function P:__tostring()
  E.check_self(self, "tostring")
  return repr(self, not E.record(self) and E.class_name(self) == "ModuleList")
end

return E.with_frames(P)
