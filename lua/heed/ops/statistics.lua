--- Reductions that are composed of other operations.

local A = require "heed.ops.arguments"
local core = require "heed.core"
local noted = core.modules.noted
local E = require "heed.nn.entries"

local statistics = {}
local options_of = core.modules.options

local DIM, DIM_KEEPDIM = { "dim" }, { "dim", "keepdim" }
local QUANTILE = { "q", "dim", "keepdim", "interpolation" }

--- logsumexp(x, dim, keepdim = false): ln Σ e^x, without overflow.
function statistics.logsumexp(x, ...)
  local dim, keepdim = options_of("logsumexp", DIM_KEEPDIM, 2, x, ...)
  E.check_operand(x, "logsumexp", "x")
  keepdim = E.boolean(keepdim, false, "logsumexp", "keepdim")
  if dim == nil then E.reject("logsumexp", "dim", dim, "a dimension or a table of them") end
  x = x:float()
  if x:numel() == 0 then return x:exp():sum(dim, keepdim):log() end
  local largest = x:detach():amax(dim, true)
  largest:masked_fill_(largest:isinf(), 0)
  local sum = (x - largest):exp():sum(dim, keepdim):log()
  return sum + largest:reshape(sum.shape)
end

--- count_nonzero(x, dim): the number of elements other than 0, nan included.
function statistics.count_nonzero(x, ...)
  local dim = options_of("count_nonzero", DIM, 2, x, ...)
  E.check_operand(x, "count_nonzero", "x")
  return x:ne(0):sum(dim)
end

--- median(x), or median(x, dim, keepdim = false): values, indices. The lower one of two; nan if there is one.
function statistics.median(x, ...)
  local dim, keepdim = options_of("median", DIM_KEEPDIM, 2, x, ...)
  E.check_operand(x, "median", "x")
  keepdim = E.boolean(keepdim, false, "median", "keepdim")
  if x.dtype == "bool" then E.fail("median: x is bool; it must be float32 or int64") end
  local all = dim == nil
  if all and keepdim then E.fail("median: keepdim is given without dim; give both or none") end
  local lanes = all and x:flatten() or x.ndim == 0 and x:unsqueeze(1) or x
  local along = all and 1 or A.dim(dim, x.ndim, "median", "dim")
  local n = lanes.shape[along]
  if n == 0 then
    if all and x.dtype == "float32" then return core.tensor(0 / 0) end
    E.fail("median: x is %s; dimension %d must have at least 1 element", A.text(A.sizes(x)), along)
  end
  local values, indices = lanes:sort(along)
  local middle = math.floor((n + 1) / 2)
  local value, index = values:narrow(along, middle, 1), indices:narrow(along, middle, 1)
  if x.dtype == "float32" then
    local last = values:narrow(along, n, 1) -- nan comes last
    local has_nan = last:isnan()
    value = has_nan:where(last, value)
    index = has_nan:where(lanes:isnan():argmax(along, true), index)
  end
  local shape = keepdim and x.ndim > 0 and value.shape or value:squeeze(along).shape
  value, index = value:reshape(shape), index:reshape(shape)
  if not all then return core.pair(noted("MedianBackward1", x, value), index) end
  if not value.requires_grad then return value end
  -- the elements that are equal to it share its gradient
  local equal = value:isnan():item() and x:masked_select(x:isnan()):mean() or x:masked_select(x:eq(value)):amax()
  return noted("MedianBackward0", x, equal)
end

-- ---- Quantiles ----------------------------------------------------------------------------------

local MOST_EXACT = 2 ^ 24 -- ranks up to here are exact in float32

--- Rounds a rank to the nearest integer, ties to even.
local function nearest(rank)
  local below = math.floor(rank)
  local rest = rank - below
  return (rest > 0.5 or rest == 0.5 and below % 2 == 1) and below + 1 or below
end

--- The ranks below and above a rank, and the weight of the one above.
local INTERPOLATIONS = {
  linear = function(rank) return math.floor(rank), math.ceil(rank), rank - math.floor(rank) end,
  midpoint = function(rank) return math.floor(rank), math.ceil(rank), 0.5 end,
  lower = function(rank) return math.floor(rank), math.floor(rank), 0 end,
  higher = function(rank) return math.ceil(rank), math.ceil(rank), 0 end,
  nearest = function(rank) return nearest(rank), nearest(rank), 0 end,
}

