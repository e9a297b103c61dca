--- model:generate(ids, options): token by token, the likeliest or drawn. v is vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local options_of, copy_generator, fail = core.modules.options, core.modules.copy_generator, E.fail

-- ---- Choosing a token ---------------------------------------------------------------------------

--- The id of the greatest logit of [v].
local function likeliest(logits)
  local best, id = logits:max(-1)
  best = best:item()
  if best ~= best then fail "generate: the model's logits are nan" end
  return id:item()
end

--- An id drawn by softmax(logits / temperature) among the top_k likeliest, and of these among the fewest that have
--- a probability of top_p together. top_k and top_p may be nil.
local function drawn(logits, temperature, top_k, top_p, generator)
  local ids -- of the places, when they are sorted, the likeliest first
  if top_k and top_k < #logits then
    logits, ids = logits:topk(top_k)
  elseif top_p then
    logits, ids = logits:sort(-1, true)
  end
  local p = ((logits - logits:max()) / math.max(temperature, 1e-30)):softmax(-1)
  if top_p and top_p < 1 then p = p:masked_fill((p:cumsum(-1) - p):ge(top_p), 0) end -- those before are enough
  local sums = p:cumsum(-1)
  local sum = sums[#sums]
  if sum ~= sum then fail "generate: the model's logits have no softmax, for there is nan or inf in them" end
  local at = sums:le(core.rand(1, { generator = generator }):item() * sum):sum():item() + 1
  if at > #sums then at = p:argmax():item() end -- the product was rounded up to the sum
  return ids and ids[at] or at
end

-- ---- Options ------------------------------------------------------------------------------------

local OPTIONS = {
  "max_new_tokens", "temperature", "top_k", "top_p", "generator", "on_token", "stop", "cache", "capacity", "dtype",
}

local MANY = 2 ^ 53 -- more than there can be, and sums with it do not wrap

--- Raises unless value is nil or an integer from `least` to `most`.
local function check_integer(value, name, least, most)
  if value == nil then return end
  if not compat.is_integer(value) or value < least or value > most then
    local range = most < MANY and ("from %d to %d"):format(least, most) or ("from %d up"):format(least)
    fail("generate: %s must be an integer %s, got %s", name, range, E.what(value))
  end
end

local function check_sampling(temperature, top_k, top_p)
  if temperature ~= nil and not (type(temperature) == "number" and temperature >= 0 and temperature < math.huge) then
    fail("generate: temperature must be a number from 0 (greedy) up, got %s", E.what(temperature))
  end
  check_integer(top_k, "top_k", 1, math.huge)
  if top_p ~= nil and not (type(top_p) == "number" and top_p > 0 and top_p <= 1) then
    fail("generate: top_p must be a number above 0, at most 1, got %s", E.what(top_p))
  end
end

--- The ids that end the text, as keys: those that are given (an id or a list), or the model's.
local function stops_of(model, stop)
  local stops = {}
  if stop == nil then stop = model.config.stop_tokens or {} end
  for _, id in ipairs(type(stop) == "table" and stop or { stop }) do
    E.look "generate"
    check_integer(id, "stop", 1, model.config.vocab_size)
    stops[id] = true
  end
  return stops
end

--- The prompt as int64 [n].
local function prompt_of(ids)
  if type(ids) == "table" and E.kind(ids) == nil and #ids == 0 then
    fail "generate: ids are empty; one is needed at least"
  end
  ids = loading.ids("generate", ids)
  if ids.ndim == 1 then return ids end
  if ids.shape[1] ~= 1 then
    fail("generate: ids have a batch of %d; one text at a time is generated", ids.shape[1])
  end
  return ids[1]
end

--- How many tokens to generate: 20, or as many as there is room for, if nothing is said. Raises if there is no room
--- for all of them.
local function count_of(model, wanted, past, n, cache)
  local context = model.config.max_position_embeddings
  local room, bound = context, "max_position_embeddings"
  if cache and cache.capacity < context then room, bound = cache.capacity, "the cache's capacity" end
  if wanted == nil and past + n < room then return math.min(20, room - past - n) end
  if past + n + (wanted or 1) > room then
    local before = past > 0 and E.count(past, "token") .. " in the cache, " or ""
    fail("generate: %s%s and %s are %d, and %s is %d", before, E.count(n, "id"), E.count(wanted or 1, "new token"),
      past + n + (wanted or 1), bound, room)
  end
  return wanted
end

--- Whether a part of the model is in training, where dropout draws from the default generator.
local function trains(model)
  for _, part in model:named_modules() do
    if part.training then return true end
  end
  return false
end

-- ---- Generating ---------------------------------------------------------------------------------

--- A list of up to max_new_tokens (20) ids that follow ids [n], the last of them a stop token if one came; and the
--- cache, which holds all tokens but the last. Greedy, unless one of temperature, top_k, top_p and generator is given:
--- then temperature is 1 if it is not said; 0 is greedy. on_token(id, position) may return false to stop.
--- If the call fails, cache and generator are as if on_token had stopped it at the last token that it was told of; as
--- before the call if it was told of none. What is not told yet is in drafts: the tokens in one of the cache, the
--- draws in a copy of the generator. (Dropout of a model in training draws from the default generator, too, and so does
--- the sampling then if it is given no other: that is not taken back.)
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
    fail("generate: cache is given and so is %s, which is for a new one", capacity and "capacity" or "dtype")
  end
  ids = prompt_of(ids)
  local past, n = cache and cache.length or 0, #ids
  local most = count_of(self, wanted, past, n, cache)
  if temperature == nil then temperature = (top_k or top_p or generator) and 1 or 0 end
  if capacity and capacity < n + most then
    fail("generate: %s and %s are %d, and capacity is %d", E.count(n, "id"), E.count(most, "new token"), n + most,
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
    local logits = self(ids, { cache = draft, logits_to_keep = 1 })[1]
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
