-- Attention with random sizes, layouts and options against plain loops over doubles:
--   build/heed tests/fuzz/attention_fuzz.lua [seed [configurations [seconds]]]
-- HEED_CPU chooses the kernel table. An element may differ from its reference by a bound that is derived from the sizes
-- of the numbers (below). The same seed gives the same configuration, which is printed with a problem. The last line
-- counts configurations.
require "tests.older_lua"
local chances = require "tests.fuzz.chances"
local heed = require "heed"
local naive = require "tests.naive_attention"
local random, chance, one_of = chances.random, chances.chance, chances.one_of

local EPSILON = 2 ^ -24 -- of float32
-- What rounding to a dtype of keys and values changes, relative to the largest magnitude of a row.
local ROUNDING = { float32 = 0, bfloat16 = 2 ^ -8, float16 = 2 ^ -11, int8 = 1 / 254, int4 = 1 / 14 }

local seed, count, seconds = tonumber(arg[1]) or 1, tonumber(arg[2]) or 500, tonumber(arg[3]) or math.huge
local configuration, problems = "", 0

local function problem(...)
  problems = problems + 1
  print(("seed %d: %s; %s"):format(seed, (...):format(select(2, ...)), configuration))
end

-- ---- Random inputs ------------------------------------------------------------------------------

--- The same elements in another layout.
local function laid_out(x)
  local kind = random(4)
  if kind == 1 then return x:transpose(2, 3):contiguous():transpose(2, 3) end
  if kind == 2 then
    local wide = heed.full({ x.shape[1], x.shape[2], x.shape[3] + 3, x.shape[4] + 2 }, 0 / 0):to(x.dtype)
    local view = wide:narrow(3, 2, x.shape[3]):narrow(4, 3, x.shape[4])
    view:copy_(x)
    return view
  end
  if kind == 3 then return x:transpose(1, 2):contiguous():transpose(1, 2) end
  return x
end

local function size(most) return chance(20) and random(most) or one_of { 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17 } end

local function intervals(L, S)
  local rows = {}
  for i = 1, L do
    local a = random(S)
    rows[i] = { { a, math.min(S, a + random(5) - 2) } }
    if rows[i][1][2] < a then rows[i] = { { 1, 0 } } end
  end
  return heed.mask.intervals(rows)
end

