-- heed.optim.lr_scheduler. The expected rates in tests/golden/optim.lua are PyTorch's.
local heed = require "heed"
local fails = require "tests.fails"
local optim, schedules = heed.optim, heed.optim.lr_scheduler

local function two_groups(class)
  local function one() return { heed.nn.Parameter(heed.zeros(1)) } end
  return optim[class or "SGD"]({ { params = one(), lr = 0.5 }, { params = one() } }, { lr = 0.1 })
end

local function rates_of(optimiser) return { optimiser.param_groups[1].lr, optimiser.param_groups[2].lr } end

-- The schedule of a case.
local function make(case, optimiser)
  if not case.parts then return schedules[case.class](optimiser, case.config) end
  local parts = {}
  for i, part in ipairs(case.parts) do parts[i] = schedules[part.class](optimiser, part.config) end
  return schedules[case.class](optimiser, parts, case.config.milestones)
end

local function near(wanted, got) assert.is_true(math.abs(wanted - got) <= 1e-8 + 1e-7 * math.abs(wanted), got) end

-- Compares the rates with those of a case, from step `first` on.
local function follow(case, optimiser, schedule, first, last)
  for i = first, last do
    local rates, last_rates = rates_of(optimiser), schedule:get_last_lr()
    for group = 1, 2 do
      near(case.expect[i][group], rates[group])
      assert.are.equal(rates[group], last_rates[group])
      local fields = optimiser.param_groups[group]
      near(case.momenta[i][group], fields.betas and fields.betas[1] or fields.momentum)
    end
    if case.measures then schedule:step(case.measures[i]) else schedule:step() end
  end
end

