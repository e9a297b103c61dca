-- Several machines, here with one rank: `mpirun -n 4 heed script.lua` starts four. See ../examples.lua.

--## dist.is_available
local dist = require "heed.distributed"
print(type(dist.is_available()))

--## dist.init_process_group, dist.is_initialized, dist.destroy_process_group
local dist = require "heed.distributed"
dist.init_process_group { timeout = 60 }
print(dist.is_initialized())
dist.destroy_process_group()

--## dist.get_rank, dist.get_world_size
local dist = require "heed.distributed"
dist.init_process_group()
print(("rank %d of %d"):format(dist.get_rank(), dist.get_world_size()))

--## dist.counted
local dist = require "heed.distributed"
dist.init_process_group()
dist.all_reduce(heed.ones(2))
print(type(dist.counted()))

--## dist.barrier
local dist = require "heed.distributed"
dist.init_process_group()
dist.barrier()
print "all ranks are here"

--## dist.all_reduce
local dist = require "heed.distributed"
dist.init_process_group()
print(dist.all_reduce(heed.full({ 2 }, dist.get_rank()))) -- the sum over all ranks

--## dist.all_gather
local dist = require "heed.distributed"
dist.init_process_group()
for rank, x in ipairs(dist.all_gather(heed.ones(2))) do print(rank, x) end

--## dist.all_gather_into_tensor
local dist = require "heed.distributed"
dist.init_process_group()
local n = dist.get_world_size()
print(dist.all_gather_into_tensor(heed.empty(n * 2), heed.ones(2)))

--## dist.reduce_scatter
local dist = require "heed.distributed"
dist.init_process_group()
print(dist.reduce_scatter(heed.ones(dist.get_world_size(), 2)))

--## dist.broadcast
local dist = require "heed.distributed"
dist.init_process_group()
print(dist.broadcast(heed.rand(2), 1)) -- that of rank 1 on all ranks

--## dist.isend, dist.irecv, Work:wait, Work:is_completed
local dist = require "heed.distributed"
dist.init_process_group()
local rank, n = dist.get_rank(), dist.get_world_size()
local sent = dist.isend(heed.full({ 2 }, rank), rank % n + 1) -- to the next rank
local x = heed.empty(2)
dist.irecv(x, (rank - 2) % n + 1):wait()
sent:wait()
print(x, sent:is_completed())

--## dist.new_group, Group:size, Group:rank
local dist = require "heed.distributed"
dist.init_process_group()
local group = dist.new_group { 1 }
print(group:size(), group:rank())
print(dist.all_reduce(heed.ones(2), "sum", { group = group }))

--## dist.init_device_mesh, DeviceMesh:get_group, DeviceMesh:get_local_rank, DeviceMesh:size
local dist = require "heed.distributed"
dist.init_process_group()
local mesh = dist.init_device_mesh({ 1, dist.get_world_size() }, { "pp", "tp" })
print(mesh:size "tp", mesh:get_local_rank "tp", mesh:get_group("tp"):size())
print(dist.all_reduce(heed.ones(2), "sum", { group = mesh.tp }))

--## dist.tensor_parallel, dist.Heads, dist.ColwiseParallel, dist.RowwiseParallel
local dist = require "heed.distributed"
dist.init_process_group()
local Block = nn.Module.class "Block"
function Block:init()
  self.attention = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
  self.up, self.down = nn.Linear(4, 16), nn.Linear(16, 4)
end
function Block:forward(x) return self.down(self.up(self.attention(x)):gelu()) end
local block, x = Block(), heed.rand(1, 3, 4)
local whole = block(x)
dist.tensor_parallel(block, nil, { attention = dist.Heads(), up = dist.ColwiseParallel(),
  down = dist.RowwiseParallel() })
print(block(x):allclose(whole, { atol = 1e-6 }))

--## dist.clip_grad_norm_
local dist = require "heed.distributed"
dist.init_process_group()
heed.set_grad_enabled(true)
local model = dist.tensor_parallel(nn.SwiGLU(4, 8))
model(heed.ones(4)):sum():backward()
print(dist.clip_grad_norm_(model, 0.01) > 0.01) -- the norm before

--## dist.data_parallel
local dist = require "heed.distributed"
dist.init_process_group()
heed.set_grad_enabled(true)
local model = dist.data_parallel(nn.Linear(2, 1))
model(heed.ones(4, 2)):mean():backward() -- gradients are averaged over the ranks
print(model.weight.grad)

--## dist.no_sync
local dist = require "heed.distributed"
dist.init_process_group()
heed.set_grad_enabled(true)
local model = dist.data_parallel(nn.Linear(2, 1))
dist.no_sync(model, function() model(heed.ones(2)):backward() end) -- adds up on this rank
model(heed.ones(2)):backward() -- averages the sums
print(model.weight.grad)

--## dist.pipeline
local dist = require "heed.distributed"
dist.init_process_group()
local model = dist.pipeline(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)), nil, { micro_batches = 2 })
print(model(heed.ones(4, 2)).shape)

--## dist.pipeline_step
local dist = require "heed.distributed"
dist.init_process_group()
heed.set_grad_enabled(true)
local model = dist.pipeline(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)), nil, { micro_batches = 2 })
local loss = dist.pipeline_step(model, heed.ones(4, 2), heed.zeros(4, 1), F.mse_loss)
print(loss > 0, model[1].weight.grad.shape)

--## dist.full_state_dict
local dist = require "heed.distributed"
dist.init_process_group()
local model = dist.tensor_parallel(nn.SwiGLU(4, 8))
local state = dist.full_state_dict(model)
print(state["w1.weight"].shape)

--## dist.load
local dist, Llama = require "heed.distributed", require "heed.models.llama"
dist.init_process_group()
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(Llama(config):save_pretrained ".")
local model = assert(dist.load(Llama, ".", dist.tensor_parallel)) -- each rank reads its own part
print(model { 1, 2, 3 }.shape)

--## dist.context_parallel, Shard:positions, Shard:gather
local dist = require "heed.distributed"
dist.init_process_group()
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.rand(1, 4, 4)
local mesh = dist.init_device_mesh({ dist.get_world_size() }, { "cp" })
local y = dist.context_parallel(mesh, function(shard)
  print(shard:positions(4)) -- of this rank's tokens
  return shard:gather(mha(shard(x, 2)), 2) -- or the option gather = 2
end)
print(y:allclose(mha(x), { atol = 1e-6 }))

--## dist.context_cache, ContextCache:truncate, ContextCache:release
local dist = require "heed.distributed"
dist.init_process_group()
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.rand(1, 4, 4)
local mesh = dist.init_device_mesh({ dist.get_world_size() }, { "cp" })
local cache = dist.context_cache(mesh)
dist.context_parallel(mesh, function(shard) return mha(shard(x, 2), { cache = cache }) end)
print(cache.length)
cache:truncate(2)
print(cache.length)
cache:release()
