-- Editors read lua/heed/meta: the rules of lua-language-server for annotation files.
local support = require "tests.support"

local FOLDER = "lua/heed/meta/"

--- { name = file name without ".lua", text =, lines = } … of all annotation files.
local files = {}
for name in support.run("ls " .. FOLDER).out:gmatch "([%w_]+)%.lua\n" do
  local file = { name = name, text = support.read(FOLDER .. name .. ".lua"), lines = {} }
  for line in file.text:gmatch "([^\n]*)\n" do file.lines[#file.lines + 1] = line end
  files[#files + 1] = file
end

local function problem(list, file, number, ...)
  list[#list + 1] = ("%s.lua:%d: %s"):format(file.name, number, string.format(...))
end

--- The parameters of a function's definition as a set; methods have self.
local function parameters(line)
  local separator, list = line:match "^function [%w_]+([.:])[%w_]+%((.*)%) end$"
  if not separator then return nil end
  local names = separator == ":" and { self = true } or {}
  for name in list:gmatch "[%w_.]+" do names[name] = true end
  return names
end

describe("the annotation files", function()
  it("compile in every Lua", function()
    assert.is_true(#files >= 15)
    for _, file in ipairs(files) do support.compile(file.text) end
  end)

  it("name the path that requires them and return what it gives, or cannot be required", function()
    local found = {}
    for _, file in ipairs(files) do
      local path = file.lines[1]:match "^%-%-%-@meta ([%w_.]+)$"
      assert(path, file.name .. ".lua: the first line must be ---@meta NAME, or ---@meta _")
      local returned = file.text:match "\nreturn ([%w_]+)\n$"
      assert.are.equal(path ~= "_", returned ~= nil, file.name)
      if returned then
        assert(file.text:find("\nlocal " .. returned .. " = {}\n", 1, true), file.name)
        local module = require(path)
        for name in file.text:gmatch("\nfunction " .. returned .. "%.([%w_]+)%(") do
          assert.is_not_nil(module[name], path .. "." .. name)
        end
        found[path] = true
      end
    end
    local expected = { heed = true, ["heed.nn"] = true, ["heed.tokenizers.wordpiece"] = true, ["heed.plot"] = true,
      ["heed.tokenizers"] = true }
    for name in support.run("ls lua/heed/models").out:gmatch "([%w_]+)%.lua\n" do
      local made = support.read("lua/heed/models/" .. name .. ".lua")
      local loads = made:find "\nfunction [%w_]+%.load%(path" or made:find "\n[%w_]+%.load = " or made:find "%(family%("
        or made:find "%(encoder%("
      if name == "init" then
        expected["heed.models"] = true
      elseif loads and name ~= "family" then
        expected["heed.models." .. name] = true
      end
    end
    for path in pairs(expected) do assert(found[path], path .. " has no file of annotations") end
  end)

  it("give tensors and heed the same methods", function()
    local inherited = {}
    for _, file in ipairs(files) do
      for _, class in ipairs { "heed", "heed.Tensor" } do
        local parents = file.text:match("%-%-%-@class " .. class:gsub("%.", "%%.") .. ": ([^\n]+)")
        inherited[class] = inherited[class] or parents
      end
    end
    assert.are.equal("heed.Contents, heed.Draws, heed.Elementwise, heed.Gradients, heed.Operations, heed.Views",
      inherited.heed)
    assert.are.equal(inherited.heed, inherited["heed.Tensor"])
    for _, file in ipairs(files) do
      for class in file.text:gmatch "%-%-%-@class ([%w_.]+)\nlocal Tensor = {}\n" do
        assert(inherited.heed:find(class, 1, true), file.name .. ".lua: heed does not inherit " .. class)
      end
    end
  end)

  it("describe parameters that the functions have", function()
    local wrong = {}
    for _, file in ipairs(files) do
      local described = {}
      for number, line in ipairs(file.lines) do
        local name = line:match "^%-%-%-@param (%S+)"
        if name then described[#described + 1] = { name = name:gsub("%?$", ""), number = number } end
        local has = parameters(line)
        if has then
          for _, param in ipairs(described) do
            if not has[param.name] then problem(wrong, file, param.number, "no parameter %s", param.name) end
            has[param.name] = nil
          end
          for rest in pairs(has) do
            if rest ~= "self" then problem(wrong, file, number, "%s has no @param", rest) end
          end
        end
        if not line:find "^%-%-%-" then described = {} end
      end
    end
    assert.are.same({}, wrong)
  end)

  it("use types that one of them declares", function()
    local declared, wrong = { ["heed.nn"] = true }, {}
    for _, file in ipairs(files) do
      for _, line in ipairs(file.lines) do
        local name = line:match "^%-%-%-@class ([%w_.]+)" or line:match "^%-%-%-@alias ([%w_.]+)"
        if name then declared[name] = true end
      end
    end
    for _, file in ipairs(files) do
      for number, line in ipairs(file.lines) do
        local used = line:match "^%-%-%-@param %S+ (.+)$" or line:match "^%-%-%-@return (.+)$"
          or line:match "^%-%-%-@field %S+ (.+)$" or line:match "^%-%-%-@overload (.+)$"
          or line:match "^%-%-%-@class [%w_.]+: (.+)$"
        for name in (used or ""):gmatch "%f[%w]heed%.%u[%w_]*" do
          if not declared[name] then problem(wrong, file, number, "unknown type %s", name) end
        end
      end
    end
    assert.are.same({}, wrong)
  end)

  it("say what calling each module gives, which servers do not inherit", function()
    local parents, callable = {}, { ["heed.Module"] = true }
    local containers = { ["heed.ModuleList"] = true, ["heed.ModuleDict"] = true, ["heed.ParameterList"] = true,
      ["heed.ParameterDict"] = true }
    for _, file in ipairs(files) do
      local class
      for _, line in ipairs(file.lines) do
        local name, parent = line:match "^%-%-%-@class ([%w_.]+): ([%w_.]+)"
        if name then parents[name] = parent end
        class = name or line:find "^%-%-%-" and class
        if class and line:find "^%-%-%-@overload" then callable[class] = true end
      end
    end
    local missing = {}
    for class, parent in pairs(parents) do
      local ancestor = parent
      while ancestor and ancestor ~= "heed.Module" do ancestor = parents[ancestor] end
      if ancestor and not callable[class] and not containers[class] then missing[#missing + 1] = class end
    end
    assert.are.same({}, missing)
  end)
end)
