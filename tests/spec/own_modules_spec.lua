-- Modules written in Lua: classes, fields, containers, and nesting with built-in modules.
local heed = require "heed"
local fails = require "tests.fails"
local names_of = require("tests.tensors").names_of
local nn = heed.nn

local Mine = nn.Module.class "Mine"
function Mine:init(d)
  self.net = nn.Linear(d, d)
  self.w = nn.Parameter(heed.ones(d, d))
  self:register_buffer("mask", heed.zeros(d))
  self.size = d
end
function Mine:forward(x) return self.net(x):matmul(self.w) end

describe("a class", function()
  it("makes modules that are called as forward", function()
    local m = Mine(3)
    local x = heed.rand(2, 3)
    assert.is_true(m(x):equal(m:forward(x)))
    assert.are.equal("Mine", m:class_name())
    assert.are.equal("class Mine", tostring(Mine))
    assert.is_true(nn.is_module(m))
    assert.is_false(nn.is_module(Mine))
    assert.is_false(nn.is_module {})
  end)

  it("passes all arguments and results", function()
    local Echo = nn.Module.class "Echo"
    function Echo:forward(...) return select("#", ...), ... end
    assert.are.same({ 3, 1, nil, false }, { Echo()(1, nil, false) })
  end)

  it("inherits from another", function()
    local Child = nn.Module.class("Child", Mine)
    function Child:init(d)
      Mine.init(self, d)
      self.extra = nn.Parameter(heed.zeros(1))
    end
    function Child:forward(x) return Mine.forward(self, x) + self.extra end
    local m = Child(2)
    assert.are.equal("w extra net.weight net.bias", names_of(m:named_parameters()))
    assert.are.equal("heed.Size([4, 2])", tostring(m(heed.rand(4, 2)).shape))
    assert.are.equal("Child", m:class_name())
  end)

  it("names a missing method", function()
    local Empty = nn.Module.class "Empty"
    fails("Empty has no forward; define `function Empty:forward(x) ... end`", Empty(), 1)
    fails("Empty takes no arguments; define `function Empty:init(...) ... end` to accept some", Empty, 1)
    fails("len: Empty has no length", function() return #Empty() end)
  end)

  it("may omit its parent's init", function()
    local Careless = nn.Module.class("Careless", Mine)
    function Careless:init() end
    local m = Careless()
    assert.are.equal("", names_of(m:named_parameters()))
    assert.are.equal("Careless()", tostring(m))
    assert.has_error(function() m(heed.rand(2, 2)) end)
  end)

  it("needs a valid name and parent", function()
    fails("class: name is nil; it must be a string", nn.Module.class)
    fails("class: name is the class Module; it must be a string", nn.Module.class, nn.Module, "Mine")
    fails("class: parent is a function; it must be a class made by nn.Module.class", nn.Module.class, "A", nn.Linear)
    fails("class: parent is a module (Mine); it must be a class made by nn.Module.class", nn.Module.class, "A", Mine(2))
  end)

  it("points at the line of the mistake", function()
    local _, err = pcall(function() Mine(3).w = 5 end)
    assert.matches("own_modules_spec.lua:%d+: Mine: w is the number 5", err)
  end)
end)

describe("the fields of a user-defined module", function()
  it("are registered by kind, in the order of first assignment", function()
    local m = Mine(2)
    assert.are.equal("w net.weight net.bias", names_of(m:named_parameters()))
    assert.are.equal("mask", names_of(m:named_buffers()))
    assert.are.equal("net", names_of(m:named_children()))
    m.first = nn.Dropout()
    m.second = nn.Linear(1, 1)
    m.net = nn.Linear(2, 2, false)
    assert.are.equal("net first second", names_of(m:named_children()))
    m.net = nil
    assert.are.equal("w second.weight second.bias", names_of(m:named_parameters()))
    m.net = nn.Dropout()
    assert.are.equal("first second net", names_of(m:named_children()))
  end)

  it("may be plain values", function()
    local m = Mine(2)
    assert.are.equal(2, m.size)
    assert.is_nil(m.nothing)
    m.size, m[1], m[true] = "big", "one", "yes"
    assert.are.same({ "big", "one", "yes" }, { m.size, m[1], m[true] })
    m.plain = heed.zeros(2)
    assert.are.equal("w net.weight net.bias", names_of(m:named_parameters()))
    local seen = {}
    for name in heed.pairs(m) do seen[name] = true end
    assert.is_true(seen.size and seen.net and seen.training)
  end)

  it("stay parameters and buffers when a tensor is assigned", function()
    local m, t = Mine(2), heed.zeros(2, 2)
    m.w, m.mask = t, heed.ones(2)
    assert.is_true(m.w.is_parameter)
    t[1][1] = 3
    assert.are.equal(3, m.w[1][1])
    assert.are.equal("mask", names_of(m:named_buffers()))
    assert.are.equal("w mask net.weight net.bias", names_of(heed.pairs(m:state_dict())))
  end)

  it("may change from one kind to another, but not to a plain value", function()
    local m = Mine(2)
    m.w = nn.Linear(1, 1)
    assert.are.equal("net w", names_of(m:named_children()))
    m.net = nn.Parameter(heed.ones(1))
    assert.are.equal("net w.weight w.bias", names_of(m:named_parameters()))
    fails("Mine: net is the number 5; it must be a parameter, which it was before, or nil",
      function() m.net = 5 end)
    fails("Mine: w is a tensor of shape [1] and dtype float32; it must be a module, which it was before, or nil",
      function() m.w = heed.ones(1) end)
    m.size = nn.Parameter(heed.ones(1))
    assert.are.equal("net size w.weight w.bias", names_of(m:named_parameters()))
  end)

  it("must have names without a dot", function()
    local m = Mine(2)
    fails("Mine: the name of a parameter is 'a.b'; it must not be empty or contain a dot",
      function() m["a.b"] = nn.Parameter(heed.ones(1)) end)
    fails("Mine: the name of a module is ''; it must not be empty or contain a dot",
      function() m[""] = nn.Dropout() end)
    fails("Mine: a field's name is nil; it must not be nil or nan", function() m[nil] = 1 end)
    assert.has_error(function() m[0 / 0] = 1 end)
  end)

  it("cannot make a module contain itself", function()
    local a, b = Mine(2), nn.Sequential()
    b:append(a)
    fails("Mine: net is a module that contains this one; it must be a module that does not", function() a.net = b end)
    fails("Mine: me is a module that contains this one; it must be a module that does not", function() a.me = a end)
  end)

  it("are listed once if they are shared", function()
    local m, layer = Mine(2), nn.Linear(2, 2)
    m.net, m.again, m.tied = layer, layer, layer.weight
    assert.are.equal("w tied net.bias", names_of(m:named_parameters()))
    assert.are.equal("net", names_of(m:named_children()))
    assert.are.equal("w tied mask net.weight net.bias again.weight again.bias", names_of(heed.pairs(m:state_dict())))
  end)
end)

describe("register_buffer", function()
  it("keeps a buffer out of the state dict if it is not persistent", function()
    local m = Mine(2)
    m:register_buffer("cache", heed.zeros(1), { persistent = false })
    m:register_buffer("steps", heed.zeros(1, { dtype = "int64" }), true)
    assert.are.equal("mask cache steps", names_of(m:named_buffers()))
    assert.are.equal(3, #m:buffers())
    assert.are.equal("w mask steps net.weight net.bias", names_of(heed.pairs(m:state_dict())))
  end)

  it("rejects names in use, and values that are not tensors", function()
    local m = Mine(2)
    fails("register_buffer: Mine already has a field 'net'; use another name",
      m.register_buffer, m, "net", heed.zeros(1))
    fails("register_buffer: tensor is nil; it must be a tensor", m.register_buffer, m, "x")
    fails("register_buffer: name is the number 1; it must be a string", m.register_buffer, m, 1, heed.zeros(1))
    fails("register_buffer: self is a module (Linear); it must be a module written in Lua", m.register_buffer,
      nn.Linear(1, 1), "x", heed.zeros(1))
    fails("register_buffer: there is no option 'persist'; the options are persistent", m.register_buffer, m, "x",
      heed.zeros(1), { persist = true })
    m:register_buffer("mask", heed.ones(4))
    assert.are.equal(4, m.mask:numel())
  end)
end)

describe("modes", function()
  it("reach built-in modules inside user-defined ones", function()
    local m = nn.Sequential(Mine(2), nn.ModuleList { nn.Dropout() })
    m:eval()
    assert.is_false(m.training or m[1].training or m[1].net.training or m[2][1].training)
    m[1].training = true
    assert.is_true(m[1].net.training)
    assert.is_false(m.training)
    fails("Mine: training is the number 1; it must be a boolean", function() m[1].training = 1 end)
  end)

  it("respect a class that overrides train", function()
    local Frozen = nn.Module.class "Frozen"
    function Frozen:init() self.drop = nn.Dropout() end
    function Frozen:train(mode)
      nn.Module.train(self, mode)
      self.drop:eval()
      return self
    end
    local m = nn.Sequential(Frozen()):eval():train()
    assert.is_true(m[1].training)
    assert.is_false(m[1].drop.training)
  end)

  it("let apply visit all parts, the deepest first", function()
    local names = {}
    nn.Sequential(Mine(2), nn.Dropout()):apply(function(each) names[#names + 1] = each:class_name() end)
    assert.are.equal("Linear Mine Dropout Sequential", table.concat(names, " "))
  end)
end)

describe("the text of a module", function()
  it("matches PyTorch's repr", function()
    local Named = nn.Module.class("Named", Mine)
    function Named:extra_repr() return "d=" .. self.size end
    assert.are.equal("Mine(\n  (net): Linear(in_features=2, out_features=2, bias=True)\n)", tostring(Mine(2)))
    assert.are.equal("Named(\n  d=2\n  (net): Linear(in_features=2, out_features=2, bias=True)\n)",
      tostring(Named(2)))
    local Leaf = nn.Module.class "Leaf"
    function Leaf:extra_repr() return "a=1\nb=2" end
    assert.are.equal("Leaf(\n  a=1\n  b=2\n)", tostring(Leaf()))
    function Leaf:extra_repr() return "a=1, b=2" end
    assert.are.equal("Leaf(a=1, b=2)", tostring(Leaf()))
    function Leaf:extra_repr() return 1 end
    fails("extra_repr: the result is the number 1; it must be a string", tostring, Leaf())
  end)

  it("joins equal neighbours in a ModuleList, but not in a Sequential", function()
    local d = nn.Dropout
    assert.are.equal([[
ModuleList(
  (0): Dropout(p=0.5, inplace=False)
  (1-2): 2 x Sequential(
    (0): Dropout(p=0.1, inplace=False)
    (1): Dropout(p=0.1, inplace=False)
  )
)]], tostring(nn.ModuleList { d(), nn.Sequential(d(0.1), d(0.1)), nn.Sequential(d(0.1), d(0.1)) }))
    assert.are.equal("ModuleList()", tostring(nn.ModuleList()))
    assert.are.equal("Sequential()", tostring(nn.Sequential()))
  end)

  it("may be overridden", function()
    local Loud = nn.Module.class "Loud"
    function Loud:__tostring() return "LOUD" end
    assert.are.equal("LOUD", tostring(Loud()))
    assert.are.equal("Sequential(\n  (0): LOUD\n)", tostring(nn.Sequential(Loud())))
  end)
end)

describe("Sequential", function()
  it("applies its modules in order", function()
    local a, b = nn.Linear(3, 4), Mine(4)
    local m, x = nn.Sequential(a, b), heed.rand(2, 3)
    assert.is_true(m(x):equal(b(a(x))))
    assert.is_true(nn.Sequential()(x):equal(x))
    assert.are.equal("0.weight 0.bias 1.w 1.net.weight 1.net.bias", names_of(m:named_parameters()))
  end)

  it("accepts exactly one input", function()
    fails("Sequential: 2 arguments are given; it takes one input", nn.Sequential(), 1, 2)
    fails("Sequential: 0 arguments are given; it takes one input", nn.Sequential())
  end)

  it("can be a parent class", function()
    local Block = nn.Module.class("Block", nn.Sequential)
    function Block:init(d) nn.Sequential.init(self, nn.Linear(d, d), nn.Dropout(0)) end
    assert.are.equal(2, #Block(3))
    assert.are.equal("heed.Size([5, 3])", tostring(Block(3)(heed.rand(5, 3)).shape))
  end)
end)

describe("a container", function()
  it("is indexed like a list", function()
    local a, b = nn.Dropout(0.1), nn.Dropout(0.2)
    for _, m in ipairs { nn.Sequential(a, b), nn.Sequential { a, b }, nn.ModuleList { a, b } } do
      assert.are.equal(2, #m)
      assert.is_true(rawequal(a, m[1]) and rawequal(b, m[2]) and rawequal(b, m[-1]) and rawequal(a, m[-2]))
      assert.is_nil(m[3])
      local count = 0
      for i, each in heed.ipairs(m) do
        assert.is_true(rawequal(each, m[i]))
        count = count + 1
      end
      assert.are.equal(2, count)
      fails(m:class_name() .. ": index 0 is out of range; there are 2 modules, counted from 1",
        function() return m[0] end)
      fails(m:class_name() .. ": an index is the number 1.5; it must be an integer", function() return m[1.5] end)
    end
  end)

  it("can be modified", function()
    local d = nn.Dropout
    local m = nn.ModuleList { d(0.1) }
    local function text()
      local p = {}
      for i, each in heed.ipairs(m) do p[i] = each.p end
      return table.concat(p, " ") .. " / " .. names_of(m:named_children())
    end
    m:append(d(0.2)):extend { d(0.3), d(0.4) }
    assert.are.equal("0.1 0.2 0.3 0.4 / 0 1 2 3", text())
    m:insert(2, d(0.5))
    assert.are.equal("0.1 0.5 0.2 0.3 0.4 / 0 1 2 3 4", text())
    assert.are.equal(0.4, m:pop().p)
    assert.are.equal(0.5, m:pop(2).p)
    assert.are.equal("0.1 0.2 0.3 / 0 1 2", text())
    m[1] = d(0.6)
    m[-1] = d(0.7)
    m[4] = d(0.8)
    assert.are.equal("0.6 0.2 0.7 0.8 / 0 1 2 3", text())
    m:extend(nn.ModuleList { d(0.9) })
    m:extend(nn.MultiHeadAttentionWrapper(3, 2, 6, 0, 2).heads)
    assert.are.equal(7, #m)
    assert.are.equal(0.9, m["4"].p)
  end)

  it("accepts modules only", function()
    fails("Sequential: the appended value is a function; it must be a module; a constructor is called: nn.ReLU()",
      nn.Sequential, nn.Linear)
    fails("ModuleList: a key of the list is a string ('a'); it must be an index from 1 to the length, 0",
      nn.ModuleList, { a = nn.Dropout() })
    local m = nn.ModuleList()
    fails("ModuleList: the appended value is nil; it must be a module", m.append, m)
    fails("ModuleList: element 1 is nil; it must be a module", function() m[1] = nil end)
    fails("extend: list is nil; it must be a list of modules", m.extend, m)
    fails("ModuleList: the inserted value is nil; it must be a module", m.insert, m, 1)
    fails("ModuleList: there is no module at index 1 to remove", m.pop, m, 1)
    fails("ModuleList: index 2 is out of range; there are 0 modules, counted from 1",
      function() m[2] = nn.Dropout() end)
    fails("ModuleList has no forward; call its modules one by one", m, 1)
  end)
end)
