---@meta _
-- heed.nn: PyTorch's modules that are written in Lua. Options go by position, in this order, or by name in one table.
-- Shape legend: n batch, c channels.

---@class heed.nn
local nn = {}

---@class heed.nn.utils
local utils = {}

-- ---- Parameters ----

---All elements of the parameters, in order, as one tensor [n].
---@param parameters heed.Tensor[]|heed.TensorList such as m:parameters()
---@return heed.Tensor
---@nodiscard
function utils.parameters_to_vector(parameters) end

---Copies the elements of vector [n] into the parameters, in order.
---@param vector heed.Tensor [n]
---@param parameters heed.Tensor[]|heed.TensorList such as m:parameters()
function utils.vector_to_parameters(vector, parameters) end

-- ---- Shapes ----

---@class heed.Identity: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---Returns its arguments. Arguments of the constructor are ignored.
---@param ... any
---@return heed.Identity
---@nodiscard
function nn.Identity(...) end

---@class heed.Flatten: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field start_dim integer the first dimension
---@field end_dim integer the last dimension

---Joins the dimensions start_dim to end_dim, counted from 1, into one.
---@param start_dim? integer|{ start_dim: integer?, end_dim: integer? } 2 by default, so that the batch stays
---@param end_dim? integer -1 by default
---@return heed.Flatten
---@nodiscard
function nn.Flatten(start_dim, end_dim) end

---@class heed.Unflatten: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field dim integer the dimension
---@field unflattened_size integer[] of the new dimensions

---Splits dimension `dim`, counted from 1, into several.
---@param dim integer|{ dim: integer, unflattened_size: integer[] } the dimension
---@param unflattened_size? integer[] -1 for a size that follows from the others
---@return heed.Unflatten
---@nodiscard
function nn.Unflatten(dim, unflattened_size) end

-- ---- Activations ----

---@class heed.Tanh: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---The hyperbolic tangent.
---@return heed.Tanh
---@nodiscard
function nn.Tanh() end

---@class heed.Sigmoid: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---The logistic sigmoid 1 / (1 + e^-x).
---@return heed.Sigmoid
---@nodiscard
function nn.Sigmoid() end

---@class heed.LogSigmoid: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---The logarithm of the sigmoid.
---@return heed.LogSigmoid
---@nodiscard
function nn.LogSigmoid() end

---@class heed.Softmax: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field dim integer along which the results add up to 1

---Softmax along dim, counted from 1. There is no default.
---@param dim integer|{ dim: integer } negative ones count from the last
---@return heed.Softmax
---@nodiscard
function nn.Softmax(dim) end

---@class heed.LogSoftmax: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field dim integer along which the results add up to 1

---The logarithm of softmax along dim, counted from 1. There is no default.
---@param dim integer|{ dim: integer } negative ones count from the last
---@return heed.LogSoftmax
---@nodiscard
function nn.LogSoftmax(dim) end

---@class heed.Softplus: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field beta number as given to the constructor
---@field threshold number as given to the constructor

---log(1 + e^(beta x)) / beta; x itself where beta x exceeds the threshold.
---@param beta? number|{ beta: number?, threshold: number? } 1 by default
---@param threshold? number 20 by default
---@return heed.Softplus
---@nodiscard
function nn.Softplus(beta, threshold) end

---@class heed.LeakyReLU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field negative_slope number as given to the constructor
---@field inplace boolean as given to the constructor

---x where x > 0, else negative_slope · x.
---@param negative_slope? number|{ negative_slope: number?, inplace: boolean? } 0.01 by default
---@param inplace? boolean whether to write the result into x; false by default
---@return heed.LeakyReLU
---@nodiscard
function nn.LeakyReLU(negative_slope, inplace) end

---@class heed.ELU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field alpha number as given to the constructor
---@field inplace boolean as given to the constructor

---x where x > 0, else alpha (e^x - 1).
---@param alpha? number|{ alpha: number?, inplace: boolean? } 1 by default
---@param inplace? boolean whether to write the result into x; false by default
---@return heed.ELU
---@nodiscard
function nn.ELU(alpha, inplace) end

---@class heed.GLU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field dim integer the dimension that is halved

---Gated linear unit: the first half of x along dim, times the sigmoid of the second half.
---@param dim? integer|{ dim: integer } counted from 1; -1 by default
---@return heed.GLU
---@nodiscard
function nn.GLU(dim) end

