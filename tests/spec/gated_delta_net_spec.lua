-- nn.GatedDeltaNet and its cache.
local fails = require "tests.fails"
local heed = require "heed"
local tensors = require "tests.tensors"
local nn = heed.nn
local close = tensors.close

--- The module in double precision, by plain loops, on x [n][hidden] with the lists of its state dict.
local function by_hand(m, x)
  local state = {}
  for name, t in heed.pairs(m:state_dict()) do state[name] = t:tolist() end
  local hk, hv, dk, dv = m.num_key_heads, m.num_value_heads, m.key_head_dim, m.value_head_dim
  local group, taps = hv / hk, m.conv_kernel_size
  local function project(weight, row)
    local out = {}
    for i, w in ipairs(weight) do
      out[i] = 0
      for j, value in ipairs(w) do out[i] = out[i] + value * row[j] end
    end
    return out
  end
  local mixed, z, beta, decay = {}, {}, {}, {}
  for t, row in ipairs(x) do
    local all, ba = project(state["in_proj_qkvz.weight"], row), project(state["in_proj_ba.weight"], row)
    local wide, q, k, v = 2 * dk + 2 * group * dv, {}, {}, {}
    mixed[t], z[t], beta[t], decay[t] = {}, {}, {}, {}
    for h = 0, hk - 1 do
      for c = 1, dk do
        q[#q + 1], k[#k + 1] = all[h * wide + c], all[h * wide + dk + c]
      end
      for c = 1, group * dv do
        v[#v + 1], z[t][#z[t] + 1] = all[h * wide + 2 * dk + c], all[h * wide + 2 * dk + group * dv + c]
      end
      for g = 1, group do
        local head, a = h * group + g, ba[h * 2 * group + group + g]
        beta[t][head] = 1 / (1 + math.exp(-ba[h * 2 * group + g]))
        decay[t][head] = -math.exp(state.A_log[head]) * math.log(1 + math.exp(a + state.dt_bias[head]))
      end
    end
    for _, part in ipairs { q, k, v } do
      for _, value in ipairs(part) do table.insert(mixed[t], value) end
    end
  end
  local filtered = {}
  for t in ipairs(x) do
    filtered[t] = {}
    for c, weight in ipairs(state["conv1d.weight"]) do
      local sum = 0
      for j = 1, taps do
        local from = mixed[t - taps + j]
        sum = sum + weight[1][j] * (from and from[c] or 0)
      end
      filtered[t][c] = sum / (1 + math.exp(-sum))
    end
  end
  local out, states = {}, {}
  for t, row in ipairs(filtered) do
    local joined = {}
    for h = 1, hv do
      local key_head = math.ceil(h / group) - 1
      local function unit(first)
        local square, part = 0, {}
        for c = 1, dk do square = square + row[first + key_head * dk + c] ^ 2 end
        for c = 1, dk do part[c] = row[first + key_head * dk + c] / math.sqrt(square + 1e-6) end
        return part
      end
      local q, k, s = unit(0), unit(hk * dk), states[h] or {}
      states[h] = s
      for c = 1, dk do
        s[c] = s[c] or {}
        for i = 1, dv do s[c][i] = (s[c][i] or 0) * math.exp(decay[t][h]) end
      end
      local y, square = {}, 0
      for i = 1, dv do
        local u = row[2 * hk * dk + (h - 1) * dv + i]
        for c = 1, dk do u = u - s[c][i] * k[c] end
        y[i] = 0
        for c = 1, dk do
          s[c][i] = s[c][i] + k[c] * u * beta[t][h]
          y[i] = y[i] + s[c][i] * q[c] / math.sqrt(dk)
        end
        square = square + y[i] ^ 2
      end
      for i = 1, dv do
        local gate = z[t][(h - 1) * dv + i]
        local normal = y[i] / math.sqrt(square / dv + m.eps) * state["norm.weight"][i]
        joined[#joined + 1] = normal * gate / (1 + math.exp(-gate))
      end
    end
    out[t] = project(state["out_proj.weight"], joined)
  end
  return heed.tensor(out)
end

describe("nn.GatedDeltaNet", function()
  before_each(function() heed.manual_seed(5) end)

  local function small() return nn.GatedDeltaNet(10, 4, { num_key_heads = 2, key_head_dim = 3, value_head_dim = 5 }) end

  it("goes on from the states of another cache", function()
    local m, x = small(), heed.randn(2, 9, 10)
    local cache = m:new_cache { batch = 2 }
    m(x[{ {}, { 1, 5 } }], { cache = cache })
    local other = m:new_cache { conv_state = cache.conv_state, state = cache.state, length = cache.length }
    assert.are.equal("heed.StateCache(length=5, batch=2)", tostring(other))
    local rest = x[{ {}, { 6, 9 } }]
    assert.is_true(m(rest, { cache = other }):equal(m(rest, { cache = cache })))
    assert.are.equal(9, other.length)
  end)

  it("says which states do not fit", function()
    local m = small()
    local cache = m:new_cache { batch = 2 }
    m(heed.randn(2, 5, 10), { cache = cache })
    local conv_state, state = cache.conv_state, cache.state
    local function refuses(message, given)
      local ok, found = pcall(function() return m:new_cache(given) end)
      assert.is_false(ok)
      assert.is_truthy(found:find("new_cache: " .. message, 1, true), found)
    end
    refuses("state is nil; it must be a tensor; conv_state and state are given together, as another cache has them",
      { conv_state = conv_state, batch = 2 })
    refuses("conv_state is nil; it must be a tensor; conv_state and state", { state = state })
    refuses("conv_state is a tensor of shape [2, 32, 3] and dtype float32; it must be float32 [3, 32, 3]",
      { conv_state = conv_state, state = state, length = 5, batch = 3 })
    refuses("state is a tensor of shape [2, 4, 5, 3] and dtype float32; it must be float32 [2, 4, 3, 5]",
      { conv_state = conv_state, state = state:transpose(3, 4), length = 5 })
    refuses("state is a tensor of shape [2, 4, 3, 5] and dtype int64; it must be float32 [2, 4, 3, 5]",
      { conv_state = conv_state, state = state:long(), length = 5 })
    refuses("length is nil; it must be", { conv_state = conv_state, state = state })
    refuses("length is given without conv_state and state; give all three, or none", { length = 5 })
  end)

  it("computes what plain loops compute", function()
    for _, n in ipairs { 1, 3, 70 } do
      local m, x = small(), heed.randn(n, 10)
      local y = m(x)
      close(by_hand(m, x:tolist()), y, 1e-5)
      close(y:unsqueeze(1), m(x:unsqueeze(1)), 1e-6)
    end
  end)

  -- Gradients are sums of terms that cancel: the largest element tells how far rounding may move each of them.
  local function close_gradients(wanted, got)
    wanted = tensors.golden(wanted)
    close(wanted, got, 1e-5 * wanted:abs():max():item())
  end

  for _, case in ipairs(dofile "tests/golden/linear_attention.lua") do
    if case.call == "GatedDeltaNet" then
      it("has the results and gradients of transformers with " .. case.name, function()
        local m, state = nn.GatedDeltaNet(10, case.value_heads, case.settings), {}
        for _, entry in ipairs(case.state) do state[entry.name] = tensors.golden(entry.value) end
        m:load_state_dict(state)
        heed.enable_grad(function()
          local x = tensors.golden(case.x):requires_grad_()
          local y = m(x)
          close(tensors.golden(case.y), y, 1e-5)
          local loss = (y * tensors.golden(case.factor)):sum()
          loss:backward()
          close_gradients(case.dx, x.grad)
          local parameters = {}
          for name, p in m:named_parameters() do parameters[name] = p end
          for _, entry in ipairs(case.gradients) do close_gradients(entry.value, parameters[entry.name].grad) end
        end)
      end)
    end
  end

  it("continues a sequence from its cache with the same results", function()
    local m, x = small(), heed.randn(2, 90, 10)
    local y = m(x)
    for _, step in ipairs { 1, 7, 64 } do
      local cache, ys = m:new_cache { batch = 2 }, {}
      for first = 1, 90, step do
        ys[#ys + 1] = m(x:narrow(2, first, math.min(step, 91 - first)), { cache = cache })
      end
      close(y, heed.cat(ys, 2), 5e-6)
      assert.are.equal(90, cache.length)
    end
  end)

  it("has a cache of one size, which can be cloned, reordered and reset", function()
    local m, x = small(), heed.randn(2, 6, 10)
    local cache = m:new_cache(2)
    m(x, { cache = cache })
    assert.are.equal("heed.Size([2, 32, 3]) heed.Size([2, 4, 3, 5])",
      tostring(cache.conv_state.shape) .. " " .. tostring(cache.state.shape))
    assert.are.equal("heed.StateCache(length=6, batch=2)", tostring(cache))
    local copy, last = cache:clone(), heed.randn(2, 1, 10)
    local y = m(last, { cache = cache })
    assert.is_true(y:equal(m(last, { cache = copy })))
    cache:reorder { 2, 1, 2 }
    copy:reorder(tensors.int64 { 2, 1, 2 })
    assert.are.equal(3, cache.batch)
    local token = heed.randn(3, 1, 10)
    y = m(token, { cache = cache })
    close(y[1], m(token, { cache = copy })[1])
    cache:reset()
    cache:reorder { 1 }
    close(m(x[{ { 1, 1 } }]), m(x[{ { 1, 1 } }], { cache = cache }), 1e-6)
  end)

  it("leaves a cache as it is if a call fails", function()
    local m, x = small(), heed.randn(1, 4, 10)
    local cache = m:new_cache()
    m(x, { cache = cache })
    local state = cache.state
    m.out_proj:register_forward_hook(function() error "stopped" end)
    assert.is_false((pcall(m, x, { cache = cache })))
    assert.are.equal(4, cache.length)
    assert.is_true(state:equal(cache.state))
  end)

  it("refuses a cache that a hook used during the call", function()
    heed.manual_seed(3)
    local m = nn.GatedDeltaNet(8, 2):eval()
    local cache, x, busy = m:new_cache(), heed.randn(1, 3, 8), false
    local hook = m.conv1d:register_forward_hook(function()
      if busy then return end
      busy = true
      m(x, { cache = cache })
    end)
    fails("GatedDeltaNet: the cache was used by another call during the forward pass; give each call a cache of its " ..
      "own", m, x, { cache = cache })
    hook:remove()
    local fresh = m:new_cache()
    m(x, { cache = fresh })
    assert.are.equal(3, cache.length)
    assert.is_true(m(x, { cache = cache }):equal(m(x, { cache = fresh })))
  end)

  it("works with weights of bfloat16, and in a training loop", function()
    local m, x = small(), heed.randn(1, 20, 10)
    local y = m(x)
    m:to "bfloat16"
    close(y, m(x), 0.05)
    m:to "float32"
    heed.enable_grad(function()
      local optimizer, first, loss = heed.optim.Adam(m:parameters(), { lr = 0.01 }), nil, nil
      for _ = 1, 20 do
        optimizer:zero_grad()
        loss = (m(x) - 1):square():mean()
        first = first or loss:item()
        loss:backward()
        optimizer:step()
      end
      assert.is_true(loss:item() < first / 2)
    end)
  end)

  it("prints its sizes and parts", function()
    assert.are.equal([[
GatedDeltaNet(
  8, num_value_heads=2, num_key_heads=2, key_head_dim=4, value_head_dim=4, eps=1e-06
  (conv1d): CausalConv1d(24, kernel_size=4)
  (in_proj_qkvz): Linear(in_features=8, out_features=32, bias=False)
  (in_proj_ba): Linear(in_features=8, out_features=4, bias=False)
  (norm): RMSNorm((4,), eps=1e-06, elementwise_affine=True)
  (out_proj): Linear(in_features=8, out_features=8, bias=False)
)]], tostring(nn.GatedDeltaNet(8, 2)))
  end)

  it("explains what is wrong", function()
    local m, x = small(), heed.randn(2, 3, 10)
    fails("GatedDeltaNet: hidden_size is nil; it must be an integer, at least 1", nn.GatedDeltaNet)
    fails("GatedDeltaNet: num_value_heads is 4 and num_key_heads is 3; the second must divide the first",
      nn.GatedDeltaNet, 8, 4, 3)
    fails("GatedDeltaNet: hidden_size is 8 and num_value_heads is 3; give key_head_dim, or a size that is a multiple",
      nn.GatedDeltaNet, 8, 3)
    fails("GatedDeltaNet: x is a tensor of shape [2, 3, 9] and dtype float32; it must be [b, n, 10] or [n, 10]", m,
      heed.ones(2, 3, 9))
    fails("GatedDeltaNet: cache is a table; it must be a heed.StateCache, which new_cache makes", m, x, { cache = {} })
    fails("GatedDeltaNet: x has 2 sequences and the cache 1; these numbers must be equal", m, x,
      { cache = m:new_cache() })
    local other = nn.GatedDeltaNet(10, 2)
    local cache = other:new_cache(2)
    other(x, { cache = cache })
    fails("GatedDeltaNet: cache is one of a module with other sizes; use this module's new_cache", m, x,
      { cache = cache })
    fails("reorder: indices[1] is the number 1.5; it must be an integer", cache.reorder, cache, { 1.5 })
    fails("reorder: element 2 of indices is 3; it must be from 1 to 2, the batch size", cache.reorder, cache, { 1, 3 })
    fails("reorder: element 1 of indices is -1; it must be from 1 to 2, the batch size", cache.reorder, cache, { -1 })
    fails("reorder: indices is a tensor of shape [0] and dtype int64; it must be a list of items of the batch",
      cache.reorder, cache, {})
    fails("reorder: element 1 of indices is 3; it must be from 1 to 2, the batch size", cache.reorder, m:new_cache(2),
      { 3 })
    fails("new_cache: batch is the number 0; it must be an integer, at least 1", m.new_cache, m, 0)
    fails("a heed.StateCache has no field 'size'; it has length, batch, conv_state, state, clone, reset and reorder",
      function() return cache.size end)
    fails("the field 'length' of a heed.StateCache cannot be set; all of its fields are read-only",
      function() cache.length = 0 end)
    fails("reset: self is nil; it must be a heed.StateCache; call the method with a colon", cache.reset)
  end)
end)
