-- heed.linear_attention and heed.causal_conv.
local heed = require "heed"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"
local close = tensors.close

-- ---- The recurrences in double precision ----------------------------------------------------------

local function empty(rows, columns)
  local t = {}
  for i = 1, rows do
    t[i] = {}
    for j = 1, columns do t[i][j] = 0 end
  end
  return t
end

--- One query head. q [n][d], k [n][d], v [n][dv], decay [n] or [n][d], beta [n], past [d][dv]: lists; decay and beta
--- may be nil. Returns out [n][dv] and the state [d][dv].
local function recurrence(q, k, v, decay, beta, past, scale)
  local n, d, dv = #q, #past, #past[1]
  local s, out = empty(d, dv), empty(n, dv)
  for c = 1, d do
    for m = 1, dv do s[c][m] = past[c][m] end
  end
  for t = 1, n do
    for c = 1, d do
      local g = decay and decay[t] or 0
      if type(g) == "table" then g = g[c] end
      for m = 1, dv do s[c][m] = s[c][m] * math.exp(g) end
    end
    for m = 1, dv do
      local u = v[t][m]
      if beta then
        for c = 1, d do u = u - s[c][m] * k[t][c] end
        u = u * beta[t]
      end
      for c = 1, d do
        s[c][m] = s[c][m] + k[t][c] * u
        out[t][m] = out[t][m] + scale * s[c][m] * q[t][c]
      end
    end
  end
  return out, s
end

--- The same for tensors [b, h, n, d]; options as those of heed.linear_attention.
local function by_hand(q, k, v, options)
  local b, hq, hkv, d, dv = q:size(1), q:size(2), k:size(2), q:size(-1), v:size(-1)
  local past = (options.past_state or heed.zeros(b, hkv, d, dv)):tolist()
  local decay, beta = options.decay and options.decay:tolist(), options.beta and options.beta:tolist()
  local outs, states = {}, {}
  q, k, v = q:tolist(), k:tolist(), v:tolist()
  for i = 1, b do
    outs[i], states[i] = {}, {}
    for h = 1, hq do
      local at = math.ceil(h * hkv / hq)
      outs[i][h], states[i][at] = recurrence(q[i][h], k[i][at], v[i][at], decay and decay[i][at],
        beta and (beta[i][at] or beta[i][1]), past[i][at], options.scale or 1 / math.sqrt(d))
    end
  end
  return heed.tensor(outs), heed.tensor(states)
end

local RULES = { "linear", "gated", "delta", "gated_delta" }

--- Inputs of a rule: q, k, v, options. Keys have about length 1. each: a decay for each row of the state.
local function inputs(rule, b, hq, hkv, n, d, dv, each)
  local options = { rule = rule, past_state = heed.randn(b, hkv, d, dv) }
  if rule:find "gated" then
    options.decay = each and -heed.rand(b, hkv, n, d) or -heed.rand(b, hkv, n)
  end
  if rule:find "delta" then options.beta = heed.rand(b, hkv, n) end
  return heed.randn(b, hq, n, d), heed.randn(b, hkv, n, d) / math.sqrt(d), heed.randn(b, hkv, n, dv), options
end

--- The tokens first…last of such inputs; past: the state before them.
local function part(q, k, v, options, first, last, past)
  local function cut(x) return x and x:narrow(3, first, last - first + 1) end
  return cut(q), cut(k), cut(v), {
    rule = options.rule, decay = cut(options.decay), beta = cut(options.beta), past_state = past,
  }
end

