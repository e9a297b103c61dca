--- m:explain(x, {batch =, head =, query =, key =}): how an attention weight came about. heed.nn.operands gives query,
--- keys and values; everything after that is computed here, in double precision. Shapes: b batch, h heads, n queries,
--- s keys, d head_dim.

local compat = require "heed.compat"
local core = require "heed.core"
local dense_mask = require "heed.nn.dense_mask"
local E = require "heed.nn.entries"
local operands = require "heed.nn.operands"
local primitives = core.modules

local explain = {}

local function tanh(x) return 1 - 2 / (math.exp(2 * x) + 1) end

local HEADS = { SelfAttention = false, CausalAttention = false, MultiHeadAttentionWrapper = true,
  MultiHeadAttention = true }
local OWN = { batch = true, head = true, query = true, key = true, key_position = true }

--- Copies the options: Lua may run between two reads of a caller's table. Returns positions, options of the forward.
local function split_options(options, method)
  local at, forward = {}, {}
  if options == nil then return at, forward end
  if not E.is_list(options) then E.reject(method, "options", options, "a table of options") end
  for name, value in compat.pairs(options) do
    if OWN[name] and (name ~= "key" or type(value) == "number") then
      at[name == "key_position" and "key" or name] = value
    else
      forward[name] = value
    end
  end
  return at, forward
end

local function position(value, count, default, name)
  if value == nil then return default end
  if type(value) ~= "number" or value % 1 ~= 0 or value == 0 or value < -count or value > count then
    E.reject("explain", name, value, "an integer from 1 to %d, or from -%d to -1", count, count)
  end
  return math.floor(value < 0 and value + count + 1 or value)
end

--- The element of a mask that broadcasts to [b, h, n, s], at those positions from 1; nil if it has fewer keys.
local function masked_at(mask, headed, b, h, i, j)
  local index, at = {}, headed and { j, i, h, b } or { j, i, b }
  for dim = mask.ndim, 1, -1 do
    local size, want = mask.shape[dim], at[mask.ndim - dim + 1]
    if size == 1 then want = 1 elseif want > size then return nil end
    index[dim] = want
  end
  if mask.list == nil then
    if mask.ndim == 0 then return mask.tensor:item() end
    return mask.tensor[index]
  end
  local value = mask.list
  for dim = 1, mask.ndim do value = value[index[dim]] end
  return value
end

--- Reads the masks as nested lists, for many calls of record_of.
local function read_masks(rules)
  for _, name in ipairs { "attn_mask", "padding" } do
    local mask = rules[name]
    if mask then mask.list = mask.tensor:tolist() end
  end
end

local function mask_of(tensor)
  return tensor ~= nil and { tensor = tensor, shape = tensor.shape, ndim = tensor.ndim }
end

local function lengths_of(lengths)
  if lengths == nil then return nil end
  local list = E.is_list(lengths) and lengths or lengths:tolist()
  return type(list) == "number" and { list } or list
end

--- The settings of the pass that decide about a score.
local function rules_of(self, unit, forward, head, past, first)
  local class = E.class_name(self)
  local multi = class == "MultiHeadAttention"
  local window = multi and unit.window or {}
  return {
    causal = class ~= "SelfAttention" and (not multi or unit.causal), scale = unit.scale, headed = HEADS[class],
    softcap = multi and unit.softcap or nil, left = window.left, right = window.right, head = head, past = past,
    first = first, -- the number of keys that a cache with a window no longer has
    slope = multi and unit.alibi and require("heed").alibi_slopes(unit.num_heads):tolist()[head] or nil,
    sink = multi and unit.sinks and unit.sinks:tolist()[head] or nil,
    attn_mask = mask_of(forward.attn_mask), padding = mask_of(forward.key_padding_mask),
    lengths = lengths_of(forward.kv_lengths),
    cross = forward.key ~= nil,
  }
end

