-- Modules of one's own as parts of the built-in attention modules: a LoRA wrapper as W_query.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"
local close, int64 = tensors.close, tensors.int64

local function mha(more)
  heed.manual_seed(7)
  return nn.MultiHeadAttention(tensors.merged(
    { d_in = 6, d_out = 8, context_length = 12, dropout = 0, num_heads = 4 }, more or {}))
end

local x = heed.randn(2, 5, 6, { generator = heed.Generator(1) })

--- A class whose forward is f(x, the wrapped module), and counts its calls.
local function wrapper(f)
  local class = nn.Module.class "Wrapped"
  function class:init(base) self.base, self.calls = base, 0 end
  function class:forward(input)
    self.calls = self.calls + 1
    return f(input, self.base)
  end
  return class
end

local Same = wrapper(function(input, base) return base(input) end)

local Lora = nn.Module.class "Lora"
function Lora:init(base, rank)
  self.base = base
  self.A = nn.Parameter(heed.randn(rank, base.in_features))
  self.B = nn.Parameter(heed.zeros(base.out_features, rank))
end
function Lora:forward(input) return self.base(input) + input:linear(self.A):linear(self.B) end

--- A dropout that multiplies the weights by a mask.
local Mask = nn.Module.class "Mask"
function Mask:init(mask) self:register_buffer("mask", mask) end
function Mask:forward(weights) return weights * self.mask end

