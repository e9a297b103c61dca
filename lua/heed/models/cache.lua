--- The cache of a decoder: one heed.Cache for each attention layer, used as a unit.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local options_of, reset_cache, fail = core.modules.options, core.modules.reset_cache, E.fail
local save_caches, load_caches = core.modules.save_caches, core.modules.load_caches

-- Keys of the raw fields: the caches of the layers, the number of tokens in all of them, and whether this is a draft.
-- After a pass that failed halfway, some layers hold more tokens; they are truncated before the next pass.
local LAYERS, LENGTH, DRAFT = {}, {}, {}
local Cache, methods = { __name = "heed.ModelCache" }, {}

local function new(layers, length, draft)
  return setmetatable({ [LAYERS] = layers, [LENGTH] = length, [DRAFT] = draft or false }, Cache)
end

local function is_cache(value) return type(value) == "table" and getmetatable(value) == Cache end

local function check_self(self, method)
  if not is_cache(self) then
    E.reject(method, "self", self, "a heed.ModelCache; call the method with a colon")
  end
  local layers = rawget(self, LAYERS)
  if not layers then fail("%s: the cache has been released", method) end
  return layers
end

local FIELDS = { capacity = true, batch = true, dtype = true }

local function quoted(name) return type(name) == "string" and ("'%s'"):format(name) or E.what(name) end

function Cache.__index(self, name)
  if methods[name] then return methods[name] end
  local layers = check_self(self, Cache.__name)
  if name == "length" then return self[LENGTH] end
  if FIELDS[name] then return layers[1][name] end
  fail("a heed.ModelCache has no field %s; it has length, capacity, batch, dtype, truncate, reorder, clone, save and "
    .. "release", quoted(name))
end

function Cache.__newindex(_, name)
  fail("the field %s of a heed.ModelCache cannot be set; all of its fields are read-only", quoted(name))
end

