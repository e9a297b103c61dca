-- Embedding, LayerNorm, RMSNorm, GELU, SiLU and ReLU, compared with PyTorch (scripts/dev/make_layer_values.py).
local heed = require "heed"
local raises = require "tests.raises"
local nn = heed.nn

local tensors = require "tests.tensors"
local golden, close, int64 = tensors.golden, tensors.close, tensors.int64

describe("a module of PyTorch", function()
  for i, case in ipairs(dofile "tests/golden/layers.lua") do
    describe(("%s, case %d,"):format(case.class, i), function()
      heed.manual_seed(case.seed)
      local m = nn[case.class](case.arguments)

      it("prints the same text", function() assert.are.equal(case.text, tostring(m)) end)

      it("starts with the same parameters", function()
        local names = {}
        for name in m:named_parameters() do names[#names + 1] = name end
        assert.are.equal(#case.drawn, #names)
        for at, pair in ipairs(case.drawn) do
          assert.are.equal(pair[1], names[at])
          close(m[pair[1]], golden(pair[2]), 1e-7)
        end
      end)

      it("gives the same numbers", function()
        local state = {}
        for _, pair in ipairs(case.state or {}) do state[pair[1]] = golden(pair[2]) end
        if case.state then m:load_state_dict(state) end
        local x = golden(case.x)
        close(m(x), golden(case.y), 1e-6)
        if x.dtype == "float32" then -- the same input with gaps between its elements
          local wide = heed.zeros(x:numel(), 2)
          local gaps = wide[{ {}, 2 }]:view(x.shape)
          gaps:copy_(x)
          close(m(gaps), golden(case.y), 1e-6)
          close(m(x:transpose(1, -1):contiguous():transpose(1, -1)), golden(case.y), 1e-6)
        end
      end)
    end)
  end
end)

describe("Embedding", function()
  it("accepts its arguments by position and by name", function()
    for _, m in ipairs { nn.Embedding(5, 3, 2), nn.Embedding(5, 3, { padding_idx = 2 }),
      nn.Embedding { num_embeddings = 5, embedding_dim = 3, padding_idx = 2 }, nn.Embedding(5, 3, -4) } do
      assert.are.equal(5, m.num_embeddings)
      assert.are.equal(3, m.embedding_dim)
      assert.are.equal(2, m.padding_idx)
      assert.are.equal(0, m.weight[2]:abs():sum():item())
      assert.are_not.equal(0, m.weight[1]:abs():sum():item())
    end
    assert.is_nil(nn.Embedding(5, 3).padding_idx)
  end)

  it("draws from the generator that it is given", function()
    local first = nn.Embedding(4, 5, { generator = heed.Generator(7) })
    local second = nn.Embedding { num_embeddings = 4, embedding_dim = 5, generator = heed.Generator(7) }
    assert.is_true(first.weight:equal(second.weight))
    assert.is_true(first.weight:equal(heed.randn(4, 5, { generator = heed.Generator(7) })))
  end)

  it("draws nothing when it fails", function()
    heed.manual_seed(3)
    pcall(nn.Embedding, 4, 5, 6)
    local drawn = heed.rand(3)
    heed.manual_seed(3)
    assert.is_true(drawn:equal(heed.rand(3)))
  end)

  it("accepts ids of any shape", function()
    local m = nn.Embedding(4, 3)
    assert.is_true(m(int64 { 2, 4 })[2]:equal(m.weight[4]))
    assert.are.same({ 2, 1, 2, 3 }, { table.unpack(m(int64 { { { 1, 2 } }, { { 3, 4 } } }).shape) })
    assert.are.same({ 3 }, { table.unpack(m(int64 { 1, 2 }:select(1, 1)).shape) })
    assert.are.same({ 0, 3 }, { table.unpack(m(heed.zeros(0, { dtype = "int64" })).shape) })
  end)

  it("supports a weight in a low-precision dtype", function()
    local m = nn.Embedding(4, 3)
    local ids, exact = int64 { 2, 4 }, m.weight:clone()
    for _, dtype in ipairs { "bfloat16", "float16" } do
      m.weight = exact:to(dtype)
      assert.are.equal(dtype, m.weight.dtype)
      assert.is_true(m(ids):equal(exact:to(dtype):float():index_select(1, ids)))
    end
    raises("Embedding: weight is int64; it must be float32, bfloat16 or float16",
      function() m.weight = heed.ones(4, 3, { dtype = "int64" }) end)
    raises("Embedding: weight is [3]; it must be [4, 3]", function() m.weight = heed.ones(3) end)
  end)

  it("says what it takes", function()
    raises("Embedding: num_embeddings is nil; it must be an integer", function() nn.Embedding() end)
    raises("Embedding: num_embeddings is 0; it must be at least 1", function() nn.Embedding(0, 3) end)
    raises("Embedding: embedding_dim is -1; it must be at least 1", function() nn.Embedding(3, -1) end)
    raises("Embedding: padding_idx is 0; it must be at least 1, or at most -1 (the last)",
      function() nn.Embedding(3, 3, 0) end)
    for _, place in ipairs { 4, -4 } do
      raises(("Embedding: padding_idx is %d; it must be from 1 to 3, or from -3 to -1"):format(place),
        function() nn.Embedding(3, 3, place) end)
    end
    for _, id in ipairs { 0, -1, 4 } do
      local advice = id == 0 and "; ids count from 1, as arange(1, n + 1) does" or ""
      raises(("Embedding: id %d is out of range; weight has rows 1 to 3 (element [2] of ids)%s"):format(id, advice),
        function() nn.Embedding(3, 3)(int64 { 1, id }) end)
    end
    raises("Embedding: ids is bool; it must be int64, or float32 with whole values",
      function() nn.Embedding(3, 3)(heed.ones(2):bool()) end)
    raises("Embedding: attn_mask is given; only attention modules take it",
      function() nn.Embedding(3, 3)(int64 { 1 }, { attn_mask = heed.ones(1) }) end)
  end)
end)

describe("a normalization layer", function()
  it("has PyTorch's fields", function()
    local m = nn.LayerNorm({ 2, 3 }, 0.5)
    assert.are.equal("heed.Size([2, 3])", tostring(m.normalized_shape))
    assert.are.equal(0.5, m.eps)
    assert.is_true(m.elementwise_affine)
    assert.are.equal(1e-5, nn.LayerNorm(3).eps)
    assert.is_nil(nn.RMSNorm(3).eps)
    assert.are.equal(0.25, nn.RMSNorm(3, 0.25).eps)
    for _, plain in ipairs { nn.LayerNorm(3, { elementwise_affine = false }), nn.RMSNorm(3, nil, false) } do
      assert.is_nil(plain.weight)
      assert.is_false(plain.elementwise_affine)
      assert.are.equal(0, #plain:parameters())
    end
    assert.is_nil(nn.LayerNorm(3, { bias = false }).bias)
    assert.is_nil(nn.LayerNorm(3, { elementwise_affine = false }).bias)
    raises("RMSNorm has no field 'bias'; it has weight, normalized_shape, eps, elementwise_affine, training",
      function() return nn.RMSNorm(3).bias end)
  end)

  it("accepts only float32 parameters of its shape", function()
    local m = nn.LayerNorm { normalized_shape = { 2, 3 } }
    m.weight = heed.ones(2, 3) * 2
    assert.are.equal(2, m.weight[1][1])
    raises("LayerNorm: weight is [6]; it must be [2, 3]", function() m.weight = heed.ones(6) end)
    local ok = pcall(function() m.weight = heed.ones(2, 3):to "bfloat16" end)
    assert.is_false(ok)
    assert.are.equal(2, m.weight[1][1])
  end)

  it("rejects inputs of other sizes and dtypes", function()
    raises("LayerNorm: x is [2, 3]; its last sizes must be [4], the normalized_shape",
      function() nn.LayerNorm(4)(heed.ones(2, 3)) end)
    raises("RMSNorm: x is [4]; its last sizes must be [3, 4], the normalized_shape",
      function() nn.RMSNorm { 3, 4 }(heed.ones(4)) end)
    raises("RMSNorm: x is int64; it must be float32: convert with x:float()",
      function() nn.RMSNorm(4)(heed.ones(4, { dtype = "int64" })) end)
  end)

  it("accepts tensors without elements", function()
    assert.are.same({ 0, 3, 4 }, { table.unpack(nn.LayerNorm { 3, 4 }(heed.zeros(0, 3, 4)).shape) })
    assert.are.same({ 0, 4 }, { table.unpack(nn.RMSNorm(4)(heed.zeros(0, 4)).shape) })
  end)

  it("names wrong arguments of its constructor", function()
    raises("LayerNorm: normalized_shape is nil; it must be an integer or a table of sizes",
      function() nn.LayerNorm() end)
    raises("RMSNorm: normalized_shape is a string ('3'); it must be an integer or a table of sizes",
      function() nn.RMSNorm "3" end)
    raises("LayerNorm: normalized_shape is [2, 0]; its sizes must be at least 1", function() nn.LayerNorm { 2, 0 } end)
    raises("LayerNorm: normalized_shape is [-1]; its sizes must be at least 1", function() nn.LayerNorm(-1) end)
    raises("LayerNorm: a tensor has at most 16 dimensions",
      function() nn.LayerNorm(heed.ones(17):long():tolist()) end)
    raises("LayerNorm: eps is -1.0; it must be 0 or more", function() nn.LayerNorm(3, -1) end)
    raises("RMSNorm: eps is -1.0; it must be 0 or more", function() nn.RMSNorm(3, -1) end)
    raises("RMSNorm: eps is inf; it must be finite", function() nn.RMSNorm(3, math.huge) end)
    raises("LayerNorm: elementwise_affine is the number 1; it must be a boolean",
      function() nn.LayerNorm(3, 1e-5, 1) end)
  end)
end)

describe("an activation", function()
  it("says what it takes", function()
    raises("GELU: approximate is a string ('erf'); it must be 'none' or 'tanh'", function() nn.GELU "erf" end)
    raises("SiLU: 1 argument was given; it takes at most 0", function() nn.SiLU(true) end)
    raises("ReLU has no field 'weight'; it has training", function() return nn.ReLU().weight end)
    assert.are.equal(0, #nn.GELU():state_dict())
  end)

  it("gives nan for nan", function()
    local x = heed.tensor { 0 / 0, 1 }
    for _, m in ipairs { nn.GELU(), nn.GELU "tanh", nn.SiLU(), nn.ReLU() } do
      assert.is_true(m(x):isnan()[1])
    end
  end)
end)

describe("small modules in larger ones", function()
  it("are listed, trained, saved and printed", function()
    local Block = nn.Module.class "Block"
    function Block:init(d)
      self.embed = nn.Embedding(9, d, 1)
      self.layers = nn.ModuleList { nn.Residual(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU "tanh")) }
      self.norm = nn.RMSNorm(d, 1e-6)
    end
    function Block:forward(ids)
      local x = self.embed(ids)
      for _, layer in heed.ipairs(self.layers) do x = layer(x) end
      return self.norm(x)
    end
    local m, twin = Block(4), Block(4)
    assert.are.equal([[
Block(
  (embed): Embedding(9, 4, padding_idx=1)
  (layers): ModuleList(
    (0): Residual(
      (module): Sequential(
        (0): LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)
        (1): Linear(in_features=4, out_features=4, bias=True)
        (2): GELU(approximate='tanh')
      )
    )
  )
  (norm): RMSNorm((4,), eps=1e-06, elementwise_affine=True)
)]], tostring(m))
    local ids = int64 { { 3, 9 } }
    twin:load_state_dict(m:state_dict())
    assert.is_true(twin(ids):equal(m(ids)))
    m:eval()
    assert.is_false(m.layers[1].module[1].training)
    local names = {}
    for name in m:named_parameters() do names[#names + 1] = name end
    assert.are.equal("embed.weight layers.0.module.0.weight layers.0.module.0.bias layers.0.module.1.weight "
      .. "layers.0.module.1.bias norm.weight", table.concat(names, " "))
  end)
end)

describe("Residual", function()
  it("adds its input to the output of its module", function()
    local linear, x = nn.Linear(3, 3), heed.randn(2, 3)
    assert.is_true(nn.Residual(linear)(x):equal(x + linear(x)))
  end)

  it("passes on options and further results", function()
    local m, x = nn.SelfAttention(3, 3), heed.randn(4, 3)
    local y, info = nn.Residual(m)(x, { need_weights = true })
    assert.is_true(y:equal(x + m(x)))
    assert.are.same({ 4, 4 }, { table.unpack(info.weights.shape) })
  end)

  it("accepts modules only", function()
    raises("Residual: module is nil; it must be a module", function() nn.Residual() end)
    raises("Residual: x is a table; it must be a tensor", function() nn.Residual(nn.ReLU())({}) end)
    raises("Residual: module is a tensor of shape [1] and dtype float32; it must be a module",
      function() nn.Residual(heed.ones(1)) end)
  end)
end)
