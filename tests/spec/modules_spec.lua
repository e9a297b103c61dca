-- The built-in modules from Lua: constructors, fields, calls, and the methods that all modules share.
local heed = require "heed"
local fails = require "tests.fails"
local tensors = require "tests.tensors"
local names_of = tensors.names_of
local nn = heed.nn

local SMALL = { d_in = 3, d_out = 4, context_length = 6, dropout = 0, num_heads = 2 }
local function multi_head(options) return nn.MultiHeadAttention(tensors.merged(SMALL, options)) end

describe("a constructor", function()
  it("accepts its arguments by position, by name, and mixed", function()
    for _, m in ipairs {
      nn.CausalAttention(3, 2, 6, 0.5, true),
      nn.CausalAttention { d_in = 3, d_out = 2, context_length = 6, dropout = 0.5, qkv_bias = true },
      nn.CausalAttention(3, 2, 6, { dropout = 0.5, qkv_bias = true }),
    } do
      assert.are.equal(3, m.d_in)
      assert.are.equal(2, m.d_out)
      assert.are.equal(6, m.context_length)
      assert.are.equal(0.5, m.dropout.p)
      assert.are.same({ 2 }, { table.unpack(m.W_query.bias.shape) })
    end
  end)

  it("accepts PyTorch's names for the sizes of a Linear", function()
    local m = nn.Linear { in_features = 3, out_features = 2, bias = false }
    assert.are.equal("Linear(in_features=3, out_features=2, bias=False)", tostring(m))
    fails("Linear: in_features and d_in are the same argument; give one of them", nn.Linear,
      { in_features = 3, d_in = 3, d_out = 2 })
  end)

  it("draws from the given generator", function()
    local a = nn.Linear(3, 2, { generator = heed.Generator(5) })
    heed.manual_seed(5)
    local b = nn.Linear(3, 2)
    assert.is_true(a.weight:equal(b.weight))
    assert.is_true(a.bias:equal(b.bias))
  end)

  it("names missing, wrong and unknown arguments", function()
    fails("Linear: d_in is nil; it must be an integer", nn.Linear)
    fails("CausalAttention: dropout is a string ('0'); it must be a number", nn.CausalAttention, 3, 2, 6, "0")
    fails("Linear: bias is the number 1; it must be a boolean", nn.Linear, 3, 2, 1)
    fails("Linear: there is no option 'bais'; the options are d_in, d_out, bias, generator, in_features, "
      .. "out_features", nn.Linear, 3, 2, { bais = true })
    fails("MultiHeadAttention: there is no option 'heads'; the options are d_in, d_out, context_length, dropout, "
      .. "num_heads, qkv_bias, causal, num_kv_heads, head_dim, out_proj, out_bias, scale, generator, kdim, vdim, "
      .. "window, softcap, rope, alibi, sinks, qk_norm", function() multi_head { heads = 3 } end)
    assert.has_error(function() multi_head { num_heads = 3 } end)
    fails("MultiHeadAttention: num_kv_heads is 0; it must be at least 1", multi_head, { num_kv_heads = 0 })
    assert.has_error(function() nn.Dropout(2) end)
  end)

  it("draws no random numbers when it fails", function()
    heed.manual_seed(1)
    pcall(multi_head, { num_heads = 3 })
    local after = heed.rand(1):item()
    heed.manual_seed(1)
    assert.are.equal(after, heed.rand(1):item())
  end)
end)

