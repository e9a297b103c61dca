--- clip_grad_norm_(model, max_norm): limits the norm of all gradients of a model whose ranks have parts of it.

local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local shards = require "heed.parallel.shards"
local state_dict = require "heed.nn.state_dict"
local primitives = core.modules

local METHOD = "clip_grad_norm_"

local function sum_over(number, place)
  return require "heed.distributed".all_reduce(core.tensor { number }, "sum", { group = place.group }):item()
end

--- The square of the norm of gradients together, and of those of the other ranks of the place if there is one.
local function sum_of(gradients, place)
  local square = #gradients > 0 and primitives.total_norm(gradients, 2) ^ 2 or 0
  return place and sum_over(square, place) or square
end

--- The gradients of a model: all of them; those that all ranks have; lists {place =, ...} of those that others have
--- other parts of. `twice` is a weight that an earlier rank counts, or nil.
local function gradients_of(model, twice)
  local all, whole, divided, seen, lists = {}, {}, {}, {}, {}
  local skipped = twice and select(2, primitives.identity(twice))
  state_dict.walk(model, METHOD, function(_, x, owner, entry)
    local place, origins = shards.origins(owner)
    local origin = origins and origins[entry.name] or {}
    if origins and not lists[place] then
      lists[place] = { place = place }
      divided[#divided + 1] = lists[place]
    end
    local _, identity = primitives.identity(x)
    if entry.kind ~= "parameter" or seen[identity] or not x.grad then return end
    seen[identity] = true
    all[#all + 1] = x.grad
    local list = (origin.dim or origin.only) and lists[place] or whole
    if identity ~= skipped then list[#list + 1] = x.grad end
  end)
  return all, whole, divided
end

local function clip(model, max_norm)
  local stage = (attached(model) or {}).pipeline
  local twice = stage and stage.tied and stage.place.rank > 1 and stage.tied.weight or nil
  local all, whole, divided = gradients_of(model, twice)
  local square = sum_of(whole)
  for _, list in ipairs(divided) do square = square + sum_of(list, list.place) end
  if stage then square = sum_over(square, stage.place) end
  local norm = square ^ 0.5
  local scale = max_norm / (norm + 1e-6) -- as in PyTorch
  if scale < 1 or norm ~= norm then
    for _, gradient in ipairs(all) do gradient:mul_(scale) end
  end
  return norm
end

--- clip_grad_norm_(model, max_norm): scales the gradients down so that the norm of those of all ranks together is at
--- most max_norm. Returns the norm before, the same on all ranks.
return E.with_frames {
  clip_grad_norm_ = function(model, max_norm)
    E.check_module(model, METHOD, "model")
    max_norm = E.number(max_norm, nil, METHOD, "max_norm", function(n) return n >= 0 end, "a number, at least 0")
    return mode.no_grad(clip, model, max_norm)
  end,
}
