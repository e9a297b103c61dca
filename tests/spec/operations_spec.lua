-- src/ops/ops.def lists every operation once. What heed.h declares, what Lua has and what the annotations describe is
-- compared with it, so that an operation that was forgotten somewhere is named here.
local heed = require "heed"
local operations = require "tests.operations"
local support = require "tests.support"

local HEADER = "src/heed.h"

-- { "x: why" … }, sorted: what is wrong with the list beside this header.
local function differences(definition, header)
  local found, listed = {}, {}
  local declared = operations.declared(header)
  local function wrong(name, ...) found[#found + 1] = name .. ": " .. string.format(...) end
  for _, row in ipairs(operations.listed(definition, header)) do
    local inputs = declared[row.name]
    if listed[row.name] then wrong(row.name, "listed twice in ops.def") end
    listed[row.name] = true
    if row.kind == "LUA" then
      if inputs then wrong(row.name, "written in Lua by ops.def, but in heed.h") end
    elseif not inputs then
      wrong(row.name, "in ops.def, but not in heed.h")
    elseif inputs ~= true and inputs ~= row.inputs then
      wrong(row.name, "reads %s tensors in heed.h and %s in ops.def", inputs, row.inputs)
    end
  end
  for name in pairs(declared) do
    if not listed[name] then wrong(name, "in heed.h, but not in ops.def") end
  end
  table.sort(found)
  return found
end

-- How Lua has an operation: heed.<lua>, x:<lua>(…), or a metamethod of tensors.
local function is_reachable(lua)
  if lua == "C_ONLY" then return true end
  if lua:find("^__") then return debug.getmetatable(heed.ones(1))[lua] ~= nil end
  return type(rawget(heed, lua)) == "function" or pcall(function() return assert(heed.ones(1)[lua]) end)
end

local function unreachable(rows)
  local found = {}
  for _, row in ipairs(rows) do
    if not is_reachable(row.lua) then found[#found + 1] = row.name .. ": no " .. row.lua .. " in Lua" end
    local in_place = row.lua .. "_"
    if (row.kind == "UNARY" or row.kind == "BINARY") and not is_reachable(in_place) then
      found[#found + 1] = row.name .. ": no " .. in_place .. " in Lua"
    end
  end
  return found
end

local function annotated()
  local names = {}
  for _, file in ipairs { "heed", "tensor", "elementwise", "ops", "attention_functions", "views", "random" } do
    for line in io.lines("lua/heed/meta/" .. file .. ".lua") do
      local name = line:match("^function %w+[.:]([%w_]+)%(") or line:match("^%w+%.([%w_]+) = ")
        or line:match("^%-%-%-@field ([%w_]+) fun%(") -- a name that is a word of Lua
      if name then names[name] = true end
    end
  end
  return names
end

local function undescribed(rows, names)
  local found = {}
  for _, row in ipairs(rows) do
    if row.lua ~= "C_ONLY" and not row.lua:find("^__") and not names[row.lua] then
      found[#found + 1] = row.name .. ": no annotation of " .. row.lua .. " in lua/heed/meta"
    end
  end
  return found
end

describe("the list of operations", function()
  it("names every operation that heed.h declares, with as many tensors", function()
    assert.are.same({}, differences())
    assert.is_true(#operations.listed() > 90)
  end)

  it("names only operations that Lua reaches, or that it marks as C_ONLY", function()
    assert.are.same({}, unreachable(operations.listed()))
  end)

  it("names only operations that have an annotation", function()
    assert.are.same({}, undescribed(operations.listed(), annotated()))
  end)

  it("is found incomplete if an operation is declared in heed.h alone", function()
    local declaration = "\nHEED_CALL heed_rev(heed_context *ctx, const heed_tensor *x, heed_tensor **out);\n"
    assert.are.same({ "rev: in heed.h, but not in ops.def" }, differences(nil, support.read(HEADER) .. declaration))
  end)

  it("is found wrong if heed.h lacks one of its operations, or takes other tensors", function()
    local more = "\nOP(rev, 1, rev)\nOP(copy, 2, copy_)\n"
    assert.are.same({
      "copy: listed twice in ops.def", "copy: reads 1 tensors in heed.h and 2 in ops.def",
      "rev: in ops.def, but not in heed.h",
    }, differences(support.read "src/ops/ops.def" .. more))
  end)

  it("is found incomplete if Lua or the annotations lack an operation", function()
    local header = support.read(HEADER):gsub("X%(exp%) ", "X(exp) X(expm2) ")
    local rows = operations.listed(nil, header)
    assert.are.same({ "expm2: no expm2 in Lua", "expm2: no expm2_ in Lua" }, unreachable(rows))
    assert.are.same({ "expm2: no annotation of expm2 in lua/heed/meta" }, undescribed(rows, annotated()))
    assert.are.same({}, unreachable { { name = "rev", lua = "C_ONLY" } })
  end)
end)
