-- One test for each class of errors: the complete message, at the caller's line, and everything works afterwards.
local heed = require "heed"
local support = require "tests.support"
local raises = require "tests.raises"
local nn = heed.nn

local LARGEST = support.digits(math.maxinteger)

describe("an error message names the function, the argument, its value and what it must be:", function()
  local x = heed.range(1, 6):view(2, 3)

  after_each(function()
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, x:tolist())
    assert.equal(21, x:sum():item())
  end)

  it("mismatched shapes", function()
    raises(
      "matmul: a is [2, 3] and b is [2, 3]; the last size of a (3) must equal the first size of b (2)",
      function() return x:matmul(x) end
    )
    raises(
      "add: a is [2, 3] and b is [4]; to broadcast, sizes counted from the last must be equal or 1",
      function() return x + heed.ones(4) end
    )
    raises(
      "view: x is [2, 3] with 6 elements and the shape [4] has 4; the numbers must be equal",
      function() return x:view(4) end
    )
    raises(
      "cat: tensor 2 is [1, 4] and the first is [2, 3]; all sizes but that of the dimension to join must be equal",
      function() return heed.cat { x, heed.ones(1, 4) } end
    )
    raises("zeros: the shape is [2, -1]; its sizes must not be negative", function() return heed.zeros(2, -1) end)
    raises(
      "expand: x is [2, 3] and must broadcast to [3, 3]; its size 2 of dimension 1 must be 1 or 3",
      function() return x:expand(3, 3) end
    )
  end)

  it("wrong numbers of dimensions", function()
    raises("matmul: b has no dimensions; it must have at least 1", function() return x:matmul(heed.tensor(1)) end)
    raises("dot: a is [2, 3] and b is [2, 3]; both must have 1 dimension", function() return x:dot(x) end)
    raises("length: x has no dimensions; it must have at least 1", function() return #heed.tensor(1) end)
    raises("item: x has 6 elements (shape [2, 3]); it must have exactly one", function() return x:item() end)
    raises("zeros: a tensor has at most 16 dimensions", function()
      return heed.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    end)
  end)

  it("wrong dtypes", function()
    raises(
      "softmax: x is int64; it must be float32: convert with x:float()",
      function() return x:long():softmax(1) end
    )
    raises("masked_fill: mask is float32; it must be bool: convert with mask:bool(), or compare, as x:gt(0) does",
      function() return x:masked_fill(x, 0) end)
    raises("gather: index is bool; it must be int64, or float32 with whole values",
      function() return x:gather(1, x:bool()) end)
    raises(
      "zeros: dtype is a string ('int32'); it must be 'float32', 'int64', 'bool', 'bfloat16', 'float16' or 'int8'",
      function() return heed.zeros(2, { dtype = "int32" }) end
    )
    raises(
      "add_: the result is float32 and the tensor that is written is int64, which cannot hold it",
      function() return x:long():add_(0.5) end
    )
  end)

  it("wrong dimensions", function()
    raises(
      "sum: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2",
      function() return x:sum(3) end
    )
    raises("sum: dim is 0; it must be at least 1, or at most -1 (the last)", function() return x:sum(0) end)
    raises("softmax: dim is nil; it must be an integer", function() return x:softmax() end)
    raises("permute: dimension 1 is named twice; each must be named once", function() return x:permute(1, 1) end)
    raises(
      "sum: the table of dimensions has the key 'keepdim'; options must be in a table of their own",
      function() return x:sum { 1, keepdim = true } end
    )
  end)

  it("wrong indices", function()
    local two = "it must be from 1 to 2, or from -1 to -2"
    raises("index: index 0 is out of range for dimension 1 of size 2; " .. two, function() return x[0] end)
    raises("index: index 9 is out of range for dimension 1 of size 2; " .. two, function() return x[9] end)
    raises("index: index -3 is out of range for dimension 1 of size 2; " .. two, function() return x[{ -3, 1 }] end)
    raises("index: index 3 is out of range for dimension 1 of size 2; " .. two, function() x[3] = 1 end)
    raises("index: an index is the number 1.5; it must be an integer", function() return x[1.5] end)
    raises("index: 3 indices are given; x has 2 dimensions; a list of indices for one is written x[{ {{1, 2, …}} }]",
      function() return x[{ 1, 2, 3 }] end)
    raises(
      "index: the slice {1, 5} does not fit dimension 1 of size 2; "
        .. "it must be within the dimension (both ends are included; {i, i - 1} is empty)",
      function() return x[{ { 1, 5 } }] end
    )
    raises(
      "index: mask is [3] and x is [2, 3]; mask must have the first sizes of x, or all of them",
      function() x[heed.tensor { true, false, true }] = 1 end
    )
    raises(
      "index: index 7 is out of range for dimension 1 of size 2; " .. two .. " (element [1] of the index)",
      function() return x[heed.tensor({ 7 }, { dtype = "int64" })] end
    )
    raises(
      "topk: k is 4; dimension 2 has size 3, so it must be from 0 to 3",
      function() return x:topk(4) end
    )
  end)

  it("tables that are ragged, cyclic or have holes", function()
    raises(
      "tensor: data[2] has 1 element; it must have 2, like the others",
      function() return heed.tensor { { 1, 2 }, { 3 } } end
    )
    raises("tensor: data has more than 16 levels of tables, or contains itself; it must have at most 16", function()
      local t = {}
      t[1] = t
      return heed.tensor(t)
    end)
    raises("tensor: data[2] is missing; a table must have no holes", function() return heed.tensor { 1, nil, 3 } end)
    raises(
      "tensor: data[2] is a string ('a'); it must be a number, a boolean or a tensor",
      function() return heed.tensor { 1, "a" } end
    )
    raises("tensor: data has the key 'x'; options must be in a table of their own", function()
      return heed.tensor { 1, 2, x = 3 }
    end)
  end)

  it("unknown options", function()
    raises(
      "sum: there is no option 'dims'; the options are dim, keepdim",
      function() return x:sum { dims = 1 } end
    )
    raises(
      "zeros: there is no option 'dtyp'; the options are dtype, requires_grad",
      function() return heed.zeros(2, { dtyp = "int64" }) end
    )
    raises(
      "Dropout: there is no option 'prob'; the options are p",
      function() return nn.Dropout { prob = 1 } end
    )
    raises(
      "sum: dim is given twice, by position and by name",
      function() return x:sum(1, { dim = 2 }) end
    )
    raises("exp: 2 arguments were given; it takes at most 1", function() return x:exp(1) end)
  end)

  it("sizes whose product overflows", function()
    raises(
      "zeros: the shape is [4611686018427387904, 8]; its float32 elements must fit in the address space",
      function() return heed.zeros(2 ^ 62, 8) end
    )
    raises(
      "expand: the shape is [4611686018427387904]; its float32 elements must fit in the address space",
      function() return heed.ones(1):expand(2 ^ 62) end
    )
    raises(
      "repeat_interleave: 4611686018427387904 times the size 6 of dimension 1 is more than 2^63 - 1",
      function() return x:repeat_interleave(2 ^ 62) end
    )
    raises(
      "range: first to last by step is more elements than memory can address; step must be larger",
      function() return heed.range(math.mininteger, math.maxinteger) end
    )
    raises("MultiHeadAttentionWrapper: num_heads is 1099511627776; it must be at most 65536", function()
      return nn.MultiHeadAttentionWrapper(3, 2, 6, 0, 2 ^ 40)
    end)
    raises(("narrow: start 3 and length %s do not fit dimension 1 of size %s; "):format(LARGEST, LARGEST)
      .. "there must be length elements from start (from 1) on", function()
      return heed.zeros(math.maxinteger, 0, { dtype = "bool" }):narrow(1, 3, math.maxinteger)
    end)
  end)

  it("insufficient memory #plain", function()
    local wide = heed.ones(1):expand(2 ^ 45)
    raises("zeros: out of memory (128.0 TiB requested)", function() return heed.zeros(2 ^ 45) end)
    raises("rand: out of memory (128.0 TiB requested)", function() return heed.rand(2 ^ 45) end)
    raises("eye: out of memory (256.0 TiB requested)", function() return heed.eye(2 ^ 23) end)
    raises("randperm: out of memory (256.0 TiB requested)", function() return heed.randperm(2 ^ 45) end)
    raises("contiguous: out of memory (128.0 TiB requested)", function() return wide:contiguous() end)
    raises("add: out of memory (128.0 TiB requested)", function() return wide + 1 end)
    raises("zeros_like: out of memory (128.0 TiB requested)", function() return heed.zeros_like(wide) end)
    raises("Linear: out of memory (128.0 TiB requested)", function() return nn.Linear(2 ^ 45, 1) end)
  end)

  it("released tensors", function()
    local gone = heed.ones(2)
    gone:release()
    raises("add: a is a released tensor; it must be a tensor or a number", function() return gone + 1 end)
    raises("index: x is a released tensor; it must be a tensor", function() return gone[1] end)
    raises("shape: x is a released tensor; it must be a tensor", function() return gone.shape end)
    raises("cat: tensors[2] is a released tensor; it must be a tensor", function() return heed.cat { x, gone } end)
    raises("Linear: x is a released tensor; it must be a tensor", function() return nn.Linear(2, 2)(gone) end)
    assert.equal("tensor(released)", tostring(gone))
  end)

  it("values of wrong types", function()
    raises("add: b is a userdata; it must be a tensor or a number", function() return x + io.stdout end)
    raises("sub: a is a string ('5'); it must be a tensor or a number", function() return "5" - x end)
    raises("exp: x is nil; it must be a tensor", function() return heed.exp() end)
    raises("zeros: a size is the number 1.5; it must be an integer", function() return heed.zeros(1.5) end)
    raises(
      "rand: generator is a tensor of shape [2, 3] and dtype float32; it must be a heed.Generator",
      function() return heed.rand(2, { generator = x }) end
    )
    raises("to: dtype is a string of 100 bytes; " ..
      "it must be 'bool', 'int64', 'float32', 'bfloat16', 'float16', 'int8', " ..
      "'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k' or 'q6_k'", function()
      return x:to(("x"):rep(100))
    end)
  end)

  it("numbers of heads that do not divide each other", function()
    raises(
      "MultiHeadAttention: d_out is 4 and num_heads is 3; num_heads must divide d_out",
      function() return nn.MultiHeadAttention(3, 4, 6, 0, 3) end
    )
    raises("MultiHeadAttention: num_heads is 4 and num_kv_heads is 3; num_kv_heads must divide num_heads", function()
      local sizes = { d_in = 3, d_out = 4, context_length = 6, dropout = 0, num_heads = 4, num_kv_heads = 3 }
      return nn.MultiHeadAttention(sizes)
    end)
    raises(
      "scaled_dot_product_attention: q is [1, 3, 2, 4] and k is [1, 2, 2, 4]; "
        .. "the heads of q (third to last size) must be a multiple of the heads of k",
      function()
        local k = heed.rand(1, 2, 2, 4)
        return heed.scaled_dot_product_attention(heed.rand(1, 3, 2, 4), k, k)
      end
    )
  end)

  it("too many tokens", function()
    for _, class in ipairs { "CausalAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper" } do
      local sizes = { d_in = 3, d_out = 4, context_length = 2, dropout = 0 }
      if class:find "Multi" then sizes.num_heads = 2 end
      local m = nn[class](sizes)
      raises(class .. ": x has 3 tokens; it must have at most 2, the context_length",
        function() return m(heed.rand(1, 3, 3)) end)
    end
  end)
end)

