--- The losses of nn.functional. Classes count from 1.

local core = require "heed.core"
local E = require "heed.nn.entries"
local options = core.modules.options

local losses = {}

-- ---- Reading arguments --------------------------------------------------------------------------

local REDUCTIONS, KL_REDUCTIONS = { "none", "mean", "sum" }, { "none", "batchmean", "sum", "mean" }

local function check_reduction(reduction, method, choices)
  if reduction == nil then return "mean" end
  E.check_choice(reduction, choices or REDUCTIONS, method, "reduction")
  return reduction
end

local function reduced(loss, reduction)
  if reduction == "none" then return loss end
  return reduction == "sum" and loss:sum() or loss:mean()
end

local function shape_text(x) return tostring(x.shape):match "%[.*%]" end

--- Class numbers as int64: integers in a table, int64, or float32 with whole values. Each must be from 1 to `classes`,
--- or ignore_index.
local function class_indices(target, classes, ignore_index, method)
  if type(target) == "number" then target = core.tensor(target) end
  if E.kind(target) == "tensor" and target.dtype == "bool" then
    E.reject(method, "target", target, "classes, counted from 1; use target:long() + 1")
  end
  local whole = core.modules.indices(target, method, "target")
  local wrong = (whole:lt(1):logical_or(whole:gt(classes))):logical_and(whole:ne(ignore_index))
  if wrong:any():item() then
    local class = whole:masked_select(wrong):select(1, 1):item()
    E.fail("%s: target has the class %d; classes must be from 1 to %d, the size of input's class dimension%s", method,
      class, classes, class == 0 and "; for classes that count from 0, use target + 1" or "")
  end
  return whole
end

--- The dimension of the classes in input: [c], [n, c] or [n, c, …].
local function class_dim(input, method)
  E.check_operand(input, method, "input")
  if input.ndim == 0 then E.reject(method, "input", input, "[c], [n, c] or [n, c, …], with c classes") end
  return input.ndim == 1 and 1 or 2
end

local function check_weight(weight, classes, method)
  if weight == nil then return end
  E.check_operand(weight, method, "weight", 1)
  if weight.shape[1] ~= classes then
    E.reject(method, "weight", weight, "[%d], one for each class", classes)
  end
end

--- Raises unless target has the shape of input without the classes.
local function check_target(input, target, dim, method)
  local fits = target.ndim == input.ndim - 1
  for i = 1, fits and target.ndim or 0 do
    fits = fits and target.shape[i] == input.shape[i < dim and i or i + 1]
  end
  if not fits then
    E.fail("%s: input is %s and target is %s; target must have the shape of input without dimension %d, the classes",
      method, shape_text(input), shape_text(target), dim)
  end
end

-- ---- Classes ------------------------------------------------------------------------------------

--- The negative log likelihood of each target, its weight, and the targets that are not ignored.
local function class_losses(logs, target, dim, weight, ignore_index)
  local keep = target:ne(ignore_index)
  local ignored = keep:logical_not()
  local known = target:masked_fill(ignored, 1)
  local weights = keep:float()
  if weight then weights = weight:float():index_select(1, known:flatten()):view(target.shape) * weights end
  local picked = logs:gather(dim, known:unsqueeze(dim)):squeeze(dim)
  return -(picked:masked_fill(ignored, 0) * weights), weights, ignored
end

--- "mean" divides by the sum of the weights.
local function reduced_by_weight(loss, weights, reduction)
  if reduction == "mean" then return loss:sum() / weights:sum() end
  return reduced(loss, reduction)
end

local NLL_OPTIONS = { "weight", "ignore_index", "reduction" }

function losses.nll_loss(input, target, ...)
  local method = "nll_loss"
  local weight, ignore_index, reduction = options(method, NLL_OPTIONS, 3, input, target, ...)
  local dim = class_dim(input, method)
  ignore_index = E.number(ignore_index, -100, method, "ignore_index")
  reduction = check_reduction(reduction, method)
  check_weight(weight, input.shape[dim], method)
  target = class_indices(target, input.shape[dim], ignore_index, method)
  check_target(input, target, dim, method)
  local loss, weights = class_losses(input:float(), target, dim, weight, ignore_index)
  local name = input.ndim < 3 and "NllLossBackward0" or "NllLoss2DBackward0"
  if reduction == "none" and input.ndim > 2 and input.ndim ~= 4 then name = "ViewBackward0" end
  return core.modules.noted(name, input, reduced_by_weight(loss, weights, reduction))
end

local CROSS_ENTROPY_OPTIONS = { "weight", "ignore_index", "reduction", "label_smoothing" }

