-- For specs: modules and inputs for the cases of tests/golden/mha.lua. Weights and inputs are drawn in the same order
-- as in scripts/dev/make_mha_values.py.
local heed = require "heed"

local cases = {}

local function draw(bound, ...) return heed.rand(...) * (2 * bound) - bound end

-- The module, its input and the options of its forward pass.
function cases.build(case)
  local c = case.config
  heed.manual_seed(case.seed)
  local m = heed.nn.MultiHeadAttention(c)
  if c.sinks then m.sinks:copy_(draw(1, c.num_heads)) end
  if c.qk_norm then
    m.q_norm.weight:copy_(draw(1, m.head_dim))
    m.k_norm.weight:copy_(draw(1, m.head_dim))
  end
  local x, options = draw(2, case.b, case.n, c.d_in), {}
  if case.s then options.key = draw(2, case.b, case.s, m.kdim) end
  if c.vdim then options.value = draw(2, case.b, case.s, c.vdim) end
  if case.float_mask then options.attn_mask = draw(2, table.unpack(case.float_mask)) end
  if case.kv_lengths then options.kv_lengths = heed.tensor(case.kv_lengths, { dtype = "int64" }) end
  if case.padding then
    local rows = {}
    for i, count in ipairs(case.padding) do
      rows[i] = {}
      for j = 1, case.s or case.n do rows[i][j] = j > (case.s or case.n) - count end
    end
    options.key_padding_mask = heed.tensor(rows)
  end
  return m, x, options
end

-- The outputs for x, passed through a cache in chunks of these sizes, and the length of the cache after each chunk.
function cases.through(m, x, cache, chunks, options)
  local rows, at, lengths = {}, 0, {}
  for i, size in ipairs(chunks) do
    local all = {}
    for name, value in pairs(options or {}) do all[name] = value end
    all.cache = cache
    if all.attn_mask then all.attn_mask = all.attn_mask[{ { at + 1, at + size }, { 1, at + size } }] end
    rows[i] = m(x[{ {}, { at + 1, at + size } }], all)
    at = at + size
    lengths[i] = cache.length
  end
  return heed.cat(rows, 2), lengths
end

return cases
