--- The points of an attention module's forward pass, under TransformerLens' names, where listeners can look at what it
--- computes and change it. Shapes: b batch (1 for x without one), n queries, s keys, h heads, d head_dim.
---   q, k, v         [b, n, h, d], after the projection; k and v with the key heads
---   rot_q, rot_k    the same, after norm and rotation, as attention and the cache receive them
---   attn_scores     [b, h, n, s], before softmax, hidden keys -inf
---   pattern         [b, h, n, s], after softmax, before dropout
---   z               [b, n, h, d], what the heads give to out_proj
---   result          [b, n, h, d_out], the part of each head in the output, without the bias

local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local handle = require "heed.nn.handle"
local primitives = core.modules

local points = {
  NAMES = { "q", "k", "v", "rot_q", "rot_k", "attn_scores", "pattern", "z", "result" },
}
local known = {}
for _, name in ipairs(points.NAMES) do known[name] = true end

--- The listeners of a module: {entries, read =, edited =}, in order, and the points that they look at and may change;
--- nil, if it has none. The lists are replaced, not changed, so that a pass keeps the listeners with which it began.
function points.listeners(m)
  local store = attached(m)
  return store and store.listeners
end

local function set_listeners(m, list) attached(m, true).listeners = list end

local HAVE_POINTS = {
  SelfAttention = true, CausalAttention = true, MultiHeadAttention = true, MultiheadAttention = true,
}

--- Whether a module has points: an attention module, or a wrapper of some.
function points.are_in(m)
  local class = E.is_module(m) and E.class_name(m)
  return HAVE_POINTS[class] or class == "MultiHeadAttentionWrapper" or false
end

-- ---- Adding and removing ------------------------------------------------------------------------

--- Replaces the list of a module's listeners.
local function set_entries(m, entries)
  if #entries == 0 then
    set_listeners(m, nil)
    return
  end
  local read, edited, seen = {}, {}, {}
  for _, entry in ipairs(entries) do
    local key = entry.name .. (entry.reads and " read" or "")
    local names = entry.reads and read or edited
    if not seen[key] then names[#names + 1] = entry.name end
    seen[key] = true
  end
  entries.read, entries.edited = table.concat(read, " "), table.concat(edited, " ")
  set_listeners(m, entries)
end

local function add_entry(m, entry)
  local entries = {}
  for i, each in ipairs(points.listeners(m) or {}) do entries[i] = each end
  entries[#entries + 1] = entry
  set_entries(m, entries)
  if not E.record(m) then primitives.watch(m, 1) end
end

local function remove_entry(m, entry)
  local entries = {}
  for _, each in ipairs(points.listeners(m) or {}) do
    if each ~= entry then entries[#entries + 1] = each end
  end
  entry.f = nil -- first, since set_entries may run out of memory
  if not E.record(m) then primitives.watch(m, -1) end
  set_entries(m, entries)
end

--- The modules whose passes have the points of m: m, or the heads of a wrapper.
local function passes_of(m)
  if E.class_name(m) ~= "MultiHeadAttentionWrapper" then return { m } end
  local list = {}
  for i, head in m.heads:iter() do list[i] = head end
  return list
end

local function check_module(m, method)
  if points.are_in(m) then return end
  E.reject(method, "self", m, "an attention module")
end

local function check_name(name, method)
  if known[name] then return end
  E.reject(method, "name", name, "one of %s", table.concat(points.NAMES, ", "))
end

local function add(m, name, f, reads, method)
  check_module(m, method)
  check_name(name, method)
  E.check_type(f, "function", method, "f")
  local added, list = {}, passes_of(m)
  for i, pass in ipairs(list) do
    added[i] = { name = name, f = f, reads = reads, module = m, head = pass ~= m and i or nil }
    add_entry(pass, added[i])
  end
  return handle.new(function()
    for i, pass in ipairs(list) do remove_entry(pass, added[i]) end
  end)
end

--- Calls f(x, context) at a point of every forward pass of m; f may return a changed tensor of the same shape, with
--- which the pass goes on, or nil. context has module, name, heads {first, last} and queries {first, last}, by their
--- position in the sequence, and batched, whether the module's input has a batch. A wrapper calls f once for each head.
--- Changing x in place has an effect only if x is returned. Returns a handle.
function points.add(m, name, f) return add(m, name, f, false, "add") end

--- The same for an f that only looks: what it returns is ignored, and no bit of the pass's result changes.
function points.read(m, name, f) return add(m, name, f, true, "read") end

-- ---- Calling ------------------------------------------------------------------------------------

local function context_of(m, entry, x, past, batched)
  local maps = entry.name == "attn_scores" or entry.name == "pattern"
  local h, n = x.shape[maps and 2 or 3], x.shape[maps and 3 or 2]
  local first = entry.head or 1
  return {
    module = entry.module or m, name = entry.name, heads = { first, first + h - 1 }, queries = { past + 1, past + n },
    batched = batched,
  }
end

--- Whether y is a tensor with the shape and dtype of the tensor x.
function points.is_like(y, x)
  local kind = primitives.kind(y)
  if kind ~= "tensor" and kind ~= "parameter" or y.dtype ~= x.dtype or y.ndim ~= x.ndim then return false end
  for i = 1, x.ndim do
    if y.shape[i] ~= x.shape[i] then return false end
  end
  return true
end

local function check_result(m, name, y, x)
  if points.is_like(y, x) then return end
  E.reject(E.class_name(m), "the result of the hook on " .. name, y, "nil or a float32 tensor %s",
    tostring(x.shape):match "%[.*%]")
end

--- Calls the listeners of one point. Returns the changed tensor, or nil.
local function call_entries(m, name, x, entries, past, batched)
  local changed
  for _, entry in ipairs(entries) do
    local f = entry.name == name and entry.f
    if f then
      -- f receives a tensor of its own, which it may release
      local y = f(x:view(x.shape), context_of(m, entry, x, past, batched))
      if y ~= nil and not entry.reads then
        check_result(m, name, y, x)
        x, changed = y, y
      end
    end
  end
  return changed
end

--- The module's output projection; nil, if it has none.
local function out_proj_of(m)
  for _, part in ipairs(E.parts(m)) do
    if part.name == "out_proj" then return part.value end
  end
end

--- What each head adds to the output, [b, n, h, d_out], of z [b, n, h, d].
local function result_of(m, out, z)
  if not out then return z end
  if E.class_name(out) ~= "Linear" then
    E.fail("%s: out_proj is a module of class %s; it must be a Linear, for the point result", E.class_name(m),
      E.class_name(out))
  end
  local weight = out.weight
  if weight.dtype == "int8" then
    weight = weight:float() * out.weight_scale:unsqueeze(2)
  else
    weight = weight:float()
  end
  local h, d = z.shape[3], z.shape[4]
  return z:transpose(2, 3):matmul(weight:view(weight.shape[1], h, d):permute(2, 3, 1)):transpose(2, 3)
end

--- Calls the listeners of the point `name` of a pass of m. Returns what the pass goes on with, or nil if it is
--- unchanged.
function points.call(m, name, x, entries, past, batched)
  if name ~= "result" then return call_entries(m, name, x, entries, past, batched) end
  local out = out_proj_of(m)
  local result = call_entries(m, name, result_of(m, out, x), entries, past, batched)
  if not result then return nil end
  if not out then return result:reshape(x.shape[1], x.shape[2], -1) end
  local y = result:sum(3)
  return out.bias and y + out.bias or y
end

return E.with_frames(points, "call")
