-- Threads: setting their number, and that results do not depend on it.
local heed = require "heed"
local support = require "tests.support"
local nn = heed.nn
local raises = require "tests.raises"

describe("heed.set_num_threads", function()
  after_each(function() heed.set_num_threads(1) end)

  it("is initially 1", function() assert.equal(1, heed.get_num_threads()) end)

  it("sets the result of get_num_threads", function()
    for _, n in ipairs { 2, 8, 1, 3.0, 1024 } do
      heed.set_num_threads(n)
      assert.equal(n, heed.get_num_threads())
      support.number_is("integer", heed.get_num_threads())
      assert.equal(n, heed.info().threads)
    end
  end)

  it("rejects other numbers, and keeps the last one", function()
    heed.set_num_threads(3)
    for _, n in ipairs { 0, -1, 1025, 1000000000, math.mininteger, math.maxinteger } do
      raises(("set_num_threads: n is %d; it must be from 1 to 1024"):format(n), function() heed.set_num_threads(n) end)
    end
    raises("set_num_threads: n is the number 1.5; it must be an integer", function() heed.set_num_threads(1.5) end)
    raises("set_num_threads: n is a string ('2'); it must be an integer", function() heed.set_num_threads("2") end)
    raises("set_num_threads: n is nil; it must be an integer", function() heed.set_num_threads() end)
    raises("set_num_threads: 2 arguments were given; it takes at most 1", function() heed.set_num_threads(1, 2) end)
    assert.equal(3, heed.get_num_threads())
  end)
end)

