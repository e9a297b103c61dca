--- context_parallel: a function runs on shards of its tokens, one on each rank, and attention in it is that of the
--- whole sequence, as a ring over the ranks (heed.parallel.ring).

local core = require "heed.core"
local compat = require "heed.compat"
local agreement = require "heed.parallel.agreement"
local caches = require "heed.parallel.context_cache"
local division = require "heed.parallel.division"
local forward_on_shards = require "heed.parallel.ring_modules"
local place = require "heed.parallel.place"
local ring_call = require "heed.parallel.ring_call"
local E = require "heed.nn.entries"
local Function = require "heed.autograd.functions"
local primitives = core.modules

local context = {}

-- ---- Cutting and joining ------------------------------------------------------------------------

--- A dimension as a positive number.
local function dimension_of(x, dim, method)
  local given = E.integer(dim, nil, method, "dim")
  local d = given < 0 and x.ndim + 1 + given or given
  if d < 1 or d > x.ndim then
    E.fail("%s: dim is %d; it must be from 1 to %d, or from -%d to -1", method, given, x.ndim, x.ndim)
  end
  return d
end

--- The shards of all ranks joined. A shard that is shorter than others is sent with zeros behind it.
local function unshard(link, x, dim, n)
  local longest, own = 0, x.shape[dim]
  for rank = 1, link.size do longest = math.max(longest, division.count(n, link.size, rank)) end
  if own < longest then
    local shape = {}
    for d = 1, x.ndim do shape[d] = d == dim and longest - own or x.shape[d] end
    x = core.cat({ x, core.zeros(shape, { dtype = x.dtype }) }, dim)
  end
  local shards = link.gather(x:contiguous())
  for rank, shard in ipairs(shards) do shards[rank] = shard:narrow(dim, 1, division.count(n, link.size, rank)) end
  return division.join(shards, dim, n)
end

--- Backward, a rank takes its own tokens of the gradient: what all ranks compute from the whole counts once.
local Unshard = Function("Unshard", {
  forward = function(ctx, x, link, dim, n)
    ctx.segments, ctx.dim = division.segments(n, link.size, link.rank), dim
    return unshard(link, x, dim, n)
  end,
  backward = function(ctx, dy) return division.cut(dy, ctx.dim, ctx.segments) end,
})

--- The shards of all ranks, joined along a dimension.
function context.unshard(link, x, dim, method)
  E.check_tensor(x, method, "x")
  local d = dimension_of(x, dim, method)
  return (Unshard(x, link, d, agreement.totals(link, method, { agreement.of("x", x, d) })[1]))
end

-- ---- What a function gets -----------------------------------------------------------------------

local STATE = {} -- the key of the link
local Shard, methods = { __name = "heed.Shard" }, {}

local function link_of(self, method)
  local link = type(self) == "table" and rawget(self, STATE)
  if not link then E.reject(method, "self", self, "what context_parallel gives to its function") end
  return link
end

--- shard(x, dim): this rank's part of a tensor that all ranks have.
function Shard.__call(self, x, dim)
  local link = link_of(self, "shard")
  E.check_tensor(x, "shard", "x")
  local d = dimension_of(x, dim, "shard")
  return division.cut(x, d, division.segments(x.shape[d], link.size, link.rank))
end
Shard.__call = core.frame(Shard.__call)

--- shard:positions(n): the positions of this rank's tokens in a sequence of n tokens, int64, from 1.
function methods.positions(self, n)
  local link = link_of(self, "positions")
  n = E.integer(n, nil, "positions", "n")
  if n < 0 then E.reject("positions", "n", n, "at least 0") end
  return division.positions(n, link.size, link.rank)
end

--- shard:gather(x, dim): the whole of the ranks' parts, on all of them.
function methods.gather(self, x, dim) return context.unshard(link_of(self, "gather"), x, dim, "gather") end

E.with_frames(methods)

function Shard.__index(_, name)
  if methods[name] then return methods[name] end
  E.fail("a heed.Shard has no field %s; it is called as shard(x, dim), and has positions and gather", tostring(name))
end

function Shard.__newindex(_, name) E.fail("a heed.Shard has no field that can be set, such as %s", tostring(name)) end

-- ---- Attention ----------------------------------------------------------------------------------

local OPTIONS = {
  "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa", "generator", "window", "softcap", "kv_lengths",
  "past_key", "past_value", "alibi_slopes", "sinks", "need_weights", "need_lse",
}
local SDPA = "scaled_dot_product_attention"

--- scaled_dot_product_attention(q, k, v, options…) of shards.
local function attention(link, q, k, v, ...)
  local given, o = compat.pack(primitives.options(SDPA, OPTIONS, 4, q, k, v, ...)), {}
  for i, name in ipairs(OPTIONS) do o[name] = given[i] end
  if o.need_weights then E.fail("%s: need_weights is not available in context_parallel; need_lse is", SDPA) end
  o.dropout_p = E.number(o.dropout_p, 0, SDPA, "dropout_p", E.is_probability, E.PROBABILITY)
  if o.kv_lengths ~= nil then
    o.kv_lengths, o.moves = primitives.indices(o.kv_lengths, SDPA, "kv_lengths"), true
  end
  local out, lse = ring_call.attend(link, SDPA, q, k, v, o)
  if o.need_lse then return out, { lse = lse } end
  return out
