-- heed's side of sequences.py: answers each line of standard input.
--   rows TEXT   a line "group <tab> row <tab> flops" for each row of the groups whose names contain TEXT, with a
--               reason instead of the number if this build cannot compute it; then "."
--   time ROW    the processor time of one call, in seconds
-- A row is compared with the first of its group before it is timed, if both have results of one shape.
local heed = require "heed"
heed.set_num_threads(1)
heed.manual_seed(1)

local H, D = 8, 64
local attention = heed.scaled_dot_product_attention
local groups, rows = {}, {} -- in order; rows[name]: its function

-- ROW: { name, flops, make }; make() returns the function that is timed, or nil and the reason why there is none. Its
-- result, [tokens, heads, d] or nil, is that of the group's other rows.
local function group(name, list)
  groups[#groups + 1] = { name = name, list = list }
end

local function has(name)
  if pcall(function() return heed[name] end) then return true end
  return nil, ("heed.%s does not exist"):format(name)
end

local function heads(x) return x:transpose(1, 2):unsqueeze(1) end -- [tokens, h, d] → [1, h, tokens, d]
local function tokens(x) return x[1]:transpose(1, 2) end

--- Attention over `count` sequences of n tokens, of h heads of d: as a batch, by lengths, by masks.
local function documents(name, count, n, h, d, causal, with_masks)
  local all = count * n
  local q, k, v = heed.randn(all, h, d), heed.randn(all, h, d), heed.randn(all, h, d)
  local lengths = {}
  for i = 1, count do lengths[i] = n end
  local flops = 4.0 * count * h * n * n * d * (causal and 0.5 or 1)
  local list = {
    { "batch", flops, function()
      local function batch(x) return x:view(count, n, h, d):transpose(2, 3) end
      local bq, bk, bv = batch(q), batch(k), batch(v)
      return function() return attention(bq, bk, bv, { is_causal = causal }) end,
        function(y) return y:transpose(2, 3):reshape(all, h, d) end
    end },
    { "lengths", flops, function()
      local found, reason = has "varlen_attention"
      if not found then return nil, reason end
      return function() return heed.varlen_attention(q, k, v, { lengths = lengths, is_causal = causal }) end
    end },
  }
  if with_masks then
    list[#list + 1] = { "mask of documents", flops, function()
      local found, reason = has "mask"
      if not found then return nil, reason end
      local mask = heed.mask.documents(lengths)
      local function run() return attention(heads(q), heads(k), heads(v), { attn_mask = mask, is_causal = causal }) end
      return run, tokens
    end }
    list[#list + 1] = { "dense mask", flops, function()
      local document = (heed.arange(all) / n):floor()
      local mask = document:unsqueeze(2):eq(document:unsqueeze(1))
      local function run() return attention(heads(q), heads(k), heads(v), { attn_mask = mask, is_causal = causal }) end
      return run, tokens
    end }
  end
  group(name, list)
end

documents("32 documents of 128, causal", 32, 128, H, D, true, true)
documents("16 documents of 256, causal", 16, 256, H, D, true, true)
documents("256 sequences of 16, 4 heads", 256, 16, 4, 64, false)
documents("1024 sequences of 8, 8 heads of 32", 1024, 8, 8, 32, false)

do -- useful work alone counts
  local n, window = 8192, 128
  local q, k, v = heed.randn(1, H, n, D), heed.randn(1, H, n, D), heed.randn(1, H, n, D)
  local pairs_seen = window * n - window * (window - 1) / 2
  group("window, 8192 tokens", {
    { "window of 128", 4.0 * H * D * pairs_seen, function()
      return function() return attention(q, k, v, { is_causal = true, window = { left = window - 1 } }) end
    end },
    { "the full triangle", 2.0 * H * D * n * n, function()
      return function() return attention(q, k, v, { is_causal = true }) end, false
    end },
  })
end

do -- 8 items of different lengths, one query each; 8 · 2304 keys in all
  local lengths, most, total = {}, 4096, 0
  for i = 1, 8 do
    lengths[i] = 512 * i
    total = total + lengths[i]
  end
  local q, k, v = heed.randn(8, H, 1, D), heed.randn(8, H, most, D), heed.randn(8, H, most, D)
  local flops = 4.0 * H * D * total
  group("decode, 8 items of 512 to 4096 keys", {
    { "item by item", flops, function()
      return function()
        local parts = {}
        for i = 1, 8 do
          local at = { { i, i }, {}, { 1, lengths[i] } }
          parts[i] = attention(q[{ { i, i } }], k[at], v[at])
        end
        return heed.cat(parts)
      end
    end },
    { "kv_lengths", flops, function()
      return function() return attention(q, k, v, { kv_lengths = lengths }) end
    end },
    { "the same keys, all of one length", flops, function()
      local even = total / 8
      local ek, ev = k[{ {}, {}, { 1, even } }]:contiguous(), v[{ {}, {}, { 1, even } }]:contiguous()
      return function() return attention(q, ek, ev) end, false
    end },
  })
end

do -- one part has the keys up to the middle
  local n = 2048
  local q, k, v = heed.randn(1, H, n, D), heed.randn(1, H, n, D), heed.randn(1, H, n, D)
  local flops = 4.0 * H * D * n * n
  local function part(x, i) return x:narrow(3, 1 + i * n / 2, n / 2) end
  group("parts of the keys, 2048 tokens", {
    { "whole", flops, function() return function() return attention(q, k, v) end end },
    { "whole, with statistics", flops, function()
      return function() return (heed.attention_partial(q, k, v)) end
    end },
    { "whole, with need_lse", flops, function()
      return function() return (attention(q, k, v, { need_lse = true })) end
    end },
    { "two parts, merged", flops, function()
      return function()
        local outs, stats = {}, {}
        for i = 0, 1 do outs[i + 1], stats[i + 1] = heed.attention_partial(q, part(k, i), part(v, i)) end
        return (heed.attention_merge(outs, stats))
      end
    end },
  })
end

do -- a conversation of 4096 tokens that goes on after a restart
  local mha = heed.nn.MultiHeadAttention(512, 512, 4608, 0.0, 8):eval()
  local x, path = heed.randn(1, 4096, 512), os.tmpname()
  local next_token = heed.randn(1, 1, 512)
  group("cache of 4096 tokens, 8 heads of 64", {
    { "prefill and a token", 0, function()
      return function()
        local cache = mha:new_cache { capacity = 4608 }
        mha(x, { cache = cache })
        local y = mha(next_token, { cache = cache })
        cache:release()
        return y
      end
    end },
    { "load and a token", 0, function()
      local cache = mha:new_cache { capacity = 4608 }
      local there = pcall(function() return assert(cache.save and mha.load_cache) end)
      if not there then return nil, "caches have no save" end
      mha(x, { cache = cache })
      cache:save(path)
      return function()
        local loaded = mha:load_cache(path)
        local y = mha(next_token, { cache = loaded })
        loaded:release()
        return y
      end
    end },
  })
end

-- ---- Answers ------------------------------------------------------------------------------------

local function check(name, wanted, got)
  local apart = (wanted - got):abs():amax():item()
  if apart ~= apart or apart >= 1e-4 then
    error(("%s differs by %g from the first row of its group"):format(name, apart))
  end
end

print "ready"
io.stdout:flush()
for line in io.lines() do
  local command, rest = line:match "^(%a+) ?(.*)$"
  if command == "rows" then
    for _, g in ipairs(groups) do
      local first
      for i, row in ipairs(g.name:find(rest, 1, true) and g.list or {}) do
        local name = g.name .. ": " .. row[1]
        local run, more = row[3]()
        if run then
          local y = run()
          if more then y = more(y) end
          if i == 1 then first = y elseif more ~= false then check(name, first, y) end
          rows[name] = run
          print(("%s\t%s\t%.9g"):format(g.name, row[1], row[2]))
        else
          print(("%s\t%s\t%s"):format(g.name, row[1], more))
        end
      end
    end
    print "."
  elseif command == "time" then
    collectgarbage()
    local start = os.clock()
    rows[rest]()
    print(("%.9g"):format(os.clock() - start))
  else
    error("unknown command: " .. line)
  end
  io.stdout:flush()
end
