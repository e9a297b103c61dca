--- nn.functional: the functional forms of the modules. Those that are operations of tensors are these operations.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local noted = core.modules.noted
local options = core.modules.options

local F = {}

-- ---- Operations of tensors ----------------------------------------------------------------------

--- Functions that are the method of the same name of their first argument.
for _, name in ipairs {
  "dropout", "gelu", "linear", "log_softmax", "pad", "scaled_dot_product_attention", "sigmoid", "softmax", "tanh",
} do
  F[name] = function(x, ...)
    E.check_tensor(x, name, "input")
    return x[name](x, ...)
  end
end

--- Ids, or one of them, as int64.
local function ids(x, method)
  return core.modules.indices(type(x) == "number" and core.tensor(x) or x, method, "input")
end

function F.one_hot(x, ...) return ids(x, "one_hot"):one_hot(...) end

--- Row padding_idx gets no gradient; else it is an ordinary row.
function F.embedding(x, weight, ...)
  local padding = options("embedding", { "padding_idx" }, 3, x, weight, ...)
  E.check_tensor(weight, "embedding", "weight", 2)
  x = ids(x, "embedding")
  if padding == nil then return x:embedding(weight) end
  local rows = weight.shape[1]
  padding = E.integer(padding, nil, "embedding", "padding_idx")
  if padding == 0 or math.abs(padding) > rows then
    E.reject("embedding", "padding_idx", padding, "from 1 to %d, or from -%d to -1", rows, rows)
  end
  return core.modules.embedding(x, weight, padding < 0 and padding + rows + 1 or padding)
end

-- ---- Activations --------------------------------------------------------------------------------

--- The result, or with `inplace` x, into which it is copied.
local function placed(x, result, inplace, method, name)
  if E.boolean(inplace, false, method, "inplace") then return noted(name .. "1", nil, x:copy_(result)) end
  return noted(name .. "0", x, result)
end

for _, name in ipairs { "relu", "silu" } do
  F[name] = function(x, ...)
    E.check_tensor(x, name, "input")
    local inplace = E.boolean(options(name, { "inplace" }, 2, x, ...), false, name, "inplace")
    return x[inplace and name .. "_" or name](x)
  end
end

-- Where one of two formulas is chosen below, the other one gets elements that do not overflow: its gradient there is 0
-- times that of the formula, and 0 · inf is nan.

function F.logsigmoid(x)
  E.check_operand(x, "logsigmoid", "input")
  x = x:float()
  local is_below = x:lt(0) -- not clamp and abs, whose gradients at 0 do not add up to 1/2
  return is_below:where(x, 0) - is_below:where(x, -x):exp():log1p()
end

--- log(1 + e^(beta x)) / beta, and x itself where beta x exceeds the threshold.
function F.softplus(x, ...)
  E.check_operand(x, "softplus", "input")
  local beta, threshold = options("softplus", { "beta", "threshold" }, 2, x, ...)
  beta = E.number(beta, 1, "softplus", "beta", function(value) return value ~= 0 end, "a number other than 0")
  threshold = E.number(threshold, 20, "softplus", "threshold")
  x = x:float()
  local y = x * beta
  local is_linear = y:gt(threshold)
  -- 0 where it is linear, so that the gradient of what is not chosen is no 0 · inf
  return is_linear:where(x, is_linear:where(0, y):exp():log1p() / beta)
end

function F.leaky_relu(x, ...)
  E.check_operand(x, "leaky_relu", "input")
  local slope, inplace = options("leaky_relu", { "negative_slope", "inplace" }, 2, x, ...)
  slope = E.number(slope, 0.01, "leaky_relu", "negative_slope")
  return placed(x, x:gt(0):where(x, x * slope), inplace, "leaky_relu", "LeakyReluBackward")
end

function F.elu(x, ...)
  E.check_operand(x, "elu", "input")
  local alpha, inplace = options("elu", { "alpha", "inplace" }, 2, x, ...)
  alpha = E.number(alpha, 1, "elu", "alpha")
  local is_above = x:gt(0)
  -- 0 where x is above, so that the gradient of what is not chosen is no 0 · inf
  return placed(x, is_above:where(x, is_above:where(0, x):expm1() * alpha), inplace, "elu", "EluBackward")
end

--- The first half of x along dim, times the sigmoid of the second.
function F.glu(x, ...)
  E.check_operand(x, "glu", "input")
  local dim = options("glu", { "dim" }, 2, x, ...)
  dim = E.integer(dim, -1, "glu", "dim")
  local size = x:size(dim)
  if size % 2 ~= 0 then E.fail("glu: input has %d elements along dim %d; it must be an even number", size, dim) end
  local half = compat.divide(size, 2)
  return x:narrow(dim, 1, half) * x:narrow(dim, half + 1, half):sigmoid()
end

-- ---- Norms --------------------------------------------------------------------------------------

--- The number of sizes in a normalized_shape, which must be the last sizes of x.
local function count_normalized(x, shape, method)
  if type(shape) ~= "number" and not E.is_list(shape) then
    E.reject(method, "normalized_shape", shape, "an integer or a list of sizes")
  end
  local count = type(shape) == "number" and 1 or #shape
  local fits = count >= 1 and count <= x.ndim
  local sizes = {}
  for i = 1, count do
    E.check_cancel(method)
    local size = type(shape) == "number" and shape or shape[i]
    if type(size) ~= "number" then E.reject(method, "an element of normalized_shape", size, "an integer") end
    sizes[i] = tostring(size)
    fits = fits and size == x.shape[x.ndim - count + i]
  end
  if not fits then
    E.fail("%s: normalized_shape is %s and input is %s; it must be the last sizes of input", method,
      type(shape) == "number" and tostring(shape) or ("[%s]"):format(table.concat(sizes, ", ")),
      tostring(x.shape):match "%[.*%]")
  end
  return count
