-- tensor_parallel: modules whose weights are divided among the ranks.
local heed = require "heed"
local oracle = require "heed.nn.oracle"
local split = require("heed.parallel.place").split
local ranks = require "tests.ranks"
local assert = require "luassert"
local small = require "tests.small_models"
local tensors = require "tests.tensors"
local dist, rank, size, nn = ranks.dist, ranks.rank, ranks.size, heed.nn
local describe, it, with, message_of = ranks.describe, ranks.it, ranks.with, ranks.message_of

local D, N = 48, 33 -- features and tokens

local function attention(options)
  local config = {
    d_in = D, d_out = D, context_length = 64, dropout = 0, num_heads = 24, num_kv_heads = 12, head_dim = 4,
    qkv_bias = true,
  }
  for name, value in pairs(options or {}) do config[name] = value end
  heed.manual_seed(7)
  return nn.MultiHeadAttention(config)
end

local OPTIONS = { -- in order: the ranks go through them together
  { "no further options" },
  { "no biases", { qkv_bias = false, out_bias = false } },
  { "rotary positions", { rope = { base = 500 } } },
  { "norms of queries and keys", { qk_norm = { eps = 1e-4 } } },
  { "sinks and a window", { sinks = true, window = { left = 5 } } },
  { "a soft cap, not causal", { softcap = 2, causal = false } },
  { "as many key heads as heads", { num_kv_heads = 24 } },
}

local function input()
  heed.manual_seed(8)
  return heed.randn(2, N, D)
end

local function largest(x) return x:abs():max():item() end

-- This rank's part of `count` things: the first and their number.
local function own(count) return (rank - 1) * math.floor(count / size) + 1, math.floor(count / size) end

