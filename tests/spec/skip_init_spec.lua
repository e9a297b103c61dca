-- Loading weights: nn.utils.skip_init, and load_state_dict with assign.
local heed = require "heed"
local fails = require "tests.fails"
local raises = require "tests.raises"
local copy_of = require("tests.tensors").copy_of
local nn = heed.nn
local skip_init = nn.utils.skip_init

-- Whether two tensors share memory: a value written to one is read from the other.
local function share(a, b)
  local element = a:view(-1)[{ { 1, 1 } }]
  local before = element[1]
  element:fill_(12345)
  local shared = b:flatten()[1] == 12345
  element:fill_(before)
  return shared
end

-- f must draw no random numbers.
local function draws(f)
  heed.manual_seed(11)
  f()
  local after = heed.rand(1)
  heed.manual_seed(11)
  return not after:equal(heed.rand(1))
end

local makers = {
  { "Linear", 30, 20 }, { "Embedding", 30, 20, 3 }, { "LayerNorm", { 3, 4 } }, { "RMSNorm", 12 },
  { "SelfAttention", 4, 4 }, { "CausalAttention", 4, 4, 6, 0.1 }, { "MultiHeadAttentionWrapper", 4, 4, 6, 0.1, 2 },
  { "MultiHeadAttention", 4, 4, 6, 0.1, 2, true },
}

