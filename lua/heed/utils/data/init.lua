--- heed.utils.data: datasets, loaders of batches, and windows of a long text. Names and draws are PyTorch's.

local core = require "heed.core"
local E = require "heed.nn.entries"
local datasets = require "heed.utils.data.datasets"
local samplers = require "heed.utils.data.samplers"

local data = {
  TensorDataset = datasets.TensorDataset,
  Subset = datasets.Subset,
  ConcatDataset = datasets.ConcatDataset,
  random_split = datasets.random_split,
  SequentialSampler = samplers.SequentialSampler,
  RandomSampler = samplers.RandomSampler,
  SubsetRandomSampler = samplers.SubsetRandomSampler,
  WeightedRandomSampler = samplers.WeightedRandomSampler,
  BatchSampler = samplers.BatchSampler,
  DataLoader = require "heed.utils.data.loader",
  Tokens = require "heed.utils.data.tokens",
  default_collate = require "heed.utils.data.collate",
}

return core.modules.guard(E.with_frames(data), "heed.utils.data")
