--- State dicts: the parameters and buffers of a module by dotted name, in order, and back.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules
local entries, fail = E.entries, E.fail

local M = {}

-- ---- The object ---------------------------------------------------------------------------------

local NAMES, VALUES = {}, {} -- keys of a state dict's two raw fields: a list, and a table by name
local StateDict = { __name = "heed.StateDict" }

function StateDict.__index(state, name) return rawget(state, VALUES)[name] end

--- A new name goes to the end; nil takes a name out.
function StateDict.__newindex(state, name, value)
  local names, values = rawget(state, NAMES), rawget(state, VALUES)
  if type(name) ~= "string" then fail("state_dict: a name must be a string, got %s", E.what(name)) end
  if value == nil and values[name] ~= nil then
    for i, each in ipairs(names) do
      if each == name then
        table.remove(names, i)
        break
      end
    end
  elseif value ~= nil and values[name] == nil then
    names[#names + 1] = name
  end
  values[name] = value
end

function StateDict.__len(state) return #rawget(state, NAMES) end

function StateDict.__pairs(state)
  local names, values, i = rawget(state, NAMES), rawget(state, VALUES), 0
  return function()
    i = i + 1
    return names[i], values[names[i]]
  end
end

function StateDict.__tostring(state)
  local lines = {}
  for name, value in pairs(state) do
    lines[#lines + 1] = ("\n  %s: %s"):format(name, E.what(value))
  end
  return ("StateDict(%s%s)"):format(table.concat(lines), #lines > 0 and "\n" or "")
end

-- ---- Taking and loading -------------------------------------------------------------------------

--- Calls visit(name, tensor) for what a state dict holds of a module: its own parameters, then its buffers,
--- then its parts; one that is in several places is there several times.
local function walk(module, prefix, visit)
  local list = entries(module)
  for _, kind in ipairs { "parameter", "buffer" } do
    for _, entry in ipairs(list) do
      if entry.kind == kind and entry.persistent ~= false then visit(prefix .. entry.name, entry.value) end
    end
  end
  for _, entry in ipairs(list) do
    if entry.kind == "module" then walk(entry.value, prefix .. entry.name .. ".", visit) end
  end
end

--- The state dict of a module; its tensors share the module's memory.
function M.of(module)
  local names, values = {}, {}
  walk(module, "", function(name, tensor)
    names[#names + 1] = name
    values[name] = primitives.plain(tensor)
  end)
  return setmetatable({ [NAMES] = names, [VALUES] = values }, StateDict)
end

--- The module at a dotted path, nil if there is none.
local function at_path(module, path)
  for name in path:gmatch("[^.]+") do
    local found
    for _, entry in ipairs(entries(module)) do
      if entry.kind == "module" and entry.name == name then found = entry.value end
    end
    if not found then return nil end
    module = found
  end
  return module
end

local MASKS = { mask = true, causal_mask = true }

--- Whether a name is that of a mask which the notebooks keep as a buffer, and which our built-in modules do
--- not need.
local function is_mask_buffer(module, name)
  local path, last = name:match("^(.-)%.?([^.]*)$")
  if not MASKS[last] then return false end
  local owner = at_path(module, path)
  return owner ~= nil and E.record(owner) == nil
end

--- Compares a state with a module: a list of {target, value} to copy, the missing and the unexpected names,
--- and what does not fit as a list of {name, problem}.
local function compare(module, state)
  local copies, missing, unexpected, misfits, known = {}, {}, {}, {}, {}
  walk(module, "", function(name, target)
    local value = state[name]
    known[name] = true
    if value == nil then
      missing[#missing + 1] = name
      return
    end
    local problem = primitives.misfit(target, value)
    if problem then
      misfits[#misfits + 1] = { name, problem }
    else
      copies[#copies + 1] = { target, value }
    end
  end)
  for name in pairs(state) do
    if type(name) ~= "string" then
      misfits[#misfits + 1] = { tostring(name), "is no name: names are strings" }
    elseif not known[name] and not is_mask_buffer(module, name) then
      unexpected[#unexpected + 1] = name
    end
  end
  table.sort(unexpected)
  return copies, missing, unexpected, misfits
end

--- One message for everything that keeps a state from being loaded, sorted by name.
local function refuse(module, problems)
  table.sort(problems, function(a, b) return a[1] < b[1] end)
  for i, problem in ipairs(problems) do problems[i] = ("\n  %s %s"):format(problem[1], problem[2]) end
  fail("load_state_dict: the state does not fit %s:%s", E.class_name(module), table.concat(problems))
end

--- Copies what was compared. Values that share memory with the module are copied before anything is written.
local function copy(copies)
  local written = {}
  for _, pair in ipairs(copies) do written[primitives.identity(pair[1])] = true end
  for _, pair in ipairs(copies) do
    if written[primitives.identity(pair[2])] then pair[2] = pair[2]:clone() end
  end
  for _, pair in ipairs(copies) do pair[1]:copy_(pair[2]) end
end

--- Loads a state (a state dict, or a plain table of tensors by name) into a module; all of it or nothing.
function M.load(module, state, strict)
  if type(state) ~= "table" or E.record(state) then
    fail("load_state_dict: state must be a state dict or a table of tensors by name, got %s", E.what(state))
  end
  local copies, missing, unexpected, problems = compare(module, state)
  if strict then
    for _, name in ipairs(missing) do problems[#problems + 1] = { name, "is missing" } end
    for _, name in ipairs(unexpected) do problems[#problems + 1] = { name, "is not part of the module" } end
  end
  if #problems > 0 then refuse(module, problems) end
  copy(copies)
  return { missing_keys = missing, unexpected_keys = unexpected }
end

return M
