--- full_state_dict(model): the parameters and buffers of a whole model whose ranks have parts of it.

local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local shards = require "heed.parallel.shards"
local state_dict = require "heed.nn.state_dict"

local METHOD = "full_state_dict"

local function dist() return require "heed.distributed" end

-- ---- Shards -------------------------------------------------------------------------------------

--- The tensor of which each rank of the place has a part along a dimension.
local function joined(x, dim, place)
  local dtype = x.dtype
  x = x:float():transpose(1, dim):contiguous()
  local parts = dist().all_gather(x, { group = place.group, sizes = true })
  return core.cat(parts, 1):transpose(1, dim):contiguous():to(dtype)
end

--- The tensor that rank 1 of the place has; x is nil on the others. Only biases, [n], are of this kind.
local function from_first(x, place)
  local options = { group = place.group }
  local size = dist().broadcast(core.tensor({ x and x.shape[1] or 0 }, { dtype = "int64" }), 1, options):item()
  return dist().broadcast(x and x:clone() or core.zeros(size), 1, options)
end

--- The whole tensors of a model by name, and the names in order. All ranks of a place go through it in the same order:
--- the module's own entries, then those that rank 1 alone has.
local function collect(model)
  local names, values = {}, {}
  local function add(name, value) names[#names + 1], values[name] = name, value end
  state_dict.walk(model, METHOD, function(name, x, owner, entry)
    local place, origins = shards.origins(owner)
    local origin = origins and origins[entry.name] or {}
    if origins and x.dtype == "int8" then E.fail("%s: %s is int8; call it before m:to('int8')", METHOD, name) end
    x = x:detach()
    if not origin.only then add(name, origin.dim and joined(x, origin.dim, place) or x) end
    local bias = entry.name == "weight" and origins and origins.bias
    if bias and bias.only then
      add((name:gsub("weight$", "bias")), from_first(owner.bias and owner.bias:detach(), place))
    end
  end)
  return names, values
end

-- ---- Layers -------------------------------------------------------------------------------------

--- A list of numbers of rank `from`, on all ranks; nil on the others.
local function share_list(list, from, options)
  local count = dist().broadcast(core.tensor({ list and #list or 0 }, { dtype = "int64" }), from, options):item()
  local numbers = list and core.tensor(list, { dtype = "int64" }) or core.zeros(count, { dtype = "int64" })
  return dist().broadcast(numbers, from, options):tolist()
end

local function share_text(text, from, options)
  local bytes
  if text then
    bytes = {}
    for i = 1, #text do bytes[i] = text:byte(i) end
  end
  local characters = share_list(bytes, from, options)
  for i, byte in ipairs(characters) do characters[i] = string.char(byte) end
  return table.concat(characters)
end

--- The names and tensors of all ranks of a pipeline.
local function join_layers(names, values, place)
  local all, whole = {}, {}
  local options = { group = place.group }
  for from = 1, place.size do
    local own = place.rank == from
    for name in share_text(own and table.concat(names, "\n") .. "\n" or nil, from, options):gmatch "([^\n]*)\n" do
      E.check_cancel(METHOD)
      local x = own and values[name] or nil
      local dtype = share_text(x and x.dtype or nil, from, options)
      local shape
      if x then
        shape = {}
        for i = 1, x.ndim do shape[i] = x.shape[i] end
      end
      shape = share_list(shape, from, options)
      x = dist().broadcast(x and x:clone() or core.zeros(shape, { dtype = dtype }), from, options)
      if not whole[name] then all[#all + 1] = name end
      whole[name] = x
    end
  end
  return all, whole
end

-- ---- The whole ----------------------------------------------------------------------------------

local function full_state_dict(model)
  local names, values = collect(model)
  local store = attached(model)
  if store and store.pipeline then names, values = join_layers(names, values, store.pipeline.place) end
  return state_dict.from(names, values)
end

--- full_state_dict(model): the state dict of the whole model that tensor_parallel or pipeline has divided, on all
--- ranks, which call it together.
return E.with_frames {
  full_state_dict = function(model)
    E.check_module(model, METHOD, "model")
    return mode.no_grad(full_state_dict, model)
  end,
}
