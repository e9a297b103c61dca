--- The methods that nn.ModuleDict and nn.ParameterDict share. Items are fields: d.name, d[name].

local E = require "heed.nn.entries"

local M = {}

--- The entries of that kind, in order.
local function items(self, kind)
  local list = {}
  for _, entry in ipairs(E.entries(self)) do
    if entry.kind == kind then list[#list + 1] = entry end
  end
  return list
end

--- A table by name, or a list of {name, item}, as a list of pairs; a table is sorted by name.
local function pairs_of(given, kind, method)
  local list = {}
  if not E.is_list(given) then
    E.reject(method, "items", given, "a table by name, or a list of {name, %s}, which keeps its order", kind)
  end
  for key, value in pairs(given) do
    E.check_cancel(method)
    local pair = { key, value }
    if type(key) == "number" then
      if not E.is_list(value) or type(value[1]) ~= "string" or value[2] == nil then
        E.reject(method, ("item %d"):format(key), value, "{name, %s}", kind)
      end
      pair = { value[1], value[2], key }
    elseif type(key) ~= "string" then
      E.reject(method, "a name", key, "a string")
    end
    list[#list + 1] = pair
  end
  E.sort(list, method, function(a, b)
    if a[3] and b[3] then return a[3] < b[3] end
    if a[3] or b[3] then return a[3] ~= nil end
    return a[1] < b[1]
  end)
  return list
end

--- Adds the methods to a class whose items are entries of that kind. check(value, name) raises for other values, and
--- returns the value to store.
function M.add_methods(Class, kind, check)
  local function name_of() return kind == "module" and "ModuleDict" or "ParameterDict" end

  function Class:init(...)
    E.check_self(self, "init")
    if select("#", ...) > 0 then Class.update(self, ...) end
  end

  --- Adds or replaces items; if one is refused, none is added.
  function Class:update(given)
    E.check_self(self, "update")
    local list = pairs_of(given, kind, name_of())
    for _, pair in ipairs(list) do
      local name = pair[1]
      if name == "training" or Class[name] ~= nil then
        E.fail("%s: '%s' is the name of a method or field of modules; use another name", name_of(), name)
      elseif name == "" or name:find(".", 1, true) then
        E.fail("%s: a name is '%s'; it must not be empty or contain a dot", name_of(), name)
      end
      pair[2] = check(pair[2], name)
    end
    for _, pair in ipairs(list) do
      E.check_cancel(name_of())
      self[pair[1]] = pair[2]
    end
    return self
  end

  function Class:keys()
    E.check_self(self, "keys")
    local list = {}
    for i, entry in ipairs(items(self, kind)) do list[i] = entry.name end
    return list
  end

  function Class:values()
    E.check_self(self, "values")
    local list = {}
    for i, entry in ipairs(items(self, kind)) do list[i] = entry.value end
    return list
  end

  --- An iterator over names and values, in order.
  function Class:items()
    E.check_self(self, "items")
    local list, i = items(self, kind), 0
    return function()
      i = i + 1
      if list[i] then return list[i].name, list[i].value end
    end
  end

  --- Removes an item and returns its value.
  function Class:pop(name)
    E.check_self(self, "pop")
    for _, entry in ipairs(items(self, kind)) do
      if entry.name == name then
        self[name] = nil
        return entry.value
      end
    end
    E.fail("%s: there is no item %s to remove; the names are %s", name_of(), tostring(name),
      table.concat(Class.keys(self), ", "))
  end

  function Class:clear()
    E.check_self(self, "clear")
    for _, entry in ipairs(items(self, kind)) do self[entry.name] = nil end
  end

  function Class:__len() return #items(self, kind) end

  function Class:__pairs() return Class.items(self) end
end

return M
