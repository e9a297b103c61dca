-- Valid calls of heed's functions, for specs that change them: wrong arguments, no memory, no time. A line of LIST is
-- "name: arguments", in an environment of new objects; ":name: object, arguments" calls a method of the object.
-- luacheck: no max string line length
local heed = require "heed"
local nn = heed.nn

local calls = {}

-- ---- Objects, each made when a call first names it ------------------------------------------------

local make = {}
function make.x() return heed.rand(3, 4) + 0.1 end -- above 0, for logarithms
function make.y() return heed.rand(3, 4) + 0.1 end
function make.view() return heed.rand(4, 3).T end
function make.square() return heed.rand(4, 4) end
function make.row() return heed.rand(4) end
function make.column() return heed.rand(3, 1) end
function make.scalar() return heed.tensor(2) end
function make.long() return heed.tensor({ 1, 2, 3 }, { dtype = "int64" }) end
function make.longs() return heed.randint(1, 3, { 3, 4 }) end
function make.mask() return heed.rand(3, 4):gt(0.5) end
function make.b() return heed.rand(2, 3, 4) end
function make.c() return heed.rand(2, 4, 3) end
function make.tall() return heed.rand(5, 2, 4) end
function make.heads() return heed.rand(1, 2, 3, 4) end
function make.gates() return -heed.rand(1, 2, 3) end
function make.image() return heed.rand(2, 3, 4) end
function make.lowp() return heed.rand(3, 4):to "bfloat16" end
function make.bytes() return (heed.quantize_int8(heed.rand(3, 4))) end
function make.scale() return (select(2, heed.quantize_int8(heed.rand(3, 4)))) end
function make.lengths() return heed.tensor({ 2, 3 }, { dtype = "int64" }) end
function make.parents() return heed.tensor({ 0, 1, 1 }, { dtype = "int64" }) end
function make.intervals() return heed.tensor({ { { 1, 2 } }, { { 1, 3 } }, { { 2, 3 } } }, { dtype = "int64" }) end
function make.parameter() return nn.Parameter(heed.rand(3, 4)) end
function make.inner(o)
  heed.set_grad_enabled(true)
  return o.parameter * 2
end
function make.loss(o) return (o.inner * o.parameter):sum() end
function make.buffered()
  local module = nn.Module.class "Buffered"()
  module:register_buffer("mask", heed.ones(2))
  return module
end
function make.g() return heed.Generator(1) end
function make.philox() return heed.Generator(1, "philox") end
function make.linear() return nn.Linear(4, 3) end
function make.list() return nn.ModuleList { nn.Linear(4, 4), nn.GELU() } end
function make.sequence() return nn.Sequential(nn.Linear(4, 4), nn.GELU()) end
function make.mha() return nn.MultiHeadAttention(4, 4, 8, 0, 2):eval() end
function make.causal() return nn.CausalAttention(4, 4, 8, 0) end
function make.delta() return nn.GatedDeltaNet { hidden_size = 4, num_value_heads = 2, num_key_heads = 1,
  key_head_dim = 2, value_head_dim = 2 } end
function make.cache(o)
  local cache = o.mha:new_cache { batch = 2, capacity = 8 }
  o.mha(heed.rand(2, 2, 4), { cache = cache })
  return cache
end
function make.steps(o) return o.mha:steps(o.b) end
function make.causal_mask() return heed.mask.causal() end
function make.window() return heed.mask.window(2, 0) end
function make.weights() return heed.rand(1, 2, 3, 3):softmax(-1) end
function make.sgd(o) return heed.optim.SGD({ o.parameter }, { lr = 0.1 }) end
function make.items(o) return heed.utils.data.TensorDataset(o.x, o.y) end
function make.ids() return heed.randint(1, 9, { 40 }) end
function make.tokens(o) return heed.utils.data.Tokens(o.ids, { batch = 2, context = 4 }) end
function make.state(o) return o.linear:state_dict() end
function make.f() return function(value) return value end end

--- A new environment.
function calls.objects()
  return setmetatable({}, { __index = function(objects, name)
    local made = make[name] and make[name](objects)
    objects[name] = made
    return made
  end })
end

-- ---- The calls ------------------------------------------------------------------------------------

