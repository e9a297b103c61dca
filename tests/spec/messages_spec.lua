-- Properties of all messages: singular and plural agree, and they begin with the name of the called function, even if
-- an inner function fails.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"

describe("a message uses the singular for the number 1", function()
  local one = heed.ones(1)

  it("for arguments and indices", function()
    raises("info: 1 argument was given; it takes at most 0", function() heed.info(1) end)
    raises("clock: 2 arguments were given; it takes at most 0", function() heed.clock(1, 2) end)
    raises("SiLU: 1 argument was given; it takes at most 0", function() nn.SiLU(true) end)
    raises("randint_like: 4 arguments were given; it takes at most 3",
      function() heed.randint_like(one, 1, 2, 3) end)
    raises("index: 1 index is given; x has 0 dimensions", function() return heed.tensor(1)[{ 1 }] end)
    raises("index: 2 indices are given; x has 1 dimension; a list of indices for one is written x[{ {{1, 2, …}} }]",
      function() return one[{ 1, 1 }] end)
  end)

  it("for elements and dimensions", function()
    raises("view: x is [1] with 1 element and the shape [2] has 2; the numbers must be equal",
      function() one:view(2) end)
    raises("view: x is [1] with 1 element; for the shape [-1, 2] their number must be a multiple of 2",
      function() one:view(-1, 2) end)
    raises("permute: 1 dim is given and x has 2 dimensions; each must be named once",
      function() heed.ones(1, 1):permute(1) end)
    raises("permute: 2 dims are given and x has 1 dimension; each must be named once",
      function() one:permute(1, 2) end)
    raises("split: the sizes add up to 0; dimension 1 has 1 element", function() one:split { 0 } end)
    raises("from_string: bytes has 1 byte; it must have 4 for shape [1] of float32",
      function() heed.from_string("a", "float32", { 1 }) end)
  end)

  it("for modules, heads and tokens", function()
    local list = nn.ModuleList { nn.SiLU() }
    raises("ModuleList: index 3 is out of range; there is 1 module, counted from 1", function() return list[3] end)
    local config = { d_in = 4, d_out = 4, context_length = 4, dropout = 0, num_heads = 1 }
    local mha = nn.MultiHeadAttention(config)
    raises("head: i is 2; it must be from 1 to 1, or from -1 to -1", function() mha:head(2) end)
    config.num_heads = 2
    raises("head: i is 3; it must be from 1 to 2, or from -2 to -1",
      function() nn.MultiHeadAttention(config):head(3) end)
    local cache = mha:new_cache { batch = 1, capacity = 2 }
    mha(heed.ones(1, 1, 4), { cache = cache })
    raises("MultiHeadAttention: the cache has 1 token and x has 2; together they must be at most 2, the capacity",
      function() mha(heed.ones(1, 2, 4), { cache = cache }) end)
    raises("reorder: element 1 of indices is 2; it must be from 1 to 1, the batch size",
      function() cache:reorder { 2 } end)
  end)

  it("for bytes", function()
    local generator = heed.Generator(1)
    raises("set_state: the state has 1 byte; it must have 2528, like those of get_state",
      function() generator:set_state "a" end)
  end)

  it("for a single valid value", function()
    raises("copy_: the source is [3] and must broadcast to [1]; its size 3 of dimension 1 must be 1",
      function() one:copy_(heed.ones(3)) end)
    raises("select: index 2 is out of range for dimension 1 of size 1; it must be 1 or -1",
      function() one:select(1, 2) end)
    local one_head = nn.MultiHeadAttentionWrapper(4, 4, 4, 0, 1)
    raises("MultiHeadAttentionWrapper: attn_mask is [3, 2, 2]; its third to last size must be 1, the number of heads",
      function() one_head(heed.ones(1, 2, 4), { attn_mask = heed.ones(3, 2, 2) }) end)
  end)
end)