describe("nn.utils.skip_init", function()
  for _, maker in ipairs(makers) do
    it(("makes a %s without drawing random numbers"):format(maker[1]), function()
      local m
      assert.is_false(draws(function() m = skip_init(nn[maker[1]], table.unpack(maker, 2)) end))
      local full = nn[maker[1]](table.unpack(maker, 2))
      assert.are.equal(tostring(full), tostring(m))
      assert.is_true(m.training)
      for name, p in full:named_parameters() do
        local mine = m:state_dict()[name]
        assert.are.same({ table.unpack(p.shape) }, { table.unpack(mine.shape) })
        assert.are.equal(0, mine:abs():sum():item())
      end
      m:load_state_dict(full:state_dict())
      for name, p in full:named_parameters() do
        local mine = m:state_dict()[name]
        assert.is_true(mine:equal(p))
        assert.is_false(share(mine, p))
      end
    end)
  end

  it("allocates no memory for the weights", function()
    collectgarbage()
    local before = heed.info().memory_in_use
    local m = nn.Sequential(skip_init(nn.Linear, 4096, 4096), skip_init(nn.Embedding, 1000000, 4096))
    assert.is_true(heed.info().memory_in_use - before < 2 ^ 16)
    assert.are.equal(1000000 * 4096, m[2].weight:numel())
  end)

  it("applies to all modules that a user-defined module makes, but not to tensors", function()
    local Inner = nn.Module.class "Inner"
    function Inner:init(d)
      self.linear = nn.Linear(d, d)
      self.scale = nn.Parameter(heed.ones(d) * 2)
    end
    local Outer = nn.Module.class "Outer"
    function Outer:init(d)
      self.list = nn.ModuleList { Inner(d), nn.Sequential(nn.LayerNorm(d)) }
      self.drawn = heed.rand(d)
    end
    local m = skip_init(Outer, 4)
    assert.are.equal("heed.Outer", "heed." .. m:class_name())
    assert.are.equal(0, m.list[1].linear.weight:abs():sum():item())
    assert.are.equal(0, m.list[2][1].weight:abs():sum():item())
    assert.are.equal(2, m.list[1].scale[1])
    assert.are_not.equal(0, m.drawn:sum():item())
    m.list[1].scale:fill_(3)
    assert.are.equal(3, m.list[1].scale[4])
    m:load_state_dict(Outer(4):state_dict())
    assert.are_not.equal(0, m.list[1].linear.weight:abs():sum():item())
  end)

  it("accepts any function, and returns all of its results", function()
    local m, n, text = skip_init(function(...) return nn.Linear(2, 2), select("#", ...), "x" end, nil, nil)
    assert.are.equal(0, m.weight:abs():sum():item())
    assert.are.equal(2, n)
    assert.are.equal("x", text)
  end)

  it("ends when the function returns or raises", function()
    local function drawn() return nn.Linear(2, 2).weight:abs():sum():item() ~= 0 end
    skip_init(nn.Linear, 2, 2)
    assert.is_true(drawn())
    assert.is_false((pcall(skip_init, nn.Linear, 0, 2)))
    assert.is_true(drawn())
    local Broken = nn.Module.class "Broken"
    function Broken:init() error { "of its own" } end
    local ok, err = pcall(skip_init, Broken)
    assert.is_false(ok)
    assert.are.same({ "of its own" }, err)
    assert.is_true(drawn())
    skip_init(function() -- nested calls
      pcall(skip_init, Broken)
      assert.is_false(drawn())
    end)
    assert.is_true(drawn())
  end)

  it("does not allow a yield", function()
    local co = coroutine.create(function() return skip_init(function() coroutine.yield() end) end)
    local ok, err = coroutine.resume(co)
    assert.is_false(ok)
    assert.truthy(tostring(err):find("yield", 1, true))
    assert.are_not.equal(0, nn.Linear(2, 2).weight:abs():sum():item())
  end)

  it("points at the line of the mistake", function()
    raises("Linear: d_in is 0; it must be at least 1", function() local _ = skip_init(nn.Linear, 0, 2) end)
    raises("skip_init: class is nil; it must be a class of modules or a constructor", function() skip_init() end)
    raises("skip_init: class is a module (Linear); it must be a class of modules or a constructor",
      function() skip_init(nn.Linear(1, 1)) end)
  end)

  it("leaves parameters that can be read and replaced, but not written", function()
    local m = skip_init(nn.Linear, 3, 2)
    assert.is_true(m(heed.ones(4, 3)):equal(heed.zeros(4, 2)))
    fails("copy_: the tensor that is written has elements that share memory; clone it first", m.weight.copy_,
      m.weight, heed.rand(2, 3))
    m.weight = heed.ones(2, 3)
    assert.is_true(m(heed.ones(1, 3)):equal(heed.full({ 1, 2 }, 3)))
    m.weight:fill_(2)
    assert.are.equal(2, m.weight[2][3])
  end)

  it("keeps shared parameters shared", function()
    local Tied = nn.Module.class "Tied"
    function Tied:init()
      self.embed = nn.Embedding(5, 3)
      self.head = nn.Linear(3, 5, false)
      self.head.weight = self.embed.weight
    end
    local m = skip_init(Tied)
    m:load_state_dict { ["embed.weight"] = heed.ones(5, 3), ["head.weight"] = heed.ones(5, 3) * 2 }
    assert.are.equal(2, m.embed.weight[1][1])
    assert.is_true(share(m.embed.weight, m.head.weight))
  end)

  it("does not load a state that does not fit", function()
    local m = skip_init(nn.Linear, 3, 2)
    fails("load_state_dict: the state does not fit Linear:\n  bias is [3]; it must be [2]", m.load_state_dict, m,
      { weight = heed.ones(2, 3), bias = heed.ones(3) })
    assert.are.equal(0, m.weight:sum():item())
    m:load_state_dict({ bias = heed.ones(2) }, { strict = false })
    assert.are.equal(0, m.weight:sum():item())
    assert.are.equal(1, m.bias[1])
  end)
end)

