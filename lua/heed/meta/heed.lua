---@meta heed
-- The table that `require "heed"` returns. Every method of a tensor is also a function here, heed.f(x, …) is x:f(…):
-- heed and heed.Tensor inherit the classes that declare them. Functions that make tensors take sizes as separate
-- integers or as one table, and a dtype that defaults to float32. An invalid size or dtype, or a tensor that exceeds
-- the memory limit, raises an error.

---@class heed: heed.Contents, heed.Draws, heed.Elementwise, heed.Gradients, heed.Operations, heed.Views
---@field autograd heed.autograd backward passes and functions with a gradient of their own
---@field nn heed.nn modules, losses, initial values
---@field optim heed.optim optimisers and schedules
---@field utils heed.utils data, checkpoints, progress bars
---@field models heed.models loads models
---@field tokenizers heed.tokenizers loads tokenizers
---@field mask heed.mask masks as values
---@field default_generator heed.Generator what functions draw from that get no generator; heed.manual_seed seeds it
---@field version string such as "0.1.0"
---@field inf number infinity
---@field nan number not a number
---@field pi number π
---@field e number Euler's number
---@field float32 "float32" 32-bit floating point, what functions compute in
---@field int64 "int64" 64-bit integers: ids and indices
---@field bfloat16 "bfloat16" for storage: 16 bits, the range of float32
---@field float16 "float16" for storage: 16 bits, up to 65504
---@field half "float16" the same as float16
---@field int8 "int8" for storage: 8-bit integers
---@field newaxis "newaxis" in x[{…}]: a new dimension of size 1
local heed = {}

---@class heed.DTypeOption
---@field dtype? heed.DType float32 by default; of functions …_like and new_… that of x

---@class heed.MakerOptions: heed.DTypeOption
---@field requires_grad? boolean whether a gradient of the new tensor is wanted

-- ---- Printing ----

---@class heed.PrintOptions
---@field precision? integer digits behind the point, at most 50; 4 by default
---@field threshold? number of more elements only the edges are printed; 1000 by default, heed.inf: all are
---@field edgeitems? integer elements printed at each end of a dimension, at least 1; 3 by default
---@field linewidth? integer characters of a line; 80 by default
---@field profile? "default"|"short"|"full" sets all of these
---@field sci_mode? boolean scientific notation, always or never; by default it depends on the elements

---Sets how tensors are printed in this Lua state. Options that are not given stay as they are, except sci_mode, which
---becomes the default, as in PyTorch.
---@param precision? integer|heed.PrintOptions
---@param threshold? number
---@param edgeitems? integer
---@param linewidth? integer
---@param profile? "default"|"short"|"full"
---@param sci_mode? boolean
function heed.set_printoptions(precision, threshold, edgeitems, linewidth, profile, sci_mode) end

-- ---- Recording ----

---Turns the recording of operations, for backward passes, on or off; returns what it was. It is off at first.
---@param mode boolean true: record
---@return boolean before
function heed.set_grad_enabled(mode) end

---Whether operations are recorded.
---@return boolean
---@nodiscard
function heed.is_grad_enabled() end

---Calls a function while nothing is recorded, and returns its results. Recording is then what it was before, also after
---an error, and wherever the function yields.
---@param f function what to call
---@param ... any its arguments
---@return any ...
function heed.no_grad(f, ...) end

---Calls a function while operations are recorded.
---@param f function what to call
---@param ... any its arguments
---@return any ...
function heed.enable_grad(f, ...) end

---The same as no_grad.
---@param f function what to call
---@param ... any its arguments
---@return any ...
function heed.inference_mode(f, ...) end

-- ---- Iterating on every Lua ----

---Lua's ipairs, extended to tensors and ModuleLists on every Lua; in 5.1 and LuaJIT the built-in ipairs accepts tables
---only.
---@param t table|heed.Tensor|heed.Module what to go through
---@return function next, any state, integer first
function heed.ipairs(t) end

---Lua's pairs, extended to state dicts and to modules written in Lua on every Lua; in 5.1 and LuaJIT the built-in pairs
---accepts tables only.
---@param t table what to go through
---@return function next, any state, any first
function heed.pairs(t) end

-- ---- Making tensors ----

---A tensor of the values in nested tables, which may also contain tensors; a single number gives a tensor without
---dimensions. Booleans give bool, everything else float32 unless a dtype is given. Tables at the same depth must have
---equal lengths.
---@param data heed.Nested the values
---@param options? heed.DType|heed.MakerOptions a dtype, or a table of options
---@return heed.Tensor
---@nodiscard
function heed.tensor(data, options) end

---A tensor filled with 0: heed.zeros(2, 3), heed.zeros{2, 3}, heed.zeros(2, 3, {dtype = "int64"}).
---@param ... integer|integer[]|heed.MakerOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function heed.zeros(...) end

