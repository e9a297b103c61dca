--- m:verify(x, {tolerance =}): compares a forward pass, as m(x) computes it, with the same pass in double precision:
--- its output, what each head gives to out_proj (the point "z"), and the weights of need_weights.

local compat = require "heed.compat"
local core = require "heed.core"
local dense_mask = require "heed.nn.dense_mask"
local E = require "heed.nn.entries"
local operands = require "heed.nn.operands"
local oracle = require "heed.nn.oracle"
local points = require "heed.nn.points"
local primitives = core.modules

local verify = {}

local Result = {}
function Result.__tostring(result)
  local lines = {
    ("%s: largest error %.3g, mean error %.3g, tolerance %.3g"):format(result.ok and "ok" or "wrong", result.max_error,
      result.mean_error, result.tolerance),
    ("  output   %.3g"):format(result.output), ("  weights  %.3g"):format(result.weights),
  }
  for h, each in ipairs(result.heads) do lines[#lines + 1] = ("  head %-4d%.3g"):format(h, each) end
  return table.concat(lines, "\n")
end

local function check_operands(self, x, options)
  E.check_self(self, "verify")
  local class = E.class_name(self)
  local known = class == "SelfAttention" or class == "CausalAttention" or class == "MultiHeadAttention"
    or class == "MultiHeadAttentionWrapper"
  if not known or E.record(self) then E.reject("verify", "self", self, "an attention module") end
  E.check_tensor(x, "verify", "x")
  if options ~= nil and not E.is_list(options) then E.reject("verify", "options", options, "a table of options") end
  operands.refuse_packed("verify", options)
  return class
end

local function check_settings(self, class, forward)
  if forward.cache ~= nil then E.fail("verify: cache is given; leave it out, and give all tokens as x") end
  local unit = class == "MultiHeadAttentionWrapper" and self.heads[1] or self
  if unit ~= self and E.class_name(unit) ~= "CausalAttention" then
    E.fail("verify: the heads are %s; they must be CausalAttention", E.class_name(unit))
  end
  if E.class_name(unit) == "CausalAttention" and unit.softmax_dim ~= -1 then
    E.fail("verify: softmax_dim is not -1; it must be -1")
  end
  if class ~= "SelfAttention" and self.training then
    E.fail("verify: the module is in training mode; call m:eval() first, because dropout would draw")
  end
  if primitives.holds_watched(self) then
    E.fail("verify: the module has hooks, which may change what it computes; remove them first")
  end
end

--- What is computed by heed: the output, z [b, n, h, d], and the intermediate results.
local function computed(self, x, forward)
  local y = self:forward(x, forward)
  local parts = {}
  local handle = points.read(self, "z", function(z) parts[#parts + 1] = z:clone() end)
  if compat.yields_in_pcall() then
    local ok, problem = pcall(self.forward, self, x, forward)
    handle:remove()
    if not ok then error(problem, 0) end
  else
    self:forward(x, forward)
    handle:remove()
  end
  forward.need_weights = { "queries", "keys", "values", "weights" }
  local _, info = self:forward(x, forward)
  return y, #parts == 1 and parts[1] or core.cat(parts, 3), info
end

--- Adds the errors of a nested list to those in `into`, each relative to the largest expected element, if that is
--- above 1.
local function compare(into, expected, found)
  local errors, most = {}, 1
  local function visit(a, b)
    if type(a) == "table" then
      for i = 1, #a do visit(a[i], b[i]) end
      return
    end
    if a == a and math.abs(a) ~= math.huge then most = math.max(most, math.abs(a)) end
    local off = a == b and 0 or math.abs(a - b)
    if a ~= a and b ~= b then off = 0 end
    errors[#errors + 1] = off == off and off or math.huge
  end
  E.check_cancel "verify"
  visit(expected, found)
  local largest = 0
  for i = 1, #errors do
    largest = math.max(largest, errors[i] / most)
    into.sum, into.count = into.sum + errors[i] / most, into.count + 1
  end
  return largest
end

local function items_of(x, batched) return x and (batched and x or x:unsqueeze(1)):float():tolist() end

--- Everything after the passes, in a frame of its own: it calls no part that could yield.
local compare_all = core.frame(function(self, class, x, forward, tolerance, y, z, info)
  dense_mask.replace(forward, x)
  local wrapper, batched = class == "MultiHeadAttentionWrapper", x.ndim == 3
  local headed = wrapper or class == "MultiHeadAttention"
  local function list(each) return operands.with_all_dims(each, batched, headed):tolist() end
  local q, k, v, weights = list(info.queries), list(info.keys), list(info.values), list(info.weights)
  local out, zs = items_of(y, batched), z:transpose(2, 3):tolist()
  local tokens, keys = items_of(x, batched), items_of(forward.key or x, batched)
  local values = items_of(forward.value or forward.key or x, batched)

  local result = { heads = {}, output = 0, weights = 0, tolerance = tolerance }
  local all = { sum = 0, count = 0 }
  for b = 1, #tokens do
    for pass = 1, wrapper and self.num_heads or 1 do
      local unit = wrapper and self.heads[pass] or self
      local given = wrapper and { queries = { q[b][pass] }, keys = { k[b][pass] }, values = { v[b][pass] } }
        or { queries = q[b], keys = k[b], values = v[b] }
      local exact = oracle.pass(self, unit, forward, wrapper and pass or nil, b, tokens[b], keys[b], values[b], given)
      local width = exact.y and exact.y[1] and #exact.y[1] or 0 -- no rows: x has no tokens
      for h = 1, #exact.z do
        local at = wrapper and pass or h
        result.weights = math.max(result.weights, compare(all, exact.weights[h], weights[b][at]))
        result.heads[at] = math.max(result.heads[at] or 0, compare(all, exact.z[h], zs[b][at]))
      end
      for i, row in ipairs(exact.y or {}) do
        local found = {}
        for c = 1, width do found[c] = out[b][i][(wrapper and pass - 1 or 0) * width + c] end
        result.output = math.max(result.output, compare(all, row, found))
      end
    end
  end
  result.max_error = math.max(result.output, result.weights, compat.unpack(result.heads))
  result.mean_error = all.count > 0 and all.sum / all.count or 0
  result.ok = result.max_error <= tolerance
  return setmetatable(result, Result)
end)

--- {ok, max_error, mean_error, output, weights, heads = the largest error of each head, tolerance}
function verify.verify(self, x, options)
  local class = check_operands(self, x, options)
  local forward = {}
  for name, value in compat.pairs(options or {}) do forward[name] = value end
  local tolerance = E.number(forward.tolerance, 1e-5, "verify", "tolerance", function(t) return t >= 0 end,
    "a number, at least 0")
  forward.tolerance, forward.need_weights, forward.need_lse = nil, nil, nil
  check_settings(self, class, forward)
  return compare_all(self, class, x, forward, tolerance, computed(self, x, forward))
end

return E.with_frames(verify, "verify")
