--- The residual stream after the last layer as a sum of what wrote into it.

local E = require "heed.nn.entries"
local core = require "heed.core"
local models = require "heed.interpret.models"

local KINDS = { { "attention", "hook_attn_out" }, { "mlp", "hook_mlp_out" } }

--- Splits what attention wrote at a position into heads: result [b, h, d]. What remains is the bias.
local function split(result, written, label, add)
  for i = 1, result.shape[2] do add(("%s.%d"):format(label, i), result:select(2, i)) end
  add(label .. " bias", written - result:sum(2))
end

--- Returns labels, the parts [c, b, d] at that position, their sum x [b, d] as the model computed it, the logits [b, v]
--- there, and whether the model gave a batch.
return function(model, ids, position, heads, method)
  local names, all = {}, {}
  for _, short in ipairs { "hook_resid_pre", "hook_resid_post", "hook_attn_out", "hook_mlp_out", "hook_result" } do
    if heads or short ~= "hook_result" then names[short] = models.names(model, short, method) end
    for _, name in ipairs(names[short] or {}) do all[#all + 1] = name end
  end
  local run = models.run(model, ids, all)
  local last = names.hook_resid_post[#names.hook_resid_post]
  local n, batched = run.cache[last].shape[run.cache[last].ndim - 1], run.cache[last].ndim == 3
  local at = models.positions(position, n, method, "position")[1]
  local function here(x)
    if not batched then x = x:unsqueeze(1) end
    return x:select(2, at)
  end
  local labels, parts = {}, {}
  local function add(label, x) labels[#labels + 1], parts[#parts + 1] = label, x end
  add("embed", here(run.cache[names.hook_resid_pre[1]]))
  for layer = 1, #names.hook_resid_post do
    for _, kind in ipairs(KINDS) do
      local label, name = ("%s %d"):format(kind[1], layer), names[kind[2]][layer]
      local written, result = here(run.cache[name]), heads and kind[1] == "attention" and names.hook_result[layer]
      if result then split(here(run.cache[result]), written, label, add) else add(label, written) end
    end
  end
  local x, sum = here(run.cache[last]), core.stack(parts):sum(1)
  local most = (x - sum):abs():max():item()
  if most > 1e-3 * (1 + x:abs():max():item()) then
    E.fail("%s: the parts differ from %s by up to %.3g; attention and MLP must be added to the stream without a norm "
      .. "after them", method, last, most)
  end
  return labels, core.stack(parts), x, here(run.result), batched
end
