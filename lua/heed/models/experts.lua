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
  local rows, used = x:flatten(1, -2), self.used -- [t, d]
  local weights, chosen = slices.call(self.router, rows):softmax(-1):topk(used) -- [t, k]
  if self.normalized then weights = weights / weights:sum(-1, true) end
  weights = weights:flatten()
  local sum, places = core.zeros(#rows, rows.shape[2]), places_of(chosen)
  for i, expert in ipairs(E.entries(self.experts)) do
    if places[i] then
      slices.pause()
      local tokens = {}
      for j, at in ipairs(places[i]) do tokens[j] = math.floor((at - 1) / used) + 1 end
      local y = expert.value(rows:index_select(1, tokens))
      sum = sum:index_add(1, tokens, y * weights:index_select(1, places[i]):unsqueeze(2))
    end
  end
  return sum:view(x.shape)
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
