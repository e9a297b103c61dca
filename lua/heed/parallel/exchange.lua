--- Collectives inside forward passes, with their gradients, for parallel.styles. Each tensor is either whole, with the
--- same values on all ranks of the group, or partial: the ranks' values have to be added.

local core = require "heed.core"
local E = require "heed.nn.entries"
local Function = require "heed.autograd.functions"
local split = require("heed.parallel.place").split

local exchange = {}

local function dist() return require "heed.distributed" end

local function is_recorded(x) return core.is_grad_enabled() and E.is_tensor(x) and x.requires_grad end

local enter = Function("EnterParallel", {
  forward = function(ctx, x, place)
    ctx.place = place
    return x
  end,
  backward = function(ctx, dy)
    return dist().all_reduce(dy:clone(), "sum", { group = ctx.place.group })
  end,
})

--- x, which is whole, for modules of which each rank has a part: they give partial gradients, which are added.
function exchange.enter(x, place)
  return is_recorded(x) and enter(x, place) or x
end

local leave = Function("LeaveParallel", {
  forward = function(_, y, place) return dist().all_reduce(y:clone(), "sum", { group = place.group }) end,
  backward = function(_, dy) return dy end,
})

--- The sum of y, which is partial, over the ranks. Without a gradient y itself is overwritten.
function exchange.add(y, place)
  if is_recorded(y) then return leave(y, place) end
  return dist().all_reduce(y, "sum", { group = place.group })
end

--- The columns y [..., count] of the ranks, one after another: [..., size]. All are sent in the width of the widest.
local function gather_columns(y, size, place)
  local _, widest = split(size, 1, place.size)
  if y.shape[y.ndim] < widest then y = y:pad { 0, widest - y.shape[y.ndim] } end
  local parts = dist().all_gather(y:contiguous(), { group = place.group })
  for rank, part in ipairs(parts) do
    local _, count = split(size, rank, place.size)
    parts[rank] = part:narrow(-1, 1, count)
  end
  return core.cat(parts, -1)
end

local gather = Function("GatherColumns", {
  forward = function(ctx, y, size, place)
    ctx.first, ctx.count = split(size, place.rank, place.size)
    return gather_columns(y, size, place)
  end,
  backward = function(ctx, dy) return dy:narrow(-1, ctx.first, ctx.count) end,
})

--- The whole result [..., size] of a module of which each rank computes some columns, y [..., count].
function exchange.gather(y, size, place)
  if is_recorded(y) then return gather(y, size, place) end
  return gather_columns(y, size, place)
end

return exchange
