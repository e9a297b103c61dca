--- Attention weights packed for a page: all of them as 16 bits, or the strongest of each row as bytes.
--
-- The heads follow each other, layer by layer; each has its rows (queries) in order.
--   dense   every weight as 16 bits, low byte first: round(65534 * weight / scale), or 65535 for a weight of 0, which
--           is a hidden place
--   sparse  a row is: a count; the sum of the weights left out as round(255 * rest / scale); then, by rising key, the
--           distance to the key before less 1, and round(255 * sqrt(weight / scale)). Distances of 255 and more are
--           bytes of 255 and a last one below.
--   masks   of sparse heads, each distinct one once: its rows as lengths of runs of visible and hidden keys in turn,
--           coded as distances are. A head names its mask from 1, or 0 if nothing is hidden.

local core = require "heed.core"
local E = require "heed.nn.entries"

local M = {}

local DENSE_MOST, HIDDEN = 65534, 65535

-- ---- Base64 -------------------------------------------------------------------------------------

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local PAIRS -- of digits, by 12 bits

local function pairs_of_digits()
  PAIRS = {}
  for i = 0, 4095 do
    local a, b = math.floor(i / 64) + 1, i % 64 + 1
    PAIRS[i] = DIGITS:sub(a, a) .. DIGITS:sub(b, b)
  end
end

