--- Names that PyTorch or Python have and heed does not, and what to write instead.

local advice = { names = {}, synonyms = {}, everywhere = {} }

local CPU = "heed computes on the processor: leave it out"
local NO_SECOND_DERIVATIVES = "heed has first derivatives only: heed.autograd.grad(y, x), or y:backward()"
local OPTIMIZERS = "heed.optim has the optimizers: heed.optim.AdamW(m:parameters(), {lr = 3e-4}), then loss:backward() "
  .. "and optimizer:step()"
local NO_ALGEBRA = "heed has matrix products and no other linear algebra"
local NO_IMAGES = "heed has no convolutions, pooling or images"
local NO_RECURRENCE = "heed has no recurrent networks"
local NO_COMPLEX = "heed has no complex numbers"
local FLOAT64 = "heed has no float64; float32 is the dtype of all arithmetic"
local INTEGERS = 'int64 is heed\'s only integer dtype for arithmetic: "int64", or x:long()'

--- names[owner][name]: the advice of these owners goes before everything else.
local function add(owner, names, text)
  advice.names[owner] = advice.names[owner] or {}
  for name in names:gmatch "%S+" do advice.names[owner][name] = text end
end

local function everywhere(names, text)
  for name in names:gmatch "%S+" do advice.everywhere[name] = text end
end

--- Another name for the same thing: used where one of these is known.
local function synonym(name, ...) advice.synonyms[name] = { ... } end

-- ---- Everywhere ----

everywhere("cuda cpu mps xpu device is_cuda get_device pin_memory backends non_blocking share_memory_", CPU)
everywhere("create_graph jacobian hessian jvp hvp vjp jacrev jacfwd is_inference", NO_SECOND_DERIVATIVES)
everywhere("grad_mode", "write heed.autograd")
everywhere("optimizer", OPTIMIZERS)
everywhere("Adagrad Adadelta Adamax NAdam RAdam LBFGS Rprop SparseAdam Muon Adafactor",
  "heed.optim has SGD, Adam, AdamW and RMSprop")
everywhere("linalg inverse inv det logdet svd eig eigh qr cholesky pinverse matrix_rank solve lstsq", NO_ALGEBRA)
everywhere("fft complex complex64 complex128 real imag conj angle view_as_real view_as_complex polar", NO_COMPLEX)
everywhere("float64 double", FLOAT64)
everywhere("int32 int16 uint8 int short byte char", INTEGERS)
everywhere("compile jit fx vmap func export onnx", "heed runs what the script calls: leave it out")
everywhere("sparse to_sparse to_dense is_sparse", "heed has no sparse tensors")

-- ---- Tensors ----

add("Tensor", "numpy", 'x:tolist() gives nested tables, and heed.save("x.npy", x) a file for NumPy')
add("Tensor", "data", "write x:detach(), or heed.no_grad(function() x:copy_(value) end) to overwrite it")
add("Tensor", "zero_grad", "write x.grad = nil, or optimizer:zero_grad()")
add("Tensor", "step", "that is an optimizer's: optimizer:step()")
add("heed", "grad", "write heed.autograd.grad(y, x)")
for _, name in ipairs { "plot", "interpret", "distributed", "parallel", "interrupt" } do
  add("heed", name, ('it is a module of its own: require "heed.%s"'):format(name))
end
add("Tensor", "half", 'write x:to "float16", a dtype for storage')
add("Tensor", "bfloat16", 'write x:to "bfloat16", a dtype for storage')
add("Tensor", "int", "write x:long()")
add("Tensor", "type astype", 'x.dtype is the dtype, and x:to "int64" converts')
add("Tensor", "len", "write #x, or x:size(1)")
add("Tensor", "copy", "write x:clone()")
add("Tensor", "forward parameters state_dict eval train", "that is a module's: x is a tensor")
add("Tensor", "...", 'write x[{"...", i}]')
add("Tensor", "append extend insert", "a tensor has a fixed shape: write heed.cat{x, y}")
add("Tensor", "resize resize_ unsqueeze_ squeeze_ t_ transpose_ view_",
  "shapes do not change in place: write x = x:reshape(...), x:unsqueeze(dim) and so on")
