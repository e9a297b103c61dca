-- Gradients of whole models compared with PyTorch's.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local support = require "tests.support"
local F = heed.nn.functional

local NOISE = 1e-5 -- beside the largest element of any parameter: k's bias, whose gradient is 0 where nothing rotates

--- Compares a gradient with its summary.
local function compare(wanted, gradient, largest)
  local g = gradient:flatten()
  local weights = heed.range(1, g:numel()):cos()
  local scale = math.max(wanted.norm, NOISE * largest)
  local function near(want, got, what)
    local problem = ("%s of %s: %.9g, not %.9g"):format(what, wanted.name, got, want)
    assert.is_true(math.abs(got - want) <= 2e-5 * scale + NOISE * largest, problem)
  end
  near(wanted.norm, g:norm():item(), "the norm")
  near(wanted.sum, (g * weights):sum():item(), "the weighted sum")
  near(wanted.most, g:abs():max():item(), "the largest")
end

local function largest_of(case)
  local largest = 0
  for _, each in ipairs(case.gradients) do largest = math.max(largest, each.most) end
  return largest
end

describe("the gradients of a model are PyTorch's:", function()
  local folder
  before_each(function()
    folder = support.new_folder()
    heed.set_grad_enabled(true)
  end)
  after_each(function()
    heed.set_grad_enabled(false)
    support.remove_folder(folder)
  end)

  for _, case in ipairs(dofile "tests/golden/model_gradients.lua") do
    local ids = cases.from_one(case.ids)
    if case.name ~= "bert" then
      it(case.name, function()
        local name = case.name:match "^decoders/(.*)$"
        local model = name and assert(cases.class_of(name).load(cases.top .. case.name)) or cases.load(case.name)
        local logits, targets = model(ids), {}
        for i = 2, #ids do targets[i - 1] = ids[i] end
        local loss = F.cross_entropy(logits:narrow(1, 1, #ids - 1), targets)
        assert.is_near(case.loss, loss:item(), 2e-6 * case.loss)
        loss:backward()
        -- a model whose weights are the gradients, saved with the names of files
        heed.set_grad_enabled(false)
        for parameter in model:parameters() do parameter:copy_(parameter.grad) end
        assert.is_true(model:save_pretrained(folder))
        local state, largest = assert(heed.load(folder .. "/model.safetensors")), largest_of(case)
        for _, wanted in ipairs(case.gradients) do compare(wanted, state[wanted.name], largest) end
      end)
    else
      it("bert", function()
        local model = assert(require("heed.models.bert").load "tests/golden/tiny_bert")
        local hidden = model(ids)
        local weights = heed.range(1, hidden.shape[2]):cos()
        local loss = (hidden * hidden * weights):sum()
        assert.is_near(case.loss, loss:item(), 1e-5 * math.abs(case.loss))
        loss:backward()
        local parameters, largest = {}, largest_of(case)
        for parameter in model:parameters() do parameters[#parameters + 1] = parameter end
        for i, wanted in ipairs(case.gradients) do -- both list them in the same order
          compare(wanted, parameters[i].grad, largest)
        end
      end)
    end
  end
end)

describe("points of a model", function()
  after_each(function() heed.set_grad_enabled(false) end)

  for name in pairs(cases.classes) do
    it("are part of the graph, read or changed: " .. name, function()
      local model = assert(cases.classes[name].load(cases.top .. "decoders/" .. name))
      local ids = { { 5, 17, 9, 30 } }
      --- The gradients of the embeddings and of a weight, with hooks at all points of that name.
      local function gradients(short, change)
        local hooks, seen = {}, nil
        for _, point in ipairs(model:hook_names()) do
          if point:sub(-#short) == short then hooks[point] = function(x) return change and x:clone() or nil end end
        end
        function hooks.hook_embed(x)
          seen = x:clone()
          seen:retain_grad()
          return seen
        end
        model:zero_grad()
        heed.set_grad_enabled(true)
        model:run_with_hooks(ids, hooks):select(2, 4):select(2, 1):sum():backward()
        heed.set_grad_enabled(false)
        return seen.grad, model.layers[1].attention.W_query.weight.grad
      end
      local embed, weight = gradients("none", false)
      for _, short in ipairs { "hook_resid_pre", "hook_attn_out", "hook_q", "hook_k", "hook_v", "hook_z",
        "hook_attn_scores", "hook_pattern", "hook_result" } do
        for _, change in ipairs { false, true } do
          local now, of_weight = gradients(short, change)
          assert.is_true(embed:allclose(now, { rtol = 1e-4, atol = 1e-5 }), short)
          assert.is_true(weight:allclose(of_weight, { rtol = 1e-4, atol = 1e-4 }), short)
        end
      end
    end)
  end
end)
