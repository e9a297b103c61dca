-- clip_grad_norm_: the norm of the gradients of a divided model, all ranks together.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local small = require "tests.small_models"
local tensors = require "tests.tensors"
local dist, size, nn = ranks.dist, ranks.size, heed.nn
local describe, it, message_of = ranks.describe, ranks.it, ranks.message_of

local function model(name)
  return small.model(name, { num_hidden_layers = 4, num_attention_heads = 12 }, 12)
end

local function ids() return small.ids(4) end

local function backward(m) heed.enable_grad(function() small.loss_of(m(ids()), ids()):backward() end) end

local function near(wanted, got)
  assert.is_true(math.abs(wanted - got) <= 1e-5 * wanted, ("%g; it must be %g"):format(got, wanted))
end

describe("clip_grad_norm_", function()
  for _, name in ipairs { "gpt2", "llama" } do
    for _, limit in ipairs { 0.5, 1000 } do
      it(("limits the norm of %s to %g, divided by heads"):format(name, limit), function()
        local m = model(name)
        local t = dist.tensor_parallel(m:clone())
        backward(m)
        backward(t)
        near(nn.utils.clip_grad_norm_(m:parameters(), limit):item(), dist.clip_grad_norm_(t, limit))
        local wanted = m.layers[2].norm.weight.grad
        tensors.close(wanted, t.layers[2].norm.weight.grad, 1e-5 * wanted:abs():max():item())
      end)

      it(("limits the norm of %s to %g, divided by layers"):format(name, limit), function()
        local m = model(name)
        local p = dist.pipeline(m:clone())
        backward(m)
        dist.pipeline_step(p, ids(), ids(), small.loss_of)
        near(nn.utils.clip_grad_norm_(m:parameters(), limit):item(), dist.clip_grad_norm_(p, limit))
        for parameter_name, parameter in p:named_parameters() do
          tensors.close(m:get_parameter(parameter_name).grad, parameter.grad, 2e-6)
        end
      end)
    end
  end

  it("adds over heads and layers on a mesh of two dimensions", function()
    if size ~= 4 then return end
    local mesh = dist.init_device_mesh({ 2, 2 }, { "pp", "tp" })
    local m = model "gpt2"
    local both = dist.pipeline(dist.tensor_parallel(m:clone(), mesh.tp), mesh.pp)
    backward(m)
    dist.pipeline_step(both, ids(), ids(), small.loss_of)
    near(nn.utils.clip_grad_norm_(m:parameters(), 1):item(), dist.clip_grad_norm_(both, 1))
  end)

  it("is that of nn.utils for a model that is not divided, and 0 without gradients", function()
    local m = nn.Linear(3, 3)
    assert.are.equal(0, dist.clip_grad_norm_(m, 1))
    heed.enable_grad(function() m(heed.ones(1, 3)):sum():backward() end)
    near(nn.utils.get_total_norm({ m.weight.grad, m.bias.grad }):item(), dist.clip_grad_norm_(m, 1))
  end)

  it("refuses a limit that is none", function()
    assert.are.equal("clip_grad_norm_: max_norm is the number -1; it must be a number, at least 0",
      message_of(dist.clip_grad_norm_, nn.Linear(1, 1), -1))
  end)
end)

ranks.finish()