add("Tensor", "apply_ map_ apply", "write a loop over x:tolist(), or use the operations on whole tensors")
add("Tensor", "is_floating_point", 'write x.dtype == "float32"')
add("Tensor", "storage untyped_storage data_ptr", "write x:to_string() for the bytes")
add("Tensor", "rows cols columns width height", "write x:size(dim), or x.shape[i]")
add("Tensor", "to_list list", "write x:tolist()")
add("Tensor", "tostring print", "write tostring(x) or print(x)")
add("Tensor", "length", "write #x for the size of dimension 1, x:numel() for the number of elements")

-- ---- Operations that others express ----

local function operation(names, text)
  add("Tensor", names, text)
  add("heed", names, text)
end

operation("tan asin acos atan atan2 asinh acosh atanh sinh cosh sinc arcsin arccos arctan",
  "heed has sin, cos and tanh; for single numbers, Lua's math has the others")
operation("fmax fmin", "write maximum or minimum, which keep nan")
operation("nansum nanmean nanmedian", "write x[x:isnan():logical_not()], which drops nan, and then sum, mean or median")
operation("clamp_min clamp_max clamp_min_ clamp_max_", "write x:clamp{min = 0} or x:clamp{max = 1}, or clamp_")
operation("fill_diagonal_", "write x:diagonal():fill_(value): the diagonal is a view")
operation("masked_scatter masked_scatter_", "write x[mask] = values")
operation("scatter_reduce scatter_reduce_",
  'write x:scatter_add(dim, index, src), or x:scatter(dim, index, src, "multiply")')
operation("isin", "write x:unsqueeze(-1):eq(values):any(-1)")
operation("cdist", "write (a:unsqueeze(-2) - b):norm(2, -1)")
operation("std_mean var_mean", "write x:std(dim) or x:var(dim), and x:mean(dim)")
operation("aminmax", "write x:amin(dim), x:amax(dim)")
operation("logaddexp", "write heed.stack{a, b}:logsumexp(1)")
operation("bitwise_and bitwise_or bitwise_not bitwise_xor", "for masks, write logical_and, logical_or, logical_not or "
  .. "logical_xor")
operation("normal", "write heed.empty(shape):normal_(mean, std)")
operation("exponential_", "write -(1 - heed.rand(shape)):log()")
operation("bernoulli_", "write heed.full(shape, p):bernoulli()")
operation("random_", "write heed.randint(low, high, shape)")
operation("broadcast_tensors", "write x:broadcast_to(shape)")
operation("finfo iinfo", "for masks, write -heed.inf; float32 goes to 3.4028234663852886e+38, int64 to 2^63 - 1")
operation("cov corrcoef kron matrix_power", NO_ALGEBRA)
operation("nbytes", "write x:numel() * x:element_size()")
operation("tensor_split hsplit vsplit dsplit split_with_sizes", "write x:split(sizes, dim) or x:chunk(n, dim)")
operation("unique_consecutive", "write x:unique(), which sorts")
add("module", "add_module register_parameter register_module register_buffer", "a built-in module has a fixed set of "
  .. "fields: put it into a module of your own, made by nn.Module.class")

-- ---- The library ----

add("heed", "Tensor FloatTensor", "heed.tensor{1, 2} makes a tensor, and heed.is_tensor(x) tests for one")
add("heed", "LongTensor IntTensor", 'write heed.tensor({1, 2}, "int64")')
add("heed", "BoolTensor", "write heed.tensor{true, false}")
add("heed", "from_numpy", 'write heed.tensor(nested table), or heed.load "x.npy"')
add("heed", "as_tensor asarray array", "write heed.tensor(nested table)")
add("heed", "seed set_seed random_seed", "write heed.manual_seed(n)")
add("heed", "random", "write heed.rand(2, 3), or heed.randint(low, high, shape)")
add("heed", "get_rng_state set_rng_state", "write heed.default_generator:get_state() or set_state(state)")
add("heed", "set_default_dtype get_default_dtype", "it is float32, unless a call names another: {dtype = \"int64\"}")
add("heed", "set_default_device", CPU)
add("heed", "use_deterministic_algorithms", "heed is deterministic: leave it out")
add("heed", "autocast amp", 'heed computes in float32; m:to "bfloat16" stores weights so')
add("heed", "distributed", "heed runs on one machine")
add("heed", "functional F", "write heed.nn.functional, or the functions of heed: heed.softmax(x, -1)")
add("heed", "Generator_ generator", "write heed.Generator(seed)")
add("heed", "len", "write #x")
add("heed", "print", "write print(x)")
add("heed", "Module", "write heed.nn.Module")
add("heed", "version_", "write heed.version")