describe("heed.linear_attention", function()
  before_each(function() heed.manual_seed(7) end)

  for _, rule in ipairs(RULES) do
    it(("follows the recurrence of the rule %s"):format(rule), function()
      for _, sizes in ipairs {
        { 1, 1, 1, 1, 1, 1 }, { 2, 4, 2, 7, 3, 5 }, { 1, 2, 2, 66, 9, 4 }, { 2, 3, 1, 70, 4, 17 },
      } do
        local b, hq, hkv, n, d, dv = support.unpack(sizes)
        for _, each in ipairs(rule:find "gated" and { false, true } or { false }) do
          local q, k, v, options = inputs(rule, b, hq, hkv, n, d, dv, each)
          local wanted, last = by_hand(q, k, v, options)
          local y, state = heed.linear_attention(q, k, v, options)
          close(wanted, y, 1e-5)
          close(last, state, 1e-5)
        end
      end
    end)

    it(("gives the same numbers at once, in chunks and token by token with the rule %s"):format(rule), function()
      local q, k, v, options = inputs(rule, 1, 4, 2, 150, 8, 6, true)
      local y, state = heed.linear_attention(q, k, v, options)
      for _, step in ipairs { 1, 5, 64, 100 } do
        local ys, past = {}, options.past_state
        for first = 1, 150, step do
          local last = math.min(first + step - 1, 150)
          ys[#ys + 1], past = heed.linear_attention(part(q, k, v, options, first, last, past))
        end
        close(y, heed.cat(ys, 3), 5e-6, 2e-6)
        close(state, past, 5e-6, 2e-6)
      end
    end)
  end

  it("is linear attention without a rule and options, from zeros", function()
    local q, k, v = heed.randn(1, 2, 20, 4), heed.randn(1, 2, 20, 4), heed.randn(1, 2, 20, 3)
    local y, state = heed.linear_attention(q, k, v)
    close(((q:matmul(k:transpose(-1, -2))):tril():matmul(v)) / 2, y, 1e-5)
    close(k:transpose(-1, -2):matmul(v), state, 1e-5)
  end)

  it("selects the rule by what is given", function()
    local q, k, v, options = inputs("gated_delta", 1, 1, 1, 12, 4, 4)
    local wanted = heed.linear_attention(q, k, v, options)
    options.rule = nil
    assert.is_true(wanted:equal((heed.linear_attention(q, k, v, options))))
    options.beta = nil
    local gated = heed.linear_attention(q, k, v, options)
    options.rule = "gated"
    assert.is_true(gated:equal((q:linear_attention(k, v, options))))
  end)

  it("multiplies the results by scale, 1/√d by default", function()
    local q, k, v = heed.randn(1, 1, 9, 4), heed.randn(1, 1, 9, 4), heed.randn(1, 1, 9, 4)
    local y, state = heed.linear_attention(q, k, v, { scale = 0.5 })
    local same, same_state = heed.linear_attention(q, k, v)
    assert.is_true(y:equal(same) and state:equal(same_state))
    close(same * 6, (heed.linear_attention(q, k, v, { scale = 3 })), 1e-5)
    assert.are.equal(0, heed.linear_attention(q, k, v, { scale = 0 }):abs():max():item())
  end)

  it("lets all heads share a beta [b, 1, n]", function()
    local q, k, v, options = inputs("delta", 2, 4, 4, 30, 4, 4)
    options.beta = heed.rand(2, 1, 30)
    local y = heed.linear_attention(q, k, v, options)
    options.beta = options.beta:expand(2, 4, 30)
    assert.is_true(y:equal((heed.linear_attention(q, k, v, options))))
  end)

  it("reads views of any strides", function()
    local q, k, v, options = inputs("gated_delta", 2, 3, 3, 40, 6, 5, true)
    local y, state = heed.linear_attention(q, k, v, options)
    local function across(x) return x:transpose(2, 3):clone():transpose(2, 3) end
    local function inside(x) return x:transpose(-1, -2):clone():transpose(-1, -2) end
    for _, view in ipairs { across, inside } do
      local other, last = heed.linear_attention(view(q), view(k), view(v), {
        decay = view(options.decay), beta = inside(options.beta), past_state = inside(options.past_state),
      })
      assert.is_true(y:equal(other) and state:equal(last))
    end
    local other = heed.linear_attention(across(q), k, v, options)
    assert.is_true(other:transpose(2, 3):is_contiguous()) -- the result lies in memory as q does
  end)

  it("forgets what was before a decay of -inf, and survives large ones", function()
    for _, each in ipairs { false, true } do
      local q, k, v, options = inputs("gated_delta", 1, 1, 1, 100, 4, 4, each)
      options.decay[{ {}, {}, { 71, 71 } }] = -heed.inf
      options.decay[{ {}, {}, { 20, 30 } }] = -1e30
      local y = heed.linear_attention(q, k, v, options)
      close((by_hand(q, k, v, options)), y, 1e-5)
      local tail = part(q, k, v, options, 71, 100)
      assert.are.equal(30, tail:size(3))
      close(y:narrow(3, 71, 30), (heed.linear_attention(part(q, k, v, options, 71, 100))), 1e-5)
    end
  end)

  it("takes empty tensors", function()
    local past = heed.randn(1, 2, 3, 4)
    local y, state = heed.linear_attention(heed.zeros(1, 2, 0, 3), heed.zeros(1, 2, 0, 3), heed.zeros(1, 2, 0, 4),
      { past_state = past })
    assert.are.equal("heed.Size([1, 2, 0, 4])", tostring(y.shape))
    assert.is_true(state:equal(past))
    y = heed.linear_attention(heed.zeros(1, 2, 5, 0), heed.zeros(1, 2, 5, 0), heed.ones(1, 2, 5, 4))
    assert.are.equal(0, y:abs():max():item())
    y = heed.linear_attention(heed.zeros(0, 0, 5, 2), heed.zeros(0, 0, 5, 2), heed.ones(0, 0, 5, 4))
    assert.are.equal("heed.Size([0, 0, 5, 4])", tostring(y.shape))
  end)

  it("gives the same bits with any number of threads", function()
    local q, k, v, options = inputs("gated_delta", 2, 6, 3, 200, 16, 16)
    local y, state = heed.linear_attention(q, k, v, options)
    for threads = 2, 4 do
      heed.set_num_threads(threads)
      local other, last = heed.linear_attention(q, k, v, options)
      heed.set_num_threads(1)
      assert.is_true(y:equal(other) and state:equal(last))
    end
  end)

  it("changes nothing if memory runs out", function()
    local q, k, v, options = inputs("gated_delta", 1, 2, 2, 100, 64, 64)
    collectgarbage()
    heed.limit { memory = heed.info().memory_in_use + 100000 }
    local ok, message = pcall(heed.linear_attention, q, k, v, options)
    heed.limit { memory = heed.inf }
    assert.is_false(ok)
    assert.is_truthy(message:find "linear_attention: ")
    close((by_hand(q, k, v, options)), (heed.linear_attention(q, k, v, options)), 1e-5)
  end)

  it("explains what is wrong", function()
    local q, k, v = heed.ones(2, 4, 7, 3), heed.ones(2, 2, 7, 3), heed.ones(2, 2, 7, 5)
    local f = heed.linear_attention
    local decay, beta = heed.zeros(2, 2, 7), heed.zeros(2, 2, 7)
    local function refused(message, ...)
      local arguments, n = { ... }, select("#", ...)
      raises("linear_attention: " .. message, function() return (f(support.unpack(arguments, 1, n))) end)
    end
    refused("rule is a string ('gated delta'); it must be 'linear', 'gated', 'delta' or 'gated_delta'" ..
      "; did you mean 'gated_delta'?", q, k, v, { rule = "gated delta" })
    refused("beta is nil; it must be a tensor with rule = 'delta'", q, k, v, { rule = "delta" })
    refused("decay is nil; it must be a tensor with rule = 'gated_delta'", q, k, v,
      { rule = "gated_delta", beta = beta })
    refused("decay is a tensor of shape [2, 2, 7] and dtype float32; it must be nil with rule = 'delta'" ..
      "; use rule = 'gated_delta'", q, k, v, { rule = "delta", beta = beta, decay = decay })
    refused("k is [2, 2, 6, 3] and q is [2, 4, 7, 3]; their batch, tokens and head size must be equal", q,
      heed.ones(2, 2, 6, 3), v)
    refused("v is [2, 1, 7, 5] and k is [2, 2, 7, 3]; their batch, heads and tokens must be equal", q, k,
      heed.ones(2, 1, 7, 5))
    refused("q is [2, 3, 7, 3] and k is [2, 2, 7, 3]; the number of heads of q must be a multiple of that of k",
      heed.ones(2, 3, 7, 3), k, v)
    refused("q is [4, 7, 3]; it must be [b, heads, n, d]", heed.ones(4, 7, 3), k, v)
    refused("v is int64; it must be float32: convert with v:float()", q, k, v:long())
    refused("k is bfloat16; it must be float32: convert with k:float()", q, k:to "bfloat16", v)
    refused("decay is [2, 4, 7] and k is [2, 2, 7, 3]; decay must be [b, heads of k, n] or have the shape of k", q, k,
      v, { decay = heed.zeros(2, 4, 7) })
    refused("beta is [2, 2, 7, 3] and k is [2, 2, 7, 3]; beta must be [b, heads of k, n] or [b, 1, n]", q, k, v,
      { beta = heed.zeros(2, 2, 7, 3) })
    refused("past_state is [2, 2, 5, 3]; it must be [b, heads of k, d, dv], here [2, 2, 3, 5]", q, k, v,
      { past_state = heed.zeros(2, 2, 5, 3) })
    refused("scale is inf; it must be finite", q, k, v, { scale = heed.inf })
    refused("there is no option 'betas'; the options are rule, decay, beta, past_state, scale; did you mean 'beta'?", q,
      k, v, { betas = beta })
    refused("v is nil; it must be a tensor", q, k)
  end)
end)

-- ---- The convolution ------------------------------------------------------------------------------

--- x [b, channels, n], weight [channels, k]; by plain loops over doubles.
local function convolved(x, weight, bias, past, silu)
  local b, channels, n, k = x:size(1), x:size(2), x:size(3), weight:size(-1)
  local padded = heed.cat({ past or heed.zeros(b, channels, k - 1), x }, -1):tolist()
  weight, bias = weight:view(channels, k):tolist(), bias and bias:tolist()
  local out = {}
  for i = 1, b do
    out[i] = {}
    for c = 1, channels do
      out[i][c] = {}
      for t = 1, n do
        local sum = bias and bias[c] or 0
        for j = 1, k do sum = sum + weight[c][j] * padded[i][c][t + j - 1] end
        out[i][c][t] = silu and sum / (1 + math.exp(-sum)) or sum
      end
    end
  end
  return heed.tensor(out)
end

describe("heed.causal_conv", function()
  before_each(function() heed.manual_seed(7) end)

  it("filters each channel with its own taps", function()
    for _, sizes in ipairs { { 1, 1, 1, 1 }, { 2, 3, 5, 4 }, { 1, 17, 40, 3 }, { 2, 20, 3, 6 }, { 1, 2, 9, 1 } } do
      local b, channels, n, k = support.unpack(sizes)
      local x, weight, bias = heed.randn(b, channels, n), heed.randn(channels, k), heed.randn(channels)
      local past = heed.randn(b, channels, k - 1)
      for _, silu in ipairs { false, true } do
        local activation = silu and "silu" or "none"
        close(convolved(x, weight, nil, nil, silu), (heed.causal_conv(x, weight, { activation = activation })), 1e-5)
        local wanted = convolved(x, weight, bias, past, silu)
        local options = { bias = bias, past_state = past, activation = activation }
        local y, state = x:causal_conv(weight:view(channels, 1, k), options)
        close(wanted, y, 1e-5)
        assert.is_true(state:equal(heed.cat({ past, x }, -1):narrow(-1, n + 1, k - 1)))
        local across = x:transpose(2, 3):clone():transpose(2, 3)
        y = heed.causal_conv(across, weight, options)
        close(wanted, y, 1e-5)
        assert.is_true(n == 1 or channels == 1 or y:transpose(2, 3):is_contiguous())
      end
    end
  end)

  it("continues from the state of an earlier call", function()
    local x, weight = heed.randn(2, 5, 30), heed.randn(5, 4)
    local y, state = heed.causal_conv(x, weight, { activation = "swish" })
    for _, step in ipairs { 1, 2, 7 } do
      local ys, past = {}, nil
      for first = 1, 30, step do
        ys[#ys + 1], past = heed.causal_conv(x:narrow(3, first, math.min(step, 31 - first)), weight,
          { past_state = past, activation = "silu" })
      end
      close(y, heed.cat(ys, 3), 1e-6)
      assert.is_true(state:equal(past))
    end
  end)

  it("takes empty tensors", function()
    local past = heed.randn(1, 2, 3)
    local y, state = heed.causal_conv(heed.zeros(1, 2, 0), heed.ones(2, 4), { past_state = past })
    assert.are.equal("heed.Size([1, 2, 0])", tostring(y.shape))
    assert.is_true(state:equal(past))
    y, state = heed.causal_conv(heed.zeros(0, 2, 3), heed.ones(2, 1))
    assert.are.equal("heed.Size([0, 2, 3]) heed.Size([0, 2, 0])", tostring(y.shape) .. " " .. tostring(state.shape))
  end)

  it("explains what is wrong", function()
    local x, weight = heed.ones(2, 3, 5), heed.ones(3, 4)
    local function refused(message, ...)
      local arguments, n = { ... }, select("#", ...)
      raises("causal_conv: " .. message, function()
        return (heed.causal_conv(support.unpack(arguments, 1, n)))
      end)
    end
    refused("x is [3, 5]; it must be [b, channels, n]", heed.ones(3, 5), weight)
    refused("weight is [4, 3] and x is [2, 3, 5]; weight must be [channels, k] or [channels, 1, k]", x, heed.ones(4, 3))
    refused("weight is [3, 2, 4] and x is [2, 3, 5]; weight must be [channels, k] or [channels, 1, k]", x,
      heed.ones(3, 2, 4))
    refused("weight is [3, 0]; its last size must be at least 1", x, heed.ones(3, 0))
    refused("bias is [2] and x is [2, 3, 5]; bias must be [channels]", x, weight, { bias = heed.ones(2) })
    refused("past_state is [2, 3, 4]; it must be [b, channels, k - 1], here [2, 3, 3]", x, weight,
      { past_state = heed.ones(2, 3, 4) })
    refused("activation is a string ('slu'); it must be 'silu', 'swish' or 'none'; did you mean 'silu'?", x, weight,
      { activation = "slu" })
    refused("x is int64; it must be float32: convert with x:float()", x:long(), weight)
    refused("there is no option 'padding'; the options are bias, past_state, activation", x, weight, { padding = 1 })
  end)
end)

-- ---- Values of ONNX -------------------------------------------------------------------------------

describe("ONNX's case", function()
  for _, case in ipairs(dofile "tests/golden/linear_attention.lua") do
    if case.inputs then
      it(case.name, function()
        local options, x = {}, {}
        for name, value in pairs(case.options) do
          options[name] = type(value) == "table" and tensors.golden(value) or value
        end
        for i, value in ipairs(case.inputs) do x[i] = tensors.golden(value) end
        x[#x + 1] = options
        local y, state = heed[case.call](support.unpack(x))
        close(tensors.golden(case.results[1]), y, case.tolerance, case.tolerance)
        close(tensors.golden(case.results[2]), state, case.tolerance, case.tolerance)
      end)
    end
  end
end)

-- ---- Gradients ------------------------------------------------------------------------------------

describe("the gradients", function()
  before_each(function()
    heed.manual_seed(3)
    heed.set_grad_enabled(true)
  end)
  after_each(function() heed.set_grad_enabled(false) end)

  --- Those of a rule in a table, by heed.linear_attention or by operations of heed.
  local function gradients(of, q, k, v, options, dy, dstate)
    local names, leaves = { "q", "k", "v", "decay", "beta", "past_state" }, {}
    local given = { q = q, k = k, v = v }
    for _, name in ipairs(names) do
      local x = given[name] or options[name]
      leaves[name] = x and x:clone():requires_grad_()
    end
    local y, state = of(leaves.q, leaves.k, leaves.v, {
      decay = leaves.decay, beta = leaves.beta, past_state = leaves.past_state, scale = options.scale,
    })
    local loss = (y * dy):sum() + (state * dstate):sum()
    loss:backward()
    local found = {}
    for _, name in ipairs(names) do found[name] = leaves[name] and leaves[name].grad end
    return found
  end

  --- The recurrence in recorded operations.
  local function in_operations(q, k, v, o)
    local n, group, ys, s = q:size(3), q:size(2) / k:size(2), {}, o.past_state
    local function at(x, t) return x[{ {}, {}, { t, t } }]:transpose(-1, -2) end -- [b, h, d, 1]
    for t = 1, n do
      if o.decay then
        s = s * (o.decay.ndim == 4 and at(o.decay, t) or o.decay[{ {}, {}, { t, t } }]:unsqueeze(-1)):exp()
      end
      local key, u = at(k, t), v[{ {}, {}, { t, t } }] -- u [b, h, 1, dv]
      if o.beta then u = (u - key:transpose(-1, -2):matmul(s)) * o.beta[{ {}, {}, { t, t } }]:unsqueeze(-1) end
      s = s + key:matmul(u)
      ys[t] = q[{ {}, {}, { t, t } }]:matmul(s:repeat_interleave(group, 2)) * (o.scale or 1 / math.sqrt(q:size(-1)))
    end
    return heed.cat(ys, 3), s
  end

  for _, rule in ipairs(RULES) do
    it(("are those of the recurrence with the rule %s"):format(rule), function()
      for _, each in ipairs(rule:find "gated" and { false, true } or { false }) do
        for _, n in ipairs { 1, 5, 70 } do
          local q, k, v, options = inputs(rule, 2, 4, 2, n, 5, 3, each)
          if options.beta then options.beta = heed.rand(2, 1, n) end
          local dy, dstate = heed.randn(2, 4, n, 3), heed.randn(2, 2, 5, 3)
          local wanted = gradients(in_operations, q, k, v, options, dy, dstate)
          local found = gradients(heed.linear_attention, q, k, v, options, dy, dstate)
          for name, x in pairs(wanted) do close(x, found[name], 2e-5 * math.max(1, x:abs():max():item())) end
        end
      end
    end)
  end

  it("of linear attention are only computed where they are wanted", function()
    local q, k, v, options = inputs("gated_delta", 1, 2, 2, 70, 4, 4)
    v:requires_grad_()
    local y, state = heed.linear_attention(q, k, v, options)
    assert.are.equal("<LinearAttentionBackward>", y.grad_fn)
    state:sum():backward() -- without a gradient of y
    assert.is_nil(q.grad)
    local dv = v.grad
    v.grad = nil
    y, state = heed.linear_attention(q, k, v, options)
    local loss = (y * 0):sum() + state:sum()
    loss:backward()
    close(dv, v.grad, 1e-6)
  end)

  it("of linear attention have the same bits with any number of threads", function()
    local q, k, v, options = inputs("gated_delta", 2, 4, 2, 130, 16, 16)
    local dy, dstate = heed.randn(2, 4, 130, 16), heed.randn(2, 2, 16, 16)
    local wanted = gradients(heed.linear_attention, q, k, v, options, dy, dstate)
    heed.set_num_threads(3)
    local found = gradients(heed.linear_attention, q, k, v, options, dy, dstate)
    heed.set_num_threads(1)
    for name, x in pairs(wanted) do assert.is_true(x:equal(found[name])) end
  end)

  it("of the convolution are those of differences", function()
    for _, sizes in ipairs { { 2, 3, 7, 4 }, { 1, 2, 2, 4 }, { 2, 2, 5, 1 } } do
      local b, channels, n, k = support.unpack(sizes)
      local dy, dstate = heed.randn(b, channels, n), heed.randn(b, channels, k - 1)
      for _, activation in ipairs { "none", "silu" } do
        local function f(x, weight, bias, past)
          local y, state = heed.causal_conv(x, weight, { bias = bias, past_state = past, activation = activation })
          return (y * dy):sum() + (state * dstate):sum()
        end
        assert.is_true(heed.autograd.gradcheck(f, {
          heed.randn(b, channels, n), heed.randn(channels, 1, k), heed.randn(channels), heed.randn(b, channels, k - 1),
        }, { tolerance = 5e-3 }))
      end
    end
  end)
end)
