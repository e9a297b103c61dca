--- model:generate(ids, options): text generation, greedy or by sampling. v is vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local mode = require "heed.autograd.mode"
local options_of, copy_generator, fail = core.modules.options, core.modules.copy_generator, E.fail

-- ---- Choosing a token ---------------------------------------------------------------------------

--- The id of the largest of the logits [v].
local function likeliest(logits)
  local best, id = logits:max(-1)
  best = best:item()
  if best ~= best then fail "generate: the model's logits contain nan" end
  return id:item()
end

--- An id drawn from softmax(logits / temperature), restricted to the top_k likeliest and then to the smallest set of
--- likeliest ids whose probabilities add up to top_p (nucleus sampling). top_k and top_p may be nil.
local function drawn(logits, temperature, top_k, top_p, generator)
  local ids -- ids[i] belongs to logits[i] once they are sorted, the likeliest first
  if top_k and top_k < #logits then
    logits, ids = logits:topk(top_k)
  elseif top_p then
    logits, ids = logits:sort(-1, true)
  end
  local p = ((logits - logits:max()) / math.max(temperature, 1e-30)):softmax(-1)
  if top_p and top_p < 1 then p = p:masked_fill((p:cumsum(-1) - p):ge(top_p), 0) end -- the ids before suffice
  local sums = p:cumsum(-1)
  local sum = sums[#sums]
  if sum ~= sum then fail "generate: the model's logits contain nan or inf; they have no softmax" end
  local at = sums:le(core.rand(1, { generator = generator }):item() * sum):sum():item() + 1
  if at > #sums then at = p:argmax():item() end -- rand() * sum was rounded up to sum
  return ids and ids[at] or at
end

-- ---- Options ------------------------------------------------------------------------------------

local OPTIONS = {
  "max_new_tokens", "temperature", "top_k", "top_p", "generator", "on_token", "stop", "cache", "capacity", "dtype",
}

local MANY = 2 ^ 53 -- an upper bound for counts; sums with it do not overflow

--- Raises unless value is nil or an integer from `least` to `most`.
local function check_integer(value, name, least, most)
  if value == nil then return end
  if not compat.is_integer(value) or value < least or value > most then
    local range = most < MANY and ("from %d to %d"):format(least, most) or ("of at least %d"):format(least)
    E.reject("generate", name, value, "an integer %s", range)
  end
end

local function check_sampling(temperature, top_k, top_p)
  if temperature ~= nil and not (type(temperature) == "number" and temperature >= 0 and temperature < math.huge) then
    E.reject("generate", "temperature", temperature, "a finite number of at least 0 (greedy)")
  end
  check_integer(top_k, "top_k", 1, math.huge)
  if top_p ~= nil and not (type(top_p) == "number" and top_p > 0 and top_p <= 1) then
    E.reject("generate", "top_p", top_p, "a number above 0 and at most 1")
  end
end

--- The set of ids that end the text: those given (an id or a list), or the model's.
local function stops_of(model, stop)
  local stops = {}
  if stop == nil then stop = model.config.stop_tokens or {} end
  for _, id in ipairs(type(stop) == "table" and stop or { stop }) do
    E.check_cancel "generate"
    check_integer(id, "stop", 1, model.config.vocab_size)
    stops[id] = true
  end
  return stops
end

--- The prompt as int64 [n].
local function prompt_of(ids)
  if type(ids) == "table" and E.kind(ids) == nil and #ids == 0 then
    fail "generate: ids are empty; there must be at least one"
  end
  ids = loading.ids("generate", ids)
  if ids.ndim == 1 then return ids end
  if ids.shape[1] ~= 1 then
    fail("generate: ids have a batch of %d; it must be 1", ids.shape[1])
  end
  return ids[1]
end

--- The number of tokens to generate: `wanted`, by default 20, or fewer if the context or the cache is full before.
--- Raises if `wanted` tokens, or one if it is nil, do not fit.
local function count_of(model, wanted, past, n, cache)
  local context = model.config.max_position_embeddings
  local limit, bound = context, model.config.names.max_position_embeddings
  if cache and cache.capacity < context then limit, bound = cache.capacity, "the cache's capacity" end
  if wanted == nil and past + n < limit then return math.min(20, limit - past - n) end
  if past + n + (wanted or 1) > limit then
    local before = past > 0 and E.count(past, "token") .. " in the cache, " or ""
    fail("generate: %s%s and %s make %d; %s is %d", before, E.count(n, "id"), E.count(wanted or 1, "new token"),
      past + n + (wanted or 1), bound, limit)
  end
  return wanted
end

--- Whether any part of the model is in training mode; dropout then draws from the default generator.
local function trains(model)
  for _, part in model:named_modules() do
    if part.training then return true end
  end
  return false
end

-- ---- Generating ---------------------------------------------------------------------------------

--- The logits of the last id [v]; nothing is recorded.
local function logits_of(model, ids, cache)
  local options = { cache = cache, logits_to_keep = 1 }
  if core.is_grad_enabled() then return mode.run(false, nil, model, ids, options)[1] end
  return model(ids, options)[1]
end

--- Generates up to max_new_tokens (by default 20) ids that follow ids [n]. Returns the list of new ids, whose last may
--- be a stop token, and the cache, which holds all tokens except the last. Decoding is greedy unless temperature,
--- top_k, top_p or generator is given; then temperature defaults to 1, and 0 means greedy. on_token(id, position) may
--- return false to stop. Nothing is recorded, but on_token runs in the mode of the caller.
--- A call that fails leaves the cache and the generator as if on_token had stopped it at the last token it received, or
--- as before the call if it received none. For this, later tokens go to a draft of the cache, and random numbers come
--- from a copy of the generator. One exception: dropout in training mode draws from the default generator, as does
--- sampling then if no generator is given; these draws are not undone.
return function(self, ids, ...)
  E.check_self(self, "generate")
  local wanted, temperature, top_k, top_p, generator, on_token, stop, cache, capacity, dtype =
    options_of("generate", OPTIONS, 3, self, ids, ...)
  check_integer(wanted, "max_new_tokens", 0, MANY)
  check_integer(capacity, "capacity", 1, MANY)
  check_sampling(temperature, top_k, top_p)
  if on_token ~= nil then E.check_type(on_token, "function", "generate", "on_token") end
  local stops, given = stops_of(self, stop), cache
  if cache ~= nil then caches.check("generate", cache) end
  if cache and (capacity or dtype) then
    fail("generate: cache and %s are both given; use %s for a new cache only", capacity and "capacity" or "dtype",
      capacity and "capacity" or "dtype")
  end
  ids = prompt_of(ids)
  local past, n = cache and cache.length or 0, #ids
  local most = count_of(self, wanted, past, n, cache)
  if temperature == nil then temperature = (top_k or top_p or generator) and 1 or 0 end
  if capacity and capacity < n + most then
    fail("generate: %s and %s make %d; capacity is %d", E.count(n, "id"), E.count(most, "new token"), n + most,
      capacity)
  end
  cache = given or self:new_cache { capacity = capacity or n + most, dtype = dtype }

  local copied = temperature > 0 and (generator ~= nil or not trains(self))
  local tokens, draws, draft = {}, copied and core.Generator() or generator, nil
  local function begin(count)
    if copied then copy_generator(generator, draws) end
    draft = caches.draft("generate", cache, count)
  end
  local function keep()
    if copied then copy_generator(draws, generator) end
    caches.keep(cache, draft)
  end
  if not on_token then begin(n + most) end
  for i = 1, most do
    if on_token then begin(#ids) end
    local logits = logits_of(self, ids, draft)
    local id = temperature == 0 and likeliest(logits) or drawn(logits, temperature, top_k, top_p, draws)
    tokens[i] = id
    if on_token then
      keep()
      if on_token(id, past + n + i) == false then break end
    end
    if stops[id] then break end
    ids = core.tensor({ id }, { dtype = "int64" })
  end
  if not on_token then keep() end
  return tokens, cache
end
