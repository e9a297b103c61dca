--- Activation functions as modules: nn.Tanh, nn.Softmax, nn.LeakyReLU, … Their forward is the function of the same kind
--- in nn.functional.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local F = require "heed.nn.functional"
local Module = require "heed.nn.module"
local options, python_number = core.modules.options, core.modules.python_number

local activations = {}

local function number_text(value) return type(value) == "number" and python_number(value) or tostring(value) end

--- Defines a module that applies F[name] with settings: {name, default, read, text}. read(value, default, class, name)
--- returns the checked value; text(value) is how it is printed.
local function define(class_name, name, settings)
  local Class = Module.class(class_name)
  local names = {}
  for i, setting in ipairs(settings) do names[i] = setting.name end

  function Class:init(...)
    E.check_self(self, "init")
    local values = { options(class_name, names, 1, ...) }
    for i, setting in ipairs(settings) do
      self[setting.name] = setting.read(values[i], setting.default, class_name, setting.name)
    end
  end

  function Class:forward(x, ...)
    E.check_input(self, x, ...)
    local values = {}
    for i, setting in ipairs(settings) do values[i] = self[setting.name] end
    return F[name](x, compat.unpack(values, 1, #settings))
  end

  function Class:extra_repr()
    local texts = {}
    for _, setting in ipairs(settings) do
      local value = self[setting.name]
      if setting.name ~= "inplace" then
        texts[#texts + 1] = setting.name .. "=" .. (setting.text or number_text)(value)
      elseif value then
        texts[#texts + 1] = "inplace=True"
      end
    end
    return table.concat(texts, ", ")
  end

  activations[class_name] = E.with_frames(Class)
end

local function dimension(value, default, method, argument)
  if value == nil and default == nil then
    E.reject(method, argument, value, "an integer: the dimension along which to normalize, such as -1")
  end
  return E.integer(value, default, method, argument)
end

local function integer_text(value) return ("%d"):format(value) end
local function number(name, default) return { name = name, default = default, read = E.number } end
local function dim(default) return { name = "dim", default = default, read = dimension, text = integer_text } end
local inplace = { name = "inplace", default = false, read = E.boolean }

define("Tanh", "tanh", {})
define("Sigmoid", "sigmoid", {})
define("LogSigmoid", "logsigmoid", {})
define("Softmax", "softmax", { dim() })
define("LogSoftmax", "log_softmax", { dim() })
define("Softplus", "softplus", { number("beta", 1), number("threshold", 20) })
define("LeakyReLU", "leaky_relu", { number("negative_slope", 0.01), inplace })
define("ELU", "elu", { number("alpha", 1), inplace })
define("GLU", "glu", { dim(-1) })

return activations
