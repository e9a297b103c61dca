---@meta _
-- Random numbers: PyTorch's, for the same seed. A Lua state has one default generator. Fills of views, and the
-- functions …_like of them, draw in PyTorch's order: that of the elements in memory.

---@class heed
local heed = {}

---@class heed.Tensor
local Tensor = {}

---A stream of random numbers (MT19937).
---@class heed.Generator
local Generator = {}

---A generator of one's own, for the `generator` option of what draws.
---@param seed? integer PyTorch's default seed, if none is given
---@return heed.Generator
---@nodiscard
function heed.Generator(seed) end

---@param seed integer
---@return heed.Generator self
function Generator:manual_seed(seed) end

---The whole state as a string.
---@return string
---@nodiscard
function Generator:get_state() end

---Goes on from a state that get_state gave.
---@param state string
---@return heed.Generator self
function Generator:set_state(state) end

---Seeds the default generator.
---@param seed integer
function heed.manual_seed(seed) end

---Which of PyTorch's two streams dropout is drawn from; "native" is the default.
---@param stream "native"|"mkl"
function heed.set_dropout_stream(stream) end

---@class heed.GeneratorOption
---@field generator? heed.Generator

---@class heed.DrawOptions: heed.GeneratorOption
---@field dtype? heed.DType

---Uniform in [0, 1), float32: heed.rand(2, 3), heed.rand({2, 3}, {generator = g}).
---@param ... integer|integer[]|heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function heed.rand(...) end

---Normal, of mean 0 and standard deviation 1, float32; of 16 elements and more the bits of PyTorch on x86.
---@param ... integer|integer[]|heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function heed.randn(...) end

---Whole numbers from low to high, both included, int64 (as math.random draws): heed.randint(1, 6, {2, 3}).
---@overload fun(high: integer, shape: integer[], options?: heed.DrawOptions): heed.Tensor
---@param low integer
---@param high integer
---@param ... integer|integer[]|heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function heed.randint(low, high, ...) end

---1…n in random order, int64 [n].
---@param n integer
---@param options? heed.GeneratorOption
---@return heed.Tensor
---@nodiscard
function heed.randperm(n, options) end

---rand of x's shape.
---@param options? heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function Tensor:rand_like(options) end

---randn of x's shape.
---@param options? heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function Tensor:randn_like(options) end

---randint of x's shape.
---@overload fun(self: heed.Tensor, high: integer, options?: heed.DrawOptions): heed.Tensor
---@param low integer
---@param high integer
---@param options? heed.DrawOptions
---@return heed.Tensor
---@nodiscard
function Tensor:randint_like(low, high, options) end

---1 with the probability that x says, else 0.
---@param options? heed.GeneratorOption
---@return heed.Tensor
---@nodiscard
function Tensor:bernoulli(options) end

---@class heed.UniformOptions: heed.GeneratorOption
---@field from? number 0
---@field to? number 1

---Fills x with uniform numbers in [from, to).
---@param from? number|heed.UniformOptions
---@param to? number|heed.UniformOptions
---@param options? heed.GeneratorOption
---@return heed.Tensor self
function Tensor:uniform_(from, to, options) end

---@class heed.NormalOptions: heed.GeneratorOption
---@field mean? number 0
---@field std? number 1

---Fills x with normal numbers.
---@param mean? number|heed.NormalOptions
---@param std? number|heed.NormalOptions
---@param options? heed.GeneratorOption
---@return heed.Tensor self
function Tensor:normal_(mean, std, options) end

---@class heed.DropoutOptions: heed.GeneratorOption
---@field p? number 0.5
---@field training? boolean true

---x with each element 0 with probability p, the rest times 1 / (1 - p); x itself if not training.
---@param p? number|heed.DropoutOptions
---@param training? boolean
---@param options? heed.GeneratorOption
---@return heed.Tensor
---@nodiscard
function Tensor:dropout(p, training, options) end
