---@meta _
-- Gradients: what tensors know of them, backward passes, and heed.autograd. Nothing is recorded until
-- heed.set_grad_enabled(true); operations on tensors that want a gradient then remember what a backward pass needs.

---Tensors have these as methods and heed as functions: heed.detach(x) is x:detach().
---@class heed.Gradients
local Tensor = {}

---Asks for a gradient of x, a float32 tensor that was not computed, or no more. Returns x.
---@param requires_grad? boolean true by default
---@return heed.Tensor x
function Tensor:requires_grad_(requires_grad) end

---Another tensor on the same elements that does not require a gradient.
---@return heed.Tensor
---@nodiscard
function Tensor:detach() end

---Makes x itself forget what computed it, and want no gradient. Returns x.
---@return heed.Tensor x
function Tensor:detach_() end

---Makes a tensor that was computed keep its gradient in a backward pass, too.
function Tensor:retain_grad() end

---A function that gets the gradient of x in each backward pass, and may return another one of the same shape. Hooks are
---called in the order in which they were added; errors in them end the pass. A function that refers to x itself keeps x
---in memory until remove() is called: give it weakly, in a table with __mode = "v".
---@param f fun(gradient: heed.Tensor): heed.Tensor? gets the gradient
---@return heed.Handle handle remove() takes it away
function Tensor:register_hook(f) end

---@class heed.BackwardOptions
---@field gradient? heed.Tensor of the shape of x; needed unless x has one element
---@field retain_graph? boolean what operations saved stays, so that another pass can go through it

---Adds the gradients of x to x.grad of all leaves that led to it. After an error, also of a limit, every gradient is as
---before, and the call can be made again.
---@param gradient? heed.Tensor|heed.BackwardOptions
---@param retain_graph? boolean|heed.BackwardOptions
function Tensor:backward(gradient, retain_graph) end

---@class heed.BackwardStepsOptions: heed.BackwardOptions
---@field ms? number milliseconds per slice; 2 by default. 0: one operation; math.huge: everything

---x:backward() in slices of time: `for done, total in loss:backward_steps{ms = 2} do … end`. The result is the same, bit
---for bit; gradients change at the end, all of them or, after an error, none. An operation is not divided.
---@param options? heed.BackwardStepsOptions
---@return heed.BackwardSteps steps
---@nodiscard
function Tensor:backward_steps(options) end

---A backward pass in slices of time. Calling it runs one slice; one that is left in the middle changes nothing.
---@class heed.BackwardSteps
---@field done integer operations that are done
---@field total integer all of them
---@overload fun(): integer?, integer?
local BackwardSteps = {}

---Continues for a time slice.
---@param ms? number milliseconds; by default those of the options
---@return integer done
---@return integer total
function BackwardSteps:advance(ms) end

---Ends the pass and frees its memory; also `local steps <close> = loss:backward_steps()`.
function BackwardSteps:release() end

---Backward passes, functions with a gradient of one's own, and tests of gradients.
---@class heed.autograd
local autograd = {}

---x:backward() for several tensors at once.
---@param tensors heed.Tensor|heed.Tensor[] each with one element, unless grad_tensors are given
---@param grad_tensors? heed.Tensor|table<integer, heed.Tensor> a gradient for each; nil for 1
---@param options? { retain_graph: boolean? } false by default
function autograd.backward(tensors, grad_tensors, options) end

---@class heed.GradOptions
---@field grad_outputs? heed.Tensor|table<integer, heed.Tensor> a gradient for each output; nil for 1
---@field retain_graph? boolean false by default
---@field allow_unused? boolean the gradient of an input that no output depends on is nil, not an error

---The gradients of the sum of the outputs with respect to inputs, as new tensors; x.grad does not change. Of one input
---it is a tensor, of a table of inputs a table.
---@param outputs heed.Tensor|heed.Tensor[] what was computed
---@param inputs heed.Tensor|heed.Tensor[] what the gradients are of
---@param options? heed.GradOptions
---@return heed.Tensor|table<integer, heed.Tensor>|nil
function autograd.grad(outputs, inputs, options) end

---What forward and backward of a Function get first. Fields of any other name keep what a script sets.
---@class heed.FunctionContext
---@field needs_input_grad boolean[] whether a gradient of each argument of forward is wanted
---@field [string] any
local Context = {}

---Keeps tensors, or other values, for backward, without what computed them.
---@param ... any
function Context:save(...) end

---What save got; an error if a tensor was changed in place since.
---@return any ...
---@nodiscard
function Context:saved() end

---These results of forward have no gradient.
---@param ... heed.Tensor results of forward
function Context:mark_non_differentiable(...) end

---@class heed.FunctionDefinition
---@field forward fun(ctx: heed.FunctionContext, ...): any ...
---@field backward fun(ctx: heed.FunctionContext, ...): any ...

---An operation of a script's own, called like a function.
---@class heed.Function
---@field name string shown by grad_fn
---@field forward function computes
---@field backward function computes the gradients
---@field apply fun(...): any ... the same as calling it
---@overload fun(...): any ...

---A new operation. forward computes, unrecorded. backward gets the gradient of each of its results, and gives one for
---each argument of forward, of its shape, nil for those without one.
---
---    local Clip = heed.autograd.Function("Clip", {
---      forward = function(ctx, x) ctx:save(x) return x:clamp(-1, 1) end,
---      backward = function(ctx, dy) return dy * ctx:saved():abs():le(1):float() end,
---    })
---@param name string shown in messages and by grad_fn
---@param definition heed.FunctionDefinition forward and backward
---@return heed.Function
---@nodiscard
function autograd.Function(name, definition) end

---@class heed.GradcheckOptions
---@field h? number the distance; 0.03 by default, which suits float32
---@field tolerance? number relative to the largest gradient, or to 1; 0.001 by default
---@field raise_exception? boolean false: the result is false and a message, instead of an error

---Compares the gradients of f with differences (f(x + h) - f(x - h)) / 2h, for each element of those inputs that want a
---gradient, or of all.
---@param f fun(...): heed.Tensor its result is summed
---@param inputs heed.Tensor|table the arguments of f
---@param options? heed.GradcheckOptions
---@return boolean ok
---@return string? message
function autograd.gradcheck(f, inputs, options) end

---Calls a function in which backward passes raise where the gradient of an operation has the first nan; or turns this on
---or off, and returns what it was.
---@param f function|boolean what to call; or true or false
---@param ... any its arguments
---@return any ...
function autograd.detect_anomaly(f, ...) end

autograd.no_grad = heed.no_grad
autograd.enable_grad = heed.enable_grad
autograd.inference_mode = heed.inference_mode
autograd.set_grad_enabled = heed.set_grad_enabled
autograd.is_grad_enabled = heed.is_grad_enabled
