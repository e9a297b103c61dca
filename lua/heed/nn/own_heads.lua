--- The forward pass of a MultiHeadAttentionWrapper whose heads have listeners: each head is called from Lua, as
--- src/nn/attention/multi_head_attention_wrapper.c does in C. Shapes: b batch, h heads, n queries, s keys.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local forward_options = require "heed.nn.forward_options"
local primitives = core.modules

local TAPS = { "scores", "weights", "dropped_weights", "queries", "keys", "values", "lse" }

--- The part for head i of a mask that broadcasts to [b, h, n, s].
local function mask_of(mask, i, h)
  if primitives.is_mask(mask) then return primitives.mask_of_head(mask, i, h) end
  if mask == nil or mask.ndim < 3 then return mask end
  local size = mask:size(-3)
  if size ~= 1 and size ~= h then
    E.fail("MultiHeadAttentionWrapper: attn_mask is %s; its third to last size must be %s%d, the number of heads",
      tostring(mask.shape):match "%[.*%]", h == 1 and "" or "1 or ", h)
  end
  return mask:select(-3, size == 1 and 1 or i)
end

--- need_weights for each head, and, if it chooses heads, their positions in the result by number.
local function choose(need_weights, h)
  if type(need_weights) ~= "table" then return need_weights end
  local of_head, positions = { queries = need_weights.queries }, nil
  for i, name in ipairs(need_weights) do of_head[i] = name end
  for _, name in ipairs(need_weights) do
    if name == "dropped_weights" then of_head[#of_head + 1] = "weights" end
  end
  if need_weights.heads then positions = {} end
  for i, head in ipairs(need_weights.heads or {}) do positions[head < 0 and head + h + 1 or head] = i end
  return of_head, positions
end

--- The taps of the heads, stacked; the weights stand in for the dropped ones of a head without dropout.
local function stack(infos, need_weights)
  local wanted, result = {}, {}
  for _, name in ipairs(type(need_weights) == "table" and need_weights or {}) do wanted[name] = true end
  local all = next(wanted) == nil
  for _, name in ipairs(TAPS) do
    local found, list = false, {}
    for i, info in ipairs(infos) do
      found = found or info[name] ~= nil
      list[i] = info[name] or name == "dropped_weights" and info.weights or nil
    end
    if found and (all or wanted[name] or name == "lse") then
      result[name] = core.stack(list, name == "lse" and -2 or -3)
    end
  end
  return result
end

--- f(...), after whose errors the generator has its earlier state, as after those of the wrapper in C.
local function run_or_undo(generator, f, ...)
  if not compat.yields_in_pcall() then return f(...) end
  local before = core.Generator()
  primitives.copy_generator(generator, before)
  local result = compat.pack(pcall(f, ...))
  if result[1] then return compat.unpack(result, 2, result.n) end
  primitives.copy_generator(before, generator)
  error(result[2], 0)
end

--- The outputs of the heads, and their results by position.
local function run(heads, x, options, need, positions)
  local ys, infos = {}, {}
  for i, head in ipairs(heads) do
    local own = {}
    for name, value in pairs(options) do own[name] = value end
    own.attn_mask = mask_of(options.attn_mask, i, #heads)
    own.need_weights, own.need_lse = nil, nil
    local at = not positions and i or positions[i]
    if at then own.need_weights, own.need_lse = need, options.need_lse end
    local y, info = head(x, own)
    ys[i] = y
    if at then infos[at] = info end
  end
  return ys, infos
end

local own_heads = { mask_of = mask_of }

function own_heads.forward(m, ...)
  if not primitives.holds_watched(m.heads) then return primitives.forward(m, ...) end
  local given = { primitives.read_forward(m, ...) } -- copies, which no listener can release
  local x, options = given[1], forward_options(given)
  local heads = {}
  for i, head in m.heads:iter() do heads[i] = head end
  local need, positions = choose(options.need_weights, #heads)
  local ys, infos = run_or_undo(options.generator, run, heads, x, options, need, positions)
  local y = core.cat(ys, -1)
  if not options.need_weights and not options.need_lse then return y end
  return y, stack(infos, options.need_weights)
end

return own_heads
