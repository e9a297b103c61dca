--- Source: Clark et al., arXiv:1906.04341, section 6 (Jensen-Shannon divergence of heads).

local E = require "heed.nn.entries"
local core = require "heed.core"
local entropy = require "heed.interpret.entropy"
local weights_of = require("heed.interpret.weights").read

local OPTIONS = { "measure" }
local measures = {}

--- 1 - JS(p, q) / log 2, the mean over queries: 1 for equal heads, 0 for heads that share no key.
function measures.jensen_shannon(w)
  local own, rows = entropy(w), {}
  for i = 1, w.shape[w.ndim - 2] do
    E.check_cancel "agreement"
    local p, of_p = w:narrow(-3, i, 1), own:narrow(-2, i, 1)
    local divergence = entropy((p + w) / 2) - (of_p + own) / 2
    rows[i] = (1 - divergence / math.log(2)):mean(-1)
  end
  return core.stack(rows, -2)
end

--- The cosine of the angle between the maps, each as one vector.
function measures.cosine(w)
  local flat = w:flatten(-2, -1)
  flat = flat / (flat * flat):sum(-1, true):sqrt():clamp(1e-12)
  return flat:matmul(flat:transpose(-2, -1))
end

--- agreement(weights, {measure = "jensen_shannon"}): how alike each two heads are, [.., h, h].
return function(weights, ...)
  local measure = core.modules.options("agreement", OPTIONS, 2, weights, ...)
  if measure == nil then measure = "jensen_shannon" end
  E.check_choice(measure, { "jensen_shannon", "cosine" }, "agreement", "measure")
  local w = weights_of(weights, "agreement")
  if w.ndim < 3 then E.reject("agreement", "weights", w, "[.., heads, queries, keys]: it compares heads") end
  return measures[measure](w)
end