add("heed.Optimizer", "lr get_lr set_lr", "the rate is a group's: optimizer.param_groups[1].lr")
add("heed.Optimizer", "state", "write optimizer:state_dict().state")
add("heed.Optimizer", "backward", "that is a loss's: loss:backward()")
add("heed.Scheduler", "lr get_lr print_lr", "write schedule:get_last_lr()")
add("heed.optim.lr_scheduler", "get_cosine_schedule_with_warmup get_linear_schedule_with_warmup",
  "SequentialLR joins LinearLR, a warm-up, and another schedule; LambdaLR takes a function")
add("module", "register_full_backward_hook register_backward_hook register_full_backward_pre_hook",
  "gradients are those of tensors: y:register_hook(f), or weight:register_hook(f)")
everywhere("use_reentrant preserve_rng_state",
  "heed.utils.checkpoint always draws the same random numbers: leave it out")
add("heed.autograd", "set_detect_anomaly", "write heed.autograd.detect_anomaly(true), or detect_anomaly(f)")
add("heed.utils", "tensorboard", "heed.plot draws charts: plot.line(losses, {file = \"loss.svg\"})")
add("heed.nn.init", "orthogonal_ sparse_ dirac_", NO_ALGEBRA .. ": kaiming_uniform_ and xavier_uniform_ are here")
local DATASET = "a dataset is a tensor, a list, or any object with the methods get(self, i) and len(self)"
add("heed.utils.data", "Dataset IterableDataset", DATASET)
add("heed.utils.data", "ChainDataset", "write data.ConcatDataset{a, b}")
add("heed.utils.data", "StackDataset", "write data.TensorDataset(x, y, ...)")
add("heed.utils.data", "get_worker_info distributed",
  "heed reads batches in the thread that asks for them: leave it out")

-- ---- Modules ----

add("heed.nn", "Conv1d Conv2d Conv3d ConvTranspose2d MaxPool1d MaxPool2d AvgPool2d AdaptiveAvgPool2d BatchNorm2d "
  .. "InstanceNorm2d GroupNorm Upsample Dropout2d PixelShuffle", NO_IMAGES)
add("heed.nn", "RNN LSTM GRU LSTMCell GRUCell", NO_RECURRENCE)
add("heed.nn", "DataParallel parallel DistributedDataParallel", "heed runs on one machine: leave it out")
add("heed.nn", "Buffer", "write self:register_buffer(name, tensor) in a module's init")
add("heed.nn", "parameter parameters", "write nn.Parameter(tensor)")
add("heed.nn", "LazyLinear Bilinear", "write nn.Linear(d_in, d_out)")
add("heed.nn", "Attention", "nn.MultiHeadAttention, nn.CausalAttention and nn.SelfAttention are heed's")

add("module", "half", 'write m:to "float16"')
add("module", "bfloat16", 'write m:to "bfloat16"')
add("module", "float", 'write m:to "float32"')
add("module", "save", 'write heed.save("m.safetensors", m:state_dict())')
add("module", "load", 'write m:load_state_dict(heed.load "m.safetensors")')
add("module", "shape size dim ndim dtype numel", "that is a tensor's: a module's tensors are m.weight and so on")
add("module", "summary print", "write print(m)")
add("module", "fit step optimizer", OPTIMIZERS)
add("module", "backward", "write loss:backward(): the gradients are in p.grad of m:parameters()")
add("module", "grad", "the gradients are those of its parameters: m.weight.grad")
add("module", "requires_grad", "write m:requires_grad_(false) to freeze all parameters; m.weight.requires_grad tells")
add("module", "params get_parameters", "write m:parameters(), or m:named_parameters()")
add("module", "call __call__ predict", "write m(x)")
add("module", "num_parameters count_parameters", "add up p:numel() over m:parameters()")

