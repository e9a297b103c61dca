--- nn.init: initial values, with PyTorch's random numbers. Functions whose name ends in _ change the tensor in
--- place and return it.

local core = require "heed.core"
local E = require "heed.nn.entries"
local options = core.modules.options

local init = {}

-- ---- Gains and fans -----------------------------------------------------------------------------

local GAINS = {
  linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4,
}
local MODES = { "fan_in", "fan_out" }

--- The recommended gain of a nonlinearity; param is the slope of leaky_relu.
function init.calculate_gain(nonlinearity, ...)
  local param = options("calculate_gain", { "param" }, 2, nonlinearity, ...)
  if nonlinearity == "leaky_relu" then
    local slope = E.number(param, 0.01, "calculate_gain", "param")
    return math.sqrt(2 / (1 + slope * slope))
  end
  local gain = GAINS[nonlinearity]
  if not gain then
    E.reject("calculate_gain", "nonlinearity", nonlinearity,
      "'linear', 'sigmoid', 'tanh', 'relu', 'leaky_relu', 'selu' or 'conv1d' to 'conv3d'")
  end
  return gain
end

--- fan_in and fan_out of a weight [out, in, …].
local function fans(x, method)
  E.check_tensor(x, method, "tensor")
  if x.ndim < 2 then E.reject(method, "tensor", x, "a tensor of at least 2 dimensions, [out, in, …]") end
  local field = 1
  for i = 3, x.ndim do field = field * x.shape[i] end
  return x.shape[2] * field, x.shape[1] * field
end

-- ---- Draws --------------------------------------------------------------------------------------

function init.uniform_(x, ...)
  E.check_tensor(x, "uniform_", "tensor")
  local a, b, generator = options("uniform_", { "a", "b", "generator" }, 2, x, ...)
  return x:uniform_(E.number(a, 0, "uniform_", "a"), E.number(b, 1, "uniform_", "b"), { generator = generator })
end

function init.normal_(x, ...)
  E.check_tensor(x, "normal_", "tensor")
  local mean, std, generator = options("normal_", { "mean", "std", "generator" }, 2, x, ...)
  return x:normal_(E.number(mean, 0, "normal_", "mean"), E.number(std, 1, "normal_", "std"), { generator = generator })
end

local function spread_of_xavier(x, method, ...)
  local gain, generator = options(method, { "gain", "generator" }, 2, x, ...)
  local fan_in, fan_out = fans(x, method)
  return E.number(gain, 1, method, "gain") * math.sqrt(2 / (fan_in + fan_out)), generator
end

function init.xavier_uniform_(x, ...)
  local std, generator = spread_of_xavier(x, "xavier_uniform_", ...)
  local bound = math.sqrt(3) * std
  return x:uniform_(-bound, bound, { generator = generator })
end

function init.xavier_normal_(x, ...)
  local std, generator = spread_of_xavier(x, "xavier_normal_", ...)
  return x:normal_(0, std, { generator = generator })
end

local KAIMING = { "a", "mode", "nonlinearity", "generator" }

local function spread_of_kaiming(x, method, ...)
  local a, mode, nonlinearity, generator = options(method, KAIMING, 2, x, ...)
  a = E.number(a, 0, method, "a")
  if mode == nil then mode = "fan_in" end
  E.check_choice(mode, MODES, method, "mode")
  local fan_in, fan_out = fans(x, method)
  local gain = init.calculate_gain(nonlinearity == nil and "leaky_relu" or nonlinearity, a)
  return gain / math.sqrt(mode == "fan_in" and fan_in or fan_out), generator
end

function init.kaiming_uniform_(x, ...)
  local std, generator = spread_of_kaiming(x, "kaiming_uniform_", ...)
  local bound = math.sqrt(3) * std
  return x:uniform_(-bound, bound, { generator = generator })
end

function init.kaiming_normal_(x, ...)
  local std, generator = spread_of_kaiming(x, "kaiming_normal_", ...)
  return x:normal_(0, std, { generator = generator })
end

--- Draws all elements again until each was in [a, b] once.
local function redraw(x, mean, std, a, b, drawn)
  a, b = core.tensor(a):item(), core.tensor(b):item() -- rounded to float32
  local function outside(values) return values:lt(a):logical_or(values:gt(b)) end
  x:normal_(mean, std, drawn)
  local mask = outside(x)
  while mask:any():item() do
    E.check_cancel "trunc_normal_"
    x:copy_(mask:where(x:empty_like():normal_(mean, std, drawn), x))
    mask = outside(x)
  end
end

--- Draws uniformly from [a, b], and keeps an element with its density, relative to the largest in [a, b].
local function accept(x, mean, std, a, b, drawn)
  local peak = -0.5 * ((math.max(a, math.min(mean, b)) - mean) / std) ^ 2
  local chance = x:empty_like()
  local function refused(values)
    return chance:uniform_(drawn):log_():gt((values - mean):div_(std):pow_(2):mul_(-0.5):sub_(peak))
  end
  local mask = refused(x:uniform_(a, b, drawn))
  while mask:any():item() do
    E.check_cancel "trunc_normal_"
    local values = x:empty_like():uniform_(a, b, drawn)
    x:copy_(mask:where(values, x))
    mask = mask:logical_and(refused(values))
  end
end

local TRUNC = { "mean", "std", "a", "b", "generator" }
local LEAST_SHARE = 0.3 -- of the distribution in [a, b]: with more of it, PyTorch redraws

function init.trunc_normal_(x, ...)
  local method = "trunc_normal_"
  E.check_tensor(x, method, "tensor")
  local mean, std, a, b, generator = options(method, TRUNC, 2, x, ...)
  mean = E.number(mean, 0, method, "mean")
  std = E.number(std, 1, method, "std", function(value) return value > 0 end, "a number above 0")
  a, b = E.number(a, -2, method, "a"), E.number(b, 2, method, "b")
  if a >= b then E.fail("%s: a is %s and b is %s; a must be less than b", method, a, b) end
  local ends = (core.tensor({ a - mean, b - mean }) / (std * math.sqrt(2))):erf():tolist()
  local draw = (ends[2] - ends[1]) / 2 > LEAST_SHARE and redraw or accept
  draw(x, mean, std, a, b, { generator = generator })
  return x
end

-- ---- Constants ----------------------------------------------------------------------------------

function init.constant_(x, value)
  E.check_tensor(x, "constant_", "tensor")
  return x:fill_(E.number(value, nil, "constant_", "val"))
end

function init.ones_(x)
  E.check_tensor(x, "ones_", "tensor")
  return x:fill_(1)
end

function init.zeros_(x)
  E.check_tensor(x, "zeros_", "tensor")
  return x:fill_(0)
end

function init.eye_(x)
  E.check_tensor(x, "eye_", "tensor", 2)
  return x:copy_(core.eye(x.shape[1], x.shape[2]))
end

-- Parameters change here without being recorded.
for name, f in pairs(init) do
  if name:find "_$" then init[name] = function(...) return core.modules.unrecorded(f, ...) end end
end

return core.modules.guard(E.with_frames(init), "heed.nn.init")
