-- heed.utils.data: datasets, samplers, loaders and windows of text. The draws in tests/golden/data.lua are PyTorch's.
local heed = require "heed"
local fails = require "tests.fails"
local data = heed.utils.data

local function list_of(x) return x:tolist() end

-- The batches of one epoch.
local function epoch_of(loader)
  local batches = {}
  for batch in loader:iter() do batches[#batches + 1] = list_of(batch) end
  return batches
end

local function follows(case, generator)
  local x = heed.rand(1, { generator = generator })
  assert.is_true(x:equal(heed.tensor { case.next }), "the next random number")
end

local run = {}

function run.loader(case)
  heed.manual_seed(case.seed)
  local generator = case.own and heed.Generator(case.seed + 1) or nil
  local loader = data.DataLoader(heed.range(1, case.n):long(), {
    batch_size = case.batch_size, shuffle = case.shuffle, drop_last = case.drop_last, generator = generator,
  })
  for _, expected in ipairs(case.epochs) do assert.same(expected, epoch_of(loader)) end
  assert.equal(case.length, #loader)
  follows(case, generator)
end

function run.stopped(case)
  local generator = heed.Generator(case.seed)
  local loader = data.DataLoader(heed.range(1, case.n):long(), case.batch_size, true, { generator = generator })
  local iterate = loader:iter()
  assert.same(case.first, list_of(iterate()))
  assert.same(case.epoch, epoch_of(loader))
  follows(case, generator)
end

function run.sampler(case)
  heed.manual_seed(17)
  local generator = case.own and heed.Generator(18) or nil
  local sampler
  if case.name == "random" then
    sampler = data.RandomSampler(heed.ones(9), {
      num_samples = case.num_samples, replacement = case.replacement, generator = generator,
    })
  elseif case.name == "subset" then
    sampler = data.SubsetRandomSampler(case.indices, { generator = generator })
  else
    sampler = data.WeightedRandomSampler(case.weights, case.num_samples, case.replacement, { generator = generator })
  end
  local order = {}
  for i in sampler:iter() do order[#order + 1] = i end
  assert.same(case.order, order)
  assert.equal(#case.order, #sampler)
  follows(case, generator)
end

function run.split(case)
  heed.manual_seed(5)
  local generator = case.own and heed.Generator(6) or nil
  local parts = data.random_split(heed.ones(case.n), case.lengths, { generator = generator })
  assert.equal(#case.parts, #parts)
  for i, part in ipairs(parts) do
    assert.same(case.parts[i], list_of(part.indices))
    assert.equal(#case.parts[i], #part)
  end
  follows(case, generator)
end

function run.tokens(case)
  local generator = heed.Generator(case.seed)
  local tokens = data.Tokens(heed.range(1, case.n):long(), case.context, case.batch, { generator = generator })
  for i = 1, #case.x do
    local x, y = tokens:next()
    assert.same(case.x[i], list_of(x))
    assert.same(case.y[i], list_of(y))
  end
  follows(case, generator)
end

describe("the random order is PyTorch's", function()
  for i, case in ipairs(dofile "tests/golden/data.lua") do
    it(("for %s %d"):format(case.kind, i), function() run[case.kind](case) end)
  end
end)

describe("a dataset", function()
  local x, y = heed.arange(12):view(6, 2), heed.tensor({ 6, 5, 4, 3, 2, 1 }, { dtype = "int64" })

  it("of tensors has their items", function()
    local dataset = data.TensorDataset(x, y)
    assert.equal(6, #dataset)
    assert.equal(6, dataset:len())
    assert.same({ 2, 3 }, list_of(dataset[2][1]))
    assert.equal(5, dataset[2][2]:item())
    local first, second = dataset:get(-1)
    assert.same({ 10, 11 }, list_of(first))
    assert.equal(1, second:item())
    assert.is_true(dataset.tensors[1]:equal(x))
    assert.equal("heed.TensorDataset(6 items)", tostring(dataset))
    assert.equal(6, #data.TensorDataset { x, y })
  end)

  it("may be a part of another", function()
    local part = data.Subset(data.TensorDataset(x, y), { 6, 1 })
    assert.equal(2, #part)
    assert.equal(1, part[1][2]:item())
    local part_of_part = data.Subset(part, heed.tensor({ 2 }, { dtype = "int64" }))
    assert.equal(6, part_of_part[1][2]:item())
    for a, b in data.DataLoader(part_of_part):iter() do
      assert.same({ { 0, 1 } }, list_of(a))
      assert.same({ 6 }, list_of(b))
    end
  end)

  it("may be several in a row", function()
    local row = data.ConcatDataset { heed.tensor { 1, 2 }, heed.zeros(0), { "a" }, heed.tensor { 5, 6, 7 } }
    assert.equal(6, #row)
    assert.equal(2, row[2]:item())
    assert.equal("a", row[3])
    assert.equal(7, row[-1]:item())
    assert.equal(5, row[4]:item())
  end)

  it("may be a list or an object of one's own", function()
    local squares = {}
    function squares.len() return 5 end
    function squares.get(_, i) return heed.tensor { i, i * i }, "number " .. i end
    local loader = data.DataLoader(squares, { batch_size = 3 })
    assert.equal(2, #loader)
    local seen = {}
    for pairs_, names in loader:iter() do
      seen[#seen + 1] = { list_of(pairs_), names }
    end
    assert.same({
      { { { 1, 1 }, { 2, 4 }, { 3, 9 } }, { "number 1", "number 2", "number 3" } },
      { { { 4, 16 }, { 5, 25 } }, { "number 4", "number 5" } },
    }, seen)
    local records = { { x = 1, ok = true }, { x = 2, ok = false } }
    for batch in data.DataLoader(records, 2):iter() do
      assert.same({ 1, 2 }, list_of(batch.x))
      assert.equal("bool", batch.ok.dtype)
    end
  end)

  it("is refused if it cannot be read", function()
    fails("TensorDataset: no tensor is given; it takes one or several", data.TensorDataset)
    fails("TensorDataset: tensor 2 has 5 items and tensor 1 has 6; the tensors must agree in the size of dimension 1",
      data.TensorDataset, x, heed.ones(5))
    fails("TensorDataset: tensor 2 is the number 3; it must be a tensor", data.TensorDataset, x, 3)
    fails("TensorDataset: tensor 1 is a tensor of shape [] and dtype float32; it must be a tensor of at least 1 "
      .. "dimension", data.TensorDataset, heed.tensor(1))
    fails("Subset: indices contains 7; the indices must be from 1 to 6, the number of items", data.Subset, x, { 1, 7 })
    fails("Subset: indices contains 0; the indices must be from 1 to 6, the number of items", data.Subset, x, { 0 })
    fails("Subset: indices[2] is a string ('a'); it must be an integer", data.Subset, x, { 1, "a" })
    fails("DataLoader: dataset is nil; it must be a dataset: a tensor, a list, or an object with the methods get and "
      .. "len", data.DataLoader)
    fails("DataLoader: dataset is a module (Linear); it must be a dataset: a tensor, a list, or an object with the "
      .. "methods get and len", data.DataLoader, heed.nn.Linear(2, 2))
    fails("DataLoader: dataset is a table by name; it must be a list: options stand in a table of their own, as in "
      .. "DataLoader(dataset, {batch_size = 4})", data.DataLoader, { dataset = x, batch_size = 4 })
    fails("DataLoader: dataset is a heed.DataLoader; it must be a dataset, such as loader.dataset", data.DataLoader,
      data.DataLoader(x))
    fails("ConcatDataset: datasets is a table; it must be a list of at least one dataset", data.ConcatDataset, {})
    fails("random_split: the lengths add up to 5; they must add up to 6, the number of items, or be fractions that "
      .. "add up to 1", data.random_split, x, { 2, 3 })
    fails("random_split: lengths[1] is the number -1; it must be a length or a fraction, at least 0", data.random_split,
      x, { -1, 7 })
    local dataset = data.TensorDataset(x)
    fails("TensorDataset: index is the number 7; it must be an integer from 1 to 6, the number of items",
      function() return dataset[7] end)
    fails("heed.TensorDataset: there is no method or field 'size'", function() return dataset.size end)
    fails("heed.TensorDataset: the field 'tensors' cannot be set; make a new object",
      function() dataset.tensors = {} end)
    fails("get: self is nil; it must be a heed.TensorDataset; call the method with a colon", dataset.get)
  end)
end)

describe("a loader", function()
  local indexed = #setmetatable({}, { __len = function() return 1 end }) == 1 and it or pending
  indexed("reads objects with __index and __len", function()
    local squares = setmetatable({}, {
      __index = function(_, i) return heed.ones(2) * i end, __len = function() return 3 end,
    })
    local sums = {}
    for batch in data.DataLoader(squares, 2):iter() do sums[#sums + 1] = batch:sum():item() end
    assert.are.same({ 6, 6 }, sums)
  end)

  local x = heed.range(1, 10):long()

  it("says how it is iterated over", function()
    local loader = data.DataLoader(x, 2)
    fails("heed.DataLoader: it is called; write for x, y in loader:iter() do",
      function() for _ in loader do return end end) -- luacheck: ignore 512
    fails("heed.DataLoader: the index is the number 1; write for x, y in loader:iter() do",
      function() for _ in heed.ipairs(loader) do return end end) -- luacheck: ignore 512
    fails("heed.DataLoader: pairs is called; write for x, y in loader:iter() do",
      function() for _ in heed.pairs(loader) do return end end) -- luacheck: ignore 512
    fails("DataLoader: dataset has a method get and no len; it must have both, get(self, i) and len(self)",
      data.DataLoader, { get = function() return 1 end })
    fails("DataLoader: dataset has a method len and no get; it must have both, get(self, i) and len(self)",
      data.DataLoader, { len = function() return 1 end })
    fails("heed.DataLoader: there is no method or field 'state_dit'; did you mean 'state_dict'?",
      function() return loader.state_dit end)
  end)

  it("gives what collate_fn makes of the samples", function()
    local function collate_fn(samples) return #samples, samples[1]:item() end
    local loader = data.DataLoader(x, { batch_size = 4, collate_fn = collate_fn })
    local seen = {}
    for count, first in loader:iter() do seen[#seen + 1] = { count, first } end
    assert.same({ { 4, 1 }, { 4, 5 }, { 2, 9 } }, seen)
  end)

  it("takes a sampler or a batch sampler", function()
    assert.same({ { 3, 1 }, { 2 } }, epoch_of(data.DataLoader(x, { batch_size = 2, sampler = { 3, 1, 2 } })))
    local function odd()
      local i = -1
      return function()
        i = i + 2
        if i < 10 then return i end
      end
    end
    assert.same({ { 1, 3, 5 }, { 7, 9 } }, epoch_of(data.DataLoader(x, { batch_size = 3, sampler = odd })))
    local batches = data.BatchSampler(data.SequentialSampler(x), 4, { drop_last = true })
    assert.equal(2, #batches)
    local loader = data.DataLoader(x, { batch_sampler = batches })
    assert.equal(2, #loader)
    assert.same({ { 1, 2, 3, 4 }, { 5, 6, 7, 8 } }, epoch_of(loader))
    assert.same({ { 9 }, { 1, 2 } }, epoch_of(data.DataLoader(x, { batch_sampler = { { 9 }, { 1, 2 } } })))
  end)

  it("names an object without fields that is no sampler", function()
    local pointer = debug.upvalueid and debug.upvalueid(epoch_of, 1) or io.stdout -- Lua 5.1 has no userdata without any
    local fine, message = pcall(data.BatchSampler, pointer, 4)
    assert.is_false(fine)
    assert.truthy(message:find("it must be a sampler, a list of indices, or an object with the method iter", 1, true))
  end)

  it("has the same batches of a list as of a tensor", function()
    local list = {}
    for i = 1, 10 do list[i] = x:select(1, i) end
    local a = data.DataLoader(x, { batch_size = 3, shuffle = true, generator = heed.Generator(1) })
    local b = data.DataLoader(list, { batch_size = 3, shuffle = true, generator = heed.Generator(1) })
    assert.same(epoch_of(a), epoch_of(b))
  end)

  it("may have no items", function()
    assert.same({}, epoch_of(data.DataLoader(heed.zeros(0), 2)))
    assert.equal(0, #data.DataLoader({}, 2))
  end)

  it("refuses what does not fit", function()
    fails("DataLoader: batch_size is the number 0; it must be an integer, at least 1", data.DataLoader, x, 0)
    local known = "batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, generator"
    fails("DataLoader: there is no option 'batchsize'; the options are " .. known, data.DataLoader, x,
      { batchsize = 3 })
    fails("DataLoader: there is no option 'num_workers'; the options are " .. known
      .. "; heed reads batches when they are asked for: leave it out", data.DataLoader, x, { num_workers = 3 })
    fails("DataLoader: generator is the number 3; it must be a heed.Generator", data.DataLoader, x, { generator = 3 })
    fails("DataLoader: sampler and shuffle are given; give one: a sampler has its own order", data.DataLoader, x,
      { shuffle = true, sampler = { 1 } })
    fails("DataLoader: batch_sampler and batch_size are given; batch_sampler gives the batches", data.DataLoader, x,
      { batch_size = 2, batch_sampler = { { 1 } } })
    fails("DataLoader: the sampler gives the number 11; it must give indices from 1 to 10",
      function() return epoch_of(data.DataLoader(x, { sampler = { 11 } })) end)
    fails("RandomSampler: the dataset is empty; it must have at least 1 item",
      function() return epoch_of(data.DataLoader(heed.zeros(0), { shuffle = true })) end)
    fails("DataLoader: the first result of collate_fn is nil; it must be a batch",
      function() return epoch_of(data.DataLoader(x, { collate_fn = function() end })) end)
    fails("default_collate: sample 2 is [3] and sample 1 [2]; samples of a batch must have one shape: pad them in the "
      .. "dataset or in collate_fn", function() return epoch_of(data.DataLoader({ heed.ones(2), heed.ones(3) }, 2)) end)
    fails("default_collate: sample 2 is a string ('a') and sample 1 the number 1; the samples of a batch must be alike",
      function() return epoch_of(data.DataLoader({ 1, "a" }, 2)) end)
    fails("default_collate: sample 2 has no field 'x', which sample 1 has; the samples of a batch must have the same "
      .. "fields", function() return epoch_of(data.DataLoader({ { x = 1 }, { y = 1 } }, 2)) end)
  end)

  it("goes on after an error of the dataset with the batch that failed", function()
    local broken = true
    local dataset = { len = function() return 4 end, get = function(_, i)
      if broken and i == 3 then error "not yet" end
      return heed.tensor(i)
    end }
    local iterate = data.DataLoader(dataset, 2):iter()
    assert.same({ 1, 2 }, list_of(iterate()))
    assert.is_false(pcall(iterate))
    broken = false
    assert.same({ 3, 4 }, list_of(iterate()))
    assert.is_nil(iterate())
  end)

  it("calls functions that may yield", function()
    local dataset = { len = function() return 2 end, get = function(_, i)
      coroutine.yield(i)
      return heed.tensor(i)
    end }
    local seen = {}
    local co = coroutine.wrap(function()
      local iterate = data.DataLoader(dataset, 2):iter() -- not in a for: in Lua 5.1 its iterators cannot yield
      seen = list_of(iterate())
      return "done"
    end)
    assert.equal(1, co())
    assert.equal(2, co())
    assert.equal("done", co())
    assert.same({ 1, 2 }, seen)
  end)
end)

describe("the state of a loader", function()
  local x = heed.range(1, 11):long()

  local function make(options)
    options.batch_size = not options.batch_sampler and 4 or nil
    return data.DataLoader(x, options)
  end

  -- All batches of two epochs, where after `stop` batches another loader takes over.
  local function run_of(options, another, stop)
    local loader, batches, first = make(options()), {}, nil
    local count, epochs = 0, 0
    while epochs < 2 do
      for batch in loader:iter() do
        batches[#batches + 1] = list_of(batch)
        count = count + 1
        if count == stop then
          first = loader:state_dict()
          break
        end
      end
      if first then
        heed.rand(5)
        loader = make(another())
        loader:load_state_dict(first)
        first = nil
      else
        epochs = epochs + 1
      end
    end
    return batches
  end

  local cases = {
    ["without a shuffle"] = function() return {} end,
    ["with a generator"] = function() return { shuffle = true, generator = heed.Generator(4) } end,
    ["that drops the last batch"] = function()
      return { shuffle = true, drop_last = true, generator = heed.Generator(4) }
    end,
    ["with a batch sampler"] = function()
      local g = heed.Generator(4)
      return { generator = g, batch_sampler = data.BatchSampler(data.RandomSampler(x, { generator = g }), 4) }
    end,
  }
  for name, options in pairs(cases) do
    it("goes on at any batch " .. name, function()
      local expected = run_of(options, options, 0)
      for stop = 1, #expected - 1 do
        local function another()
          local changed = options()
          if changed.generator then changed.generator:manual_seed(99) end
          return changed
        end
        assert.same(expected, run_of(options, another, stop), ("stopped after batch %d"):format(stop))
      end
    end)
  end

  it("goes on in an epoch whose order came from the default generator", function()
    heed.manual_seed(8)
    local expected = epoch_of(make { shuffle = true })
    heed.manual_seed(8)
    local loader = make { shuffle = true }
    local iterate = loader:iter()
    assert.same(expected[1], list_of(iterate()))
    local other = make { shuffle = true }
    other:load_state_dict(loader:state_dict())
    assert.same({ expected[2], expected[3] }, epoch_of(other))
    assert.equal(3, #epoch_of(other))
  end)

  it("is refused if it is another's", function()
    local loader = make { shuffle = true, generator = heed.Generator(1) }
    loader:iter()()
    local state, before = loader:state_dict(), loader.generator:get_state()
    fails("load_state_dict: the state is of a dataset of 11 items; this one has 3",
      function() data.DataLoader(heed.ones(3)):load_state_dict(state) end)
    fails("load_state_dict: the state is of a loader with a generator; this one has none",
      function() make({ shuffle = true }):load_state_dict(state) end)
    state.given = 12
    fails("load_state_dict: state.given is the number 12; it must be the number of samples that were given",
      function() loader:load_state_dict(state) end)
    state.given, state.order = 4, heed.tensor({ 12 }, { dtype = "int64" })
    assert.is_false(pcall(loader.load_state_dict, loader, state))
    fails("load_state_dict: state is nil; it must be a table that state_dict gave",
      function() loader:load_state_dict() end)
    fails("load_state_dict: state.running is nil; it must be a boolean", function() loader:load_state_dict {} end)
    assert.equal(before, loader.generator:get_state())
  end)
end)

describe("Tokens", function()
  local path = os.tmpname()
  local ids = heed.range(1, 300):long()

  local function write(bytes)
    local file = assert(io.open(path .. ".bin", "wb"))
    file:write(bytes)
    file:close()
    return path .. ".bin"
  end
  local function uint16(list)
    local bytes = {}
    for i, id in ipairs(list) do bytes[i] = string.char(id % 256, math.floor(id / 256)) end
    return table.concat(bytes)
  end
  teardown(function()
    for _, ending in ipairs { "", ".bin", ".npy", ".safetensors" } do os.remove(path .. ending) end
  end)

  it("reads the ids of a file", function()
    local list = {}
    for i = 1, 300 do list[i] = i == 7 and 50256 or i - 1 end
    heed.save(path .. ".npy", ids)
    heed.save(path .. ".safetensors", { ids = ids })
    write(uint16(list))
    for _, ending in ipairs { "bin", "npy", "safetensors" } do
      local tokens = data.Tokens(path .. "." .. ending, { context = 5, batch = 2, shuffle = false })
      assert.equal(300, #tokens)
      local x, y = tokens:next()
      local seventh = ending == "bin" and 50257 or 7
      assert.same({ { 1, 2, 3, 4, 5 }, { 6, seventh, 8, 9, 10 } }, list_of(x))
      assert.same({ { 2, 3, 4, 5, 6 }, { seventh, 8, 9, 10, 11 } }, list_of(y))
      assert.equal("int64", x.dtype)
    end
    assert.equal("heed.Tokens(300 ids, context=5, batch=1)", tostring(data.Tokens(path .. ".npy", 5)))
  end)

  it("reads no more of a file than it needs", function()
    write(("\1\0"):rep(2 ^ 22))
    collectgarbage()
    local before = heed.info().memory_in_use
    local tokens = data.Tokens(path .. ".bin", { context = 8, batch = 4 })
    assert.same({ 4, 8 }, { table.unpack(tokens:next().shape) })
    assert.is_true(heed.info().memory_in_use - before < 2 ^ 16)
  end)

  it("without a shuffle reads from the first to the last, and again", function()
    local tokens = data.Tokens({ 1, 2, 3, 4, 5, 6, 7, 8 }, { context = 3, shuffle = false })
    local firsts = {}
    for x in tokens:iter() do
      firsts[#firsts + 1] = x[{ 1, 1 }]
      if #firsts == 5 then break end
    end
    assert.same({ 1, 4, 1, 4, 1 }, firsts)
  end)

  it("goes on where a state was taken", function()
    for _, shuffle in ipairs { true, false } do
      local function make() return data.Tokens(ids, 4, 3, shuffle, { generator = heed.Generator(2) }) end
      local tokens = make()
      tokens:next()
      local state = tokens:state_dict()
      local x, y = tokens:next()
      local other = make()
      other:load_state_dict(state)
      local other_x, other_y = other:next()
      assert.is_true(x:equal(other_x))
      assert.is_true(y:equal(other_y))
    end
  end)

  it("refuses what it cannot read", function()
    fails("Tokens: ids is nil; it must be an int64 tensor [n], a list of ids, or the path of a file", data.Tokens, nil,
      3)
    fails("Tokens: context is nil; it must be an integer, at least 1", data.Tokens, ids)
    fails("Tokens: ids has 300; it must have at least 301: context = 300 and one more", data.Tokens, ids, 300)
    fails("Tokens: ids has 300; it must have at least 401: context = 200, times batch = 2, and one more", data.Tokens,
      ids, 200, 2, false)
    assert.is_false(pcall(data.Tokens, heed.ones(3), 1))
    fails("Tokens: first_id is the number 2; it must be 0 or 1", data.Tokens, ids, 3, { first_id = 2 })
    fails(("Tokens: %s.bin has 3 bytes; a file of 16-bit ids has an even number"):format(path), data.Tokens,
      write "abc", 1)
    assert.error_matches(function() data.Tokens(path .. ".missing.bin", 1) end, "Tokens: .*missing")
    fails("next: an id is 0; ids count from 1: give Tokens the option first_id = 0 if those of the file count from 0",
      function() data.Tokens({ 0, 1, 2 }, 2):next() end)
    assert.same({ { 1, 2 } }, list_of((data.Tokens({ 0, 1, 2 }, 2, { first_id = 0 }):next())))
    local tokens = data.Tokens(ids, 3)
    fails("load_state_dict: the state is of a text of 5 ids; this one has 300",
      function() tokens:load_state_dict { length = 5, position = 1 } end)
    fails("load_state_dict: state.position is the number 299; it must be an integer from 1 to 297",
      function() tokens:load_state_dict { length = 300, position = 299 } end)
  end)
end)
