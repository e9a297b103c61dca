--- Losses as modules: nn.CrossEntropyLoss and the others. Their forward is the function in nn.functional.

local core = require "heed.core"
local E = require "heed.nn.entries"
local F = require "heed.nn.functional"
local Module = require "heed.nn.module"
local options = core.modules.options

local losses = {}
local WEIGHTS = { weight = true, pos_weight = true }

--- Defines a module that keeps the options of F[name]: weights as buffers, which are part of the state dict, and
--- others as fields.
local function define(class_name, name, names)
  local Class = Module.class(class_name)

  function Class:init(...)
    E.check_self(self, "init")
    local values = { options(class_name, names, 1, ...) }
    for i, option in ipairs(names) do
      local value = values[i]
      if value ~= nil and WEIGHTS[option] then
        E.check_tensor(value, class_name, option)
        self:register_buffer(option, value)
      elseif value ~= nil then
        self[option] = value
      end
    end
    if self.reduction == nil then self.reduction = "mean" end
    E.check_choice(self.reduction, class_name == "KLDivLoss" and { "none", "batchmean", "sum", "mean" } or
      { "none", "mean", "sum" }, class_name, "reduction")
  end

  function Class:forward(input, target, ...)
    E.check_self(self, "forward")
    E.check_tensor(input, class_name, "input")
    if select("#", ...) > 0 then
      E.fail("%s: %d arguments are given; it takes input and target", class_name, select("#", ...) + 2)
    end
    local given = {}
    for _, option in ipairs(names) do given[option] = self[option] end
    return F[name](input, target, given)
  end

  losses[class_name] = E.with_frames(Class)
end

define("CrossEntropyLoss", "cross_entropy", { "weight", "ignore_index", "reduction", "label_smoothing" })
define("NLLLoss", "nll_loss", { "weight", "ignore_index", "reduction" })
define("MSELoss", "mse_loss", { "reduction" })
define("L1Loss", "l1_loss", { "reduction" })
define("SmoothL1Loss", "smooth_l1_loss", { "reduction", "beta" })
define("HuberLoss", "huber_loss", { "reduction", "delta" })
define("BCELoss", "binary_cross_entropy", { "weight", "reduction" })
define("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", { "weight", "reduction", "pos_weight" })
define("KLDivLoss", "kl_div", { "reduction", "log_target" })

return losses
