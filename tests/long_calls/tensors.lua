-- Long calls on tensors.
local operations = require "tests.operations"
local support = require "tests.support"
local heed = require "heed"

return function(inputs)
  local call, same, ones = inputs.call, inputs.same, inputs.ones
  local MANY, VERY_MANY = inputs.MANY, inputs.VERY_MANY
  local IN_MEMORY = 10 ^ 8 -- number of elements of a tensor that is modified in place

  -- ---- Elements ---------------------------------------------------------------------------------

  local of_one = operations.of_kinds("UNARY", "TEST")
  for _, name in ipairs { "gelu", "logical_not", "long", "bool", "clone", "contiguous", "zeros_like", "rand_like" } do
    of_one[#of_one + 1] = name
  end
  for _, name in ipairs(of_one) do
    call(name, function()
      local x = same(0.5, name == "long" and MANY / 2 or MANY)
      return function() return x[name](x) end
    end)
  end

  for _, name in ipairs {
    "add", "sub", "mul", "div", "pow", "remainder", "maximum", "minimum", "floor_divide", "fmod", "isclose", "eq", "lt",
  } do
    call(name, function()
      local x = same(0.5, MANY)
      return function() return heed[name](x, x) end
    end)
  end

  call("add of a row to each of many", function()
    local x, row = same(0.5, 128, 50000, 128), heed.rand(50000, 128)
    return function() return x + row end
  end)

  for _, name in ipairs { "exp_", "sin_", "add_", "fill_", "normal_", "uniform_" } do
    call(name, function()
      local x, other = heed.zeros(IN_MEMORY), (name == "add_" or name == "fill_") and { 1 } or {}
      return function() return x[name](x, support.unpack(other)) end
    end).seconds = 0.005
  end

  call("clamp", function()
    local x = same(0.5, MANY)
    return function() return x:clamp(0, 1) end
  end)
  for _, name in ipairs { "addcmul", "addcdiv", "lerp" } do
    call(name, function()
      local x = same(0.5, MANY)
      return function() return x[name](x, x, x) end
    end)
  end
  for _, name in ipairs { "nan_to_num", "round" } do
    call(name .. " with options", function()
      local x, options = same(0.5, MANY), name == "round" and { decimals = 2 } or { nan = 1 }
      return function() return x[name](x, options) end
    end)
  end
  call("where", function()
    local x, condition = same(0.5, MANY), same(true, MANY)
    return function() return heed.where(condition, x, x) end
  end)
  call("masked_fill", function()
    local x, mask = same(0.5, MANY), same(true, MANY)
    return function() return x:masked_fill(mask, 1) end
  end)
  call("copy_", function()
    local x = heed.zeros(IN_MEMORY)
    return function() return x:copy_(same(1, IN_MEMORY)) end
  end).seconds = 0.005
  call("to", function()
    local x = same(0.5, MANY)
    return function() return x:to "bfloat16" end
  end)
  call("tril", function()
    local x = same(0.5, 25000, 25000)
    return function() return x:tril() end
  end)

  -- ---- Sums and rows ----------------------------------------------------------------------------

  for _, name in ipairs {
    "sum", "mean", "var", "std", "max", "min", "argmax", "argmin", "any", "all", "prod", "amax", "amin",
  } do
    call(name, function()
      local x = same(name == "any" and 0 or 1, VERY_MANY)
      return function() return x[name](x) end
    end)
  end

  for _, p in ipairs { 1, 2, 3, math.huge } do
    call("norm " .. p, function()
      local x, transposed = same(0.5, VERY_MANY), same(0.5, 100000, 100000):t()
      return function() return p == 1 and transposed:norm(p, 1) or x:norm(p) end
    end)
  end
  call("logsumexp", function()
    local x = same(0.5, 500000, 1000)
    return function() return x:logsumexp(2) end
  end)
  call("count_nonzero", function()
    local x = same(0.5, MANY)
    return function() return x:count_nonzero() end
  end)
  for _, name in ipairs { "median", "quantile" } do
    call(name, function()
      local x = heed.rand(20000000)
      return function() return x[name](x, name == "quantile" and 0.5 or nil) end
    end)
  end
  call("quantile of many fractions", function()
    local x, q = heed.rand(10), heed.rand(3000000)
    return function() return x:quantile(q) end
  end)

  for _, name in ipairs { "softmax", "log_softmax", "cumsum", "cumprod", "layer_norm", "rms_norm" } do
    call(name, function()
      local x, dim = same(0.5, 500000, 1000), not name:find "norm" and -1 or nil
      return function() return x[name](x, dim) end
    end)
  end

  for _, name in ipairs { "sort", "argsort", "topk" } do
    call(name, function()
      local x = heed.rand(20000000)
      return function() return x[name](x, name == "topk" and 10000000 or nil) end
    end)
  end

  call("equal", function()
    local x = same(1, VERY_MANY)
    return function() return x:equal(x) end
  end)
  call("allclose", function()
    local x = same(1, VERY_MANY)
    return function() return x:allclose(x) end
  end)
  call("dot", function()
    local x = same(1, VERY_MANY)
    return function() return x:dot(x) end
  end)

  -- ---- Making, joining, selecting ---------------------------------------------------------------

  for name, arguments in pairs {
    zeros = { MANY }, ones = { MANY }, full = { { MANY }, 7 }, rand = { MANY }, randn = { MANY },
    randint = { 1, 10, { MANY / 2 } }, randperm = { MANY / 2 }, range = { 1, MANY / 2 }, linspace = { 0, 1, MANY },
    arange = { MANY / 2 }, eye = { 25000 }, tril_indices = { 40000, 40000 }, triu_indices = { 40000, 40000 },
    alibi_slopes = { MANY },
  } do
    call(name, function()
      return function() return heed[name](support.unpack(arguments)) end
    end)
  end
  call("tensor", function()
    local rows, row = {}, {}
    for i = 1, 1000 do row[i] = i end
    for i = 1, 100000 do rows[i] = row end
    return function() return heed.tensor(rows) end
  end)
  call("tensor of empty tables", function()
    local rows, row = {}, {}
    for i = 1, 10000 do rows[i] = row end
    local blocks = {}
    for i = 1, 10000 do blocks[i] = rows end
    return function() return heed.tensor(blocks) end
  end)
  call("tolist", function()
    local x = same(1, 50000000)
    return function() return x:tolist() end
  end)
  call("tolist of empty rows", function()
    local x = heed.zeros(50000000, 0)
    return function() return x:tolist() end
  end)
  call("to_string", function()
    local x = same(1, MANY)
    return function() return x:to_string() end
  end)
  call("from_string", function()
    local text = ("text"):rep(25000000)
    return function() return heed.from_string(text, "float32", { 25000000 }) end
  end).seconds = 0.002
  call("cat", function()
    local x = same(1, MANY / 2)
    return function() return heed.cat({ x, x }) end
  end)
  call("cat of many", function()
    local x, list = heed.ones(1), {}
    for i = 1, 8000000 do list[i] = x end
    return function() return heed.cat(list) end
  end)
  call("stack", function()
    local x = same(1, MANY / 2)
    return function() return heed.stack({ x, x }) end
  end)
  call("split", function()
    local x = same(1, 2 ^ 20)
    return function() return x:split(1) end
  end)
  call("chunk", function()
    local x = same(1, 2 ^ 20)
    return function() return x:chunk(2 ^ 20) end
  end)
  call("repeat_interleave", function()
    local x = same(1, MANY / 16)
    return function() return x:repeat_interleave(16) end
  end)
  for name, arguments in pairs {
    flip = { 1 }, roll = { 7, 1 }, tile = { 2 }, ["repeat"] = { 2 }, pad = { { 1, 1 } }, diag_embed = {},
    new_zeros = { MANY },
  } do
    call(name, function()
      local x = same(1, name == "diag_embed" and 25000 or MANY / 2)
      return function() return x[name](x, support.unpack(arguments)) end
    end)
  end
  for _, mode in ipairs { "reflect", "replicate", "circular" } do
    call("pad, " .. mode, function()
      local x = same(1, 1024, MANY / 2048)
      return function() return x:pad({ 2, 2 }, mode) end
    end)
  end
  call("unbind", function()
    local x = same(1, 2 ^ 20)
    return function() return x:unbind() end
  end)
  call("hstack of many", function()
    local list = inputs.copies(same(1, 1000), 2 ^ 20)
    return function() return heed.hstack(list) end
  end)
  call("gather", function()
    local x, index = same(1, MANY), ones(MANY)
    return function() return x:gather(1, index) end
  end)
  call("index_select", function()
    local x, index = same(1, 1000), ones(MANY)
    return function() return x:index_select(1, index) end
  end)
  call("masked_select", function()
    local x, mask = same(1, MANY), same(true, MANY)
    return function() return x:masked_select(mask) end
  end)
  call("x[mask] = 1", function()
    local x, mask = heed.zeros(IN_MEMORY), same(true, IN_MEMORY)
    return function() x[mask] = 1 end
  end).seconds = 0.005
  call("x[slice] = y", function()
    local x = heed.zeros(IN_MEMORY)
    return function() x[{ { 1, IN_MEMORY, 2 } }] = same(1, IN_MEMORY / 2) end
  end).seconds = 0.005
  call("reshape", function()
    local x = heed.zeros(10000, 10000)
    return function() return x.T:reshape(10000 ^ 2) end
  end)
  call("x[{i, j}]", function()
    local x, index = same(1, 100, 100), ones(MANY)
    return function() return x[{ index, index }] end
  end)
  call("x[{i, j}] = 1", function()
    local x, index = heed.zeros(100, 100), ones(MANY)
    return function() x[{ index, index }] = 1 end
  end)
  call("x[float32]", function()
    local x, index = same(1, 100), same(1, MANY)
    return function() return x[index] end
  end)
  call("x[{}] of a long table", function()
    local x, index = same(1, 100), inputs.copies(1, 8000000)
    return function() return x[{ { index } }] end
  end)
  call("scatter_", function()
    local x, index = heed.zeros(10), ones(MANY)
    return function() return x:scatter_(1, index, 1) end
  end)
  call("scatter_add_", function()
    local x, index, src = heed.zeros(10), ones(MANY), same(1, MANY)
    return function() return x:scatter_add_(1, index, src) end
  end)
  call("index_add_", function()
    local x, index, source = heed.zeros(10), ones(MANY), same(1, MANY)
    return function() return x:index_add_(1, index, source, 2) end
  end)
  call("index_fill_ of wide slices", function()
    local x, index = heed.zeros(2, 1000), ones(MANY / 128)
    return function() return x:index_fill_(1, index, 2) end
  end)
  call("nonzero", function()
    local x = same(1, MANY / 4, 2)
    return function() return x:nonzero() end
  end)
  call("searchsorted", function()
    local x, values = same(1, 1000), same(1, MANY / 4)
    return function() return x:searchsorted(values) end
  end)
  call("unique", function()
    local x = same(1, MANY / 16)
    return function() return x:unique { return_inverse = true } end
  end)
  call("bincount", function()
    local ids = ones(MANY)
    return function() return heed.bincount(ids) end
  end)
  call("one_hot", function()
    local ids = ones(MANY / 32)
    return function() return heed.one_hot(ids, 8) end
  end)
  call("multinomial", function()
    local weights = same(1, MANY / 16)
    return function() return weights:multinomial(2) end
  end)
  call("multinomial with replacement", function()
    local weights = same(1, 1000)
    return function() return weights:multinomial(MANY / 4, true) end
  end)
  call("bernoulli", function()
    local p = same(0.5, MANY)
    return function() return heed.bernoulli(p) end
  end)
  call("dropout", function()
    local x = same(0.5, MANY)
    return function() return heed.dropout(x, 0.5, true) end
  end)

  -- ---- Products and attention -------------------------------------------------------------------

  call("matmul", function()
    local x = heed.rand(4096, 4096)
    return function() return x:matmul(x) end
  end)
  call("matmul of many small", function()
    local x = same(1, 1000000, 8, 8)
    return function() return x:matmul(x) end
  end)
  call("bmm", function()
    local x = heed.rand(64, 1024, 1024)
    return function() return x:bmm(x) end
  end)
  call("einsum", function()
    local x = heed.rand(64, 1024, 1024)
    return function() return heed.einsum("bij,bkj->ikb", x, x) end
  end)
  call("addmm", function()
    local x = heed.rand(4096, 4096)
    return function() return x:addmm(x, x) end
  end)
  call("linear", function()
    local x = heed.rand(4096, 4096)
    return function() return heed.linear(x, x) end
  end)
  call("embedding", function()
    local table_, ids = heed.rand(1000, 100), ones(20000000)
    return function() return heed.embedding(ids, table_) end
  end)
  call("quantize_int8", function()
    local x = same(0.5, 25000, 25000)
    return function() return x:quantize_int8() end
  end)
  call("linear_attention", function()
    local x, rate = same(0.1, 1, 8, 200000, 64), same(-0.1, 1, 8, 200000)
    return function() return (heed.linear_attention(x, x, x, { decay = rate, beta = same(0.5, 1, 1, 200000) })) end
  end)
  call("linear_attention with a decay for each row", function()
    local x = same(-0.1, 1, 2, 100000, 128)
    return function() return (heed.linear_attention(x, x, x, { decay = x })) end
  end)
  call("linear_attention of one token in many sequences", function()
    local x = same(0.1, 50000, 1, 1, 64)
    return function() return (heed.linear_attention(x, x, x)) end
  end)
  call("causal_conv", function()
    local x, weight = same(0.1, 1, 100, 2 ^ 22), same(0.1, 100, 16)
    return function() return (heed.causal_conv(x, weight, { activation = "silu" })) end
  end)
  call("causal_conv of channels side by side", function()
    local x, weight = same(0.1, 1, 2 ^ 17, 4096):transpose(2, 3), same(0.1, 4096, 4)
    return function() return (heed.causal_conv(x, weight)) end
  end)
  call("rope", function()
    local x = same(0.5, 128, 50000, 128)
    return function() return heed.rope(x) end
  end)
  call("rope of many positions", function()
    local x = same(0.5, 50000000, 4)
    return function() return heed.rope(x) end
  end)
  call("rope of a wide head", function()
    local x = same(0.5, 1, MANY / 4)
    return function() return heed.rope(x) end
  end)
  call("embedding of wide rows", function()
    local table_, ids = same(0.5, 2, 2 ^ 24), ones(30)
    return function() return heed.embedding(ids, table_) end
  end)
  call("scaled_dot_product_attention", function()
    local x = heed.rand(8, 8192, 64)
    return function() return heed.scaled_dot_product_attention(x, x, x) end
  end)
  call("mask.blocks", function()
    local m = heed.mask.causal()
    return function() return m:blocks(2 ^ 24, 2 ^ 24, 2 ^ 20) end
  end)
  call("mask.dense", function()
    local m = heed.mask.causal()
    return function() return m:dense(30000, 30000) end
  end)
  call("mask.tree", function()
    local parents = heed.zeros(1, { dtype = "int64" }):expand(2e8)
    return function() return heed.mask.tree(parents) end
  end)
  call("mask.intervals", function()
    local t = inputs.ones(2 ^ 24):view(2 ^ 23, 1, 2)
    return function() return heed.mask.intervals(t) end
  end)
  call("attention with a mask value", function()
    local x = heed.rand(1, 60000, 64)
    local m = heed.mask.documents { 20000, 40000 }
    return function() return heed.scaled_dot_product_attention(x, x, x, { attn_mask = m }) end
  end)
  call("attention_partial", function()
    local x = heed.rand(8, 8192, 64)
    return function() return heed.attention_partial(x, x, x) end
  end)
  call("attention_merge", function()
    local x, stats = heed.rand(500000, 64), heed.rand(500000, 2)
    return function() return heed.attention_merge({ x, x, x, x }, { stats, stats, stats, stats }) end
  end).seconds = 0.01
  call("attention_merge of other strides", function()
    local x, stats = same(1, 2 ^ 23, 64), same(1, 2 ^ 23, 2)
    return function() return heed.attention_merge({ x, x }, { stats, stats }) end
  end)
  call("attention with a window", function()
    local x = heed.rand(8, 100000, 64)
    return function() return heed.scaled_dot_product_attention(x, x, x, { window = { left = 500, right = 0 } }) end
  end)

  -- ---- Text -------------------------------------------------------------------------------------

  call("tostring of a tensor of many dimensions", function()
    local x = same(1, 6, 6, 6, 6, 6, 6, 6, 6, 6)
    return function() return tostring(x) end
  end)
  call("..", function()
    local x = same(1, 6, 6, 6, 6, 6, 6, 6, 6, 6)
    return function() return "x: " .. x end
  end)
end
