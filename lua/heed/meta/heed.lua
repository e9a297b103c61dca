---@meta _
-- heed: the table that `require "heed"` gives. Every method of a tensor is also a function here: heed.f(x,
-- …) is x:f(…).

---@class heed: heed.Elementwise
---@field nn heed.nn
---@field version string
local heed = {}

---@class heed.Tensor
local Tensor = {}

---@class heed.DTypeOption
---@field dtype? heed.DType

-- ---- Making tensors: sizes are numbers or one table; the dtype is float32 unless it is said otherwise ----

---What ipairs gives, on every Lua: in 5.1 and LuaJIT the own ipairs takes tables alone, and no tensor or ModuleList.
---@param t table|heed.Tensor|heed.nn.Module
---@return function next, any state, integer first
function heed.ipairs(t) end

---What pairs gives, on every Lua: in 5.1 and LuaJIT the own pairs takes tables alone, and neither a state dict nor a
---module written in Lua.
---@param t table
---@return function next, any state, any first
function heed.pairs(t) end

---A tensor of the numbers in nested tables (which may hold tensors), or of one number. Booleans alone give
---bool.
---@param data heed.Nested
---@param options? heed.DType|heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.tensor(data, options) end

---All 0: heed.zeros(2, 3), heed.zeros{2, 3}, heed.zeros(2, 3, {dtype = "int64"}).
---@param ... integer|integer[]|heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.zeros(...) end

---All 1.
---@param ... integer|integer[]|heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.ones(...) end

---Of unspecified content.
---@param ... integer|integer[]|heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.empty(...) end

---All `value`; a boolean gives bool.
---@param shape integer|integer[]
---@param value number|boolean
---@param options? heed.DType|heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.full(shape, value, options) end

---Ones on the diagonal: [n, m], m being n by default.
---@param n integer
---@param m? integer|{ m: integer?, dtype: heed.DType? }
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.eye(n, m, options) end

---The slopes of linear biases for that many heads (ALiBi): 2^(-8 i / h) where h, their number, is a power of two.
---@param num_heads integer
---@return heed.Tensor slopes float32 [num_heads]
---@nodiscard
function heed.alibi_slopes(num_heads) end

---first, first + step, … up to and including last, as a Lua `for` counts.
---@param first number
---@param last number
---@param step? number|{ step: number?, dtype: heed.DType? } 1
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.range(first, last, step, options) end

---`count` values from first to last, both included.
---@param first number
---@param last number
---@param count integer
---@param options? heed.DTypeOption
---@return heed.Tensor
---@nodiscard
function heed.linspace(first, last, count, options) end

---A tensor of the bytes that Tensor:to_string gave (little-endian, row-major).
---@param bytes string
---@param dtype heed.DType
---@param ... integer|integer[] the shape
---@return heed.Tensor
---@nodiscard
function heed.from_string(bytes, dtype, ...) end

---@param value any
---@return boolean
---@nodiscard
function heed.is_tensor(value) end

---A shape: heed.Size{2, 3}.
---@param ... integer|integer[]
---@return heed.Size
---@nodiscard
function heed.Size(...) end

---The tensors one after another along `dim` (1); all other sizes are equal.
---@param tensors heed.Tensor[]
---@param dim? integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function heed.cat(tensors, dim) end
heed.concat = heed.cat

---Tensors of one shape along a new dimension `dim` (1).
---@param tensors heed.Tensor[]
---@param dim? integer|{ dim: integer }
---@return heed.Tensor
---@nodiscard
function heed.stack(tensors, dim) end

-- ---- Files ----

