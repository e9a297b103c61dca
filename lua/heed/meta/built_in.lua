---@meta _
-- heed.nn: the modules that are written in C, but attention. Options go by position, in this order, or by name in one
-- table. Shape legend: n batch or tokens.

---@class heed.nn
local nn = {}

-- ---- Layers ----

---@class heed.LinearOptions
---@field d_in integer or in_features
---@field d_out integer or out_features
---@field bias? boolean true by default
---@field generator? heed.Generator draws the weights

---@class heed.Linear: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field weight heed.Tensor [d_out, d_in]; a weight of another shape changes in_features and out_features, unless there is a bias of another size
---@field bias? heed.Tensor [d_out]
---@field in_features integer the last size of x
---@field out_features integer the last size of y
---@field steps fun(self: heed.Linear, x: heed.Tensor, options?: { ms: number? }): heed.Steps the product in time slices

---A linear layer, y = x · weightᵀ + bias: x [..., d_in] gives y [..., d_out]. Weight and bias are initialized uniformly
---in ±1/√d_in, with the same random numbers as PyTorch.
---@overload fun(options: heed.LinearOptions): heed.Linear
---@param d_in integer the last size of x
---@param d_out integer the last size of y
---@param bias? boolean|{ bias: boolean?, generator: heed.Generator? } true by default
---@return heed.Linear
---@nodiscard
function nn.Linear(d_in, d_out, bias) end

---@class heed.Dropout: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field p number can be set

---Dropout: in training mode, sets each element to 0 with probability p and multiplies the others by 1 / (1 - p);
---otherwise returns x.
---@param p? number|{ p: number } from 0 to 1; 0.5 by default
---@return heed.Dropout
---@nodiscard
function nn.Dropout(p) end

---@class heed.EmbeddingOptions
---@field num_embeddings integer the largest id
---@field embedding_dim integer the size of a vector
---@field padding_idx? integer counted from 1
---@field generator? heed.Generator draws the weight

---@class heed.Embedding: heed.Module
---@overload fun(ids: heed.Indices): heed.Tensor
---@field weight heed.Tensor [num_embeddings, embedding_dim], which follow if a weight of another shape is assigned
---@field num_embeddings integer the largest id
---@field embedding_dim integer the size of a vector
---@field padding_idx? integer counted from 1

---An embedding table: ids (heed.Indices) of any shape [...], counted from 1, give the rows [..., embedding_dim] of the weight.
---The weight is initialized from the standard normal distribution, with the same random numbers as PyTorch; row
---padding_idx is initialized to 0. An id out of range raises an error.
---@overload fun(options: heed.EmbeddingOptions): heed.Embedding
---@param num_embeddings integer the largest id
---@param embedding_dim integer the size of a vector
---@param padding_idx? integer|{ padding_idx: integer?, generator: heed.Generator? } the id of padding, whose row begins as 0 and gets no gradient
---@return heed.Embedding
---@nodiscard
function nn.Embedding(num_embeddings, embedding_dim, padding_idx) end

-- ---- Normalization ----

---@class heed.RMSNormOptions
---@field normalized_shape integer|integer[] the sizes of the last dimensions, over which to normalize
---@field eps? number 1e-5 by default for LayerNorm, 2^-23 for RMSNorm
---@field elementwise_affine? boolean whether there is a weight; true by default

---@class heed.LayerNormOptions: heed.RMSNormOptions
---@field bias? boolean whether there is a bias, in addition to the weight; true by default

---@class heed.LayerNorm: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field weight? heed.Tensor of normalized_shape
---@field bias? heed.Tensor of normalized_shape
---@field normalized_shape heed.Size the sizes of the last dimensions
---@field eps number can be set
---@field elementwise_affine boolean whether there is a weight

---Layer normalization, (x - mean) / √(var + eps) · weight + bias, over the last dimensions of x, whose sizes are
---normalized_shape. The weight is initialized to 1, the bias to 0.
---@overload fun(options: heed.LayerNormOptions): heed.LayerNorm
---@param normalized_shape integer|integer[] the sizes of the last dimensions
---@param eps? number|{ eps: number?, elementwise_affine: boolean?, bias: boolean? } 1e-5 by default
---@param elementwise_affine? boolean|{ elementwise_affine: boolean?, bias: boolean? }
---@param bias? boolean|{ bias: boolean? }
---@return heed.LayerNorm
---@nodiscard
function nn.LayerNorm(normalized_shape, eps, elementwise_affine, bias) end

---@class heed.RMSNorm: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor
---@field weight? heed.Tensor of normalized_shape
---@field normalized_shape heed.Size the sizes of the last dimensions
---@field eps? number can be set
---@field elementwise_affine boolean whether there is a weight

---Root mean square normalization, x / √(mean(x²) + eps) · weight, over the last dimensions of x. The weight is
---initialized to 1.
---@overload fun(options: heed.RMSNormOptions): heed.RMSNorm
---@param normalized_shape integer|integer[] the sizes of the last dimensions
---@param eps? number|{ eps: number?, elementwise_affine: boolean? } 2^-23 by default, as in PyTorch
---@param elementwise_affine? boolean|{ elementwise_affine: boolean? }
---@return heed.RMSNorm
---@nodiscard
function nn.RMSNorm(normalized_shape, eps, elementwise_affine) end

-- ---- Activations ----

---@class heed.GELU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---The Gaussian error linear unit x · Φ(x), where Φ is the normal distribution function, or its approximation with tanh.
---@param approximate? "none"|"tanh"|{ approximate: "none"|"tanh" } "none" by default
---@return heed.GELU
---@nodiscard
function nn.GELU(approximate) end

---@class heed.SiLU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---The activation x · sigmoid(x), also called swish.
---@return heed.SiLU
---@nodiscard
function nn.SiLU() end

---@class heed.ReLU: heed.Module
---@overload fun(x: heed.Tensor): heed.Tensor

---The activation max(x, 0).
---@return heed.ReLU
---@nodiscard
function nn.ReLU() end