describe("the fields of a built-in module", function()
  it("are its parts, its parameters and its settings", function()
    local m = multi_head()
    assert.are.equal(2, m.num_heads)
    assert.are.equal(2, m.head_dim)
    assert.is_true(m.causal)
    assert.is_true(m.training)
    assert.are.equal("heed.Size([4, 3])", tostring(m.W_query.weight.shape))
    assert.are.equal("heed.Size([4])", tostring(m.out_proj.bias.shape))
    assert.are.equal(0.25, nn.Dropout(0.25).p)
  end)

  it("are the same object each time", function()
    local m = multi_head()
    local part = m.W_query
    assert.is_true(rawequal(part, m.W_query))
    assert.is_true(m.W_query.weight == part.weight)
    assert.is_false(rawequal(m.W_query, m.W_key))
  end)

  it("are nil for parts that the module lacks", function()
    assert.is_nil(nn.Linear(3, 2, false).bias)
    assert.is_nil(multi_head({ out_proj = false }).out_proj)
  end)

  it("share the memory of the module", function()
    local m = nn.Linear(2, 2, false)
    m.weight:copy_(heed.eye(2))
    m.weight[1][2] = 5
    assert.are.same({ { 11, 2 } }, m(heed.tensor { { 1, 2 } }):tolist())
  end)

  it("print as parameters", function()
    local m = nn.Linear(2, 1, false)
    m.weight[{ {}, {} }] = 1
    assert.are.equal("Parameter containing:\ntensor([[1., 1.]])", tostring(m.weight))
  end)

  it("are listed when the name is unknown", function()
    local m = nn.Linear(3, 2)
    fails("Linear has no field 'wieght'; it has weight, bias, in_features, out_features, training",
      function() return m.wieght end)
    fails("Linear has no field the number 1; it has weight, bias, in_features, out_features, training",
      function() return m[1] end)
    fails("len: Linear has no length", function() return #m end)
  end)

  it("can be set if they are parameters, parts or training", function()
    local m = nn.Linear(2, 1)
    local w = heed.ones(1, 2)
    m.weight = w
    w[1][1] = 3
    assert.are.equal(3, m.weight[1][1])
    assert.is_true(m.weight.is_parameter)
    assert.is_false(w.is_parameter)

    local a, b = multi_head(), multi_head()
    a.W_query = b.W_query
    assert.is_true(rawequal(a.W_query, b.W_query))
    a.training = false
    assert.is_false(a.training)
    assert.is_false(a.dropout.training)
  end)

  it("name the fields that can be set, if another one is", function()
    local m = nn.Linear(3, 2)
    fails("Linear: 'in_features' cannot be set; the fields that can be set are weight, bias, training",
      function() m.in_features = 3 end)
    fails("Linear: training is the number 1; it must be a boolean", function() m.training = 1 end)
    fails("Linear: weight is nil; it must be a tensor", function() m.weight = nil end)
    assert.has_error(function() m.weight = heed.zeros(3, 2) end)
    assert.has_error(function() m.weight = heed.zeros(2, 3, { dtype = "int64" }) end)
    assert.has_error(function() multi_head().W_query = nn.Dropout() end)
    assert.has_error(function() multi_head().W_query = nn.Linear(5, 4) end)
    fails("MultiHeadAttention: W_query is a table; it must be a module: nn.Linear or one of your own",
      function() multi_head().W_query = {} end)
    assert.are.equal("heed.Size([2, 3])", tostring(m.weight.shape))
  end)
end)

describe("a list of heads", function()
  local m = nn.MultiHeadAttentionWrapper(3, 2, 6, 0, 3)

  it("is indexed from 1, or from -1, and ends with nil", function()
    assert.are.equal(3, #m.heads)
    assert.is_true(rawequal(m.heads[3], m.heads[-1]))
    assert.is_nil(m.heads[4])
    local count = 0
    for i, head in heed.ipairs(m.heads) do
      count = count + 1
      assert.is_true(rawequal(head, m.heads[i]))
    end
    assert.are.equal(3, count)
  end)

  it("rejects indices out of range", function()
    for _, i in ipairs { 0, 5, -4 } do
      fails(("ModuleList: index %d is out of range; there are 3 modules, counted from 1"):format(i),
        function() return m.heads[i] end)
    end
    assert.has_error(function() return m.heads[1.5] end)
  end)

  it("accepts another head of the same sizes", function()
    local head = nn.CausalAttention(3, 2, 6, 0)
    m.heads[2] = head
    assert.is_true(rawequal(head, m.heads[2]))
    assert.has_error(function() m.heads[2] = nn.CausalAttention(4, 2, 6, 0) end)
  end)
end)

describe("forward", function()
  it("is the same as a call", function()
    local m, x = multi_head(), heed.rand(2, 6, 3)
    assert.is_true(m(x):equal(m:forward(x)))
    assert.are.equal("heed.Size([2, 6, 4])", tostring(m(x).shape))
  end)

  it("returns intermediate results on request, without changing the result", function()
    local m, x = multi_head(), heed.rand(2, 6, 3)
    local y, info = m(x, { need_weights = true })
    assert.is_true(y:equal(m(x)))
    assert.are.equal("heed.Size([2, 2, 6, 6])", tostring(info.weights.shape))
    assert.are.equal("heed.Size([2, 2, 6, 2])", tostring(info.queries.shape))
    assert.is_nil(info.dropped_weights)
    assert.are.equal(1, select("#", m(x)))
    assert.are.equal(1, select("#", m(x, { need_weights = false })))
  end)

  it("returns the weights after dropout in training mode", function()
    local m = multi_head { dropout = 0.5 }
    local _, info = m(heed.rand(2, 6, 3), { need_weights = true })
    assert.are.equal("heed.Size([2, 2, 6, 6])", tostring(info.dropped_weights.shape))
    _, info = m:eval()(heed.rand(2, 6, 3), { need_weights = true })
    assert.is_nil(info.dropped_weights)
  end)

  it("accepts masks and a generator", function()
    local m, x = multi_head { dropout = 0.5 }, heed.rand(2, 6, 3)
    local padding = heed.zeros(2, 6, { dtype = "bool" })
    padding[{ {}, 1 }] = true
    local _, info = m(x, { key_padding_mask = padding, need_weights = true })
    assert.are.equal(0, info.weights[{ {}, {}, {}, 1 }]:sum():item())
    local a = m(x, { generator = heed.Generator(3) })
    assert.is_true(a:equal(m(x, { generator = heed.Generator(3) })))
    local _, masked = m(x, { attn_mask = heed.ones(6, 6, { dtype = "bool" }):tril(-1), need_weights = true })
    assert.are.equal(0, masked.weights[{ {}, {}, 1 }]:sum():item())
  end)

  it("accepts the same masks for each head when split", function()
    local m, x = multi_head(), heed.rand(2, 6, 3)
    for _, sizes in ipairs { { 6, 6 }, { 2, 6, 6 }, { 2, 1, 6, 6 }, { 2, 2, 1, 6 } } do
      local mask = heed.rand(sizes):gt(0.3)
      local _, whole = m(x, { attn_mask = mask, need_weights = true })
      local _, split = m:split()(x, { attn_mask = mask, need_weights = true })
      assert.is_true(whole.weights:equal(split.weights))
      _, split = m:split()(x, { attn_mask = heed.where(mask, 0, -math.huge), need_weights = true })
      assert.is_true(whole.weights:equal(split.weights))
    end
    fails("MultiHeadAttentionWrapper: attn_mask is [3, 6, 6]; its third to last size must be 1 or 2, the number "
      .. "of heads", m:split(), x, { attn_mask = heed.ones(3, 6, 6) })
  end)

  it("names the wrong argument", function()
    local m = multi_head()
    fails("MultiHeadAttention: x is nil; it must be a tensor", m)
    fails("MultiHeadAttention: there is no option 'mask'; the options are attn_mask, key_padding_mask, need_weights, "
      .. "generator, kv_lengths, key, value, cache, need_lse, lengths, key_lengths", m, heed.rand(6, 3), { mask = 1 })
    fails("MultiHeadAttention: need_weights is the number 1; it must be a boolean or a table of names", m,
      heed.rand(6, 3), { need_weights = 1 })
    assert.has_error(function() m(heed.rand(7, 3)) end)
    assert.has_error(function() m(heed.rand(6, 4)) end)
    assert.has_error(function() nn.Linear(3, 2)(heed.rand(6, 3), { need_weights = true }) end)
    fails("forward: self is a tensor of shape [2, 3] and dtype float32; it must be a built-in module (methods are "
      .. "called with a colon)", m.forward, heed.rand(2, 3))
  end)

  it("points at the caller's line", function()
    local _, err = pcall(function() multi_head()(heed.rand(7, 3)) end)
    assert.matches("modules_spec.lua:%d+: MultiHeadAttention: ", err)
    _, err = pcall(function() multi_head():apply(3) end)
    assert.matches("modules_spec.lua:%d+: apply: f is the number 3; it must be a function", err)
  end)
end)

describe("the heads of a MultiHeadAttention", function()
  local m = multi_head { d_out = 6, num_heads = 3 }

  it("are views of its weights", function()
    local x, head = heed.rand(5, 3), m:head(2)
    local q = x:matmul(m.W_query.weight.T)
    assert.is_true(x:matmul(head.W_query):allclose(q[{ {}, { 3, 4 } }], 1e-5, 1e-6))
    head.W_value[1][1] = 7
    assert.are.equal(7, m.W_value.weight[3][1])
    assert.has_error(function() m:head(4) end)
    assert.has_error(function() m:head(0) end)
    assert.has_error(function() nn.Linear(2, 2):head(1) end)
  end)

  it("can be split into modules that share the memory", function()
    local wrapper, x = m:split(), heed.rand(2, 5, 3)
    assert.are.equal("MultiHeadAttentionWrapper", wrapper:class_name())
    assert.are.equal(3, #wrapper.heads)
    assert.is_true(m.out_proj(wrapper(x)):allclose(m(x), 1e-5, 1e-6))
    wrapper.heads[1].W_key.weight[1][1] = 9
    assert.are.equal(9, m.W_key.weight[1][1])
  end)
end)

describe("the methods of all modules", function()
  it("list parameters in PyTorch's order", function()
    assert.are.equal("weight bias", names_of(nn.Linear(2, 2):named_parameters()))
    assert.are.equal("W_query.weight W_key.weight W_value.weight out_proj.weight out_proj.bias",
      names_of(multi_head():named_parameters()))
    assert.are.equal("heads.0.W_query.weight heads.0.W_key.weight heads.0.W_value.weight heads.1.W_query.weight "
      .. "heads.1.W_key.weight heads.1.W_value.weight",
      names_of(nn.MultiHeadAttentionWrapper(3, 2, 6, 0, 2):named_parameters()))
    assert.are.equal("", names_of(multi_head():named_parameters { recurse = false }))
    assert.are.equal("net.weight net.bias", names_of(nn.Linear(2, 2):named_parameters "net"))
  end)

  it("give lists that a for loop can call", function()
    local m, called, total = multi_head(), 0, 0
    local list = m:parameters()
    for p in list do called = called + p:numel() end
    for p in list do called = called + p:numel() end
    for _, p in ipairs(list) do total = total + p:numel() end
    assert.are.equal(2 * total, called)
    assert.are.equal(5, #list)
    for _ = 1, 2 do -- a loop begins again where another was left
      local first
      for p in list do
        first = first or p
        if rawequal(p, list[2]) then break end
      end
      assert.is_true(rawequal(first, list[1]))
    end
    local next_p = m:parameters() -- for two lists side by side
    for i = 1, 5 do assert.are.equal(list[i]:to_string(), next_p():to_string()) end
    assert.is_nil(next_p())
  end)

  it("list parts", function()
    local m = nn.MultiHeadAttentionWrapper(3, 2, 6, 0, 2)
    assert.are.equal("heads", names_of(m:named_children()))
    assert.are.equal("W_query W_key W_value dropout", names_of(m.heads[1]:named_children()))
    assert.is_true(rawequal(m.heads[1], m.heads:children()[1]))
    local names = names_of(m:named_modules())
    assert.matches("^ heads heads.0 heads.0.W_query heads.0.W_key", names)
    assert.are.equal(12, #m:modules())
    assert.is_true(rawequal(m, m:modules()[1]))
    assert.are.equal("", names_of(m:named_buffers()))
  end)

  it("turn training mode on and off", function()
    local m = multi_head()
    assert.is_true(rawequal(m, m:eval()))
    assert.is_false(m.training or m.dropout.training or m.W_query.training)
    m:train()
    assert.is_true(m.training and m.dropout.training and m.W_query.training)
    fails("train: mode is the number 1; it must be a boolean", m.train, m, 1)
  end)

  it("apply a function to the parts first", function()
    local m, names = multi_head(), {}
    local result = m:apply(function(each) names[#names + 1] = each:class_name() end)
    assert.are.same({ "Linear", "Linear", "Linear", "Linear", "Dropout", "MultiHeadAttention" }, names)
    assert.is_true(rawequal(m, result))
  end)

  it("print modules as PyTorch's repr does", function()
    assert.are.equal("Dropout(p=0.1, inplace=False)", tostring(nn.Dropout(0.1)))
    assert.are.equal([[
MultiHeadAttentionWrapper(
  (heads): ModuleList(
    (0-1): 2 x CausalAttention(
      (W_query): Linear(in_features=3, out_features=2, bias=False)
      (W_key): Linear(in_features=3, out_features=2, bias=False)
      (W_value): Linear(in_features=3, out_features=2, bias=False)
      (dropout): Dropout(p=0.5, inplace=False)
    )
  )
)]], tostring(nn.MultiHeadAttentionWrapper(3, 2, 6, 0.5, 2)))
  end)

  it("reject values that are not modules", function()
    local m = nn.Linear(2, 2)
    fails("named_parameters: self is nil; it must be a module; call the method with a colon", m.named_parameters)
    fails("eval: self is a table; it must be a module; call the method with a colon", m.eval, {})
    fails("named_parameters: there is no option 'recurs'; the options are prefix, recurse", m.named_parameters, m,
      { recurs = true })
    fails("named_parameters: prefix is the number 1; it must be a string", m.named_parameters, m, 1)
  end)

  it("survive metamethods called with other values", function()
    local meta = debug.getmetatable(nn.Linear(2, 2))
    for _, name in ipairs { "__index", "__newindex", "__len", "__call", "__tostring", "__gc" } do
      for _, value in ipairs { 1, {}, heed.ones(1), heed.Generator(1), io.stdout } do
        pcall(meta[name], value, "weight", 1)
      end
    end
    local m = nn.Linear(2, 2)
    meta.__gc(m) -- frees nothing, since a finalizer could call it in the middle of a forward pass
    assert.are.equal("Linear(in_features=2, out_features=2, bias=True)", tostring(m))
  end)
end)

describe("nn.Parameter", function()
  it("shares the elements of a tensor", function()
    local t = heed.zeros(2)
    local p = nn.Parameter(t)
    p[1] = 4
    assert.are.equal(4, t[1])
    assert.is_true(p.is_parameter)
    assert.is_false(t.is_parameter)
    assert.are.equal("Parameter containing:\ntensor([4., 0.])", tostring(p))
  end)

  it("accepts float32 tensors only", function()
    fails("Parameter: data is a table; it must be a tensor", nn.Parameter, {})
    fails("Parameter: data is int64; it must be float32", nn.Parameter, heed.zeros(2, { dtype = "int64" }))
  end)
end)
