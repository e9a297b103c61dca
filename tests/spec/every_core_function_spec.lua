-- Functions that scripts do not call by themselves, but can reach: those of heed.core, and the metamethods and methods
-- of objects with another object in the place of self. Whatever they get, they raise a string or return.
local calls = require "tests.calls"
local core = require "heed.core"
local heed = require "heed"
local support = require "tests.support"

local unpack = support.unpack

-- No string is a path that could be written.
local KINDS = {
  function() return nil end,
  function() return true end,
  function() return 1 end,
  function() return -1 end,
  function() return 2 ^ 53 end,
  function() return 0.5 end,
  function() return "/dev/null/x" end,
  function() return "/dev/null/\255\n" end,
  function() return {} end,
  function() return { "/dev/null/x", 2 } end,
  function() return { heed.ones(2) } end,
  function() return function() end end,
  function() return heed.ones(2, 3) end,
  function() return heed.tensor({ 1, 2 }, { dtype = "int64" }) end,
  function() return heed.nn.Linear(2, 2) end,
  function() return heed.nn.Sequential(heed.nn.GELU()) end,
  function() return heed.Generator(1) end,
  function() return heed.mask.causal() end,
  function() return heed.Size(2, 3) end,
  function() return io.stderr end,
}
local FEW = { KINDS[1], KINDS[3], KINDS[7], KINDS[10], KINDS[13], KINDS[15] }

local faults
local function try(name, f, ...)
  local fine, problem = pcall(f, ...)
  if not fine and type(problem) ~= "string" then faults[#faults + 1] = name .. ": " .. tostring(problem) end
  heed.limit { memory = math.huge, seconds = math.huge, threads = math.huge, files = true }
  heed.set_grad_enabled(false)
end

-- Every kind as each of the first three arguments, with a few as the others.
local function try_all(name, f)
  for _, a in ipairs(KINDS) do
    for _, b in ipairs(FEW) do
      try(name, f, a(), b())
      try(name, f, b(), a(), b())
      try(name, f, b(), b(), a(), b())
    end
  end
end

describe("a function that scripts do not call by themselves", function()
  before_each(function() faults = {} end)

  local PROTECTED = { -- what a spec cannot do without: it would stop the process, or change what others use
    raise = true, redirect = true, install = true, limit = true, terminal = true,
  }
  for _, part in ipairs { "core", "files", "text", "modules", "tokenizer", "nn" } do
    it("raises a message or returns, whatever it gets: " .. part, function()
      local names = {}
      for name, f in pairs(part == "core" and core or core[part]) do
        if type(f) == "function" and not PROTECTED[name] then names[#names + 1] = name end
      end
      table.sort(names)
      for _, name in ipairs(names) do try_all(name, (part == "core" and core or core[part])[name]) end
      assert.same({}, faults)
    end)
  end

  it("raises a message or returns, with anything as self", function()
    local objects = calls.objects()
    heed.set_grad_enabled(false)
    local list = { x = objects.x, module = objects.linear, generator = objects.g, mask = objects.causal_mask,
      cache = objects.cache, steps = objects.steps, size = objects.x.shape, backward = objects.loss:backward_steps() }
    heed.set_grad_enabled(false)
    local methods = { "release", "advance", "clone", "truncate", "reorder", "save", "both", "dense", "blocks", "part",
      "manual_seed", "get_state", "set_state", "set_offset", "get_offset", "kind", "numel", "cancel" }
    for _, name in ipairs { "x", "module", "generator", "mask", "cache", "steps", "size", "backward" } do
      local object = list[name]
      local functions = {}
      for key, f in pairs(debug.getmetatable(object)) do
        if type(f) == "function" and key ~= "__gc" then functions[name .. " " .. key] = f end
      end
      for _, method in ipairs(methods) do
        local fine, f = pcall(function() return object[method] end)
        if fine and type(f) == "function" then functions[name .. ":" .. method] = f end
      end
      local names = {}
      for key in pairs(functions) do names[#names + 1] = key end
      table.sort(names)
      for _, key in ipairs(names) do
        for _, a in ipairs(KINDS) do
          for _, b in ipairs(FEW) do try(key, functions[key], a(), b(), b()) end
        end
        for other, self in pairs(list) do
          if other ~= name then try(key, functions[key], unpack { self, 1, 1 }) end
        end
        for _, a in ipairs(KINDS) do
          if not key:find "release" then try(key, functions[key], object, a(), a()) end
        end
      end
    end
    assert.same({}, faults)
  end)
end)