--- q as a list of numbers from 0 to 1, and whether it was a single one.
local function fractions(q)
  local single = type(q) == "number"
  if single then
    q = { q }
  elseif type(q) == "table" then
    q = core.tensor(q)
  end
  if not single then
    E.check_operand(q, "quantile", "q")
    if q.ndim > 1 then E.reject("quantile", "q", q, "a number, or a table or tensor [n] of them") end
    single = q.ndim == 0
    q = q:float():flatten():tolist()
  end
  for i = 1, #q do
    if not (q[i] >= 0 and q[i] <= 1) then E.reject("quantile", "q", q[i], "from 0 to 1") end
    if i % 4096 == 0 then E.check_cancel "quantile" end
  end
  return q, single
end

--- The ranks, counted from 0, of these fractions of n elements. Up to MOST_EXACT elements they are rounded to float32,
--- as in PyTorch, which takes no more.
local function ranks_of(q, n)
  if n > MOST_EXACT then
    local ranks = {}
    for i = 1, #q do ranks[i] = q[i] * (n - 1) end
    return ranks
  end
  return #q == 0 and {} or (core.tensor(q) * (n - 1)):tolist()
end

--- quantile(x, q, dim, keepdim = false, interpolation = "linear")
function statistics.quantile(x, ...)
  local q, dim, keepdim, interpolation = options_of("quantile", QUANTILE, 2, x, ...)
  E.check_operand(x, "quantile", "x")
  if x.dtype ~= "float32" then E.fail("quantile: x is %s; it must be float32: convert with x:float()", x.dtype) end
  keepdim = E.boolean(keepdim, false, "quantile", "keepdim")
  if q == nil then E.reject("quantile", "q", q, "a number from 0 to 1, or a table or tensor [n] of them") end
  local parts = INTERPOLATIONS[interpolation == nil and "linear" or interpolation]
  if not parts then
    E.reject("quantile", "interpolation", interpolation, "'linear', 'lower', 'higher', 'midpoint' or 'nearest'")
  end
  local single
  q, single = fractions(q)
  local along = dim == nil and 1 or A.dim(dim, x.ndim, "quantile", "dim")
  local lanes = (dim == nil and x:flatten() or x.ndim == 0 and x:unsqueeze(1) or x):sort(along)
  local n = lanes.shape[along]
  if x:numel() == 0 then E.fail("quantile: x is %s; it must have at least 1 element", A.text(A.sizes(x))) end
  local below, above, weight = {}, {}, {}
  for i, rank in ipairs(ranks_of(q, n)) do
    local low, high, share = parts(rank)
    below[i], above[i], weight[i] = low + 1, high + 1, share
    if i % 4096 == 0 then E.check_cancel "quantile" end
  end
  local int64, to_lanes = { dtype = "int64" }, {}
  for d = 1, lanes.ndim do to_lanes[d] = d == along and #q or 1 end
  local result = lanes:index_select(along, core.tensor(below, int64))
  if interpolation == nil or interpolation == "linear" or interpolation == "midpoint" then
    local upper = lanes:index_select(along, core.tensor(above, int64))
    result = result:lerp_(upper, core.tensor(weight):reshape(to_lanes))
  end
  local last = lanes:narrow(along, n, 1) -- nan comes last
  result = last:isnan():where(last, result)
  if dim == nil then
    local sizes = { #q }
    for d = 1, keepdim and x.ndim or 0 do sizes[d + 1] = 1 end
    result = result:reshape(sizes)
  else
    result = result:unsqueeze(1):transpose(1, along + 1)
    if not keepdim or x.ndim == 0 then result = result:squeeze(along + 1) end
  end
  return single and result:select(1, 1):contiguous() or result:contiguous()
end

E.with_names(statistics, { logsumexp = "LogsumexpBackward0", quantile = "SqueezeBackward4" })
return E.with_frames(statistics)
