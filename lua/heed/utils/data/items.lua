--- Reading datasets. A dataset is a tensor (its items lie along dimension 1), a list, one of heed's datasets, or any
--- object with a method get(self, i), which returns one or several values, and a length: a method len or #.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local object = require "heed.utils.data.object"

local M = {}

local function field(value, name) return value[name] end

--- The method of an object that is not heed's; nil if it has none, also where its __index takes numbers alone.
local function method_of(value, name)
  if type(value) ~= "table" and type(value) ~= "userdata" or E.is_module(value) then return nil end
  local found, f = pcall(field, value, name)
  return found and type(f) == "function" and f or nil
end

--- Whether # says how many items there are: of a list, or by a metamethod.
local function has_length(value)
  local meta = getmetatable(value)
  return type(value) ~= "table" or #value > 0 or type(meta) == "table" and rawget(meta, "__len") ~= nil
end

--- Raises unless the value is a dataset.
function M.check(dataset, method, argument)
  if E.is_tensor(dataset) then
    if dataset.ndim == 0 then E.reject(method, argument, dataset, "a tensor of at least 1 dimension") end
    return
  end
  local _, class = object.of(dataset)
  if class then
    if not class.sample then
      E.fail("%s: %s is a heed.%s; it must be a dataset, such as loader.dataset", method, argument, class.name)
    end
    return
  end
  local get = not E.kind(dataset) and method_of(dataset, "get")
  if not get and not object.is_list(dataset) then
    E.reject(method, argument, dataset, "a dataset: a tensor, a list, or an object with the methods get and len")
  elseif get and not method_of(dataset, "len") and not has_length(dataset) then
    E.fail("%s: %s has a method get and no len; it must have both, get(self, i) and len(self)", method, argument)
  elseif not get and method_of(dataset, "len") then
    E.fail("%s: %s has a method len and no get; it must have both, get(self, i) and len(self)", method, argument)
  elseif not get and #dataset == 0 and next(dataset) ~= nil then
    E.fail("%s: %s is a table by name; it must be a list: options stand in a table of their own, as in %s(dataset, "
      .. "{batch_size = 4})", method, argument, method)
  end
end

--- The number of items.
function M.length(dataset, method)
  if E.is_tensor(dataset) then return dataset.shape[1] end
  local values, class = object.of(dataset)
  if class then return class.length(values, method) end
  local len = method_of(dataset, "len")
  local length
  if len then length = len(dataset) else length = #dataset end
  return E.integer(length, nil, method, "the length of the dataset", "an integer")
end

--- Item i, from 1 to the length. Several values are a list.
function M.sample(dataset, i, method)
  if E.is_tensor(dataset) then return dataset:select(1, i) end
  local values, class = object.of(dataset)
  if class then return class.sample(values, i, method) end
  local get = method_of(dataset, "get")
  if not get then
    local value = dataset[i]
    if value == nil then E.fail("%s: item %d of the dataset is nil; it must have a value", method, i) end
    return value
  end
  local results = compat.pack(get(dataset, i))
  for k = 1, math.max(results.n, 1) do
    if results[k] == nil then E.fail("%s: item %d of the dataset is nil; it must have a value", method, i) end
  end
  if results.n == 1 then return results[1] end
  results.n = nil
  return results
end

--- The items at the indices (int64 [n]) as one batch, or nil if they have to be read one by one: a tensor, or a list of
--- tensors.
function M.batch(dataset, indices, method)
  if E.is_tensor(dataset) then return dataset:index_select(1, indices) end
  local values, class = object.of(dataset)
  return class and class.batch and class.batch(values, indices, method) or nil
end

return M
