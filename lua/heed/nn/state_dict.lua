--- State dicts: a module's parameters and buffers by dotted name, in order; and loading them into a module.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local gguf = require "heed.gguf"
local primitives, Parameter, empty, files = core.modules, core.nn.Parameter, core.empty, core.files
local entries, fail, raw, pairs = E.entries, E.fail, compat.raw, compat.pairs

local M = {}

-- ---- The object ---------------------------------------------------------------------------------

-- Keys of a state dict's raw fields: a list of the names, the values by name, and of a loaded file the entries that are
-- opened when they are used: {archive =, numbers = by name}, or nil; whether dots separate nested keys; a list of the
-- metadata of a file, empty until the archive makes them.
local NAMES, VALUES, LATER, NESTED, METADATA = {}, {}, {}, {}, {}
local StateDict = { __name = "heed.StateDict" }

--- The value of a name; opens an entry of a file.
local function value_of(state, name)
  local values, later = raw(state, VALUES), raw(state, LATER)
  local value = values[name]
  if value ~= nil or not later or not later.numbers[name] then return value end
  value = files.open(later.archive, later.numbers[name])
  values[name], later.numbers[name] = value, nil
  return value
end

--- The metadata of the file that a state dict was loaded from, or nil.
local function metadata_of(state)
  local made, later = raw(state, METADATA), raw(state, LATER)
  if made[1] == nil and later then
    local types
    made[1], types = files.metadata(later.archive)
    gguf.remember(made[1], types)
  end
  return made[1]
end

--- The metadata without lists of more than `longest` elements, such as vocabularies; {} for a state without any.
function M.metadata(state, longest)
  local made, later = raw(state, METADATA), raw(state, LATER)
  if made and made[1] ~= nil then return made[1] end
  return later and (files.metadata(later.archive, longest)) or {}
end

