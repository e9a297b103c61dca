-- ModuleDict, ParameterList, ParameterDict, containers with names, and finding and registering parts and parameters.
local heed = require "heed"
local nn = heed.nn

local fails = require "tests.fails"
local support = require "tests.support"
local tensors = require "tests.tensors"
local names_of = tensors.names_of

describe("ModuleDict", function()
  local function example() return nn.ModuleDict { { "up", nn.Linear(2, 3) }, { "act", nn.ReLU() } } end

  it("holds modules by name", function()
    local d = example()
    assert.are.equal("Linear", d.up:class_name())
    assert.are.equal("ReLU", d["act"]:class_name())
    assert.is_nil(d.missing)
    assert.are.equal(2, #d)
    d.down = nn.Linear(3, 2)
    assert.are.equal(3, #d)
    assert.are.equal("up.weight up.bias down.weight down.bias", names_of(d:named_parameters()))
    assert.are.equal("ModuleDict(\n  (a): ReLU()\n)", tostring(nn.ModuleDict { a = nn.ReLU() }))
  end)

  it("keeps the order of a list, and sorts a table by name", function()
    assert.are.same({ "up", "act" }, example():keys())
    assert.are.same({ "a", "b", "c" }, nn.ModuleDict({ c = nn.ReLU(), a = nn.ReLU(), b = nn.ReLU() }):keys())
  end)

  it("iterates over its modules, in order", function()
    local d, names = example(), {}
    for name, m in d:items() do names[#names + 1] = name .. " " .. m:class_name() end
    assert.are.same({ "up Linear", "act ReLU" }, names)
    assert.are.equal("up act", names_of(heed.pairs(d)))
    assert.are.equal(d.act, d:values()[2])
    assert.are.equal("up act", names_of(d:named_children()))
  end)

  it("is changed by update, pop and clear", function()
    local d = example()
    assert.are.equal(d, d:update { up = nn.GELU(), more = nn.SiLU() })
    assert.are.same({ "up", "act", "more" }, d:keys())
    assert.are.equal("GELU", d.up:class_name())
    assert.are.equal("SiLU", d:pop("more"):class_name())
    assert.are.equal(2, #d)
    d:clear()
    assert.are.equal(0, #d)
    fails("ModuleDict: there is no item up to remove; the names are ", d.pop, d, "up")
  end)

  it("refuses what does not fit, and then adds nothing", function()
    local d = nn.ModuleDict()
    fails("ModuleDict: 'b' is the number 3; it must be a module", d.update, d, { a = nn.ReLU(), b = 3 })
    fails("ModuleDict: 'keys' is the name of a method or field of modules; use another name", nn.ModuleDict,
      { keys = nn.ReLU() })
    fails("ModuleDict: a name is 'a.b'; it must not be empty or contain a dot", nn.ModuleDict, { ["a.b"] = nn.ReLU() })
    fails("ModuleDict: item 1 is a module (ReLU); it must be {name, module}", nn.ModuleDict, { nn.ReLU() })
    fails("ModuleDict: items is the number 3; it must be a table by name, or a list of {name, module}, which " ..
      "keeps its " ..
      "order", nn.ModuleDict, 3)
    assert.are.equal(0, #d)
    fails("ModuleDict has no forward; call its modules by name", d, heed.ones(2))
  end)
end)

describe("ParameterList", function()
  it("holds parameters by number", function()
    local Own = nn.Module.class "Own"
    function Own:init() self.list = nn.ParameterList { heed.ones(2, 3), heed.zeros(4) } end
    local p = Own().list
    assert.are.equal(2, #p)
    assert.is_true(p[1].is_parameter)
    assert.are.equal(4, p[-1].shape[1])
    assert.is_nil(p[3])
    p:append(heed.ones(1)):extend { heed.ones(5) }
    assert.are.equal("0 1 2 3", names_of(p:named_parameters()))
    p[2] = heed.ones(7)
    assert.are.equal(7, p[2].shape[1])
    assert.are.equal("list.0 list.1", names_of(Own():named_parameters()))
    local count = 0
    for _ in heed.ipairs(p) do count = count + 1 end
    assert.are.equal(4, count)
  end)

  it("prints as PyTorch prints it", function()
    local list = nn.ParameterList(heed.ones(2, 3), heed.ones(4))
    assert.are.equal("ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2x3]\n"
      .. "    (1): Parameter containing: [torch.float32 of size 4]\n)", tostring(list))
    assert.are.equal("ParameterList(  (0): Parameter containing: [torch.float32 of size 2x3])",
      tostring(nn.ParameterList(heed.ones(2, 3))))
    assert.are.equal("Sequential(\n  (0): ParameterList(\n"
      .. "      (0): Parameter containing: [torch.float32 of size 2x3]\n"
      .. "      (1): Parameter containing: [torch.float32 of size 4]\n  )\n)", tostring(nn.Sequential(list)))
    assert.are.equal("ParameterList()", tostring(nn.ParameterList()))
    assert.are.equal("ParameterDict(  (a): Parameter containing: [torch.FloatTensor of size 2])",
      tostring(nn.ParameterDict { a = heed.ones(2) }))
  end)

  it("refuses what does not fit, and then adds nothing", function()
    local p = nn.ParameterList { heed.ones(1) }
    fails("ParameterList: element 2 is the number 3; it must be a tensor", p.extend, p, { heed.ones(1), 3 })
    fails("ParameterList: element 1 is a module (ReLU); it must be a tensor", nn.ParameterList, nn.ReLU())
    fails("extend: list is a module (ReLU); it must be a list of tensors", p.extend, p, nn.ReLU())
    assert.are.equal(2, #nn.ParameterList(p):extend(p))
    fails("ParameterList: index 5 is out of range; there is 1 parameter, counted from 1", function() return p[5] end)
    fails("ParameterList: the appended value is a string ('x'); it must be a tensor", p.append, p, "x")
    assert.are.equal(1, #p)
  end)
end)

describe("ParameterDict", function()
  it("holds parameters by name", function()
    local p = nn.ParameterDict { { "left", heed.ones(2) }, { "again", heed.zeros(3) } }
    assert.is_true(p.left.is_parameter)
    assert.are.same({ "left", "again" }, p:keys())
    assert.are.equal("left again", names_of(p:named_parameters()))
    assert.are.equal(3, p:pop("again").shape[1])
    assert.are.equal(1, #p)
    fails("ParameterDict: 'x' is a module (ReLU); it must be a tensor", p.update, p, { x = nn.ReLU() })
  end)
end)

describe("Sequential and ModuleList", function()
  it("take names, as an OrderedDict in PyTorch", function()
    local m = nn.Sequential { { "up", nn.Linear(2, 3) }, { "act", nn.ReLU() } }
    assert.are.equal("up.weight up.bias", names_of(m:named_parameters()))
    assert.are.equal(m.act, m[2])
    assert.are.equal(2, #m)
    assert.are.equal("heed.Size([1, 3])", tostring(m(heed.ones(1, 2)).shape))
    assert.are.equal("Sequential(\n  (up): Linear(in_features=2, out_features=3, bias=True)\n  (act): ReLU()\n)",
      tostring(m))
    fails("Sequential: element 1, 'a', is the number 2; it must be a module", nn.Sequential, { { "a", 2 } })
    fails("Sequential: the name 'a' is taken, by another element or a method; use another name", nn.Sequential,
      { { "a", nn.ReLU() }, { "a", nn.ReLU() } })
  end)
end)

describe("a module's parts and parameters", function()
  local m = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))

  it("are found by their paths", function()
    assert.are.equal(m, m:get_submodule "")
    assert.are.equal(m[2][1], m:get_submodule "1.0")
    assert.is_true(m:get_parameter("0.weight"):equal(m[1].weight))
    assert.are.equal(3, m:get_buffer("1.0.running_mean").shape[1])
    local mha = nn.MultiHeadAttention(4, 4, 5, 0, 2)
    assert.are.equal(mha.out_proj, mha:get_submodule "out_proj")
    fails("get_submodule: Sequential has no module '1.7'", m.get_submodule, m, "1.7")
    fails("get_parameter: Sequential has no parameter '0.weights'", m.get_parameter, m, "0.weights")
    fails("get_parameter: Sequential has no module '9'", m.get_parameter, m, "9.weight")
    fails("get_buffer: Sequential has no buffer '0.weight'", m.get_buffer, m, "0.weight")
    fails("get_submodule: target is nil; it must be a string", m.get_submodule, m)
  end)

  it("are registered by name", function()
    local Own = nn.Module.class "Own"
    local own = Own()
    own:add_module("part", nn.Linear(2, 2))
    own:register_module("other", nn.ReLU())
    own:register_parameter("scale", heed.ones(2))
    own:register_parameter("bias", nil)
    assert.are.equal("scale part.weight part.bias", names_of(own:named_parameters()))
    assert.are.equal("part other", names_of(own:named_children()))
    own:add_module("other", nil)
    assert.are.equal("part", names_of(own:named_children()))
    fails("add_module: module is the number 3; it must be a module", own.add_module, own, "x", 3)
    fails("register_parameter: tensor is the number 3; it must be a tensor", own.register_parameter, own, "x", 3)
    fails("add_module: name is the number 3; it must be a string", own.add_module, own, 3, nn.ReLU())
    local layer = nn.Linear(2, 2)
    fails("add_module: self is a module (Linear); it must be a module written in Lua", own.add_module, layer, "x",
      nn.ReLU())
  end)

  it("go through one vector", function()
    local linear = nn.Linear(2, 3)
    local vector = nn.utils.parameters_to_vector(linear:parameters())
    assert.are.equal(9, vector:numel())
    nn.utils.vector_to_parameters(vector * 2, linear:parameters())
    assert.is_true((vector * 2):equal(nn.utils.parameters_to_vector { linear.weight, linear.bias }))
    fails("vector_to_parameters: vector is a tensor of shape [3] and dtype float32; it must be [9], the number of " ..
      "elements of the parameters", nn.utils.vector_to_parameters, heed.ones(3), linear:parameters())
    fails("parameters_to_vector: parameters is a module (Linear); it must be a list of tensors, such as m:parameters()",
      nn.utils.parameters_to_vector, linear)
    fails("parameters_to_vector: parameter 1 is the number 3; it must be a tensor", nn.utils.parameters_to_vector,
      { 3 })
  end)

  it("are stored as other dtypes by half, bfloat16 and float", function()
    local layer = nn.Sequential(nn.Linear(2, 3))
    for name, dtype in pairs { half = "float16", bfloat16 = "bfloat16", float = "float32" } do
      assert.are.equal(layer, layer[name](layer))
      assert.are.equal(dtype, layer[1].weight.dtype)
    end
  end)
end)

support.where("loops", it, pending)("pairs(d) gives a ModuleDict's modules", function()
  assert.are.equal("a b", names_of(pairs(nn.ModuleDict { b = nn.ReLU(), a = nn.ReLU() })))
end)