-- ---- Names of Python, in Lua's own messages ----

add("global", "f", 'for formatted text, write ("%.2f"):format(number), or "text " .. x')
add("global", "torch", 'write local heed = require "heed", and heed instead of torch')
add("global", "heed", 'write local heed = require "heed"')
add("global", "nn", 'write local nn = require("heed").nn')
add("global", "F", 'write local F = require("heed").nn.functional')
add("global", "np numpy", "heed is not NumPy: tensors have most of its functions")
add("global", "len", "write #x")
add("global", "range", "write for i = 1, n do ... end")
add("global", "enumerate", "write for i, value in ipairs(list) do ... end")
add("global", "zip", "write for i = 1, #a do ... a[i], b[i] ... end")
add("global", "str", "write tostring(x)")
add("global", "int", "write math.floor(x), or x:long() for a tensor")
add("global", "float", "write tonumber(x), or x:float() for a tensor")
add("global", "list tuple dict set", "write a table: {1, 2} or {name = value}")
add("global", "isinstance", "write type(x), heed.is_tensor(x), or m:class_name()")
add("global", "super", "write Parent.init(self, ...)")
add("global", "sum abs min max round", "write x:sum() and so on for tensors, math.abs, math.min, math.max for numbers")
add("global", "sorted", "write table.sort(list)")
add("global", "open", "write io.open(path)")
add("global", "exit quit", "write os.exit()")
add("global", "hasattr getattr", "write x.name ~= nil, x[name]")
add("method", "append extend", "write list[#list + 1] = value, or container:append(m) for nn.ModuleList")
add("method", "items", "write for name, value in pairs(t) do ... end")
add("method", "keys values", "write for name, value in pairs(t) do ... end")
add("method", "split strip startswith endswith join",
  "Lua's strings have find, match, gsub, gmatch, sub; lists table.concat")

local TENSOR_AS_NUMBER = "for a tensor, write x:item() for its number, and x:exp(), x:max() and so on for math's "
  .. "functions"

