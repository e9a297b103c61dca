--- The points of a model by name: the path of the module, with the names that classes give to their parts for this
--- purpose, Mine.part_names = { layers = "blocks" }, then the point: "blocks.0.attn.hook_pattern".

local declared = require "heed.nn.declared_points"
local E = require "heed.nn.entries"
local hooks = require "heed.nn.hooks"
local norms = require "heed.nn.norm_points"
local points = require "heed.nn.points"

local named = {}

-- ---- Listing ------------------------------------------------------------------------------------

local ROTATED = { rot_q = true, rot_k = true }

--- The name of a module's part in the names of points.
local function part_name(m, name, method)
  local own = E.record(m)
  local names = own and own.class.part_names
  if names == nil or type(names) == "function" then return name end
  local class = E.class_name(m)
  if not E.is_list(names) then E.reject(method, class .. ".part_names", names, "a table of names by part") end
  local given = names[name]
  if given == nil then return name end
  E.check_type(given, "string", method, ("%s.part_names.%s"):format(class, name))
  return given
end

--- The points of one module, as a list of {point, kind}.
local function points_of(m, method)
  local list = {}
  for _, name in ipairs(declared.names(m, method)) do list[#list + 1] = { name, "declared" } end
  if norms.are_in(m) then
    for _, name in ipairs(norms.NAMES) do list[#list + 1] = { name, "declared" } end
  elseif points.are_in(m) then
    local rotates = not E.record(m) and E.class_name(m) == "MultiHeadAttention" and (m.rope or m.q_norm)
    for _, name in ipairs(points.NAMES) do
      if rotates or not ROTATED[name] then list[#list + 1] = { "hook_" .. name, "attention", name } end
    end
  end
  return list
end

--- The number of the layer in a name, from 1: of the first list of modules in the path; nil if there is none.
function named.layer_of(name)
  local index = name:match "^(%d+)%." or name:match "%.(%d+)%."
  return index and tonumber(index) + 1
end

--- All points of a model, as a list of {name =, layer =, module =, point =, kind =} in the order of modules, and by
--- name.
function named.list(model, method)
  local list, by_name, paths, modules = {}, {}, { [""] = "" }, {}
  E.walk(model, "", method, {}, function(m, prefix)
    modules[prefix] = m
    if prefix ~= "" then
      local before, name = prefix:match "^(.-)([^.]*)%.$"
      paths[prefix] = paths[before] .. part_name(modules[before], name, method) .. "."
    end
    for _, each in ipairs(points_of(m, method)) do
      E.check_cancel(method)
      local name = paths[prefix] .. each[1]
      if by_name[name] then
        E.fail("%s: the name '%s' stands for two points; change points or part_names of a class", method, name)
      end
      local found = { name = name, layer = named.layer_of(name), module = m, kind = each[2] }
      found.point = each[3] or each[1]
      list[#list + 1], by_name[name] = found, found
    end
    return E.class_name(m) == "MultiHeadAttentionWrapper"
  end)
  return list, by_name
end

-- ---- Choosing -----------------------------------------------------------------------------------

--- "; did you mean 'blocks.0.hook_embed'?", or that the method `lister` lists all.
function named.hint(name, list, lister)
  local suggest, known, last = require "heed.suggest", {}, {}
  local function containing(part)
    local found = {}
    for _, each in ipairs(list) do
      if part and #found < 3 and each.name:find(part, 1, true) then found[#found + 1] = each.name end
    end
    return found
  end
  for _, each in ipairs(list) do
    local short = each.name:match "([^.]*)$"
    known[each.name], last[short], last[short:gsub("^hook_", "")] = true, true, true
  end
  local question = suggest.question(suggest.nearest(name, known)) or suggest.question(containing(name))
    or suggest.question(containing(suggest.nearest(name, last)[1]))
  return "; " .. (question or lister .. "() lists all")
end

--- The points that `names` stands for: a name, a list of names, or a function that receives each name and returns
--- whether it is meant. `argument` is what messages call it.
function named.choose(names, list, by_name, method, argument)
  local chosen = {}
  if type(names) == "function" then
    for _, each in ipairs(list) do
      E.check_cancel(method)
      if names(each.name) then chosen[#chosen + 1] = each end
    end
    if #chosen == 0 then
      E.fail("%s: %s chooses none of the %s; hook_names lists them", method, argument, E.count(#list, "point"))
    end
    return chosen
  end
  local wanted = names
  if not E.is_list(names) then wanted = { names } end
  for i, name in ipairs(wanted) do
    E.check_cancel(method)
    local what = wanted == names and ("%s[%d]"):format(argument, i) or argument
    if type(name) ~= "string" then
      E.reject(method, what, name, "a name%s", wanted == names and "" or ", a list of names or a function of the name")
    end
    if not by_name[name] then
      local fix = #list == 0 and "; the model has no points" or named.hint(name, list, "hook_names")
      E.fail("%s: the model has no point '%s'%s", method, name, fix)
    end
    chosen[i] = by_name[name]
  end
  return chosen
end

-- ---- Listening ----------------------------------------------------------------------------------

--- A listener of an attention point for one that receives tensors without a batch where the module has none.
local function without_batch(listener)
  return function(x, context)
    if context.batched then return listener(x, context) end
    local y = listener(x:squeeze(1), context)
    return y and y:unsqueeze(1)
  end
end

--- Calls listener(x, context) whenever a forward pass comes to the point; it may return a changed tensor of that shape.
--- What it returns is ignored if it only `reads`. Returns a handle.
function named.listen(point, listener, reads)
  if point.kind == "declared" then return hooks.add(point.module, "points", point.point, listener) end
  return points[reads and "read" or "add"](point.module, point.point, without_batch(listener))
end

return named
