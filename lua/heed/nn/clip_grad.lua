--- nn.utils: norms of gradients, and limits on them.

local core = require "heed.core"
local E = require "heed.nn.entries"
local primitives = core.modules
local options = primitives.options

local M = {}

local function is_tensor(value)
  local kind = primitives.kind(value)
  return kind == "tensor" or kind == "parameter"
end

--- The float32 tensors of a list or iterator, such as m:parameters(), or one tensor.
local function list_of(given, method, argument)
  local list = {}
  if is_tensor(given) then
    list[1] = given
  elseif type(given) == "function" then
    for each in given do
      E.check_cancel(method)
      list[#list + 1] = each
    end
  elseif E.is_list(given) then
    for i = 1, #given do list[i] = given[i] end
  else
    E.reject(method, argument, given, "tensors: m:parameters(), a list or one tensor")
  end
  for i, each in ipairs(list) do
    E.check_cancel(method)
    E.check_tensor(each, method, ("tensor %d"):format(i))
  end
  return list
end

local function is_order(p) return p > 0 end
local function at_least_0(value) return value >= 0 end

--- The order of a norm: a number above 0, or "inf".
local function order(p, method)
  if p == "inf" then return math.huge end
  return E.number(p, 2, method, "norm_type", is_order, "a number above 0, or math.huge for the largest magnitude")
end

local function refuse_infinite(norm, method)
  if norm == norm and norm < math.huge then return end
  E.fail("%s: the norm of the gradients is %s; error_if_nonfinite is set, so nothing was changed", method,
    norm ~= norm and "nan" or "inf")
end

--- The norm of all elements of the tensors together, as a tensor without dimensions.
function M.get_total_norm(tensors, ...)
  local method = "get_total_norm"
  local norm_type, finite = options(method, { "norm_type", "error_if_nonfinite" }, 2, tensors, ...)
  norm_type, finite = order(norm_type, method), E.boolean(finite, false, method, "error_if_nonfinite")
  local norm = primitives.total_norm(list_of(tensors, method, "tensors"), norm_type)
  if finite then refuse_infinite(norm, method) end
  return core.tensor(norm)
end

--- Scales the gradients of the parameters down so that their norm together is at most max_norm; returns the norm
--- before, as a tensor without dimensions.
function M.clip_grad_norm_(parameters, ...)
  local method = "clip_grad_norm_"
  local max_norm, norm_type, finite =
    options(method, { "max_norm", "norm_type", "error_if_nonfinite" }, 2, parameters, ...)
  max_norm = E.number(max_norm, nil, method, "max_norm", at_least_0, "a number, at least 0")
  norm_type, finite = order(norm_type, method), E.boolean(finite, false, method, "error_if_nonfinite")
  local norm = primitives.clip_norm(list_of(parameters, method, "parameters"), max_norm, norm_type, finite)
  if finite then refuse_infinite(norm, method) end
  return core.tensor(norm)
end

--- Limits the elements of the gradients of the parameters to -clip_value … clip_value.
function M.clip_grad_value_(parameters, ...)
  local method = "clip_grad_value_"
  local clip_value = options(method, { "clip_value" }, 2, parameters, ...)
  clip_value = E.number(clip_value, nil, method, "clip_value", at_least_0, "a number, at least 0")
  primitives.clip_value(list_of(parameters, method, "parameters"), clip_value)
end

return E.with_frames(M, "get_total_norm", "clip_grad_norm_", "clip_grad_value_")