describe("an error points at the line of the script", function()
  local Own = nn.Module.class "Own"
  function Own:init() self.part = nn.Linear(5, 5) end
  function Own:forward(x)
    local y = self.part(x)
    return y
  end
  local message = "Linear: x is [2, 3] and weight is [5, 5]; "
    .. "the last size of x (3) must equal the last size of weight (5)"

  it("through Sequential, also for a tail call", function()
    local model = nn.Sequential(nn.Linear(5, 5))
    raises(message, function() return model(heed.rand(2, 3)) end)
    raises(message, function() return model:forward(heed.rand(2, 3)) end)
    raises(message, function() model(heed.rand(2, 3)) end)
  end)

  it("in a user-defined module", function()
    local ok, text = pcall(function() return nn.Sequential(Own())(heed.rand(2, 3)) end)
    assert.is_false(ok)
    local info = debug.getinfo(Own.forward, "S")
    assert.equal(("%s:%d: %s"):format(info.short_src, info.linedefined + 1, message), text)
  end)

  it("through the methods of modules", function()
    local m = nn.Linear(3, 4)
    raises(
      "load_state_dict: the state does not fit Linear:\n  bias is missing\n  weight is [2]; it must be [4, 3]",
      function() return m:load_state_dict { weight = heed.ones(2) } end
    )
    raises("train: mode is the number 1; it must be a boolean", function() return m:train(1) end)
    raises("Sequential: the appended value is the number 5; it must be a module",
      function() return nn.Sequential(5) end)
    raises("append: self is nil; it must be a module; call the method with a colon", function()
      return nn.Sequential.append()
    end)
    raises("class: name is nil; it must be a string", function() return nn.Module.class() end)
  end)

  it("in a loop over a value that cannot be iterated", function()
    for _, each in ipairs { heed.ipairs, support.has.loops and ipairs or nil } do
      raises("index: x has no dimensions; x:item() reads its element", function()
        for _, row in each(heed.tensor(5)) do print(row) end
      end)
    end
  end)

  it("in coroutines", function()
    raises("zeros: a size is nil; it must be an integer", function()
      local ok, text = coroutine.resume(coroutine.create(function() heed.zeros(nil, 1) end))
      assert(not ok)
      error(text, 0)
    end)
  end)
end)