---A tensor filled with 1.
---@param ... integer|integer[]|heed.MakerOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function heed.ones(...) end

---A tensor with unspecified contents, which the script should overwrite.
---@param ... integer|integer[]|heed.MakerOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function heed.empty(...) end

---A tensor filled with `value`. A boolean gives bool, unless a dtype is given.
---@param shape integer|integer[] the sizes
---@param value number|boolean that of every element
---@param options? heed.DType|heed.MakerOptions a dtype, or a table of options
---@return heed.Tensor
---@nodiscard
function heed.full(shape, value, options) end

---A matrix [n, m] with ones on the main diagonal and zeros elsewhere; m defaults to n.
---@param n integer rows
---@param m? integer|{ m: integer?, dtype: heed.DType? } columns; n by default
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function heed.eye(n, m, options) end

-- ---- Attention ----

---The ALiBi slopes (attention with linear biases) of num_heads heads: 2^(-8 i / h) for head i of h, if h is a power of
---two; otherwise interpolated as in the ALiBi paper.
---@param num_heads integer heads
---@return heed.Tensor slopes float32 [num_heads]
---@nodiscard
function heed.alibi_slopes(num_heads) end

-- ---- Making tensors ----

---The values first, first + step, …, up to and including last, as in a Lua `for`. Shape [count].
---@param first number the first value
---@param last number the last value
---@param step? number|{ step: number?, dtype: heed.DType? } 1 by default
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function heed.range(first, last, step, options) end

---@class heed.ArangeOptions
---@field start? number 0 by default
---@field ["end"]? number
---@field step? number 1 by default
---@field dtype? heed.DType int64 if all numbers are integers, else float32, by default

---heed.arange(stop), heed.arange(start, stop), heed.arange(start, stop, step): the values start, start + step, … up to but
---excluding stop, as in PyTorch; start is 0 by default. Shape [count]. int64 if all numbers are integers (before Lua 5.3,
---where there is one type of numbers: whole), else float32, unless a dtype is given. Raises an error if stop is before
---start. For token ids and indices, which count from 1, use arange(1, n + 1) or `heed.range(1, n)`.
---@param start_or_stop number|heed.ArangeOptions the first value; alone, the end
---@param stop? number|heed.ArangeOptions the end, which is not included
---@param step? number|heed.ArangeOptions 1 by default
---@param options? heed.ArangeOptions
---@return heed.Tensor
---@nodiscard
function heed.arange(start_or_stop, stop, step, options) end

---`count` equally spaced values from first to last, both included. Shape [count].
---@param first number the first value
---@param last number the last value
---@param count integer how many values
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function heed.linspace(first, last, count, options) end

---`base` to the powers of linspace(start, stop, steps). Shape [steps].
---@param start number the first exponent
---@param stop number the last exponent
---@param steps integer how many values
---@param base? number|{ base: number?, dtype: heed.DType? } 10 by default
---@param options? heed.MakerOptions
---@return heed.Tensor
---@nodiscard
function heed.logspace(start, stop, steps, base, options) end

---A tensor made from the bytes that Tensor:to_string returns (little-endian, row-major).
---@param bytes string its length must be the number of elements times the size of one
---@param dtype heed.DType of the elements
---@param ... integer|integer[] the shape
---@return heed.Tensor
---@nodiscard
function heed.from_string(bytes, dtype, ...) end

-- ---- Kinds of values ----

---Whether a value is a tensor; parameters are tensors.
---@param value any anything
---@return boolean
---@nodiscard
function heed.is_tensor(value) end

---A shape: heed.Size{2, 3}.
---@param ... integer|integer[] the sizes
---@return heed.Size
---@nodiscard
function heed.Size(...) end

-- ---- Attention ----

---Joins results of `heed.attention_partial` over disjoint keys: the attention over all of these keys, and its
---statistics, which can be merged again.
---@param outs heed.Tensor[] [..., L, dv], of one shape; at least one
---@param stats heed.Tensor[] [..., L, 2], as many
---@return heed.Tensor out [..., L, dv]
---@return heed.Tensor stats [..., L, 2]
---@nodiscard
function heed.attention_merge(outs, stats) end

-- ---- Joining ----

---Concatenates tensors along dimension `dim`. All other sizes must be equal.
---@param tensors heed.Tensor[] at least one
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor
---@nodiscard
function heed.cat(tensors, dim) end
heed.concat = heed.cat
heed.concatenate = heed.cat

---Stacks tensors of equal shape along a new dimension at `dim`.
---@param tensors heed.Tensor[] at least one
---@param dim? integer|{ dim: integer } 1 by default
---@return heed.Tensor
---@nodiscard
function heed.stack(tensors, dim) end

