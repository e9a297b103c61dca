-- Every operation of src/ops/ops.def says in src/grad/gradients.def what its gradient is, or why it has none.
local operations = require "tests.operations"
local support = require "tests.support"

-- How often each operation is listed in gradients.def.
local function listed()
  local text = support.read("src/grad/gradients.def"):gsub("/%*.-%*/", ""):gsub("\n#[^\n]*", "")
  local count = {}
  for kind, name in text:gmatch "(%u+)%(([%l%d_]+)" do
    if kind == "GRADIENT" or kind == "NAMED" or kind == "CONSTANT" or kind == "COMPOSED" or kind == "UNKNOWN" then
      count[name] = (count[name] or 0) + 1
    end
  end
  return count
end

describe("src/grad/gradients.def", function()
  it("lists every operation of src/ops/ops.def once", function()
    local count, problems = listed(), {}
    for _, row in ipairs(operations.listed()) do
      if row.kind ~= "LUA" and count[row.name] ~= 1 then
        problems[#problems + 1] = ("%s: %d times"):format(row.name, count[row.name] or 0)
      end
      count[row.name] = nil
    end
    assert.are.same({}, problems)
  end)

  it("lists nothing else", function()
    local count, names = listed(), {}
    for part in support.read("src/ops/record.h"):gmatch "\n  HEED__OP_([%l%d_]+)," do names[part] = true end
    for _, row in ipairs(operations.listed()) do names[row.name] = true end
    for name in pairs(count) do assert.truthy(names[name], name) end
  end)
end)
