-- pipeline: the layers of a model on one rank after the other, in micro-batches.
local heed = require "heed"
local split = require("heed.parallel.place").split
local ranks = require "tests.ranks"
local assert = require "luassert"
local small = require "tests.small_models"
local tensors = require "tests.tensors"
local dist, rank, size, nn = ranks.dist, ranks.rank, ranks.size, heed.nn
local describe, it, with, message_of = ranks.describe, ranks.it, ranks.with, ranks.message_of

local DECODERS, ALL = { "gpt2", "llama" }, { "gpt2", "llama", "bert" }

local function model(name)
  return small.model(name, { num_hidden_layers = 5, num_attention_heads = 4 }, 2)
end

local function ids() return small.ids(6) end

local loss_of = small.loss_of

describe("pipeline", function()
  for _, name in ipairs(ALL) do
    it("gives the bits of one process with " .. name, function()
      local m = model(name)
      local p = dist.pipeline(m:clone())
      assert.is_true(m(ids()):equal(p(ids())))
      assert.is_true(m(ids()[2]):equal(p(ids()[2])))
    end)

    it("gives the bits of the same micro-batches with " .. name, function()
      local m = model(name)
      local p = dist.pipeline(m:clone(), nil, { micro_batches = 4 })
      local parts, first = {}, 1
      for i, items in ipairs { 2, 2, 1, 1 } do
        parts[i] = m(ids():narrow(1, first, items))
        first = first + items
      end
      assert.is_true(heed.cat(parts, 1):equal(p(ids())))
    end)

    it("takes lengths of items and packed texts with " .. name, function()
      local m = model(name)
      local p = dist.pipeline(m:clone(), nil, { micro_batches = 2 })
      local lengths = tensors.int64 { 10, 3, 5, 10, 7, 9 }
      local wanted, got = m(ids(), { kv_lengths = lengths }), p(ids(), { kv_lengths = lengths })
      for i, length in ipairs(lengths:tolist()) do
        tensors.close(wanted[i]:narrow(1, 1, length), got[i]:narrow(1, 1, length))
      end
      local packed = ids():flatten():narrow(1, 1, 30)
      assert.is_true(m(packed, { lengths = { 10, 20 } }):equal(p(packed, { lengths = { 10, 20 } })))
    end)
  end

  for _, name in ipairs(DECODERS) do
    it("generates the same text with " .. name .. ", and each rank has the cache of its layers", function()
      local m = model(name)
      local p, prompt = dist.pipeline(m:clone()), ids()[1]
      local wanted = m:generate(prompt, { max_new_tokens = 8 })
      local got, cache = p:generate(prompt, { max_new_tokens = 8 })
      assert.are.same(wanted, got)
      assert.are.equal(17, cache.length)
      assert.truthy(tostring(cache):find(("layers=%d"):format(#p.layers), 1, true))
    end)

    it("keeps the last logits only, if that is asked for, with " .. name, function()
      local m = model(name)
      local p = dist.pipeline(m:clone())
      assert.is_true(m(ids(), { logits_to_keep = 2 }):equal(p(ids(), { logits_to_keep = 2 })))
    end)

    for _, count in ipairs { 1, 4 } do
      it(("has the gradients of one process with %s in %d micro-batches"):format(name, count), function()
        local m = model(name)
        local p = dist.pipeline(m:clone(), nil, { micro_batches = count })
        for _ = 1, 2 do -- the second pass adds to the first
          local wanted = heed.enable_grad(function()
            local loss = loss_of(m(ids()), ids())
            loss:backward()
            return loss:item()
          end)
          assert.is_true(math.abs(wanted - dist.pipeline_step(p, ids(), ids(), loss_of)) < 1e-5)
          for parameter_name, parameter in p:named_parameters() do
            tensors.close(m:get_parameter(parameter_name).grad, parameter.grad, 2e-6)
          end
        end
        p:zero_grad()
        assert.is_false(heed.is_grad_enabled())
      end)
    end
  end

  it("trains tied embeddings to the same values on the first and the last rank", function()
    local m = model "gpt2"
    local p = dist.pipeline(m:clone(), nil, { micro_batches = 3 })
    local AdamW = heed.optim.AdamW
    local adam, adam_p = AdamW(m:parameters(), { lr = 0.01 }), AdamW(p:parameters(), { lr = 0.01 })
    for _ = 1, 3 do
      heed.enable_grad(function()
        adam:zero_grad()
        loss_of(m(ids()), ids()):backward()
        adam:step()
      end)
      adam_p:zero_grad()
      dist.pipeline_step(p, ids(), ids(), loss_of)
      adam_p:step()
    end
    if rank == size then tensors.close(m.lm_head.weight, p.lm_head.weight, 1e-4) end
    if rank == 1 then tensors.close(m.lm_head.weight, p.token_embeddings.weight, 1e-4) end
    local weight = rank == 1 and p.token_embeddings.weight or rank == size and p.lm_head.weight or m.lm_head.weight
    weight = weight:detach():clone()
    local list = dist.all_gather(weight)
    assert.is_true(list[1]:equal(list[size]))
  end)

  it("trains with parameters that are frozen, on a rank, or of tied embeddings", function()
    local m = model "gpt2"
    m.token_embeddings.weight:requires_grad_(false)
    local p = dist.pipeline(m:clone(), nil, { micro_batches = 2 })
    if rank == 1 then
      for _, parameter in ipairs(p:parameters()) do parameter:requires_grad_(false) end
    end
    heed.enable_grad(function() loss_of(m(ids()), ids()):backward() end)
    if size > 1 then dist.pipeline_step(p, ids(), ids(), loss_of) end
    for name, parameter in p:named_parameters() do
      if parameter.requires_grad and size > 1 then
        tensors.close(m:get_parameter(name).grad, parameter.grad, 2e-6)
      else
        assert.is_nil(parameter.grad)
      end
    end
  end)

  it("keeps the gradient of a tied weight if a step fails", function()
    local p = dist.pipeline(model "gpt2")
    dist.pipeline_step(p, ids(), ids(), loss_of)
    local weight = rank == 1 and p.token_embeddings.weight or rank == size and p.lm_head.weight or nil
    local before = weight and weight.grad:clone()
    p.embed = function() error "no ids" end -- on all ranks, before they send anything
    assert.truthy(message_of(dist.pipeline_step, p, ids(), ids(), loss_of):find("no ids", 1, true))
    if weight then assert.is_true(before:equal(weight.grad)) end
  end)

  it("divides a model of one's own, whose size it does not know", function()
    local Own = nn.Module.class "Own"
    function Own:init()
      self.words = nn.Embedding(50, 8)
      self.layers = nn.ModuleList { nn.Linear(8, 12), nn.Linear(12, 12), nn.Linear(12, 8), nn.Linear(8, 8) }
      self.lm_head = nn.Sequential(nn.Linear(8, 50))
    end
    function Own:embed(x) return self.words(x) end
    function Own:forward(x)
      x = self:embed(x)
      for _, layer in self.layers:iter() do x = layer(x) end
      return self.lm_head(x)
    end
    heed.manual_seed(3)
    local m = Own()
    local p = dist.pipeline(m:clone(), nil, { micro_batches = 2 })
    tensors.close(m(ids()), p(ids()))
    heed.enable_grad(function() loss_of(m(ids()), ids()):backward() end)
    dist.pipeline_step(p, ids(), ids(), loss_of)
    for name, parameter in p:named_parameters() do
      tensors.close(m:get_parameter(name).grad, parameter.grad, 2e-6)
    end
  end)

  it("leaves each rank its parts, under their own names", function()
    local p = dist.pipeline(model "llama")
    local count = dist.all_reduce(tensors.int64 { #p.layers })
    assert.are.equal(5, count:item())
    local first = select(1, split(5, rank, size))
    assert.are.equal(("%d"):format(first - 1), (p.layers:named_children()()))
    assert.are.equal(rank == 1, p.token_embeddings ~= nil)
    assert.are.equal(rank == size, p.lm_head:class_name() == "Linear")
  end)

  local function list()
    heed.manual_seed(6)
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3), nn.Linear(3, 2))
  end

  it("divides a Sequential", function()
    local m, x, y = list(), heed.randn(7, 4), heed.randn(7, 2)
    local p = dist.pipeline(m:clone(), nil, { micro_batches = 3 })
    local function squares(a, b) return ((a - b) ^ 2):mean() end
    tensors.close(m(x), p(x))
    heed.enable_grad(function() squares(m(x), y):backward() end)
    dist.pipeline_step(p, x, y, squares)
    for name, parameter in p:named_parameters() do tensors.close(m:get_parameter(name).grad, parameter.grad) end
  end)

  with(2, "gives the result to the last rank alone without broadcast", function()
    local m, x = list(), heed.randn(7, 4)
    local p = dist.pipeline(m:clone(), nil, { broadcast = false })
    local y = p(x)
    if rank == size then assert.is_true(m(x):equal(y)) else assert.is_nil(y) end
  end)

  with(2, "sends n · d · 4 bytes to the next rank", function()
    local p = dist.pipeline(model "llama", nil, { broadcast = false })
    local before = dist.counted().isend
    p(ids())
    local after = dist.counted().isend
    local bytes = (after and after.bytes or 0) - (before and before.bytes or 0)
    local described = rank < size and bytes - 6 * 10 * 24 * 4 or bytes -- dtype and count, before the message
    assert.is_true(described >= 0 and described <= 64, ("%d bytes"):format(bytes))
  end)

  it("refuses what it cannot divide", function()
    assert.are.equal("pipeline: model is a module (Linear); it must be a Sequential, or a model with a method embed "
      .. "and a list of layers", message_of(dist.pipeline, nn.Linear(2, 2)))
    assert.are.equal(("pipeline: model has 0 layers; it must have at least %d, one for each rank"):format(size),
      message_of(dist.pipeline, nn.Sequential()))
    local p = dist.pipeline(list())
    assert.are.equal("pipeline: model is divided already; call it once", message_of(dist.pipeline, p))
    assert.truthy(message_of(heed.enable_grad, p, heed.ones(2, 4)):find("use heed.distributed.pipeline_step", 1, true))
    assert.are.equal("pipeline: options are given; a Sequential takes none",
      message_of(p, heed.ones(2, 4), { need_weights = true }))
    assert.are.equal("pipeline_step: targets is a tensor of shape [3] and dtype float32; it must be a tensor with one "
      .. "element or row for each item of the batch, 2", message_of(dist.pipeline_step, p, heed.ones(2, 4),
      heed.ones(3), print))
  end)
end)

ranks.finish()