--- Python in Lua: {pattern of Lua's message, advice}, the first that fits.
advice.syntax = {
  { "near '@'", "write a:matmul(b)" },
  { "near '!'", "Lua writes ~= for !=" },
  { "near '%*'", "Lua writes x = x * 2 for x *= 2, and ^ for powers" },
  { "syntax error near '[-+/]'", "write x = x + 1" },
  { "'=' expected near '[-+*/]'", "write x = x + 1" },
  { "unexpected symbol near '#'", "comments begin with --" },
  { "unexpected symbol near '%['", "lists are written {1, 2}" },
  { "unexpected symbol near ':'", "slices are tables: x[{ {}, 1 }] or x[{ {2, 4} }]" },
  { "'%]' expected near ','", "several indices are a table: x[{ 1, 2 }] or x[{ \"...\", 1 }]" },
  { "'%)' expected near '='", "options by name are a table: f(x, {dim = -1}), or f{p = 0.5}" },
  { "'%]' expected near ':'", "slices are tables: x[{ {2, 4} }] or x[{ {}, 1 }]" },
  { "'}' expected near ':'", "fields are written {name = value}" },
  { "get length of a nil value %(global", "comments begin with --, and #x is the length of x" },
  { "attempt to index.*number value", "an element of a tensor is a number already: write x[1], without :item()" },
  { "number expected, got heed%.Tensor", TENSOR_AS_NUMBER },
  { "number expected, got userdata", TENSOR_AS_NUMBER }, -- Lua 5.1
  { "near 'torch'", 'write local heed = require "heed"' },
  { "'then' expected near 'is'", "write x == nil" },
  { "'then' expected", "write if condition then ... end" },
  { "'do' expected", "write for i = 1, n do ... end" },
  { "attempt to compare .*userdata", "for tensors, write x:gt(0), x:lt(0), x:ge(0) or x:le(0)" },
  { "attempt to call a %a+ value %(%a+ 'shape'%)", "shape is a field: write it without ()" },
  { "attempt to call a %a+ value %(%a+ 'ndim'%)", "ndim is a field: write it without ()" },
  { "attempt to call a %a+ value %(%a+ 'dtype'%)", "dtype is a field: write it without ()" },
}

-- ---- Dtypes ----

add("dtype", "cuda cpu mps cuda:0", CPU)
add("dtype", "float64 double float fp32 torch.float32 float_", 'write "float32"')
add("dtype", "half fp16", 'write "float16"')
add("dtype", "bf16", 'write "bfloat16"')
add("dtype", "int long int32 int16 uint8 integer torch.int64 torch.long", 'write "int64"')
add("dtype", "boolean", 'write "bool"')

-- ---- Options ----

add("option", "out", "assign the result: y = ...")
add("option", "fused foreach capturable differentiable", "heed's steps are fused: leave it out")
add("option", "create_graph", NO_SECOND_DERIVATIVES)
add("option", "num_workers prefetch_factor persistent_workers worker_init_fn timeout",
  "heed reads batches when they are asked for: leave it out")
add("option", "inplace", "leave it out; functions whose name ends in _ work in place")
add("option", "layout memory_format", "leave it out")
add("option", "map_location weights_only", "leave it out: files are mapped into memory and run nothing")
add("option", "batch_first", "leave it out: x is [b, n, d]")

synonym("axis", "dim")
synonym("axes", "dim")
synonym("dims", "dim")
synonym("keepdims", "keepdim")
synonym("seed", "generator")
synonym("type", "dtype")
synonym("n_heads", "num_heads")
synonym("nheads", "num_heads")
synonym("heads", "num_heads")
synonym("nhead", "num_heads")
synonym("n_head", "num_heads")
synonym("kv_heads", "num_kv_heads")
synonym("n_kv_heads", "num_kv_heads")
synonym("embed_dim", "d_in", "embedding_dim")
synonym("d_model", "d_in")
synonym("dropout_p", "dropout", "p")
synonym("dropout", "dropout_p", "p")
synonym("prob", "p")
synonym("is_causal", "causal")
synonym("causal", "is_causal")
synonym("mask", "attn_mask")
synonym("attention_mask", "attn_mask")
synonym("padding_mask", "key_padding_mask")
synonym("return_weights", "need_weights")
synonym("output_attentions", "need_weights")
synonym("return_attention", "need_weights")
synonym("max_length", "max_new_tokens", "context_length")
synonym("block_size", "context_length")
synonym("max_seq_len", "context_length")
synonym("vocab_size", "num_embeddings")
synonym("affine", "elementwise_affine")
synonym("decimals", "precision")

-- ---- Other names of operations ----

synonym("concatenate", "cat")
synonym("multiply", "mul")
synonym("subtract", "sub")
synonym("divide", "div")
synonym("true_divide", "div")
synonym("power", "pow")
synonym("absolute", "abs")
synonym("negative", "neg")
synonym("greater", "gt")
synonym("greater_equal", "ge")
synonym("less", "lt")
synonym("less_equal", "le")
synonym("not_equal", "ne")
synonym("clip", "clamp")
synonym("swish", "silu")
synonym("ndimension", "dim")
synonym("nelement", "numel")
synonym("dimensions", "ndim")
synonym("rank", "ndim")
synonym("ravel", "flatten")
synonym("msort", "sort")
synonym("ger", "outer")
synonym("vdot", "dot")
synonym("row_stack", "vstack")
synonym("sgn", "sign")
synonym("average", "mean")
synonym("variance", "var")
synonym("stddev", "std")
synonym("linear_space", "linspace")
synonym("MultiheadAttention", "MultiHeadAttention")
synonym("Swish", "SiLU")

return advice
