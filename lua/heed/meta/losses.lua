---@meta _
-- The losses as modules, and heed.nn.init. Options go by position, in this order, or by name in one table.

---@class heed.nn
local nn = {}

-- ---- Losses as modules ----

---@class heed.Loss: heed.Module
---@field reduction string "mean", "sum" or "none"
---@overload fun(input: heed.Tensor, target: heed.Tensor|integer[]): heed.Tensor

---Cross entropy of scores and classes, which count from 1. The weight is a buffer.
---@param weight? heed.Tensor|heed.CrossEntropyOptions
---@param ignore_index? integer
---@param reduction? heed.Reduction
---@param label_smoothing? number
---@return heed.Loss
---@nodiscard
function nn.CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing) end

---Negative log likelihood of logarithms of probabilities and classes, which count from 1. The weight is a buffer.
---@param weight? heed.Tensor|heed.ClassOptions
---@param ignore_index? integer
---@param reduction? heed.Reduction
---@return heed.Loss
---@nodiscard
function nn.NLLLoss(weight, ignore_index, reduction) end

---The squared error.
---@param reduction? heed.Reduction|heed.ReductionOption
---@return heed.Loss
---@nodiscard
function nn.MSELoss(reduction) end

---The absolute error.
---@param reduction? heed.Reduction|heed.ReductionOption
---@return heed.Loss
---@nodiscard
function nn.L1Loss(reduction) end

---The absolute error, squared below beta.
---@param reduction? heed.Reduction|heed.SmoothOptions
---@param beta? number
---@return heed.Loss
---@nodiscard
function nn.SmoothL1Loss(reduction, beta) end

---The squared error, linear from delta on.
---@param reduction? heed.Reduction|heed.HuberOptions
---@param delta? number
---@return heed.Loss
---@nodiscard
function nn.HuberLoss(reduction, delta) end

---Binary cross entropy of probabilities. The weight is a buffer.
---@param weight? heed.Tensor|heed.BinaryOptions
---@param reduction? heed.Reduction
---@return heed.Loss
---@nodiscard
function nn.BCELoss(weight, reduction) end

---Binary cross entropy of scores before the sigmoid. The weights are buffers.
---@param weight? heed.Tensor|heed.LogitsOptions
---@param reduction? heed.Reduction
---@param pos_weight? heed.Tensor
---@return heed.Loss
---@nodiscard
function nn.BCEWithLogitsLoss(weight, reduction, pos_weight) end

---The Kullback-Leibler divergence of logarithms of probabilities and probabilities.
---@param reduction? heed.Reduction|"batchmean"|heed.DivergenceOptions
---@param log_target? boolean
---@return heed.Loss
---@nodiscard
function nn.KLDivLoss(reduction, log_target) end

-- ---- Initial values ----

---Initial values with PyTorch's random numbers. All functions change the tensor in place and return it. A weight is
---[out, in, …]; fan_in and fan_out are the numbers of inputs and outputs of an element.
---@class heed.nn.init
local init = {}

---@class heed.InitUniform: heed.GeneratorOption
---@field a? number 0 by default
---@field b? number 1 by default

---@class heed.InitNormal: heed.GeneratorOption
---@field mean? number 0 by default
---@field std? number 1 by default

---@class heed.InitTruncated: heed.InitNormal
---@field a? number -2 by default
---@field b? number 2 by default

---@class heed.InitXavier: heed.GeneratorOption
---@field gain? number 1 by default

---@class heed.InitKaiming: heed.GeneratorOption
---@field a? number the slope of leaky_relu; 0 by default
---@field mode? "fan_in"|"fan_out" "fan_in" by default
---@field nonlinearity? string "leaky_relu" by default

---Uniform in [a, b).
---@param tensor heed.Tensor is changed
---@param a? number|heed.InitUniform
---@param b? number|heed.InitUniform
---@return heed.Tensor tensor
function init.uniform_(tensor, a, b) end

---Normal.
---@param tensor heed.Tensor is changed
---@param mean? number|heed.InitNormal
---@param std? number|heed.InitNormal
---@return heed.Tensor tensor
function init.normal_(tensor, mean, std) end

---Normal, with values outside of [a, b] drawn anew.
---@param tensor heed.Tensor is changed
---@param mean? number|heed.InitTruncated
---@param std? number|heed.InitTruncated
---@param a? number|heed.InitTruncated
---@param b? number
---@return heed.Tensor tensor
function init.trunc_normal_(tensor, mean, std, a, b) end

---Uniform in ±gain √(6 / (fan_in + fan_out)).
---@param tensor heed.Tensor is changed
---@param gain? number|heed.InitXavier
---@return heed.Tensor tensor
function init.xavier_uniform_(tensor, gain) end

---Normal, with the standard deviation gain √(2 / (fan_in + fan_out)).
---@param tensor heed.Tensor is changed
---@param gain? number|heed.InitXavier
---@return heed.Tensor tensor
function init.xavier_normal_(tensor, gain) end

---Uniform in ±gain √(3 / fan), with the gain of the nonlinearity.
---@param tensor heed.Tensor is changed
---@param a? number|heed.InitKaiming
---@param mode? "fan_in"|"fan_out"|heed.InitKaiming
---@param nonlinearity? string
---@return heed.Tensor tensor
function init.kaiming_uniform_(tensor, a, mode, nonlinearity) end

---Normal, with the standard deviation gain / √fan.
---@param tensor heed.Tensor is changed
---@param a? number|heed.InitKaiming
---@param mode? "fan_in"|"fan_out"|heed.InitKaiming
---@param nonlinearity? string
---@return heed.Tensor tensor
function init.kaiming_normal_(tensor, a, mode, nonlinearity) end

---Sets all elements to a value.
---@param tensor heed.Tensor is changed
---@param val number the value of every element
---@return heed.Tensor tensor
function init.constant_(tensor, val) end

---Sets all elements to 1.
---@param tensor heed.Tensor is changed
---@return heed.Tensor tensor
function init.ones_(tensor) end

---Sets all elements to 0.
---@param tensor heed.Tensor is changed
---@return heed.Tensor tensor
function init.zeros_(tensor) end

---Ones on the main diagonal, zeros elsewhere.
---@param tensor heed.Tensor of two dimensions
---@return heed.Tensor tensor
function init.eye_(tensor) end

---The recommended gain of a nonlinearity: "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv1d" to "conv3d".
---@param nonlinearity string its name
---@param param? number|{ param: number } the slope of leaky_relu; 0.01 by default
---@return number
---@nodiscard
function init.calculate_gain(nonlinearity, param) end
