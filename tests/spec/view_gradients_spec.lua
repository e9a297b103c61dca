-- Gradients of views, copies, indexing, joining, products and writes in place.
local heed = require "heed"
local raises = require "tests.raises"
local load = loadstring or load

--- The formula of scripts/dev/make_view_gradient_values.py.
local function numbers(shape, seed, divisor)
  local count, data = 1, {}
  for i = 1, #shape do count = count * shape[i] end
  for i = 0, count - 1 do data[i + 1] = ((i * (2 * seed + 5) + seed) % 23 - 11) / divisor end
  if count == 0 then return heed.zeros(shape) end
  return heed.tensor(data):reshape(shape)
end

local function I(list) return heed.tensor(list, { dtype = "int64" }) end

local SHAPES = { { "x", { 3, 4 } }, { "z", { 2, 3, 4 } }, { "v", { 4 } }, { "w", { 5, 4 } }, { "b", { 5 } }, { "u", { 3, 4 } } }

local function inputs()
  local list = {}
  for seed, given in ipairs(SHAPES) do list[seed] = numbers(given[2], seed, 8):requires_grad_() end
  return list
end

--- y = … of the statements, for these inputs.
local function run(code, list)
  local names = {}
  for i, given in ipairs(SHAPES) do names[i] = given[1] end
  local chunk = ("local heed, I, %s = ... local y %s return y"):format(table.concat(names, ", "), code)
  return assert(load(chunk))(heed, I, (table.unpack or unpack)(list))
end

local function backward(y) (y * numbers(y.shape, 7, 16)):sum():backward() end

--- Within 2e-6 of the largest. Where PyTorch has zeros, there may be no gradient.
local function same(list, want, code)
  local most = 0
  for i = 1, #(want or {}) do most = math.max(most, math.abs(want[i])) end
  if most == 0 and list == nil then return end
  if want == nil then error(("%s: there must be no gradient"):format(code)) end
  if list == nil or #list ~= #want then error(("%s: there are %d elements; there must be %d"):format(code, list and #list or 0, #want)) end
  for i = 1, #want do
    if not (math.abs(list[i] - want[i]) <= 2e-6 * most) then
      error(("%s: element %d is %s; it must be %s"):format(code, i, tostring(list[i]), tostring(want[i])))
    end
  end
end

describe("gradients of views, indexing, joining, products and writes", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  it("are PyTorch's, and have its names", function()
    for _, case in ipairs(dofile "tests/golden/view_gradients.lua") do
      local list = inputs()
      local ok, problem = pcall(function()
        local y = run(case.code, list)
        if case.name then assert.are.equal("<" .. case.name .. ">", y.grad_fn, case.code) end
        backward(y)
      end)
      if not ok then error(case.code .. ": " .. tostring(problem)) end
      for i, given in ipairs(SHAPES) do
        local grad = list[i].grad
        same(grad and grad:flatten():tolist(), case.grads[given[1]], case.code .. ": " .. given[1])
      end
    end
  end)
end)