--- What cross_entropy and linear_cross_entropy have in common: checked options, and target as classes or, in the shape
--- of the logits, probabilities.
local function read_classes(method, target, is_logits_shape, weight, ignore_index, reduction, smoothing)
  ignore_index = E.integer(ignore_index, -100, method, "ignore_index")
  reduction = check_reduction(reduction, method)
  smoothing = E.number(smoothing, 0, method, "label_smoothing", E.is_probability, E.PROBABILITY)
  if weight ~= nil then
    E.check_operand(weight, method, "weight", 1)
    if weight.dtype ~= "float32" then weight = weight:float() end
  end
  local kind = E.kind(target)
  if (kind == "tensor" or kind == "parameter") and is_logits_shape(target) then
    if target.dtype ~= "float32" then
      E.reject(method, "target", target, "float32, as it has the shape of %s: probabilities of the classes",
        method == "cross_entropy" and "input" or "the logits")
    end
  else
    if type(target) == "number" then target = core.tensor(target) end
    if kind == "tensor" and target.dtype == "bool" then
      E.reject(method, "target", target, "classes, counted from 1; use target:long() + 1")
    end
    target = core.modules.indices(target, method, "target")
  end
  return target, weight, ignore_index, reduction, smoothing
end

--- target: classes, or probabilities in the shape of input.
function losses.cross_entropy(input, target, ...)
  local method = "cross_entropy"
  local weight, ignore_index, reduction, smoothing = options(method, CROSS_ENTROPY_OPTIONS, 3, input, target, ...)
  local dim = class_dim(input, method)
  local function is_probabilities(t) return tostring(t.shape) == tostring(input.shape) end
  target, weight, ignore_index, reduction, smoothing =
    read_classes(method, target, is_probabilities, weight, ignore_index, reduction, smoothing)
  check_weight(weight, input.shape[dim], method)
  return core.modules.cross_entropy(input, target, weight, ignore_index, reduction, smoothing)
end

local LINEAR_OPTIONS = { "linear_bias", "weight", "reduction", "ignore_index", "label_smoothing" }

--- The cross entropy of input · linear_weightᵀ + linear_bias, in chunks of rows: the logits are never stored whole.
function losses.linear_cross_entropy(input, linear_weight, target, ...)
  local method = "linear_cross_entropy"
  local bias, weight, reduction, ignore_index, smoothing =
    options(method, LINEAR_OPTIONS, 4, input, linear_weight, target, ...)
  E.check_operand(input, method, "input")
  E.check_operand(linear_weight, method, "linear_weight", 2)
  if bias ~= nil then E.check_operand(bias, method, "linear_bias", 1) end
  if input.ndim == 0 or input.shape[input.ndim] ~= linear_weight.shape[2] then
    E.reject(method, "input", input, "[…, %d], the size of a row of linear_weight", linear_weight.shape[2])
  end
  local classes = linear_weight.shape[1]
  local function is_probabilities(t)
    local fits = t.ndim == input.ndim and t.shape[t.ndim] == classes and t.dtype ~= "int64"
    for i = 1, fits and t.ndim - 1 or 0 do fits = fits and t.shape[i] == input.shape[i] end
    return fits
  end
  target, weight, ignore_index, reduction, smoothing =
    read_classes(method, target, is_probabilities, weight, ignore_index, reduction, smoothing)
  check_weight(weight, classes, method)
  if bias ~= nil and bias.shape[1] ~= classes then
    E.reject(method, "linear_bias", bias, "[%d], one for each class", classes)
  end
  return core.modules.linear_cross_entropy(input, linear_weight, bias, target, weight, ignore_index, reduction,
    smoothing)
end

-- ---- Differences --------------------------------------------------------------------------------

local function check_pair(input, target, method)
  E.check_operand(input, method, "input")
  E.check_operand(target, method, "target")
end

--- Raises unless the shapes are equal or broadcast.
local function check_broadcast(input, target, method)
  for i = 1, math.min(input.ndim, target.ndim) do
    local a, b = input.shape[input.ndim + 1 - i], target.shape[target.ndim + 1 - i]
    if a ~= b and a ~= 1 and b ~= 1 then
      E.fail("%s: input is %s and target is %s; the shapes must be equal, or broadcast", method, shape_text(input),
        shape_text(target))
    end
  end
end

--- Defines a loss of the difference input - target. `option` is {name, default}, if it has one: a number, 0 or more.
local function difference(method, option, formula)
  local names = { "reduction", option and option[1] }
  losses[method] = function(input, target, ...)
    check_pair(input, target, method)
    check_broadcast(input, target, method)
    local reduction, value = options(method, names, 3, input, target, ...)
    reduction = check_reduction(reduction, method)
    if option then
      value = E.number(value, option[2], method, option[1], function(v) return v >= 0 end, "a number, 0 or more")
    end
    return reduced(formula((input - target):float(), value), reduction)
  end
