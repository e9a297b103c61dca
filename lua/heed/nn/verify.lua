--- m:verify(x, {tolerance =}): compares the attention weights of a forward pass with a naive computation in double
--- precision, from the queries and keys of that pass.

local compat = require "heed.compat"
local E = require "heed.nn.entries"
local operands = require "heed.nn.operands"
local parts = require("heed.nn.explain").parts

local verify = {}

local Result = {}
function Result.__tostring(result)
  local lines = { ("%s: largest error %.3g, mean error %.3g, tolerance %.3g"):format(result.ok and "ok" or "wrong",
    result.max_error, result.mean_error, result.tolerance) }
  for h, each in ipairs(result.heads) do lines[#lines + 1] = ("  head %d  %.3g"):format(h, each) end
  return table.concat(lines, "\n")
end

local function dot(a, b)
  local sum = 0
  for c = 1, #a do sum = sum + a[c] * b[c] end
  return sum
end

local function check_operands(self, x, options)
  E.check_self(self, "verify")
  local class = E.class_name(self)
  local known = class == "SelfAttention" or class == "CausalAttention" or class == "MultiHeadAttention"
    or class == "MultiHeadAttentionWrapper"
  if not known or E.record(self) then E.reject("verify", "self", self, "an attention module") end
  E.check_tensor(x, "verify", "x")
  if options ~= nil and not E.is_list(options) then E.reject("verify", "options", options, "a table of options") end
  return class
end

--- {ok, max_error, mean_error, heads = the largest error of each head, tolerance}
function verify.verify(self, x, options)
  local class = check_operands(self, x, options)
  local forward = {}
  for name, value in compat.pairs(options or {}) do forward[name] = value end
  local tolerance = E.number(forward.tolerance, 1e-5, "verify", "tolerance", function(t) return t >= 0 end,
    "a number, at least 0")
  forward.tolerance = nil
  if forward.cache ~= nil then E.fail("verify: cache is given; leave it out, and give all tokens as x") end
  local wrapper = class == "MultiHeadAttentionWrapper"
  if (wrapper or class == "CausalAttention") and (wrapper and self.heads[1] or self).softmax_dim ~= -1 then
    E.fail("verify: softmax_dim is not -1; it must be -1")
  end
  local was = self.training
  if was and class ~= "SelfAttention" then
    E.fail("verify: the module is in training mode; call m:eval() first, because dropout would draw")
  end
  forward.need_weights = { "queries", "keys", "weights" }
  local _, info = self:forward(x, forward)
  local headed, batched = wrapper or class == "MultiHeadAttention", x.ndim == 3
  local function list(each) return operands.with_all_dims(each, batched, headed):tolist() end
  local q, k, w = list(info.queries), list(info.keys), list(info.weights)
  local result = { ok = true, max_error = 0, mean_error = 0, heads = {}, tolerance = tolerance }
  local count = 0
  for h = 1, #(q[1] or {}) do
    local rules = parts.rules_of(self, wrapper and self.heads[h] or self, forward, h, 0, 0)
    result.heads[h] = 0
    for b = 1, #q do
      local keys = k[b][math.ceil(h * #k[b] / #q[b])]
      for i, query in ipairs(q[b][h]) do
        E.check_cancel "verify"
        local records = {}
        for j, key in ipairs(keys) do records[j] = parts.record_of(rules, dot(query, key), b, i, j, #q[b][h]) end
        parts.weigh(records, rules.sink)
        for j, record in ipairs(records) do
          local off = math.abs(w[b][h][i][j] - record.weight)
          if off ~= off then off = math.huge end
          result.heads[h] = math.max(result.heads[h], off)
          result.mean_error, count = result.mean_error + off, count + 1
        end
      end
    end
    result.max_error = math.max(result.max_error, result.heads[h])
  end
  if count > 0 then result.mean_error = result.mean_error / count end
  result.ok = result.max_error <= tolerance
  return setmetatable(result, Result)
end

return E.with_frames(verify, "verify")
