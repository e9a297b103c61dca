-- Gradients of operations are PyTorch's: tests/golden/operation_gradients.lua, which
-- scripts/dev/make_gradient_values.py describes and makes. One test for each operation.
local heed = require "heed"
local support = require "tests.support"

local function is_tensor(value) return type(value) == "table" and value.shape and value.data end

local function build(value)
  if not is_tensor(value) then return value end
  local options = { dtype = value.dtype }
  if #value.shape == 0 then return heed.tensor(value.data[1], options) end
  return heed.tensor(value.data, options):reshape(value.shape)
end

-- The same tensor with its dimensions in the reverse order in memory.
local function turned(x)
  local order = {}
  for d = 1, x:dim() do order[d] = x:dim() + 1 - d end
  return x:dim() > 1 and x:permute(order):clone():contiguous():permute(order) or x
end

local function near(got, wanted, most)
  if wanted ~= wanted then return got ~= got end
  return got == wanted or math.abs(got - wanted) <= most
end

-- What is wrong with a gradient, or nil: within 2e-6 of the largest number.
local function difference(grad, wanted)
  if not grad then return "no gradient" end
  local shape = table.concat(grad.shape, ", ")
  if shape ~= table.concat(wanted.shape, ", ") then return ("of the shape [%s]"):format(shape) end
  local largest = 0
  for _, value in ipairs(wanted.data) do
    if math.abs(value) < math.huge then largest = math.max(largest, math.abs(value)) end
  end
  for i, value in ipairs(grad:flatten():tolist()) do
    if not near(value, wanted.data[i], 2e-6 * largest) then
      return ("element %d is %s, not %s"):format(i, tostring(value), tostring(wanted.data[i]))
    end
  end
end

local function check(case, form)
  local args = {}
  for i = 1, #case.args do args[i] = build(case.args[i]) end
  for _, at in ipairs(case.wrt) do args[at] = form(args[at]):detach():requires_grad_() end
  local functional = case.name:match "^F%.(.*)"
  local y = (functional and heed.nn.functional[functional] or heed[case.name])(support.unpack(args))
  local name = tostring(y.grad_fn):match "%w+"
  if name ~= case.grad_fn then return ("grad_fn is %s, not %s"):format(name, case.grad_fn) end
  (y * build(case.weight)):sum():backward()
  for i, at in ipairs(case.wrt) do
    local problem = difference(args[at].grad, case.grads[i])
    if problem then return ("gradient of argument %d: %s"):format(at, problem) end
  end
end

describe("gradients of operations", function()
  local by_name, names = {}, {}
  for number, case in ipairs(dofile "tests/golden/operation_gradients.lua") do
    if not by_name[case.name] then
      by_name[case.name] = {}
      names[#names + 1] = case.name
    end
    table.insert(by_name[case.name], { number = number, case = case })
  end
  before_each(function() heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(false) end)
  for _, name in ipairs(names) do
    it(("are PyTorch's: %s"):format(name), function()
      local problems = {}
      for _, each in ipairs(by_name[name]) do
        for form, change in pairs { plain = function(x) return x end, turned = turned } do
          local problem = check(each.case, change)
          if problem then problems[#problems + 1] = ("case %d, %s: %s"):format(each.number, form, problem) end
        end
      end
      assert.are.same({}, problems)
    end)
  end
end)