describe("a module of one's own in an attention module", function()
  it("is called in the part's place", function()
    local m = mha()
    local plain = m(x)
    m.W_query = Lora(m.W_query, 2)
    assert.are.equal(plain:to_string(), m(x):to_string())
    m.W_query.B[1] = 1
    local weight = m.W_query.base.weight + m.W_query.B:matmul(m.W_query.A)
    local merged = mha()
    merged.W_query.weight = weight
    close(merged(x), m(x))
  end)

  for name, options in pairs {
    plain = {}, grouped = { num_kv_heads = 2, causal = false }, windowed = { window = { left = 1 }, scale = 0.9 },
    rotary = { rope = {}, qk_norm = true }, biased = { alibi = true, sinks = true, softcap = 2, qkv_bias = true },
    unprojected = { out_proj = false, head_dim = 3 },
  } do
    it("gives the numbers and the intermediate results of the module without it: " .. name, function()
      local m, same = mha(options), mha(options)
      local given = options.sinks and { attn_mask = heed.randn(5, 5, { generator = heed.Generator(2) }) } or {}
      given.need_weights = true
      local y, info = m(x, given)
      for _, part in ipairs { "W_query", "W_key", "W_value", "out_proj", "dropout" } do
        if m[part] then same[part] = Same(same[part]) end
        local z, found = same(x, given)
        close(y, z)
        for key, value in pairs(info) do close(value, found[key]) end
        close(y, same(x, tensors.merged(given, { need_weights = false })))
        close(y[1], same(x[1], tensors.merged(given, { need_weights = false })))
      end
    end)
  end

  it("gets the tokens of key and value", function()
    local m = mha { kdim = 5, vdim = 3, causal = false }
    local key, value = heed.randn(2, 7, 5), heed.randn(2, 7, 3)
    local options = { key = key, value = value, kv_lengths = int64 { 3, 7 } }
    local expected = m(x, options)
    local shapes = {}
    for _, part in ipairs { "W_query", "W_key", "W_value", "out_proj" } do
      m[part] = wrapper(function(input, base)
        shapes[#shapes + 1] = tostring(input.shape)
        return base(input)
      end)(m[part])
    end
    close(expected, m(x, options))
    assert.are.same({ "heed.Size([2, 5, 6])", "heed.Size([2, 7, 5])", "heed.Size([2, 7, 3])", "heed.Size([2, 5, 8])" },
      shapes)
  end)

  it("may be another built-in module, or a container", function()
    local m = mha { d_in = 8 }
    local tokens = heed.randn(2, 3, 8)
    local expected = m(tokens)
    m.W_query = nn.Sequential(m.W_query, nn.Dropout(0))
    close(expected, m(tokens))
    m.W_query = nn.LayerNorm(8)
    assert.are.equal("heed.Size([2, 3, 8])", tostring(m(tokens).shape))
    m.W_query = nn.Linear(8, 8)
    m.W_query = nn.Linear(8, 8, true)
    assert.are.equal("heed.Size([2, 3, 8])", tostring(m(tokens).shape))
    m.dropout = nn.ReLU()
    m.dropout = nn.Dropout(0)
    assert.are.equal("heed.Size([2, 3, 8])", tostring(m(tokens).shape))
  end)

  it("as dropout gets the weights, and its result replaces them", function()
    for _, groups in ipairs { 1, 2, 4 } do
      local m = mha { num_kv_heads = groups, rope = {} }
      local mask = heed.rand(4, 5, 5, { generator = heed.Generator(4) }):gt(0.4):float() * 2
      local _, info = m(x, { need_weights = true })
      local values = info.values:repeat_interleave(4 / groups, 2)
      local expected = m.out_proj((info.weights * mask):matmul(values):transpose(2, 3):reshape(2, 5, 8))
      m.dropout = Mask(mask)
      local y, found = m(x, { need_weights = true })
      close(expected, y)
      close(info.weights, found.weights)
      close(info.weights * mask, found.dropped_weights)
      close(expected, m(x))
    end
  end)

  it("as dropout keeps nan in hidden values out of the result", function()
    local m, spoilt = mha(), x:clone()
    spoilt[{ {}, 5 }] = 0 / 0
    m.dropout = Mask(heed.ones(1))
    close(mha()(spoilt)[{ {}, { 1, 4 } }], m(spoilt)[{ {}, { 1, 4 } }])
  end)

  it("works with one head, and in the heads of a wrapper", function()
    for _, m in ipairs { nn.SelfAttention(6, 4), nn.CausalAttention(6, 4, 5, 0) } do
      local expected = m(x)
      m.W_key = Same(m.W_key)
      if m:class_name() == "CausalAttention" then m.dropout = Mask(heed.ones(1)) end
      close(expected, m(x))
      close(expected[2], m(x[2]))
    end
    local m = nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 3)
    local expected, info = m(x, { need_weights = true })
    m.heads[2].W_value = Same(m.heads[2].W_value)
    m.heads[3].dropout = Same(m.heads[3].dropout)
    collectgarbage()
    collectgarbage()
    close(expected, m(x))
    local y, found = m(x, { need_weights = true })
    close(expected, y)
    close(info.weights, found.weights)
    assert.are.equal(2, m.heads[2].W_value.calls)
    assert.are.equal("Wrapped", m.heads[2].W_value:class_name())
  end)

  it("works with a cache: token by token as at once", function()
    for _, dtype in ipairs { "float32", "int8" } do
      local m = mha { num_kv_heads = 2, rope = {}, window = { left = 3 } }
      local plain = m:new_cache { batch = 2, dtype = dtype }
      local expected = {}
      for i = 1, 5 do expected[i] = m(x[{ {}, { i, i } }], { cache = plain }) end
      for _, part in ipairs { "W_query", "W_key", "W_value", "out_proj", "dropout" } do m[part] = Same(m[part]) end
      local cache = m:new_cache { batch = 2, dtype = dtype }
      for i = 1, 5 do close(expected[i], m(x[{ {}, { i, i } }], { cache = cache })) end
      assert.are.equal(5, cache.length)
    end
  end)

  it("draws from the generator in the order of the calls", function()
    local m = mha { dropout = 0.5 }
    local g, h = heed.Generator(3), heed.Generator(3)
    local expected = m(x, { generator = g })
    m.out_proj = Same(m.out_proj)
    close(expected, m(x, { generator = h }))
    assert.are.equal(g:get_state(), h:get_state())
  end)

  it("may call the module that it is in, and change it", function()
    local m = mha()
    local expected, inner = m(x), nil
    local first = m.W_query
    m.W_query = wrapper(function(input, base)
      if not inner then
        inner = true
        inner = m(x)
        m.scale, m.causal, m.W_key, m.out_proj = 5, false, nn.Linear(6, 8), nn.Linear(8, 8)
        m:to "bfloat16"
        m:to "float32"
        m.W_query = first
      end
      return base(input)
    end)(m.W_query)
    close(expected, m(x), 2e-2) -- W_query's and W_value's weights were rounded to bfloat16
    close(expected, inner)
    assert.is_false(m(x):allclose(expected, 0, 0.05))
  end)

  it("may release its input, and give a tensor that it keeps", function()
    local m, kept = mha { rope = {} }, nil
    local expected = m(x)
    m.W_query = wrapper(function(input, base)
      kept = base(input)
      input:release()
      return kept
    end)(m.W_query)
    close(expected, m(x))
    close(m.W_query.base(x), kept) -- not rotated in place
    m.W_query, m.rope = wrapper(function() return kept end)(m.W_query.base), nil
    assert.are.equal(m(x):to_string(), m(x):to_string())
  end)

  it("may yield", function()
    local m = mha()
    local expected = m(x)
    m.W_value = wrapper(function(input, base)
      coroutine.yield "between"
      return base(input)
    end)(m.W_value)
    local run = coroutine.create(function() return m(x) end)
    if not support.has.frames then
      local ok, message = coroutine.resume(run)
      assert.is_false(ok)
      assert.is_truthy(tostring(message):find("yield", 1, true))
      return
    end
    assert.are.equal("between", select(2, coroutine.resume(run)))
    local other = coroutine.create(function() return m(x[1]) end) -- a second pass meanwhile
    coroutine.resume(other)
    close(expected, select(2, coroutine.resume(run)))
    close(expected[1], select(2, coroutine.resume(other)))
    assert.is_falsy(pcall(function() return m(x) end)) -- outside of a coroutine
  end)
end)

