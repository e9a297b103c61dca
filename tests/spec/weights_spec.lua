-- Assigning weights: of another shape, and shared between modules; lists of modules; the second argument of a call.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local close, int64, names_of = tensors.close, tensors.int64, tensors.names_of

before_each(function() heed.manual_seed(4) end)

describe("a weight of another shape", function()
  it("crops an embedding, as nanoGPT's crop_block_size does", function()
    local wpe = nn.Embedding(10, 4)
    local before = wpe.weight
    wpe.weight = nn.Parameter(wpe.weight[{ { 1, 6 } }])
    assert.are.equal("Embedding(6, 4)", tostring(wpe))
    assert.are.equal(6, wpe.num_embeddings)
    close(before[{ { 5, 6 } }], wpe(int64 { 5, 6 }))
    raises("Embedding: id 7 is out of range; weight has rows 1 to 6 (element [1] of ids)",
      function() wpe(int64 { 7 }) end)
    assert.are.same({ 6, 4 }, { wpe:state_dict().weight.shape[1], wpe:state_dict().weight.shape[2] })
  end)

  it("changes the sizes of a linear layer", function()
    local m, x = nn.Linear(3, 4, false), heed.randn(2, 5)
    m.weight = heed.ones(2, 5)
    assert.are.equal("Linear(in_features=5, out_features=2, bias=False)", tostring(m))
    close(x:matmul(heed.ones(5, 2)), m(x))
    local biased = nn.Linear(3, 4)
    biased.weight = heed.ones(4, 5)
    assert.are.equal("Linear(in_features=5, out_features=4, bias=True)", tostring(biased))
    m:to "bfloat16"
    m.weight = heed.ones(3, 1, { dtype = "bfloat16" })
    assert.are.equal(1, m.in_features)
  end)

  it("is refused where something else relies on the old one, and nothing has changed", function()
    local m, padded = nn.MultiHeadAttention(6, 8, 12, 0, 2), nn.Embedding(9, 3, 8)
    raises("Linear: weight is [4, 6]; it must be [8, 6], since the module is a part of a built-in one",
      function() m.W_query.weight = heed.ones(4, 6) end)
    raises("Linear: weight is [8, 5]; it must be [8, 6], since the module is a part of a built-in one",
      function() m.W_query.weight = heed.ones(8, 5) end)
    raises("Linear: weight is [5, 3]; its first size must be 4, that of bias; make a new Linear(3, 5)",
      function() nn.Linear(3, 4).weight = heed.ones(5, 3) end)
    raises("Embedding: weight is [7, 3]; its first size must be at least 8, the padding_idx",
      function() padded.weight = heed.ones(7, 3) end)
    raises("Embedding: weight is [9]; it must be [9, 3]", function() padded.weight = heed.ones(9) end)
    raises("Embedding: weight is [0, 3]; it must be [9, 3]", function() padded.weight = heed.ones(0, 3) end)
    raises("LayerNorm: weight is [4]; it must be [3]", function() nn.LayerNorm(3).weight = heed.ones(4) end)
    assert.are.equal("Embedding(9, 3, padding_idx=8)", tostring(padded))
    local linear = nn.Linear(6, 8)
    m.W_query = linear
    raises("Linear: weight is [8, 7]; it must be [8, 6], since the module is a part of a built-in one",
      function() linear.weight = heed.ones(8, 7) end)
    local quantized = nn.Linear(3, 4):to "int8"
    raises("Linear: weight is [4, 5]; it must be [4, 3]",
      function() quantized.weight = heed.zeros(4, 5, { dtype = "int8" }) end)
  end)

  it("still does not come from a state dict", function()
    for _, assign in ipairs { true, false } do
      assert.is_false(pcall(function()
        nn.Linear(3, 4):load_state_dict({ weight = heed.ones(4, 5), bias = heed.ones(4) }, { assign = assign })
      end))
    end
  end)
end)