--- The record of query i and key j (from 1, counted with the past) of batch item b, without what softmax adds.
local function record_of(r, dot, b, i, j, queries)
  local hidden, length, kept = {}, r.lengths and (r.lengths[b] or r.lengths[1]), j - r.first
  local at = i + r.past + (r.cross and length and length - queries or 0)
  local record = { batch = b, head = r.head, query = i, key = j, dot = dot, hidden_by = hidden }
  record.scaled = dot * r.scale
  record.capped = r.softcap and r.softcap * tanh(record.scaled / r.softcap) or record.scaled
  local biased = record.capped
  if r.causal and j > at then hidden[#hidden + 1] = "causal" end
  if r.left and j < at - r.left or not r.causal and r.right and j > at + r.right then hidden[#hidden + 1] = "window" end
  if r.attn_mask then
    local last = r.attn_mask.ndim == 0 and 1 or r.attn_mask.shape[r.attn_mask.ndim]
    local column = r.first > 0 and last ~= 1 and last <= r.kept and kept or j
    local value = masked_at(r.attn_mask, r.headed, b, r.head, i, column)
    if value == nil or value == false or value == -math.huge then hidden[#hidden + 1] = "attn_mask" end
    if type(value) == "number" then
      record.mask_bias = value
      biased = biased + value
    end
  end
  if r.padding and masked_at(r.padding, false, nil, nil, b, r.first > 0 and kept or j) then
    hidden[#hidden + 1] = "key_padding_mask"
  end
  if length and j > length then hidden[#hidden + 1] = "kv_lengths" end
  if r.slope then
    record.alibi = -r.slope * math.abs(at - j)
    biased = biased + record.alibi
  end
  record.biased, record.sink = biased, r.sink
  return record
end

--- Adds row_max, row_sum and weight to the records of all scores that one softmax weighs.
local function weigh(records, sink)
  local most, sum, seen = -math.huge, 0, false
  for _, each in ipairs(records) do
    if #each.hidden_by == 0 then
      seen = true
      if each.biased > most or each.biased ~= each.biased then most = each.biased end
    end
  end
  if seen and sink and sink > most then most = sink end
  seen = seen and most ~= -math.huge
  for _, each in ipairs(records) do
    if seen and #each.hidden_by == 0 then sum = sum + math.exp(each.biased - most) end
  end
  if seen and sink then sum = sum + math.exp(sink - most) end
  for _, each in ipairs(records) do
    each.row_max, each.row_sum = most, sum
    each.weight = seen and #each.hidden_by == 0 and math.exp(each.biased - most) / sum or 0
  end
  return most, sum
end

local LINES = { "dot", "scaled", "capped", "mask_bias", "alibi", "biased", "sink", "row_max", "row_sum", "weight",
  "dropped_weight" }
local SAYS = { dot = "q · k", scaled = "· scale", capped = "softcap", mask_bias = "attn_mask adds", alibi = "alibi",
  biased = "score", sink = "sink of the head", row_max = "largest score of the row",
  row_sum = "Σ exp(score - largest)", weight = "weight",
  dropped_weight = "after dropout" }

local Record = {}
function Record.__tostring(record)
  local lines = { ("batch %d, head %d, query %d, key %d"):format(record.batch, record.head, record.query, record.key) }
  for _, name in ipairs(LINES) do
    local value = record[name]
    local same = name == "capped" and value == record.scaled -- no softcap
    if value ~= nil and not same then lines[#lines + 1] = ("  %-26s %12.6g"):format(SAYS[name], value) end
  end
  local hidden = #record.hidden_by > 0 and table.concat(record.hidden_by, ", ") or "no rule"
  lines[#lines + 1] = "  hidden by " .. hidden
  return table.concat(lines, "\n")
end

local SHOWN = 10 -- keys of a row in its text

local Row = {}
function Row.__tostring(row)
  local lines = { ("batch %d, head %d, query %d: largest score %.6g, Σ exp(score - largest) %.6g"):format(row.batch,
    row.head, row.query, row.row_max, row.row_sum), "     key       weight        score" }
  for i, each in ipairs(row.keys) do
    if i > SHOWN then
      lines[#lines + 1] = ("  … %s"):format(E.count(#row.keys - SHOWN, "more key"))
      break
    end
    local hidden = #each.hidden_by > 0 and "  hidden by " .. table.concat(each.hidden_by, ", ") or ""
    lines[#lines + 1] = ("  %6d %12.6g %12.6g%s"):format(each.key, each.weight, each.biased, hidden)
  end
  return table.concat(lines, "\n")
end

--- The batch items and queries whose scores one softmax weighs together with those of item b, query i.
local function softmax_line(unit, class, batched, b, i, batches, queries)
  local dim = class == "CausalAttention" and unit.softmax_dim or -1
  local ndim = batched and 3 or 2
  if dim > 0 then dim = dim - ndim - 1 end
  local line = {}
  if dim == -2 then
    for each = 1, queries do line[each] = { b, each } end
  elseif dim == -3 then
    for each = 1, batches do line[each] = { each, i } end
  else
    return nil
  end
  return line
end

--- The record or row at a position, from the operands of its head. A frame of its own: it calls no part that could
--- yield.
local derive = core.frame(function(self, unit, x, forward, at, own, past)
  local class = E.class_name(self)
  local wrapper = class == "MultiHeadAttentionWrapper"
  local kept = own.keys.shape[1]
  if forward.cache then -- its items may differ: the keys of shorter ones end with zeros
    local window = class == "MultiHeadAttention" and unit.window or {}
    local left = window.left and window.left < unit.context_length and window.left or past
    kept = math.min(kept, math.min(past, left) + x.shape[x.ndim - 1])
    own.keys, own.values = own.keys:narrow(1, 1, kept), own.values:narrow(1, 1, kept)
  end
  local first = forward.cache and past + x.shape[x.ndim - 1] - kept or 0
  local r = rules_of(self, unit, forward, at.head, past, first)
  r.kept = kept
  local b, i, queries = at.batch, at.query, own.queries
  local j = at.key ~= nil and position(at.key, first + kept, nil, "key") or nil
  if j and j <= first then
    E.fail("explain: key is %d; it must be from %d to %d: the cache of a module with a window keeps no others", j,
      first + 1, first + kept)
  end

  local dropped, values = own.dropped, own.values
  local function complete(record)
    local of = record.key - first
    record.dropped_weight = dropped and dropped[of] or nil
    local weight = record.dropped_weight or record.weight
    local value = values:select(1, of)
    record.contribution = #record.hidden_by > 0 and value:zeros_like() or value * weight
    return setmetatable(record, Record)
  end

  local dots, records = own.keys:matmul(own.query):tolist(), {}
  for of = 1, kept do
    if of % 256 == 0 then E.check_cancel("explain") end
    records[of] = record_of(r, dots[of], b, i, first + of, queries)
  end
  local most, sum
  local line = softmax_line(unit, wrapper and "CausalAttention" or class, x.ndim == 3, b, i, own.batches, queries)
  if line then
    for of, record in ipairs(records) do
      if j == nil or first + of == j then
        local cells, all = {}, own.scores_of(of)
        for c, cell in ipairs(line) do
          E.check_cancel("explain")
          cells[c] = cell[1] == b and cell[2] == i and record or
            record_of(r, all[cell[1]][cell[2]], cell[1], cell[2], first + of, queries)
        end
        weigh(cells)
      end
    end
  else
    most, sum = weigh(records, r.sink)
  end
  if j then return complete(records[j - first]) end
  for _, record in ipairs(records) do complete(record) end
  E.sort(records, "explain", function(one, other)
    if one.weight ~= other.weight then return one.weight > other.weight end
    return one.key < other.key
  end)
  return setmetatable({ batch = b, head = at.head, query = i, row_max = most or records[1].row_max,
    row_sum = sum or records[1].row_sum, sink = r.sink, keys = records }, Row)
end)

function explain.explain(self, x, options)
  E.check_self(self, "explain")
  local class = E.class_name(self)
  local headed = HEADS[class]
  if headed == nil or E.record(self) then E.reject("explain", "self", self, "an attention module") end
  E.check_tensor(x, "explain", "x")
  local at, forward = split_options(options, "explain")
  operands.refuse_packed("explain", forward)
  local wrapper = class == "MultiHeadAttentionWrapper"
  local head = position(at.head, headed and self.num_heads or 1, 1, "head")
  local unit = wrapper and self.heads[head] or self
  local batched, past = x.ndim == 3, 0
  if x.ndim == 2 or batched then -- otherwise the forward pass says what is wrong
    at.query = position(at.query, x.shape[x.ndim - 1], x.shape[x.ndim - 1], "query")
    at.batch = position(at.batch, batched and x.shape[1] or 1, 1, "batch")
  end
  dense_mask.replace(forward, x)
  forward.need_weights, forward.need_lse = nil, nil
  local cache = forward.cache
  at.head = head
  local own = at.query and operands.of_head(unit, x, forward, at, wrapper and self)
  if not own then
    if cache ~= nil and primitives.kind(cache) == nil and type(cache) == "userdata" then
      past = cache.lengths[at.batch] or cache.length
    end
    own = operands.of_pass(self, x, forward, at, headed, wrapper)
  end
  return derive(self, unit, x, forward, at, own, past)
end

--- What heed.nn.oracle and heed.nn.check share.
local function is_padding(rules, b, i) return masked_at(rules.padding, false, nil, nil, b, i) end
explain.parts = {
  is_padding = is_padding, read_masks = read_masks, rules_of = rules_of, record_of = record_of, weigh = weigh,
}

return E.with_frames(explain, "explain")
