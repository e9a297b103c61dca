--- A cache whose tokens are divided among the ranks of a mesh: each rank keeps the keys and values of its own tokens,
--- for each attention module that is called with the cache. Each rank has the list of all ranks' tokens.
--- Shapes: b batch, h key heads, rows of this rank, d or dv sizes of a head.

local core = require "heed.core"
local division = require "heed.parallel.division"
local E = require "heed.nn.entries"
local objects = require "heed.utils.data.object"

local M = {}

local STEP = 256 -- rows by which the memory grows at least, and tokens by which a rank may be ahead of others

--- Keeps the tokens before position n in a layer.
local function truncate(layer, n)
  for _, list in ipairs(layer.segments) do
    for i = #list, 1, -1 do
      list[i].size = math.min(list[i].size, n - list[i].first)
      if list[i].size <= 0 then list[i] = nil end
    end
  end
  layer.length = math.min(layer.length, n)
end

local function check_there(self, method)
  if not self.layers then E.fail("%s: the cache has been released", method) end
end

local class
class = objects.class("distributed.ContextCache", { "length", "dtype" }, {
  truncate = function(self, n)
    check_there(self, "truncate")
    n = E.integer(n, nil, "truncate", "n")
    if n < 0 or n > self.length then
      E.reject("truncate", "n", n, "from 0 to %d, the tokens of the cache", self.length)
    end
    for rank, other in ipairs(self.link.gather(core.tensor({ n }, { dtype = "int64" }))) do
      if other:item() ~= n then
        E.fail("truncate: n is %d here, and %d on rank %d; all ranks must keep the same tokens", n, other:item(), rank)
      end
    end
    M.reset(self, n)
  end,
  release = function(self) self.layers, self.length = nil, 0 end,
  tostring = function(self)
    if not self.layers then return "heed.distributed.ContextCache(released)" end
    return ("heed.distributed.ContextCache(length=%d, ranks=%d, dtype=%s)"):format(self.length, self.ranks, self.dtype)
  end,
})

local DTYPES = { "float32", "bfloat16", "float16" }

--- An empty cache of the ranks of a link.
function M.new(link, dtype, method)
  if dtype == nil then dtype = "float32" end
  E.check_choice(dtype, DTYPES, method, "dtype")
  return class.new { link = link, rank = link.rank, ranks = link.size, dtype = dtype, length = 0, layers = {} }
end

--- The values of a cache, or nil for another value.
function M.is(value) return objects.is(value, class) end

--- The values of a cache for the ranks of a link. Raises for anything else.
function M.check(value, link, name)
  local self = objects.is(value, class)
  if not self then E.reject(name, "cache", value, "one that heed.distributed.context_cache made") end
  check_there(self, name)
  if self.ranks ~= link.size or self.rank ~= link.rank then
    E.fail("%s: the cache is for rank %d of %d; it must be for this one, %d of %d", name, self.rank, self.ranks,
      link.rank, link.size)
  end
  return self
end

--- The layer of a module, {length =, segments = [rank] = list, k =, v =}, whose buffers are made by the first tokens.
function M.layer(self, m)
  local layer = self.layers[m]
  if not layer then
    layer = { length = 0, segments = {} }
    for rank = 1, self.ranks do layer.segments[rank] = {} end
    self.layers[m] = layer
  end
  return layer
end

--- How many rows a rank has.
function M.rows(layer, rank)
  local list = layer.segments[rank]
  local last = list[#list]
  return last and last.at + last.size or 0
end

--- The segments of all ranks with further ones, `added(rank)`, whose `first` counts new tokens; the layer's lists stay.
local function extended(self, layer, added)
  local all = {}
  for rank = 1, self.ranks do
    local list, rows = {}, M.rows(layer, rank)
    for i, each in ipairs(layer.segments[rank]) do list[i] = { first = each.first, size = each.size, at = each.at } end
    for _, each in ipairs(added(rank)) do
      local last, first = list[#list], layer.length + each.first
      if last and last.first + last.size == first then
        last.size = last.size + each.size
      else
        list[#list + 1] = { first = first, size = each.size, at = rows + each.at }
      end
    end
    all[rank] = list
  end
  return all
end

--- With n more tokens that are divided among the ranks.
function M.divided(self, layer, n)
  return extended(self, layer, function(rank) return division.segments(n, self.ranks, rank) end)
end

--- With n more tokens, all of one rank: the one that had the last ones, until it is too far ahead.
function M.appended(self, layer, n)
  local least, owner = 1, layer.owner or 1
  for rank = 2, self.ranks do
    if M.rows(layer, rank) < M.rows(layer, least) then least = rank end
  end
  if M.rows(layer, owner) >= M.rows(layer, least) + STEP then owner = least end
  return extended(self, layer, function(rank)
    return rank == owner and n > 0 and { { first = 0, size = n, at = 0 } } or {}
  end), owner
end

--- A buffer with at least `needed` rows, the first of which are those of `from`, if there is one.
local function grown(self, from, like, rows, needed)
  if from and from.shape[3] >= needed then return from end
  local capacity = math.max(needed, from and 2 * from.shape[3] or 0, STEP)
  local made = core.zeros({ like.shape[1], like.shape[2], capacity, like.shape[4] }, { dtype = self.dtype })
  if rows > 0 then made:narrow(3, 1, rows):copy_(from:narrow(3, 1, rows)) end
  return made
end

--- Writes keys and values [b, h, new, d] behind the rows of this rank, which M.commit counts. Returns all of them.
function M.put(self, layer, k, v, name)
  local rows, new = M.rows(layer, self.rank), k.shape[3]
  if layer.k and (layer.k.shape[1] ~= k.shape[1]) then
    E.fail("%s: the cache has a batch of %d; it must be that of x, %d", name, layer.k.shape[1], k.shape[1])
  end
  layer.k, layer.v = grown(self, layer.k, k, rows, rows + new), grown(self, layer.v, v, rows, rows + new)
  if new > 0 then
    layer.k:narrow(3, rows + 1, new):copy_(k)
    layer.v:narrow(3, rows + 1, new):copy_(v)
  end
  return layer.k:narrow(3, 1, rows + new), layer.v:narrow(3, 1, rows + new)
end

--- Takes the segments of all ranks, with n more tokens.
function M.commit(self, layer, segments, n, owner)
  layer.segments, layer.length, layer.owner = segments, layer.length + n, owner or layer.owner
  self.length = math.max(self.length, layer.length)
end

--- Keeps the first n tokens of all layers.
function M.reset(self, n)
  for _, layer in pairs(self.layers) do truncate(layer, n) end
  self.length = math.min(self.length, n)
end

return M