describe("tensor_parallel of attention", function()
  for _, case in ipairs(OPTIONS) do
    it("is as exact as one process, with " .. case[1], function()
      local m, x = attention(case[2]), input()
      local t = dist.tensor_parallel(m:clone())
      local exact = {}
      for i = 1, 2 do exact[i] = oracle.pass(m, m, {}, nil, i, x[i]:tolist(), x[i]:tolist(), x[i]:tolist(), {}).y end
      exact = heed.tensor(exact)
      local one, all = largest(m(x) - exact), largest(t(x) - exact)
      assert.is_true(all <= 2 * one, ("error %g; one process has %g"):format(all, one))
      assert.are.equal(24 / size, t.num_heads)
    end)

    it("has the gradients of one process, with " .. case[1], function()
      heed.enable_grad(function()
        local m, x = attention(case[2]), input()
        local t, xt = dist.tensor_parallel(m:clone()), x:clone():requires_grad_(true)
        t:load_state_dict(t:state_dict(), { assign = true }) -- other parameters on the same elements
        x:requires_grad_(true)
        local w = heed.randn(2, N, D)
        ;(m(x) * w):sum():backward()
        ;(t(xt) * w):sum():backward()
        local scale = largest(x.grad)
        tensors.close(x.grad, xt.grad, 2e-6 * scale)
        local first, count = own(m.num_kv_heads * 4)
        local wanted = m.W_key.weight.grad
        tensors.close(wanted:narrow(1, first, count), t.W_key.weight.grad, 1e-6 * largest(wanted))
        first, count = own(m.num_heads * 4)
        wanted = m.out_proj.weight.grad
        tensors.close(wanted:narrow(2, first, count), t.out_proj.weight.grad, 1e-6 * largest(wanted))
        if t.out_proj.bias then tensors.close(m.out_proj.bias.grad, t.out_proj.bias.grad, 1e-5) end
        if m.qk_norm then tensors.close(m.q_norm.weight.grad, t.q_norm.weight.grad, 1e-5 * scale) end
        if m.sinks then
          first, count = own(24)
          tensors.close(m.sinks.grad:narrow(1, first, count), t.sinks.grad, 1e-5)
        end
      end)
    end)
  end

  it("takes masks for each head", function()
    local m, x = attention(), input()
    local t, mask = dist.tensor_parallel(m:clone()), heed.randn(24, N, N)
    tensors.close(m(x, { attn_mask = mask }), t(x, { attn_mask = mask }))
  end)

  it("has gradients of keys and values of other tokens", function()
    heed.enable_grad(function()
      local m, x, key = attention { causal = false }, input(), heed.randn(2, 5, D):requires_grad_(true)
      local t, key_t = dist.tensor_parallel(m:clone()), key:detach():clone():requires_grad_(true)
      m(x, { key = key }):sum():backward()
      t(x, { key = key_t }):sum():backward()
      tensors.close(key.grad, key_t.grad, 1e-6 * math.max(1, largest(key.grad)))
    end)
  end)

  it("divides caches by heads", function()
    local m, x = attention { rope = {} }, input()
    local t = dist.tensor_parallel(m:clone())
    local cache, cache_t = m:new_cache { batch = 2 }, t:new_cache { batch = 2 }
    for _, at in ipairs { { 1, 20 }, { 21, 1 }, { 22, 12 } } do
      local part = x:narrow(2, at[1], at[2])
      tensors.close(m(part, { cache = cache }), t(part, { cache = cache_t }))
    end
  end)

  it("gives the intermediate results of its own heads", function()
    local m, x = attention(), input()
    local _, wanted = m(x, { need_weights = true })
    local _, info = dist.tensor_parallel(m:clone())(x, { need_weights = true })
    local first, count = own(24)
    tensors.close(wanted.weights:narrow(2, first, count), info.weights)
  end)

  it("runs in slices, and as a copy", function()
    local m, x = attention(), input()
    local t = dist.tensor_parallel(m:clone())
    local y = t(x)
    local steps = t:steps(x, { ms = 0.01 })
    for _ in steps do end
    assert.is_true(y:equal(steps.result))
    assert.is_true(y:equal(t:clone()(x)))
  end)

  it("leaves the module that it gets as it was", function()
    local m, x = attention(), input()
    local y = m(x)
    dist.tensor_parallel(m)
    assert.is_true(y:equal(m(x)))
  end)

  for _, recorded in ipairs { false, true } do
    it("drops the weights that one process drops" .. (recorded and ", while gradients are recorded" or ""), function()
      local m, x = attention { dropout = 0.3 }, input()
      local t = dist.tensor_parallel(m:clone())
      local function passes_of(each)
        local g = heed.Generator { seed = 3, kind = "philox" }
        local y = each(x, { generator = g })
        local other = each(x[1], { generator = g, key = x[2]:narrow(1, 1, 9) })
        return y:detach(), other:detach(), g:get_offset()
      end
      (recorded and heed.enable_grad or heed.no_grad)(function()
        local y, other, offset = passes_of(m)
        local y_t, other_t, offset_t = passes_of(t)
        tensors.close(y, y_t)
        tensors.close(other, other_t)
        assert.are.equal(offset, offset_t)
      end)
    end)
  end

  with(2, "refuses dropout that has an order", function()
    local m, x = attention { dropout = 0.1 }, input()
    local t = dist.tensor_parallel(m)
    assert.are.equal("MultiHeadAttention: dropout is 0.1 and its heads are divided among ranks, but the generator is "
      .. "of the kind \"mt19937\", whose numbers have an order; call heed.manual_seed(seed, \"philox\") on all ranks, "
      .. "or set m.dropout.p = 0", message_of(t, x))
    t:eval()
    tensors.close(m:eval()(x), t(x))
  end)
end)

