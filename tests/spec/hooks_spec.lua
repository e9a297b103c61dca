-- Hooks of modules: m:register_forward_pre_hook and m:register_forward_hook.
local heed = require "heed"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local nn, close = heed.nn, tensors.close

local Pair = nn.Module.class "Pair"
function Pair:init() self.linear = nn.Linear(3, 2) end
function Pair:forward(x, factor) return self.linear(x) * (factor or 1), "more" end

local function mha()
  return nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 10, num_heads = 2, dropout = 0 }
end

local MODULES = {
  ["written in Lua"] = function() return Pair(), heed.randn(4, 3) end,
  ["built in"] = function() return nn.Linear(3, 2), heed.randn(4, 3) end,
  ["of attention"] = function() return mha(), heed.randn(5, 8) end,
  ["of the class Sequential"] = function() return nn.Sequential(nn.Linear(3, 2), nn.ReLU()), heed.randn(4, 3) end,
  ["of the class LayerNorm"] = function() return nn.LayerNorm(3), heed.randn(4, 3) end,
}

for what, make in pairs(MODULES) do
  describe("hooks of a module " .. what, function()
    it("see and change its input and output", function()
      local m, x = make()
      local y, twice = (m(x)), (m(x * 2))
      local before = m:register_forward_pre_hook(function(module, input)
        assert.are.equal(m, module)
        return input * 2
      end)
      close(twice, (m(x)), 0)
      local after = m:register_forward_hook(function(module, input, output)
        assert.are.equal(m, module)
        close(x * 2, input, 0)
        return output + 1
      end)
      close(twice + 1, (m(x)), 0)
      close(y, (m:forward(x)), 0)
      before:remove()
      after:remove()
      close(y, (m(x)), 0)
    end)

    it("that return nothing change nothing", function()
      local m, x = make()
      local y, calls = (m(x)), 0
      local function count() calls = calls + 1 end
      m:register_forward_hook(count)
      m:register_forward_pre_hook(count)
      collectgarbage()
      collectgarbage()
      close(y, (m(x)), 0)
      assert.are.equal(2, calls)
    end)

    it("leave its text, state and copies as they are", function()
      local m, x = make()
      local text, calls = tostring(m), 0
      m:register_forward_hook(function() calls = calls + 1 end)
      assert.are.equal(text, tostring(m))
      m:clone()(x)
      m:load_state_dict(m:state_dict())
      assert.are.equal(0, calls)
    end)

    it("raise their errors, and are called again", function()
      local m, x = make()
      local y, fails = (m(x)), true
      m:register_forward_hook(function() if fails then error("no", 0) end end)
      local fine, message = pcall(m, x)
      assert.are.same({ false, "no" }, { fine, message })
      fails = false
      close(y, (m(x)), 0)
    end)

    it("are collected with it", function()
      local weak = setmetatable({}, { __mode = "k" })
      do
        local m = make()
        m:register_forward_hook(function() return m and nil end)
        weak[m] = true
      end
      for _ = 1, 4 do collectgarbage() end
      assert.is_nil(next(weak))
    end)
  end)
end

describe("hooks", function()
  local order
  local function note(name) return function() order[#order + 1] = name end end
  before_each(function() order = {} end)

  it("run in the order of registration, those with prepend first", function()
    local m = Pair()
    m:register_forward_hook(note "b")
    m:register_forward_hook(note "c")
    m:register_forward_hook(note "a", { prepend = true })
    m:register_forward_pre_hook(note "2")
    m:register_forward_pre_hook(note "1", true)
    m(heed.randn(1, 3))
    assert.are.equal("12abc", table.concat(order))
  end)

  it("may remove themselves and add others, which run from the next call on", function()
    local m, handle = Pair(), nil
    handle = m:register_forward_hook(function()
      handle:remove()
      m:register_forward_hook(note "new")
    end)
    m:register_forward_hook(note "old")
    m(heed.randn(1, 3))
    m(heed.randn(1, 3))
    assert.are.equal("old old new", table.concat(order, " "))
  end)

  it("keep further arguments and results, and may replace them", function()
    local m, x = Pair(), heed.randn(2, 3)
    local y = m(x, 3)
    m:register_forward_pre_hook(function(_, _, factor) return nil, factor + 1 end)
    m:register_forward_hook(function(_, _, _, more) return nil, more .. "!" end)
    local got, more = m(x, 2)
    close(y, got, 0)
    assert.are.equal("more!", more)
  end)

  it("of parts of built-in attention are called in its forward, and may change what it goes on with", function()
    local m, x = mha(), heed.randn(5, 8)
    local y, calls = m(x), 0
    local handle = m.out_proj:register_forward_hook(function(_, _, output)
      calls = calls + 1
      return output * 2
    end)
    collectgarbage()
    collectgarbage()
    close(y * 2, m(x), 1e-6)
    assert.are.equal(1, calls)
    handle:remove()
    close(y, m(x), 0)
  end)

  it("go on with a part that is assigned to another module", function()
    local first, second, x = mha(), mha(), heed.randn(5, 8)
    first.W_query:register_forward_hook(note "q")
    second.W_query = first.W_query
    first = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    second(x)
    assert.are.equal("q", table.concat(order))
  end)

  it("of a shared module are called wherever it is", function()
    local part = nn.Linear(3, 3)
    part:register_forward_hook(note "x")
    nn.Sequential(part, nn.ReLU(), part)(heed.randn(1, 3))
    assert.are.equal("xx", table.concat(order))
  end)

  it("may call the module again through forward", function()
    local m, x = Pair(), heed.randn(1, 3)
    m:register_forward_hook(function(module, input, output) return output - module:forward(input) end)
    close(heed.zeros(1, 2), (m(x)), 0)
  end)

  it("that call the module itself without an end raise an error", function()
    local m, x = Pair(), heed.randn(1, 3)
    local handle = m:register_forward_hook(function(module, input) return (module(input)) end)
    assert.is_false(pcall(m, x))
    handle:remove()
    m(x)
  end)

  it("refuse what is not a function, unknown options and calls with a dot", function()
    local m = nn.Linear(1, 1)
    for _, name in ipairs { "register_forward_hook", "register_forward_pre_hook" } do
      raises(name .. ": hook is nil; it must be a function", function() m[name](m) end)
      raises(name .. ": there is no option 'always_call'; the options are prepend",
        function() m[name](m, print, { always_call = true }) end)
      raises(name .. ": prepend is the number 1; it must be a boolean",
        function() m[name](m, print, { prepend = 1 }) end)
      raises(name .. ": self is nil; it must be a module; call the method with a colon",
        function() m[name]() end)
    end
  end)

  it("have handles that can be removed twice, and print their state", function()
    local m = nn.Linear(1, 1)
    local handle = m:register_forward_hook(print)
    assert.are.equal("heed.Handle", tostring(handle))
    handle:remove()
    handle:remove()
    assert.are.equal("heed.Handle(removed)", tostring(handle))
    raises("remove: self is nil; it must be a heed.Handle; call the method with a colon",
      function() handle.remove() end)
    raises("a heed.Handle has no fields; it has the method remove", function() handle.x = 1 end)
  end)
end)