local function lengths(total)
  local list = {}
  repeat
    local n = math.min(total, random(6) - 1)
    list[#list + 1], total = n, total - n
  until total == 0
  return list
end

local function parents(L)
  local list = {}
  for i = 1, L do list[i] = random(i) - 1 end
  return list
end

--- A mask: the option, and visible(b, h, i, j), added(b, h, i, j).
local function random_mask(b, hq, L, S, keys, offset_of)
  local kind = random(7)
  if kind <= 2 then
    local shape = { one_of { 1, b }, one_of { 1, hq }, one_of { 1, L }, keys }
    if chance(30) then shape[4] = random(keys) end -- fewer keys
    local x = heed.rand(shape)
    local mask = kind == 1 and x:gt(0.3) or (x * 4 - 2):masked_fill(x:lt(0.2), -math.huge)
    local list = mask:tolist()
    local function at(ib, ih, i, j)
      if shape[4] == 1 then j = 1 end
      if j > shape[4] then return nil end
      return list[math.min(ib, shape[1])][math.min(ih, shape[2])][math.min(i, shape[3])][j]
    end
    if kind == 1 then return mask, function(...) return at(...) == true end, nil, "bool mask" end
    return mask, function(...) return (at(...) or -math.huge) > -math.huge end, at, "float mask"
  end
  local mask, name
  if kind == 3 then mask, name = heed.mask.causal(), "causal mask" end
  if kind == 4 then mask, name = heed.mask.window(random(6) - 1, chance(50) and random(4) - 1 or nil), "window mask" end
  if kind == 5 then mask, name = heed.mask.prefix(random(keys + 1) - 1), "prefix mask" end
  if kind == 6 and S == keys and L + math.max(offset_of(1), offset_of(b)) <= keys then mask,
    name = heed.mask.documents(lengths(keys)), "documents mask" end
  if kind == 7 and S == keys and offset_of(1) == 0 then mask, name = intervals(L, keys), "intervals mask" end
  if not mask and L == S and S == keys then mask, name = heed.mask.tree(parents(L)), "tree mask" end
  mask, name = mask or heed.mask.causal(), name or "causal mask"
  if chance(30) and kind <= 5 then mask, name = mask:both(heed.mask.window(random(5), nil)), name .. " and window" end
  local dense = {}
  return mask, function(ib, ih, i, j)
    if not dense[ib] then dense[ib] = mask:dense(L, keys, offset_of(ib)):tolist() end
    local list = dense[ib]
    while type(list[1][1]) == "table" do list = list[math.min(ih, #list)] end
    return list[i][j]
  end, nil, name
end

-- ---- The reference ------------------------------------------------------------------------------

--- The weights, the logsumexp and a bound of the error of one query.
local function reference_row(c, q, k, ib, ih, i)
  local kv = math.ceil(ih * c.hkv / c.hq)
  local offset, scores, largest, magnitude = c.offset_of(ib), {}, -math.huge, 0
  local row, rows = q[ib][ih][i], k[ib][kv]
  for j = 1, c.keys do
    local position = i + offset
    local visible = not (c.lengths and j > c.lengths[ib]) and not (c.is_causal and j > position)
      and not (c.window and (c.window.left and j < position - c.window.left or c.window.right
        and j > position + c.window.right))
      and not (c.visible and not c.visible(ib, ih, i, j))
    if visible then
      local dot, sizes = 0, 0
      local key = rows[j]
      for d = 1, c.d do
        dot = dot + row[d] * key[d]
        sizes = sizes + math.abs(row[d] * key[d])
      end
      local score = dot * c.scale
      if c.softcap then
        local e = math.exp(-2 * math.abs(score) / c.softcap)
        score = c.softcap * (1 - e) / (1 + e) * (score < 0 and -1 or 1)
      end
      local added = c.added and c.added(ib, ih, i, j) or 0
      if c.slopes then added = added - c.slopes[ih] * math.abs(position - j) end
      score = score + added
      if added > -math.huge then magnitude = math.max(magnitude, sizes * math.abs(c.scale) + math.abs(added)) end
      scores[j] = score
      largest = math.max(largest, score)
    end
  end
  if c.sinks then largest = math.max(largest, c.sinks[ih]) end
  local sum, weights = 0, {}
  if largest > -math.huge then
    for j, score in pairs(scores) do
      weights[j] = math.exp(score - largest)
      sum = sum + weights[j]
    end
    if c.sinks then sum = sum + math.exp(c.sinks[ih] - largest) end
    for j, weight in pairs(weights) do weights[j] = weight / sum end
  end
  -- Errors of the scores: of the dot product, and of the exponential function; then of the sums.
  local bound = EPSILON * ((c.d / 4 + 16) * (magnitude + 1) + c.keys / 4 + 32) + 2 * c.rounding * (magnitude + 1) * 2
  return weights, next(scores) and largest + math.log(sum) or -math.huge, bound
end

local function difference(a, b)
  if a == b or a ~= a and b ~= b then return 0 end
  local gap = math.abs(a - b)
  return gap == gap and gap or math.huge
end

--- Compares out, and the weights and the logsumexp of taps, with the reference.
local function compare(c, q, k, v, out, taps, dropped)
  local got = out:tolist()
  local weights_got = taps and taps.weights and taps.weights:tolist()
  local lse = taps and taps.lse and taps.lse:tolist()
  for ib = 1, c.b do
    for ih = 1, c.hq do
      local values = v[ib][math.ceil(ih * c.hkv / c.hq)]
      for i = 1, c.L do
        local weights, sum, bound = reference_row(c, q, k, ib, ih, i)
        if lse and difference(lse[ib][ih][i], sum) > bound * (1 + math.abs(sum) / 8) then
          return problem("lse [%d, %d, %d] is %g; it must be %g", ib, ih, i, lse[ib][ih][i], sum)
        end
        if weights_got then
          for j = 1, c.keys do
            if difference(weights_got[ib][ih][i][j], weights[j] or 0) > bound then
              return problem("weight [%d, %d, %d, %d] is %g; it must be %g", ib, ih, i, j, weights_got[ib][ih][i][j],
                weights[j] or 0)
            end
          end
        end
        if dropped then
          for j = 1, c.keys do
            local weight, kept = dropped[ib][ih][i][j], (weights[j] or 0) / (1 - c.dropout_p)
            if weight ~= 0 and difference(weight, kept) > 2 * bound / (1 - c.dropout_p) then
              return problem("dropped weight [%d, %d, %d, %d] is %g; it must be 0 or %g", ib, ih, i, j, weight, kept)
            end
            weights[j] = weight
          end
        end
        for e = 1, c.dv do
          local want, most = 0, 0
          for j, weight in pairs(weights) do
            if weight ~= 0 then
              want = want + weight * values[j][e]
              most = math.max(most, math.abs(values[j][e]))
            end
          end
          local error = difference(got[ib][ih][i][e], want)
          if error > bound * (most + 1e-30) * (dropped and 2 / (1 - c.dropout_p) or 2) then
            return problem("element [%d, %d, %d, %d] is %.9g; it must be %.9g (bound %g)", ib, ih, i, e,
              got[ib][ih][i][e], want,
              bound * most)
          end
        end
      end
    end
  end
end

-- ---- One configuration --------------------------------------------------------------------------

local function functional()
  local hkv = random(3)
  local c = { b = random(2), hkv = hkv, hq = hkv * random(3), L = size(60), d = size(70), dv = size(40), rounding = 0 }
  local S = chance(30) and c.L or size(140)
  local P = chance(25) and size(20) or 0
  c.keys = P + S
  local dtype = chance(60) and "float32" or one_of { "bfloat16", "float16" }
  local q, k, v = heed.randn(c.b, c.hq, c.L, c.d), heed.randn(c.b, hkv, c.keys, c.d):to(dtype),
    heed.randn(c.b, hkv, c.keys, c.dv):to(dtype)
  local options = {}
  c.lengths = P == 0 and chance(25) and {} or nil
  for i = 1, c.lengths and c.b or 0 do c.lengths[i] = random(S + 1) - 1 end
  function c.offset_of(ib)
    if c.lengths then return c.lengths[ib] - c.L end
    return P
  end
  c.is_causal = chance(40)
  c.window = chance(25) and { left = chance(70) and random(10) - 1 or nil, right = chance(50) and random(10) - 1
    or nil } or nil
  c.scale = chance(30) and random(20) / 20 or 1 / math.sqrt(c.d)
  c.softcap = chance(20) and random(30) or nil
  c.dropout_p = chance(15) and random(9) / 10 or nil
  if chance(20) then options.alibi_slopes = heed.rand(c.hq) end
  if chance(20) then options.sinks = heed.randn(c.hq) end
  c.slopes, c.sinks = options.alibi_slopes and options.alibi_slopes:tolist(), options.sinks and options.sinks:tolist()
  local mask_name = "no mask"
  if chance(50) then options.attn_mask, c.visible, c.added, mask_name = random_mask(c.b, c.hq, c.L, S, c.keys,
    c.offset_of) end
  options.kv_lengths, options.is_causal, options.window, options.scale = c.lengths, c.is_causal, c.window, c.scale
  options.softcap, options.need_lse = c.softcap, chance(30)
  options.need_weights = chance(25)
  local names = {}
  for name, value in pairs(options) do
    if value then names[#names + 1] = name end
  end
  table.sort(names)
  configuration = ("b %d, hq %d, hkv %d, L %d, S %d, P %d, d %d, dv %d, %s, %s, dropout %s: %s"):format(c.b, c.hq,
    hkv, c.L, S, P, c.d,
    c.dv, dtype, mask_name, tostring(c.dropout_p), table.concat(names, ", "))
  local q_list, k_list, v_list = q:tolist(), k:float():tolist(), v:float():tolist()
  if P > 0 then
    options.past_key, options.past_value = laid_out(k:narrow(3, 1, P)), laid_out(v:narrow(3, 1, P))
    k, v = k:narrow(3, P + 1, S), v:narrow(3, P + 1, S)
  end
  local dropped
  if c.dropout_p then
    options.dropout_p, options.generator = c.dropout_p, heed.Generator(seed, one_of { "mt19937", "philox" })
    local unit = heed.eye(c.keys):expand(c.b, hkv, c.keys, c.keys)
    local again = {}
    for name, value in pairs(options) do again[name] = value end
    again.generator = options.generator:clone()
    if P > 0 then again.past_value, unit = unit:narrow(3, 1, P), unit:narrow(3, P + 1, S) end
    again.need_weights, again.need_lse = nil, nil
    if dtype ~= "float32" then unit = unit:to(dtype) again.past_value = P > 0 and again.past_value:to(dtype) or nil end
    dropped = heed.scaled_dot_product_attention(q, k, unit, again):tolist()
  end
  heed.set_num_threads(random(2))
  local out, taps = heed.scaled_dot_product_attention(laid_out(q), laid_out(k), laid_out(v), options)
  compare(c, q_list, k_list, v_list, out, taps, dropped)
end

--- A module with a cache of any dtype, in pieces, against its forward pass in one call without a cache.
local function cached()
  local heads, d = one_of { 1, 2, 4 }, one_of { 2, 4, 8, 16, 32 }
  local n, dtype = random(24), one_of { "float32", "bfloat16", "float16", "int8", "int4" }
  if dtype == "int4" then d = math.max(d, 4) end
  local options = { num_kv_heads = heads > 1 and chance(50) and heads / 2 or nil, rope = chance(50) and {} or nil,
    window = chance(30) and { left = random(8) } or nil, softcap = chance(20) and 20 or nil, sinks = chance(20),
      qk_norm = chance(20),
    alibi = chance(20) }
  if options.alibi then options.rope = nil end
  configuration = ("module: heads %d, d %d, n %d, cache %s"):format(heads, d, n, dtype)
  for name, value in pairs(options) do configuration = configuration .. ", " .. name .. " = " .. tostring(value) end
  local m = heed.nn.MultiHeadAttention(8, heads * d, 64, 0, heads, options):eval()
  local x = heed.randn(1, n, 8)
  local fine, cache = pcall(m.new_cache, m, { dtype = dtype })
  if not fine then return problem("%s", cache) end
  local whole, parts, at = m(x), {}, 1
  while at <= n do
    local take = math.min(n - at + 1, chance(50) and 1 or random(6))
    parts[#parts + 1] = m(x:narrow(2, at, take), { cache = cache })
    at = at + take
  end
  local pieces = heed.cat(parts, 2)
  local largest = whole:abs():max():item()
  local allowed = largest * (2 ^ -16 + 12 * ROUNDING[dtype]) + 2 ^ -18
  local gap = (whole - pieces):abs():max():item()
  if gap > allowed or gap ~= gap then problem("the pieces differ by %g; at most %g is allowed", gap, allowed) end
  local h, i = random(heads), random(n)
  local list = x[1]:tolist()
  local row = naive.row(m, list, list, list, h, i, i,
    function(j) return j > i or options.window ~= nil and j < i - options.window.left end, function() return 0 end)
  local _, taps = m(x, { need_weights = true })
  local weights = taps.weights[1][h][i]:tolist()
  for j = 1, n do
    if difference(weights[j], row.weight[j]) > 2 ^ -15 then
      problem("weight %d of query %d in head %d is %g; it must be %g", j, i, h, weights[j], row.weight[j])
      break
    end
  end
  local steps = m:steps(x, { ms = 0 })
  for _ in steps do end -- luacheck: ignore 542
  if not heed.equal(steps.result, whole) then problem "the slices give other bits" end
  local packed_lengths = lengths(n)
  local packed = m(x:squeeze(1), { lengths = packed_lengths })
  local first = 0
  for _, length in ipairs(packed_lengths) do
    if length > 0 then
      local alone = m(x:narrow(2, first + 1, length)):squeeze(1)
      local difference_of = (alone - packed:narrow(1, first + 1, length)):abs():max():item()
      if difference_of > largest * 2 ^ -16 + 2 ^ -18
        or difference_of ~= difference_of then problem("a packed sequence differs by %g",
        difference_of) end
    end
    first = first + length
  end
end

local done, begin = 0, os.time()
while done < count and os.time() - begin < seconds and problems < 20 do
  chances.seed(seed)
  heed.manual_seed(seed)
  local fine, message = pcall(chance(75) and functional or cached)
  if not fine then problem("%s", tostring(message)) end
  done, seed = done + 1, seed + 1
  if done % 50 == 0 then collectgarbage() end
end
print(("%d configurations of attention on %s, %d problems"):format(done, heed.info().kernels, problems))
os.exit(problems == 0 and 0 or 1, true)