describe("tensor_parallel of layers", function()
  local Pair = nn.Module.class "Pair"
  function Pair:init()
    self.up, self.down = nn.Linear(6, 11), nn.Linear(11, 5)
  end
  function Pair:forward(x) return self.down(self.up(x):gelu()) end

  local function pair()
    heed.manual_seed(9)
    return Pair()
  end

  it("divides columns and rows, also unevenly", function()
    local m, x = pair(), heed.randn(4, 6)
    local t = dist.tensor_parallel(m:clone(), nil, { up = dist.ColwiseParallel(), down = dist.RowwiseParallel() })
    tensors.close(m(x), t(x))
    local counts = dist.all_gather(tensors.int64 { t.up.out_features })
    local sum = 0
    for _, count in ipairs(counts) do sum = sum + count:item() end
    assert.are.equal(11, sum)
  end)

  it("gathers columns if that is asked for", function()
    local m, x = pair(), heed.randn(4, 6)
    local t = dist.tensor_parallel(m:clone(), nil, { up = dist.ColwiseParallel { gather = true } })
    assert.is_true(m.up(x):equal(t.up(x)))
    heed.enable_grad(function()
      local w = heed.randn(4, 5)
      ;(m(x) * w):sum():backward()
      ;(t(x) * w):sum():backward()
    end)
    local counts, first = dist.all_gather(tensors.int64 { t.up.out_features }), 1
    for i = 1, rank - 1 do first = first + counts[i]:item() end
    tensors.close(m.up.weight.grad:narrow(1, first, t.up.out_features), t.up.weight.grad)
    tensors.close(m.down.weight.grad, t.down.weight.grad)
  end)

  it("follows the plan that a class has", function()
    Pair.tp_plan = { up = "colwise", down = "rowwise" }
    local m, x = pair(), heed.randn(4, 6)
    tensors.close(m(x), dist.tensor_parallel(m:clone())(x))
    Pair.tp_plan = nil
  end)

  it("takes one style for the module itself", function()
    heed.manual_seed(3)
    local m, x = nn.Linear(5, 8), heed.randn(2, 5)
    local first, count = split(5, rank, size)
    local t = dist.tensor_parallel(m:clone(), nil, dist.RowwiseParallel())
    tensors.close(m(x), t(x:narrow(2, first, count)))
  end)

  with(2, "keeps frozen parameters frozen", function()
    local m = pair()
    m.up.weight:requires_grad_(false)
    dist.tensor_parallel(m, nil, { up = dist.ColwiseParallel(), down = dist.RowwiseParallel() })
    assert.is_false(m.up.weight.requires_grad)
    assert.is_true(m.down.weight.requires_grad)
  end)
end)

