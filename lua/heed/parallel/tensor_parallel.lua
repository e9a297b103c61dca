--- tensor_parallel(module, mesh, plan): divides the weights of a module among ranks.

local core = require "heed.core"
local E = require "heed.nn.entries"
local place_of = require "heed.parallel.place"
local styles = require "heed.parallel.styles"
local suggest = require "heed.suggest"
local primitives = core.modules

local METHOD = "tensor_parallel"

--- All parts of a module, each once: a list of {path =, module =, inside = path of the attention around it}, and a list
--- of {owner =, entry =, part =}, every occurrence of a part.
local function parts_of(module)
  local list, uses, attention = {}, {}, {}
  E.walk(module, "", METHOD, {}, function(each, prefix)
    local path = prefix:sub(1, -2)
    list[#list + 1] = { path = path, module = each, inside = attention[each] }
    for _, entry in ipairs(E.parts(each)) do
      uses[#uses + 1] = { owner = each, entry = entry, part = entry.value }
      attention[entry.value] = attention[each] or E.class_name(each) == "MultiHeadAttention" and path or nil
    end
  end)
  return list, uses
end

-- ---- Plans --------------------------------------------------------------------------------------

--- The Lua pattern for a name in a plan, where * stands for any characters.
local function pattern_of(name) return "^" .. name:gsub("%p", "%%%0"):gsub("%%%*", ".*") .. "$" end

--- The end of the message about a name that matches nothing.
local function nearest(name, parts)
  local known = {}
  for _, part in ipairs(parts) do
    E.check_cancel(METHOD)
    known[(part.path:gsub("%d+", "*"))] = true
  end
  known[""] = nil
  local question = suggest.question(suggest.nearest(name, known))
  if question then return "; " .. question end
  local names = {}
  for each in pairs(known) do names[#names + 1] = each end
  table.sort(names)
  if #names == 0 then return "; the module has no parts, so pass a style instead of a plan" end
  return "; the parts are " .. table.concat(names, ", ", 1, math.min(#names, 12)) .. (#names > 12 and ", ..." or "")
end

--- The styles of a plan by part.
local function given_styles(parts, plan)
  local chosen, names = {}, {}
  for name in pairs(plan) do
    if type(name) ~= "string" then E.reject(METHOD, "a name in plan", name, "a string such as 'layers.*.attention'") end
    names[#names + 1] = name
  end
  E.sort(names, METHOD)
  if #names == 0 then E.fail("%s: plan is empty; leave it out for the module's own plan", METHOD) end
  for _, name in ipairs(names) do
    local style, pattern, found = plan[name], pattern_of(name), false
    if not styles.definition(style) then
      E.reject(METHOD, ("plan['%s']"):format(name), style, "Heads(), ColwiseParallel() or RowwiseParallel()")
    end
    for _, part in ipairs(parts) do
      E.check_cancel(METHOD)
      if part.path:find(pattern) then
        found = true
        if part.inside then
          E.fail("%s: plan['%s'] matches '%s', which is a part of the attention '%s'; use Heads() for that", METHOD,
            name, part.path, part.inside)
        elseif chosen[part] then
          E.fail("%s: '%s' matches plan['%s'] and plan['%s']; it must match one", METHOD, part.path, chosen[part].name,
            name)
        end
        chosen[part] = { name = name, style = style }
      end
    end
    if not found then E.fail("%s: plan['%s'] matches no part%s", METHOD, name, nearest(name, parts)) end
  end
  return chosen
end

--- The styles of the classes' own plans by part: Heads for each attention, and the fields tp_plan.
local function own_styles(parts)
  local chosen, by_module, any = {}, {}, false
  for _, part in ipairs(parts) do
    local plan = E.record(part.module) and part.module.tp_plan
    for name, style in pairs(plan or {}) do
      for _, entry in ipairs(E.parts(part.module)) do
        if entry.name == name then by_module[entry.value] = style end
      end
    end
    if E.class_name(part.module) == "MultiHeadAttention" then by_module[part.module] = "heads" end
  end
  for _, part in ipairs(parts) do
    local style = by_module[part.module]
    if style and not part.inside then
      chosen[part], any = { style = styles.of_class(style) }, true
    end
  end
  if not any then
    E.fail("%s: %s has no attention and no layers with a plan of their own; pass a plan, such as "
      .. "{['up'] = ColwiseParallel(), ['down'] = RowwiseParallel()}", METHOD, E.class_name(parts[1].module))
  end
  return chosen
end

-- ---- Checks -------------------------------------------------------------------------------------

local function label(part)
  return part.path == "" and E.class_name(part.module) or ("'%s'"):format(part.path)
end

--- Calls visit(part, other) for each chosen part with a tensor that another part has, too, such as a tied lm_head.
local function visit_shared(parts, chosen, visit)
  local owners = {} -- by identity of a tensor: a part
  for _, part in ipairs(parts) do
    for _, entry in ipairs(E.entries(part.module)) do
      if entry.kind == "parameter" then
        local _, identity = primitives.identity(entry.value)
        local other = owners[identity]
        if other and chosen[other] then visit(other, part) end
        if other and chosen[part] then visit(part, other) end
        owners[identity] = part
      end
    end
  end
end

local function refuse_shared(part, other)
  E.fail("%s: %s shares its weight with %s; leave it out of the plan", METHOD, label(part), label(other))
end

local function check_all(parts, chosen, place)
  for _, part in ipairs(parts) do
    E.check_cancel(METHOD)
    local choice = chosen[part]
    if choice then
      local problem = styles.definition(choice.style).check(part.module, place)
      if problem then E.fail("%s: %s %s", METHOD, label(part), problem) end
      if not E.record(part.module) and primitives.holds_watched(part.module) then
        E.fail("%s: %s has hooks, which its part on each rank would not have; remove them, and add them afterwards",
          METHOD, label(part))
      end
    end
  end
  visit_shared(parts, chosen, refuse_shared)
end

-- ---- Dividing -----------------------------------------------------------------------------------

--- Replaces the parts that have new ones; all of them or, after an error, none.
local function replace(uses, new)
  local changed = {}
  local fine, problem = pcall(function()
    for _, use in ipairs(uses) do
      if new[use.part] then
        changed[#changed + 1] = use
        use.owner[use.entry.name] = new[use.part]
      end
    end
  end)
  if fine then return end
  for _, use in ipairs(changed) do pcall(function() use.owner[use.entry.name] = use.part end) end
  error(problem, 0)
end

--- Divides the parts of a module among the ranks of a mesh of one dimension (all ranks if it is nil). plan: styles by
--- the names of parts, where * stands for any characters, or one style for the module itself; without it attention is
--- divided by heads, and other layers as their classes say. Returns the module: the same one, changed, or if it is
--- divided itself a new one. After an error nothing is changed.
local function tensor_parallel(module, mesh, plan)
  E.check_module(module, METHOD, "module")
  local place = place_of.of(mesh, METHOD)
  local parts, uses = parts_of(module)
  local chosen
  if plan == nil then
    chosen = own_styles(parts)
    visit_shared(parts, chosen, function(part) chosen[part] = nil end)
  elseif styles.definition(plan) then
    chosen = { [parts[1]] = { style = plan } }
  else
    if not E.is_list(plan) then E.reject(METHOD, "plan", plan, "a table of styles by name, or a style") end
    chosen = given_styles(parts, plan)
  end
  check_all(parts, chosen, place)
  if place.size == 1 then return module end
  local new = {}
  for _, part in ipairs(parts) do
    E.check_cancel(METHOD)
    if chosen[part] then new[part.module] = styles.definition(chosen[part].style).divide(part.module, place) end
  end
  replace(uses, new)
  return new[module] or module
end

return E.with_frames { tensor_parallel = tensor_parallel }
