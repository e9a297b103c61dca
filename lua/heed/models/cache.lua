--- The cache of a decoder: one heed.Cache for each attention layer, used as a unit.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local options_of, reset_cache, fail = core.modules.options, core.modules.reset_cache, E.fail
local state_dict = require "heed.nn.state_dict"
local save_caches, load_caches = core.modules.save_caches, core.modules.load_caches
local sample = core.modules.sample
local check_truncate, indices_of = core.modules.check_truncate, core.modules.indices

-- Keys of the raw fields: the model, the caches of its layers, the number of tokens of each batch item in all of them,
-- the number of uses that may have changed the layers, and, of a draft, {cache =, uses =, name =}: what it was made
-- from, the uses then, and a name for messages. After a pass that failed halfway, some layers hold more tokens; they
-- are truncated before the next.
local MODEL, LAYERS, LENGTHS, USES, DRAFT = {}, {}, {}, {}, {}
local Cache, methods = { __name = "heed.ModelCache" }, {}

local function new(model, layers, lengths, draft)
  return setmetatable({
    [MODEL] = model, [LAYERS] = layers, [LENGTHS] = lengths, [USES] = 0, [DRAFT] = draft or false,
  }, Cache)
end

local function longest(lengths)
  local most = 0
  for _, n in ipairs(lengths) do most = math.max(most, n) end
  return most
end

local function same(one, other)
  for i, n in ipairs(one) do
    if other[i] ~= n then return false end
  end
  return #one == #other
end

local function is_even(lengths)
  for _, n in ipairs(lengths) do
    if n ~= lengths[1] then return false end
  end
  return true
end

-- Removes what a failed pass has left in a layer.
local function reset(layer, lengths)
  if not same(lengths, layer.lengths) then layer:truncate(lengths) end
end

-- Counts a use of the cache, which ends drafts of it.
local function use(cache) cache[USES] = cache[USES] + 1 end

-- Removes what a failed pass, or an unfinished draft, has left in the layers.
local function reset_all(cache, layers)
  use(cache)
  for _, layer in ipairs(layers) do reset(layer, cache[LENGTHS]) end
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
  if name == "length" then return longest(self[LENGTHS]) end
  if name == "lengths" then return { compat.unpack(self[LENGTHS]) } end
  if FIELDS[name] then return layers[1][name] end
  fail("a heed.ModelCache has no field %s; it has length, lengths, capacity, batch, dtype, truncate, reorder, clone, "
    .. "save and release", quoted(name))
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

--- Keeps the first n tokens only, of all items or n[i] of item i.
function methods.truncate(self, n)
  local layers = check_self(self, "truncate")
  if E.kind(n) == "tensor" or type(n) == "table" then n = indices_of(n, "truncate", "lengths") end
  reset_all(self, layers)
  for _, layer in ipairs(layers) do check_truncate(layer, n) end -- their windows may differ
  for _, layer in ipairs(layers) do layer:truncate(n) end
  self[LENGTHS] = layers[1].lengths
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
  indices = indices_of(indices, "reorder", "indices")
  local layers, lengths = cloned(before, function(layer) layer:reorder(indices) end), {}
  for i, from in ipairs(indices:tolist()) do lengths[i] = self[LENGTHS][from] end
  self[LAYERS], self[LENGTHS] = layers, lengths
  use(self)
  for _, layer in ipairs(before) do layer:release() end
  return self
end

function methods.clone(self) return new(self[MODEL], cloned(check_self(self, "clone")), self[LENGTHS]) end

