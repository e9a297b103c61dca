-- A training that goes on from a checkpoint has the same bits as one that was not stopped.
local heed = require "heed"
local nn, data = heed.nn, heed.utils.data
local F = nn.functional

local VOCAB, CONTEXT, WIDTH = 11, 6, 8

local Model = nn.Module.class "CharModel"

function Model:init()
  self.embedding = nn.Embedding(VOCAB, WIDTH)
  self.norm = nn.LayerNorm(WIDTH)
  self.attention = nn.MultiHeadAttention(WIDTH, WIDTH, CONTEXT, 0.1, 2)
  self.dropout = nn.Dropout(0.2)
  self.head = nn.Linear(WIDTH, VOCAB)
end

function Model:forward(ids)
  local x = self.embedding(ids)
  x = x + self.dropout(self.attention(self.norm(x)))
  return self.head(x)
end

local ids = heed.range(0, 399):long():mul(7):remainder(VOCAB) + 1

-- How the batches are made, from the generator of the data: what is saved, a function that gives the next batch, and
-- one that is called after loading.
local SOURCES = {
  Tokens = function(g)
    local tokens = data.Tokens(ids, { context = CONTEXT, batch = 4, generator = g })
    return tokens, function() return tokens:next() end
  end,
  DataLoader = function(g)
    local windows = ids:narrow(1, 1, 56 * (CONTEXT + 1)):view(56, CONTEXT + 1)
    local x, y = windows:narrow(2, 1, CONTEXT):contiguous(), windows:narrow(2, 2, CONTEXT):contiguous()
    local loader = data.DataLoader(data.TensorDataset(x, y), { batch_size = 9, shuffle = true, generator = g })
    local iterate
    return loader, function()
      iterate = iterate or loader:iter()
      local inputs, targets = iterate()
      if not inputs then
        iterate = loader:iter()
        inputs, targets = iterate()
      end
      return inputs, targets
    end, function() iterate = nil end
  end,
}

local OPTIMIZERS = {
  SGD = { lr = 0.1, momentum = 0.9, nesterov = true },
  Adam = { lr = 1e-2, amsgrad = true },
  AdamW = { lr = 1e-2, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  RMSprop = { lr = 1e-2, momentum = 0.5, centered = true },
}

-- Everything that a training has.
local function new_run(source, optimizer, seed)
  heed.manual_seed(seed)
  local run = { model = Model(), generators = { heed.Generator(seed), heed.default_generator } }
  run.data, run.next, run.loaded = SOURCES[source](run.generators[1])
  run.optimizer = heed.optim[optimizer](run.model:parameters(), OPTIMIZERS[optimizer])
  run.schedule = heed.optim.lr_scheduler.CosineAnnealingLR(run.optimizer, { T_max = 20 })
  return run
end

local function train(run, steps)
  local losses = {}
  for i = 1, steps do
    local x, y = run.next()
    local loss = F.cross_entropy(run.model(x):flatten(1, 2), y:flatten())
    run.optimizer:zero_grad()
    loss:backward()
    nn.utils.clip_grad_norm_(run.model:parameters(), 1)
    run.optimizer:step()
    run.schedule:step()
    losses[i] = loss:item()
  end
  return losses
end

local function weights_of(model) return nn.utils.parameters_to_vector(model:parameters()):detach() end

describe("a training that goes on from a checkpoint has the same bits", function()
  local base = os.tmpname()
  local path = base .. ".safetensors"
  local before
  setup(function() before = heed.set_grad_enabled(true) end)
  teardown(function()
    heed.set_grad_enabled(before)
    os.remove(base)
    os.remove(path)
  end)

  for source in pairs(SOURCES) do
    for optimizer in pairs(OPTIMIZERS) do
      it(("with %s and %s"):format(source, optimizer), function()
        local run = new_run(source, optimizer, 1)
        train(run, 10)
        assert.is_true(heed.save(path, {
          model = run.model, optimizer = run.optimizer, schedule = run.schedule, data = run.data,
          generators = run.generators, step = 10,
        }))
        local expected = train(run, 10)

        local other = new_run(source, optimizer, 2)
        train(other, 3)
        local checkpoint = assert(heed.utils.load_checkpoint(path, {
          model = other.model, optimizer = other.optimizer, schedule = other.schedule, data = other.data,
          generators = other.generators,
        }))
        assert.equal(10, checkpoint.step)
        if other.loaded then other.loaded() end
        assert.same(expected, train(other, 10))
        assert.is_true(weights_of(run.model):equal(weights_of(other.model)))
      end)
    end
  end
end)