describe("a part of one's own", function()
  it("is shown, and found with its parameters", function()
    local m = mha()
    m.W_query, m.dropout = Lora(m.W_query, 2), Mask(heed.ones(1))
    assert.are.equal([[
MultiHeadAttention(
  (W_query): Lora(
    (base): Linear(in_features=6, out_features=8, bias=False)
  )
  (W_key): Linear(in_features=6, out_features=8, bias=False)
  (W_value): Linear(in_features=6, out_features=8, bias=False)
  (out_proj): Linear(in_features=8, out_features=8, bias=True)
  (dropout): Mask()
)]], (tostring(m):gsub("\n  [%a_]+=[^\n]*", "")))
    local names = "W_query.A W_query.B W_query.base.weight W_key.weight W_value.weight out_proj.weight out_proj.bias"
    assert.are.equal(names, tensors.names_of(m:named_parameters()))
    assert.are.equal(names .. " dropout.mask", tensors.names_of(heed.pairs(m:state_dict())))
    assert.are.equal("dropout.mask", tensors.names_of(m:named_buffers()))
    assert.are.equal(" W_query W_query.base W_key W_value out_proj dropout", tensors.names_of(m:named_modules()))
    local classes = {}
    m:apply(function(each) classes[#classes + 1] = each:class_name() end)
    assert.are.equal("Linear Lora Linear Linear Linear Mask MultiHeadAttention", table.concat(classes, " "))
  end)

  it("follows train and eval", function()
    local m = nn.Sequential(mha(), nn.MultiHeadAttentionWrapper(8, 4, 5, 0, 2))
    local lora = Same(nn.Sequential(nn.Linear(6, 8)))
    m[1].W_query, m[2].heads[1].W_key = lora, Same(m[2].heads[1].W_key)
    for _, change in ipairs {
      function() m:eval() end, function() m:train() end, function() m[1].training = false m[2].training = false end,
    } do
      change()
      for _, each in ipairs { lora, lora.base[1], m[2].heads[1].W_key, m[2].heads[1].W_key.base } do
        assert.are.equal(m[1].training, each.training)
      end
    end
  end)

  it("is converted and loaded with the rest", function()
    local m, other = mha(), mha()
    m.W_query, other.W_query = Lora(m.W_query, 2), Lora(other.W_query, 2)
    m.W_query.B[1] = 1
    other:load_state_dict(m:state_dict())
    assert.are.equal(m(x):to_string(), other(x):to_string())
    m:to "bfloat16"
    assert.are.equal("bfloat16", m.W_query.base.weight.dtype)
    assert.are.equal("bfloat16", m.W_key.weight.dtype)
    close(other(x), m(x), 0.05)
  end)

  it("is cloned with its module", function()
    local m = mha()
    m.W_query, m.scale = Lora(m.W_query, 2), 0.5
    local copy = m:clone()
    assert.are.equal(m(x):to_string(), copy(x):to_string())
    assert.are.equal(tostring(m), tostring(copy))
    assert.is_false(rawequal(m.W_query, copy.W_query))
    m.W_query.B[1], m.scale = 1, 2
    assert.are.equal(0, copy.W_query.B[1][1])
    copy.W_query.B[1], copy.scale = 1, 2
    assert.are.equal(m(x):to_string(), copy(x):to_string())
    local wrapped = nn.Sequential(nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 2))
    wrapped[1].heads[2].dropout = Mask(heed.ones(1))
    copy = wrapped:clone()
    wrapped[1].heads[2].dropout.mask:zero_()
    collectgarbage()
    collectgarbage()
    assert.is_false(copy(x):allclose(wrapped(x)))
    assert.are.equal(1, copy[1].heads[2].dropout.mask[1])
  end)

  it("is the same object as long as the module exists", function()
    local m = mha()
    do
      local part = Same(m.W_query)
      part.note = "kept"
      m.W_query = part
    end
    collectgarbage()
    collectgarbage()
    assert.are.equal("kept", m.W_query.note)
    m.W_query = m.W_query.base
    assert.are.equal("Linear", m.W_query:class_name())
    local holder = { nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 2) }
    local head = nn.CausalAttention(6, 4, 5, 0)
    head.W_query = Same(head.W_query)
    holder[1].heads[2] = head
    head = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.are.equal(0, holder[1].heads[2].W_query.calls)
  end)

  it("is freed with its module, even if it refers back to it", function()
    if not support.has.frames then return end -- 5.1 and LuaJIT keep it
    local alive = setmetatable({}, { __mode = "k" })
    for _ = 1, 3 do
      local m = mha()
      local part = Same(m.W_query)
      part.list = { m } -- a field that is not a module
      m.W_query = part
      alive[part] = true
      m(x)
    end
    collectgarbage()
    collectgarbage()
    collectgarbage()
    assert.is_nil(next(alive))
  end)

  it("may be replaced and freed by a finalizer during the call", function()
    local m = mha()
    local expected, base = m(x), m.W_query
    m.W_query = wrapper(function(input, inner)
      support.finalized(function() m.W_query, m.out_proj = nn.Linear(6, 8), nn.Linear(8, 8) end)
      collectgarbage()
      collectgarbage()
      return inner(input)
    end)(base)
    close(expected, m(x))
    assert.are.equal("Linear", m.W_query:class_name())
  end)
end)

