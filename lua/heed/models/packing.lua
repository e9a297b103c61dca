--- Sequences of different lengths in models, one after another and without padding. Shape legend: b batch, n tokens,
--- total all tokens.

local compat = require "heed.compat"
local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"

local packing = {}

--- lengths as int64 [b], checked for ids [total]: none may be above `most`, which is `bound`.
function packing.check(name, lengths, ids, most, bound)
  lengths = core.modules.indices(lengths, name, "lengths")
  if lengths.ndim ~= 1 then
    E.reject(name, "lengths", lengths, "a list or a tensor [b], the length of each sequence")
  end
  if ids.ndim ~= 1 then
    E.fail("%s: ids have the shape [%s] and lengths are given; they must be [total], one sequence after another", name,
      table.concat(ids.shape, ", "))
  end
  local total = 0
  for i, length in ipairs(lengths:tolist()) do
    if length < 0 then E.fail("%s: element %d of lengths is %d; it must be at least 0", name, i, length) end
    if length > most then
      E.fail("%s: sequence %d has %s; it must have at most %d, %s", name, i, E.count(length, "token"), most, bound)
    end
    total = total + length
  end
  if total ~= ids.shape[1] then
    E.fail("%s: lengths add up to %d; they must add up to %d, the number of ids", name, total, ids.shape[1])
  end
  return lengths
end

--- The positions, int64 [total], from 1 in each sequence, or from past[i] + 1 if past [b] is given.
function packing.positions(lengths, past)
  local ends = lengths:cumsum(1)
  local before = ends - lengths
  if past then before = before - past end
  return core.range(1, ends[#ends], { dtype = "int64" }) - before:repeat_interleave(lengths)
end

--- In context_parallel: the positions, int64 [n], of the tokens that this rank has, which follow those in a divided
--- cache; else nil. Raises if all ranks together have more than `most` tokens; `bound` is the name of that limit.
function packing.positions_of_shard(name, n, cache, most, bound)
  local elsewhere = core.modules.redirected()
  if not elsewhere then return nil end
  local own, past, count = elsewhere("positions", n, cache)
  if past + count > most then
    E.fail("%s: %sids have %s on all ranks; together they must be at most %d, %s", name,
      past > 0 and ("cache has %s and "):format(E.count(past, "token")) or "", E.count(count, "token"), most, bound)
  end
  return own
end

--- Whether this rank has a part of the tokens only.
function packing.is_divided()
  local elsewhere = core.modules.redirected()
  return elsewhere and elsewhere "is_divided" or false
end

--- Whether attention has parts in Lua and gradients are recorded, which excludes lengths. (heed.nn.recorded)
local function records_parts(attention)
  if not core.is_grad_enabled() then return false end
  for _, part in attention:named_modules() do
    if E.record(part) then return true end
  end
  return false
end

--- Whether listeners see tensors of the model, dropout draws, or a layer is not the model's own.
local function needs_batch(model)
  for _, part in model:named_modules() do
    local store = attached(part)
    if store and next(store) ~= nil then return true end
    if E.class_name(part) == "Dropout" and part.training and part.p > 0 then return true end
  end
  for _, layer in compat.ipairs(model.layers) do
    local own = E.record(layer)
    if not (own and own.class.packs) or E.class_name(layer.attention) ~= "MultiHeadAttention" then return true end
    if E.record(layer.attention) or records_parts(layer.attention) then return true end
  end
  return false
end

--- The lengths [b] of ids [b, n] if their padding, all of it behind the tokens, can be left out; else nil. mask [b, n]
--- is 0 or false for padding, lengths are [b]; one of them may be nil. Invalid ones give nil, as does context_parallel.
function packing.lengths(model, ids, mask, lengths)
  if ids.ndim ~= 2 or (mask == nil) == (lengths == nil) or core.modules.redirected() then return nil end
  local b, n = ids.shape[1], ids.shape[2]
  if mask ~= nil then
    if mask.ndim ~= 2 or mask.shape[1] ~= b or mask.shape[2] ~= n then return nil end
    mask = mask:ne(0)
    lengths = mask:long():sum(-1)
    if not core.range(1, n):le(lengths:unsqueeze(2)):eq(mask):all():item() then return nil end
  else
    if E.kind(lengths) ~= "tensor" then lengths = core.modules.indices(lengths, E.class_name(model), "kv_lengths") end
    if lengths.dtype ~= "int64" or lengths.ndim ~= 1 or lengths.shape[1] ~= b then return nil end
    if lengths:lt(0):any():item() or lengths:gt(n):any():item() then return nil end
  end
  local total = lengths:sum():item()
  if total == b * n or total == 0 or needs_batch(model) then return nil end
  return lengths
end

return packing