--- The value of a name; of a nested state dict also the part below a key: state.model for "model.weight" and others.
--- state.metadata is the metadata of a file, unless it has a tensor of that name.
function StateDict.__index(state, name)
  local value = value_of(state, name)
  if value == nil and name == "metadata" then value = metadata_of(state) end
  if value ~= nil or not raw(state, NESTED) or type(name) ~= "string" then return value end
  local prefix = name .. "."
  local part = M.renamed(state, function(each)
    return each:sub(1, #prefix) == prefix and each:sub(#prefix + 1) or nil
  end, "state_dict")
  return #part > 0 and part or nil
end

--- Assigning to a new name appends it; assigning nil removes the name.
function StateDict.__newindex(state, name, value)
  local names, values, later = raw(state, NAMES), raw(state, VALUES), raw(state, LATER)
  E.check_type(name, "string", "state_dict", "a name")
  local known = values[name] ~= nil or later and later.numbers[name] ~= nil
  if value == nil and known then
    for i, each in ipairs(names) do
      if each == name then
        table.remove(names, i)
        break
      end
    end
  elseif value ~= nil and not known then
    names[#names + 1] = name
  end
  values[name] = value
  if later then later.numbers[name] = nil end
end

function StateDict.__len(state) return #raw(state, NAMES) end

function StateDict.__pairs(state)
  local names, i = raw(state, NAMES), 0
  return function()
    i = i + 1
    if names[i] ~= nil then return names[i], value_of(state, names[i]) end
  end
end

StateDict.__tostring = core.frame(function(state)
  local lines, values, later = {}, raw(state, VALUES), raw(state, LATER)
  for _, name in ipairs(raw(state, NAMES)) do
    E.check_cancel "tostring"
    local number = later and later.numbers[name]
    local what = number and files.describe(later.archive, number) or E.what(values[name])
    lines[#lines + 1] = ("\n  %s: %s"):format(name, what)
  end
  return ("StateDict(%s%s)"):format(table.concat(lines), #lines > 0 and "\n" or "")
end)

--- A state dict with these names, a list, and values, a table by name. It takes ownership of the tables. nested: dots
--- separate the keys of nested dicts. `numbers` and `archive`, or nil, are of the entries of a file that are opened
--- when they are used; `metadata` are those of the file, or nil.
function M.from(names, values, nested, numbers, archive, metadata)
  local later = archive and { numbers = numbers, archive = archive }
  return compat.object({
    [NAMES] = names,
    [VALUES] = values,
    [LATER] = later,
    [NESTED] = nested or nil,
    [METADATA] = { metadata },
  }, StateDict)
end

function M.is_state_dict(value) return raw(value, NAMES) ~= nil end

--- Whether a value is a state dict or a plain table.
function M.is_state(value) return M.is_state_dict(value) or E.is_list(value) end

--- Whether a state dict has a value of that name.
function M.has(state, name)
  local later = raw(state, LATER)
  return raw(state, VALUES)[name] ~= nil or later ~= nil and later.numbers[name] ~= nil
end

--- The value of a name in a state dict or a table: a tensor, never a part of a nested state dict.
function M.get(state, name)
  if M.is_state_dict(state) then return value_of(state, name) end
  return state[name]
end

--- If heed lacks the dtype of a tensor in a file: {dtype =, fix = (or nil), message =, file = (how that begins)}, else
--- nil.
function M.lacking(state, name)
  local later = M.is_state_dict(state) and raw(state, LATER)
  local number = later and raw(state, VALUES)[name] == nil and later.numbers[name]
  return number and files.lacking(later.archive, number) or nil
end

--- Iterates over the names of a state dict, in order, or of a table, without opening entries of a file.
function M.names(state)
  local names, i = raw(state, NAMES), 0
  if not names then
    local following, subject, name = pairs(state)
    return function()
      name = following(subject, name)
      return name
    end
  end
  return function()
    i = i + 1
    return names[i]
  end
end

--- A state dict of the same values under the names rename(name); nil leaves a value out. Of values with
--- one new name the last remains. Entries of a file stay unopened; `method` is for cancellation checks.
function M.renamed(state, rename, method)
  local names, values, numbers, later = {}, {}, {}, raw(state, LATER)
  for name in M.names(state) do
    E.check_cancel(method)
    local to = rename(name)
    if to ~= nil then
      local number = later and later.numbers[name]
      if values[to] == nil and not numbers[to] then names[#names + 1] = to end
      values[to], numbers[to] = not number and M.get(state, name) or nil, number
    end
  end
  return M.from(names, values, raw(state, NESTED), numbers, later and later.archive, raw(state, METADATA)[1])
end

-- ---- Taking and loading -------------------------------------------------------------------------

--- Calls visit(name, tensor, owner, entry) for everything that belongs into a module's state dict, in order: its own
--- parameters, its persistent buffers, then its parts. A shared tensor is visited under each of its names.
function M.walk(module, method, visit)
  E.walk(module, "", method, nil, function(each, prefix)
    local list = entries(each)
    for _, kind in ipairs { "parameter", "buffer" } do
      for i, entry in ipairs(list) do
        if i % 1024 == 0 then E.check_cancel(method) end
        if entry.kind == kind and entry.persistent ~= false then
          visit(prefix .. entry.name, entry.value, each, entry)
        end
      end
    end
    return false, list
  end)
end

--- The state dict of a module; its tensors share the module's memory.
function M.of(module)
  local names, values = {}, {}
  M.walk(module, "state_dict", function(name, tensor)
    names[#names + 1] = name
    values[name] = primitives.plain(tensor)
  end)
  return M.from(names, values)
end

--- The module at a dotted path, or nil.
function M.at_path(module, path)
  for name in path:gmatch("[^.]+") do
    local found
    for _, entry in ipairs(E.parts(module)) do
      if entry.name == name then found = entry.value end
    end
    if not found then return nil end
    module = found
  end
  return module
end

local MASKS = { mask = true, causal_mask = true }

--- Whether a name is that of a causal mask stored as a buffer, which PyTorch code commonly does and which heed's
--- built-in modules do not need.
local function is_mask_buffer(module, name)
  local dot = name:reverse():find(".", 1, true) -- from the end; a pattern would take quadratic time
  local last = dot and name:sub(#name - dot + 2) or name
  if not MASKS[last] then return false end
  local owner = M.at_path(module, dot and name:sub(1, #name - dot) or "")
  return owner ~= nil and E.record(owner) == nil
end

--- Compares a state with a module. Returns a list of {target =, value =, owner =, entry =} to load, the missing names,
--- the unexpected names, and a list of {name, problem}.
local function compare(module, state, assign)
  local loads, missing, unexpected, misfits, known = {}, {}, {}, {}, {}
  M.walk(module, "load_state_dict", function(name, target, owner, entry)
    local value = M.get(state, name)
    known[name] = true
    if value == nil then
      missing[#missing + 1] = name
      return
    end
    local problem = primitives.misfit(target, value, assign)
    if problem then
      misfits[#misfits + 1] = { name, problem }
    else
      loads[#loads + 1] = { target = target, value = value, owner = owner, entry = entry }
    end
  end)
  for name in M.names(state) do
    E.check_cancel "load_state_dict"
    if type(name) ~= "string" then
      misfits[#misfits + 1] = { tostring(name), "is not a name; names must be strings" }
    elseif not known[name] and not is_mask_buffer(module, name) then
      unexpected[#unexpected + 1] = name
    end
  end
  E.sort(unexpected, "load_state_dict")
  return loads, missing, unexpected, misfits
end

--- What M.copy or M.load needs to load a state into a module, and the list of {name, problem}; with `strict` also of
--- names that are missing or not part of the module.
function M.prepare(module, state, strict, assign)
  local loads, missing, unexpected, problems = compare(module, state, assign)
  if strict then
    for _, name in ipairs(missing) do problems[#problems + 1] = { name, "is missing" } end
    for _, name in ipairs(unexpected) do problems[#problems + 1] = { name, "is not part of the module" } end
  end
  return loads, problems, missing, unexpected
end

--- Raises one error that lists all problems, sorted by name.
local function refuse(module, problems)
  E.sort(problems, "load_state_dict", function(a, b) return a[1] < b[1] end)
  for i, problem in ipairs(problems) do problems[i] = ("\n  %s %s"):format(problem[1], problem[2]) end
  fail("load_state_dict: the state does not fit %s:%s", E.class_name(module), table.concat(problems))
end

--- Replaces parameters and buffers by the `fresh` tensor of each load that has one. Nothing here can fail.
local function put(loads)
  for _, load in ipairs(loads) do
    local own, entry, fresh = E.record(load.owner), load.entry, load.fresh
    if fresh and own then
      entry.value, own.fields[entry.name] = fresh, fresh
    elseif fresh then
      primitives.put(load.owner, entry.name, fresh)
    end
  end
end

--- The tensor as a parameter or a plain tensor, like the entry's; it shares its elements.
local function like(entry, tensor)
  if entry.kind ~= "parameter" then return primitives.plain(tensor) end
  return Parameter(tensor, entry.value.requires_grad)
end

--- For assign = true: the `fresh` tensor of each load is its value, converted if the module does not support the dtype.
local function take(loads)
  for _, load in ipairs(loads) do
    E.check_cancel "load_state_dict"
    local target, value, owner, entry = load.target, load.value:detach(), load.owner, load.entry
    local own = E.record(owner)
    local fits = own and value.dtype == target.dtype or not own and primitives.takes(owner, entry.name, value)
    if not fits then value = value:to(own and target.dtype or "float32") end
    load.fresh = own and like(entry, value) or primitives.plain(value)
  end
end

--- Copies the values into the module. Values that share memory with the module are cloned before anything is written.
--- Parameters without memory (nn.utils.skip_init) get new tensors; shared parameters stay shared.
function M.copy(loads)
  local written, fresh = {}, {}
  for _, load in ipairs(loads) do
    E.check_cancel "load_state_dict"
    written[primitives.identity(load.target)] = true
  end
  for _, load in ipairs(loads) do
    E.check_cancel "load_state_dict"
    if written[primitives.identity(load.value)] then load.value = load.value:clone() end
    if primitives.placeholder(load.target) then
      local _, identity = primitives.identity(load.target)
      local target = fresh[identity] or empty(load.target.shape, { dtype = load.target.dtype })
      fresh[identity], load.target = target, target
      load.fresh = E.record(load.owner) and like(load.entry, target) or primitives.plain(target)
    end
  end
  local targets, values = {}, {}
  for i, load in ipairs(loads) do targets[i], values[i] = load.target, load.value end
  primitives.copy_all(targets, values)
  put(loads)
end

--- Loads a state dict, or a plain table of tensors by name, into a module: completely, or not at all. With `assign` the
--- module takes the tensors themselves instead of copies.
function M.load(module, state, strict, assign)
  if not M.is_state(state) then
    E.reject("load_state_dict", "state", state, "a state dict or a table of tensors by name")
  end
  local loads, problems, missing, unexpected = M.prepare(module, state, strict, assign)
  if #problems > 0 then refuse(module, problems) end
  if assign then
    take(loads)
    put(loads)
    for _, load in ipairs(loads) do -- what is frozen stays frozen
      if load.target.is_parameter and load.target.dtype == "float32" and not load.target.requires_grad then
        load.owner[load.entry.name]:requires_grad_(false)
      end
    end
  else
    M.copy(loads)
  end
  return { missing_keys = missing, unexpected_keys = unexpected }
end

return M
