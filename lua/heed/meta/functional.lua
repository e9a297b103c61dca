---@meta _
-- heed.nn.functional, the functional forms of the modules and the losses; the losses as modules; heed.nn.init. Options go
-- by position, in this order, or by name in one table. Shape legend: n batch, c classes or channels.

---@class heed.nn
---@field functional heed.nn.functional the modules as functions, and the losses
---@field init heed.nn.init initial values of parameters
local nn = {}

---`local F = heed.nn.functional`
---@class heed.nn.functional
local F = {}

-- ---- Operations of tensors: see the methods of the same name ----

---@param input heed.Tensor
---@param p? number|heed.DropoutOptions
---@param training? boolean true by default, also here
---@return heed.Tensor
---@nodiscard
function F.dropout(input, p, training) end

---@param input heed.Tensor
---@param approximate? "none"|"tanh"|{ approximate: "none"|"tanh" } "none" by default
---@return heed.Tensor
---@nodiscard
function F.gelu(input, approximate) end

---@param input heed.Tensor
---@param weight heed.Tensor [d_out, d_in]
---@param bias? heed.Tensor [d_out]
---@return heed.Tensor
---@nodiscard
function F.linear(input, weight, bias) end

---@param input heed.Tensor
---@param dim integer|{ dim: integer } along which the results add up to 1; negative ones count from the last
---@return heed.Tensor
---@nodiscard
function F.softmax(input, dim) end

---@param input heed.Tensor
---@param dim integer|{ dim: integer } along which the results add up to 1; negative ones count from the last
---@return heed.Tensor
---@nodiscard
function F.log_softmax(input, dim) end

---@param input heed.Tensor
---@param pad integer[] pairs of counts before and after, beginning with the last dimension
---@param mode? string
---@param value? number
---@return heed.Tensor
---@nodiscard
function F.pad(input, pad, mode, value) end

---@param query heed.Tensor
---@param key heed.Tensor
---@param value heed.Tensor
---@param attn_mask? heed.Tensor|heed.Mask|heed.AttentionOptions bool, true where a key is VISIBLE, or float32, added to the scores
---@param dropout_p? number
---@param is_causal? boolean
---@return heed.Tensor
---@return heed.AttentionTaps?
---@nodiscard
function F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal) end

---@param input heed.Tensor
---@return heed.Tensor
---@nodiscard
function F.sigmoid(input) end

---@param input heed.Tensor
---@return heed.Tensor
---@nodiscard
function F.tanh(input) end

---@param input heed.Tensor|integer[] ids, counted from 1
---@param num_classes? integer
---@return heed.Tensor
---@nodiscard
function F.one_hot(input, num_classes) end

---@param input heed.Tensor|integer[] ids, counted from 1
---@param weight heed.Tensor [size, d]
---@param padding_idx? integer without effect on the result
---@return heed.Tensor
---@nodiscard
function F.embedding(input, weight, padding_idx) end

-- ---- Activations ----

---@class heed.InplaceOption
---@field inplace? boolean whether to write the result into input; false by default

---max(input, 0).
---@param input heed.Tensor of any shape
---@param inplace? boolean|heed.InplaceOption
---@return heed.Tensor
function F.relu(input, inplace) end

---input · sigmoid(input), SiLU, also called swish.
---@param input heed.Tensor of any shape
---@param inplace? boolean|heed.InplaceOption
---@return heed.Tensor
function F.silu(input, inplace) end

---The logarithm of the sigmoid.
---@param input heed.Tensor of any shape
---@return heed.Tensor
---@nodiscard
function F.logsigmoid(input) end

---log(1 + e^(beta x)) / beta; x itself where beta x exceeds the threshold.
---@param input heed.Tensor of any shape
---@param beta? number|{ beta: number?, threshold: number? } 1 by default
---@param threshold? number 20 by default
---@return heed.Tensor
---@nodiscard
function F.softplus(input, beta, threshold) end

---x where x > 0, else negative_slope · x.
---@param input heed.Tensor of any shape
---@param negative_slope? number|{ negative_slope: number?, inplace: boolean? } 0.01 by default
---@param inplace? boolean whether to write the result into input; false by default
---@return heed.Tensor
function F.leaky_relu(input, negative_slope, inplace) end

