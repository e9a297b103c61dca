-- Every operation of src/ops/ops.def says in src/grad/gradients.def what its gradient is, or why it has none.
local operations = require "tests.operations"
local support = require "tests.support"

-- The rows of gradients.def: what[name] = how often it is listed, and kinds[name] = "GRADIENT", ….
local function listed()
  local text = support.read("src/grad/gradients.def"):gsub("/%*.-%*/", ""):gsub("\n#[^\n]*", "")
  local count, kinds = {}, {}
  for kind, name in text:gmatch "(%u+)%(([%l%d_]+)" do
    if kind == "GRADIENT" or kind == "NAMED" or kind == "CONSTANT" or kind == "COMPOSED" or kind == "UNKNOWN" then
      count[name], kinds[name] = (count[name] or 0) + 1, kind
    end
  end
  return count, kinds
end

-- Their gradients are being written.
local LATER = {
  fill = true, index_add = true, index_copy = true, index_fill = true, quantize_int8 = true, dequantize_int8 = true,
  linear_int8 = true,
}

describe("src/grad/gradients.def", function()
  it("lists every operation of src/ops/ops.def once", function()
    local count, problems = listed(), {}
    for _, row in ipairs(operations.listed()) do
      if row.kind ~= "LUA" and not LATER[row.name] and count[row.name] ~= 1 then
        problems[#problems + 1] = ("%s: %d times"):format(row.name, count[row.name] or 0)
      end
      count[row.name] = nil
    end
    assert.are.same({}, problems)
  end)

  it("lists nothing else", function()
    local count, names = listed(), {}
    for _, row in ipairs(operations.listed()) do names[row.name] = true end
    for name in pairs(count) do assert.truthy(names[name], name) end
  end)
end)
