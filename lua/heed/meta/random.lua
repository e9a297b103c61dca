---@meta _
-- Random numbers. The same seed gives the same numbers as PyTorch on a CPU; with a generator of the kind "philox", as
-- PyTorch on a GPU. Each Lua state has one default generator; the option `generator` selects another. As in PyTorch,
-- filling a view, and the functions …_like of one, draw in the order of the elements in memory.

---@class heed
local heed = {}

---Tensors have these as methods and heed as functions.
---@class heed.Draws
local Tensor = {}

---The stream of a generator: "mt19937", that of PyTorch on a CPU, or "philox", that of PyTorch on a GPU.
---@alias heed.GeneratorKind "mt19937"|"philox"

-- ---- Generators ----

---A random number generator.
---@class heed.Generator
local Generator = {}

---@class heed.GeneratorOptions
---@field seed? integer by default PyTorch's default seed
---@field kind? heed.GeneratorKind by default "mt19937"

---Makes a generator, for the option `generator` of functions that draw random numbers: heed.Generator(7),
---heed.Generator{seed = 7, kind = "philox"}.
---@param seed? integer|heed.GeneratorOptions by default PyTorch's default seed
---@param kind? heed.GeneratorKind|{ kind: heed.GeneratorKind? } by default "mt19937"
---@return heed.Generator
---@nodiscard
function heed.Generator(seed, kind) end

---Restarts the generator with a seed.
---@param seed integer any integer
---@return heed.Generator self
function Generator:manual_seed(seed) end

---The stream of the generator.
---@return heed.GeneratorKind
---@nodiscard
function Generator:kind() end

---A new generator with the same kind and state.
---@return heed.Generator
---@nodiscard
function Generator:clone() end

---@class heed.GeneratorPart
---@field whole integer[] the dimensions of the whole tensor
---@field first integer[] the index, in the whole, of the first element of the tensors that are drawn

---A copy of a "philox" generator that draws a part of a tensor: rand, randn, dropout and the dropout of attention
---([..., heads, queries, keys]) give the part the numbers that the whole would have. The generator itself does not
---change: after all parts set_offset moves it on.
---@param part heed.GeneratorPart|integer[] the sizes of the whole; or a table with both fields
---@param first? integer[] where the part begins, for each dimension
---@return heed.Generator
---@nodiscard
function Generator:part(part, first) end

---Where the next draw of a "philox" generator begins, in words of 32 bits.
---@return integer
---@nodiscard
function Generator:get_offset() end

---Moves a "philox" generator.
---@param offset integer a multiple of 4
---@return heed.Generator self
function Generator:set_offset(offset) end

---The complete state of the generator, as a string of bytes.
---@return string
---@nodiscard
function Generator:get_state() end

---Restores a state returned by get_state of a generator of the same kind. Raises an error for any other string.
---@param state string what get_state returned
---@return heed.Generator self
function Generator:set_state(state) end

-- ---- Seeds ----

---Restarts the default generator with a seed.
---@param seed integer any integer
---@param kind? heed.GeneratorKind|{ kind: heed.GeneratorKind? } by default it keeps its kind
function heed.manual_seed(seed, kind) end

---Selects which of PyTorch's two algorithms draws dropout masks. PyTorch chooses by the manufacturer of the processor;
---heed's default is "native".
---@param stream "native"|"mkl" "native" at first
function heed.set_dropout_stream(stream) end

-- ---- Random numbers ----

---@class heed.GeneratorOption
---@field generator? heed.Generator draws the numbers; heed.default_generator by default

---@class heed.DrawOptions: heed.GeneratorOption
---@field dtype? heed.DType float32 by default, int64 for integers; of functions …_like that of x

---Uniform random numbers in [0, 1); float32. heed.rand(2, 3), heed.rand({2, 3}, {generator = g}).
---@param ... integer|integer[]|heed.DrawOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function heed.rand(...) end

---Normal random numbers with mean 0 and standard deviation 1; float32. With 16 or more elements they are bit-identical
---to PyTorch on x86.
---@param ... integer|integer[]|heed.DrawOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function heed.randn(...) end

---Random integers from low to high, both included as in math.random; int64. heed.randint(1, 6, {2, 3}). low defaults
---to 1.
---@overload fun(high: integer, shape: integer[], options?: heed.DrawOptions): heed.Tensor
---@param low integer the smallest; 1 by default
---@param high integer the largest
---@param ... integer|integer[]|heed.DrawOptions the sizes; options last
---@return heed.Tensor
---@nodiscard
function heed.randint(low, high, ...) end

---The integers 1 to n in random order, int64 [n].
---@param n integer how many
---@param options? heed.GeneratorOption
---@return heed.Tensor
---@nodiscard
function heed.randperm(n, options) end

---Like heed.rand, with x's shape.
---@param options? heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function Tensor:rand_like(options) end

---Like heed.randn, with x's shape.
---@param options? heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function Tensor:randn_like(options) end

---Like heed.randint, with x's shape.
---@overload fun(self: heed.Tensor, high: integer, options?: heed.DrawOptions): heed.Tensor
---@param low integer the smallest; 1 by default
---@param high integer the largest
---@param options? heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function Tensor:randint_like(low, high, options) end

---Draws 1 with probability x, otherwise 0, elementwise. x must be float32 with values from 0 to 1.
---@param options? heed.GeneratorOption
---@return heed.Tensor
---@nodiscard
function Tensor:bernoulli(options) end

---@class heed.MultinomialOptions: heed.GeneratorOption
---@field num_samples? integer how many to draw from each row
---@field replacement? boolean false by default

---Draws indices with probabilities in proportion to the weights x, float32 [n] or [rows, n]: int64 [num_samples] or
---[rows, num_samples]. Without replacement the samples of a row differ.
---@param num_samples integer|heed.MultinomialOptions how many to draw from each row
---@param replacement? boolean|heed.MultinomialOptions false by default
---@return heed.Tensor
---@nodiscard
function Tensor:multinomial(num_samples, replacement) end

---@class heed.UniformOptions: heed.GeneratorOption
---@field from? number 0 by default
---@field to? number 1 by default

---Fills x with uniform random numbers in [from, to).
---@param from? number|heed.UniformOptions
---@param to? number|heed.UniformOptions
---@param options? heed.GeneratorOption
---@return heed.Tensor self
function Tensor:uniform_(from, to, options) end

---@class heed.NormalOptions: heed.GeneratorOption
---@field mean? number 0 by default
---@field std? number standard deviation, at least 0; 1 by default

---Fills x with normal random numbers.
---@param mean? number|heed.NormalOptions
---@param std? number|heed.NormalOptions
---@param options? heed.GeneratorOption
---@return heed.Tensor self
function Tensor:normal_(mean, std, options) end

---@class heed.DropoutOptions: heed.GeneratorOption
---@field p? number from 0 to 1; 0.5 by default
---@field training? boolean true by default

---Dropout: sets each element to 0 with probability p and multiplies the others by 1 / (1 - p). Returns x itself if
---training is false.
---@param p? number|heed.DropoutOptions
---@param training? boolean
---@param options? heed.GeneratorOption
---@return heed.Tensor
---@nodiscard
function Tensor:dropout(p, training, options) end