---Concatenates along dimension 2, and tensors of one dimension along that. The tensors are separate arguments or one table,
---as in vstack, dstack and column_stack.
---@param ... heed.Tensor|heed.Tensor[] the tensors
---@return heed.Tensor
---@nodiscard
function heed.hstack(...) end

---Concatenates along dimension 1, after tensors of one dimension became rows [1, n].
---@param ... heed.Tensor|heed.Tensor[] the tensors
---@return heed.Tensor
---@nodiscard
function heed.vstack(...) end

---Concatenates along dimension 3, after [n] became [1, n, 1] and [n, m] became [n, m, 1].
---@param ... heed.Tensor|heed.Tensor[] the tensors
---@return heed.Tensor
---@nodiscard
function heed.dstack(...) end

---Concatenates along dimension 2, after tensors of one dimension became columns [n, 1].
---@param ... heed.Tensor|heed.Tensor[] the tensors
---@return heed.Tensor
---@nodiscard
function heed.column_stack(...) end

---Expands tensors [n], [m], … to views [n, m, …], in which tensor i varies along dimension i. indexing = "xy" exchanges
---the first two dimensions. The result is a list: `local grid = heed.meshgrid(x, y); local xs, ys = grid[1], grid[2]`.
---@param ... heed.Tensor|heed.Tensor[]|{ indexing: "ij"|"xy" } the tensors; last the option indexing, "ij" by default
---@return heed.Tensor[]
---@nodiscard
function heed.meshgrid(...) end

-- ---- Making tensors ----

---The matrix with the given matrices along its diagonal and 0 elsewhere. Tensors without dimensions and rows [n] count as
---matrices of one row.
---@param ... heed.Tensor|heed.Tensor[] the tensors
---@return heed.Tensor
---@nodiscard
function heed.block_diag(...) end

---The indices of the lower triangle of a matrix: its rows and columns, counted from 1, row by row.
---@param row integer rows of the matrix
---@param col integer columns of the matrix
---@param offset? integer|{ offset: integer } the diagonal up to which elements belong to it; 0 by default
---@return heed.Tensor indices int64 [2, count]
---@nodiscard
function heed.tril_indices(row, col, offset) end

---The indices of the upper triangle of a matrix: its rows and columns, counted from 1, row by row.
---@param row integer rows of the matrix
---@param col integer columns of the matrix
---@param offset? integer|{ offset: integer } the diagonal from which elements belong to it; 0 by default
---@return heed.Tensor indices int64 [2, count]
---@nodiscard
function heed.triu_indices(row, col, offset) end

-- ---- Products ----

---Sums of products by Einstein's convention: heed.einsum("bhid,bhjd->bhij", q, k). Each letter is a dimension, "..." any
---number of them that broadcast; what the output lacks is summed over, and a letter twice in one operand means its
---diagonal. Without "->", the output has the letters that occur once, sorted, after "...". Computed from left to right, with
---matmul where something is summed.
---@param equation string the letters of each operand, and after "->" those of the result
---@param ... heed.Tensor|heed.Tensor[] the operands
---@return heed.Tensor
---@nodiscard
function heed.einsum(equation, ...) end

-- ---- Files ----

---The options of torch.load, which heed accepts because it does so anyway: it computes on the CPU, reads tensors alone
---and maps files.
---@class heed.LoadOptions
---@field map_location? "cpu" without effect
---@field weights_only? boolean without effect
---@field mmap? boolean without effect

---Loads a file: a state dict in the file's order and its metadata; for `.npy`, and a `.pt` file of one tensor, that tensor.
---Formats: `.safetensors`, `.safetensors.index.json` (a model in several files), `.npz`, `.npy`, and `.pt`, `.pth` or `.bin`
---as torch.save writes them; nothing in these is run, nested dicts give names such as "model.weight" (state.model is the
---part below that key), and numbers and texts are metadata; `.gguf`, mapped, with its metadata in state.metadata alone. Files with other names are recognized by their first bytes. `.safetensors` and `.pt` are mapped:
---data is read when a tensor is used, and writing to such a tensor never changes the file. float64 becomes float32, and
---all integers except int8 become int64, when a tensor is used; a tensor of a dtype that heed lacks, such as float8, raises
---an error then. A mapped file must not be truncated or overwritten in place while its tensors are in use, since the
---operating system ends a process that reads missing pages. heed.save to the same path is safe: it creates a new file.
---A checkpoint, which heed.save made of a nested table, gives that table: modules as state dicts, objects as what their
---state_dict returned, generators as strings for set_state; heed.utils.load_checkpoint loads these into objects.
---Returns nil and a message if the file is missing or broken.
---@param path string of the file
---@param options? heed.LoadOptions
---@return heed.StateDict|heed.Tensor|table|nil tensors
---@return table<string, string>|string|nil metadata of the file, or the message
---@nodiscard
function heed.load(path, options) end

