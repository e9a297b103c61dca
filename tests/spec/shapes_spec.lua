-- Operations on shapes, and products that are composed of others: PyTorch's results for random shapes and views, and
-- messages.
local heed = require "heed"
local support = require "tests.support"
local tensors = require "tests.tensors"
local raises = dofile "tests/raises.lua"

local function int64(list) return heed.tensor(list, { dtype = "int64" }) end

-- ---- PyTorch's results ----

-- The view that scripts/dev/make_shape_values.py describes; other values as they are.
local function argument(value)
  if type(value) ~= "table" then return value end
  if not value.of then
    local list = {}
    for key, each in pairs(value) do list[key] = argument(each) end
    return list
  end
  local count = 1
  for _, size in ipairs(value.of) do count = count * size end
  local x = (heed.arange(count) % 7 - 3):to(value.dtype):view(value.of):permute(value.order)
  return value.wide and x:expand(value.wide) or x
end

local cases_of = {}
for _, case in ipairs(dofile "tests/golden/shapes.lua") do
  cases_of[case.name] = cases_of[case.name] or {}
  table.insert(cases_of[case.name], case)
end

local function text_of(case)
  local parts = {}
  for i, value in ipairs(case.given) do
    parts[i] = type(value) == "table" and value.of and ("%s of [%s]"):format(value.dtype, table.concat(value.of, ", "))
      or type(value) == "table" and (pcall(table.concat, value, ", ") and "{" .. table.concat(value, ", ") .. "}" or "{…}")
      or tostring(value)
  end
  return ("%s(%s)"):format(case.name, table.concat(parts, ", "))
end

describe("compared with PyTorch for random shapes and views,", function()
  local names = {}
  for name in pairs(cases_of) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    it(name .. " gives the same elements, shape and dtype", function()
      for _, case in ipairs(cases_of[name]) do
        local given = argument(case.given)
        local ok, got = pcall(heed[name], support.unpack(given, 1, #case.given))
        if not ok then error(text_of(case) .. ": " .. got) end
        if not case.several then got = { got } end
        assert.are.equal(#case.want, #got, text_of(case))
        for i, want in ipairs(case.want) do
          local wanted = tensors.golden(want)
          if tostring(wanted.shape) ~= tostring(got[i].shape) or wanted.dtype ~= got[i].dtype
            or not heed.equal(wanted, got[i]) then
            error(("%s: result %d is %s and must be %s"):format(text_of(case), i, tostring(got[i]), tostring(wanted)))
          end
        end
      end
    end)
  end
end)
