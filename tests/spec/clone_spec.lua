-- m:clone(): deep copies of modules.
local heed = require "heed"
local nn = heed.nn

local fails = require "tests.fails"
local raises = require "tests.raises"
local tensors = require "tests.tensors"

local function same_state(a, b)
  local wanted, got = a:state_dict(), b:state_dict()
  assert.are.equal(#wanted, #got)
  for name, tensor in heed.pairs(wanted) do
    assert.are.equal(tensor.dtype, got[name].dtype)
    assert.is_true(tensor:float():equal(got[name]:float()), name)
  end
end

local every_class = {
  function() return nn.Linear(3, 4) end,
  function() return nn.Linear(3, 4, false) end,
  function() return nn.Dropout(0.25) end,
  function() return nn.Embedding(5, 3, 2) end,
  function() return nn.LayerNorm { 2, 3 } end,
  function() return nn.RMSNorm(3) end,
  function() return nn.GELU "tanh" end,
  function() return nn.SelfAttention(3, 2) end,
  function() return nn.CausalAttention(3, 2, 4, 0.1) end,
  function() return nn.MultiHeadAttentionWrapper(3, 2, 4, 0, 2) end,
  function() return nn.MultiHeadAttention(4, 4, 5, 0, 2) end,
  function()
    return nn.MultiHeadAttention { d_in = 4, d_out = 8, context_length = 5, dropout = 0, num_heads = 2, rope = {},
      sinks = true, qk_norm = true, window = { left = 2 }, softcap = 3 }
  end,
  function()
    return nn.MultiHeadAttention { d_in = 4, d_out = 8, context_length = 5, dropout = 0, num_heads = 4, alibi = true }
  end,
  function() return nn.BatchNorm1d(3) end,
  function() return nn.MultiheadAttention(4, 2, { add_bias_kv = true }) end,
  function() return nn.TransformerDecoderLayer(4, 2, 6, { activation = nn.GELU() }) end,
  function() return nn.ModuleDict { a = nn.ReLU(), b = nn.Linear(2, 2) } end,
  function() return nn.ParameterList { heed.ones(2), heed.zeros(3) } end,
  function() return nn.CrossEntropyLoss(heed.ones(3)) end,
}

describe("m:clone()", function()
  for i, make in ipairs(every_class) do
    local m = make()
    it(("copies module %d, a %s, with its settings"):format(i, m:class_name()), function()
      local copy = m:clone()
      assert.are_not.equal(m, copy)
      assert.are.equal(m:class_name(), copy:class_name())
      assert.are.equal(tostring(m), tostring(copy))
      same_state(m, copy)
      for p in copy:parameters() do p:fill_(9) end -- the original keeps its values
      for p in m:parameters() do assert.is_false(p:eq(9):any():item()) end
    end)
  end

  it("gives a module with the same results", function()
    for _, m in ipairs { every_class[10](), every_class[11](), every_class[12](), every_class[13]() } do
      local x = heed.randn(2, 5, m.d_in)
      if m:class_name() == "MultiHeadAttentionWrapper" then x = heed.randn(2, 4, 3) end
      assert.is_true(m(x):equal(m:clone()(x)))
    end
    local m, x = every_class[15](), heed.randn(3, 2, 4)
    assert.is_true((m(x, x, x)):equal((m:clone()(x, x, x))))
  end)

  it("keeps the training mode of each part", function()
    local m = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    m[2]:eval()
    local copy = m:clone()
    assert.is_true(copy.training)
    assert.is_true(copy[1].training)
    assert.is_false(copy[2].training)
    assert.is_false(copy[2][1].training)
  end)

  it("keeps dtypes", function()
    for _, dtype in ipairs { "bfloat16", "float16", "int8" } do
      local m = nn.Linear(64, 3):to(dtype)
      local copy = m:clone()
      same_state(m, copy)
      assert.are.equal(dtype, copy.weight.dtype)
      assert.is_true(m(heed.ones(64)):equal(copy(heed.ones(64))))
    end
  end)

  it("shares inside the copy what is shared inside the original", function()
    local Tied = nn.Module.class "Tied"
    function Tied:init()
      self.wte = nn.Embedding(4, 3)
      self.head = nn.Linear(3, 4, false)
      self.head.weight = self.wte.weight
      self.again = self.head
      self.table = { self.head, notes = { 1, 2 } }
      self.table.itself = self.table
    end
    local m = Tied()
    local copy = m:clone()
    assert.are.equal(copy.head, copy.again)
    assert.are.equal(copy.head, copy.table[1])
    assert.are.equal(copy.table, copy.table.itself)
    assert.are_not.equal(m.head, copy.head)
    assert.are_not.equal(m.table, copy.table)
    assert.are.equal(1, #copy:parameters())
    copy.wte.weight:fill_(5)
    assert.are.equal(5, copy.head.weight[{ 1, 1 }])
    assert.is_false(m.head.weight:eq(5):any():item())
  end)

  it("copies the fields of user-defined modules, and their buffers", function()
    local Own = nn.Module.class "Own"
    function Own:init()
      self.scale, self.name, self.list = 2, "own", { 1, { 2 } }
      self.apply_to = math.sqrt
      self.generator = heed.Generator(1)
      self.loose = nn.Linear(2, 2).weight:clone()
      self:register_buffer("mask", heed.ones(2))
      self:register_buffer("scratch", heed.ones(2), false)
    end
    local m = Own()
    local copy = m:clone()
    assert.are.same({ 2, "own", { 1, { 2 } } }, { copy.scale, copy.name, copy.list })
    copy.list[2][1] = 7
    assert.are.equal(2, m.list[2][1])
    assert.are.equal(m.apply_to, copy.apply_to)
    assert.are.equal(m.generator, copy.generator)
    copy.mask:fill_(3)
    copy.loose:fill_(3)
    assert.are.equal(1, m.mask[1])
    assert.are_not.equal(3, m.loose[{ 1, 1 }])
    assert.are.equal("mask", tensors.names_of(heed.pairs(copy:state_dict())))
    assert.are.equal("mask scratch", tensors.names_of(copy:named_buffers()))
  end)

  it("copies modules of one's own in built-in attention", function()
    local Scaled = nn.Module.class "Scaled"
    function Scaled:init(base) self.base, self.factor = base, nn.Parameter(heed.ones(4)) end
    function Scaled:forward(x) return self.base(x) * self.factor end
    local m = nn.MultiHeadAttention(4, 4, 5, 0, 2)
    m.W_query = Scaled(m.W_query)
    m.W_key = nn.Sequential(m.W_key)
    m.causal = false
    local copy, x = m:clone(), heed.randn(2, 5, 4)
    assert.are.equal(tostring(m), tostring(copy))
    assert.is_false(copy.causal)
    assert.is_true(m(x):equal(copy(x)))
    same_state(m, copy)
    local before = m(x)
    copy.W_query.factor:fill_(0)
    copy.W_key[1].weight:fill_(0)
    assert.is_true(before:equal(m(x)))
    assert.is_false(before:equal(copy(x)))
  end)

  it("copies a deep module without recursion", function()
    local m = nn.ReLU()
    for _ = 1, 5000 do m = nn.Sequential(m) end
    assert.are.equal(5001, #m:clone():modules())
  end)

  it("keeps parameters that have no memory yet", function()
    local m = nn.utils.skip_init(nn.Linear, 100000, 100000)
    local before = heed.info().memory_in_use
    local copy = m:clone()
    assert.is_true(heed.info().memory_in_use - before < 1e6)
    assert.are.equal("heed.Size([100000, 100000])", tostring(copy.weight.shape))
  end)

  it("can be assigned to a part", function()
    local m = nn.Sequential(nn.Linear(2, 2))
    m[1] = m[1]:clone()
    m:append(m:clone())
    assert.are.equal(4, #m:parameters())
  end)

  it("copies parameters as leaves while gradients are recorded, and what is frozen stays frozen", function()
    local before = heed.set_grad_enabled(true)
    local layer = nn.TransformerEncoderLayer(4, 2, 6, 0)
    layer.linear1.weight:requires_grad_(false)
    local m = nn.TransformerEncoder(layer, 2)
    m(heed.randn(3, 1, 4)):sum():backward()
    heed.set_grad_enabled(before)
    for name, parameter in m:named_parameters() do
      local learns = not name:find "linear1.weight"
      assert.is_true(parameter.is_leaf, name)
      assert.are.equal(learns, parameter.requires_grad, name)
      assert.are.equal(learns, parameter.grad ~= nil, name)
    end
  end)

  it("refuses anything that is not a module", function()
    raises("clone: self is nil; it must be a module; call the method with a colon", function()
      local m = nn.Linear(2, 2)
      m.clone()
    end)
    fails("clone: self is the number 3; it must be a module; call the method with a colon", nn.ReLU().clone, 3)
  end)
end)

describe("m:clone() of parameters", function()
  local Own = nn.Module.class "OwnWithFrozen"
  function Own:init()
    self.w = nn.Parameter(heed.ones(2))
    self.frozen = nn.Parameter(heed.ones(2), false)
    self.part = nn.Linear(2, 2)
    self.part.weight:requires_grad_(false)
    self.list = { heed.ones(2, { requires_grad = true }) }
  end

  for _, recording in ipairs { false, true } do
    it("gives leaves with the same requires_grad, with recording " .. (recording and "on" or "off"), function()
      local before = heed.set_grad_enabled(recording)
      local m = Own()
      m.w.grad = heed.ones(2)
      local copy, flags = m:clone(), {}
      heed.set_grad_enabled(before)
      for name, p in copy:named_parameters() do
        assert.is_true(p.is_leaf, name)
        assert.is_nil(p.grad, name)
        flags[#flags + 1] = ("%s %s"):format(name, tostring(p.requires_grad))
      end
      assert.are.same({ "w true", "frozen false", "part.weight false", "part.bias true" }, flags)
      assert.is_true(copy.list[1].requires_grad and copy.list[1].is_leaf)
    end)
  end

  it("lets stacks of layers be made and trained with recording on", function()
    local before = heed.set_grad_enabled(true)
    local m = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    local optimizer = heed.optim.SGD(m:parameters(), { lr = 0.1 })
    local weight = m.layers[2].linear1.weight:to_string()
    m(heed.randn(3, 2, 8)):pow(2):sum():backward()
    optimizer:step()
    heed.set_grad_enabled(before)
    assert.are_not.equal(weight, m.layers[2].linear1.weight:to_string())
  end)
end)