local LIST = [[
add: x, y
add: x, 2, {alpha = 3}
add: longs, longs, {alpha = 2}
sub: x, y, {alpha = 2}
sub: 2, x
mul: x, row
div: x, 2
div: x, y, {rounding_mode = "floor"}
div: longs, 2, {rounding_mode = "trunc"}
floor_divide: x, y
fmod: x, 0.5
remainder: longs, 2
pow: x, 2
pow: 2, x
maximum: x, y
minimum: x, 0.5
eq: x, y
lt: longs, 2
logical_and: mask, mask
addcmul: x, y, row, {value = 2}
addcmul_: x, y, row
addcdiv: x, y, row, {value = 2}
addcdiv_: x, y, row
lerp: x, y, 0.5
lerp: x, y, row
lerp_: x, y, row
add_: x, y
add_: x, 1, {alpha = 2}
sub_: x, y
mul_: x, view
clamp: x, {min = 0.2, max = 0.5}
clamp: x, row, 2
clamp_: x, 0.2
exp: view
exp_: x
log: x
neg: longs
abs_: x
round: x, {decimals = 2}
round: x, -1
round_: x
gelu: x, {approximate = "tanh"}
gelu_: x
logical_not: x
logical_not_: mask
nan_to_num: x, {nan = 1, posinf = 2, neginf = 3}
nan_to_num_: x
isnan: x
isclose: x, y, {rtol = 0.1, atol = 0.1, equal_nan = true}
allclose: x, y, {rtol = 0.1, atol = 0.1, equal_nan = true}
equal: x, y
where: mask, x, y
where: mask, 1, row
masked_fill: x, mask, 2
masked_fill: x, mask, scalar
masked_fill_: x, mask, 2
tril: x, {diagonal = 1}
triu: x, -1
tril_: x
sum: x, 1, {keepdim = true}
sum: x, {dim = {1, 2}}
mean: x
prod: x, 2
var: x, {dim = 1, correction = 0, keepdim = true}
std: x, {dim = 1, unbiased = false}
any: mask, 1
all: mask
max: x
max: x, 1, {keepdim = true}
max: x, y
min: x, 2
argmax: x, 1, {keepdim = true}
argmin: x
amax: x, 1, {keepdim = true}
amin: x
norm: x, 2, {dim = 1, keepdim = true}
logsumexp: x, 1, {keepdim = true}
count_nonzero: x, {dim = 1}
median: x, 1, {keepdim = true}
quantile: x, 0.5, {dim = 1, keepdim = true, interpolation = "lower"}
softmax: x, 1
log_softmax: view, -1
cumsum: x, 1
cumprod: x, 1
topk: x, 2, {dim = 1, largest = false, sorted = true}
sort: x, 1, {descending = true, stable = true}
argsort: x, {descending = true}
layer_norm: x, row, row, {eps = 1e-5}
rms_norm: x, row, {eps = 1e-5}
rope: square, {positions = heed.tensor({1, 2, 3, 4}, {dtype = "int64"}), base = 100}
rope: square, {style = "half", dims = 2, scaling = {type = "linear", factor = 2}}
rope: square, {scaling = {type = "yarn", factor = 4, original_context_length = 8, beta_fast = 32, beta_slow = 1, attention_factor = 1}}
rope: square, {scaling = {type = "llama3", factor = 8, original_context_length = 8, low_freq_factor = 1, high_freq_factor = 4}}
alibi_slopes: 4
matmul: x, square
matmul: b, c
mm: x, square
bmm: b, c
mv: x, row
addmm: x, x, square, {beta = 2, alpha = 0.5}
addmv: heed.ones(3), x, row, {beta = 2, alpha = 0.5}
baddbmm: b, b, heed.rand(2, 4, 4), {beta = 2, alpha = 0.5}
inner: x, y
tensordot: x, y, 2
cross: heed.rand(2, 3), heed.rand(2, 3), {dim = 2}
trace: square
dot: row, row
outer: row, row
linear: x, heed.rand(5, 4), heed.rand(5)
linear: x, lowp
quantize_int8: x
dequantize_int8: bytes, scale
linear_int8: x, bytes, scale, heed.rand(3)
embedding: long, x
einsum: "ij,kj->ik", x, y
one_hot: longs, 4
scaled_dot_product_attention: b, b, b, {is_causal = true, scale = 0.5}
scaled_dot_product_attention: b, b, b, {attn_mask = heed.ones(3, 3):bool(), dropout_p = 0.1, generator = g}
scaled_dot_product_attention: heads, heads, heads, {attn_mask = causal_mask, need_weights = true}
scaled_dot_product_attention: heads, heads, heads, {window = {left = 2, right = 0}, softcap = 2, sinks = heed.rand(2), enable_gqa = true}
scaled_dot_product_attention: heads, heads, heads, {alibi_slopes = heed.rand(2), kv_lengths = heed.tensor({3}, {dtype = "int64"})}
scaled_dot_product_attention: heads, heads, heads, {need_weights = true, need_lse = true, past_key = heads, past_value = heads}
attention_partial: heads, heads, heads, {is_causal = true, offset = 1}
attention_merge: {heads, heads}, {heed.rand(1, 2, 3, 2), heed.rand(1, 2, 3, 2)}
varlen_attention: tall, tall, tall, {lengths = lengths, is_causal = true}
varlen_attention: tall, tall, tall, {lengths = lengths, key_lengths = lengths}
linear_attention: heads, heads, heads, {decay = gates, past_state = heed.rand(1, 2, 4, 4), scale = 0.5}
linear_attention: heads, heads, heads, {beta = heed.rand(1, 2, 3), decay = gates, rule = "gated_delta"}
causal_conv: b, heed.rand(3, 2), {bias = heed.rand(3), activation = "silu"}
causal_conv: b, heed.rand(3, 2), {past_state = heed.rand(2, 3, 1)}
pack: b, lengths
unpack: heed.rand(5, 4), lengths, 3
view: x, 2, 6
reshape: view, {6, 2}
expand: column, 3, 5
expand_as: column, x
view_as: x, heed.ones(12)
reshape_as: view, heed.ones(12)
permute: b, 3, 1, 2
transpose: b, 1, -1
movedim: b, {1, 2}, {2, 3}
swapdims: b, 1, 2
t: x
narrow: x, 1, 2, 1
select: x, 1, 2
unsqueeze: x, 2
squeeze: column, 2
squeeze: column
flatten: b, {start_dim = 1, end_dim = 2}
unflatten: x, 2, {2, 2}
diagonal: b, {offset = 1, dim1 = 1, dim2 = 2}
unfold: x, 2, 2, 1
unbind: x, 1
split: x, 2, 2
split: x, {1, 3}, {dim = 2}
chunk: x, 2, {dim = 2}
index_select: x, 1, long
gather: x, 1, longs
masked_select: x, mask
repeat_interleave: x, 2, {dim = 1}
repeat_interleave: x, long, 1
repeat: x, 2, 1
flip: x, 1, 2
roll: x, 1, {dims = 1}
roll: x, {1, 2}, {1, 2}
tile: x, 2, 2
pad: x, {1, 1}, {mode = "constant", value = 2}
diag: row, {diagonal = 1}
diag_embed: x, {offset = 1, dim1 = 1, dim2 = 3}
diagflat: x, {offset = 1}
take_along_dim: x, longs, {dim = 1}
nonzero: x, {as_tuple = true}
argwhere: x
searchsorted: row, x, {right = true}
bucketize: x, row, {right = true}
unique: longs, {sorted = true, return_inverse = true, return_counts = true}
bincount: long, {weights = heed.rand(3), minlength = 5}
scatter: x, 1, longs, y, {reduce = "add"}
scatter_: x, 1, longs, 2
scatter_add: x, 1, longs, y
scatter_add_: x, 1, longs, y
index_add: x, 1, long, y, {alpha = 2}
index_add_: x, 1, long, y
index_copy: x, 1, long, y
index_copy_: x, 1, long, y
index_fill: x, 1, long, 2
index_fill_: x, 1, long, 2
index_put: x, {long, long}, heed.rand(3), {accumulate = true}
index_put_: x, {mask}, 2
broadcast_to: column, {3, 5}
cat: {x, y}, {dim = 1}
stack: {x, y}, -1
hstack: {x, y}
vstack: x, y
dstack: {x, y}
column_stack: {x, column}
meshgrid: row, row, {indexing = "ij"}
block_diag: x, y
tril_indices: 3, 4, 1
triu_indices: 3, 4, {offset = 1}
tensor: {{1, 2}, {3, 4}}, {dtype = "int64", requires_grad = false}
tensor: {true, false}
zeros: 2, 3, {dtype = "int64"}
ones: {2, 3}
empty: 2, 3
full: {2, 3}, 2, {dtype = "int64"}
eye: 3, 4, {dtype = "bool"}
range: 1, 9, 2, {dtype = "int64"}
arange: 1, 9, {step = 2}
arange: 5
linspace: 0, 1, 5
logspace: 0, 1, 5, {base = 2}
from_string: ("x"):rep(16), "float32", {2, 2}
zeros_like: x, {dtype = "int64"}
full_like: x, 2
empty_like: x
ones_like: x
new_zeros: x, 2, 3
new_ones: x, {2, 3}
new_empty: x, 2
new_full: x, {2, 3}, 2, {dtype = "int64"}
new_tensor: x, {1, 2}, {dtype = "int64"}
Size: 2, 3
is_tensor: x
rand: 2, 3, {generator = g}
rand: {2, 3}, {generator = philox}
randn: 2, 3, {generator = g}
randint: 1, 6, {2, 3}, {generator = g}
randperm: 5, {generator = g}
rand_like: x, {dtype = "float32", generator = g}
randn_like: x
randint_like: x, 1, 6, {generator = g}
randint_like: x, 6, {dtype = "int64"}
bernoulli: row, {generator = g}
multinomial: row, 2, {replacement = true, generator = g}
uniform_: x, {from = 0, to = 1, generator = g}
normal_: x, {mean = 0, std = 1, generator = g}
dropout: x, 0.5, true, {generator = g}
dropout: x, {p = 0.5, training = false}
Generator: 1, "philox"
manual_seed: 1
manual_seed: 1, "mt19937"
:manual_seed: g, 1
:clone: g
:part: philox, {2, 3}, {1, 1}
:set_offset: philox, 4
:get_offset: philox
:get_state: g
:set_state: g, heed.Generator(2):get_state()
to: x, "bfloat16"
to: x, "int64"
type_as: x, long
float: longs
bool: x
clone: view
contiguous: view
copy_: x, view
copy_: x, longs
fill_: x, 2
zero_: x
detach: parameter
requires_grad_: x, true
backward: loss
backward: inner, {gradient = y, retain_graph = true}
backward_steps: loss, {retain_graph = true}
:advance: loss:backward_steps(), 0
:advance: loss:backward_steps(), math.huge
retain_grad: inner
register_hook: inner, f
set_grad_enabled: true
no_grad: f, x
enable_grad: f, x
inference_mode: f
autograd.grad: loss, parameter, {retain_graph = true}
autograd.grad: inner, {parameter}, {grad_outputs = y, allow_unused = true}
autograd.grad: {loss, loss}, {parameter, inner}, {allow_unused = true}
size: x, 1
stride: x, 2
item: scalar
tolist: x
to_string: view
numel: x
iter: x
is_contiguous: view
:numel: x.shape
info:
clock:
limit:
get_num_threads:
set_num_threads: 1
set_matmul_precision: "highest"
set_dropout_stream: "native"
set_printoptions: {profile = "default", precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80, sci_mode = false}
mask.causal:
mask.window: 2, 0
mask.documents: lengths
mask.documents: {2, 3}
mask.prefix: 2
mask.tree: parents
mask.intervals: intervals
:both: causal_mask, window
:dense: causal_mask, 3, 4, 1
:blocks: causal_mask, 4, 8, 4
nn.Parameter: x
nn.Linear: 4, 3, {bias = false}
nn.Embedding: 5, 4, {padding_idx = -1}
nn.LayerNorm: {3, 4}, {eps = 1e-5, elementwise_affine = true, bias = false}
nn.RMSNorm: 4, {eps = 1e-5, elementwise_affine = false}
nn.Dropout: 0.5
nn.GELU: "tanh"
nn.SelfAttention: 4, 3, true
nn.CausalAttention: 4, 3, 8, 0.5, {qkv_bias = true, softmax_dim = 1}
nn.MultiHeadAttentionWrapper: 4, 3, 8, 0.5, 2
nn.MultiHeadAttention: 4, 4, 8, 0.5, {num_heads = 2, qkv_bias = true, num_kv_heads = 1}
nn.MultiHeadAttention: {d_in = 4, d_out = 8, context_length = 8, dropout = 0, num_heads = 2, rope = {base = 100, dims = 2}, qk_norm = true, sinks = true, window = {left = 2, right = 0}, softcap = 5, scale = 0.5, head_dim = 4}
nn.MultiHeadAttention: {d_in = 4, d_out = 4, context_length = 8, dropout = 0, num_heads = 2, alibi = true, out_bias = false, generator = g}
nn.GatedDeltaNet: {hidden_size = 4, num_value_heads = 2, num_key_heads = 1, key_head_dim = 2, value_head_dim = 2, conv_kernel_size = 3, eps = 1e-6}
nn.ModuleList: {linear}
nn.Sequential: linear, nn.GELU()
nn.Residual: linear
nn.is_module: linear
nn.utils.skip_init: nn.Linear, 4, 3
nn.utils.clip_grad_norm_: {parameter}, 1, {norm_type = 1, error_if_nonfinite = true}
nn.utils.clip_grad_value_: {parameter}, 1
nn.utils.get_total_norm: {x, y}, {norm_type = 2, error_if_nonfinite = false}
nn.utils.parameters_to_vector: {parameter}
nn.utils.vector_to_parameters: heed.rand(12), {parameter}
:forward: linear, x
:forward: sequence, square
:forward: mha, b, {attn_mask = heed.ones(3, 3):bool(), need_weights = true}
:forward: mha, b, {key_padding_mask = heed.zeros(2, 3):bool(), need_lse = true}
:forward: mha, b, {cache = mha:new_cache {batch = 2, capacity = 8}}
:forward: mha, heed.rand(5, 4), {lengths = lengths}
:forward: mha, b, {key = b, value = b, kv_lengths = lengths}
:forward: mha, b, {attn_mask = causal_mask}
:forward: causal, b, {generator = g, need_weights = true}
:forward: delta, b
:forward: delta, b, {cache = delta:new_cache(2)}
:steps: mha, b, {need_weights = true}
:advance: steps, 0.001
:release: steps
:new_cache: mha, {batch = 2, capacity = 8, dtype = "int8"}
:new_cache: mha, {batch = 2, capacity = 8, dtype = "int4", prefix = mha:new_cache {batch = 1, capacity = 4, dtype = "int4"}}
:new_cache: delta, 2
:truncate: cache, 1
:truncate: cache, lengths - 1
:reorder: cache, {2, 1}
:clone: cache
:head: mha, 1
:split: mha
:state_dict: linear
:load_state_dict: linear, state, {strict = true, assign = true}
:named_parameters: linear, "a", true
:parameters: mha, {recurse = false}
:named_buffers: mha, {prefix = "a", recurse = true}
:named_modules: mha
:children: mha
:get_submodule: sequence, "0"
:get_parameter: linear, "weight"
:get_buffer: buffered, "mask"
:to: linear, "bfloat16"
:half: linear
:clone: mha
:train: mha, false
:requires_grad_: linear, false
:zero_grad: linear, {set_to_none = false}
:apply: linear, f
:register_forward_hook: linear, f, {prepend = true}
:register_forward_pre_hook: linear, f
:append: list, linear
:extend: list, {linear}
:insert: list, 1, linear
:pop: list, 1
nn.init.uniform_: x, 0, 1
nn.init.normal_: x, {mean = 0, std = 1}
nn.init.trunc_normal_: x, {a = -1, b = 1}
nn.init.xavier_uniform_: x, {gain = 2}
nn.init.kaiming_uniform_: x, {a = 1, mode = "fan_out", nonlinearity = "relu"}
nn.init.kaiming_normal_: x
nn.init.constant_: x, 2
nn.init.eye_: x
nn.init.calculate_gain: "leaky_relu", 0.1
nn.functional.dropout: x, {p = 0.5, training = true}
nn.functional.softmax: x, 1
nn.functional.linear: x, heed.rand(5, 4)
nn.functional.embedding: long, x, {padding_idx = 1}
nn.functional.softplus: x, {beta = 2, threshold = 10}
nn.functional.leaky_relu: x, {negative_slope = 0.1, inplace = true}
nn.functional.elu: x, {alpha = 2}
nn.functional.glu: x, {dim = 2}
nn.functional.layer_norm: x, {4}, {weight = row, bias = row, eps = 1e-5}
nn.functional.rms_norm: x, {4}, row
nn.functional.batch_norm: x, row, row, {weight = row, bias = row, training = true, momentum = 0.1}
nn.functional.normalize: x, {p = 2, dim = 1, eps = 1e-12}
nn.functional.cosine_similarity: x, y, {dim = 1, eps = 1e-8}
nn.functional.cross_entropy: x, long, {weight = row, ignore_index = 1, reduction = "sum", label_smoothing = 0.1}
nn.functional.linear_cross_entropy: x, heed.rand(5, 4), long, {linear_bias = heed.rand(5), reduction = "mean", ignore_index = 2}
nn.functional.nll_loss: x, long, {weight = row, reduction = "none"}
nn.functional.mse_loss: x, y, {reduction = "sum"}
nn.functional.smooth_l1_loss: x, y, {beta = 2}
nn.functional.huber_loss: x, y, {delta = 2}
nn.functional.binary_cross_entropy: x:sigmoid(), y:clamp(0, 1), {weight = row}
nn.functional.binary_cross_entropy_with_logits: x, y, {pos_weight = row}
nn.functional.kl_div: x, y, {reduction = "batchmean", log_target = true}
nn.functional.scaled_dot_product_attention: b, b, b, {dropout_p = 0, is_causal = true}
optim.SGD: {parameter}, {lr = 0.1, momentum = 0.9, dampening = 0, weight_decay = 0.1, nesterov = true, maximize = true}
optim.Adam: {parameter}, {lr = 0.1, betas = {0.9, 0.99}, eps = 1e-8, weight_decay = 0.1, amsgrad = true}
optim.AdamW: {parameter}, {lr = 0.1}
optim.RMSprop: {{params = {parameter}, lr = 0.2}}, {lr = 0.1, alpha = 0.9, momentum = 0.9, centered = true}
:step: sgd, f
:zero_grad: sgd, {set_to_none = true}
:add_param_group: sgd, {params = {nn.Parameter(heed.rand(2))}}
:load_state_dict: sgd, sgd:state_dict()
optim.lr_scheduler.StepLR: sgd, {step_size = 2, gamma = 0.5}
optim.lr_scheduler.CosineAnnealingLR: sgd, {T_max = 5, eta_min = 0.01}
optim.lr_scheduler.OneCycleLR: sgd, {max_lr = 1, total_steps = 10, pct_start = 0.3}
optim.lr_scheduler.LambdaLR: sgd, f
optim.lr_scheduler.ReduceLROnPlateau: sgd, {mode = "min", factor = 0.5, patience = 2}
utils.checkpoint: f, parameter
utils.data.TensorDataset: x, y
utils.data.Subset: items, {1, 2}
utils.data.ConcatDataset: {items, items}
utils.data.random_split: items, {2, 1}, {generator = g}
utils.data.RandomSampler: items, {replacement = true, num_samples = 5, generator = g}
utils.data.WeightedRandomSampler: {1, 2, 3}, 2, {replacement = true, generator = g}
utils.data.BatchSampler: utils.data.SequentialSampler(items), 2, {drop_last = true}
utils.data.DataLoader: items, {batch_size = 2, shuffle = true, drop_last = false, generator = g}
utils.data.Tokens: ids, {batch = 2, context = 4, shuffle = true, generator = g}
:next: tokens
]]

local function at(path)
  local value = heed
  for name in path:gmatch "[%w_]+" do value = value[name] end
  return value
end

local function caller(name)
  local method = name:match "^:(.*)"
  if not method then return at(name) end
  return function(object, ...)
    local a, b = object[method](object, ...)
    return a, b
  end
end

--- Calls: { name, text, method = whether it is one, f, arguments = function() }: arguments() makes new ones and returns
--- them as table.pack does.
for line in LIST:gmatch "[^\n]+" do
  local name, given = line:match "^(:?[%w_.]+): ?(.*)$"
  local environment
  local chunk = assert(load("return table.pack(" .. given .. ")", line, "t", setmetatable({}, {
    __index = function(_, key)
      if key == "heed" then return heed end
      if key == "nn" or key == "utils" or key == "optim" then return heed[key] end
      local object = environment[key]
      if object == nil then object = _G[key] end
      return object
    end,
  })))
  calls[#calls + 1] = {
    name = name:match "[%w_]+$", text = line, method = name:find "^:" ~= nil, f = caller(name),
    arguments = function()
      environment = calls.objects()
      heed.set_grad_enabled(false)
      return chunk()
    end,
  }
end

return calls
