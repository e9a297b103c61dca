-- Feed-forward layers of experts (heed.models.experts), and models that have them.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local experts = require "heed.models.experts"
local close = require("tests.tensors").close

--- The same by computing every expert for every token.
local function dense(m, x)
  local p = m.router(x):softmax(-1)
  local best, chosen = p:topk(m.used)
  local mask = heed.zeros(p.shape[1], p.shape[2]):scatter(2, chosen, 1)
  p = p * mask
  if m.normalized then p = p / best:sum(-1, true) end
  local sum = heed.zeros(x.shape[1], x.shape[2])
  for e = 1, #m.experts do sum = sum + m.experts[e](x) * p:narrow(2, e, 1) end
  return sum
end

describe("experts", function()
  after_each(function() heed.set_grad_enabled(false) end)

  for _, normalized in ipairs { true, false } do
    it(("add the results that the router chose, %s"):format(normalized and "normalized" or "as they are"), function()
      heed.manual_seed(5)
      local m, x = experts.Experts(6, 10, 5, 2, normalized), heed.randn(9, 6)
      close(dense(m, x), m(x), 1e-6)
      close(m(x):view(3, 3, 6), m(x:view(3, 3, 6)), 0)
      close(m(x[4]:view(1, 6)), m(x)[4]:view(1, 6), 1e-6)
    end)

    it(("have the gradients of the dense formula, %s"):format(normalized and "normalized" or "as they are"), function()
      heed.manual_seed(6)
      local m, x, weight = experts.Experts(6, 10, 4, 2, normalized), heed.randn(7, 6), heed.randn(7, 6)
      heed.set_grad_enabled(true)
      x:requires_grad_(true)
      local grads = {}
      for i, f in ipairs { m, dense } do
        m:zero_grad()
        x.grad = nil
        local y = i == 1 and m(x) or f(m, x);
        (y * weight):sum():backward()
        grads[i] = { x.grad:clone(), m.router.weight.grad:clone() }
        for e = 1, 4 do
          local grad = m.experts[e].w2.weight.grad
          table.insert(grads[i], grad and grad:clone() or heed.zeros(6, 10))
        end
      end
      for j, grad in ipairs(grads[1]) do close(grads[2][j], grad, 1e-5) end
    end)
  end

  it("generate the same tokens in slices of time", function()
    local m = assert(cases.classes.mixtral.load(cases.top .. "decoders/mixtral"))
    local want = m:generate({ 5, 17, 9 }, { max_new_tokens = 12 })
    local steps = m:generate_steps({ 5, 17, 9 }, { max_new_tokens = 12, ms = 0 })
    while not steps:advance() do end
    assert.are.same(want, steps.result)
  end)

  it("refuse numbers that do not fit", function()
    local function refuses(message, change)
      local c = { vocab_size = 9, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1,
        num_attention_heads = 2, num_key_value_heads = 2, num_local_experts = 4 }
      for name, value in pairs(change) do c[name] = value end
      local fine, problem = pcall(cases.classes.mixtral, c)
      assert.is_false(fine)
      assert.is_truthy(problem:find("Mixtral: unsupported configuration: " .. message, 1, true), problem)
    end
    refuses("num_experts_per_tok is 5; it must be at most num_local_experts, 4", { num_experts_per_tok = 5 })
    refuses("num_local_experts is the number 0; it must be an integer of at least 1", { num_local_experts = 0 })
    refuses("hidden_act is a string ('gelu'); it must be silu", { hidden_act = "gelu" })
    refuses("router_jitter_noise is the number 0.1; it must be 0", { router_jitter_noise = 0.1 })
    refuses("num_experts is the number 3 and num_local_experts is the number 4; they must be equal",
      { num_experts = 3 })
  end)
end)