describe("load_state_dict with assign", function()
  it("uses the tensors themselves, as parameters", function()
    for _, maker in ipairs(makers) do
      local m, state = skip_init(nn[maker[1]], table.unpack(maker, 2)), {}
      for name, p in nn[maker[1]](table.unpack(maker, 2)):named_parameters() do state[name] = p:clone() end
      local result = m:load_state_dict(state, { assign = true })
      assert.are.same({ missing_keys = {}, unexpected_keys = {} }, result)
      for name, p in m:named_parameters() do
        assert.is_true(p.is_parameter)
        assert.is_false(state[name].is_parameter)
        assert.is_true(share(state[name], p))
      end
    end
  end)

  it("accepts tensors that share memory, views, and the module's own", function()
    local m = nn.Sequential(nn.Linear(2, 2, false), nn.Linear(2, 2, false))
    local w, first, second = heed.randn(2, 2), m[1].weight, m[2].weight
    m:load_state_dict({ ["0.weight"] = second, ["1.weight"] = first.T }, { assign = true })
    assert.is_true(m[1].weight:equal(second))
    assert.is_true(m[2].weight:equal(first.T))
    m:load_state_dict({ ["0.weight"] = w, ["1.weight"] = w }, true, true)
    assert.is_true(share(m[1].weight, m[2].weight))
    m:load_state_dict({ ["0.weight"] = heed.ones(1, 2):expand(2, 2), ["1.weight"] = w }, { assign = true })
    assert.is_true(m[1](heed.ones(1, 2)):equal(heed.full({ 1, 2 }, 2)))
  end)

  it("applies to user-defined modules and their buffers", function()
    local Mine = nn.Module.class "Mine"
    function Mine:init()
      self.scale = nn.Parameter(heed.ones(2))
      self:register_buffer("count", heed.zeros(2, { dtype = "int64" }))
      self.linear = nn.Linear(2, 2)
    end
    local m = Mine()
    local state = copy_of(m:state_dict())
    m:load_state_dict(state, { assign = true })
    for name, t in heed.pairs(m:state_dict()) do assert.is_true(share(state[name], t)) end
    assert.is_true(m.scale.is_parameter)
    assert.is_false(m.count.is_parameter)
    local names = {}
    for name in m:named_parameters() do names[#names + 1] = name end
    assert.are.equal("scale linear.weight linear.bias", table.concat(names, " "))
    state.count = heed.zeros(2)
    fails("load_state_dict: the state does not fit Mine:\n  count is float32; it must be int64", m.load_state_dict, m,
      state, { assign = true })
  end)

  it("keeps bfloat16 and float16 where the module supports them, and converts them to float32 elsewhere", function()
    for _, dtype in ipairs { "bfloat16", "float16" } do
      local m = skip_init(nn.Sequential, nn.Linear(3, 2), nn.LayerNorm(2))
      local state = {}
      local full = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)):state_dict()
      for name, t in heed.pairs(full) do state[name] = t:to(dtype) end
      m:load_state_dict(state, { assign = true })
      assert.are.equal(dtype, m[1].weight.dtype)
      for name, t in heed.pairs(m:state_dict()) do
        assert.is_true(t:float():equal(state[name]:float()))
        assert.are.equal(name == "0.weight" and dtype or "float32", t.dtype)
      end
      m:load_state_dict(full, { assign = true })
      assert.are.equal("float32", m[1].weight.dtype)
    end
  end)

  it("loads everything or nothing", function()
    local m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    local before, state = copy_of(m:state_dict()), copy_of(m:state_dict())
    for _, t in heed.pairs(state) do t:fill_(7) end
    state["1.weight"], state["1.bias"], state.more = heed.ones(2, 3), heed.ones(2, { dtype = "int64" }), heed.ones(1)
    fails("load_state_dict: the state does not fit Sequential:\n  1.bias is int64; it must be float32\n"
      .. "  1.weight is [2, 3]; it must be [2, 2]\n  more is not part of the module", m.load_state_dict, m, state,
      { assign = true })
    for name, t in heed.pairs(m:state_dict()) do assert.is_true(t:equal(before[name])) end
    m:load_state_dict({ ["0.bias"] = heed.ones(2) }, { strict = false, assign = true })
    assert.is_true(m[1].bias:equal(heed.ones(2)))
    assert.is_true(m[2].bias:equal(before["1.bias"]))
  end)

  it("must be a boolean", function()
    local m = nn.Linear(1, 1)
    fails("load_state_dict: assign is a string ('yes'); it must be a boolean", m.load_state_dict, m, m:state_dict(),
      { assign = "yes" })
  end)
end)

describe("load_state_dict without assign", function()
  it("converts between float32 and the low-precision dtypes", function()
    local m = nn.Linear(3, 2)
    m.weight = m.weight:to "bfloat16"
    local state = { weight = heed.randn(2, 3), bias = heed.randn(2):to "float16" }
    m:load_state_dict(state)
    assert.are.equal("bfloat16", m.weight.dtype)
    assert.are.equal("float32", m.bias.dtype)
    assert.is_true(m.weight:float():equal(state.weight:to("bfloat16"):float()))
    assert.is_true(m.bias:equal(state.bias:float()))
    fails("load_state_dict: the state does not fit Linear:\n  bias is bool; it must be float32", m.load_state_dict, m,
      { weight = state.weight, bias = heed.ones(2, { dtype = "bool" }) })
  end)
end)