--- A string in base64.
function M.base64(bytes)
  if not PAIRS then pairs_of_digits() end
  local parts, lines, n, byte, digits = {}, {}, 0, string.byte, PAIRS
  local whole = #bytes - #bytes % 3
  for at = 1, whole, 3 do
    local a, b, c = byte(bytes, at, at + 2)
    local low = b % 16
    parts[n + 1], parts[n + 2] = digits[a * 16 + (b - low) / 16], digits[low * 256 + c]
    n = n + 2
    if n == 8192 then
      E.check_cancel "attention"
      lines[#lines + 1], n = table.concat(parts), 0
    end
  end
  lines[#lines + 1] = table.concat(parts, "", 1, n)
  local a, b = bytes:byte(whole + 1, whole + 2)
  if a then
    local first = PAIRS[a * 16 + ((b or 0) - (b or 0) % 16) / 16]
    lines[#lines + 1] = b and first .. PAIRS[b % 16 * 256]:sub(1, 1) .. "=" or first .. "=="
  end
  return table.concat(lines)
end

-- ---- Dense --------------------------------------------------------------------------------------

local function pack_dense(layers, scale)
  local codes, parts = {}, {} -- codes: two bytes by number, made when first needed
  for _, layer in ipairs(layers) do
    for h = 1, layer.shape[1] do
      local w = layer:select(1, h)
      local levels = (w / scale * DENSE_MOST + 0.5):floor():clamp(0, DENSE_MOST):masked_fill(w:eq(0), HIDDEN)
      for _, row in ipairs(levels:tolist()) do
        E.check_cancel "attention"
        for k, level in ipairs(row) do
          local code = codes[level]
          if not code then
            local low = math.floor(level % 256)
            code = string.char(low, math.floor((level - low) / 256))
            codes[level] = code
          end
          row[k] = code
        end
        parts[#parts + 1] = table.concat(row)
      end
    end
  end
  return table.concat(parts)
end

-- ---- Sparse -------------------------------------------------------------------------------------

local BYTES = {}
for i = 0, 255 do BYTES[i] = string.char(i) end

local function distance(parts, n, d)
  while d >= 255 do
    n = n + 1
    parts[n], d = BYTES[255], d - 255
  end
  parts[n + 1] = BYTES[d]
  return n + 1
end

local function pack_mask(hidden) -- bool [l, s]
  local parts, n = {}, 0
  for _, row in ipairs(hidden:tolist()) do
    E.check_cancel "attention"
    local from, state = 1, false
    for k = 1, #row do
      if row[k] ~= state then
        n = distance(parts, n, k - from)
        from, state = k, row[k]
      end
    end
    n = distance(parts, n, #row + 1 - from)
  end
  return table.concat(parts)
end

-- The masks of all heads: packed, and the number of each head's. nil if they take more than `most` bytes.
local function pack_masks(layers, most)
  local known, packed, indices, bytes = {}, {}, {}, 0
  for _, layer in ipairs(layers) do
    for h = 1, layer.shape[1] do
      E.check_cancel "attention"
      local hidden, index = layer:select(1, h):eq(0), 0
      if hidden:any():item() then
        for i = #known, 1, -1 do
          if known[i]:equal(hidden) then index = i end
        end
        if index == 0 then
          index = #known + 1
          known[index], packed[index] = hidden, pack_mask(hidden)
          bytes = bytes + #packed[index]
          if bytes > most then return nil end
        end
      end
      indices[#indices + 1] = index
    end
  end
  return table.concat(packed), indices
end

local FLOOR = (0.5 / 255) ^ 2 -- smaller weights round to level 0

-- How many weights a row may keep so that all rows take at most `budget` bytes, and the strongest weights of each
-- layer with their keys. `top` is that number if the caller gives it.
local function choose(layers, scale, rows, keys, budget, top)
  local row_bytes = 2 + math.floor(keys / 255)
  local share = math.floor((budget / rows - row_bytes) / 2)
  local most = math.min(keys, 255, top or math.min(64, math.max(1, 4 * share)))
  local counts, strongest = core.zeros(most), {}
  for i, layer in ipairs(layers) do
    E.check_cancel "attention"
    local values, indices = layer:topk(most, -1)
    strongest[i] = { values = values / scale, indices = indices }
    counts = counts + strongest[i].values:ge(FLOOR):sum({ 1, 2 })
  end
  local bytes, kept = rows * row_bytes, 0
  for _, count in ipairs(counts:tolist()) do
    bytes = bytes + 2 * count
    if bytes > budget and not top then break end
    kept = kept + 1
  end
  return kept, strongest
end

local function pack_sparse(layers, scale, kept, strongest)
  local heads, sum, sum_kept = {}, 0, 0
  for i, layer in ipairs(layers) do
    local values, indices = strongest[i].values:narrow(-1, 1, kept), strongest[i].indices:narrow(-1, 1, kept)
    strongest[i] = nil
    local totals = layer:sum(-1) / scale
    local used = (values * values:ge(FLOOR)):sum(-1)
    sum, sum_kept = sum + totals:sum():item(), sum_kept + used:sum():item()
    local rests = ((totals - used) * 255 + 0.5):floor():clamp(0, 255)
    local order
    indices, order = indices:sort(-1)
    local levels = (values:gather(-1, order):sqrt() * 255 + 0.5):floor():clamp(0, 255)
    for h = 1, layer.shape[1] do
      local keys_of, levels_of = indices:select(1, h):tolist(), levels:select(1, h):tolist()
      local rests_of, parts, n = rests:select(1, h):tolist(), {}, 0
      for q, row in ipairs(levels_of) do
        if q % 16 == 0 then E.check_cancel "attention" end
        local keys, head, count, last = keys_of[q], n + 1, 0, 0
        parts[head], parts[head + 1] = "", BYTES[rests_of[q]]
        n = n + 2
        for j, level in ipairs(row) do
          if level > 0 then
            n = distance(parts, n, keys[j] - last - 1) + 1
            parts[n], last, count = BYTES[level], keys[j], count + 1
          end
        end
        parts[head] = BYTES[count]
      end
      heads[#heads + 1] = table.concat(parts)
    end
  end
  return table.concat(heads), sum > 0 and sum_kept / sum or 1
end

-- ---- Both ---------------------------------------------------------------------------------------

local function largest_total(layers)
  local most = 1
  for _, layer in ipairs(layers) do most = math.max(most, layer:sum(-1):amax():item()) end
  return most <= 1.001 and 1 or most -- dropout in training scales weights up
end

--- Packs the weights, a list of tensors [heads, l, s] with one l and s. options: `bytes`, what the page may take for
--- them in base64; `full`; `top`, the number of weights of a row. Returns a table: form, bytes, scale; of sparse ones
--- also kept (at most, of a row), share (of all weight), masks (packed) and mask_of (by head), both nil if the masks
--- are too many to be stored.
function M.pack(layers, options)
  local heads, queries, keys = 0, layers[1].shape[2], layers[1].shape[3]
  for _, layer in ipairs(layers) do heads = heads + layer.shape[1] end
  local budget, scale = math.floor(options.bytes * 3 / 4), largest_total(layers)
  if options.full or not options.top and heads * queries * keys * 2 <= budget then
    return { form = "dense", bytes = pack_dense(layers, scale), scale = scale }
  end
  local masks, mask_of = pack_masks(layers, budget / 4)
  local rows = heads * queries
  local kept, strongest = choose(layers, scale, rows, keys, budget - #(masks or ""), options.top)
  if kept < 1 then
    E.fail("attention: weights have %s; a page of 2 MB has no room for them: give fewer layers, or top = 4 or "
      .. "full = true, which make a larger page", E.count(rows, "row"))
  end
  local bytes, share = pack_sparse(layers, scale, kept, strongest)
  return { form = "sparse", bytes = bytes, scale = scale, kept = kept, share = share, masks = masks,
    mask_of = mask_of }
end

return M
