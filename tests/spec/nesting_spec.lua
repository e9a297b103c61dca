-- Modules and tables inside each other: how deeply is the same on each Lua, and the error is heed's, never the raw
-- "C stack overflow" of Lua.
local heed = require "heed"
local raises = require "tests.raises"
local nn = heed.nn

local TOO_DEEP = "calls of modules are nested more than 80 levels deep; they must be at most 80 levels deep"

local Around = nn.Module.class "Around"
function Around:init(inner) self.inner = inner end
function Around:forward(x) return self.inner(x) end

local Careful = nn.Module.class("Careful", Around)
function Careful:forward(x)
  local fine, y = pcall(self.inner, x)
  return fine and y or error(y, 0)
end

-- Each puts a module into another one.
local WAYS = {
  Sequential = nn.Sequential,
  Around = Around,
  Careful = Careful,
  hooked = function(m)
    m = nn.Sequential(m)
    m:register_forward_hook(function() end)
    m:register_forward_pre_hook(function() end)
    return m
  end,
  watched = function(m)
    m = Around(m)
    m:register_forward_hook(function(_, _, y) return y * 1 end)
    return m
  end,
}

local function too_deep(class, f)
  local fine, message = pcall(f)
  assert.is_false(fine)
  local text = tostring(message):gsub("^.*:%d+: ", "")
  assert.are.equal(class .. ": " .. TOO_DEEP, text)
end

local function nested(way, levels)
  local m = nn.Linear(4, 4)
  for _ = 1, levels do m = way(m) end
  return m
end

describe("modules in modules", function()
  for name, way in pairs(WAYS) do
    it("are called 80 levels deep, and no deeper: " .. name, function()
      local x, m, deeper = heed.rand(2, 4, { requires_grad = true }), nested(way, 80), nested(way, 81)
      local y = m(x)
      heed.enable_grad(function() m(x):sum():backward() end)
      assert.is_not_nil(x.grad)
      local class = deeper:class_name()
      too_deep(class, function() return deeper(x) end)
      too_deep(class, function() return nested(way, 1000)(x) end)
      assert.is_true(heed.equal(y, m(x)))
    end)
  end

  it("are printed, saved, copied and walked at any depth", function()
    local m = nested(nn.Sequential, 500)
    assert.is_true(#tostring(m) > 500)
    local state = m:state_dict()
    assert.are.equal(2, #state)
    m:load_state_dict(state)
    m:train():eval():apply(function() end):zero_grad()
    assert.are.equal(2, #m:clone():parameters())
    local count = 0
    for _ in m:named_modules() do count = count + 1 end
    assert.are.equal(501, count)
  end)

  it("may be parts of attention modules, whose calls count twice", function()
    local function with_part(m)
      local attention = nn.MultiHeadAttention(4, 4, 8, 0, 1)
      attention.W_query = Around(m)
      return attention
    end
    local x = heed.rand(1, 2, 4)
    assert.are.equal(8, nested(with_part, 26)(x):numel())
    too_deep("Around", function() return nested(with_part, 27)(x) end)
    too_deep("Around", function() return nested(with_part, 60)(x) end)
  end)

  it("count the same inside coroutines", function()
    local x, m, deeper = heed.rand(2, 4), nested(nn.Sequential, 80), nested(nn.Sequential, 81)
    local y = coroutine.wrap(function() return m(x) end)()
    assert.is_true(heed.equal(m(x), y))
    too_deep("Sequential", function() return coroutine.wrap(function() return deeper(x) end)() end)
  end)

  it("do not count calls that have ended in errors", function()
    local Broken = nn.Module.class "Broken"
    function Broken.forward() error("broken", 0) end
    local bad, good, x = nested(nn.Sequential, 10), nested(nn.Sequential, 70), heed.rand(2, 4)
    bad[1] = Broken()
    local function below(levels) -- also where a script has called itself deeply
      if levels > 0 then
        local y = below(levels - 1)
        return y
      end
      for _ = 1, 100 do assert.is_false((pcall(bad, x))) end
      return good(x)
    end
    for _, levels in ipairs { 0, 50, 150 } do assert.are.equal(8, below(levels):numel()) end
  end)
end)

describe("tables in tables", function()
  local function tables(levels, leaf)
    for _ = 1, levels do leaf = { leaf } end
    return leaf
  end

  it("are refused by heed, however deep", function()
    local x = heed.rand(4, 4)
    for _, levels in ipairs { 20, 250, 20000 } do
      local deep, named = tables(levels, 1), heed.ones(1)
      for _ = 1, levels + 4 do named = { a = named } end
      raises("tensor: data has more than 16 levels of tables, or contains itself; it must have at most 16",
        function() return heed.tensor(deep) end)
      raises("index: indices[1] has more than 16 levels of tables, or contains itself; it must have at most 16",
        function() return x[deep] end)
      raises("Embedding: ids has more than 16 levels of tables, or contains itself; it must have at most 16",
        function() return nn.Embedding(3, 4)(deep) end)
      raises("sum: dim is a table; it must be an integer", function() return x:sum(deep) end)
      raises("stack: tensors[1] is a table; it must be a tensor", function() return heed.stack(deep) end)
      raises("save: 'a" .. (".a"):rep(19) .. "' is nested more than 20 tables deep",
        function() return heed.save("x.safetensors", named) end)
    end
  end)
end)
