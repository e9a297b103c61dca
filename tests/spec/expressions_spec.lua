-- The expressions of tests/expressions.lua give PyTorch's values.
local heed = require "heed"
local support = require "tests.support"
local expressions = dofile "tests/expressions.lua"

local function run(code)
  local compiled, f = pcall(support.compile, expressions.prelude_lua .. "return " .. code)
  if not compiled then f = support.compile(expressions.prelude_lua .. code) end
  return (f(heed, heed.nn))
end

-- Float32 arithmetic in another order: a few units in the last place of what was added up.
local function is_near(got, wanted)
  if type(wanted) ~= "number" then return got == wanted end
  if wanted ~= wanted then return got ~= got end
  return got == wanted or math.abs(got - wanted) <= 2e-6 + 1e-5 * math.abs(wanted)
end

local function difference_of_numbers(got, wanted)
  if not is_near(got, wanted) then return ("%s instead of %s"):format(tostring(got), tostring(wanted)) end
end

--- What is different, or nil. An element of a tensor is a number in heed. Values are tensors, lists of values, numbers,
--- booleans and strings.
local function difference(got, wanted)
  if type(wanted) == "table" and wanted.shape then
    if type(got) == "number" and #wanted.shape == 0 then return difference_of_numbers(got, wanted.data[1]) end
    if not heed.is_tensor(got) then return tostring(got) .. " instead of a tensor" end
    local kind, needed = got.dtype .. tostring(got.shape), wanted.dtype .. tostring(heed.Size(wanted.shape))
    if kind ~= needed then return kind .. " instead of " .. needed end
    for i, value in ipairs(got:flatten():tolist()) do
      if not is_near(value, wanted.data[i]) then
        return ("element %d is %s instead of %s"):format(i, tostring(value), tostring(wanted.data[i]))
      end
    end
  elseif type(wanted) == "table" then
    if type(got) ~= "table" or #got ~= #wanted then return "not a list of " .. #wanted end
    for i = 1, #wanted do
      local found = difference(got[i], wanted[i])
      if found then return ("value %d: %s"):format(i, found) end
    end
  else
    return difference_of_numbers(got, wanted)
  end
end

describe("an expression from", function()
  local values = {}
  for _, case in ipairs(dofile "tests/golden/expressions.lua") do values[case.name] = case end

  for _, expression in ipairs(expressions.list) do
    local name, code = expression[1], expression[2]
    it(name, function()
      local case = assert(values[name], "make_expression_values.py has not computed it")
      assert.is_nil(difference(run(code), case.result))
    end)
  end

  it("the sources is in the list only once, with its value", function()
    local seen, count = {}, 0
    for _, expression in ipairs(expressions.list) do
      assert.is_nil(seen[expression[1] ], expression[1])
      seen[expression[1] ], count = true, count + 1
    end
    for name in pairs(values) do assert.is_true(seen[name], name) end
    assert.is_true(count >= 228)
  end)
end)

describe("what the sources use and heed does not have", function()
  it("is at most 10 things", function() assert.is_true(#expressions.missing <= 10) end)

  for _, case in ipairs(expressions.missing) do
    it("is refused with advice: " .. case[1], function()
      local ok, message = pcall(run, case[2])
      assert.is_false(ok)
      local advice = message:find "; heed " or message:find "; write " or message:find "leave it out"
        or message:find "; a tensor of heed"
      assert.is_truthy(advice, message)
    end)
  end
end)
