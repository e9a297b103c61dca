--- The cache of a model: one of each attention layer, used as one.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local options_of, reset_cache, fail = core.modules.options, core.modules.reset_cache, E.fail

-- Keys of the raw fields: a cache for each layer, the tokens that all of them have seen, and whether it is a draft.
-- After a pass that failed in the middle some layers have seen more; they are taken back before the next.
local LAYERS, LENGTH, DRAFT = {}, {}, {}
local Cache, methods = { __name = "heed.ModelCache" }, {}

local function new(layers, length, draft)
  return setmetatable({ [LAYERS] = layers, [LENGTH] = length, [DRAFT] = draft or false }, Cache)
end

local function is_cache(value) return type(value) == "table" and getmetatable(value) == Cache end

local function check_self(self, method)
  if not is_cache(self) then
    fail("%s: self must be a heed.ModelCache, got %s (methods are called with a colon)", method, E.what(self))
  end
  local layers = rawget(self, LAYERS)
  if not layers then fail("%s: the cache was released", method) end
  return layers
end

local FIELDS = { capacity = true, batch = true, dtype = true }

function Cache.__index(self, name)
  if methods[name] then return methods[name] end
  local layers = check_self(self, Cache.__name)
  if name == "length" then return self[LENGTH] end
  if FIELDS[name] then return layers[1][name] end
  fail("a heed.ModelCache has no field %s; it has length, capacity, batch, dtype, truncate, reorder, clone and release",
    E.what(name))
end

function Cache.__newindex(_, name)
  fail("a heed.ModelCache has no field that can be set, such as %s", E.what(name))
end

function Cache.__tostring(self)
  local layers = rawget(self, LAYERS)
  if not layers then return "heed.ModelCache(released)" end
  local form = "heed.ModelCache(layers=%d, length=%d, capacity=%s, batch=%d, dtype=%s)"
  return form:format(#layers, self.length, self.capacity, self.batch, self.dtype)
end

-- ---- Methods ------------------------------------------------------------------------------------

--- Forgets all but the first n tokens.
function methods.truncate(self, n)
  for i, layer in ipairs(check_self(self, "truncate")) do
    if i == 1 and compat.is_integer(n) and n > self[LENGTH] then
      fail("truncate: n is %d; it must be from 0 to %d, the length", n, self[LENGTH])
    end
    layer:truncate(n)
  end
  self[LENGTH] = n
  return self
end

local function cloned(layers, change)
  local made = {}
  for i, layer in ipairs(layers) do
    E.look "clone"
    made[i] = layer:clone()
    if change then change(made[i]) end
  end
  return made
end

--- Item i becomes what item indices[i] was. In copies, so that a failure in the middle changes nothing.
function methods.reorder(self, indices)
  local before = check_self(self, "reorder")
  self[LAYERS] = cloned(before, function(layer) layer:reorder(indices) end)
  for _, layer in ipairs(before) do layer:release() end
  return self
end

function methods.clone(self) return new(cloned(check_self(self, "clone")), self[LENGTH]) end

--- Gives the memory back at once; for the second time it does nothing.
function methods.release(self)
  if not is_cache(self) then check_self(self, "release") end
  for _, layer in ipairs(rawget(self, LAYERS) or {}) do layer:release() end
  rawset(self, LAYERS, nil)
end

E.with_frames(methods)
Cache.__close = methods.release

-- ---- For models ---------------------------------------------------------------------------------

local M = {}
local OPTIONS = { "batch", "capacity", "dtype" }

--- model:new_cache{batch, capacity, dtype}; attentions are those of the layers.
function M.new(model, attentions, ...)
  local batch, capacity, dtype = options_of("new_cache", OPTIONS, 2, model, ...)
  local layers = {}
  if #attentions == 0 then fail "new_cache: the model has no layers; a cache needs at least one" end
  for i, attention in ipairs(attentions) do
    layers[i] = attention:new_cache { batch = batch, capacity = capacity, dtype = dtype }
  end
  return new(layers, 0)
end

--- The caches of the layers; raises unless it is a model's cache that can be used.
function M.check(name, cache)
  if not is_cache(cache) then
    fail("%s: cache must be what the model's new_cache gives, got %s", name, E.what(cache))
  end
  return check_self(cache, name)
end

--- A cache with the same tokens for passes of n more in all, which may fail: they reach `cache` with `keep` alone. A
--- layer that would drop what it needs to be taken back is copied, which only one with a window does; the others are
--- shared, for what comes behind their tokens can be taken back.
function M.draft(name, cache, n)
  local before, length, layers = M.check(name, cache), cache[LENGTH], nil
  for i = 1, #before do
    if not reset_cache(before[i], length, n) then
      layers = layers or { compat.unpack(before) }
      layers[i] = before[i]:clone()
    end
  end
  return new(layers or before, length, true)
end

--- Makes the cache what its draft has become.
function M.keep(cache, draft)
  local before, layers = cache[LAYERS], draft[LAYERS]
  cache[LAYERS], cache[LENGTH] = layers, draft[LENGTH]
  if before == layers then return end
  for i, layer in ipairs(before) do
    if layer ~= layers[i] then layer:release() end
  end
end

--- What a pass of n tokens works on, caches of the layers and the tokens in them, until it is through: commit gives
--- them to the cache. Raises if there is no room.
function M.begin(class, cache, layer_count, batch, n)
  local layers, length = M.check(class, cache), cache[LENGTH]
  if #layers ~= layer_count then
    fail("%s: the cache is for %s and the model has %d", class, E.count(#layers, "layer"), layer_count)
  end
  if cache.batch ~= batch then
    fail("%s: ids have a batch of %d and the cache one of %d", class, batch, cache.batch)
  end
  if length + n > cache.capacity then
    fail("%s: the cache has %s, ids have %d more and its capacity is %d", class, E.count(length, "token"), n,
      cache.capacity)
  end
  local work = cache[DRAFT] and cache or M.draft(class, cache, n)
  return work, work[LAYERS], length
end

--- After a pass through all layers.
function M.commit(cache, work, n)
  work[LENGTH] = work[LENGTH] + n
  if work ~= cache then M.keep(cache, work) end
end

return M
