--- heed.load for .safetensors, .npz, .npy, .pt and .gguf files, and heed.save for all of these but .pt.

local checkpoints = require "heed.checkpoints"
local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local gguf = require "heed.gguf"
local state_dict = require "heed.nn.state_dict"
local files, primitives = core.files, core.modules
local fail = E.fail

local M = {}

local LOAD_OPTIONS = { "map_location", "weights_only", "mmap" } -- torch.load's

--- A state dict in the file's order, or the table of a checkpoint, and its metadata, which for .gguf is state.metadata
--- alone; for .npy one tensor; nil and a message on failure. The options are accepted, since heed always does what they
--- ask for.
function M.load(path, ...)
  local location, weights_only, mmap = primitives.options("load", LOAD_OPTIONS, 2, path, ...)
  if location ~= nil and location ~= "cpu" then
    E.reject("load", "map_location", location, "'cpu', where heed computes, or nil")
  end
  E.boolean(weights_only, nil, "load", "weights_only")
  E.boolean(mmap, nil, "load", "mmap")
  local first, tensors, metadata, nested, numbers, archive = files.load(path)
  if first == nil then return nil, tensors end
  if metadata == nil then return first end
  if not metadata then return state_dict.from(first, tensors, nested, numbers, archive) end -- GGUF: state.metadata
  local text = metadata[checkpoints.KEY]
  if text then
    metadata[checkpoints.KEY] = nil
    local what, message = checkpoints.decode(path, text, tensors, numbers, archive)
    return what, what and metadata or message
  end
  return state_dict.from(first, tensors, nested, numbers, archive, metadata), metadata
end

-- ---- Saving -------------------------------------------------------------------------------------

--- The names and tensors of a state dict in its order, or of a table sorted by name.
local function contents_of(what, path)
  local names, tensors = {}, {}
  for name, value in compat.pairs(what) do
    if type(name) ~= "string" then
      local list = compat.is_integer(name) and E.is_tensor(value)
      E.reject("save", "a name", name, "a string%s", list and ", as in {x = x, y = y}" or "")
    end
    if not E.is_tensor(value) then
      local other = type(value) ~= "userdata" and files.format(path, true) ~= ".safetensors"
      E.reject("save", ("'%s'"):format(name), value, "a tensor%s",
        other and "; a .safetensors file can hold other values, too" or "")
    end
    names[#names + 1] = name
    E.check_cancel "save"
  end
  if not state_dict.is_state_dict(what) then E.sort(names, "save") end
  for i, name in ipairs(names) do
    E.check_cancel "save"
    tensors[i] = what[name]
  end
  return names, tensors
end

--- The list key, value, key, value, …, sorted by key.
local function metadata_list(metadata)
  local keys, list = {}, {}
  if metadata == nil then return list end
  E.check_type(metadata, "table", "save", "metadata")
  for key, value in pairs(metadata) do
    E.check_cancel "save"
    E.check_type(key, "string", "save", "a key of metadata")
    E.check_type(value, "string", "save", ("metadata['%s']"):format(key))
    keys[#keys + 1] = key
  end
  E.sort(keys, "save")
  for _, key in ipairs(keys) do
    E.check_cancel "save"
    list[#list + 1] = key
    list[#list + 1] = metadata[key]
  end
  return list
end

local OPTIONS = { "metadata" }

--- Whether a table is saved as a checkpoint: the path's format is .safetensors, and not all values are tensors.
local function is_checkpoint(path, what)
  if files.format(path, true) ~= ".safetensors" or state_dict.is_state_dict(what) then return false end
  local others = false
  for name, value in next, what do
    if type(name) ~= "string" then return false end
    others = others or not E.is_tensor(value)
    E.check_cancel "save"
  end
  return others
end

--- Saves a tensor, a table of tensors, or a checkpoint. Returns true, or nil and a message.
function M.save(path, what, ...)
  local metadata = primitives.options("save", OPTIONS, 3, path, what, ...)
  if type(path) ~= "string" then
    E.reject("save", "path", path, "a string%s", type(what) == "string" and "; the path comes first" or "")
  end
  if E.is_tensor(what) then
    if metadata ~= nil then fail "save: metadata is given; it must be nil for a tensor without a name" end
    return files.save_tensor(path, what)
  end
  if not state_dict.is_state(what) then
    local fix = E.is_module(what) and "; use m:state_dict()"
      or E.object_name(what) and "; give it in a table, such as {optimizer = optimizer}" or ""
    E.reject("save", "what", what, "a tensor or a table of tensors%s", fix)
  end
  if files.format(path, true) == ".gguf" then
    local names, tensors = contents_of(what, path)
    return files.save(path, names, tensors, gguf.encode(metadata), true)
  end
  local pairs_of_metadata = metadata_list(metadata)
  if not is_checkpoint(path, what) then
    local names, tensors = contents_of(what, path)
    return files.save(path, names, tensors, pairs_of_metadata)
  end
  local names, tensors, text = checkpoints.encode(what)
  pairs_of_metadata[#pairs_of_metadata + 1] = checkpoints.KEY
  pairs_of_metadata[#pairs_of_metadata + 1] = text
  return files.save(path, names, tensors, pairs_of_metadata)
end

return E.with_frames(M)
