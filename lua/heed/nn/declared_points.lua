--- Points that a class of modules in Lua declares, Mine.points = { "hook_x", … }, and passes in its forward,
--- x = self:point("hook_x", x).

local E = require "heed.nn.entries"
local slices = require "heed.nn.slices"

local declared = {}

--- The points of a class's module as a list; empty if its class declares none.
function declared.names(m, method)
  local own = E.record(m)
  local list = own and own.class.points
  if list == nil or type(list) == "function" then return {} end
  local class = E.class_name(m)
  if not E.is_list(list) then E.reject(method, class .. ".points", list, "a list of names") end
  for i, name in ipairs(list) do E.check_type(name, "string", method, ("%s.points[%d]"):format(class, i)) end
  return list
end

--- Calls the listeners, {item = f(x, context)}, of a point. Returns x, or what they changed it to.
function declared.call(m, name, x, list)
  for _, listener in ipairs(list or {}) do
    if listener.item then
      local y = listener.item(x, { module = m, name = name })
      if y ~= nil then x = y end
    end
  end
  return x
end

--- self:point(name, x) of a module that has listeners: lists by name.
function declared.point(m, name, x, lists)
  local class, found = E.class_name(m), false
  E.check_type(name, "string", "point", "name")
  local names = declared.names(m, "point")
  for _, each in ipairs(names) do found = found or each == name end
  if not found then
    E.fail("point: %s has no point '%s'; it must be one of %s.points: '%s'", class, name, class,
      table.concat(names, "', '"))
  end
  if lists[name] then
    E.check_tensor(x, "point", ("'%s' of %s"):format(name, class))
    return declared.call(m, name, x, lists[name])
  end
  return x
end

local pause = slices.pause

local function unchanged(_, x)
  pause()
  return x
end

--- self.point for one forward of m, as a function at(name, x): a forward with many points costs less through it.
function declared.at(m)
  local attached = E.record(m).attached
  local lists = attached and attached.points
  if not lists then return unchanged end
  return function(name, x)
    pause()
    return declared.point(m, name, x, lists)
  end
end

return declared
