--- Source: Elhage et al., "A Mathematical Framework for Transformer Circuits" (2021); Wang et al., arXiv:2211.00593.

local E = require "heed.nn.entries"
local core = require "heed.core"
local frozen = require "heed.interpret.frozen_norm"
local models = require "heed.interpret.models"
local parts_of = require "heed.interpret.stream_parts"

local METHOD, OPTIONS = "direct_logit_attribution", { "token", "position", "against", "heads" }

--- Token ids, a number or [b], as int64 [b]; `best` if nil.
local function tokens(value, best, logits, name)
  if value == nil then return best end
  local ids = core.modules.indices(type(value) == "number" and { value } or value, METHOD, name)
  local b, v = logits.shape[1], logits.shape[2]
  if ids.ndim > 1 or ids:numel() ~= 1 and ids:numel() ~= b or ids:min():item() < 1 or ids:max():item() > v then
    E.reject(METHOD, name, value, "an id from 1 to %d, or one for each of %s", v, E.count(b, "text"))
  end
  return ids:reshape(-1):expand(b):contiguous()
end

--- direct_logit_attribution(model, ids, {token =, position = -1, against =, heads = false}): what the embedding, the
--- attention (or each head) and the MLP of each layer add to the logit of `token` at `position`, less that of
--- `against`; the scale of the last norm stays as it is. {labels =, values = [c] or [b, c], total =, token =}
return function(model, ids, ...)
  local token, position, against, heads = core.modules.options(METHOD, OPTIONS, 3, model, ids, ...)
  heads = E.boolean(heads, false, METHOD, "heads")
  position = E.integer(position, -1, METHOD, "position")
  local norm, head = models.unembedding(model, nil, nil, METHOD)
  local labels, parts, x, logits, batched = parts_of(model, ids, position, heads, METHOD) -- [c, b, d], [b, d], [b, v]
  token = tokens(token, logits:argmax(-1), logits, "token")
  local direction, bias = models.rows(head, token, METHOD)
  if against ~= nil then
    local other, other_bias = models.rows(head, tokens(against, nil, logits, "against"), METHOD)
    direction, bias = direction - other, bias - other_bias
  end
  local through, norm_bias = frozen(norm, x, METHOD)
  local values = (through(parts) * direction):sum(-1):transpose(1, 2) -- [b, c]
  if norm_bias then bias = bias + (norm_bias * direction):sum(-1) end
  labels[#labels + 1], values = "bias", core.cat({ values, bias:unsqueeze(2) }, 2)
  if not batched then values, token = values:squeeze(1), token:squeeze(1) end
  return { labels = labels, values = values, total = values:sum(-1), token = token }
end
