-- heed's rows of sequences.py, attention over several sequences: packed, as a batch, behind masks; windows; one query
-- for each; parts of the keys.
local heed = require "heed"
local rows = dofile((arg[0]:match "^.*[/\\]" or "") .. "lua_rows.lua")

local H, D = 8, 64
local attention, random = heed.scaled_dot_product_attention, rows.random

local function heads(x) return x:transpose(1, 2):unsqueeze(1) end -- [tokens, h, d] → [1, h, tokens, d]
local function tokens(x) return x[1]:transpose(1, 2) end

--- `count` sequences of n tokens, with h heads of d. Results are compared as [tokens, h, d].
local function documents(name, count, n, h, d, causal, with_masks)
  local all, lengths = count * n, {}
  for i = 1, count do lengths[i] = n end
  local q, k, v
  local function masked(mask)
    local function run() return attention(heads(q), heads(k), heads(v), { attn_mask = mask, is_causal = causal }) end
    return run, tokens
  end
  local flops = 4.0 * count * h * n * n * d * (causal and 0.5 or 1)
  local list = {
    { "lengths", flops, function()
      q, k, v = random(3, all, h, d)
      return function() return heed.varlen_attention(q, k, v, { lengths = lengths, is_causal = causal }) end
    end },
    { "a batch", flops, function()
      local function batch(x) return x:view(count, n, h, d):transpose(2, 3) end
      local bq, bk, bv = batch(q), batch(k), batch(v)
      return function() return attention(bq, bk, bv, { is_causal = causal }) end,
        function(y) return y:transpose(2, 3):reshape(all, h, d) end
    end },
  }
  if with_masks then
    list[3] = { "mask.documents", flops, function() return masked(heed.mask.documents(lengths)) end }
    list[4] = { "boolean mask", flops, function()
      local document = (heed.arange(all) / n):floor()
      return masked(document:unsqueeze(2):eq(document:unsqueeze(1)))
    end }
  end
  rows.group(name, list)
end

documents("32 documents of 128, causal", 32, 128, H, D, true, true)
documents("16 documents of 256, causal", 16, 256, H, D, true, true)
documents("256 sequences of 16, 4 heads", 256, 16, 4, 64, false)
documents("1024 sequences of 8, 8 heads of 32", 1024, 8, 8, 32, false)

do
  local n, window = 8192, 128
  local visible = window * n - window * (window - 1) / 2
  local q, k, v
  rows.group("window of 128, 8192 tokens", {
    { "window", 4.0 * H * D * visible, function()
      q, k, v = random(3, 1, H, n, D)
      return function() return attention(q, k, v, { is_causal = true, window = { left = window - 1 } }) end
    end },
    { "mask.window", 4.0 * H * D * visible, function()
      local mask = heed.mask.window(window - 1, 0)
      return function() return attention(q, k, v, { attn_mask = mask }) end
    end },
    { "the full triangle", 2.0 * H * D * n * n, function()
      return function() return attention(q, k, v, { is_causal = true }) end, false
    end },
  })
end

do -- 8 items of 512, 1024, …, 4096 keys
  local lengths, most, total = {}, 4096, 0
  for i = 1, 8 do
    lengths[i] = 512 * i
    total = total + lengths[i]
  end
  local flops = 4.0 * H * D * total
  local q, k, v
  rows.group("one query for each of 8 items, 512 to 4096 keys", {
    { "kv_lengths", flops, function()
      q = heed.randn(8, H, 1, D)
      k, v = random(2, 8, H, most, D)
      return function() return attention(q, k, v, { kv_lengths = lengths }) end
    end },
    { "as many keys, all of one length", flops, function()
      local ek, ev = random(2, 8, H, total / 8, D)
      return function() return attention(q, ek, ev) end, false
    end },
  })
end

do
  local n = 2048
  local flops = 4.0 * H * D * n * n
  local q, k, v
  local function half(x, i) return x:narrow(3, 1 + i * n / 2, n / 2) end
  rows.group("parts of the keys, 2048 tokens", {
    { "whole", flops, function()
      q, k, v = random(3, 1, H, n, D)
      return function() return attention(q, k, v) end
    end },
    { "need_lse", flops, function()
      return function() return (attention(q, k, v, { need_lse = true })) end
    end },
    { "attention_partial", flops, function()
      return function() return (heed.attention_partial(q, k, v)) end
    end },
    { "two halves, merged", flops, function()
      return function()
        local outs, stats = {}, {}
        for i = 0, 1 do outs[i + 1], stats[i + 1] = heed.attention_partial(q, half(k, i), half(v, i)) end
        return (heed.attention_merge(outs, stats))
      end
    end },
  })
end

rows.answer()
