-- heed.set_matmul_precision: names, what it changes, the errors, slices and gradients.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"

-- What kernels multiply by narrow instructions: int8 weights, bfloat16 ones, attention.
local narrow = {
  avx2 = "int8", avx2_vnni = "int8", avx512_vnni = "int8", avx512_bf16 = "int8 bfloat16 attention",
  amx = "int8 bfloat16 attention", neon_dotprod = "int8", neon_bf16 = "int8 bfloat16",
}

-- Whether the kernels in use do that to `what`.
local function has(what)
  local before = heed.get_matmul_precision()
  heed.set_matmul_precision "medium"
  local found = narrow[heed.info().kernels] or ""
  heed.set_matmul_precision(before)
  return found:find(what, 1, true) ~= nil
end

-- The root of the mean square of got - wanted, divided by that of wanted.
local function error_of(got, wanted)
  return ((got - wanted):square():mean() / wanted:square():mean()):sqrt():item()
end

describe("heed.set_matmul_precision", function()
  local x, layer
  before_each(function()
    heed.manual_seed(1)
    x, layer = heed.randn(40, 200), nn.Linear(200, 130)
  end)
  after_each(function() heed.set_matmul_precision "highest" end)

  it("is initially highest, and sets the result of get_matmul_precision", function()
    assert.equal("highest", heed.get_matmul_precision())
    for _, name in ipairs { "high", "medium", "highest" } do
      heed.set_matmul_precision(name)
      assert.equal(name, heed.get_matmul_precision())
    end
  end)

  it("refuses other names, and keeps the last one", function()
    heed.set_matmul_precision "high"
    local needed = "; it must be 'highest', 'high' or 'medium'"
    raises("set_matmul_precision: precision is a string ('low')" .. needed, function()
      heed.set_matmul_precision "low"
    end)
    raises("set_matmul_precision: precision is nil" .. needed, function() heed.set_matmul_precision() end)
    raises("set_matmul_precision: precision is the number 1" .. needed, function() heed.set_matmul_precision(1) end)
    raises("set_matmul_precision: 2 arguments were given; it takes at most 1", function()
      heed.set_matmul_precision("high", "medium")
    end)
    assert.equal("high", heed.get_matmul_precision())
  end)

  -- Bounds of the relative errors: bfloat16 keeps 8 bits, int8 about 7 of a block's largest element.
  for dtype, most in pairs { float32 = 3e-3, bfloat16 = 2e-3, float16 = 3e-3, int8 = 7e-3 } do
    it("changes products of " .. dtype .. " weights by less than their rounding", function()
      layer:to(dtype)
      local exact = layer(x)
      for _, name in ipairs { "high", "medium" } do
        heed.set_matmul_precision(name)
        local got = layer(x)
        local stored = dtype == "bfloat16" or dtype == "int8"
        local changes = (stored or name == "medium") and has(dtype == "int8" and "int8" or "bfloat16")
        assert.is_true(error_of(got, exact) <= (changes and most or 0), name)
        assert.equal(not changes, heed.equal(got, exact), name)
      end
      heed.set_matmul_precision "highest"
      assert.is_true(heed.equal(exact, layer(x)))
    end)
  end

  it("leaves products of fewer than 8 rows with float weights as they are", function()
    for _, dtype in ipairs { "float32", "bfloat16", "float16" } do
      layer:to(dtype)
      local few = x:narrow(1, 1, 7)
      local exact = layer(few)
      heed.set_matmul_precision "medium"
      assert.is_true(heed.equal(exact, layer(few)))
      heed.set_matmul_precision "highest"
    end
  end)

  for _, dtype in ipairs { "int8", "q8_0", "q4_k" } do
    it("changes products of one to seven rows of " .. dtype .. " weights by less than rounding x to 8 bits", function()
      local wide = nn.Linear(256, 130)
      wide:to(dtype)
      for rows = 1, 7 do
        local few = heed.randn(rows, 256)
        local exact = wide(few)
        heed.set_matmul_precision "high"
        local got = wide(few)
        assert.is_true(error_of(got, exact) <= (has "int8" and 9e-3 or 0))
        heed.set_matmul_precision "high"
        for i = 1, rows do assert.is_true(heed.equal(got[i], wide(few[i]))) end
        heed.set_matmul_precision "highest"
      end
    end)
  end

  it("gives the same bits with every number of threads", function()
    for _, dtype in ipairs { "int8", "bfloat16" } do
      layer:to(dtype)
      heed.set_matmul_precision "medium"
      local one = layer(x)
      heed.set_num_threads(3)
      local three = layer(x)
      heed.set_num_threads(1)
      assert.is_true(heed.equal(one, three))
      layer:float()
    end
  end)

  it("multiplies matrices in bfloat16 with medium, whichever way they are stored", function()
    local a, b = heed.randn(3, 70, 256), heed.randn(256, 140)
    local ways = {
      rows = { a, b }, columns = { a, b:t():contiguous():t() }, transposed = { a.mT:contiguous().mT, b },
      strided = { a, heed.randn(256, 280):narrow(2, 1, 280):view(256, 140, 2):select(3, 1) },
      repeated = { a, heed.randn(140):expand(256, 140) }, batched = { a, heed.randn(3, 256, 140) },
    }
    for name, way in pairs(ways) do
      local exact = heed.matmul(way[1], way[2])
      heed.set_matmul_precision "high"
      assert.is_true(heed.equal(exact, heed.matmul(way[1], way[2])), name)
      heed.set_matmul_precision "medium"
      local got = heed.matmul(way[1], way[2])
      assert.is_true(error_of(got, exact) <= (has "bfloat16" and 3e-3 or 0), name)
      assert.equal(not has "bfloat16", heed.equal(got, exact), name)
      heed.set_num_threads(3)
      assert.is_true(heed.equal(got, heed.matmul(way[1], way[2])), name)
      heed.set_num_threads(1)
      heed.set_matmul_precision "highest"
    end
  end)

  it("leaves small products, vectors and integers as they are", function()
    local a, b = heed.randn(100, 100), heed.randn(100, 100)
    local whole = heed.arange(0, 40000):view(200, 200)
    local function products()
      return { heed.matmul(a, b), heed.matmul(a, b[1]), heed.dot(a[1], b[1]), heed.matmul(whole, whole) }
    end
    local exact = products()
    heed.set_matmul_precision "medium"
    for i, got in ipairs(products()) do assert.is_true(heed.equal(exact[i], got)) end
  end)

  it("computes gradients as matmul does: with high in float32", function()
    heed.set_grad_enabled(true)
    local wide, input = nn.Linear(256, 128), heed.randn(80, 256)
    local function gradient()
      local leaf = input:clone():requires_grad_()
      wide(leaf):square():sum():backward()
      return leaf.grad
    end
    local wanted = gradient()
    heed.set_matmul_precision "high"
    assert.is_true(heed.equal(wanted, gradient()))
    heed.set_matmul_precision "medium"
    local got = gradient()
    assert.is_true(error_of(got, wanted) <= (has "bfloat16" and 5e-3 or 0))
    assert.equal(not has "bfloat16", heed.equal(wanted, got))
    heed.set_grad_enabled(false)
  end)

  -- Each weight of a key is rounded to 8 bits; float32 operands, too.
  it("attends in bfloat16: keys and values stored in bfloat16 or int8, with medium all", function()
    local q, k, v = heed.randn(1, 4, 70, 40), heed.randn(1, 2, 90, 40), heed.randn(1, 2, 90, 24)
    for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
      local options = { is_causal = true }
      local exact = heed.scaled_dot_product_attention(q, k:to(dtype), v:to(dtype), options)
      for _, name in ipairs { "high", "medium" } do
        heed.set_matmul_precision(name)
        local got = heed.scaled_dot_product_attention(q, k:to(dtype), v:to(dtype), options)
        local changes = has "attention" and (dtype == "bfloat16" or name == "medium")
        heed.set_matmul_precision "highest"
        assert.is_true(error_of(got, exact) <= (changes and 5e-3 or 0), dtype .. " " .. name)
        assert.equal(not changes, heed.equal(got, exact), dtype .. " " .. name)
      end
    end
  end)

  it("attends with caches in bfloat16 and int8 in these types, whole and in slices", function()
    local mha = nn.MultiHeadAttention(32, 32, 64, 0, 2)
    local tokens = heed.randn(1, 64, 32)
    for _, dtype in ipairs { "bfloat16", "int8" } do
      local function prefill(name)
        local cache = mha:new_cache { capacity = 64, dtype = dtype }
        mha(tokens:narrow(2, 1, 24), { cache = cache })
        heed.set_matmul_precision(name)
        local out = mha(tokens:narrow(2, 25, 40), { cache = cache })
        heed.set_matmul_precision "highest"
        return out
      end
      local exact, got = prefill "highest", prefill "high"
      assert.is_true(error_of(got, exact) <= (has "attention" and 5e-3 or 0), dtype)
      assert.equal(not has "attention", heed.equal(got, exact), dtype)
    end
    heed.set_matmul_precision "medium"
    local wanted, steps = mha(tokens), mha:steps(tokens, { ms = 0 })
    for _ in steps do end
    assert.is_true(heed.equal(wanted, steps.result))
  end)

  it("makes a row with nan or inf nan with int8 weights, and no other", function()
    if not has "int8" then return end
    layer:to "int8"
    x[3][5], x[7][200] = 0 / 0, math.huge
    heed.set_matmul_precision "high"
    local y = layer(x)
    for i = 1, 40 do assert.equal(i == 3 or i == 7, y[i]:isnan():all():item()) end
  end)
end)