---x where x > 0, else alpha (e^x - 1).
---@param input heed.Tensor of any shape
---@param alpha? number|{ alpha: number?, inplace: boolean? } 1 by default
---@param inplace? boolean whether to write the result into input; false by default
---@return heed.Tensor
function F.elu(input, alpha, inplace) end

---The first half of input along dim, times the sigmoid of the second half.
---@param input heed.Tensor of any shape
---@param dim? integer|{ dim: integer } -1 by default
---@return heed.Tensor
---@nodiscard
function F.glu(input, dim) end

-- ---- Norms ----

---Layer normalization over the last dimensions, whose sizes are normalized_shape.
---@param input heed.Tensor of any shape
---@param normalized_shape integer|integer[] the sizes of the last dimensions
---@param weight? heed.Tensor|heed.AffineOptions of normalized_shape
---@param bias? heed.Tensor|heed.AffineOptions
---@param eps? number 1e-5 by default
---@return heed.Tensor
---@nodiscard
function F.layer_norm(input, normalized_shape, weight, bias, eps) end

---Root mean square normalization over the last dimensions, whose sizes are normalized_shape.
---@param input heed.Tensor of any shape
---@param normalized_shape integer|integer[] the sizes of the last dimensions
---@param weight? heed.Tensor|heed.AffineOptions of normalized_shape
---@param eps? number 2^-23 by default
---@return heed.Tensor
---@nodiscard
function F.rms_norm(input, normalized_shape, weight, eps) end

---@class heed.BatchNormForward
---@field weight? heed.Tensor [c]
---@field bias? heed.Tensor [c]
---@field training? boolean use the statistics of input, and update the running ones; false by default
---@field momentum? number 0.1 by default
---@field eps? number 1e-5 by default

---Normalizes each channel of input [n, c] or [n, c, …].
---@param input heed.Tensor of any shape
---@param running_mean? heed.Tensor [c]
---@param running_var? heed.Tensor [c]
---@param weight? heed.Tensor|heed.BatchNormForward
---@param bias? heed.Tensor|heed.BatchNormForward
---@param training? boolean
---@param momentum? number
---@param eps? number
---@return heed.Tensor
---@nodiscard
function F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps) end

---@class heed.NormalizeOptions
---@field p? number 2 by default
---@field dim? integer counted from 1; 2 by default
---@field eps? number the smallest divisor; 1e-12 by default

---input divided by its p-norm along dim.
---@param input heed.Tensor of any shape
---@param p? number|heed.NormalizeOptions
---@param dim? integer|heed.NormalizeOptions
---@param eps? number
---@return heed.Tensor
---@nodiscard
function F.normalize(input, p, dim, eps) end

---The cosine of the angle between x1 and x2 along dim, counted from 1 (2 by default). Shapes broadcast.
---@param x1 heed.Tensor the first vectors
---@param x2 heed.Tensor the second vectors
---@param dim? integer|{ dim: integer?, eps: number? } 2 by default
---@param eps? number the smallest norm; 1e-8 by default
---@return heed.Tensor
---@nodiscard
function F.cosine_similarity(x1, x2, dim, eps) end

-- ---- Losses ----

---How the losses of the elements are joined; "mean" by default.
---@alias heed.Reduction "mean"|"sum"|"none"

---@class heed.ReductionOption
---@field reduction? heed.Reduction "mean" by default

---@class heed.ClassOptions: heed.ReductionOption
---@field weight? heed.Tensor [c], one for each class
---@field ignore_index? integer targets that do not count; -100 by default

---@class heed.CrossEntropyOptions: heed.ClassOptions
---@field label_smoothing? number from 0 to 1; 0 by default

---@class heed.LinearCrossEntropyOptions: heed.CrossEntropyOptions
---@field linear_bias? heed.Tensor [c]

---@class heed.SmoothOptions: heed.ReductionOption
---@field beta? number 0 or more; 1 by default

---@class heed.HuberOptions: heed.ReductionOption
---@field delta? number 0 or more; 1 by default

---@class heed.BinaryOptions: heed.ReductionOption
---@field weight? heed.Tensor broadcast to input

---@class heed.LogitsOptions: heed.BinaryOptions
---@field pos_weight? heed.Tensor the weight of positive targets; broadcast to input

---@class heed.DivergenceOptions
---@field reduction? heed.Reduction|"batchmean" "batchmean": the sum divided by the size of dimension 1
---@field log_target? boolean whether target holds logarithms; false by default

