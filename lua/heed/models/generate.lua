--- model:generate(ids, options): text generation, greedy or by sampling, of one text or of several at once. Shape
--- legend: n tokens, b texts, v vocab_size.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local caches = require "heed.models.cache"
local loading = require "heed.models.loading"
local mode = require "heed.autograd.mode"
local slices = require "heed.nn.slices"
local pause = slices.pause
local options_of, copy_generator, fail = core.modules.options, core.modules.copy_generator, E.fail

-- ---- Choosing a token ---------------------------------------------------------------------------

--- The id of the largest of the logits [v].
local function likeliest(logits)
  local best, id = logits:max(-1)
  best = best:item()
  if best ~= best then fail "generate: the model's logits contain nan" end
  return id:item()
end

--- Probabilities p [v] and their ids, the likeliest first, until they add up to `share`: few of a large vocabulary
--- are, so that sorting it all is rare.
local function head_of(p, share)
  local count = 64
  while count < #p do
    local values, ids = p:topk(count)
    pause()
    if values:sum():item() >= share then return values, ids end
    count = count * 8
  end
  return p:sort(-1, true)
end

--- An id drawn from softmax(logits / temperature), restricted to the top_k likeliest, then to the smallest set of
--- likeliest ids whose probabilities add up to top_p (nucleus sampling), then to those of at least min_p times the
--- likeliest one's: Hugging Face's order. top_k, top_p and min_p may be nil.
local function drawn(logits, temperature, top_k, top_p, min_p, generator)
  local ids -- ids[i] belongs to p[i] once they are sorted, the likeliest first
  if top_k and top_k < #logits then logits, ids = logits:topk(top_k) end
  pause()
  local p = ((logits - logits:max()) / math.max(temperature, 1e-30)):softmax(-1)
  pause()
  if top_p and top_p < 1 then
    if not ids then p, ids = head_of(p, top_p) end
    p = p:masked_fill((p:cumsum(-1) - p):ge(top_p), 0) -- the ids before suffice
  end
  if min_p then p = p:masked_fill(p:lt(p:max():item() * min_p), 0) end
  pause()
  local sums = p:cumsum(-1)
  pause()
  local sum = sums[#sums]
  if sum ~= sum then fail "generate: the model's logits contain nan or inf; they have no softmax" end
  local at = sums:le(core.rand(1, { generator = generator }):item() * sum):sum():item() + 1
  if at > #sums then at = p:argmax():item() end -- rand() * sum was rounded up to sum
  return ids and ids[at] or at
end

--- The logits [v] with those of the ids in a list divided by the penalty if they are positive, and multiplied if they
--- are negative. Source: arXiv:1909.05858, section 4.1.
local function penalised(logits, ids, penalty)
  ids = core.tensor(ids, { dtype = "int64" })
  local values = logits:index_select(1, ids)
  return logits:index_copy(1, ids, values:lt(0):where(values * penalty, values / penalty))
end

-- ---- Options ------------------------------------------------------------------------------------

local OPTIONS = {
  "max_new_tokens", "temperature", "top_k", "top_p", "generator", "on_token", "stop", "cache", "capacity", "dtype",
  "min_p", "repetition_penalty",
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

local function check_sampling(temperature, top_k, top_p, min_p, penalty)
  if temperature ~= nil and not (type(temperature) == "number" and temperature >= 0 and temperature < math.huge) then
    E.reject("generate", "temperature", temperature, "a finite number of at least 0 (greedy)")
  end
  check_integer(top_k, "top_k", 1, math.huge)
  if top_p ~= nil and not (type(top_p) == "number" and top_p > 0 and top_p <= 1) then
    E.reject("generate", "top_p", top_p, "a number above 0 and at most 1")
  end
  if min_p ~= nil and not (type(min_p) == "number" and min_p >= 0 and min_p <= 1) then
    E.reject("generate", "min_p", min_p, "a number from 0 to 1")
  end
  if penalty ~= nil and not (type(penalty) == "number" and penalty > 0 and penalty < math.huge) then
    E.reject("generate", "repetition_penalty", penalty, "a finite number above 0, such as 1.1; 1 changes nothing")
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

--- The prompts, each int64 [n], and whether ids are several: a list of lists or of tensors, or a tensor [b, n], b > 1.
local function prompts_of(ids)
  local listed = type(ids) == "table" and E.kind(ids) == nil
  if listed and #ids == 0 then fail "generate: ids are empty; there must be at least one" end
  local several = listed and (type(ids[1]) == "table" or E.kind(ids[1]) == "tensor")
  if not several then
    ids = loading.ids("generate", ids)
    if ids.ndim == 1 then return { ids }, false end
    several = ids.shape[1] > 1
  end
  local prompts = {}
  for i = 1, several and not listed and ids.shape[1] or #ids do
    local name = ("prompt %d"):format(i)
    local prompt = core.modules.indices(ids[i], "generate", name)
    if prompt.ndim ~= 1 then E.reject("generate", name, ids[i], "a list or a tensor [n] of ids") end
    if #prompt == 0 then fail("generate: %s is empty; it must have at least one id", name) end
    prompts[i] = prompt
  end
  return prompts, several
end

--- Of prompts that follow past[i] tokens each: the index of the one that fills most of the context.
local function fullest(prompts, past)
  local at = 1
  for i, prompt in ipairs(prompts) do
    if past[i] + #prompt > past[at] + #prompts[at] then at = i end
  end
  return at
end

--- The number of tokens to generate: `wanted`, by default 20, or fewer if the context or the cache is full before.
--- Raises if `wanted` tokens, or one if it is nil, do not fit; `name` then begins the message.
local function count_of(model, name, wanted, past, n, cache)
  local context = model.config.max_position_embeddings
  local limit, bound = context, model.config.names.max_position_embeddings
  if cache and cache.capacity < context then limit, bound = cache.capacity, "the cache's capacity" end
  if wanted == nil and past + n < limit then return math.min(20, limit - past - n) end
  if past + n + (wanted or 1) > limit then
    local before = past > 0 and E.count(past, "token") .. " in the cache, " or ""
    fail("%s%s%s and %s make %d; %s is %d", name, before, E.count(n, "id"), E.count(wanted or 1, "new token"),
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

-- In slices of time: the elements of the widest tensor of a pass over a prompt, and the fewest rows of one.
local PASS, LEAST_ROWS = 2 ^ 19, 16

-- ---- Generating ---------------------------------------------------------------------------------

--- The logits of the last id of each text that has new ones [b, v]; nothing is recorded. ids are [n], or [total] of
--- several texts with lengths.
local function logits_of(model, ids, cache, lengths, begins)
  local options = { cache = cache, lengths = lengths, logits_to_keep = (begins or not lengths) and 1 or nil }
  if core.is_grad_enabled() then return (mode.run(false, nil, model, ids, options)) end
  return (model(ids, options))
end

--- In slices of time, reads a long prompt [n] in passes of rows that an operation between products handles in a small
--- part of a millisecond. Returns the ids of the last pass, which is left to the caller.
local function read(model, ids, cache)
  if not slices.active() then return ids end
  local config = model.config
  local widest = math.max(config.intermediate_size or 0, 4 * config.hidden_size)
  local count = math.max(LEAST_ROWS, math.floor(PASS / widest))
  while count < #ids do
    logits_of(model, ids:narrow(1, 1, count), cache, nil, true)
    ids = ids:narrow(1, count + 1, #ids - count)
  end
  return ids
end

--- What a call of generate does, with checked arguments: the options by name, and prompts, several, past (the tokens
--- of each text in the cache), most (tokens to generate), stops (a set), and watch, by which later uses of the cache
--- are detected. Raises if anything is wrong.
local function plan_of(self, ids, ...)
  local wanted, temperature, top_k, top_p, generator, on_token, stop, cache, capacity, dtype, min_p, penalty =
    options_of("generate", OPTIONS, 3, self, ids, ...)
  check_integer(wanted, "max_new_tokens", 0, MANY)
  check_integer(capacity, "capacity", 1, MANY)
  check_sampling(temperature, top_k, top_p, min_p, penalty)
  if penalty == 1 then penalty = nil end
  if on_token ~= nil then E.check_type(on_token, "function", "generate", "on_token") end
  local stops = stops_of(self, stop)
  if cache ~= nil then caches.check("generate", cache) end
  if cache and (capacity or dtype) then
    fail("generate: cache and %s are both given; use %s for a new cache only", capacity and "capacity" or "dtype",
      capacity and "capacity" or "dtype")
  end
  local prompts, several = prompts_of(ids)
  if cache and cache.batch ~= #prompts then
    fail("generate: cache has a batch of %d; it must be %d, the number of prompts", cache.batch, #prompts)
  end
  local past = cache and cache.lengths or {}
  for i = 1, #prompts do past[i] = past[i] or 0 end
  local at = fullest(prompts, past)
  local name, n = several and ("generate: prompt %d: "):format(at) or "generate: ", #prompts[at]
  local most = count_of(self, name, wanted, past[at], n, cache)
  if capacity and capacity < n + most then
    fail("%s%s and %s make %d; capacity is %d", name, E.count(n, "id"), E.count(most, "new token"), n + most, capacity)
  end
  if temperature == nil then temperature = (top_k or top_p or min_p or generator) and 1 or 0 end
  if temperature > 0 and generator ~= nil then copy_generator(generator, core.Generator()) end -- raises if it is none
  cache = cache or self:new_cache { batch = #prompts, capacity = capacity or n + most, dtype = dtype }
  return {
    prompts = prompts, several = several, past = past, most = most, stops = stops, cache = cache,
    watch = caches.watch("generate", cache), on_token = on_token, generator = generator, temperature = temperature,
    top_k = top_k, top_p = top_p, min_p = min_p, penalty = penalty,
  }
end

--- Generates what plan_of read: up to max_new_tokens (by default 20) ids that follow ids [n]. Returns the list of new
--- ids, whose last may be a stop token, and the cache, which holds all tokens except the last. Decoding is greedy
--- unless temperature, top_k, top_p or generator is given; then temperature defaults to 1, and 0 means greedy.
--- on_token(id, position, item) may return false to stop. Nothing is recorded, but on_token runs in the mode of the
--- caller.
--- If ids are several prompts, which may differ in length, the result is a list of such lists, and each item ends by
--- itself. A pass computes the new tokens of all that go on, and nothing for padding.
--- A call that fails leaves the cache and the generator as if on_token had stopped it at the last token it received
--- (of several texts, all at the same token), or as before the call if it received none. For this, later tokens go to a
--- draft of the cache, and random numbers come from a copy of the generator. One exception: dropout in training mode
--- draws from the default generator, as does sampling then if no generator is given; these draws are not undone.
local function generate(self, progress, plan)
  caches.check_draft(plan.watch)
  local prompts, cache, most, draws, draft = plan.prompts, plan.cache, plan.most, plan.generator, nil
  local past, added, going, texts, longest = plan.past, {}, {}, {}, 0
  for i, prompt in ipairs(prompts) do
    added[i], going[i], texts[i], longest = #prompt, i, {}, math.max(longest, #prompt)
  end
  local on_token, several, penalty, stops = plan.on_token, plan.several, plan.penalty, plan.stops
  local copied = plan.temperature > 0 and (plan.generator ~= nil or not trains(self))
  if copied then draws = core.Generator() end
  local function begin(count)
    if copied then copy_generator(plan.generator, draws) end
    draft = caches.draft("generate", cache, count)
  end
  local function keep()
    if copied then copy_generator(draws, plan.generator) end
    caches.keep(cache, draft)
  end
  local seen = {} -- the ids of each text, for the penalty
  for i, prompt in ipairs(penalty and prompts or {}) do seen[i] = prompt:tolist() end
  local ids = several and core.cat(prompts, 1) or prompts[1]
  if not on_token then begin(longest + most) end
  for step = 1, most do
    if on_token then begin(step == 1 and longest or 1) end
    if step == 1 and not several then ids = read(self, ids, draft) end
    local logits = logits_of(self, ids, draft, several and added or nil, step == 1)
    local new = {}
    for row, i in ipairs(going) do
      local of = penalty and penalised(logits[row], seen[i], penalty) or logits[row]
      new[row] = plan.temperature == 0 and likeliest(of)
        or drawn(of, plan.temperature, plan.top_k, plan.top_p, plan.min_p, draws)
      texts[i][step] = new[row]
      if penalty then table.insert(seen[i], new[row]) end
    end
    if on_token then keep() end
    if progress then progress(step, most) end
    local rest, next_ids = {}, {}
    for row, i in ipairs(going) do
      local id = new[row]
      local ends = on_token and slices.outside(on_token, id, past[i] + #prompts[i] + step, i) == false or stops[id]
      added[i] = ends and 0 or 1
      if not ends then rest[#rest + 1], next_ids[#next_ids + 1] = i, id end
    end
    if #rest == 0 then break end
    going, ids = rest, core.tensor(next_ids, { dtype = "int64" })
  end
  if not on_token then keep() end
  return several and texts or texts[1], cache
end

local M = {}

function M.generate(self, ids, ...)
  E.check_self(self, "generate")
  return generate(self, nil, plan_of(self, ids, ...))
end

--- The same in slices of `ms` milliseconds (2), an option of its own: an object with advance(ms), which returns whether
--- all is done, and then result (the new ids) and cache. Until then nothing but it may use the cache. A long prompt is
--- read in several passes, so that the last bits of its logits may differ from generate's.
function M.generate_steps(self, ids, options, ...)
  E.check_self(self, "generate_steps")
  local rest, ms = {}, 2
  if options ~= nil then E.check_type(options, "table", "generate_steps", "options") end
  for name, value in pairs(options or {}) do
    if name == "ms" then
      ms = slices.budget(value, "generate_steps")
    else
      rest[name] = value
    end
  end
  if select("#", ...) > 0 then E.reject("generate_steps", "argument 3", (...), "left out; options are a table") end
  local plan = plan_of(self, ids, rest)
  for i, prompt in ipairs(plan.prompts) do plan.prompts[i] = prompt:clone() end -- the caller may change its own
  return slices.new(ms, function(progress) return generate(self, progress, plan) end)
end

return M
