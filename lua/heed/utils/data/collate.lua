--- default_collate: joins the samples of a batch.

local core = require "heed.core"
local E = require "heed.nn.entries"
local object = require "heed.utils.data.object"

local DEEPEST = 32
local METHOD = "default_collate"

local function kind_of(value)
  if E.is_tensor(value) then return "tensor" end
  local kind = type(value)
  if kind == "table" and not object.is_list(value) then kind = "object" end
  return kind
end

local function shape_of(tensor) return "[" .. table.concat(tensor.shape, ", ") .. "]" end

local function stack(samples)
  local first = shape_of(samples[1])
  for i, sample in ipairs(samples) do
    if i % 256 == 0 then E.check_cancel(METHOD) end
    if shape_of(sample) ~= first then
      E.fail("%s: sample %d is %s and sample 1 %s; samples of a batch must have one shape: pad them in the dataset "
        .. "or in collate_fn", METHOD, i, shape_of(sample), first)
    end
  end
  return core.stack(samples)
end

local collate

-- One list or table for each field of the samples, which are tables with the same keys.
local function fields(samples, depth)
  local joined = {}
  for key in pairs(samples[1]) do
    local column = {}
    for i, sample in ipairs(samples) do
      E.check_cancel(METHOD)
      column[i] = sample[key]
      if column[i] == nil then
        E.fail("%s: sample %d has no field %s, which sample 1 has; the samples of a batch must have the same fields",
          METHOD, i, type(key) == "string" and ("'%s'"):format(key) or tostring(key))
      end
    end
    joined[key] = collate(column, depth + 1)
  end
  return joined
end

function collate(samples, depth)
  local kind = kind_of(samples[1])
  for i, sample in ipairs(samples) do
    if i % 256 == 0 then E.check_cancel(METHOD) end
    if kind_of(sample) ~= kind then
      E.fail("%s: sample %d is %s and sample 1 %s; the samples of a batch must be alike", METHOD, i, E.what(sample),
        E.what(samples[1]))
    end
  end
  if kind == "tensor" then return stack(samples) end
  if kind == "number" or kind == "boolean" then return core.tensor(samples) end
  if kind == "string" then return samples end
  if kind ~= "table" then
    E.reject(METHOD, "a sample", samples[1], "a tensor, number, boolean, string or a table of these; give a collate_fn")
  end
  if depth > DEEPEST then E.fail("%s: a sample is nested more than %d tables deep", METHOD, DEEPEST) end
  return fields(samples, depth)
end

--- Tensors are stacked, numbers and booleans become a tensor [n], texts a list; tables, field by field, a table.
local function default_collate(samples)
  if not object.is_list(samples) or samples[1] == nil then
    E.reject(METHOD, "samples", samples, "a list of at least one sample")
  end
  local own = {}
  for i = 1, #samples do
    if i % 1024 == 0 then E.check_cancel(METHOD) end
    own[i] = samples[i]
  end
  return collate(own, 1)
end

return default_collate
