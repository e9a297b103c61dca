--- heed.autograd.gradcheck: gradients against differences.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local mode = require "heed.autograd.mode"
local passes = require "heed.autograd.passes"
local primitives = core.modules

local OPTIONS = { "h", "tolerance", "raise_exception" }

--- A fixed weight for element k of the results, so that the gradients of all of them are tested at once.
local function weight(k) return 0.25 + (k * 0.61803398875) % 1 end

--- All float32 tensors of f(…), flattened.
local function results_of(f, arguments)
  local given, results = compat.pack(f(compat.unpack(arguments, 1, arguments.n))), {}
  for i = 1, given.n do
    if E.is_tensor(given[i]) and given[i].dtype == "float32" then results[#results + 1] = given[i] end
  end
  if #results == 0 then E.reject("gradcheck", "the result of f", given[1], "a float32 tensor") end
  return results
end

--- The weighted sum of f(…), in double precision.
local function sum_of(f, arguments)
  local sum, k = 0, 0
  for _, y in ipairs(results_of(f, arguments)) do
    local values = y:detach():flatten():tolist()
    if type(values) ~= "table" then values = { values } end
    for i = 1, #values do
      k = k + 1
      sum = sum + values[i] * weight(k)
      if k % 4096 == 0 then E.check_cancel "gradcheck" end
    end
  end
  return sum
end

--- The gradients that a backward pass gives, as flat tables.
local function analytic(f, arguments, inputs)
  return mode.run(true, nil, function()
    local y, gradients, k = results_of(f, arguments), {}, 0
    for i = 1, #y do
      if not y[i].requires_grad then
        E.fail("gradcheck: result %d of f was not recorded; it must be computed from the inputs, by operations that "
          .. "have a gradient", i)
      end
      local values = {}
      for j = 1, y[i]:numel() do values[j] = weight(k + j) end
      k = k + #values
      gradients[i] = core.tensor(values, { dtype = "float32" }):view(y[i].shape)
    end
    local found = passes.grad(y, inputs, { grad_outputs = gradients, allow_unused = true })
    for i = 1, #inputs do
      found[i] = (found[i] or core.zeros(inputs[i].shape)):flatten():tolist()
      if type(found[i]) ~= "table" then found[i] = { found[i] } end
    end
    return found
  end)
end

--- (f(x + h) - f(x - h)) / 2h for element j of argument `at`.
local function difference(f, arguments, at, flat, j, h)
  local x, shifted = arguments[at], { n = arguments.n }
  for i = 1, arguments.n do shifted[i] = arguments[i] end
  local value, sums = flat[j], {}
  for side = 1, 2 do
    flat[j] = value + (side == 1 and h or -h)
    shifted[at] = core.tensor(flat, { dtype = "float32" }):view(x.shape)
    local moved = shifted[at]:flatten():tolist()
    sums[side] = { sum_of(f, shifted), moved[j] }
  end
  flat[j] = value
  return (sums[1][1] - sums[2][1]) / (sums[1][2] - sums[2][2])
end

--- gradcheck(f, inputs, {h = 0.03, tolerance = 1e-3, raise_exception = true}): true if the gradients of f are close to
--- differences at a distance of h. `inputs` are the arguments of f; those tensors are tested that want a gradient, or
--- else all of float32. Otherwise an error, or false and its message.
return function(f, inputs, ...)
  local h, tolerance, raises = primitives.options("gradcheck", OPTIONS, 3, f, inputs, ...)
  h = E.number(h, 0.03, "gradcheck", "h", function(value) return value > 0 and value < math.huge end, "more than 0")
  tolerance = E.number(tolerance, 1e-3, "gradcheck", "tolerance", function(value) return value >= 0 end,
    "a number, 0 or more")
  raises = E.boolean(raises, true, "gradcheck", "raise_exception")
  if type(f) ~= "function" and not E.is_module(f) and type(f) ~= "table" then
    E.reject("gradcheck", "f", f, "a function")
  end
  if E.is_tensor(inputs) then inputs = { inputs } end
  if not E.is_list(inputs) then E.reject("gradcheck", "inputs", inputs, "a table of the arguments of f") end
  local arguments, at, any = { n = #inputs }, {}, false
  for i = 1, #inputs do any = any or E.is_tensor(inputs[i]) and inputs[i].requires_grad end
  for i = 1, #inputs do
    local x = inputs[i]
    if E.is_tensor(x) and x.dtype == "float32" and (x.requires_grad or not any) then
      at[#at + 1] = i
      x = x:detach():clone():requires_grad_(true)
    end
    arguments[i] = x
  end
  if #at == 0 then E.fail "gradcheck: inputs has no float32 tensor; it must have one" end
  local leaves = {}
  for i = 1, #at do leaves[i] = arguments[at[i]] end
  local gradients = analytic(f, arguments, leaves)
  for i = 1, #at do
    local flat = leaves[i]:detach():flatten():tolist()
    local largest = 1
    for j = 1, #flat do largest = math.max(largest, math.abs(gradients[i][j])) end
    for j = 1, #flat do
      E.check_cancel "gradcheck"
      local expected = mode.run(false, nil, difference, f, arguments, at[i], flat, j, h)
      local error_of = math.abs(gradients[i][j] - expected)
      local fits = error_of <= tolerance * largest -- not so for nan
      if not fits then
        local message = ("gradcheck: element %d of input %d has the gradient %g, and a difference at h = %g gives %g; "
          .. "they must differ by at most %g"):format(j, at[i], gradients[i][j], h, expected, tolerance * largest)
        if raises then E.fail("%s", message) end
        return false, message
      end
    end
  end
  return true
end