end

difference("mse_loss", nil, function(d) return d * d end)
difference("l1_loss", nil, function(d) return d:abs() end)
-- The square is that of 0 where it is not chosen, so that its gradient is no 0 · inf.
difference("smooth_l1_loss", { "beta", 1 }, function(d, beta)
  local size = d:abs()
  if beta == 0 then return size end
  local is_small = size:lt(beta)
  local small = is_small:where(size, 0)
  return is_small:where(small * small * 0.5 / beta, size - 0.5 * beta)
end)
difference("huber_loss", { "delta", 1 }, function(d, delta)
  local size = d:abs()
  local is_small = size:lt(delta)
  local small = is_small:where(size, 0)
  return is_small:where(small * small * 0.5, (size - 0.5 * delta) * delta)
end)

-- ---- Probabilities ------------------------------------------------------------------------------

local function check_same_shape(input, target, method)
  check_pair(input, target, method)
  if tostring(target.shape) ~= tostring(input.shape) then
    E.reject(method, "target", target, "%s, the shape of input", shape_text(input))
  end
end

function losses.binary_cross_entropy(input, target, ...)
  local method = "binary_cross_entropy"
  check_same_shape(input, target, method)
  local weight, reduction = options(method, { "weight", "reduction" }, 3, input, target, ...)
  if weight ~= nil then E.check_operand(weight, method, "weight") end
  reduction = check_reduction(reduction, method)
  if not input:ge(0):logical_and(input:le(1)):all():item() then
    E.reject(method, "input", input, "probabilities from 0 to 1; for scores, use binary_cross_entropy_with_logits")
  end
  input = input:float()
  local x, t = input:detach(), target:detach()
  local log_x, log_rest = x:log():clamp(-100), (-x):log1p():clamp(-100)
  local loss = (t - 1) * log_rest - t * log_x
  -- As PyTorch: the slope is finite also at 0 and 1. What is added is 0.
  if input.requires_grad then loss = loss + (input - x) * ((x - t) / ((1 - x) * x):clamp(1e-12)) end
  if target.requires_grad then loss = loss + (target - t) * (log_rest - log_x) end
  if weight then loss = loss * weight end
  return reduced(loss, reduction)
end

function losses.binary_cross_entropy_with_logits(input, target, ...)
  local method = "binary_cross_entropy_with_logits"
  check_same_shape(input, target, method)
  local weight, reduction, positive = options(method, { "weight", "reduction", "pos_weight" }, 3, input, target, ...)
  if weight ~= nil then E.check_operand(weight, method, "weight") end
  if positive ~= nil then E.check_operand(positive, method, "pos_weight") end
  reduction = check_reduction(reduction, method)
  -- (1 - t) x + p ln (1 + e^-x), p = 1 for negative targets, in terms of ln (1 + e^-|x|); in two branches, so that the
  -- gradient is exact at 0 and keeps its digits where it is small
  local is_below = input:lt(0)
  local rest = is_below:where(input, -input):exp():log1p()
  local hits = positive and positive * target or target
  if positive then rest = rest * ((positive - 1) * target + 1) end
  local loss = is_below:where(-hits * input, (1 - target) * input) + rest
  if weight then loss = loss * weight end
  return reduced(loss, reduction)
end

--- input: logarithms of probabilities; target: probabilities, or with log_target their logarithms.
function losses.kl_div(input, target, ...)
  local method = "kl_div"
  check_pair(input, target, method)
  check_broadcast(input, target, method)
  local reduction, log_target = options(method, { "reduction", "log_target" }, 3, input, target, ...)
  reduction = check_reduction(reduction, method, KL_REDUCTIONS)
  local loss
  if E.boolean(log_target, false, method, "log_target") then
    loss = target:exp() * (target - input)
  else
    loss = target:eq(0):where(0, target * target:log()) - target * input
  end
  if reduction == "batchmean" then return loss:sum() / math.max(input.ndim > 0 and input.shape[1] or 1, 1) end
  return reduced(loss, reduction)
end

E.with_names(losses, {
  mse_loss = "MseLossBackward0", smooth_l1_loss = "SmoothL1LossBackward0", huber_loss = "HuberLossBackward0",
  binary_cross_entropy = "BinaryCrossEntropyBackward0",
  binary_cross_entropy_with_logits = "BinaryCrossEntropyWithLogitsBackward0",
})
return E.with_frames(losses)
