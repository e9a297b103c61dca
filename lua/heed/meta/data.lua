---@meta _
-- heed.utils: datasets, loaders, windows of text, and checkpoints. Names and draws are PyTorch's.

---Data for training, and checkpoints.
---@class heed.utils
local Utils = {}

---f(…) without keeping what it computes for the backward pass, where it is called again, with the same random numbers: of
---the default generator, and of generators among the arguments. Parameters that f uses get their gradients. Unless
---operations are recorded, this is f(…).
---@param f function|heed.Module what to call: a function or a module
---@param ... any its arguments
---@return any ...
function Utils.checkpoint(f, ...) end

---Loads a checkpoint that heed.save wrote into objects: into all of them, or, on an error, into none. Every object must
---be in the checkpoint; other parts of it are left alone. A checkpoint of another model is an error that lists the
---names. Returns the whole table, or nil and a message if the file is missing or broken.
---
---    local run = assert(heed.utils.load_checkpoint("run.safetensors", {model = model, optimizer = optimizer}))
---    for step = run.step + 1, 1000 do ... end
---@param path string of the file
---@param objects table modules, generators, objects with load_state_dict, and tables of these, by the names in the file
---@param options? { strict: boolean? } strict = false: modules may lack names, or have others
---@return table<string, any>|nil checkpoint
---@return string? message
function Utils.load_checkpoint(path, objects, options) end

---@class heed.utils.data
local data = {}

Utils.data = data

---What a loader reads: a tensor (items along dimension 1), a list of items, one of heed's datasets, or an object with a
---method get(self, i), which returns one or several values, and a method len or #.
---@alias heed.Dataset heed.Tensor|heed.TensorDataset|heed.Subset|heed.ConcatDataset|table

---A list of indices from 1, a function that returns an iterator over indices, or an object with the method iter, which
---returns one.
---@alias heed.AnySampler heed.Sampler|integer[]|fun(): fun(): integer?|table

---What the datasets have in common. dataset[i] is an item: of several tensors, the list of their items.
---@class heed.Items
---@field [integer] any
---@operator len: integer
local Items = {}

---The number of items, also #dataset.
---@return integer
function Items:len() end

---Item i; of several tensors, one value each.
---@param i integer from 1; -1 is the last
---@return any ...
function Items:get(i) end

---Items along dimension 1 of several tensors.
---@class heed.TensorDataset: heed.Items
---@field tensors heed.Tensor[] read-only

---Makes a dataset of several tensors: item i is x[i], y[i], ….
---@param ... heed.Tensor|heed.Tensor[] tensors with equally many items
---@return heed.TensorDataset
---@nodiscard
function data.TensorDataset(...) end

---Some items of another dataset.
---@class heed.Subset: heed.Items
---@field dataset heed.Dataset read-only
---@field indices heed.Tensor int64 [n], read-only

---Makes a dataset of some items of another one.
---@param dataset heed.Dataset what is read
---@param indices integer[]|heed.Tensor from 1
---@return heed.Subset
---@nodiscard
function data.Subset(dataset, indices) end

---The items of several datasets, one after the other.
---@class heed.ConcatDataset: heed.Items
---@field datasets heed.Dataset[] read-only

---Joins datasets, one after the other.
---@param datasets heed.Dataset[] in order
---@return heed.ConcatDataset
---@nodiscard
function data.ConcatDataset(datasets) end

---Splits a dataset at random.
---
---    local train, test = table.unpack(data.random_split(dataset, {0.9, 0.1}))
---@param dataset heed.Dataset what is read
---@param lengths number[] numbers of items, or fractions that add up to 1
---@param options? heed.GeneratorOption
---@return heed.Subset[]
---@nodiscard
function data.random_split(dataset, lengths, options) end

---The order in which a loader visits a dataset. #sampler is the number of indices.
---@class heed.Sampler
---@operator len: integer
local Sampler = {}

---An iterator over one epoch's indices, from 1; of a BatchSampler, over lists of indices.
---@return fun(): integer|integer[]|nil
---@nodiscard
function Sampler:iter() end

---The number of indices, also #sampler; of a BatchSampler, the number of batches.
---@return integer
function Sampler:len() end

---From the first item to the last.
---@param dataset heed.Dataset what is read
---@return heed.Sampler
---@nodiscard
function data.SequentialSampler(dataset) end

---@class heed.RandomSamplerOptions: heed.GeneratorOption
---@field replacement? boolean each draw is from all items; false by default
---@field num_samples? integer the number of items by default

---All items in a random order, as a loader with shuffle = true has them.
---@param dataset heed.Dataset what is read
---@param options? heed.RandomSamplerOptions
---@return heed.Sampler
---@nodiscard
function data.RandomSampler(dataset, options) end

