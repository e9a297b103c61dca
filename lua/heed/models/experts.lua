--- A feed-forward layer of experts: a router chooses some of them for each token, whose results are added with the
--- router's weights. Source: arXiv:2401.04088. Shape legend: t tokens, d hidden_size, k experts of a token.

local core = require "heed.core"
local nn = require "heed.nn"
local slices = require "heed.nn.slices"
local E = require "heed.nn.entries"

local Experts = nn.Module.class "Experts"

--- `used` of `count` experts work for a token. Their weights add up to 1 if `normalized`, otherwise all `count` do.
function Experts:init(d, hidden, count, used, normalized)
  self.used, self.normalized = used, normalized
  self.router = nn.Linear(d, count, false)
  self.experts = nn.ModuleList()
  for _ = 1, count do self.experts:append(nn.SwiGLU(d, hidden)) end
end

--- For each expert the places [1, t · k] where it was chosen: token and choice as one number.
local function places_of(chosen)
  local places = {}
  for at, expert in ipairs(chosen:flatten():tolist()) do
    places[expert] = places[expert] or {}
    table.insert(places[expert], at)
  end
  return places
end

function Experts:forward(x)
  local rows = x:flatten(1, -2) -- [t, d]
  local weights, chosen = slices.call(self.router, rows):softmax(-1):topk(self.used) -- [t, k]
  if self.normalized then weights = weights / weights:sum(-1, true) end
  local places, order, tokens, parts = places_of(chosen), {}, {}, {}
  for i, expert in ipairs(E.entries(self.experts)) do
    local own = {}
    for _, at in ipairs(places[i] or {}) do
      local token = math.floor((at - 1) / self.used) + 1
      own[#own + 1], order[#order + 1], tokens[#tokens + 1] = token, at, token
    end
    if #own > 0 then
      slices.pause()
      parts[#parts + 1] = expert.value(rows:index_select(1, own))
    end
  end
  local y = core.cat(parts, 1) * weights:flatten():index_select(1, order):unsqueeze(2) -- [t · k, d]
  return core.zeros(rows.shape):index_add(1, tokens, y):view(x.shape)
end

local M = { Experts = E.with_frames(Experts, "forward") }

--- Rules for the settings that all models with experts have, with those in `more`.
function M.settings(more)
  more.hidden_act = { kind = { "silu" }, default = "silu" }
  more.output_router_logits = { kind = "boolean", default = false } -- for training, as the next
  more.router_aux_loss_coef = { kind = "number", default = 0.001 }
  return more
end

--- The problem with the numbers of experts, or nil.
function M.check(c, aliases)
  if c.num_experts_per_tok <= c.num_local_experts then return nil end
  return ("%s is %d; it must be at most %s, %d"):format(aliases.num_experts_per_tok, c.num_experts_per_tok,
    aliases.num_local_experts, c.num_local_experts)
end

return M
