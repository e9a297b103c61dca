--- nn.utils: helpers for making modules.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules

local utils = {}

--- Class(...) without initial weights: the built-in modules in it draw no random numbers, and their parameters are
--- zeros without memory until a state is loaded.
function utils.skip_init(class, ...)
  local record = E.record(class)
  if type(class) ~= "function" and not (record and record.metatable) then
    E.reject("skip_init", "class", class, "a class of modules or a constructor")
  end
  return primitives.skip_init(class, ...)
end

--- The tensors of a list or iterator, such as m:parameters().
local function list_of(parameters, method)
  if not E.is_list(parameters) and type(parameters) ~= "function" then
    E.reject(method, "parameters", parameters, "a list of tensors, such as m:parameters()")
  end
  local list = {}
  if type(parameters) == "function" then
    for parameter in parameters do list[#list + 1] = parameter end
  else
    for i = 1, #parameters do list[i] = parameters[i] end
  end
  for i, parameter in ipairs(list) do
    E.check_cancel(method)
    E.check_tensor(parameter, method, ("parameter %d"):format(i))
  end
  return list
end

--- All elements of the parameters, in order, as one tensor [n].
function utils.parameters_to_vector(parameters)
  local list = list_of(parameters, "parameters_to_vector")
  if #list == 0 then E.reject("parameters_to_vector", "parameters", parameters, "at least one tensor") end
  for i, parameter in ipairs(list) do list[i] = parameter:reshape(-1) end
  return core.cat(list)
end

--- The inverse: copies the elements of vector [n] into the parameters, in order.
function utils.vector_to_parameters(vector, parameters)
  E.check_tensor(vector, "vector_to_parameters", "vector", 1)
  local list, count = list_of(parameters, "vector_to_parameters"), 0
  for _, parameter in ipairs(list) do count = count + parameter:numel() end
  if vector.shape[1] ~= count then
    E.reject("vector_to_parameters", "vector", vector, "[%d], the number of elements of the parameters", count)
  end
  local first, values = 1, {}
  for i, parameter in ipairs(list) do
    E.check_cancel "vector_to_parameters"
    local size = parameter:numel()
    values[i] = vector:narrow(1, first, size):reshape(parameter.shape)
    first = first + size
  end
  primitives.copy_all(list, values)
end

return E.with_frames(utils)
