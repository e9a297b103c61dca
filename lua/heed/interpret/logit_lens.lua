--- Source: nostalgebraist, "interpreting GPT: the logit lens" (2020); Belrose et al., arXiv:2303.08112, section 2.

local E = require "heed.nn.entries"
local activations = require "heed.nn.activation_cache"
local core = require "heed.core"
local models = require "heed.interpret.models"
local top_tokens = require "heed.interpret.top_tokens"

local METHOD, OPTIONS = "logit_lens", { "positions", "top", "decode", "norm", "lm_head" }

--- The residual stream before the first layer and after each, [layers + 1, .., n, d], from ids or a cache.
local function stream(model, source)
  local names = models.names(model, "hook_resid_post", METHOD)
  table.insert(names, 1, models.names(model, "hook_resid_pre", METHOD)[1])
  if not activations.is(source) then return core.stack(models.run(model, source, names).list) end
  local list = {}
  for i, name in ipairs(names) do list[i] = source[name] end
  return core.stack(list)
end

--- logit_lens(model, ids or cache, {positions =, top =, decode =, norm =, lm_head =}): lm_head(norm(x)) of the residual
--- stream x before the first layer and after each, [layers + 1, .., n, v]. top = k gives the k likeliest tokens.
return function(model, source, ...)
  local positions, top, decode, norm, head = core.modules.options(METHOD, OPTIONS, 3, model, source, ...)
  norm, head = models.unembedding(model, norm, head, METHOD)
  if top ~= nil then top = E.size(top, nil, METHOD, "top") end
  if decode ~= nil then E.check_type(decode, "function", METHOD, "decode") end
  local x = stream(model, source)
  positions = models.positions(positions, x.shape[x.ndim - 1], METHOD)
  x = x:index_select(-2, core.tensor(positions, { dtype = "int64" }))
  local function logits(h) return (head(norm and norm(h) or h)) end
  if not top then return logits(x) end
  return top_tokens(x, logits, positions, top, decode)
end
