-- The reference values of tests/golden, computed with PyTorch: one test for each case of check.lua.
local support = require "tests.support"

local folder = "tests/golden"

-- The problems that check.lua prints for a set, by the number of the case.
local function problems_of(set)
  local problems = {}
  local environment = setmetatable({
    arg = { folder, set },
    os = { exit = function() end },
    print = function(line)
      local number, problem = line:match "^FAIL %w+ (%d+) %b(): (.*)$"
      if number then problems[tonumber(number)] = problem end
    end,
  }, { __index = _G })
  assert(load(support.read(folder .. "/check.lua"), "@check.lua", "t", environment))()
  return problems
end

-- Lua 5.1 merges the constants 0.0 and -0.0, so that it cannot read the numbers of such cases.
local function has_both_zeros(case)
  local text = case.expect or ""
  return type(text) == "string" and text:find "%-0%." and text:find "[%[ ]0%."
end

for _, set in ipairs { "calls", "random", "dropout", "modules", "sdpa", "printing" } do
  describe("golden " .. set, function()
    local problems
    for number, case in ipairs(dofile(folder .. "/" .. set .. ".lua")) do
      local test = support.lua == "5.1" and has_both_zeros(case) and pending or it
      test(("case %d: %s"):format(number, case.fn or case.class or case.note or "as PyTorch"), function()
        problems = problems or problems_of(set)
        if problems[number] then error(problems[number], 0) end
      end)
    end
  end)
end