end

--- x normalised over its last sizes, which are `shape`.
local function normalized(x, shape, weight, bias, eps, method)
  local count = count_normalized(x, shape, method)
  if weight ~= nil then E.check_tensor(weight, method, "weight", count) end
  if bias ~= nil then E.check_tensor(bias, method, "bias", count) end
  return core.modules.normalize(x, count, weight, bias, eps, method)
end

function F.layer_norm(x, shape, ...)
  E.check_operand(x, "layer_norm", "input")
  local weight, bias, eps = options("layer_norm", { "weight", "bias", "eps" }, 3, x, shape, ...)
  return normalized(x, shape, weight, bias, E.number(eps, 1e-5, "layer_norm", "eps"), "layer_norm")
end

function F.rms_norm(x, shape, ...)
  E.check_operand(x, "rms_norm", "input")
  local weight, eps = options("rms_norm", { "weight", "eps" }, 3, x, shape, ...)
  return normalized(x, shape, weight, nil, E.number(eps, 2 ^ -23, "rms_norm", "eps"), "rms_norm")
end

local BATCH_NORM = { "weight", "bias", "training", "momentum", "eps" }

--- Statistics of the batch in training, which also update the running ones; else the running ones.
function F.batch_norm(x, running_mean, running_var, ...)
  local method = "batch_norm"
  E.check_operand(x, method, "input")
  local weight, bias, training, momentum, eps =
    options(method, BATCH_NORM, 4, x, running_mean, running_var, ...)
  training = E.boolean(training, false, method, "training")
  momentum = E.number(momentum, 0.1, method, "momentum")
  eps = E.number(eps, 1e-5, method, "eps")
  if x.ndim < 2 then E.reject(method, "input", x, "a tensor [n, c] or [n, c, …]") end
  local channels = x.shape[2]
  for _, each in ipairs { { "running_mean", running_mean }, { "running_var", running_var }, { "weight", weight },
    { "bias", bias } } do
    local name, tensor = each[1], each[2]
    if tensor ~= nil then
      E.check_tensor(tensor, method, name, 1)
      if tensor.shape[1] ~= channels then E.reject(method, name, tensor, "[%d], the channels of input", channels) end
    elseif not training and each[1]:find "^running" then
      E.reject(method, name, nil, "a tensor, unless training is true")
    end
  end

  local mean, variance = running_mean, running_var
  local targets, updates = {}, {}
  if training then
    local dims, count = { 1 }, x:numel() / channels
    for i = 3, x.ndim do dims[#dims + 1] = i end
    if count <= 1 then
      E.reject(method, "input", x, "a tensor of several values for each channel in training; use m:eval() for one")
    end
    mean, variance = x:mean(dims), x:var(dims, { correction = 0 })
    local function update(running, new, share)
      if not running then return end
      targets[#targets + 1], updates[#updates + 1] = running, running * (1 - momentum) + new * share
    end
    update(running_mean, mean, momentum)
    update(running_var, variance, count / (count - 1) * momentum)
  end
  local scale = (variance + eps):rsqrt()
  if weight then scale = scale * weight end
  local shift = -mean * scale
  if bias then shift = bias + shift end
  local sizes = { 1, channels }
  for i = 3, x.ndim do sizes[i] = 1 end
  local y = x * scale:view(sizes) + shift:view(sizes)
  core.modules.copy_all(targets, updates)
  return y
end

-- ---- Distances ----------------------------------------------------------------------------------

--- x divided by its p-norm along dim, or by eps if that is larger.
function F.normalize(x, ...)
  E.check_operand(x, "normalize", "input")
  local p, dim, eps = options("normalize", { "p", "dim", "eps" }, 2, x, ...)
  p, eps = E.number(p, 2, "normalize", "p"), E.number(eps, 1e-12, "normalize", "eps")
  dim = E.integer(dim, 2, "normalize", "dim")
  return x / x:norm(p, dim, true):clamp(eps)
end

function F.cosine_similarity(x1, x2, ...)
  E.check_operand(x1, "cosine_similarity", "x1")
  E.check_operand(x2, "cosine_similarity", "x2")
  local dim, eps = options("cosine_similarity", { "dim", "eps" }, 3, x1, x2, ...)
  dim = E.integer(dim, 2, "cosine_similarity", "dim")
  eps = E.number(eps, 1e-8, "cosine_similarity", "eps")
  local function unit(x) return x / x:norm(2, dim, true):clamp(eps) end
  return (unit(x1) * unit(x2)):sum(dim)
end

E.with_names(F, {
  logsigmoid = "LogSigmoidBackward0", softplus = "SoftplusBackward0", glu = "GluBackward0",
  batch_norm = "NativeBatchNormBackward0",
})
E.with_frames(F)
if core.modules.cross_entropy then -- else a build without training
  for name, loss in pairs(require "heed.nn.loss_functions") do F[name] = loss end -- these have frames already
end

return core.modules.guard(F, "heed.nn.functional")