function Cache.__tostring(self)
  local layers = rawget(self, LAYERS)
  if not layers then return "heed.ModelCache(released)" end
  local form = "heed.ModelCache(layers=%d, length=%d, capacity=%s, batch=%d, dtype=%s)"
  return form:format(#layers, self.length, self.capacity, self.batch, self.dtype)
end

-- ---- Methods ------------------------------------------------------------------------------------

--- Keeps the first n tokens only.
function methods.truncate(self, n)
  for i, layer in ipairs(check_self(self, "truncate")) do
    if i == 1 and compat.is_integer(n) and n > self[LENGTH] then
      fail("truncate: n is %d; it must be from 0 to the length, %d", n, self[LENGTH])
    end
    layer:truncate(n)
  end
  self[LENGTH] = n
  return self
end

local function cloned(layers, change)
  local made = {}
  for i, layer in ipairs(layers) do
    E.check_cancel "clone"
    made[i] = layer:clone()
    if change then change(made[i]) end
  end
  return made
end

--- Batch item i becomes a copy of item indices[i]. Works on copies, so that a failure halfway changes nothing.
function methods.reorder(self, indices)
  local before = check_self(self, "reorder")
  self[LAYERS] = cloned(before, function(layer) layer:reorder(indices) end)
  for _, layer in ipairs(before) do layer:release() end
  return self
end

function methods.clone(self) return new(cloned(check_self(self, "clone")), self[LENGTH]) end

--- Saves the caches of all layers in one file: true; or nil and a message.
function methods.save(self, path)
  local layers = check_self(self, "save")
  for _, layer in ipairs(layers) do reset_cache(layer, self[LENGTH], 0) end
  return save_caches(path, layers)
end

--- Frees the memory immediately. Repeated calls do nothing.
function methods.release(self)
  if not is_cache(self) then check_self(self, "release") end
  for _, layer in ipairs(rawget(self, LAYERS) or {}) do layer:release() end
  rawset(self, LAYERS, nil)
end

E.with_frames(methods)
Cache.__close = methods.release

-- ---- The interface for models -------------------------------------------------------------------

local M = {}
local OPTIONS = { "batch", "capacity", "dtype", "prefix" }

--- model:new_cache{batch, capacity, dtype, prefix}; `attentions` lists the attention modules of the layers.
function M.new(model, attentions, ...)
  local batch, capacity, dtype, prefix = options_of("new_cache", OPTIONS, 2, model, ...)
  local layers, length, begun = {}, 0, nil
  if #attentions == 0 then fail "new_cache: the model has no layers; it must have at least one" end
  if prefix ~= nil then
    if not is_cache(prefix) then E.reject("new_cache", "prefix", prefix, "a cache made by the model's new_cache") end
    begun, length = check_self(prefix, "new_cache"), prefix[LENGTH]
    if #begun ~= #attentions then
      fail("new_cache: prefix has %s; it must have as many as the model, %d", E.count(#begun, "layer"), #attentions)
    end
    for _, layer in ipairs(begun) do reset_cache(layer, length, 0) end
  end
  for i, attention in ipairs(attentions) do
    layers[i] = attention:new_cache { batch = batch, capacity = capacity, dtype = dtype, prefix = begun and begun[i] }
  end
  return new(layers, length)
end

--- model:load_cache(path): what cache:save wrote; or nil and a message.
function M.load(attentions, path)
  if #attentions == 0 then fail "load_cache: the model has no layers; it must have at least one" end
  local layers, problem = load_caches(path, attentions)
  if not layers then return nil, problem end
  local length = layers[1].length
  for i, layer in ipairs(layers) do
    if layer.length ~= length or layer.batch ~= layers[1].batch then
      local form = "load_cache: '%s': layer %d has %s of %d items, and layer 1 %d of %d; the file is damaged"
      return nil, form:format(path, i, E.count(layer.length, "token"), layer.batch, length, layers[1].batch)
    end
  end
  return new(layers, length)
end

--- The caches of the layers. Raises unless `cache` is a ModelCache that has not been released.
function M.check(name, cache)
  if not is_cache(cache) then E.reject(name, "cache", cache, "a cache made by the model's new_cache") end
  return check_self(cache, name)
end

--- A draft of the cache for forward passes of n more tokens in all, which may fail; only M.keep transfers them to
--- `cache`. Layers are shared with `cache` where truncating them undoes a pass. Layers with a window are copied if the
--- pass would drop tokens that are needed to undo it.
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

--- Transfers the tokens of a draft to the cache it was made from.
function M.keep(cache, draft)
  local before, layers = cache[LAYERS], draft[LAYERS]
  cache[LAYERS], cache[LENGTH] = layers, draft[LENGTH]
  if before == layers then return end
  for i, layer in ipairs(before) do
    if layer ~= layers[i] then layer:release() end
  end
end

--- Begins a forward pass of n tokens: returns the draft, the caches of its layers and the number of tokens in them.
--- M.commit ends the pass. Raises if the capacity is exceeded, or the cache does not match the model or the batch.
function M.begin(class, cache, layer_count, batch, n)
  local layers, length = M.check(class, cache), cache[LENGTH]
  if #layers ~= layer_count then
    fail("%s: cache has %s; it must have as many as the model, %d", class, E.count(#layers, "layer"), layer_count)
  end
  if cache.batch ~= batch then
    fail("%s: cache has a batch of %d; it must be that of ids, %d", class, cache.batch, batch)
  end
  if length + n > cache.capacity then
    fail("%s: cache has %s and ids have %d more; together they must be at most %d, the capacity", class,
      E.count(length, "token"), n, cache.capacity)
  end
  local work = cache[DRAFT] and cache or M.draft(class, cache, n)
  return work, work[LAYERS], length
end

--- Ends a forward pass that succeeded.
function M.commit(cache, work, n)
  work[LENGTH] = work[LENGTH] + n
  if work ~= cache then M.keep(cache, work) end
end

return M
