-- The gradients of heed.scaled_dot_product_attention.
local heed = require "heed"
local raises = require "tests.raises"

local inf = math.huge

--- Whether query i sees key j, by position.
local function in_window(o, i, j, past)
  local at = i + past
  if o.is_causal and j > at then return false end
  if o.window and o.window.left and j < at - o.window.left then return false end
  return not (o.window and o.window.right and j > at + o.window.right)
end

--- The gradients of sum(y * w) for one head, by plain loops over doubles: q [l][d], k [s][d], v [s][dv], w [l][dv].
--- o: is_causal, window, scale, softcap, and lists: mask [l][s], slope, sink, factor [l][s]; past: of the positions.
local function by_hand(q, k, v, w, o)
  local l, s, d, dv, past = #q, #k, #q[1], #v[1], o.past or 0
  local scale = o.scale or 1 / math.sqrt(d)
  local function zeros(rows, columns)
    local t = {}
    for i = 1, rows do
      t[i] = {}
      for j = 1, columns do t[i][j] = 0 end
    end
    return t
  end
  local g = { q = zeros(l, d), k = zeros(s, d), v = zeros(s, dv), mask = zeros(l, s), sink = 0, slope = 0 }
  for i = 1, l do
    local x, bend, most, sum = {}, {}, o.sink or -inf, 0
    for j = 1, s do
      local dot = 0
      for c = 1, d do dot = dot + q[i][c] * k[j][c] end
      x[j], bend[j] = dot * scale, 1
      if o.softcap then
        local e = math.exp(2 * x[j] / o.softcap)
        local t = (e - 1) / (e + 1)
        x[j], bend[j] = o.softcap * t, 1 - t * t
      end
      if o.mask then x[j] = x[j] + o.mask[i][j] end
      if o.slope then x[j] = x[j] - o.slope * math.abs(i + past - j) end
      if not in_window(o, i, j, past) then x[j] = -inf end
      most = math.max(most, x[j])
    end
    for j = 1, s do
      x[j] = x[j] == -inf and 0 or math.exp(x[j] - most)
      sum = sum + x[j]
    end
    if o.sink then sum = sum + math.exp(o.sink - most) end
    local delta, dp = 0, {}
    for j = 1, s do
      local factor = o.factor and o.factor[i][j] or 1
      x[j], dp[j] = sum > 0 and x[j] / sum or 0, 0
      for c = 1, dv do
        dp[j] = dp[j] + w[i][c] * v[j][c] * factor
        g.v[j][c] = g.v[j][c] + x[j] * factor * w[i][c]
      end
      delta = delta + x[j] * dp[j]
    end
    for j = 1, s do
      local ds = x[j] * (dp[j] - delta)
      g.mask[i][j] = ds
      g.slope = g.slope - ds * math.abs(i + past - j)
      for c = 1, d do
        g.q[i][c] = g.q[i][c] + ds * bend[j] * scale * k[j][c]
        g.k[j][c] = g.k[j][c] + ds * bend[j] * scale * q[i][c]
      end
    end
    if o.sink and sum > 0 then g.sink = g.sink - math.exp(o.sink - most) / sum * delta end
  end
  return g
end

--- Runs f with recording on; it is off again afterwards, whatever happens.
local function recorded(f)
  local was = heed.set_grad_enabled(true)
  local ok, problem = pcall(f)
  heed.set_grad_enabled(was)
  if not ok then error(problem, 0) end
end

local function leaf(...)
  return heed.randn(...):requires_grad_()
end

--- Calls attention and goes back from sum(y * w); returns y.
local function go_back(q, k, v, w, options)
  local y = heed.scaled_dot_product_attention(q, k, v, options)
  y:backward(w)
  return y
end

local function assert_close(x, y, tolerance)
  assert.are.same({ x.shape[1], x.shape[2] }, { y.shape[1], y.shape[2] })
  local apart = x:detach():sub(y:detach()):abs():max():item()
  local most = math.max(1, y:detach():abs():max():item())
  assert.is_true(apart <= (tolerance or 2e-6) * most, ("%g apart, the largest is %g"):format(apart, most))