---@class heed.SwiGLUOptions
---@field in_features integer the last size of x
---@field hidden_features integer between the layers
---@field out_features? integer in_features by default
---@field bias? boolean false by default
---@field generator? heed.Generator draws the weights

---@class heed.SwiGLU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field w1 heed.Linear the gate
---@field w2 heed.Linear from the hidden features to the result
---@field w3 heed.Linear what is gated

---The feed-forward layer of Llama and its relatives, w2(silu(w1(x)) · w3(x)).
---@overload fun(options: heed.SwiGLUOptions): heed.SwiGLU
---@param in_features integer the last size of x
---@param hidden_features integer between the layers
---@param out_features? integer|heed.SwiGLUOptions
---@param bias? boolean
---@return heed.SwiGLU
---@nodiscard
function nn.SwiGLU(in_features, hidden_features, out_features, bias) end

-- ---- Normalization ----

---@class heed.BatchNormOptions
---@field num_features? integer channels
---@field eps? number 1e-5 by default
---@field momentum? number|false the share of the new batch in the running statistics; 0.1 by default. false: their average over all batches
---@field affine? boolean whether there are a weight and a bias; true by default
---@field track_running_stats? boolean whether there are running statistics, which replace those of the batch in evaluation; true by default
---@field bias? boolean whether there is a bias, in addition to the weight; true by default

---@class heed.BatchNorm1d: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field num_features integer channels
---@field eps number as given to the constructor
---@field momentum number|false as given to the constructor
---@field affine boolean as given to the constructor
---@field track_running_stats boolean as given to the constructor
---@field weight? heed.Tensor [c]
---@field bias? heed.Tensor [c]
---@field running_mean? heed.Tensor [c]
---@field running_var? heed.Tensor [c]
---@field num_batches_tracked? heed.Tensor int64, the number of training passes

---Normalizes each channel of x [n, c] or [n, c, length] over the batch: (x - mean) / √(var + eps) · weight + bias, with
---the statistics of x in training mode and the running ones otherwise.
---@param num_features integer|heed.BatchNormOptions channels
---@param eps? number|heed.BatchNormOptions
---@param momentum? number|false|heed.BatchNormOptions
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return heed.BatchNorm1d
---@nodiscard
function nn.BatchNorm1d(num_features, eps, momentum, affine, track_running_stats, bias) end

-- ---- Containers ----

---Modules by name, in the order in which they were added: d.name, `for name, m in d:items() do`, #d.
---@class heed.ModuleDict: heed.Module
---@operator len: integer
local ModuleDict = {}

---Makes a container of modules by name.
---@param items? table<string, heed.Module>|any[] by name (sorted), or a list of {name, module}, which keeps its order
---@return heed.ModuleDict
---@nodiscard
function nn.ModuleDict(items) end

---Adds or replaces modules; if one is refused, none is added.
---@param items table<string, heed.Module>|any[] as for the constructor
---@return heed.ModuleDict self
function ModuleDict:update(items) end

---The names, in order.
---@return string[]
---@nodiscard
function ModuleDict:keys() end

---The modules, in order.
---@return heed.Module[]
---@nodiscard
function ModuleDict:values() end

---An iterator over names and modules, in order.
---@return fun(): string, heed.Module
function ModuleDict:items() end

---Removes a module and returns it.
---@param name string of the module
---@return heed.Module
function ModuleDict:pop(name) end

---Removes all modules.
function ModuleDict:clear() end

---Parameters by number, from 1: p[1], p[-1], #p.
---@class heed.ParameterList: heed.Module
---@field [integer] heed.Tensor
---@operator len: integer
local ParameterList = {}

---Makes a list of parameters, which share the elements of the tensors.
---@param tensors? heed.Tensor[] in order
---@return heed.ParameterList
---@nodiscard
function nn.ParameterList(tensors) end

---Appends a tensor as a parameter.
---@param tensor heed.Tensor float32
---@return heed.ParameterList self
function ParameterList:append(tensor) end

---Appends the tensors of a list; if one is refused, none is appended.
---@param list heed.Tensor[]|heed.ParameterList what to append
---@return heed.ParameterList self
function ParameterList:extend(list) end

---Parameters by name, with the methods of ModuleDict.
---@class heed.ParameterDict: heed.ModuleDict

---Makes a container of parameters by name, which share the elements of the tensors.
---@param items? table<string, heed.Tensor>|any[] by name (sorted), or a list of {name, tensor}, which keeps its order
---@return heed.ParameterDict
---@nodiscard
function nn.ParameterDict(items) end