describe("finalizers", function()
  it("in any allocation of an assignment and of a forward harm nothing", function()
    local number, changed = 0, true
    local function change(m) return function() m.W_query, m.W_key = Same(nn.Linear(6, 8)), nn.Linear(6, 8) end end
    while changed do
      number = number + 3 -- a collection takes long
      local m = mha()
      local first = Same(m.W_query)
      changed = support.at_allocation(number, change(m), function()
        m.W_query = first
        m.W_key = nn.Linear(6, 8)
        m.W_key = Same(m.W_key)
        return m(x)
      end)
      collectgarbage()
      collectgarbage()
      assert.are.equal("heed.Size([2, 5, 8])", tostring(m(x).shape))
      assert.is_truthy(m.W_query.base or m.W_query.weight)
    end
  end)
end)

describe("a part that fails", function()
  local function failing(m, part, f) m[part] = wrapper(f)(m[part]) end

  it("leaves the cache as it was", function()
    for _, part in ipairs { "W_query", "W_value", "out_proj", "dropout" } do
      local m, fails = mha { window = { left = 2 } }, false
      local plain = mha { window = { left = 2 } }
      local cache, other = m:new_cache { batch = 2 }, plain:new_cache { batch = 2 }
      failing(m, part, function(input, base)
        if fails then error("no luck", 0) end
        return base(input)
      end)
      for i = 1, 5 do
        fails = true
        local ok, message = pcall(m, x[{ {}, { i, i } }], { cache = cache })
        assert.are.same({ false, "no luck" }, { ok, message })
        assert.are.equal(i - 1, cache.length)
        fails = false
        close(plain(x[{ {}, { i, i } }], { cache = other }), m(x[{ {}, { i, i } }], { cache = cache }))
      end
    end
  end)

  it("raises its own error, of any type", function()
    local m, token = mha(), {}
    failing(m, "W_query", function() error(token) end)
    assert.are.same({ false, token }, { pcall(m, x) })
    local wrapped = nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 2)
    failing(wrapped.heads[2], "dropout", function() error(token) end)
    assert.are.same({ false, token }, { pcall(wrapped, x) })
    failing(wrapped.heads[1], "dropout", function() return 3 end)
    raises("Wrapped: the result is the number 3; it must be a tensor", function() wrapped(x) end)
  end)

  it("by its result is named, with what it must be", function()
    local function gives(part, value, message)
      local m = mha { num_kv_heads = 2 }
      failing(m, part, function(input) return type(value) == "function" and value(input) or value end)
      raises("MultiHeadAttention: the result of " .. part .. " (Wrapped) is " .. message, function() m(x) end)
    end
    gives("W_query", nil, "nil; it must be a tensor")
    gives("out_proj", "y", "a string ('y'); it must be a tensor")
    gives("W_query", heed.ones(2, 5, 7), "[2, 5, 7]; it must be [2, 5, 8]")
    gives("W_key", heed.ones(2, 5, 8), "[2, 5, 8]; it must be [2, 5, 4]")
    gives("W_value", heed.ones(5, 4), "[5, 4]; it must be [2, 5, 4]")
    gives("out_proj", function(input) return input[1] end, "[5, 8]; it must be [2, 5, 8]")
    gives("dropout", function(input) return input:sum(-1) end, "[2, 4, 5]; it must be [2, 4, 5, 5]")
    gives("W_query", heed.ones(2, 5, 8, { dtype = "int64" }), "int64; it must be float32")
  end)

  it("by using the cache itself is told so", function()
    local m = mha()
    local cache, base = m:new_cache { batch = 2 }, m.W_query
    failing(m, "W_query", function(input)
      m.W_query = base
      m(input, { cache = cache })
      return base(input)
    end)
    raises("MultiHeadAttention: the cache was used by another call during the forward pass; give each call a cache of "
      .. "its own", function() m(x, { cache = cache }) end)
    assert.are.equal(5, cache.length)
  end)

  it("by calling itself without end raises an error", function()
    local m = mha()
    failing(m, "W_query", function(input) return m(input) end)
    assert.is_false(pcall(m, x))
    m.W_query = m.W_query.base
    close(mha()(x), m(x))
  end)