end

local function lists(x)
  return x:detach():tolist()
end

describe("the gradient of attention", function()
  before_each(function() heed.manual_seed(7) end)

  local cases = {
    ["without options"] = {},
    ["with causality"] = { is_causal = true },
    ["with a window"] = { window = { left = 3, right = 1 } },
    ["with a scale"] = { scale = 0.3 },
    ["with a soft cap"] = { softcap = 1.5, scale = 0.8 },
    ["with a float mask, a soft cap and causality"] = { mask = true, softcap = 2, is_causal = true },
    ["with a slope"] = { slope = 0.2 },
    ["with a sink and a window"] = { sink = 0.4, window = { left = 2 } },
    ["with all of them"] = { mask = true, softcap = 3, slope = 0.1, sink = -0.3, is_causal = true, scale = 0.5 },
  }
  for name, case in pairs(cases) do
    it(name .. " is what loops over doubles give", function()
      recorded(function()
        for _, size in ipairs { { 5, 7, 4, 3 }, { 13, 40, 17, 20 }, { 40, 13, 8, 8 } } do
          local q, k, v = leaf(size[1], size[3]), leaf(size[2], size[3]), leaf(size[2], size[4])
          local w = heed.randn(size[1], size[4])
          local mask = case.mask and leaf(size[1], size[2])
          if mask then
            heed.no_grad(function() mask[2][3] = -inf end)
          end
          local sinks = case.sink and heed.tensor({ case.sink }):requires_grad_()
          local slopes = case.slope and heed.tensor({ case.slope }):requires_grad_()
          local options = { is_causal = case.is_causal, window = case.window, scale = case.scale,
                            softcap = case.softcap, attn_mask = mask or nil, sinks = sinks or nil,
                            alibi_slopes = slopes or nil }
          go_back(q, k, v, w, options)
          local o = {}
          for key, value in pairs(case) do o[key] = value end
          o.mask = mask and lists(mask) or nil
          local want = by_hand(lists(q), lists(k), lists(v), lists(w), o)
          assert_close(q.grad, heed.tensor(want.q))
          assert_close(k.grad, heed.tensor(want.k))
          assert_close(v.grad, heed.tensor(want.v))
          if mask then assert_close(mask.grad, heed.tensor(want.mask)) end
          if sinks then assert.is_true(math.abs(sinks.grad:item() - want.sink) < 1e-5) end
          if slopes then assert.is_true(math.abs(slopes.grad:item() - want.slope) < 1e-4) end
        end
      end)
    end)
  end

  it("of grouped keys and values is the sum over the heads of their group", function()
    recorded(function()
      local q, k, v, w = leaf(2, 4, 9, 8), leaf(2, 2, 11, 8), leaf(2, 2, 11, 6), heed.randn(2, 4, 9, 6)
      go_back(q, k, v, w)
      local own_q = q:detach():requires_grad_()
      local all_k = k:detach():repeat_interleave(2, 2):requires_grad_()
      local all_v = v:detach():repeat_interleave(2, 2):requires_grad_()
      go_back(own_q, all_k, all_v, w)
      assert.is_true(q.grad:equal(own_q.grad))
      assert_close(k.grad:flatten(1, 3), all_k.grad:view(2, 2, 2, 11, 8):sum(3):flatten(1, 3))
      assert_close(v.grad:flatten(1, 3), all_v.grad:view(2, 2, 2, 11, 6):sum(3):flatten(1, 3))
    end)
  end)

  it("of a mask is summed over everything that it is repeated for", function()
    recorded(function()
      local q, k, v = heed.randn(2, 3, 9, 8), heed.randn(2, 3, 11, 8), heed.randn(2, 3, 11, 6)
      local w = heed.randn(2, 3, 9, 6)
      local whole = leaf(2, 3, 9, 11)
      for _, shape in ipairs { { 9, 11 }, { 3, 9, 11 }, { 2, 1, 9, 11 }, { 1, 11 }, { 11 }, { 2, 3, 1, 11 } } do
        local mask = leaf(shape)
        whole.grad = nil
        heed.no_grad(function() whole:copy_(mask:expand(2, 3, 9, 11)) end)
        go_back(q, k, v, w, { attn_mask = mask, is_causal = true })
        go_back(q, k, v, w, { attn_mask = whole, is_causal = true })
        local sum = whole.grad
        for dim = 1, 4 do
          local size = shape[#shape - 4 + dim]
          if size == nil or size == 1 then sum = sum:sum(dim, true) end
        end
        assert_close(mask.grad:view(-1, 1), sum:reshape(-1, 1))
      end
    end)
  end)

  it("leaves out what dropout dropped, in both streams", function()
    for _, stream in ipairs { "native", "mkl" } do
      heed.set_dropout_stream(stream)
      local ok, problem = pcall(recorded, function()
        local q, k, w = leaf(6, 5), leaf(20, 5), heed.randn(6, 20)
        local v = heed.eye(20):requires_grad_() -- so that the output is the weights after dropout
        heed.manual_seed(3)
        local dropped = go_back(q, k, v, w, { dropout_p = 0.4 })
        local weights = q:detach():matmul(k:detach():transpose(1, 2)):div(math.sqrt(5)):softmax(2)
        local factor = dropped:detach():gt(0):float():div(0.6)
        assert_close(dropped, weights:mul(factor), 1e-6)
        local want = by_hand(lists(q), lists(k), lists(v), lists(w), { factor = lists(factor) })
        assert_close(q.grad, heed.tensor(want.q))
        assert_close(k.grad, heed.tensor(want.k))
        assert_close(v.grad, heed.tensor(want.v))
      end)
      heed.set_dropout_stream "native"
      if not ok then error(problem, 0) end
    end
  end)

  it("draws no other numbers when it is recorded", function()
    local q = heed.randn(2, 30, 8)
    heed.manual_seed(5)
    local y = heed.scaled_dot_product_attention(q, q, q, { dropout_p = 0.5 })
    local after = heed.rand(3)
    recorded(function()
      local x = q:clone():requires_grad_()
      heed.manual_seed(5)
      assert.is_true(heed.scaled_dot_product_attention(x, x, x, { dropout_p = 0.5 }):detach():equal(y))
      assert.is_true(heed.rand(3):equal(after))
    end)
  end)

  it("is zero for rows that see nothing, and ignores what hidden keys hold", function()
    recorded(function()
      local q, k, v, w = leaf(4, 8), leaf(6, 8), leaf(6, 8), heed.randn(4, 8)
      local mask = heed.ones(4, 6):bool()
      mask[2] = false
      mask[{ {}, 5 }] = false
      go_back(q, k, v, w, { attn_mask = mask })
      assert.is_true(q.grad[2]:equal(heed.zeros(8)))
      assert.is_true(k.grad[5]:equal(heed.zeros(8)))
      local clean = { q.grad, k.grad, v.grad }
      q.grad, k.grad, v.grad = nil, nil, nil
      heed.no_grad(function() k[5], v[5] = 0 / 0, inf end)
      go_back(q, k, v, w, { attn_mask = mask })
      assert_close(q.grad, clean[1], 1e-6)
      assert_close(k.grad, clean[2], 1e-6)
      assert_close(v.grad, clean[3], 1e-6)
    end)
  end)

  it("goes to past keys and values, and to what lengths leave visible", function()
    recorded(function()
      local q, k, v, w = leaf(3, 8), leaf(3, 8), leaf(3, 8), heed.randn(3, 8)
      local past_key, past_value = leaf(5, 8), leaf(5, 8)
      go_back(q, k, v, w, { past_key = past_key, past_value = past_value, is_causal = true })
      local all_k, all_v = heed.cat({ past_key, k }):detach(), heed.cat({ past_value, v }):detach()
      local want = by_hand(lists(q), lists(all_k), lists(all_v), lists(w), { is_causal = true, past = 5 })
      assert_close(q.grad, heed.tensor(want.q))
      assert_close(heed.cat { past_key.grad, k.grad }, heed.tensor(want.k))
      assert_close(heed.cat { past_value.grad, v.grad }, heed.tensor(want.v))

      local long = leaf(1, 1, 9, 8)
      q = leaf(1, 1, 2, 8)
      go_back(q, long, long, heed.randn(1, 1, 2, 8), { kv_lengths = heed.tensor({ 6 }, { dtype = "int64" }) })
      assert.is_true(long.grad[1][1]:narrow(1, 7, 3):equal(heed.zeros(3, 8)))
      assert.is_true(long.grad[1][1]:narrow(1, 1, 6):abs():sum():item() > 0)
    end)
  end)

  it("adds up where one tensor is queries, keys and values", function()
    recorded(function()
      local x, w = leaf(7, 8), heed.randn(7, 8)
      go_back(x, x, x, w, { is_causal = true })
      local want = by_hand(lists(x), lists(x), lists(x), lists(w), { is_causal = true })
      assert_close(x.grad, heed.tensor(want.q):add(heed.tensor(want.k)):add(heed.tensor(want.v)))
    end)
  end)

  it("is made for those inputs only that want it", function()
    recorded(function()
      local q, k, v = heed.randn(4, 8), leaf(6, 8), heed.randn(6, 8)
      go_back(q, k, v, heed.randn(4, 8))
      assert.is_nil(q.grad)
      assert.is_nil(v.grad)
      assert.are.equal(6, k.grad.shape[1])
      local low = heed.randn(6, 8):to "bfloat16"
      local x = leaf(4, 8)
      go_back(x, low, low, heed.ones(4, 8))
      local y = x:detach():requires_grad_()
      go_back(y, low:float(), low:float(), heed.ones(4, 8))
      assert_close(x.grad, y.grad, 1e-6)
    end)
  end)

  it("needs its inputs as they were", function()
    recorded(function()
      local q, k, v = leaf(4, 8), heed.randn(6, 8), heed.randn(6, 8)
      local y = heed.scaled_dot_product_attention(q, k, v)
      k:add_(1)
      raises("backward: input 2, [6, 8] of scaled_dot_product_attention, was changed in place by add, and its "
               .. "gradient needs the old elements; use the operation that makes a new tensor, or change a clone",
             function() y:sum():backward() end)
      assert.is_nil(q.grad)
    end)
  end)

  it("can be made again after memory was short", function()
    recorded(function()
      local q, k, v, w = leaf(64, 32), leaf(600, 32), leaf(600, 32), heed.randn(64, 32)
      local y = heed.scaled_dot_product_attention(q, k, v)
      collectgarbage() -- a call that lacks memory is made again after a collection
      collectgarbage()
      heed.limit { memory = heed.info().memory_in_use + 20000 }
      local ok, message = pcall(y.backward, y, w)
      heed.limit { memory = math.huge }
      assert.is_false(ok)
      assert.is_truthy(message:find("memory", 1, true), message)
      assert.is_nil(q.grad)
      assert.is_nil(v.grad)
      y:backward(w)
      assert.is_true(v.grad:abs():sum():item() > 0)
    end)
  end)
end)

-- A built-in attention module and its clone with a part in Lua, whose forward pass is composed of operations.
describe("the gradients of an attention module", function()
  local nn = heed.nn
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  local Same = nn.Module.class "Same"
  function Same:init(part) self.part = part end
  function Same:forward(x) return self.part(x) end

  local function gradients(m, x)
    x = x:clone():requires_grad_()
    local y = m(x)
    local weights = heed.range(1, y:numel()):view(y.shape):sin()
    y:mul(weights):sum():backward()
    local list = { x = x.grad }
    for name, parameter in m:named_parameters() do list[name:gsub("%.part%.", ".")] = parameter.grad end
    return list
  end

  local SETTINGS = {
    plain = {}, ["not causal"] = { causal = false }, alibi = { alibi = true }, sinks = { sinks = true },
    window = { window = { left = 2, right = 1 }, causal = false }, softcap = { softcap = 1.5 }, scale = { scale = 0.3 },
    rope = { rope = { base = 50 } }, norms = { qk_norm = true },
    several = { alibi = true, rope = { dims = 2 }, sinks = true, softcap = 2, window = { left = 3 } },
  }
  for name, settings in pairs(SETTINGS) do
    it("are those of its operations: " .. name, function()
      local options = { d_in = 5, d_out = 6, context_length = 9, dropout = 0, num_heads = 4, num_kv_heads = 2,
        head_dim = 4, qkv_bias = true }
      for key, value in pairs(settings) do options[key] = value end
      local m = nn.MultiHeadAttention(options)
      local other = m:clone()
      other.W_query = Same(other.W_query)
      local x = heed.randn(2, 7, 5)
      local wanted = gradients(other, x)
      for part, got in pairs(gradients(m, x)) do
        local most = wanted[part]:abs():max():item()
        assert.is_true((got - wanted[part]):abs():max():item() <= 1e-5 * math.max(most, 1), part)
      end
    end)
  end

  it("of a recorded forward with a part in Lua are the same for every mask, and its errors, too", function()
    local m = nn.MultiHeadAttention { d_in = 5, d_out = 4, context_length = 6, dropout = 0, num_heads = 2 }
    local other = m:clone()
    other.W_query = Same(other.W_query)
    local x = heed.randn(2, 4, 5)
    local function outcome(module, options)
      local y = x:clone():requires_grad_()
      local ok, result = pcall(module, y, options)
      if not ok then return (tostring(result):gsub("^[^ ]*:%d+: ", "")) end
      result:mul(heed.range(1, result:numel()):view(result.shape):sin()):sum():backward()
      return y.grad
    end
    local bool = { dtype = "bool" }
    for i, options in ipairs {
      { attn_mask = heed.randn(4, 4) }, { attn_mask = heed.ones(4, 2, bool) }, { attn_mask = heed.randn(4, 3) },
      { attn_mask = heed.randn(4, 1) }, { attn_mask = heed.randn(3, 3) }, { attn_mask = heed.randn(4, 5) },
      { key_padding_mask = heed.eye(4):narrow(1, 1, 2):bool() }, { key_padding_mask = heed.ones(2, 3, bool) },
      { key_padding_mask = heed.ones(2, 4) }, { kv_lengths = { 1, 4 } }, { kv_lengths = { 1, 5 } },
      { key = heed.randn(2, 3, 5) }, { key = heed.randn(1, 3, 5) }, { key = heed.randn(2, 7, 5) },
      { key = heed.randn(2, 3, 5), kv_lengths = { 2, 3 } }, { value = heed.randn(2, 4, 5) },
    } do
      local wanted, got = outcome(m, options), outcome(other, options)
      assert.are.equal(type(wanted), type(got), tostring(got))
      if type(wanted) == "string" then
        assert.are.equal(wanted, got)
      else
        assert.is_true((wanted - got):abs():max():item() <= 1e-5, ("options %d"):format(i))
      end
    end
  end)

  it("are refused with another softmax_dim, which parts in Lua do not have", function()
    local m = nn.CausalAttention(5, 4, 6, 0, { softmax_dim = 2 })
    m.W_query = Same(m.W_query)
    raises("CausalAttention: softmax_dim is 2; with hooks or parts in Lua it must be that of the keys, -1 or 3",
      function() m(heed.randn(2, 3, 5)) end)
  end)
end)
