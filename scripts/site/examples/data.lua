-- Datasets, loaders, checkpoints, progress. See ../examples.lua.

--## heed.utils.data.TensorDataset
local x, y = heed.rand(4, 2), heed.tensor({ 1, 2, 1, 2 }, "int64")
local dataset = heed.utils.data.TensorDataset(x, y)
print(#dataset, dataset:get(2))

--## heed.utils.data.Subset
local dataset = heed.utils.data.Subset(heed.tensor { 10, 20, 30 }, { 3, 1 })
print(#dataset, dataset:get(1))

--## heed.utils.data.ConcatDataset
local dataset = heed.utils.data.ConcatDataset { heed.tensor { 10, 20 }, heed.tensor { 30 } }
print(#dataset, dataset:get(3))

--## heed.utils.data.random_split
local train, test = table.unpack(heed.utils.data.random_split(heed.range(1, 10), { 0.8, 0.2 }))
print(#train, #test, test.indices)

--## heed.utils.data.SequentialSampler
for i in heed.utils.data.SequentialSampler(heed.rand(3)):iter() do io.write(i, " ") end

--## heed.utils.data.RandomSampler
for i in heed.utils.data.RandomSampler(heed.rand(5)):iter() do io.write(i, " ") end

--## heed.utils.data.SubsetRandomSampler
for i in heed.utils.data.SubsetRandomSampler({ 2, 4, 6 }):iter() do io.write(i, " ") end

--## heed.utils.data.WeightedRandomSampler
for i in heed.utils.data.WeightedRandomSampler({ 1, 0, 9 }, 6):iter() do io.write(i, " ") end

--## heed.utils.data.BatchSampler
local sampler = heed.utils.data.BatchSampler(heed.utils.data.SequentialSampler(heed.rand(5)), 2)
for batch in sampler:iter() do print(table.concat(batch, " ")) end

--## Sampler:iter, Sampler:len
local sampler = heed.utils.data.RandomSampler(heed.rand(4), { num_samples = 2 })
print(sampler:len())
for i in sampler:iter() do print(i) end

--## TensorDataset:len, TensorDataset:get
local dataset = heed.utils.data.TensorDataset(heed.tensor { 10, 20, 30 })
print(dataset:len(), dataset:get(-1))

--## heed.utils.data.default_collate
print(heed.utils.data.default_collate { heed.tensor { 1, 2 }, heed.tensor { 3, 4 } })

--## heed.utils.data.DataLoader
local x, y = heed.range(1, 5), heed.range(1, 5) * 10
local dataset = heed.utils.data.TensorDataset(x, y)
local loader = heed.utils.data.DataLoader(dataset, { batch_size = 2, shuffle = true })
for inputs, targets in loader:iter() do print(inputs, targets) end

--## DataLoader:iter, DataLoader:len
local loader = heed.utils.data.DataLoader(heed.range(1, 5), { batch_size = 2 })
print(loader:len())
for batch in loader:iter() do print(batch) end

--## DataLoader:state_dict, DataLoader:load_state_dict
local loader = heed.utils.data.DataLoader(heed.range(1, 6), { batch_size = 2 })
print(loader:iter()())
local state = loader:state_dict()
local other = heed.utils.data.DataLoader(heed.range(1, 6), { batch_size = 2 })
other:load_state_dict(state)
print(other:iter()()) -- goes on with the second batch

--## heed.utils.data.Tokens
local ids = heed.range(1, 100):long() -- or the path of a file
local tokens = heed.utils.data.Tokens(ids, { context = 4, batch = 2 })
local x, y = tokens:next()
print(x, y)

--## Tokens:next, Tokens:iter, Tokens:len
local tokens = heed.utils.data.Tokens(heed.range(1, 10):long(), { context = 3, shuffle = false })
print(tokens:len(), tokens:next())
print(tokens:iter()()) -- a loop over it never ends by itself

--## Tokens:state_dict, Tokens:load_state_dict
local ids = heed.range(1, 100):long()
local tokens = heed.utils.data.Tokens(ids, { context = 3, generator = heed.Generator(1) })
local state = tokens:state_dict()
local x = tokens:next()
tokens:load_state_dict(state)
print(tokens:next():equal(x))

--## heed.utils.checkpoint
heed.set_grad_enabled(true)
local m = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
heed.utils.checkpoint(m, heed.ones(2)):backward() -- keeps nothing between; computes m again
print(m[1].weight.grad.shape)

--## heed.utils.load_checkpoint
local model = nn.Linear(2, 2)
local optimiser = heed.optim.AdamW(model:parameters())
heed.save("run.safetensors", { model = model, optimizer = optimiser, step = 12 })
local run = assert(heed.utils.load_checkpoint("run.safetensors", { model = model, optimizer = optimiser }))
print(run.step)

--## heed.utils.progress, Progress:update, Progress:print, Progress:finish
local bar = heed.utils.progress(4, { parts = 2, columns = false })
for i = 1, 4 do
  if i == 3 then bar:print "halfway" end
  bar:update(i, "loss 0.5")
end
bar:finish()