---These indices in a random order.
---@param indices integer[]|heed.Tensor from 1
---@param options? heed.GeneratorOption
---@return heed.Sampler
---@nodiscard
function data.SubsetRandomSampler(indices, options) end

---@class heed.WeightedSamplerOptions: heed.GeneratorOption
---@field replacement? boolean true by default

---Indices drawn with the given weights.
---@param weights number[]|heed.Tensor one for each item, at least 0
---@param num_samples integer how many to draw
---@param options? heed.WeightedSamplerOptions
---@return heed.Sampler
---@nodiscard
function data.WeightedRandomSampler(weights, num_samples, options) end

---Lists of batch_size indices of another sampler.
---@param sampler heed.AnySampler gives the indices
---@param batch_size integer indices in a batch
---@param options? { drop_last: boolean? } drop_last = true leaves out a last batch that is smaller
---@return heed.Sampler
---@nodiscard
function data.BatchSampler(sampler, batch_size, options) end

---Joins the samples of a batch: tensors are stacked, numbers and booleans become a tensor [n], texts a list; tables are
---joined field by field.
---@param samples any[] the items of a batch
---@return any
---@nodiscard
function data.default_collate(samples) end

---@class heed.DataLoaderOptions: heed.GeneratorOption
---@field batch_size? integer 1 by default
---@field shuffle? boolean false by default
---@field sampler? heed.AnySampler instead of shuffle
---@field batch_sampler? heed.AnySampler gives lists of indices, instead of batch_size, shuffle, sampler and drop_last
---@field collate_fn? fun(samples: any[]): any, ... makes a batch of a list of items; several results are several variables of the loop
---@field drop_last? boolean leaves out a last batch that is smaller

---A dataset in batches.
---
---    local loader = heed.utils.data.DataLoader(dataset, {batch_size = 32, shuffle = true})
---    for epoch = 1, 10 do
---      for x, y in loader:iter() do ... end
---    end
---
---Without a generator each epoch draws its seed from the default one, as in PyTorch: the batches are PyTorch's.
---@class heed.DataLoader
---@field dataset heed.Dataset read-only
---@field batch_size integer? read-only
---@field sampler heed.AnySampler? read-only
---@field batch_sampler heed.AnySampler? read-only
---@field drop_last boolean read-only
---@field generator heed.Generator? read-only
---@field collate_fn function? read-only
---@operator len: integer
local DataLoader = {}

---Begins an epoch, or goes on with the one of load_state_dict.
---@return fun(): any, ... iterator over the batches
---@nodiscard
function DataLoader:iter() end

---The number of batches of an epoch, also #loader.
---@return integer
function DataLoader:len() end

---Where the loader is in its epoch, and the state of its generator; for heed.save.
---@return table
---@nodiscard
function DataLoader:state_dict() end

---The next iter goes on where the loader was that gave the state.
---@param state table what state_dict returned
function DataLoader:load_state_dict(state) end

---Makes a loader, which gives the items of a dataset in batches.
---@param dataset heed.Dataset what is read
---@param options? heed.DataLoaderOptions
---@return heed.DataLoader
---@nodiscard
function data.DataLoader(dataset, options) end

---@class heed.TokensOptions: heed.GeneratorOption
---@field context? integer the length of a window
---@field batch? integer windows in a batch; 1 by default
---@field shuffle? boolean windows at random positions, drawn as nanoGPT draws them; true by default. false: one after the other, and again from the first
---@field first_id? 0|1 the id that the first token has in the file: 0 in .bin files, else 1; ids of 0 become 1, as heed counts

---Batches of windows of a long row of token ids. A file is mapped: only what is used is read.
---@class heed.Tokens
---@field context integer read-only
---@field batch integer read-only
---@field shuffle boolean read-only
---@field generator heed.Generator? read-only
---@field first_id 0|1 read-only
---@operator len: integer
local Tokens = {}

---The next batch: x, and y, the same windows one token later.
---@return heed.Tensor x int64 [batch, context]
---@return heed.Tensor y int64 [batch, context]
function Tokens:next() end

---An iterator over batches that never ends.
---@return fun(): heed.Tensor, heed.Tensor
---@nodiscard
function Tokens:iter() end

---The number of ids, also #tokens.
---@return integer
function Tokens:len() end

---The position and the state of the generator; for heed.save.
---@return table
---@nodiscard
function Tokens:state_dict() end

---The next batch is the one that followed when the state was taken.
---@param state table what state_dict returned
function Tokens:load_state_dict(state) end

---Makes batches of windows of a long row of token ids.
---@param ids heed.Tensor|integer[]|string int64 [n]; or the path of a file: .npy, a .safetensors with one tensor, or .bin, 16-bit ids as nanoGPT writes them
---@param options? heed.TokensOptions
---@return heed.Tokens
---@nodiscard
function data.Tokens(ids, options) end
