-- What a build with HEED_MINIMAL says of what it lacks. Run by scripts/dev/run_amalgamation_tests.sh.
local heed = require "heed"
local raises = require "tests.raises"
local nn = heed.nn

local WITHOUT = "; this build of heed, with HEED_MINIMAL, is without training, models and tokenizers"

describe("a minimal build", function()
  it("names the option where a function or class is left out", function()
    for _, name in ipairs { "optim", "models", "tokenizers", "autograd", "utils" } do
      raises(("heed has no function or field '%s'"):format(name) .. WITHOUT, function() return heed[name] end)
    end
    raises("heed.nn has no function or field 'MSELoss'" .. WITHOUT, function() return nn.MSELoss() end)
    raises("heed.nn.functional has no function or field 'cross_entropy'" .. WITHOUT,
      function() return nn.functional.cross_entropy end)
    raises("Tensor has no field or method 'backward'" .. WITHOUT, function() return heed.ones(2):backward() end)
  end)

  it("names the option where a file is required that is left out", function()
    for _, name in ipairs { "heed.plot", "heed.interpret", "heed.optim", "heed.models.llama" } do
      local _, message = pcall(require, name)
      assert.are.equal(name .. ": this build of heed is without it; it must be compiled without HEED_MINIMAL", message)
    end
  end)

  it("has no gradients, and says so where they are asked for", function()
    local without = "this build of heed has no gradients; it must be compiled without HEED_MINIMAL"
    local x = heed.ones(2, 2)
    raises("requires_grad_: " .. without, function() x:requires_grad_() end)
    assert.is_false(heed.is_grad_enabled())
    assert.is_false(x:detach().requires_grad)
    assert.is_nil(x.grad)
    assert.are.equal(4, heed.no_grad(function() return x:sum():item() end))
  end)

  it("runs modules whose parameters were made in Lua", function()
    local own = nn.Module.class "Own"
    function own:init() self.weight = nn.Parameter(heed.ones(3)) end
    function own:forward(x) return x * self.weight end
    assert.are.same({ 2, 2, 2 }, own()(heed.full({ 3 }, 2)):tolist())
    assert.are.equal(1, #own():parameters())
  end)

  it("lists what it has", function()
    local names = {}
    for name in heed.pairs(heed) do names[name] = true end
    assert.is_true(names.nn and names.scaled_dot_product_attention and not names.optim)
    for name in heed.pairs(nn) do names[name] = true end
    assert.is_true(names.MultiHeadAttention and names.Transformer and not names.CrossEntropyLoss)
  end)

  it("keeps to the dtypes and formats that it has", function()
    raises("to: dtype is a string ('q8_0'); it must be 'bool', 'int64', 'float32', 'bfloat16', 'float16' or 'int8'",
      function() return heed.ones(32):to "q8_0" end)
    raises("save: path is 'model.gguf'; it must end in .safetensors or .npz to hold tensors by name",
      function() heed.save("model.gguf", { x = heed.ones(1) }) end)
  end)

  it("computes in float32 where fewer bits are allowed", function()
    local m, x = nn.Linear(64, 64), heed.randn(64, 64)
    local exact = m(x)
    finally(function() heed.set_matmul_precision "highest" end)
    heed.set_matmul_precision "medium"
    assert.is_true(heed.equal(exact, m(x)))
  end)
end)
