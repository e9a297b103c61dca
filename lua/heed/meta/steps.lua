---@meta _
-- A resumable forward pass, run in time slices: the result of mha:steps.

---The options of a forward pass, and the length of a slice.
---@class heed.StepsOptions: heed.ForwardOptions
---@field ms? number milliseconds per slice; 2 by default. 0: the smallest unit of work; math.huge: everything

---A forward pass that runs in time slices; the result is bit-identical to that of a single call. It holds the input, the
---tensors in the options and the weights of the projections from the beginning; in-place changes to them in between
---affect part of the result. A cache receives its tokens with the last slice, and must not be used otherwise until then.
---Dropout draws from a copy of the generator, made at the beginning; the last slice advances the generator itself,
---unless other draws have changed it in between. Calling it runs one slice, as in `for done, total in steps do`.
---
---With hooks, changed heads or parts of one's own, pre-hooks of the module run at the beginning, all others within
---slices. A slice does not interrupt them; one that raises ends the pass. They may yield, in a coroutine that calls
---advance (in 5.1 and LuaJIT errors then leave the generator as it is). Such a pass takes memory in slices, too.
---@class heed.Steps
---@field result? heed.Tensor the output of the forward pass; nil until the last slice
---@field info? heed.Taps with need_weights or need_lse; nil until the last slice
---@field done integer the progress, roughly in multiply-adds; grows with each slice
---@field total integer the value of done at the end
---@overload fun(): integer?, integer?
local Steps = {}

---Continues for a time slice.
---@param ms? number milliseconds; by default those of the options
---@return integer done
---@return integer total
function Steps:advance(ms) end

---Frees the memory immediately; also `local steps <close> = m:steps(x)`.
function Steps:release() end