--- Samples of all parameters of a model, by which a file recognises it: float32 [parameters, …].
local function samples_of(model, method)
  local samples, weight = {}, nil
  state_dict.walk(model, method, function(_, value, _, entry)
    if entry.name == "weight_scale" and weight and weight.dtype == "int8" then
      samples[#samples] = sample(weight, value)
    else
      samples[#samples + 1], weight = sample(value), value
    end
  end)
  return core.stack(samples, 1)
end

--- Saves the caches of all layers in one file: true; or nil and a message.
function methods.save(self, path)
  local layers = check_self(self, "save")
  reset_all(self, layers)
  return save_caches(path, layers, samples_of(self[MODEL], "save"))
end

--- Frees the memory immediately. Repeated calls do nothing.
function methods.release(self)
  if not is_cache(self) then check_self(self, "release") end
  for _, layer in ipairs(rawget(self, LAYERS) or {}) do layer:release() end
  rawset(self, LAYERS, nil)
  rawset(self, MODEL, nil)
end

E.with_frames(methods)
Cache.__close = methods.release

-- ---- The interface for models -------------------------------------------------------------------

local M = {}
local OPTIONS = { "batch", "capacity", "dtype", "prefix" }

--- model:new_cache{batch, capacity, dtype, prefix}; `attentions` lists the attention modules of the layers.
function M.new(model, attentions, ...)
  local batch, capacity, dtype, prefix = options_of("new_cache", OPTIONS, 2, model, ...)
  local layers, begun = {}, nil
  if #attentions == 0 then fail "new_cache: the model has no layers; it must have at least one" end
  if prefix ~= nil then
    if not is_cache(prefix) then E.reject("new_cache", "prefix", prefix, "a cache made by the model's new_cache") end
    begun = check_self(prefix, "new_cache")
    if #begun ~= #attentions then
      fail("new_cache: prefix has %s; it must have as many as the model, %d", E.count(#begun, "layer"), #attentions)
    end
    reset_all(prefix, begun)
  end
  for i, attention in ipairs(attentions) do
    layers[i] = attention:new_cache { batch = batch, capacity = capacity, dtype = dtype, prefix = begun and begun[i] }
  end
  return new(model, layers, layers[1].lengths)
end

--- model:load_cache(path): what cache:save wrote; or nil and a message.
function M.load(model, attentions, path)
  if #attentions == 0 then fail "load_cache: the model has no layers; it must have at least one" end
  local layers, problem = load_caches(path, attentions, samples_of(model, "load_cache"))
  if not layers then return nil, problem end
  local lengths = layers[1].lengths
  for i, layer in ipairs(layers) do
    if not same(lengths, layer.lengths) then
      local form = "load_cache: '%s': the lengths of layer %d are not those of layer 1; the file is damaged"
      return nil, form:format(path, i)
    end
  end
  return new(model, layers, lengths)
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
  local before, lengths, layers = M.check(name, cache), cache[LENGTHS], nil
  use(cache)
  for i = 1, #before do
    reset(before[i], lengths)
    if not reset_cache(before[i], before[i].length, n) then
      layers = layers or { compat.unpack(before) }
      layers[i] = before[i]:clone()
    end
  end
  return new(cache[MODEL], layers or before, lengths, { cache = cache, uses = cache[USES], name = name })
end

--- What M.check_draft accepts in place of a draft, to detect later uses of the cache by other calls.
function M.watch(name, cache) return { [DRAFT] = { cache = cache, uses = cache[USES], name = name } } end

--- Raises if another call has used the cache that a draft was made from.
function M.check_draft(draft)
  local from = draft[DRAFT]
  if check_self(from.cache, from.name) and from.cache[USES] == from.uses then return end
  fail("%s: the cache was used by another call before this one ended; give each call a cache of its own", from.name)
end

--- Transfers the tokens of a draft to the cache it was made from.
function M.keep(cache, draft)
  M.check_draft(draft)
  local before, layers = cache[LAYERS], draft[LAYERS]
  cache[LAYERS], cache[LENGTHS] = layers, draft[LENGTHS]
  if before == layers then return end
  for i, layer in ipairs(before) do
    if layer ~= layers[i] then layer:release() end
  end
end

-- The numbers of new tokens of each item: n of all, or those in lengths, int64 [b].
local function added_of(class, cache, n, lengths)
  local added = {}
  if lengths == nil then
    for i = 1, cache.batch do added[i] = n end
    return added
  end
  if lengths.shape[1] ~= cache.batch then
    E.reject(class, "lengths", lengths, "a list of %d numbers, one for each batch item of the cache", cache.batch)
  end
  return lengths:tolist()
end

--- Begins a forward pass of n tokens for each of `batch` items, or, with lengths, of as many for each item as they say:
--- returns the draft, the caches of its layers, the number of tokens of each item in them, and the lists of new ones.
--- M.commit ends the pass. Raises if the capacity is exceeded, or the cache does not match the model or the batch.
function M.begin(class, cache, layer_count, batch, n, lengths)
  local layers, past = M.check(class, cache), cache[LENGTHS]
  if cache[DRAFT] then M.check_draft(cache) end
  if #layers ~= layer_count then
    fail("%s: cache has %s; it must have as many as the model, %d", class, E.count(#layers, "layer"), layer_count)
  end
  if lengths == nil and cache.batch ~= batch then
    fail("%s: cache has a batch of %d; it must be that of ids, %d", class, cache.batch, batch)
  end
  local added, even = added_of(class, cache, n, lengths), lengths == nil and is_even(past)
  for i, count in ipairs(added) do
    if past[i] + count > cache.capacity then
      fail("%s: %s has %s and ids have %d more%s; together they must be at most %d, the capacity", class,
        even and "cache" or ("item %d of cache"):format(i), E.count(past[i], "token"), count, even and "" or " for it",
        cache.capacity)
    end
  end
  local work = cache[DRAFT] and cache or M.draft(class, cache, longest(added))
  return work, work[LAYERS], past, added
end

--- Ends a forward pass that succeeded.
function M.commit(cache, work, added)
  M.check_draft(work)
  local lengths = {}
  for i, n in ipairs(work[LENGTHS]) do lengths[i] = n + added[i] end
  work[LENGTHS] = lengths
  if work ~= cache then M.keep(cache, work) end
end

return M