end

--- The function that computes attention while f runs. whole: tokens are whole on each rank, and caches divided.
--- touched: the caches that are used, with the numbers of tokens that they had.
local function redirected(link, whole, touched)
  --- The numbers of queries and keys of all ranks, of x and key [..., tokens, size] of a module with these settings.
  local function totals(name, x, key, settings)
    if whole then return x.shape[x.ndim - 1] end
    local list = { agreement.of("x", x, x.ndim - 1), key and agreement.of("key", key, key.ndim - 1) }
    local found = agreement.totals(link, name, list, settings)
    return found[1], found[2] or found[1]
  end

  local function attend(name, q, k, v, o, n, s)
    if o.cache == nil then
      if whole then E.fail("%s: cache is missing; with decode = true only a cache is divided", name) end
      return ring_call.attend(link, name, q, k, v, o, n, s)
    end
    local cache = caches.check(o.cache, link, name)
    touched[cache] = touched[cache] or cache.length
    return ring_call.attend_cached(link, name, q, k, v, o, n, whole)
  end

  --- The positions of this rank's tokens, of n in all, which follow those of a module in a cache; the number of those
  --- in the cache.
  local function positions(name, n, cache, m)
    local own = whole and core.range(1, n, { dtype = "int64" }) or division.positions(n, link.size, link.rank)
    if cache == nil then return own, 0 end
    local values = caches.check(cache, link, name)
    local past = m and caches.layer(values, m).length or values.length
    return own + past, past
  end

  --- The same for a model, of l ids here; and n.
  local function positions_of_ids(l, cache)
    local method, ids = "context_parallel", { name = "ids", count = l, elements = 1 }
    local n = whole and l or agreement.totals(link, method, { ids })[1]
    local own, past = positions(method, n, cache)
    return own, past, n
  end

  local ranks = { attend = attend, positions = positions, totals = totals }
  return function(what, ...)
    if what == SDPA and not whole then return attention(link, ...) end
    if what == "forward" then return forward_on_shards(ranks, ...) end
    if what == "positions" then return positions_of_ids(...) end
    if what == "is_divided" then return not whole end
    if what == "varlen_attention" then
      E.fail("%s: it is not available in context_parallel; use scaled_dot_product_attention with attn_mask = "
        .. "heed.mask.documents(lengths)", what)
    end
    E.fail("%s: it is not available in context_parallel%s", what, whole and " with decode = true" or "")
  end
end

--- f(shard) while attention is that of all ranks' tokens. gather: the dimension along which the first result is joined.
local function run(link, f, gather, whole)
  if primitives.redirected() then E.fail "context_parallel: it runs in a function of context_parallel already" end
  local touched = {}
  primitives.redirect(redirected(link, whole, touched))
  local shard = setmetatable({ [STATE] = link }, Shard)
  -- through C, so that f cannot yield: attention would be redirected outside of it, too
  local results = compat.pack(pcall(primitives.with_modes, nil, nil, f, shard))
  primitives.redirect(nil)
  if not results[1] then
    for cache, length in pairs(touched) do
      if cache.layers then caches.reset(cache, length) end
    end
    error(results[2], 0)
  end
  if gather ~= nil then results[2] = context.unshard(link, results[2], gather, "context_parallel") end
  return compat.unpack(results, 2, results.n)
end

--- How the ranks of a mesh of one dimension, or of a group, reach each other.
local function link_of_mesh(mesh, method)
  local dist, here = require "heed.distributed", place.of(mesh, method)
  local link = { rank = here.rank, size = here.size }
  function link.send(x, to, tag) return dist.isend(x, to, { tag = tag, group = mesh }) end
  function link.receive(x, from, tag) return dist.irecv(x, from, { tag = tag, group = mesh }) end
  function link.gather(x) return dist.all_gather(x, { group = mesh }) end
  return link
end

--- context_parallel(mesh, f, {gather = dim, decode = true}): f(shard) on all ranks of the mesh, where shard(x, dim)
--- cuts a tensor, and attention in f is that of the tokens of all ranks. Returns what f returns; gather: the first
--- result is joined along that dimension. decode: all ranks have all tokens, and only caches are divided.
function context.context_parallel(mesh, f, ...)
  local method = "context_parallel"
  local gather, decode = primitives.options(method, { "gather", "decode" }, 3, mesh, f, ...)
  E.check_type(f, "function", method, "f")
  if gather ~= nil then E.integer(gather, nil, method, "gather") end
  decode = E.boolean(decode, false, method, "decode")
  if decode and gather ~= nil then
    E.fail("%s: gather and decode are given; with decode = true results are whole already", method)
  end
  return run(link_of_mesh(mesh, method), f, gather, decode)
end

--- context_cache(mesh, {dtype = "bfloat16"}): an empty cache whose tokens are divided among the ranks of the mesh.
function context.context_cache(mesh, ...)
  local method = "context_cache"
  local dtype = primitives.options(method, { "dtype" }, 2, mesh, ...)
  return caches.new(link_of_mesh(mesh, method), dtype, method)
end

return E.with_frames(context, "context_parallel")
