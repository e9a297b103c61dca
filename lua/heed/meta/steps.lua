---@meta
-- A forward pass in slices of time: what mha:steps gives.

---Options of a forward in slices: those of a forward, and the budget.
---@class heed.StepsOptions: heed.ForwardOptions
---@field ms? number milliseconds of a slice; 2. 0: the smallest piece of work; math.huge: all of it

---A forward in slices of time, to the bits of the whole. It keeps the input, the options' tensors and the weights of
---the projections that it began with; what is written into them in place meanwhile reaches some of the result. A cache
---gets its tokens with the last slice, and must not be used by anything else until then. Dropout draws from a copy
---of the generator as it was at the beginning; the generator itself goes on with the last slice, unless something
---else has drawn from it meanwhile.
---@class heed.Steps
---@field result? heed.Tensor what the forward gives; nil until all is done
---@field info? heed.Internals with need_weights; nil until all is done
---@field done integer how far it is, in multiply-adds, about; grows with each slice
---@field total integer what done is at the end
---@overload fun(): integer?, integer?
local Steps = {}

---Goes on for so many milliseconds, or those of the options.
---@param ms? number
---@return integer done
---@return integer total
function Steps:advance(ms) end

---Gives the memory back at once; also `local steps <close> = m:steps(x)`.
function Steps:release() end
