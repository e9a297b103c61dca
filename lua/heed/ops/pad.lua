--- Padding.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local compat = require "heed.compat"
local core = require "heed.core"
local noted = core.modules.noted

local pads = {}

local OPTIONS = { "pad", "mode", "value" }

-- The part of x that padding by negative numbers leaves in dimension d.
local function cropped(x, d, size, before, after)
  local first, last = math.max(0, -before), size - math.max(0, -after)
  if first == 0 and last == size then return x end
  return x:narrow(d, first + 1, last - first)
end

-- pairs_of[d] = {before, after}
local function constant(x, sizes, pairs_of, value)
  local shape, source = {}, x
  for d = 1, #sizes do shape[d] = sizes[d] + pairs_of[d][1] + pairs_of[d][2] end
  local result = core.zeros(shape, { dtype = x.dtype })
  if value ~= nil and value ~= 0 then result:fill_(value) end
  local inside = {}
  for d = 1, #sizes do
    local before, after = pairs_of[d][1], pairs_of[d][2]
    source = cropped(source, d, sizes[d], before, after)
    inside[d] = { math.max(0, before) + 1, shape[d] - math.max(0, after) }
  end
  if #sizes > 0 then result[inside] = source else result:copy_(source) end
  return result
end

-- For each mode, the numbers (from 0) of the elements that are repeated at positions (from 0, negative before the
-- first one) of a dimension of n elements.
local POSITIONS = {
  replicate = function(at, n) return at:clamp(0, n - 1) end,
  circular = function(at, n) return at % n end,
  reflect = function(at, n)
    if n == 1 then return at * 0 end
    local folded = at % (2 * n - 2)
    return folded:minimum(2 * n - 2 - folded)
  end,
}
-- What PyTorch names the results; %d: the number of dimensions that are padded
local PADDED = {
  replicate = "ReplicationPad%dDBackward0", circular = "CopySlices", reflect = "ReflectionPad%dDBackward0",
}
-- The most elements that can be added at a side of n, and how a message says it.
local MOST = { replicate = math.huge, circular = 0, reflect = -1 }
local RULE = { circular = "at most", reflect = "less than" }

local function repeating(x, sizes, pairs_of, mode)
  local result = x
  for d = 1, #sizes do
    local before, after, n = pairs_of[d][1], pairs_of[d][2], sizes[d]
    if before ~= 0 or after ~= 0 then
      if n == 0 then E.fail("pad: dimension %d has no elements; mode '%s' needs some", d, mode) end
      if math.max(before, after) > n + MOST[mode] then
        E.fail("pad: dimension %d is padded by %d and has size %d; mode '%s' takes %s the size", d,
          math.max(before, after), n, mode, RULE[mode])
      end
      local at = core.arange(0 - before, n + after) -- not -before: -0 is no integer before Lua 5.3
      result = result:index_select(d, POSITIONS[mode](at, n) + 1)
    end
  end
  return result == x and x:clone() or result
end

--- pad(x, {before, after, …}, mode = "constant", value = 0): pairs of elements to add, from the last dimension on.
--- Negative numbers remove elements.
function pads.pad(x, ...)
  E.check_tensor(x, "pad", "x")
  local pad, mode, value = A.options("pad", OPTIONS, 2, x, ...)
  if type(pad) ~= "table" then E.reject("pad", "pad", pad, "a table {before, after, …}, from the last dimension on") end
  local counts = A.integers_of(pad, 2 * A.MAX_DIMS, "pad", "pad")
  if mode == nil then mode = "constant" end
  if mode ~= "constant" and not POSITIONS[mode] then
    E.reject("pad", "mode", mode, "'constant', 'reflect', 'replicate' or 'circular'")
  end
  if value ~= nil and mode ~= "constant" then E.fail("pad: value is given; mode '%s' takes none", mode) end
  if value ~= nil and type(value) ~= "number" and type(value) ~= "boolean" then
    E.reject("pad", "value", value, "a number")
  end
  local sizes, ndim = A.sizes(x)
  if #counts % 2 == 1 then
    E.fail("pad: pad has %s; it must have two for each dimension", E.count(#counts, "number"))
  end
  if #counts > 2 * ndim then
    E.fail("pad: pad has %s and x has %s; it must have at most two for each dimension",
      E.count(#counts, "number"), E.count(ndim, "dimension"))
  end
  local pairs_of = {}
  for d = 1, ndim do
    local at = 2 * (ndim - d)
    local before, after = counts[at + 1] or 0, counts[at + 2] or 0
    local size = 1.0 * sizes[d] -- a float, which does not wrap
    if size + math.max(before, 0) + math.max(after, 0) >= 2 ^ 53 then
      E.fail("pad: dimension %d has size %d and pads of %d and %d; the result would be too large", d, sizes[d], before,
        after)
    elseif size + math.min(before, 0) + math.min(after, 0) < 0 then
      E.fail("pad: dimension %d has size %d and pads of %d and %d; elements to remove must exist", d, sizes[d], before,
        after)
    end
    pairs_of[d] = { before, after }
  end
  if mode == "constant" then return noted("ConstantPadNdBackward0", x, constant(x, sizes, pairs_of, value)) end
  local name = PADDED[mode]
  if mode ~= "circular" then name = name:format(math.min(math.max(compat.divide(#counts, 2), 1), 3)) end
  return noted(name, x, repeating(x, sizes, pairs_of, mode))
end

return E.with_frames(pads)