local cases = {}
for _, case in ipairs(dofile "tests/golden/optim.lua") do
  if case.kind == "schedule" then cases[#cases + 1] = case end
end

describe("a schedule", function()
  for number, case in ipairs(cases) do
    it(("has PyTorch's rates: %s, case %d"):format(case.class, number), function()
      local optimiser = two_groups(case.optim)
      follow(case, optimiser, make(case, optimiser), 1, #case.expect)
    end)

    it(("continues from its state: %s, case %d"):format(case.class, number), function()
      local before = two_groups(case.optim)
      local schedule = make(case, before)
      follow(case, before, schedule, 1, 6)
      local after = two_groups(case.optim)
      local copy = make(case, after)
      after:load_state_dict(before:state_dict())
      copy:load_state_dict(schedule:state_dict())
      follow(case, after, copy, 7, #case.expect)
    end)
  end

  it("calls a function of the number of steps", function()
    local optimiser = two_groups()
    local schedule = schedules.LambdaLR(optimiser, { function(n) return 1 / (n + 1) end, function(n) return n end })
    assert.are.same({ 0.5, 0 }, rates_of(optimiser))
    schedule:step()
    assert.are.same({ 0.25, 0.1 }, rates_of(optimiser))
    local halves = two_groups()
    local product = schedules.MultiplicativeLR(halves, function() return 0.5 end)
    product:step()
    product:step()
    assert.are.same({ 0.125, 0.025 }, rates_of(halves))
  end)

  it("is unchanged when that function fails", function()
    local optimiser, wrong = two_groups(), false
    local schedule = schedules.LambdaLR(optimiser, function(n) return wrong and "x" or n + 1 end)
    wrong = true
    fails("step: the result of lr_lambda is a string ('x'); it must be a number", schedule.step, schedule)
    assert.are.equal(0, schedule.last_epoch)
    wrong = false
    schedule:step()
    assert.are.same({ 1, 0.2 }, rates_of(optimiser))
  end)

  it("works beside another one, as in PyTorch", function()
    local optimiser = two_groups()
    local a = schedules.ExponentialLR(optimiser, { gamma = 0.5 })
    local b = schedules.StepLR(optimiser, 2, 0.1)
    for _ = 1, 2 do
      a:step()
      b:step()
    end
    near(0.5 * 0.25 * 0.1, optimiser.param_groups[1].lr)
  end)

  it("goes on from last_epoch", function()
    local optimiser = two_groups()
    fails("StepLR: param_groups[1] has no initial_lr, which last_epoch = 3 needs; load the optimiser's state first",
      schedules.StepLR, optimiser, 2, { last_epoch = 3 })
    for _, group in ipairs(optimiser.param_groups) do group.initial_lr = 1 end
    local schedule = schedules.StepLR(optimiser, 2, 0.5, 3)
    assert.are.equal(4, schedule.last_epoch)
    assert.are.same({ 0.25, 0.05 }, rates_of(optimiser))
  end)

  it("accepts the loss itself as a measure", function()
    local optimiser = two_groups()
    local schedule = schedules.ReduceLROnPlateau(optimiser, { patience = 0 })
    schedule:step(heed.tensor(1))
    schedule:step(heed.tensor { 1 })
    near(0.05, optimiser.param_groups[1].lr)
  end)

  it("prints its options", function()
    assert.are.equal("StepLR(step_size=3, gamma=0.1)", tostring(schedules.StepLR(two_groups(), 3)))
  end)
end)

describe("a schedule refuses", function()
  it("what is no optimiser, and missing or wrong options", function()
    local optimiser = two_groups()
    fails("StepLR: optimizer is the number 1; it must be an optimiser, such as heed.optim.SGD(m:parameters(), …)",
      schedules.StepLR, 1, 3)
    fails("StepLR: step_size is nil; it must be an integer, at least 1", schedules.StepLR, optimiser)
    fails("StepLR: step_size is the number 0; it must be an integer, at least 1", schedules.StepLR, optimiser, 0)
    fails("StepLR: there is no option 'step'; the options are step_size, gamma, last_epoch", schedules.StepLR,
      optimiser, { step = 1 })
    fails("LinearLR: start_factor is the number 0; it must be a number above 0, at most 1", schedules.LinearLR,
      optimiser, 0)
    fails("ExponentialLR: gamma is the number nan; it must be a finite number", schedules.ExponentialLR, optimiser,
      0 / 0)
    fails("OneCycleLR: total_steps is nil; give it, or both epochs and steps_per_epoch", schedules.OneCycleLR,
      optimiser, 1)
    fails("OneCycleLR: max_lr has 1 number, and the optimiser 2 groups", schedules.OneCycleLR, optimiser, { 1 },
      { total_steps = 3 })
    fails("ReduceLROnPlateau: mode is a string ('up'); it must be 'min' or 'max'", schedules.ReduceLROnPlateau,
      optimiser, { mode = "up" })
    assert.are.same({ 0.5, 0.1 }, rates_of(optimiser))
    assert.is_nil(optimiser.param_groups[1].initial_lr)
  end)

  it("steps beyond its end, and wrong arguments of step", function()
    local optimiser = two_groups()
    local schedule = schedules.OneCycleLR(optimiser, { max_lr = 1, total_steps = 2 })
    schedule:step()
    schedule:step()
    fails("step: the schedule has 2 steps, which were made", schedule.step, schedule)
    fails("step: an argument is given; it takes none", schedule.step, schedule, 1)
    local plateau = schedules.ReduceLROnPlateau(two_groups())
    fails("step: 0 arguments are given; it takes one, the measure, such as the loss", plateau.step, plateau)
    fails("step: metrics is a table; it must be a number or a tensor of one element, such as the loss", plateau.step,
      plateau, {})
  end)

  it("groups that were added later", function()
    local optimiser = two_groups()
    local schedule = schedules.StepLR(optimiser, 2)
    optimiser:add_param_group { params = { heed.nn.Parameter(heed.zeros(1)) } }
    fails("step: the optimiser has 3 groups; when the schedule was made it had 2", schedule.step, schedule)
  end)

  it("a sequence that does not fit", function()
    local optimiser = two_groups()
    local a, b = schedules.StepLR(optimiser, 1), schedules.ExponentialLR(optimiser, 0.5)
    fails("SequentialLR: there are 2 schedules and 0 milestones; there must be one milestone less than schedules",
      schedules.SequentialLR, optimiser, { a, b }, {})
    fails("SequentialLR: schedulers is empty; there must be at least one schedule", schedules.SequentialLR, optimiser,
      {}, {})
    fails("SequentialLR: schedulers[2] is for another optimiser", schedules.SequentialLR, optimiser,
      { a, schedules.StepLR(two_groups(), 1) }, { 3 })
    fails("SequentialLR: schedulers[1] is a schedule ReduceLROnPlateau, which cannot be one of several",
      schedules.SequentialLR, optimiser, { schedules.ReduceLROnPlateau(optimiser) }, {})
    fails("SequentialLR: schedulers[1] is the number 1; it must be a schedule, such as LinearLR(optimizer, …)",
      schedules.SequentialLR, optimiser, { 1 }, {})
  end)

  it("epochs beyond the integers", function()
    fails("LambdaLR: last_epoch is the number 9.2233720368548e+18; it must be an integer, -1 or more",
      schedules.LambdaLR, two_groups(), function() return 1 end, 2 ^ 63)
  end)

  it("the state of another schedule", function()
    local optimiser = two_groups()
    local a, b = schedules.StepLR(optimiser, 1), schedules.ExponentialLR(optimiser, 0.5)
    fails("load_state_dict: the state is of another schedule than StepLR: step_size is nil, here the number 1",
      a.load_state_dict, a, b:state_dict())
    fails("load_state_dict: the state is of another schedule than ExponentialLR, which has no step_size",
      b.load_state_dict, b, a:state_dict())
    fails("load_state_dict: state is nil; it must be a table that state_dict of a schedule gave", a.load_state_dict, a)
  end)
end)
