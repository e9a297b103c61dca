-- m:to(dtype): low-precision weights in modules of all kinds.
local heed = require "heed"
local nn = heed.nn
local raises = dofile "tests/raises.lua"

local SMALL = { "bfloat16", "float16", "int8" }

--- "weight bfloat16, bias float32", …
local function dtypes(m)
  local list = {}
  for name, tensor in heed.pairs(m:state_dict()) do list[#list + 1] = name .. " " .. tensor.dtype end
  return table.concat(list, ", ")
end

--- All elements of a module's state as one string.
local function bytes(m)
  local list = {}
  for _, tensor in heed.pairs(m:state_dict()) do list[#list + 1] = tensor:to_string() end
  return table.concat(list)
end

local Own = nn.Module.class "Own"
function Own:init()
  self.embedding = nn.Embedding(10, 64)
  self.norm = nn.LayerNorm(64)
  self.layers = nn.ModuleList { nn.Linear(64, 64), nn.MultiHeadAttention(64, 64, 8, 0.0, 2) }
  self.head = nn.Linear(64, 10, { bias = false })
  self.scale = nn.Parameter(heed.ones(1))
end
function Own:forward(ids)
  local x = self.norm(self.embedding(ids))
  for _, layer in heed.ipairs(self.layers) do x = layer(x) end
  return self.head(x) * self.scale
end

describe("to", function()
  before_each(function() heed.manual_seed(11) end)

  it("converts the weight of a Linear, which then computes with the converted values", function()
    local x = heed.randn(3, 100)
    for _, dtype in ipairs(SMALL) do
      local m = nn.Linear(100, 7)
      local y, weight = m(x), m.weight:clone()
      assert.are.equal(m, m:to(dtype))
      assert.are.equal(dtype, m.weight.dtype)
      assert.are.equal("float32", m.bias.dtype)
      assert.are.equal("Linear(in_features=100, out_features=7, bias=True)", tostring(m))
      assert.is_true(m.weight.is_parameter)
      local wide = dtype == "int8" and heed.dequantize_int8(m.weight, m.weight_scale) or m.weight:float()
      assert.is_true(heed.allclose(m(x), heed.linear(x, wide, m.bias), 1e-5, 1e-6))
      assert.is_true(heed.allclose(m(x), y, 0.1, 0.02))
      m:to("float32")
      assert.is_nil(m.weight_scale)
      assert.is_true(heed.equal(m.weight, wide))
      assert.is_true(heed.allclose(m.weight, weight, 0, 0.1 / 127))
    end
  end)

  it("lists weight_scale after the weight, with int8 only", function()
    local m = nn.Linear(65, 2)
    assert.is_nil(m.weight_scale)
    m:to("int8")
    assert.are.equal("weight int8, weight_scale float32, bias float32", dtypes(m))
    assert.are.same({ 2, 2 }, { m.weight_scale:size(1), m.weight_scale:size(2) })
    assert.are.equal("weight float16, bias float32", dtypes(m:to("float16")))
    assert.are.equal("weight int8, weight_scale float32", dtypes(nn.Linear(3, 2, { bias = false }):to("int8")))
  end)

  it("changes nothing if the weights have the dtype already", function()
    for _, dtype in ipairs { "float32", "bfloat16", "int8" } do
      local m = nn.Linear(8, 8):to(dtype)
      local weight = m.weight
      m:to(dtype)
      assert.is_true(m.weight == weight)
    end
  end)

  it("converts all parts of a module, built in or user-defined", function()
    local m = Own()
    local ids = heed.tensor({ 1, 5, 10 }, { dtype = "int64" })
    local y = m(ids)
    m:to("bfloat16")
    assert.are.equal("embedding.weight bfloat16, norm.weight float32, norm.bias float32, layers.0.weight bfloat16, "
      .. "layers.0.bias float32, layers.1.W_query.weight bfloat16, layers.1.W_key.weight bfloat16, "
      .. "layers.1.W_value.weight bfloat16, layers.1.out_proj.weight bfloat16, layers.1.out_proj.bias float32, "
      .. "head.weight bfloat16", (dtypes(m):gsub("^scale float32, ", "")))
    assert.is_true(heed.allclose(m(ids), y, 0.1, 0.05))
    m:to { dtype = "int8" }
    assert.are.equal("bfloat16", m.embedding.weight.dtype)
    assert.are.equal("int8", m.layers[2].out_proj.weight.dtype)
    assert.are.equal("float32", m.scale.dtype)
    assert.is_true(heed.allclose(m(ids), y, 0.2, 0.1))
    m:to("float32")
    assert.is_nil(dtypes(m):find("16", 1, true))
    assert.is_nil(dtypes(m):find("int8", 1, true))
  end)

  it("does not convert embeddings to int8", function()
    local m = nn.Embedding(4, 8)
    assert.are.equal("float32", m:to("int8").weight.dtype)
    assert.are.equal("float16", m:to("float16"):to("int8").weight.dtype)
  end)

  it("supports every attention module", function()
    local x = heed.randn(2, 6, 32)
    for _, m in ipairs {
      nn.SelfAttention(32, 16), nn.CausalAttention(32, 16, 6, 0.0), nn.MultiHeadAttentionWrapper(32, 16, 6, 0.0, 2),
      nn.MultiHeadAttention(32, 32, 6, 0.0, 4),
    } do
      local y = m(x)
      for _, dtype in ipairs(SMALL) do assert.is_true(heed.allclose(m:to(dtype)(x), y, 0.1, 0.05)) end
    end
  end)

  it("keeps tied weights tied", function()
    local m = Own()
    m.head.weight = m.embedding.weight
    for _, dtype in ipairs { "bfloat16", "float16", "float32" } do
      m:to(dtype)
      assert.is_true(m.head.weight == m.embedding.weight)
    end
    local a, b = nn.Linear(8, 8), nn.Linear(8, 8)
    b.weight = a.weight
    local both = nn.Sequential(a, b, a)
    for _, dtype in ipairs { "int8", "bfloat16", "int8", "float32" } do
      both:to(dtype)
      assert.is_true(a.weight == b.weight)
      assert.is_true(a.weight_scale == b.weight_scale)
    end
  end)

  it("converts all weights or none", function()
    local m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    m[2].weight[{ 3, 2 }] = 0 / 0
    local before = bytes(m)
    raises("to: weight[{3, 2}] is nan; all elements must be finite", function() m:to("int8") end)
    assert.are.equal(before, bytes(m))
    assert.are.equal("bfloat16", m:to("bfloat16")[2].weight.dtype)
  end)

  it("names the supported dtypes", function()
    local m = nn.Linear(2, 2)
    raises("to: dtype is int64; it must be float32, bfloat16, float16, int8, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k "
      .. "or q6_k", function() m:to("int64") end)
    local known = "'float32', 'bfloat16', 'float16', 'int8', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k' or "
      .. "'q6_k'"
    raises("to: dtype is nil; it must be " .. known, function() m:to() end)
    raises("to: dtype is a string ('half'); it must be " .. known, function() m:to("half") end)
    raises("to: there is no option 'device'; the options are dtype; heed computes on the processor: leave it out",
      function() m:to { device = "cpu" } end)
    raises("to: self is a string ('int8'); it must be a module; call the method with a colon",
      function() m.to("int8") end)
    assert.are.equal("float32", m.weight.dtype)
    assert.are.equal("float32", Own():to("float32").head.weight.dtype)
    assert.are.equal(0, #nn.Sequential():to("int8"):state_dict())
  end)

  it("gives rows that are not whole blocks of 256 those of 32 that llama.cpp's tools choose", function()
    local instead = { q4_k = "q5_0", q5_k = "q5_1", q6_k = "q8_0", q8_0 = "q8_0", q4_0 = "q4_0" }
    for dtype, other in pairs(instead) do
      local m = nn.Sequential(nn.Linear(96, 4), nn.Linear(512, 4), nn.Linear(24, 4)):to(dtype)
      assert.are.same({ other, dtype, "float32" }, { m[1].weight.dtype, m[2].weight.dtype, m[3].weight.dtype })
    end
  end)

  it("refuses blocks that fit no weight", function()
    local m = nn.Sequential(nn.Linear(24, 8), nn.Embedding(5, 40))
    raises("to: dtype is q8_0; the rows of no weight are whole blocks of 32 elements: one is [5, 40]",
      function() m:to("q8_0") end)
    assert.are.equal("float32", m[1].weight.dtype)
    assert.is_truthy(nn.RMSNorm(24):to("q8_0"))
  end)

  it("frees the previous weights", function()
    local m = nn.Linear(512, 512)
    local function size()
      collectgarbage()
      collectgarbage()
      return heed.info().memory_in_use
    end
    local wide = size()
    m:to("bfloat16")
    assert.is_true(wide - size() >= 2 * 512 * 512)
    m:to("int8")
    assert.is_true(wide - size() >= 3 * 512 * 512 - 4 * 512 * 8 - 4096)
  end)
end)

describe("modules with low-precision weights", function()
  before_each(function() heed.manual_seed(12) end)

  it("accept weights of other dtypes by assignment", function()
    local m = nn.Linear(3, 2)
    for _, dtype in ipairs { "bfloat16", "float16", "float32" } do
      m.weight = heed.ones(2, 3, { dtype = dtype })
      assert.are.equal(dtype, m.weight.dtype)
    end
    raises("Linear: weight is int8; it must be float32, bfloat16 or float16",
      function() m.weight = heed.ones(2, 3, { dtype = "int8" }) end)
    raises("Linear: weight is [3, 2]; its first size must be 2, that of bias; make a new Linear(2, 3)",
      function() m.weight = heed.ones(3, 2, { dtype = "float16" }) end)
    raises("Linear: bias is float16; it must be float32: convert with bias:float()",
      function() m.bias = heed.ones(2, { dtype = "float16" }) end)
    m:to("int8")
    raises("Linear: weight is float32; it must be int8, as it has scales", function() m.weight = heed.ones(2, 3) end)
    m.weight, m.weight_scale = heed.full({ 2, 3 }, 2, { dtype = "int8" }), heed.full({ 2, 1 }, 0.5)
    m.bias:zero_()
    assert.are.same({ { 3, 3 } }, m(heed.ones(1, 3)):tolist())
  end)

  it("convert states of other dtypes like copy_", function()
    local from = nn.Linear(4, 3)
    for _, dtype in ipairs { "bfloat16", "float16" } do
      local m = nn.Linear(4, 3):to(dtype)
      m:load_state_dict(from:state_dict())
      assert.are.equal(dtype, m.weight.dtype)
      assert.is_true(heed.equal(m.weight:float(), from.weight:to(dtype):float()))
      local wide = nn.Linear(4, 3)
      wide:load_state_dict(m:state_dict())
      assert.are.equal("float32", wide.weight.dtype)
      assert.is_true(heed.equal(wide.weight, m.weight:float()))
    end
  end)

  it("load int8 states into int8 modules only", function()
    local from, m = nn.Linear(70, 3):to("int8"), nn.Linear(70, 3)
    raises([[
load_state_dict: the state does not fit Linear:
  weight is int8; it must be float32
  weight_scale is not part of the module]], function() m:load_state_dict(from:state_dict()) end)
    m:to("int8")
    m:load_state_dict(from:state_dict())
    assert.are.equal(bytes(from), bytes(m))
    raises([[
load_state_dict: the state does not fit Linear:
  weight is float32; it must be int8
  weight_scale is missing]], function() m:load_state_dict(nn.Linear(70, 3):state_dict()) end)
  end)

  it("give views of heads, except with int8", function()
    local m = nn.MultiHeadAttention(16, 16, 4, 0.0, 2)
    local x = heed.randn(4, 16)
    local wide = m:head(2).W_key:clone()
    m:to("bfloat16")
    local key = m:head(2).W_key
    assert.are.equal("bfloat16", key.dtype)
    assert.is_true(heed.equal(key:float(), wide:to("bfloat16"):float()))
    m:to("int8")
    raises("head: the weight of W_query is int8; it must be float32, bfloat16 or float16; use m:to('float32')",
      function() m:head(1) end)
    for _, dtype in ipairs(SMALL) do
      m:to(dtype)
      local split = m:split()
      assert.are.equal(dtype, split.heads[2].W_value.weight.dtype)
      local joined = heed.linear(split(x), m.out_proj.weight.dtype == "int8"
        and heed.dequantize_int8(m.out_proj.weight, m.out_proj.weight_scale) or m.out_proj.weight, m.out_proj.bias)
      assert.is_true(heed.allclose(joined, m(x), 1e-4, 1e-5))
    end
  end)
end)

describe("modules without weights", function()
  it("change their dtype without using memory, and accept weights later", function()
    local m = nn.utils.skip_init(nn.Linear, 2048, 2048, { bias = false })
    local before = heed.info().memory_in_use
    for _, dtype in ipairs { "bfloat16", "int8", "float16" } do
      m:to(dtype)
      assert.are.equal(dtype, m.weight.dtype)
    end
    collectgarbage()
    assert.is_true(heed.info().memory_in_use - before < 16384)
    m:load_state_dict { weight = heed.ones(2048, 2048) }
    assert.are.equal("float16", m.weight.dtype)
    assert.are.equal(2048, m(heed.ones(1, 2048))[{ 1, 7 }])
  end)
end)