---A `.safetensors` file (mapped, not read, until its tensors are used; writing to one changes memory, never the file), a
---sharded one by its `.safetensors.index.json`, or an `.npz`: its tensors by name, in the file's order, as
---`m:load_state_dict` takes them, and what the file says of itself (safetensors' metadata). An `.npy`: its tensor. A file
---with another name is known by its first bytes. int32 becomes int64; in `.npz` and `.npy` float64 becomes float32; other
---dtypes than heed's are refused. A mapped file must not be cut short, or written to in place, while its tensors are in
---use: the system ends a process that reads what is gone. heed.save makes a new file, also of that name; so it is safe.
---A file that is missing or broken: nil and a message.
---@param path string
---@return heed.StateDict|heed.Tensor|nil
---@return table<string, string>|string|nil metadata or message
---@nodiscard
function heed.load(path) end

---Saves a table of tensors by name (a state dict in its order, others sorted) as `.safetensors` or `.npz`, or one tensor
---as `.npy`: the end of path says which. The file is written whole or not at all: on failure nil and a message, and what
---was there stays. A killed process leaves a temporary file beside path, which the next save of that path removes. numpy
---has no bfloat16, which is for `.safetensors` only, as is metadata.
---@param path string
---@param what heed.Tensor|heed.StateDict|table<string, heed.Tensor>
---@param options? { metadata: table<string, string>? } such as {metadata = {format = "pt"}}
---@return true|nil
---@return string? message
function heed.save(path, what, options) end

-- ---- Threads, time, what is underneath ----

---Large operations may use n threads, 1 to 1024, this one included; 1 at first. The others start when there is work
---for them and sleep without. Results do not depend on n. After a fork the child has one thread until it asks for more.
---@param n integer
function heed.set_num_threads(n) end

---The n that was asked for; less once the system has refused to start some, until n is set anew, and 1 where it has no
---threads.
---@return integer
---@nodiscard
function heed.get_num_threads() end

---What this Lua state may take. A limit that is exceeded raises an error, which pcall catches; all that there was
---stays usable, and the next call works.
---@class heed.Limits
---@field memory? number bytes of this state's tensors, as heed.info counts them; math.huge: no limit
---@field seconds? number that one call of the script's may take, a whole forward of a module for example, and all that it
---calls; math.huge: no limit
---@field threads? number the most that set_num_threads takes; math.huge: no limit
---@field files? boolean false: nothing is loaded or saved
---@field final? boolean true: from now on limits can be made tighter only

---Sets the limits that are named; without arguments gives them all.
---@param limits heed.Limits
---@overload fun(): heed.Limits
function heed.limit(limits) end

---Seconds on a clock that never goes back: for measuring.
---@return number
---@nodiscard
function heed.clock() end

---What heed.info() gives; tostring makes a list of it.
---@class heed.Info
---@field version string
---@field processor string
---@field kernels "scalar"|"avx2"|"avx512"|"neon" the instruction set in use
---@field blas string the library of scalar kernels' matrix products: "OpenBLAS", "not loaded" (not needed yet), "none"
---@field blas_core string the processor that its kernels were written for; "" if not known
---@field threads integer
---@field memory_in_use integer bytes of this Lua state's tensors
---@field memory_peak integer the most there have been

---@return heed.Info
---@nodiscard
function heed.info() end

-- ---- Methods as functions ----

heed.size = Tensor.size
heed.stride = Tensor.stride
heed.numel = Tensor.numel
heed.dim = Tensor.dim
heed.item = Tensor.item
heed.tolist = Tensor.tolist
heed.is_contiguous = Tensor.is_contiguous
heed.iter = Tensor.iter
heed.to = Tensor.to
heed.float = Tensor.float
heed.long = Tensor.long
heed.bool = Tensor.bool
heed.clone = Tensor.clone
heed.contiguous = Tensor.contiguous
heed.copy_ = Tensor.copy_
heed.fill_ = Tensor.fill_
heed.zero_ = Tensor.zero_
heed.to_string = Tensor.to_string
heed.release = Tensor.release
heed.is_released = Tensor.is_released
heed.zeros_like = Tensor.zeros_like
heed.ones_like = Tensor.ones_like
heed.empty_like = Tensor.empty_like
heed.full_like = Tensor.full_like
heed.rand_like = Tensor.rand_like
heed.randn_like = Tensor.randn_like
heed.randint_like = Tensor.randint_like
heed.bernoulli = Tensor.bernoulli
heed.uniform_ = Tensor.uniform_
heed.normal_ = Tensor.normal_
heed.dropout = Tensor.dropout
heed.sum = Tensor.sum
heed.mean = Tensor.mean
heed.any = Tensor.any
heed.all = Tensor.all
heed.var = Tensor.var
heed.std = Tensor.std
heed.max = Tensor.max
heed.min = Tensor.min
heed.argmax = Tensor.argmax
heed.argmin = Tensor.argmin
heed.softmax = Tensor.softmax
heed.log_softmax = Tensor.log_softmax
heed.cumsum = Tensor.cumsum
heed.topk = Tensor.topk
heed.sort = Tensor.sort
heed.argsort = Tensor.argsort
heed.layer_norm = Tensor.layer_norm
heed.rms_norm = Tensor.rms_norm
heed.rope = Tensor.rope
heed.matmul = Tensor.matmul
heed.dot = Tensor.dot
heed.linear = Tensor.linear
heed.linear_int8 = Tensor.linear_int8
heed.quantize_int8 = Tensor.quantize_int8
heed.dequantize_int8 = Tensor.dequantize_int8
heed.embedding = Tensor.embedding
heed.scaled_dot_product_attention = Tensor.scaled_dot_product_attention
heed.mm = Tensor.mm
heed.bmm = Tensor.bmm
heed.view = Tensor.view
heed.reshape = Tensor.reshape
heed.expand = Tensor.expand
heed.permute = Tensor.permute
heed.transpose = Tensor.transpose
heed.t = Tensor.t
heed.narrow = Tensor.narrow
heed.select = Tensor.select
heed.unsqueeze = Tensor.unsqueeze
heed.squeeze = Tensor.squeeze
heed.flatten = Tensor.flatten
heed.split = Tensor.split
heed.chunk = Tensor.chunk
heed.index_select = Tensor.index_select
heed.gather = Tensor.gather
heed.masked_select = Tensor.masked_select
heed.repeat_interleave = Tensor.repeat_interleave
