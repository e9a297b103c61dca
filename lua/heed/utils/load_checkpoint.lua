--- load_checkpoint: a checkpoint's states into modules, optimisers, loaders and generators: into all, or into none.

local core = require "heed.core"
local E = require "heed.nn.entries"
local checkpoints = require "heed.checkpoints"
local files = require "heed.files"
local object = require "heed.utils.data.object"
local state_dict = require "heed.nn.state_dict"

local METHOD = "load_checkpoint"
local DEEPEST = 20
local NEEDED = "a module, a generator, an object with load_state_dict, or a table of these"

-- ---- What goes where ----------------------------------------------------------------------------

local function names_of(state)
  local names = {}
  for key in next, state do names[#names + 1] = tostring(key) end
  E.sort(names, METHOD)
  return #names > 0 and table.concat(names, ", ") or "nothing"
end

--- Adds {path, object, state, load} for every object to the list of its kind: modules, generators, own (objects of
--- heed's, which are prepared first) and others. Raises for names that the checkpoint lacks.
local function collect(found, objects, state, path, depth)
  if depth > DEEPEST then E.fail("%s: the objects are nested more than %d tables deep", METHOD, DEEPEST) end
  local keys = {} -- first, since a metamethod may change the table
  for key in next, objects do keys[#keys + 1] = key end
  E.sort(keys, METHOD, function(a, b) return tostring(a) < tostring(b) end)
  for _, key in ipairs(keys) do
    E.check_cancel(METHOD)
    local target = rawget(objects, key)
    local at = (path == "" and "" or path .. ".") .. tostring(key)
    local part = rawget(state, key)
    local load = checkpoints.method_of(target, "load_state_dict")
    local _, class = object.of(target)
    local kind = E.is_module(target) and "modules" or E.is_generator(target) and "generators"
      or class and class.prepare and "own" or load and "others"
    if not kind and (not E.is_list(target) or getmetatable(target)) then
      E.reject(METHOD, ("'%s'"):format(at), target, NEEDED)
    end
    if part == nil then
      E.fail("%s: '%s' is not in the checkpoint; it has %s", METHOD, at, names_of(state))
    elseif kind then
      local list = found[kind]
      list[#list + 1] = { path = at, object = target, state = part, load = load }
    elseif not E.is_list(part) or state_dict.is_state_dict(part) then
      E.fail("%s: '%s' is a table of objects, and in the checkpoint %s", METHOD, at, E.what(part))
    else
      collect(found, target, part, at, depth + 1)
    end
  end
end

--- Raises one error with the problems of all modules; returns what state_dict.copy needs.
local function prepare(modules, strict)
  local loads, problems = {}, {}
  for _, each in ipairs(modules) do
    if not state_dict.is_state(each.state) then
      problems[#problems + 1] = { each.path, "is not the state of a module" }
    else
      local own, misfits = state_dict.prepare(each.object, each.state, strict)
      for _, load in ipairs(own) do loads[#loads + 1] = load end
      for _, problem in ipairs(misfits) do problems[#problems + 1] = { each.path .. "." .. problem[1], problem[2] } end
    end
  end
  if #problems == 0 then return loads end
  E.sort(problems, METHOD, function(a, b) return a[1] < b[1] end)
  for i, problem in ipairs(problems) do problems[i] = ("\n  %s %s"):format(problem[1], problem[2]) end
  E.fail("%s: the checkpoint is of another model:%s", METHOD, table.concat(problems))
end

-- ---- Loading ------------------------------------------------------------------------------------

--- A copy of a state, with tensors of its own.
local function copy_of(value, depth)
  if E.is_tensor(value) then return value:clone() end
  if type(value) ~= "table" or getmetatable(value) or depth > DEEPEST then return value end
  local copy = {}
  for key, each in next, value do
    E.check_cancel(METHOD)
    copy[key] = copy_of(each, depth + 1)
  end
  return copy
end

--- Calls load_state_dict of objects that are not heed's, then f. On an error gives the objects their states back.
local function load_others(others, f)
  local before, tried = {}, 0
  for i, each in ipairs(others) do
    local state_of = checkpoints.method_of(each.object, "state_dict")
    before[i] = state_of and { copy_of(state_of(each.object), 1) }
  end
  local done, problem = pcall(function()
    for i, each in ipairs(others) do
      tried = i
      each.load(each.object, each.state)
    end
    f()
  end)
  if done then return end
  for i = 1, tried do
    if before[i] then pcall(others[i].load, others[i].object, before[i][1]) end
  end
  error(problem, 0)
end

--- The function that loads the state of one of heed's own objects. An error names the object.
local function prepare_own(each)
  local values, class = object.of(each.object)
  local fine, result = pcall(class.prepare, values, each.state)
  if fine then return result end
  local _, at = tostring(result):find("load_state_dict: the state is", 1, true)
  if not at then error(result, 0) end
  E.fail("%s: '%s': the state is%s", METHOD, each.path, tostring(result):sub(at + 1))
end

--- Loads everything. What can fail comes first, what changes heed's own objects last.
local function load_all(found)
  local take = {}
  for i, each in ipairs(found.own) do take[i] = prepare_own(each) end
  for _, each in ipairs(found.generators) do
    if type(each.state) ~= "string" then
      E.reject(METHOD, ("'%s'"):format(each.path), each.state, "the state of a generator")
    end
    each.object:clone():set_state(each.state)
  end
  local function copy() state_dict.copy(found.loads) end
  if #found.others > 0 then load_others(found.others, copy) else copy() end
  for _, take_state in ipairs(take) do take_state() end
  for _, each in ipairs(found.generators) do each.object:set_state(each.state) end
end

--- Returns the whole table of the checkpoint; nil and a message if the file is missing or broken.
return function(path, objects, ...)
  local strict = core.modules.options(METHOD, { "strict" }, 3, path, objects, ...)
  strict = E.boolean(strict, true, METHOD, "strict")
  E.check_type(path, "string", METHOD, "path")
  if not E.is_list(objects) or getmetatable(objects) then
    E.reject(METHOD, "objects", objects, "a table such as {model = model, optimizer = optimizer}")
  end
  local checkpoint, message = files.load(path)
  if checkpoint == nil then return nil, message end
  if type(checkpoint) ~= "table" or state_dict.is_state_dict(checkpoint) or E.is_tensor(checkpoint) then
    return nil, ("%s: '%s' is not a checkpoint; heed.load reads its tensors"):format(METHOD, path)
  end
  local found = { modules = {}, generators = {}, own = {}, others = {} }
  collect(found, objects, checkpoint, "", 1)
  found.loads = prepare(found.modules, strict)
  load_all(found)
  return checkpoint
end
