--- Source: Olsson et al., arXiv:2209.11895 (prefix matching).

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"
local weights_of = require "heed.interpret.weights"

local METHOD, OPTIONS = "induction_score", { "period", "ids" }

--- Whether key j + 1 follows an earlier occurrence of query i's token: ids_j = ids_i with j < i. [.., l, s - 1]
local function matches(ids, l, s)
  local queries, keys = ids:narrow(-1, s - l + 1, l), ids:narrow(-1, 1, s - 1)
  return queries:unsqueeze(-1):eq(keys:unsqueeze(-2)):tril(s - l - 1)
end

--- induction_score(weights, {period =} or {ids =}): the mean over queries of the weight on the tokens that came after
--- earlier occurrences of the query's token, [.., h]. `period`: the text repeats itself after that number of tokens.
return function(weights, ...)
  local period, ids = core.modules.options(METHOD, OPTIONS, 2, weights, ...)
  if (period == nil) == (ids == nil) then E.fail("%s: give either period or ids", METHOD) end
  period = period ~= nil and E.size(period, nil, METHOD, "period")
  ids = ids ~= nil and core.modules.indices(ids, METHOD, "ids")
  local w = weights_of.read(weights, METHOD)
  local l, s = weights_of.sizes(w, METHOD)
  if s < 2 then E.reject(METHOD, "weights", w, "of at least 2 keys") end
  local followers = w:narrow(-1, 2, s - 1) -- followers_ij is the weight on the key after key j
  if period then
    if period >= s then E.reject(METHOD, "period", period, "less than the number of keys, %d", s) end
    return followers:diagonal(s - l - period, -2, -1):mean(-1)
  end
  local batch = ids.ndim == 2 and ids.shape[1] -- beside that of the weights, [.., b, h, l, s]
  local fits = ids.ndim == 1 or batch and w.ndim >= 4 and (batch == 1 or batch == w.shape[w.ndim - 3])
  if not fits or ids.shape[ids.ndim] ~= s then
    E.reject(METHOD, "ids", ids, "[%d] or [b, %d], the tokens of weights %s", s, s, A.text(w.shape))
  end
  local match = matches(ids, l, s)
  local count = match:any(-1):float():sum(-1) -- of queries whose token came before
  if count:min():item() == 0 then
    E.fail("%s: ids have a row in which no token repeats; there is nothing to copy", METHOD)
  end
  if batch then match, count = match:unsqueeze(2), count:unsqueeze(2) end
  return (followers * match):sum(-1):sum(-1) / count
end