describe("results", function()
  after_each(function() heed.set_num_threads(1) end)

  -- Calls f, which returns one or more tensors, with several numbers of threads: the results must be bit-identical.
  local function same_bits(f)
    local wanted
    for _, n in ipairs { 1, 2, 3, 8 } do
      heed.set_num_threads(n)
      heed.manual_seed(5)
      local got = { f() }
      for i, x in ipairs(got) do got[i] = x:contiguous():to_string() end
      wanted = wanted or got
      assert.equal(#wanted, #got)
      for i in ipairs(got) do assert.is_true(wanted[i] == got[i], ("result %d with %d threads"):format(i, n)) end
    end
  end

  heed.manual_seed(1)
  local attention = heed.scaled_dot_product_attention
  local q, k, v = heed.randn(2, 4, 200, 32), heed.randn(2, 2, 210, 32), heed.randn(2, 2, 210, 24)
  -- Large enough for several threads, and with sizes that are not multiples of any block size.
  local large = heed.randn(701, 607)
  local cube = heed.randn(37, 129, 91)

  it("of attention do not depend on the number of threads", function()
    same_bits(function() return attention(q, k, v) end)
    same_bits(function() return attention(q, k, v, { is_causal = true }) end)
    local mask = heed.rand(200, 210):gt(0.3)
    same_bits(function() return attention(q, k, v, { attn_mask = mask }) end)
    same_bits(function() return attention(q, k, v, { attn_mask = heed.randn(4, 200, 210) }) end)
    same_bits(function() return attention(q, k, v, { dropout_p = 0.3 }) end)
  end)

  it("of attention with few queries and many keys do not depend on it", function()
    local keys, values = heed.randn(2, 5000, 32), heed.randn(2, 5000, 32)
    for _, queries in ipairs { 1, 3 } do
      local few = heed.randn(4, queries, 32)
      same_bits(function() return attention(few, keys, values) end)
    end
  end)

  it("of products do not depend on it", function()
    for _, sizes in ipairs { { 300, 200, 250 }, { 1, 700, 900 }, { 900, 700, 1 }, { 5, 1100, 40 }, { 1500, 30, 7 } } do
      local m, n, inner = table.unpack(sizes)
      local a, b, bias = heed.randn(m, inner), heed.randn(inner, n), heed.randn(n)
      same_bits(function() return a:matmul(b), b:t():matmul(a:t()), a:linear(b:t(), bias) end)
    end
    local a, b = heed.randn(30, 40, 50), heed.randn(30, 50, 20)
    same_bits(function() return a:matmul(b) end)
  end)

  it("of functions along rows do not depend on it", function()
    local weight, bias = heed.randn(607), heed.randn(607)
    same_bits(function()
      return large:softmax(-1), large:softmax(1), large:log_softmax(-1), large:layer_norm(weight, bias),
        large:rms_norm(weight)
    end)
    same_bits(function() return cube:softmax(2), large:t():softmax(-1), large:cumsum(1), large:cumsum(2) end)
  end)

  it("of elementwise functions do not depend on it", function()
    local row, column = heed.randn(607), heed.randn(701, 1)
    same_bits(function()
      return large:exp(), large:gelu(), large:silu(), large:tanh(), large:t():sigmoid(), large:lt(0), large * 2, -large
    end)
    same_bits(function() return large + row, large * column, row - column, large:t() / row:unsqueeze(2), cube ^ 2 end)
    same_bits(function() return cube:transpose(1, 3):contiguous(), cube:long(), cube:gt(0):float() end)
    same_bits(function() return large:clone():mul_(3), large:masked_fill(large:gt(0), 1) end)
  end)

  it("of reductions do not depend on it", function()
    same_bits(function() return large:sum(), large:sum(1), large:sum(2), large:mean(1), large:var(2), large:std(1) end)
    same_bits(function() return cube:sum { dim = { 1, 3 } }, cube:sum(2), cube:mean { dim = { 2, 3 } } end)
    same_bits(function()
      local most, indices = large:max(1)
      return most, indices, large:argmin(2), large:max(), cube:any(2), cube:all(3)
    end)
  end)

  it("of modules do not depend on it", function()
    heed.manual_seed(2)
    local m = nn.MultiHeadAttention(64, 96, 150, 0.25, 4)
    local x = heed.randn(3, 150, 64)
    same_bits(function() return m(x) end)
    m:eval()
    same_bits(function()
      local y, info = m(x, { need_weights = true })
      return y, info.weights
    end)
  end)
end)

describe("heed.clock", function()
  it("is monotonic and counts seconds", function()
    local before = heed.clock()
    for _ = 1, 1000 do
      local now = heed.clock()
      assert.is_true(now >= before)
      before = now
    end
    local cpu, start = os.clock(), heed.clock()
    while os.clock() - cpu < 0.02 do end -- CPU time of all threads, including BLAS's
    local passed = heed.clock() - start
    assert.is_true(passed > 1e-4 and passed < 10, passed .. " s")
  end)
end)

describe("heed.info", function()
  it("describes the build and the resources in use", function()
    local info = heed.info()
    assert.equal(heed.version, info.version)
    assert.truthy(info.processor:find "%S")
    assert.truthy(info.kernels:find "^[%l%d_]+$")
    assert.equal(os.getenv "HEED_CPU" or info.kernels, info.kernels)
    assert.truthy(info.blas:find "%S")
    assert.equal("string", type(info.blas_core))
    assert.equal(1, info.threads)
  end)

  it("counts the memory of tensors", function()
    collectgarbage() -- garbage of other specs must not be freed while this one measures
    local before = heed.info().memory_in_use
    local x = heed.zeros(2 ^ 20)
    local info = heed.info()
    assert.is_true(info.memory_in_use >= before + (2 ^ 22) and info.memory_peak >= info.memory_in_use)
    x:release()
    assert.is_true(heed.info().memory_in_use < info.memory_in_use)
    assert.is_true(heed.info().memory_peak >= info.memory_peak)
  end)

  it("prints as a list", function()
    local info = heed.info()
    info.memory_in_use, info.memory_peak, info.processor = 0, 5 * 2 ^ 19, nil
    local names = {}
    for line in tostring(info):gmatch "[^\n]+" do
      local name, value = line:match "^([%w_]+) +(.*)$"
      names[#names + 1] = name
      if name == "version" then assert.equal(heed.version, value) end
      if name == "threads" then assert.equal("1", value) end
      if name == "memory_in_use" then assert.equal("0.0 MiB", value) end
      if name == "memory_peak" then assert.equal("2.5 MiB", value) end
      if name == "processor" then assert.equal("nil", value) end
    end
    assert.same({
      "version", "processor", "kernels", "blas", "blas_core", "threads", "memory_in_use", "memory_peak",
      "memory_kept",
    }, names)
  end)

  it("accepts no arguments", function()
    raises("info: 1 argument was given; it takes at most 0", function() heed.info(1) end)
  end)
end)
