-- data_parallel: the whole model on each rank, and averaged gradients.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local tensors = require "tests.tensors"
local dist, rank, size, nn = ranks.dist, ranks.rank, ranks.size, heed.nn
local describe, it, with, message_of = ranks.describe, ranks.it, ranks.with, ranks.message_of
local cross_entropy = nn.functional.cross_entropy

local BATCH = 24 -- a multiple of 1 to 4

local function model()
  heed.manual_seed(3)
  return nn.Sequential(nn.Linear(6, 70), nn.GELU(), nn.Linear(70, 5), nn.LayerNorm(5))
end

local function batch()
  heed.manual_seed(4)
  return heed.randn(BATCH, 6), heed.randint(1, 5, { BATCH })
end

-- This rank's share of the rows.
local function own(x)
  local count = math.floor(BATCH / size)
  return x:narrow(1, (rank - 1) * count + 1, count)
end

local function same_gradients(wanted, got)
  for name, parameter in wanted:named_parameters() do
    tensors.close(parameter.grad, got:get_parameter(name).grad)
  end
end

local function recorded(title, f) it(title, function() heed.enable_grad(f) end) end

describe("data_parallel", function()
  for _, megabytes in ipairs { 25, 0.0005, 1e-6 } do
    recorded(("gives the gradients of the whole batch, in buckets of %g MiB"):format(megabytes), function()
      local m, x, y = model(), batch()
      local d = dist.data_parallel(m:clone(), nil, { bucket_mb = megabytes })
      for _ = 1, 2 do -- the second pass adds to the first
        cross_entropy(m(x), y):backward()
        cross_entropy(d(own(x)), own(y)):backward()
        same_gradients(m, d)
      end
    end)
  end

  recorded("sends the gradients once: large ones by themselves, small ones together", function()
    local large, small = 384 * 768, 2 * 24 * size -- elements
    local d = dist.data_parallel(nn.Sequential(nn.Linear(384, 768, false), nn.Linear(768, 384, false),
      nn.Linear(384, 24 * size, false), nn.Linear(24 * size, 2, false)))
    local function sums() return dist.counted().all_reduce or { bytes = 0, calls = 0 } end
    local before = sums()
    d(heed.ones(1, 384)):sum():backward()
    local middle = 384 * 24 * size
    local bytes = 2 * (size - 1) / size * 4 * (2 * large + middle + small)
    local of_present = (size - 1) * 4 * 4 -- which of the 4 parameters have one
    assert.are.equal(bytes + of_present, sums().bytes - before.bytes)
    if size > 1 then assert.are.equal(4, sums().calls - before.calls) end
  end)

  recorded("works with backward passes in slices", function()
    local m, x, y = model(), batch()
    local d = dist.data_parallel(m:clone())
    cross_entropy(m(x), y):backward()
    for _ in cross_entropy(d(own(x)), own(y)):backward_steps { ms = 0.001 } do end
    same_gradients(m, d)
  end)

  recorded("averages where a hook begins another backward pass, which is refused", function()
    local m, x, y = model(), batch()
    local d = dist.data_parallel(m:clone())
    local other = heed.ones(2):requires_grad_():sum()
    cross_entropy(m(x), y):backward()
    local out = d(own(x))
    out:register_hook(function() assert.is_false(pcall(other.backward, other)) end)
    cross_entropy(out, own(y)):backward()
    same_gradients(m, d)
  end)

  recorded("trains as one process does", function()
    local m, x, y = model(), batch()
    local d = dist.data_parallel(m:clone())
    local AdamW = heed.optim.AdamW
    local adam, adam_d = AdamW(m:parameters(), { lr = 0.01 }), AdamW(d:parameters(), { lr = 0.01 })
    for _ = 1, 5 do
      adam:zero_grad()
      adam_d:zero_grad()
      cross_entropy(m(x), y):backward()
      cross_entropy(d(own(x)), own(y)):backward()
      adam:step()
      adam_d:step()
    end
    tensors.close(m[1].weight, d[1].weight, 1e-5)
    local weight = d[1].weight:detach()
    for _, other in ipairs(dist.all_gather(weight)) do assert.is_true(weight:equal(other)) end
  end)

  recorded("adds up the gradients of passes within no_sync", function()
    local m, x, y = model(), batch()
    local d = dist.data_parallel(m:clone())
    cross_entropy(m(x), y):backward()
    cross_entropy(m(x), y):backward()
    local before = dist.counted().all_reduce
    local result = dist.no_sync(d, function(value)
      cross_entropy(d(own(x)), own(y)):backward()
      return value
    end, 5)
    assert.are.equal(5, result)
    assert.are.same(before, dist.counted().all_reduce)
    cross_entropy(d(own(x)), own(y)):backward()
    same_gradients(m, d)
  end)

  recorded("averages again after an error within no_sync", function()
    local m, x, y = model(), batch()
    local d = dist.data_parallel(m:clone())
    assert.are.equal("stop", message_of(dist.no_sync, d, function() error("stop", 0) end))
    cross_entropy(m(x), y):backward()
    cross_entropy(d(own(x)), own(y)):backward()
    same_gradients(m, d)
  end)

  recorded("averages again after a pass that failed", function()
    local m, x, y = model(), batch()
    local d, fails = dist.data_parallel(m:clone()), true
    d[1].weight:register_hook(function() if fails then error("stop", 0) end end)
    local loss = cross_entropy(d(own(x)), own(y))
    message_of(loss.backward, loss)
    fails = false
    loss:backward()
    cross_entropy(m(x), y):backward()
    same_gradients(m, d)
  end)

  with(2, "counts parameters without a gradient on a rank as 0", function()
    heed.enable_grad(function()
      local list = nn.ModuleList { nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2) }
      dist.data_parallel(list, nil, { broadcast = true })
      list[rank == 1 and 1 or 2](heed.ones(1, 2)):sum():backward()
      tensors.close(heed.full({ 2, 2 }, 1 / size), list[1].weight.grad)
      tensors.close(heed.full({ 2 }, (size - 1) / size), list[2].bias.grad)
      assert.is_nil(list[3].weight.grad)
    end)
  end)

  recorded("leaves frozen parameters alone", function()
    local m, x, y = model(), batch()
    m[1]:requires_grad_(false)
    local d = dist.data_parallel(m:clone())
    cross_entropy(d(own(x)), own(y)):backward()
    assert.is_nil(d[1].weight.grad)
    assert.truthy(d[3].weight.grad)
  end)

  it("goes together with tensor_parallel on a mesh", function()
    if size % 2 == 1 then return end
    local mesh = dist.init_device_mesh({ 2, math.floor(size / 2) }, { "dp", "tp" })
    heed.manual_seed(5)
    local m = nn.MultiHeadAttention { d_in = 8, d_out = 8, context_length = 16, dropout = 0, num_heads = 4 }
    local x = heed.randn(2, 5, 8)
    heed.enable_grad(function()
      local d = dist.data_parallel(dist.tensor_parallel(m:clone(), mesh.tp), mesh.dp)
      local half = mesh:get_local_rank "dp"
      ;(d(x[half]:unsqueeze(1)) ^ 2):mean():backward()
      ;(m(x) ^ 2):mean():backward()
      local rows = d.W_query.weight.shape[1]
      tensors.close(m.W_query.weight.grad:narrow(1, (mesh:get_local_rank "tp" - 1) * rows + 1, rows),
        d.W_query.weight.grad)
    end)
  end)

  with(2, "refuses models whose parameters have other shapes", function()
    local message = ("data_parallel: weight is [2, %d] here, and has another shape on rank %d; build the same model on "
      .. "every rank"):format(rank == 1 and 3 or 4, rank == 1 and 2 or 1)
    for _, options in ipairs { {}, { broadcast = true } } do
      assert.are.equal(message,
        message_of(dist.data_parallel, nn.Linear(rank == 1 and 3 or 4, 2), nil, options))
    end
  end)

  with(2, "refuses models that differ, or broadcasts that of rank 1", function()
    heed.manual_seed(rank)
    local m = nn.Linear(3, 3)
    assert.are.equal("data_parallel: weight differs on rank 1 and rank 2; call heed.manual_seed with the same number "
      .. "on every rank before the model is made, or pass {broadcast = true} for the parameters of rank 1",
      message_of(dist.data_parallel, m))
    dist.data_parallel(m, nil, { broadcast = true })
    heed.manual_seed(1)
    assert.is_true(nn.Linear(3, 3).weight:equal(m.weight))
    local other = nn.Linear(3, 3, rank == 1)
    assert.are.equal("data_parallel: model has 2 parameters on rank 1, and 1 on rank 2; build the same model on every "
      .. "rank", message_of(dist.data_parallel, other))
  end)

  it("refuses what it cannot average", function()
    assert.are.equal("data_parallel: GELU has no parameters", message_of(dist.data_parallel, nn.GELU()))
    local m = dist.data_parallel(model())
    assert.are.equal("data_parallel: the gradients of model are averaged already; call it once",
      message_of(dist.data_parallel, m))
    assert.are.equal("data_parallel: bucket_mb is the number 0; it must be more than 0",
      message_of(dist.data_parallel, model(), nil, { bucket_mb = 0 }))
    assert.are.equal("no_sync: model is a module (Linear); it must be a model that data_parallel got",
      message_of(dist.no_sync, nn.Linear(1, 1), print))
  end)
end)

ranks.finish()
