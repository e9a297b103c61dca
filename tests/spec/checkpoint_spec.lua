-- Checkpoints: heed.save of nested tables, heed.load, heed.utils.load_checkpoint.
local heed = require "heed"
local compare_numbers = rawequal
local fails = require "tests.fails"
local raises = require "tests.raises"
local nn, data = heed.nn, heed.utils.data
local load_checkpoint = heed.utils.load_checkpoint

local base = os.tmpname()
local path = base .. ".safetensors"

local function saved(what)
  assert.is_true(heed.save(path, what))
  return (assert(heed.load(path)))
end

-- An optimiser of one's own.
local function counter(steps)
  local self = { steps = steps, moments = heed.full(2, steps) }
  local methods = {}
  function methods.state_dict(s) return { steps = s.steps, moments = s.moments } end
  function methods.load_state_dict(s, state)
    if type(state.steps) ~= "number" then error "no steps" end
    s.steps, s.moments = state.steps, state.moments:clone()
  end
  return setmetatable(self, { __index = methods })
end

local function model_of() return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) end

describe("a checkpoint", function()
  teardown(function()
    os.remove(base)
    os.remove(path)
  end)

  it("gives numbers, texts and booleans back as they were", function()
    local numbers = {
      12, -1, 0.5, 1e-3, 0.1, 1 / 3, 2 ^ 53, 2 ^ 60, -2 ^ 53, 1e300, 5e-324, 1 / 0, -1 / 0, 3.0, 123456789012,
    }
    local got = saved {
      numbers = numbers, nan = 0 / 0, zero = -1 / heed.inf, yes = true, no = false,
      text = 'a "quoted"\n\\ text, größer\127',
      bytes = "\0\255\1", empty = "", long = ("x"):rep(100000),
    }
    assert.equal(#numbers, #got.numbers)
    for i, number in ipairs(numbers) do
      assert.is_true(compare_numbers(number, got.numbers[i]), tostring(number))
      assert.equal(tostring(number), tostring(got.numbers[i]))
    end
    assert.is_true(got.nan ~= got.nan)
    assert.equal(-1 / 0, 1 / got.zero)
    assert.is_true(got.yes)
    assert.is_false(got.no)
    assert.equal('a "quoted"\n\\ text, größer\127', got.text)
    assert.equal("\0\255\1", got.bytes)
    assert.equal("", got.empty)
    assert.is_true(got.long == ("x"):rep(100000))
  end)

  it("gives nested tables back, with any keys", function()
    local got = saved {
      list = { 1, { 2, { 3 } }, {} }, holes = { [1] = "a", [3] = "c" }, mixed = { 1, 2, n = 2 }, ["$tensor"] = "x",
      ["a.b"] = { c = heed.ones(1) }, a = { ["b.c"] = heed.zeros(1), b = { c = heed.full(1, 2) } },
      keys = { [true] = 1, [-2.5] = 2, ["\0"] = 3 },
    }
    assert.same({ 1, { 2, { 3 } }, {} }, got.list)
    assert.same({ [1] = "a", [3] = "c" }, got.holes)
    assert.same({ 1, 2, n = 2 }, got.mixed)
    assert.equal("x", got["$tensor"])
    assert.equal(1, got["a.b"].c:item())
    assert.equal(0, got.a["b.c"]:item())
    assert.equal(2, got.a.b.c:item())
    assert.same({ [true] = 1, [-2.5] = 2, ["\0"] = 3 }, got.keys)
  end)

  it("gives tensors, and modules as state dicts, in order", function()
    local model = model_of()
    local got = saved { model = model, best = { model:state_dict() }, x = heed.tensor { true, false }, step = 1 }
    local names = {}
    for name in heed.pairs(got.model) do names[#names + 1] = name end
    assert.same({ "0.weight", "0.bias", "2.weight", "2.bias" }, names)
    assert.is_true(got.model["2.weight"]:equal(model[3].weight))
    assert.is_true(got.best[1]["0.bias"]:equal(model[1].bias))
    assert.equal("bool", got.x.dtype)
    local other = model_of()
    other:load_state_dict(got.model)
    assert.is_true(other[1].weight:equal(model[1].weight))
  end)

  it("keeps the metadata apart", function()
    assert.is_true(heed.save(path, { step = 3, x = heed.ones(2) }, { metadata = { note = "hello" } }))
    local got, metadata = heed.load(path)
    assert.equal(3, got.step)
    assert.same({ note = "hello" }, metadata)
  end)

  it("leaves a table of tensors what it was", function()
    assert.is_true(heed.save(path, { x = heed.ones(2) }))
    local state, metadata = heed.load(path)
    assert.equal(1, #state)
    assert.same({}, metadata)
  end)

  it("restores modules, objects, loaders and generators", function()
    local model, optimizer, g = model_of(), counter(3), heed.Generator(5)
    local loader = data.DataLoader(heed.range(1, 10), { batch_size = 4, shuffle = true, generator = g })
    local iterate = loader:iter()
    iterate()
    heed.manual_seed(11)
    assert.is_true(heed.save(path, {
      model = model, optimizer = optimizer, data = loader, generators = { g, heed.default_generator }, step = 12,
    }))
    local expected = { iterate():tolist(), iterate():tolist(), heed.rand(2):tolist() }

    local other_model, other_optimizer, other_g = model_of(), counter(0), heed.Generator(6)
    local other_loader = data.DataLoader(heed.range(1, 10), { batch_size = 4, shuffle = true, generator = other_g })
    local run = assert(load_checkpoint(path, {
      model = other_model, optimizer = other_optimizer, data = other_loader,
      generators = { other_g, heed.default_generator },
    }))
    assert.equal(12, run.step)
    assert.is_true(other_model[1].weight:equal(model[1].weight))
    assert.equal(3, other_optimizer.steps)
    iterate = other_loader:iter()
    assert.same(expected, { iterate():tolist(), iterate():tolist(), heed.rand(2):tolist() })
    assert.equal(g:get_state(), other_g:get_state())
  end)

  it("of another model lists the names and changes nothing", function()
    assert.is_true(heed.save(path, { model = model_of(), optimizer = counter(3), generators = { heed.Generator(1) } }))
    local other = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.ReLU(), nn.Linear(5, 2))
    local before = nn.utils.parameters_to_vector(other:parameters())
    local optimizer, g = counter(0), heed.Generator(2)
    local state = g:get_state()
    raises("load_checkpoint: the checkpoint is of another model:"
      .. "\n  model.0.bias is [4]; it must be [5]"
      .. "\n  model.0.weight is [4, 3]; it must be [5, 3]"
      .. "\n  model.2.bias is not part of the module"
      .. "\n  model.2.weight is not part of the module"
      .. "\n  model.3.bias is missing"
      .. "\n  model.3.weight is missing", function()
      load_checkpoint(path, { model = other, optimizer = optimizer, generators = { g } })
    end)
    assert.is_true(before:equal(nn.utils.parameters_to_vector(other:parameters())))
    assert.equal(0, optimizer.steps)
    assert.equal(state, g:get_state())
  end)

  it("may lack names with strict = false", function()
    local model = nn.Sequential(nn.Linear(3, 4))
    assert.is_true(heed.save(path, { model = model, step = 1 }))
    local other = model_of()
    assert(load_checkpoint(path, { model = other }, { strict = false }))
    assert.is_true(other[1].weight:equal(model[1].weight))
  end)

  it("names the object whose state does not fit", function()
    local m, other = model_of(), nn.Linear(2, 7)
    local a, b = heed.optim.SGD(m:parameters()), heed.optim.SGD(other:parameters())
    assert.is_true(heed.save(path, { nets = { a = a, b = b } }))
    fails("load_checkpoint: 'nets.b': the state is of another model or optimiser:\n  group 1 has 2 parameters, in the "
      .. "optimiser 1", load_checkpoint, path, { nets = { b = heed.optim.SGD { other.weight } } })
  end)

  it("changes nothing if one of the objects refuses its state", function()
    assert.is_true(heed.save(path, {
      model = model_of(), first = counter(3), second = { broken = 1 }, generators = { heed.Generator(1) },
    }))
    local objects = { model = model_of(), first = counter(0), second = counter(0), generators = { heed.Generator(2) } }
    local before = nn.utils.parameters_to_vector(objects.model:parameters())
    local state = objects.generators[1]:get_state()
    assert.error_matches(function() load_checkpoint(path, objects) end, "no steps")
    assert.is_true(before:equal(nn.utils.parameters_to_vector(objects.model:parameters())))
    assert.equal(0, objects.first.steps)
    assert.same({ 0, 0 }, objects.first.moments:tolist())
    assert.equal(state, objects.generators[1]:get_state())
  end)

  it("is loaded whole or not at all, wherever a limit stops it", function()
    local function make(seed)
      heed.manual_seed(seed)
      local model = nn.Sequential(nn.Linear(200, 150), nn.Linear(150, 200))
      local run = { model = model, generators = { heed.Generator(seed) } }
      run.optimizer = heed.optim.AdamW(run.model:parameters(), { lr = seed / 100 })
      run.schedule = heed.optim.lr_scheduler.StepLR(run.optimizer, { step_size = seed })
      run.data = data.DataLoader(heed.range(1, 50), { shuffle = true, generator = run.generators[1] })
      for _ = 1, seed do
        for p in run.model:parameters() do p.grad = heed.full(p.shape, seed) end
        run.optimizer:step()
        run.schedule:step()
      end
      run.data:iter()()
      return run
    end
    -- Everything that a run has, as one text.
    local function text_of(run)
      local parts = { nn.utils.parameters_to_vector(run.model:parameters()):to_string(), run.generators[1]:get_state() }
      local state = run.optimizer:state_dict()
      for i = 1, 4 do
        parts[#parts + 1] = tostring(state.state[i].step) .. state.state[i].exp_avg:to_string()
      end
      parts[#parts + 1] = state.param_groups[1].lr .. " " .. run.schedule:state_dict().last_epoch
      parts[#parts + 1] = run.data:state_dict().order:to_string()
      return table.concat(parts)
    end
    local saved_run = make(2)
    assert.is_true(heed.save(path, saved_run))
    local new = text_of(saved_run)
    local run = make(3)
    local old = text_of(run)
    local start = heed.clock()
    assert(load_checkpoint(path, make(1)))
    local seconds = heed.clock() - start
    local stopped = 0
    local function check(limit)
      heed.limit(limit)
      local done, result = pcall(load_checkpoint, path, run)
      heed.limit { memory = heed.inf, seconds = heed.inf }
      local now = text_of(run)
      if done and result then
        assert.is_true(now == new)
        run = make(3)
      else
        stopped = stopped + 1
        assert.is_true(now == old)
      end
    end
    for i = 1, 20 do
      check { seconds = seconds * i / 16 }
      collectgarbage()
      check { memory = heed.info().memory_in_use + 40000 * i }
    end
    assert.is_true(stopped > 5)
  end)

  it("is written whole or not at all", function()
    assert.is_true(heed.save(path, { step = 1 }))
    assert.is_false(pcall(heed.save, path, { step = 2, f = print }))
    local broken = setmetatable({}, { __index = { state_dict = function() error "no state" end } })
    assert.error_matches(function() heed.save(path, { step = 2, optimizer = broken }) end, "no state")
    assert.equal(1, heed.load(path).step)
  end)

  it("says what cannot be saved", function()
    local needed = "; it must be a tensor, a module, an object with state_dict, a generator, a number, a string, "
      .. "a boolean or a table of these"
    raises("save: 'run.f' is a function" .. needed, function() heed.save(path, { run = { f = function() end } }) end)
    raises("save: what is a heed.optim.SGD; it must be a tensor or a table of tensors; give it in a table, such as "
      .. "{optimizer = optimizer}", function() heed.save(path, heed.optim.SGD(model_of():parameters())) end)
    raises("save: 'x' is a table" .. needed, function() heed.save(path, { x = setmetatable({}, {}) }) end)
    raises("save: 'f' is a userdata" .. needed, function() heed.save(path, { f = io.stdout }) end)
    local circle = {}
    circle.inner = { circle = circle }
    raises("save: 'x.inner.circle' contains itself; a checkpoint is a tree",
      function() heed.save(path, { x = circle }) end)
    local deep = {}
    for _ = 1, 30 do deep = { deep } end
    assert.error_matches(function() heed.save(path, { x = deep }) end, "is nested more than 20 tables deep")
    raises("save: a key of 'x' is a function; it must be a string, a number or a boolean",
      function() heed.save(path, { x = { [print] = 1 } }) end)
    raises("save: 'a' is the number 1; it must be a tensor; a .safetensors file can hold other values, too",
      function() heed.save("x.npz", { a = 1 }) end)
    local odd = setmetatable({}, { __index = { state_dict = function() return 3 end } })
    raises("save: 'o': the result of state_dict is the number 3; it must be a table", function()
      heed.save(path, { o = odd })
    end)
  end)

  it("says what cannot be loaded", function()
    assert.is_true(heed.save(path, { step = 1, model = model_of(), g = heed.Generator(1), list = { 1 } }))
    fails("load_checkpoint: 'modl' is not in the checkpoint; it has g, list, model, step", load_checkpoint, path,
      { modl = model_of() })
    fails("load_checkpoint: 'step' is the number 3; it must be a module, a generator, an object with load_state_dict, "
      .. "or a table of these", load_checkpoint, path, { step = 3 })
    fails("load_checkpoint: objects is nil; it must be a table such as {model = model, optimizer = optimizer}",
      load_checkpoint, path)
    fails("load_checkpoint: path is nil; it must be a string", load_checkpoint)
    fails("load_checkpoint: 'list.1' is the number 1; it must be the state of a generator", load_checkpoint, path,
      { list = { heed.Generator(1) } })
    local found, message = load_checkpoint(path .. ".missing", {})
    assert.is_nil(found)
    assert.is_truthy(message:find(".missing", 1, true))
    assert.is_true(heed.save(path, { x = heed.ones(1) }))
    found, message = load_checkpoint(path, {})
    assert.is_nil(found)
    assert.equal(("load_checkpoint: '%s' is not a checkpoint; heed.load reads its tensors"):format(path), message)
  end)

  it("that is broken gives a message", function()
    local function broken(text)
      assert.is_true(heed.save(path, { x = heed.ones(1) }, { metadata = { ["heed.checkpoint"] = text } }))
      local got, message = heed.load(path)
      assert.is_nil(got, text)
      assert.equal("string", type(message))
      return message
    end
    broken "{"
    broken "3"
    broken '{"a":{"$tensor":"y"}}'
    broken '{"a":{"$tensor":["x"]}}'
    broken '{"a":{"$bytes":"x"}}'
    broken '{"a":{"$what":"x"}}'
    broken '{"a":{"$number":"12"}}'
    broken '{"a":{"$integer":12}}'
    broken '{"a":{"$integer":"x"}}'
    broken '{"a":{"$float":"x"}}'
    broken '{"a":{"$state_dict":["x"]}}'
    broken '{"a":{"$state_dict":["x","x","x","x"]}}'
    broken '{"a":{"$state_dict":3}}'
    broken '{"a":{"$table":[3]}}'
    broken '{"a":{"$table":[[{"$number":"nan"},3]]}}'
    broken '{"a":{"$tensor":"x","$bytes":"x"}}'
    assert.is_truthy(broken(("["):rep(100) .. ("]"):rep(100)):find(path, 1, true))
  end)
end)
