--- Changing the heads of an attention module during its forward passes: m:ablate{2, 5}, m:patch(head, weights),
--- m:on_weights(f). Each returns a handle that undoes it. Shapes: b batch, h heads, n queries, s keys, d head_dim.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local points = require "heed.nn.points"

local surgery = {}

local function check_attention(self, method)
  E.check_self(self, method)
  if not points.are_in(self) then E.reject(method, "self", self, "an attention module") end
end

--- The number of heads of a module; those of one head have no setting of that name.
local function head_count(m)
  local class = E.class_name(m)
  if class == "SelfAttention" or class == "CausalAttention" then return 1 end
  if class == "MultiHeadAttentionWrapper" then return #m.heads end
  return m.num_heads
end

--- The number of a head, from 1; negative numbers count from the last.
local function check_head(m, head, method, argument)
  local count = head_count(m)
  if type(head) ~= "number" or head % 1 ~= 0 or head == 0 or head < -count or head > count then
    E.reject(method, argument, head, "an integer from 1 to %d, or from -%d to -1", count, count)
  end
  return math.floor(head < 0 and head + count + 1 or head)
end

local function read_heads(m, heads)
  if type(heads) == "number" then return { check_head(m, heads, "ablate", "heads") } end
  if not E.is_list(heads) or #heads == 0 then
    E.reject("ablate", "heads", heads, "the number of a head or a list of them, such as {2, 5}")
  end
  local list = {}
  for i = 1, #heads do list[i] = check_head(m, heads[i], "ablate", ("heads[%d]"):format(i)) end
  return list
end

-- ---- Ablating -----------------------------------------------------------------------------------

--- Refuses a tensor that does not broadcast to the shape [b, n, d] of what a head gives.
local function check_broadcasts(value, shape)
  for i = 1, value.ndim do
    local size = value.shape[value.ndim + 1 - i]
    if size ~= 1 and size ~= shape[#shape + 1 - i] then
      E.reject("ablate", "value", value, "a number or a tensor that broadcasts to [%s] in this pass",
        table.concat(shape, ", "))
    end
  end
end

--- m:ablate{2, 5}: what these heads give is 0, or `value`, a number or a tensor that broadcasts to [b, n, d]. The
--- options may stand in the list: m:ablate{2, 5, value = mean}.
function surgery.ablate(self, heads, options)
  check_attention(self, "ablate")
  local value = 0
  for _, given in pairs { type(heads) == "table" and E.is_list(heads) and heads or {}, options } do
    if not E.is_list(given) then E.reject("ablate", "options", given, "a table of options") end
    for key, each in compat.pairs(given) do
      if key == "value" then
        value = each
      elseif type(key) ~= "number" or given == options then
        E.fail("ablate: there is no option %s; the known one is value", tostring(key))
      end
    end
  end
  local list = read_heads(self, heads)
  if type(value) ~= "number" then
    local kind = E.kind(value)
    if kind ~= "tensor" and kind ~= "parameter" or value.ndim > 3 then
      E.reject("ablate", "value", value, "a number or a tensor that broadcasts to [b, n, d]")
    end
    E.check_operand(value, "ablate", "value")
    value = value:clone()
  end
  return points.add(self, "z", function(z, context)
    local changed
    for _, head in ipairs(list) do
      local at = head - context.heads[1] + 1
      if at >= 1 and head <= context.heads[2] then
        changed = changed or z:clone()
        if type(value) ~= "number" then check_broadcasts(value, changed:select(3, at).shape) end
        changed[{ {}, {}, at }] = value
      end
    end
    return changed
  end)
end

-- ---- Weights ------------------------------------------------------------------------------------

--- m:patch(head, weights): the head's weights are `weights` [n, s] or [b, n, s], before dropout.
function surgery.patch(self, head, weights)
  check_attention(self, "patch")
  head = check_head(self, head, "patch", "head")
  E.check_operand(weights, "patch", "weights")
  if weights.dtype ~= "float32" or weights.ndim ~= 2 and weights.ndim ~= 3 then
    E.reject("patch", "weights", weights, "a float32 tensor [n, s] or [b, n, s]")
  end
  weights = weights:clone()
  return points.add(self, "pattern", function(pattern, context)
    local at = head - context.heads[1] + 1
    if at < 1 or head > context.heads[2] then return nil end
    local shape, given = pattern:select(2, at).shape, weights.shape
    local skipped = weights.ndim - 2
    if given[skipped + 1] ~= shape[2] or given[skipped + 2] ~= shape[3] or
      skipped == 1 and given[1] ~= shape[1] and given[1] ~= 1 then
      E.reject("patch", "weights", weights, "[%d, %d] or [%d, %d, %d], as the weights of head %d are in this pass",
        shape[2], shape[3], shape[1], shape[2], shape[3], head)
    end
    pattern = pattern:clone()
    pattern[{ {}, at }] = weights
    return pattern
  end)
end

--- m:on_weights(f): f(weights [b, h, n, s], context) returns the weights to go on with, or nil for the same. context
--- has module, heads {first, last} and queries {first, last}.
function surgery.on_weights(self, f)
  check_attention(self, "on_weights")
  E.check_type(f, "function", "on_weights", "f")
  return points.add(self, "pattern", f)
end

return E.with_frames(surgery)