---Saves tensors by name as `.safetensors`, `.npz` or `.gguf`, or one tensor as `.npy`, depending on the ending of path.
---State dicts keep their order; other tables are sorted by name. bfloat16 and metadata require `.safetensors` or `.gguf`,
---blocked dtypes `.gguf`, whose metadata may be numbers, booleans, strings and lists. Whole numbers are saved as uint32,
---int32, int64 or uint64, the first that fits, in lists as int32 or int64; others as float32. {type = "float32", value =
---10000} names the type, and state.metadata of a loaded file keeps the types that its numbers had there. The save is atomic: on failure it returns nil and a message, and an existing file stays as it was. A process that is killed while
---saving leaves a temporary file beside path, which the next save to that path removes.
---A `.safetensors` file can hold a checkpoint: a table by name of modules, objects with state_dict (optimisers,
---schedules, loaders), generators, tensors, numbers, strings, booleans and nested tables of these:
---heed.save("run.safetensors", {model = model, optimizer = optimizer, step = 12}).
---@param path string where to; its ending chooses the format
---@param what heed.Tensor|heed.StateDict|table<string, any> what to save
---@param options? { metadata: table<string, any>? } such as {metadata = {format = "pt"}}; all texts for `.safetensors`
---@return true|nil
---@return string? message
function heed.save(path, what, options) end

-- ---- Threads, limits, information ----

---Sets the number of threads that large operations may use, including the calling one; initially 1. Threads start when
---there is work for them and sleep otherwise. Results do not depend on n. After a fork the child process has one thread
---until it sets more.
---@param n integer from 1 to 1024, and at most limits.threads
function heed.set_num_threads(n) end

---The number of threads set; fewer if the system failed to start some, and 1 on systems without threads.
---@return integer
---@nodiscard
function heed.get_num_threads() end

---How `linear`, `matmul`, attention and the modules multiply, for this Lua state: "highest" (initially) in float32, to
---which low-precision weights are widened; "high": bfloat16, int8 and blocked weights, and bfloat16 and int8 keys and
---values by the processor's instructions for such numbers, with the input rounded to bfloat16, or for int8 and some
---blocked weights to 8 bits in blocks of 64; "medium": float32 and float16 as well, rounded to bfloat16, also in `matmul`
---and in the products of gradients. Fewer than 8 rows are rounded to 8 bits for int8 and blocked weights. Processors
---without the instructions compute as with "highest". Fewer than 8 rows with other weights, and attention with masks
---other than windows, or backward, are computed in float32.
---@param precision "highest"|"high"|"medium" "highest" at first
function heed.set_matmul_precision(precision) end

---The precision set.
---@return "highest"|"high"|"medium"
---@nodiscard
function heed.get_matmul_precision() end

---Limits of this Lua state. Exceeding one raises an error, which pcall catches; existing tensors stay valid, and later
---calls work as usual.
---@class heed.Limits
---@field memory? number bytes of this state's tensors, as counted by heed.info; math.huge: no limit
---@field seconds? number duration of a single call from the script, such as a module's forward, including all calls
---inside it; math.huge: no limit
---@field work? number units of work for all calls that follow, together, the same for a call on every machine; as heed.limit
---returns it, what is left; math.huge: no limit
---@field threads? number the largest number that set_num_threads accepts; math.huge: no limit
---@field files? boolean false: loading and saving raise an error
---@field map? boolean false: files are read into memory, where their tensors would otherwise stay in the mapped file
---@field final? boolean true: from now on limits can only be tightened, and files are not mapped unless map = true is
---given with it

---Sets the limits that are given. Without arguments, returns all of them.
---@param limits heed.Limits those to change
---@overload fun(): heed.Limits
function heed.limit(limits) end

---A monotonic clock, in seconds, for measuring durations.
---@return number
---@nodiscard
function heed.clock() end

---The result of heed.info(); tostring formats it as a list.
---@class heed.Info
---@field version string of heed
---@field processor string its name
---@field kernels string the kernel table in use, named by its instruction set: "scalar", "avx2", …
---@field blas string the library that computes matrix products for the scalar kernels: "OpenBLAS", "not loaded" (not needed yet) or "none"
---@field blas_core string the processor that the library's kernels were written for; "" if unknown
---@field threads integer as heed.get_num_threads()
---@field memory_in_use integer bytes of this Lua state's tensors
---@field memory_peak integer the maximum of memory_in_use so far
---@field memory_kept integer bytes of released tensors that wait for tensors of the same size

---The version of heed, the processor, and the resources in use.
---@return heed.Info
---@nodiscard
function heed.info() end

return heed