describe("tensor_parallel of models", function()
  local function model(name)
    return small.model(name, { hidden_size = D, num_hidden_layers = 3, num_attention_heads = 12 }, 12):eval()
  end

  local function ids() return small.ids(2) end

  for _, name in ipairs { "gpt2", "llama", "bert" } do
    it("needs no plan for " .. name, function()
      local m = model(name)
      local t = dist.tensor_parallel(m:clone())
      local before = dist.counted().all_reduce
      tensors.close(m(ids()), t(ids()), 2e-6)
      if size > 1 then
        local sums = dist.counted().all_reduce
        assert.are.equal(2 * 3, sums.calls - (before and before.calls or 0))
      end
    end)

    it("computes with low-precision weights of " .. name, function()
      local m = model(name):to "bfloat16"
      tensors.close(m(ids()), dist.tensor_parallel(m:clone())(ids()), 1e-5)
    end)
  end

  for _, name in ipairs { "gpt2", "llama" } do
    it("generates the same text with " .. name, function()
      local m = model(name)
      local t, prompt = dist.tensor_parallel(m:clone()), ids()[1]
      assert.are.same(m:generate(prompt, { max_new_tokens = 8 }), t:generate(prompt, { max_new_tokens = 8 }))
    end)

    it("trains all ranks to the same " .. name, function()
      heed.enable_grad(function()
        local m = model(name)
        local t = dist.tensor_parallel(m:clone())
        local function losses_of(each)
          local adam, losses = heed.optim.AdamW(each:parameters(), { lr = 0.01 }), {}
          for i = 1, 3 do
            local loss = nn.functional.cross_entropy(each(ids()):flatten(1, 2), ids():flatten())
            adam:zero_grad()
            loss:backward()
            adam:step()
            losses[i] = loss:item()
          end
          return heed.tensor(losses)
        end
        tensors.close(losses_of(m), losses_of(t), 1e-4)
        local norm = t.norm.weight:detach():contiguous()
        for _, other in ipairs(dist.all_gather(norm)) do assert.is_true(norm:equal(other)) end
      end)
    end)
  end

  it("divides lm_head if the plan says so", function()
    local m = model "llama"
    local t = dist.tensor_parallel(m:clone(), nil, { lm_head = dist.ColwiseParallel { gather = true } })
    assert.is_true(m(ids()):equal(t(ids())))
  end)

  it("works along one dimension of a mesh", function()
    local mesh = dist.init_device_mesh({ 1, size }, { "dp", "tp" })
    local m = model "llama"
    tensors.close(m(ids()), dist.tensor_parallel(m:clone(), mesh.tp)(ids()), 2e-6)
    assert.truthy(message_of(dist.tensor_parallel, m, mesh):find("one of them, such as mesh.dp", 1, true))
  end)

  local function refused(message, plan)
    it("refuses: " .. message, function()
      local m = model "llama"
      assert.are.equal("tensor_parallel: " .. message, message_of(dist.tensor_parallel, m, nil, plan))
      assert.are.equal("LlamaLayer", m.layers[1]:class_name())
    end)
  end

  refused("plan['layers.*.atention'] matches no part; did you mean 'layers.*.attention'?",
    { ["layers.*.atention"] = dist.Heads() })
  refused("plan['*.W_query'] matches 'layers.0.attention.W_query', which is a part of the attention "
    .. "'layers.0.attention'; use Heads() for that", { ["*.W_query"] = dist.ColwiseParallel() })
  refused("'layers.0.gate' matches plan['*.gate'] and plan['layers.*.g*']; it must match one",
    { ["layers.*.g*"] = dist.ColwiseParallel(), ["*.gate"] = dist.ColwiseParallel() })
  refused("'layers.0.gate' is a module (Linear); it must be a MultiHeadAttention", { ["*.gate"] = dist.Heads() })
  refused("plan is empty; leave it out for the module's own plan", {})
  refused("plan['*.gate'] is a string ('colwise'); it must be Heads(), ColwiseParallel() or RowwiseParallel()",
    { ["*.gate"] = "colwise" })

  it("refuses to divide a weight that others share", function()
    local m = model "gpt2"
    assert.are.equal("tensor_parallel: 'lm_head' shares its weight with 'token_embeddings'; leave it out of the plan",
      message_of(dist.tensor_parallel, m, nil, { lm_head = dist.ColwiseParallel { gather = true } }))
  end)

  with(2, "refuses heads that do not divide, and hooks", function()
    local m = attention { num_heads = 24, num_kv_heads = 1 }
    assert.are.equal(("tensor_parallel: MultiHeadAttention has num_kv_heads = 1, and there are %d ranks; it must be a "
      .. "multiple of that, so at most 1 rank"):format(size), message_of(dist.tensor_parallel, m))
    m = attention { alibi = true }
    assert.are.equal("tensor_parallel: MultiHeadAttention has alibi, whose slopes depend on the number of heads; "
      .. "divide only layers around it", message_of(dist.tensor_parallel, m))
    m = attention()
    m:register_forward_hook(function() end)
    assert.truthy(message_of(dist.tensor_parallel, m):find("has hooks", 1, true))
    assert.are.equal(("tensor_parallel: Linear has 1 output; %d ranks need at least %d"):format(size, size),
      message_of(dist.tensor_parallel, nn.Linear(1, 1), nil, dist.ColwiseParallel()))
  end)

  it("refuses modules without a plan", function()
    assert.truthy(message_of(dist.tensor_parallel, nn.Linear(2, 2)):find("pass a plan", 1, true))
  end)
end)

ranks.finish()
