--- The optimisers: their options, in PyTorch's order, with its defaults; and the states of a parameter.

local E = require "heed.nn.entries"

local M = {}

-- ---- Options ----

local function is_finite(value) return value >= 0 and value < math.huge end
local AT_LEAST_0 = "a finite number, at least 0"

local function number(name, default)
  return { name = name, default = default, check = function(value, method, argument)
    return E.number(value, nil, method, argument, is_finite, AT_LEAST_0)
  end }
end

local function flag(name, default)
  return { name = name, default = default or false, check = function(value, method, argument)
    return E.boolean(value, nil, method, argument)
  end }
end

local function check_betas(value, method, argument)
  if not E.is_list(value) then E.reject(method, argument, value, "a list of two numbers, such as {0.9, 0.999}") end
  local betas, count = { value[1], value[2] }, #value
  if count ~= 2 then E.fail("%s: %s has %s; it must have two numbers", method, argument, E.count(count, "element")) end
  for i = 1, 2 do
    E.number(betas[i], nil, method, ("%s[%d]"):format(argument, i),
      function(beta) return beta >= 0 and beta < 1 end, "a number from 0 to less than 1")
  end
  return betas
end

local DAMPENING = { name = "dampening", default = 0, check = function(value, method, argument)
  return E.number(value, nil, method, argument, function(each) return each == each and math.abs(each) < math.huge end,
    "a finite number")
end }

local BETAS = { name = "betas", default = { 0.9, 0.999 }, check = check_betas }
local ADAM = { number("lr", 1e-3), BETAS, number("eps", 1e-8), number("weight_decay", 0), flag "amsgrad",
  flag "maximize" }

local function adam(...)
  local list = {}
  for i, option in ipairs(ADAM) do list[i] = option end
  for _, option in ipairs { ... } do list[#list + 1] = option end
  return list
end

-- ---- Optimisers ----

-- number: of the kind in C (heed__optimizer_kind); states: in the order of C, with the options that they need.
local function uses(option)
  return function(group) return group[option] == true or type(group[option]) == "number" and group[option] ~= 0 end
end
local function always() return true end

local adam_states = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" }
local adam_uses = { always, always, uses "amsgrad" }
local function adam_values(group)
  return group.lr, group.betas[1], group.betas[2], group.eps, group.weight_decay, group.amsgrad, group.maximize,
    group.decoupled_weight_decay
end

M.SGD = {
  number = 0,
  options = { number("lr", 1e-3), number("momentum", 0), DAMPENING, number("weight_decay", 0), flag "nesterov",
    flag "maximize" },
  states = { "momentum_buffer" },
  uses = { uses "momentum" },
  values = function(group)
    return group.lr, group.momentum, group.dampening, group.weight_decay, group.nesterov, group.maximize
  end,
  check = function(group, method, suffix)
    if group.nesterov and (group.momentum == 0 or group.dampening ~= 0) then
      E.fail("%s: nesterov%s is set with momentum %s and dampening %s; it needs a momentum above 0 and no dampening",
        method, suffix, group.momentum, group.dampening)
    end
  end,
  restarts = true, -- the first step with a momentum takes the gradient as it is
}

M.Adam = {
  number = 1, options = adam(flag "decoupled_weight_decay"), states = adam_states, uses = adam_uses,
  values = adam_values,
}

M.AdamW = {
  number = 1, options = adam(), states = adam_states, uses = adam_uses, values = adam_values,
  fixed = "decoupled_weight_decay",
}
M.AdamW.options[4] = number("weight_decay", 1e-2)

M.RMSprop = {
  number = 2,
  options = { number("lr", 1e-2), number("alpha", 0.99), number("eps", 1e-8), number("weight_decay", 0),
    number("momentum", 0), flag "centered", flag "maximize" },
  states = { "square_avg", "grad_avg", "momentum_buffer" },
  uses = { always, uses "centered", uses "momentum" },
  values = function(group)
    return group.lr, group.alpha, group.eps, group.weight_decay, group.momentum, group.centered, group.maximize
  end,
}

for name, kind in pairs(M) do
  kind.name, kind.names, kind.by_name = name, {}, {}
  for i, option in ipairs(kind.options) do
    kind.names[i], kind.by_name[option.name] = option.name, option
  end
end

--- The option `name` of a group, checked; `suffix` tells the group in messages: " of group 2".
function M.check_group(kind, group, method, suffix)
  for _, option in ipairs(kind.options) do
    group[option.name] = option.check(group[option.name], method, option.name .. suffix)
  end
  if kind.fixed then group[kind.fixed] = true end
  if kind.check then kind.check(group, method, suffix) end
end

return M
