-- Elementwise operations and reductions give PyTorch's numbers: tests/golden/operations.lua, which
-- scripts/dev/make_operation_values.py describes and makes. One test for each operation.
local heed = require "heed"
local support = require "tests.support"

local function is_tensor(value) return type(value) == "table" and value.shape and value.data end

local function build(value)
  if not is_tensor(value) then return value end
  local options = { dtype = value.dtype }
  if #value.shape == 0 then return heed.tensor(value.data[1], options) end
  return heed.tensor(value.data, options):reshape(value.shape)
end

-- The distance between float32 numbers at x; twice that next to a power of 2.
local function ulp_at(x) return 2 ^ (math.max(math.floor(math.log(math.abs(x)) / math.log(2) + 1e-9), -126) - 23) end

local function is_near(got, wanted, case)
  if type(got) ~= "number" then return got == wanted end
  if wanted ~= wanted then return got ~= got end
  if got == wanted then return case.ulp or wanted ~= 0 or 1 / got == 1 / wanted end
  if not case.ulp and not case.slack then return ("%.9g"):format(got) == ("%.9g"):format(wanted) end
  return math.abs(got - wanted) <= (case.ulp or 0) * ulp_at(wanted) + (case.slack or 0)
end

-- What is wrong with a result, or nil.
local function difference(got, wanted, case)
  local heading = ("%s[%s]"):format(got.dtype, table.concat(got.shape, ", "))
  local needed = ("%s[%s]"):format(wanted.dtype, table.concat(wanted.shape, ", "))
  if heading ~= needed then return ("%s, not %s"):format(heading, needed) end
  for i, value in ipairs(got:flatten():tolist()) do
    if not is_near(value, wanted.data[i], case) then
      return ("element %d is %s, not %s"):format(i, tostring(value), tostring(wanted.data[i]))
    end
  end
end

-- The numbers of the cases with -0: Lua 5.1 merges the constants 0 and -0.0, so that it cannot read them.
local function unreadable()
  local found, number = {}, 0
  for line in io.lines "tests/golden/operations.lua" do
    if line:find "^  %(function" then
      number = number + 1
      found[number] = support.lua == "5.1" and line:find("-0.0", 1, true) ~= nil
    end
  end
  return found
end

local function check(case)
  local args = {}
  for i = 1, #case.args do args[i] = build(case.args[i]) end
  local results = { heed[case.name](support.unpack(args)) }
  assert.equal(#case.results, #results)
  for i = 1, #results do
    local problem = difference(results[i], case.results[i], case)
    if problem then return problem end
  end
end

describe("values of operations", function()
  local by_name, names, is_unreadable = {}, {}, unreadable()
  for number, case in ipairs(dofile "tests/golden/operations.lua") do
    if not by_name[case.name] then
      by_name[case.name] = {}
      names[#names + 1] = case.name
    end
    if not is_unreadable[number] then table.insert(by_name[case.name], { number = number, case = case }) end
  end
  for _, name in ipairs(names) do
    it(("are PyTorch's: %s"):format(name), function()
      local problems = {}
      for _, each in ipairs(by_name[name]) do
        local problem = check(each.case)
        if problem then problems[#problems + 1] = ("case %d: %s"):format(each.number, problem) end
      end
      assert.are.same({}, problems)
    end)
  end
end)