---The cross entropy of scores [c], [n, c] or [n, c, …] before the softmax. target has classes, counted from 1, in the
---shape of input without c, or probabilities in the shape of input. Classes may also be a table of integers, or float32
---with whole values. "mean" divides by the sum of the targets' weights.
---@param input heed.Tensor [c], [n, c] or [n, c, …]
---@param target heed.Tensor|integer[]|integer classes from 1, or probabilities
---@param weight? heed.Tensor|heed.CrossEntropyOptions
---@param ignore_index? integer|heed.CrossEntropyOptions
---@param reduction? heed.Reduction|heed.CrossEntropyOptions
---@param label_smoothing? number
---@return heed.Tensor
---@nodiscard
function F.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing) end

---The cross entropy of the scores input · linear_weightᵀ + linear_bias, in chunks of rows, so that the scores of a large
---vocabulary are never stored as a whole. While gradients are recorded they are computed in the forward pass. target has
---classes in the shape of input without its last size, or probabilities.
---@param input heed.Tensor [..., d]
---@param linear_weight heed.Tensor [c, d]
---@param target heed.Tensor|integer[]|integer classes from 1, or probabilities
---@param linear_bias? heed.Tensor|heed.LinearCrossEntropyOptions [c]
---@param weight? heed.Tensor [c]
---@param reduction? heed.Reduction
---@param ignore_index? integer
---@param label_smoothing? number
---@return heed.Tensor
---@nodiscard
function F.linear_cross_entropy(input, linear_weight, target, linear_bias, weight, reduction, ignore_index,
  label_smoothing) end

---The same for logarithms of probabilities, as log_softmax gives them.
---@param input heed.Tensor [c], [n, c] or [n, c, …]
---@param target heed.Tensor|integer[]|integer classes from 1
---@param weight? heed.Tensor|heed.ClassOptions
---@param ignore_index? integer|heed.ClassOptions
---@param reduction? heed.Reduction
---@return heed.Tensor
---@nodiscard
function F.nll_loss(input, target, weight, ignore_index, reduction) end

---(input - target)². Shapes broadcast.
---@param input heed.Tensor what a model gives
---@param target heed.Tensor what it should give
---@param reduction? heed.Reduction|heed.ReductionOption
---@return heed.Tensor
---@nodiscard
function F.mse_loss(input, target, reduction) end

---|input - target|. Shapes broadcast.
---@param input heed.Tensor what a model gives
---@param target heed.Tensor what it should give
---@param reduction? heed.Reduction|heed.ReductionOption
---@return heed.Tensor
---@nodiscard
function F.l1_loss(input, target, reduction) end

---With d = |input - target|: d² / (2 beta) where d < beta, else d - beta / 2.
---@param input heed.Tensor what a model gives
---@param target heed.Tensor what it should give
---@param reduction? heed.Reduction|heed.SmoothOptions
---@param beta? number
---@return heed.Tensor
---@nodiscard
function F.smooth_l1_loss(input, target, reduction, beta) end

---With d = |input - target|: d² / 2 where d < delta, else delta (d - delta / 2).
---@param input heed.Tensor what a model gives
---@param target heed.Tensor what it should give
---@param reduction? heed.Reduction|heed.HuberOptions
---@param delta? number
---@return heed.Tensor
---@nodiscard
function F.huber_loss(input, target, reduction, delta) end

----(target · log input + (1 - target) · log(1 - input)) of probabilities; logarithms are at least -100.
---@param input heed.Tensor from 0 to 1
---@param target heed.Tensor of the same shape
---@param weight? heed.Tensor|heed.BinaryOptions
---@param reduction? heed.Reduction
---@return heed.Tensor
---@nodiscard
function F.binary_cross_entropy(input, target, weight, reduction) end

---The same for scores before the sigmoid.
---@param input heed.Tensor scores
---@param target heed.Tensor of the same shape
---@param weight? heed.Tensor|heed.LogitsOptions
---@param reduction? heed.Reduction
---@param pos_weight? heed.Tensor
---@return heed.Tensor
---@nodiscard
function F.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight) end

---target · (log target - input), where input holds logarithms of probabilities.
---@param input heed.Tensor logarithms of probabilities
---@param target heed.Tensor probabilities; with log_target their logarithms
---@param reduction? heed.Reduction|"batchmean"|heed.DivergenceOptions
---@param log_target? boolean
---@return heed.Tensor
---@nodiscard
function F.kl_div(input, target, reduction, log_target) end
