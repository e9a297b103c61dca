-- Long calls of optimisers, schedules, limits on gradients and data sets.
local heed = require "heed"
local nn, optim = heed.nn, heed.optim

return function(inputs)
  local call = inputs.call

  local function parameters(count)
    local list = {}
    for i = 1, count do list[i] = nn.Parameter(heed.zeros(1)) end
    return list
  end

  call("an optimiser for an endless iterator", function()
    local p = nn.Parameter(heed.zeros(1))
    return function() return optim.SGD(function() return p end) end
  end).frames = true
  call("an optimiser for many parameters", function()
    local list = parameters(100000)
    return function() return optim.AdamW(list) end
  end).frames = true
  call("a first step of many parameters", function()
    local list = parameters(100000)
    for _, p in ipairs(list) do p.grad = p end
    local optimiser = optim.AdamW(list)
    return function() optimiser:step() end
  end).frames = true
  call("ConcatDataset of many", function()
    local list, dataset = {}, heed.zeros(1)
    for i = 1, 300000 do list[i] = dataset end
    return function() return heed.utils.data.ConcatDataset(list) end
  end)
  call("default_collate of many samples", function()
    local list = {}
    for i = 1, 100000 do list[i] = heed.zeros(2, 2) end
    return function() return heed.utils.data.default_collate(list) end
  end)
  call("get_total_norm", function()
    local x = inputs.same(1.5, inputs.VERY_MANY)
    return function() return nn.utils.get_total_norm { x } end
  end)
  call("get_total_norm of order 3, of strided elements", function()
    local x = inputs.same(1.5, 2, inputs.VERY_MANY / 2)
    return function() return nn.utils.get_total_norm({ x.T }, 3) end
  end)
  call("clip_grad_norm_", function()
    local p = nn.Parameter(inputs.same(0, inputs.VERY_MANY))
    p.grad = inputs.same(1.5, inputs.VERY_MANY)
    return function() return nn.utils.clip_grad_norm_({ p }, 1) end
  end)
  call("clip_grad_value_ of an expanded gradient", function()
    local p = nn.Parameter(inputs.same(0, inputs.MANY))
    p.grad = inputs.same(1.5, inputs.MANY)
    return function() return nn.utils.clip_grad_value_({ p }, 1) end
  end)
  call("a schedule with many milestones", function()
    local optimiser = optim.SGD(parameters(1))
    local milestones = inputs.copies(1, 3000000)
    return function() return optim.lr_scheduler.MultiStepLR(optimiser, milestones) end
  end).frames = true
end
