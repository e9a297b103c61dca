--- heed.load and heed.save: tensors in .safetensors, .npz and .npy files.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local state_dict = require "heed.nn.state_dict"
local files, primitives = core.files, core.modules
local fail = E.fail

local M = {}

--- The tensors of a file by name, in its order, and its metadata; the tensor of an .npy; or nil, message.
function M.load(path)
  local first, tensors, metadata = files.load(path)
  if first == nil then return nil, tensors end
  if not metadata then return first end
  return state_dict.from(first, tensors), metadata
end

-- ---- Saving -------------------------------------------------------------------------------------

local function is_tensor(value)
  local kind = primitives.kind(value)
  return kind == "tensor" or kind == "parameter"
end

--- The names and tensors of a table: in its own order, if it has one, else sorted by name.
local function contents_of(what)
  local names, tensors = {}, {}
  for name, value in compat.pairs(what) do
    if type(name) ~= "string" then fail("save: a name must be a string, got %s", E.what(name)) end
    if not is_tensor(value) then fail("save: '%s' must be a tensor, got %s", name, E.what(value)) end
    names[#names + 1] = name
    E.look "save"
  end
  if not state_dict.is_state_dict(what) then E.sort(names, "save") end
  for i, name in ipairs(names) do
    E.look "save"
    tensors[i] = what[name]
  end
  return names, tensors
end

--- Keys and values in turn, sorted by key.
local function metadata_list(metadata)
  local keys, list = {}, {}
  if metadata == nil then return list end
  E.check_type(metadata, "table", "save", "metadata")
  for key, value in pairs(metadata) do
    E.look "save"
    if type(key) ~= "string" or type(value) ~= "string" then
      fail("save: metadata must hold strings by strings, got %s for %s", E.what(value), E.what(key))
    end
    keys[#keys + 1] = key
  end
  E.sort(keys, "save")
  for _, key in ipairs(keys) do
    E.look "save"
    list[#list + 1] = key
    list[#list + 1] = metadata[key]
  end
  return list
end

local OPTIONS = { "metadata" }

--- Saves a tensor or a table of tensors; true, or nil, message.
function M.save(path, what, ...)
  local metadata = primitives.options("save", OPTIONS, 3, path, what, ...)
  if is_tensor(what) then
    if metadata ~= nil then fail "save: metadata is given; it must be nil for a tensor without a name" end
    return files.save_tensor(path, what)
  end
  if E.is_module(what) then
    fail("save: what must be a tensor or a table of tensors, got %s; m:state_dict() gives its tensors", E.what(what))
  end
  if not state_dict.is_state(what) then
    fail("save: what must be a tensor or a table of tensors, got %s", E.what(what))
  end
  local names, tensors = contents_of(what)
  return files.save(path, names, tensors, metadata_list(metadata))
end

return E.with_frames(M)