describe("tied weights", function()
  local Tiny = nn.Module.class "Tiny"
  function Tiny:init(tie)
    self.wte = nn.Embedding(7, 4)
    self.lm_head = nn.Linear(4, 7, false)
    tie(self)
  end
  function Tiny:forward(ids) return self.lm_head(self.wte(ids)) end

  for name, tie in pairs {
    ["lm_head.weight = wte.weight"] = function(m) m.lm_head.weight = m.wte.weight end,
    ["wte.weight = lm_head.weight"] = function(m) m.wte.weight = m.lm_head.weight end,
  } do
    it("are one parameter, and two entries of the state: " .. name, function()
      local m = Tiny(tie)
      assert.are.equal("wte.weight", names_of(m:named_parameters()))
      assert.are.equal(1, #m:parameters())
      assert.are.equal("wte.weight lm_head.weight", names_of(heed.pairs(m:state_dict())))
      assert.is_true(m.lm_head.weight == m.wte.weight)
      m.wte.weight[3] = 2
      assert.are.same({ 2, 2, 2, 2 }, m.lm_head.weight[3]:tolist())
      m.lm_head.weight:zero_()
      assert.are.same({ 0, 0, 0, 0 }, m.wte.weight[3]:tolist())
      m:to "bfloat16"
      assert.is_true(m.lm_head.weight == m.wte.weight)
      assert.are.equal("wte.weight", names_of(m:named_parameters()))
    end)

    it("stay tied when a state is loaded: " .. name, function()
      local m, state = Tiny(tie), Tiny(tie):state_dict()
      m:load_state_dict(state)
      assert.is_true(m.lm_head.weight == m.wte.weight)
      close(state["wte.weight"], m.lm_head.weight)
      m:load_state_dict(state, { assign = true })
      assert.are.equal("wte.weight", names_of(m:named_parameters()))
    end)
  end

  it("have the shape of the other one, or the message says what it must be", function()
    local m = nn.Linear(4, 7)
    raises("Linear: weight is [9, 4]; its first size must be 7, that of bias; make a new Linear(4, 9)",
      function() m.weight = nn.Embedding(9, 4).weight end)
  end)
end)

describe("a list of modules", function()
  it("can be iterated over, counted and indexed", function()
    local wrapper = nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 3)
    local linear, relu = nn.Linear(2, 2), nn.ReLU()
    for _, list in ipairs { wrapper.heads, nn.Sequential(linear, relu, linear), nn.ModuleList { relu, relu, relu } } do
      local count = 0
      for i, part in list:iter() do
        count = count + 1
        assert.are.equal(count, i)
        assert.is_true(rawequal(list[i], part))
      end
      assert.are.equal(3, count)
      assert.are.equal(3, #list)
    end
    for _ in nn.ModuleList():iter() do error "it is empty" end
    raises("iter: self is a module (Linear); it must be a list of modules", function() linear:iter() end)
  end)
end)

describe("assigning several modules in one statement", function()
  it("registers them in the order in which Lua assigns, which PUC Lua does from the right", function()
    local Both, Each = nn.Module.class "Both", nn.Module.class "Each"
    function Both:init() self.first, self.second = nn.Linear(1, 1), nn.Linear(1, 1) end
    function Each:init()
      self.first = nn.Linear(1, 1)
      self.second = nn.Linear(1, 1)
    end
    assert.are.equal("second first", names_of(Both():named_children()))
    assert.are.equal("first second", names_of(Each():named_children()))
    heed.manual_seed(1) -- the values are made from the left: only the order of the names differs
    local both = Both()
    heed.manual_seed(1)
    local each = Each()
    close(each.first.weight, both.first.weight)
    both:load_state_dict(each:state_dict())
    close(each.second.weight, both.second.weight)
  end)
end)

describe("a second argument", function()
  local x, y = heed.randn(2, 5, 6), heed.randn(2, 3, 6)
  local m = nn.MultiHeadAttention(6, 6, 12, 0, 2)

  it("that is a tensor is refused, and the message names the option", function()
    local what = ": the second argument is a tensor of shape [2, 3, 6] and dtype float32; "
    local named = "it must be a table of options: {key = y} to attend to other tokens, {attn_mask = y} for a mask"
    raises("MultiHeadAttention" .. what .. named, function() m(x, y) end)
    raises("MultiHeadAttention" .. what .. named, function() m:forward(x, y) end)
    raises("steps" .. what .. named, function() m:steps(x, y) end)
    for _, one in ipairs { nn.SelfAttention(6, 4), nn.CausalAttention(6, 4, 5, 0) } do
      raises(one:class_name() .. what .. "it must be a table of options, such as {attn_mask = y}",
        function() one(x, y) end)
    end
    for _, one in ipairs { nn.Linear(6, 4), nn.LayerNorm(6), nn.Dropout(), nn.ReLU() } do
      raises(one:class_name() .. what .. "there must be only one tensor, the input x", function() one(x, y) end)
    end
    m.W_query = nn.Sequential(m.W_query)
    raises("MultiHeadAttention" .. what .. named, function() m(x, y) end)
  end)

  it("that is the second result of need_weights is refused with what to type", function()
    local rest = ": the last argument is the second result of a call with need_weights; put parentheses around that "
      .. "call, which then has one result: (m(x, {need_weights = true}))"
    local wanted = { need_weights = true }
    raises("relu" .. rest, function() heed.relu(m(x, wanted)) end)
    raises("softmax" .. rest, function() heed.softmax(m(x, wanted)) end)
    raises("matmul" .. rest, function() heed.matmul(x, m(x, wanted)) end)
    raises("LayerNorm" .. rest, function() nn.LayerNorm(6)(m(x, wanted)) end)
    raises("MultiHeadAttention" .. rest, function() m(m(x, wanted)) end)
    raises("Tanh" .. rest, function() nn.Tanh()(m(x, wanted)) end)
    raises("Sequential" .. rest, function() nn.Sequential(nn.Linear(6, 4))(m(x, wanted)) end)
    raises("exp" .. rest, function() heed.exp(heed.scaled_dot_product_attention(x, x, x, wanted)) end)
    assert.are.equal("heed.Size([2, 5, 6])", tostring(heed.relu((m(x, wanted))).shape))
    raises("relu: 2 arguments were given; it takes at most 1", function() heed.relu(x, { weights = 1 }) end)
  end)
end)