end)

describe("an assignment to a part is refused", function()
  it("for what is not a module, has other sizes, or contains the module", function()
    local m = mha()
    raises("MultiHeadAttention: W_query is a table; it must be a module: nn.Linear or one of your own",
      function() m.W_query = {} end)
    raises("MultiHeadAttention: dropout is nil; it must be a module: nn.Dropout or one of your own",
      function() m.dropout = nil end)
    raises("MultiHeadAttention: W_query has in_features = 5; it must be 6", function() m.W_query = nn.Linear(5, 8) end)
    raises("MultiHeadAttention: out_proj has out_features = 4; it must be 8",
      function() m.out_proj = nn.Linear(8, 4) end)
    m.W_query = Lora(m.W_query, 2)
    raises("MultiHeadAttention: W_query has in_features = 5; it must be 6", function() m.W_query = nn.Linear(5, 8) end)
    local part = Same(m)
    raises("MultiHeadAttention: W_key is a module that contains this one; it must be a module that does not",
      function() m.W_key = part end)
    raises("MultiHeadAttention: W_key is a module that contains this one; it must be a module that does not",
      function() m.W_key = m end)
    raises("MultiHeadAttention: W_key is a module of class MultiHeadAttention, which has parts; it must be a module "
      .. "without: wrap it in a module of your own, such as nn.Sequential", function() m.W_key = mha() end)
    m.W_key = nn.Sequential(nn.MultiHeadAttention(6, 8, 12, 0, 2))
    assert.are.equal("heed.Size([2, 5, 8])", tostring(m(x).shape))
    raises("Wrapped: base is a module that contains this one; it must be a module that does not", function()
      m.W_query = Same(nn.Linear(6, 8))
      m.W_query.base = m
    end)
    local wrapped = nn.MultiHeadAttentionWrapper(6, 4, 5, 0, 2)
    raises("CausalAttention: W_key is a module that contains this one; it must be a module that does not",
      function() wrapped.heads[1].W_key = Same(nn.Sequential(wrapped)) end)
    raises("ModuleList: 0 is a table; it must be a built-in module (CausalAttention)",
      function() wrapped.heads[1] = Same(m) end)
  end)

  it("by what cannot call it, with a sentence", function()
    local m = mha()
    m.W_query = Lora(m.W_query, 2)
    for name, call in pairs {
      head = function() m:head(1) end, split = function() m:split() end,
    } do
      local ok, message = pcall(call)
      assert.is_false(ok)
      assert.are.equal(name .. ": W_query is a module of class Lora; it must be a Linear, since " .. name
        .. " does not call modules of other classes", (message:gsub("^[^ ]*:%d+: ", "")))
    end
    local causal = nn.CausalAttention { d_in = 6, d_out = 4, context_length = 5, dropout = 0, softmax_dim = 2 }
    causal.dropout = Mask(heed.ones(1))
    raises("softmax_dim: dropout is a module of class Mask; it must be a Dropout, since softmax_dim does not call "
      .. "modules of other classes", function() causal(x) end)
  end)
end)