describe("a message about insufficient memory begins with the called function", function()
  after_each(function() heed.limit { memory = math.huge } end)

  -- The functions that messages begin with, under limits that leave less and less of the memory that the call needs.
  local function names_of(call)
    local names = {}
    for _, left in ipairs { 4000, 2000, 1000, 600, 450, 300, 0 } do
      collectgarbage() -- or the collection in a failing call would free memory for it
      collectgarbage()
      heed.limit { memory = heed.info().memory_in_use + left }
      local fine, message = pcall(call)
      heed.limit { memory = math.huge }
      if not fine then names[message:match "([^: ]+): memory limit exceeded: "] = true end
    end
    return names
  end

  local x = heed.range(1, 64):view(8, 8)
  local turned, other, mask, row = x.T, x + 1, x:gt(9), heed.ones(8)
  local linear = nn.Linear(3, 3)
  local key = heed.tensor({ 1, 2 }, { dtype = "int64" })
  local indices = mask:long() + 1
  local calls = {
    T = function() return x.T end, t = function() return x:t() end, transpose = function() return x:transpose(1, 2) end,
    permute = function() return x:permute(2, 1) end, view = function() return x:view(4, 16) end,
    reshape = function() return turned:reshape(64) end, flatten = function() return x:flatten() end,
    narrow = function() return x:narrow(1, 1, 2) end, select = function() return x:select(1, 2) end,
    unsqueeze = function() return x:unsqueeze(1) end, squeeze = function() return x:squeeze() end,
    expand = function() return row:expand(8, 8) end, split = function() return x:split(2) end,
    chunk = function() return x:chunk(2) end, contiguous = function() return x:contiguous() end,
    clone = function() return x:clone() end, to = function() return x:to "bfloat16" end,
    zeros = function() return heed.zeros(8, 8) end, eye = function() return heed.eye(8) end,
    zeros_like = function() return heed.zeros_like(x) end, full = function() return heed.full({ 8 }, 1) end,
    range = function() return heed.range(1, 9) end, rand = function() return heed.rand(8) end,
    rand_like = function() return heed.rand_like(x) end, randint = function() return heed.randint(1, 9, { 8 }) end,
    randint_like = function() return heed.randint_like(x, 9) end, bernoulli = function() return heed.bernoulli(row) end,
    dropout = function() return heed.dropout(x, 0.5, false) end, Dropout = function() return nn.Dropout(0.5) end,
    index = function() return x[2], x[{ { 1, 2 } }], x[key], x[mask] end, tolist = function() return x:tolist() end,
    tensor = function() return heed.tensor { 1, 2 } end, tostring = function() return tostring(x) end,
    from_string = function() return heed.from_string("abcd", "float32", { 1 }) end,
    to_string = function() return turned:to_string() end, Parameter = function() return nn.Parameter(row) end,
    add = function() return x + other end, matmul = function() return x:matmul(other) end,
    softmax = function() return x:softmax(1) end, sum = function() return x:sum(1) end,
    Linear = function() return linear.weight end,
    cat = function() return heed.cat { x, x } end, stack = function() return heed.stack { x, x } end,
    sort = function() return x:sort() end, topk = function() return x:topk(2) end,
    repeat_interleave = function() return turned:repeat_interleave(2) end,
    where = function() return heed.where(mask, x, 0) end,
    layer_norm = function() return heed.layer_norm(turned) end, cumsum = function() return x:cumsum(1) end,
    index_select = function() return x:index_select(1, key) end, gather = function() return x:gather(1, indices) end,
    masked_fill = function() return x:masked_fill(mask, 0) end, tril = function() return x:tril() end,
    quantize_int8 = function() return heed.quantize_int8(x) end,
    embedding = function() return heed.embedding(key, x) end,
    Generator = function() return heed.Generator(1) end, copy_ = function() return x:copy_(turned) end,
  }

  for name, call in pairs(calls) do
    it("of " .. name, function()
      assert.same({ [name] = true }, names_of(call))
    end)
  end

  it("of a state dict, or of the module whose parameters it lists", function()
    assert.same({ Linear = true, state_dict = true }, names_of(function() return linear:state_dict() end))
  end)

  it("of a forward pass, for its parts and intermediate results", function()
    local mha = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 8, dropout = 0.5, num_heads = 2 }
    local causal = nn.CausalAttention { d_in = 8, d_out = 8, context_length = 8, dropout = 0.5, softmax_dim = 1 }
    local drop, batch = nn.Dropout(0.5), x:unsqueeze(1)
    assert.same({ MultiHeadAttention = true }, names_of(function() return mha(batch, { need_weights = true }) end))
    assert.same({ CausalAttention = true }, names_of(function() return causal(batch, { need_weights = true }) end))
    assert.same({ Dropout = true }, names_of(function() return drop(x) end))
  end)
end)
