-- Losses, functional forms, initial values, gradients, optimisers. See ../examples.lua.

--## F.cross_entropy
local scores = heed.tensor { { 2, 0, 0 }, { 0, 3, 0 } } -- two rows, three classes
print(F.cross_entropy(scores, { 1, 2 })) -- classes count from 1
print(F.cross_entropy(scores, { 1, 3 }, { reduction = "none", label_smoothing = 0.1 }))

--## F.linear_cross_entropy
local x, weight = heed.randn(4, 8), heed.randn(100, 8) -- a vocabulary of 100
print(F.linear_cross_entropy(x, weight, { 1, 2, 3, 100 }))
print(F.cross_entropy(F.linear(x, weight), { 1, 2, 3, 100 })) -- the same, with all scores in memory

--## F.nll_loss
local scores = heed.tensor { { 2, 0, 0 }, { 0, 3, 0 } }
print(F.nll_loss(scores:log_softmax(-1), { 1, 2 }))

--## F.mse_loss
print(F.mse_loss(heed.tensor { 1, 2 }, heed.tensor { 1, 4 }))

--## F.l1_loss
print(F.l1_loss(heed.tensor { 1, 2 }, heed.tensor { 1, 4 }, { reduction = "sum" }))

--## F.smooth_l1_loss
print(F.smooth_l1_loss(heed.tensor { 1, 2 }, heed.tensor { 1.5, 4 }, { reduction = "none" }))

--## F.huber_loss
print(F.huber_loss(heed.tensor { 1, 2 }, heed.tensor { 1.5, 9 }, { delta = 2, reduction = "none" }))

--## F.binary_cross_entropy
print(F.binary_cross_entropy(heed.tensor { 0.9, 0.2 }, heed.tensor { 1, 0 }))

--## F.binary_cross_entropy_with_logits
print(F.binary_cross_entropy_with_logits(heed.tensor { 2, -1 }, heed.tensor { 1, 0 }))

--## F.kl_div
local p, q = heed.tensor { { 0.5, 0.5 } }, heed.tensor { { 0.9, 0.1 } }
print(F.kl_div(q:log(), p, { reduction = "batchmean" }))

--## nn.CrossEntropyLoss
local loss = nn.CrossEntropyLoss { label_smoothing = 0.1 }
print(loss(heed.tensor { { 2, 0, 0 }, { 0, 3, 0 } }, { 1, 2 }))

--## nn.NLLLoss
print(nn.NLLLoss()(heed.tensor({ { 2, 0, 0 } }):log_softmax(-1), { 1 }))

--## nn.MSELoss
print(nn.MSELoss()(heed.tensor { 1, 2 }, heed.tensor { 1, 4 }))

--## nn.L1Loss
print(nn.L1Loss()(heed.tensor { 1, 2 }, heed.tensor { 1, 4 }))

--## nn.SmoothL1Loss
print(nn.SmoothL1Loss { beta = 0.5 }(heed.tensor { 1, 2 }, heed.tensor { 1.5, 4 }))

--## nn.HuberLoss
print(nn.HuberLoss { delta = 2 }(heed.tensor { 1, 2 }, heed.tensor { 1.5, 9 }))

--## nn.BCELoss
print(nn.BCELoss()(heed.tensor { 0.9, 0.2 }, heed.tensor { 1, 0 }))

--## nn.BCEWithLogitsLoss
print(nn.BCEWithLogitsLoss()(heed.tensor { 2, -1 }, heed.tensor { 1, 0 }))

--## nn.KLDivLoss
print(nn.KLDivLoss "batchmean"(heed.tensor({ { 0.9, 0.1 } }):log(), heed.tensor { { 0.5, 0.5 } }))

--## F.relu
print(F.relu(heed.tensor { -1, 0, 2 }))

--## F.silu
print(F.silu(heed.tensor { -1, 0, 2 }))

--## F.logsigmoid
print(F.logsigmoid(heed.tensor { -100, 0, 2 }))

--## F.softplus
print(F.softplus(heed.tensor { -1, 0, 30 }))

--## F.leaky_relu
print(F.leaky_relu(heed.tensor { -1, 0, 2 }, { negative_slope = 0.1 }))

--## F.elu
print(F.elu(heed.tensor { -1, 0, 2 }))

--## F.glu
print(F.glu(heed.tensor { 10, 20, 0, 100 }))

--## F.layer_norm
print(F.layer_norm(heed.tensor { { 1, 2, 3 } }, { 3 }))

--## F.rms_norm
print(F.rms_norm(heed.tensor { 3, 4 }, { 2 }))

--## F.batch_norm
local x = heed.tensor { { 1, 10 }, { 3, 30 } }
print(F.batch_norm(x, heed.tensor { 2, 20 }, heed.tensor { 1, 100 }))

--## F.normalize
print(F.normalize(heed.tensor { { 3, 4 }, { 0, 5 } }))

--## F.cosine_similarity
print(F.cosine_similarity(heed.tensor { { 1, 0 }, { 1, 1 } }, heed.tensor { { 1, 1 }, { 2, 2 } }))

--## nn.init.uniform_
print(nn.init.uniform_(heed.empty(2, 2), -1, 1))

--## nn.init.normal_
print(nn.init.normal_(heed.empty(2, 2), { std = 0.02 }))

--## nn.init.trunc_normal_
print(nn.init.trunc_normal_(heed.empty(2, 2), { std = 0.02 }))

--## nn.init.xavier_uniform_
print(nn.init.xavier_uniform_(heed.empty(2, 3)))

--## nn.init.xavier_normal_
print(nn.init.xavier_normal_(heed.empty(2, 3)))

--## nn.init.kaiming_uniform_
print(nn.init.kaiming_uniform_(heed.empty(2, 3), { nonlinearity = "relu" }))

--## nn.init.kaiming_normal_
print(nn.init.kaiming_normal_(heed.empty(2, 3), { nonlinearity = "relu" }))

--## nn.init.constant_
print(nn.init.constant_(heed.empty(2), 0.5))

--## nn.init.ones_
print(nn.init.ones_(heed.empty(2)))

--## nn.init.zeros_
print(nn.init.zeros_(heed.empty(2)))

--## nn.init.eye_
print(nn.init.eye_(heed.empty(2, 2)))

--## nn.init.calculate_gain
print(("%.4f %.4f"):format(nn.init.calculate_gain "relu", nn.init.calculate_gain "tanh"))

--## nn.utils.parameters_to_vector
print(nn.utils.parameters_to_vector(nn.Linear(2, 2):parameters()).shape)

--## nn.utils.vector_to_parameters
local m = nn.Linear(2, 1)
nn.utils.vector_to_parameters(heed.tensor { 1, 2, 3 }, m:parameters())
print(m.weight, m.bias)

--## nn.utils.skip_init
local m = nn.utils.skip_init(nn.Linear, 4096, 4096) -- no memory, no random numbers, until weights are loaded
print(m, m.weight[{ 1, 1 }])

--## nn.utils.clip_grad_norm_
heed.set_grad_enabled(true)
local m = nn.Linear(2, 1)
local loss = m(heed.ones(2)) * 100
loss:backward()
print(nn.utils.clip_grad_norm_(m:parameters(), 1.0)) -- the norm before
print(m.weight.grad)

--## nn.utils.clip_grad_value_
heed.set_grad_enabled(true)
local m = nn.Linear(2, 1)
m(heed.tensor { 100, 0.1 }):backward()
nn.utils.clip_grad_value_(m:parameters(), 0.5)
print(m.weight.grad)

--## nn.utils.get_total_norm
print(nn.utils.get_total_norm { heed.tensor { 3 }, heed.tensor { 4 } })

--## heed.set_grad_enabled
local x = heed.tensor({ 2 }, { requires_grad = true })
print((x * x).requires_grad) -- nothing is recorded at first
heed.set_grad_enabled(true)
print((x * x).requires_grad)

--## heed.is_grad_enabled
print(heed.is_grad_enabled())

--## heed.enable_grad
local x = heed.tensor({ 3 }, { requires_grad = true })
local y = heed.enable_grad(function() return x * x end)
y:backward()
print(x.grad)

--## heed.no_grad
heed.set_grad_enabled(true)
local m = nn.Linear(2, 1)
print(heed.no_grad(m, heed.ones(2)).requires_grad)

--## heed.inference_mode
print(heed.inference_mode(function(a, b) return a + b end, 1, 2))

--## x:requires_grad_
heed.set_grad_enabled(true)
local x = heed.tensor({ 1, 2 }):requires_grad_()
x:square():sum():backward()
print(x.grad)

--## x:detach
heed.set_grad_enabled(true)
local x = heed.tensor({ 2 }, { requires_grad = true })
print((x * x:detach()).requires_grad, x:detach().requires_grad)

--## x:detach_
heed.set_grad_enabled(true)
local y = heed.tensor({ 2 }, { requires_grad = true }) * 3
print(y.requires_grad, y:detach_().requires_grad)

--## x:retain_grad
heed.set_grad_enabled(true)
local x = heed.tensor({ 2 }, { requires_grad = true })
local y = x * 3
y:retain_grad()
y:square():backward()
print(y.grad, x.grad)

--## x:register_hook
heed.set_grad_enabled(true)
local x = heed.tensor({ 2 }, { requires_grad = true })
x:register_hook(function(gradient) return gradient * 10 end)
x:mul(3):backward()
print(x.grad)

--## x:backward
heed.set_grad_enabled(true)
local x = heed.tensor({ { 1, 2 }, { 3, 4 } }, { requires_grad = true })
x:square():sum():backward()
print(x.grad) -- 2 x

--## x:backward_steps
heed.set_grad_enabled(true)
local x = heed.tensor({ 1, 2 }, { requires_grad = true })
for done, total in x:square():sum():backward_steps { ms = 0 } do print(done, total) end
print(x.grad)

--## BackwardSteps:advance, BackwardSteps:release
heed.set_grad_enabled(true)
local x = heed.tensor({ 1, 2 }, { requires_grad = true })
local steps = x:square():sum():backward_steps()
print(steps:advance(0)) -- done, total
steps:release() -- nothing has changed
print(x.grad)

--## heed.autograd.backward
heed.set_grad_enabled(true)
local x = heed.tensor({ 2 }, { requires_grad = true })
heed.autograd.backward { x * 3, x * 4 }
print(x.grad)

--## heed.autograd.grad
heed.set_grad_enabled(true)
local x = heed.tensor({ 1, 2 }, { requires_grad = true })
print(heed.autograd.grad(x:square():sum(), x), x.grad)

--## heed.autograd.Function, FunctionContext:save, FunctionContext:saved
heed.set_grad_enabled(true)
local Clip = heed.autograd.Function("Clip", {
  forward = function(ctx, x) ctx:save(x) return x:clamp(-1, 1) end,
  backward = function(ctx, dy) return dy * ctx:saved():abs():le(1):float() end,
})
local x = heed.tensor({ 0.5, 3 }, { requires_grad = true })
Clip(x):sum():backward()
print(x.grad)

--## FunctionContext:mark_non_differentiable
heed.set_grad_enabled(true)
local Signed = heed.autograd.Function("Signed", {
  forward = function(ctx, x)
    local sign = x:sign()
    ctx:mark_non_differentiable(sign)
    return x:abs(), sign
  end,
  backward = function(_, dy) return dy end,
})
local size, sign = Signed(heed.tensor({ -2 }, { requires_grad = true }))
print(size.requires_grad, sign.requires_grad)

--## heed.autograd.gradcheck
print(heed.autograd.gradcheck(function(x) return x:tanh():sum() end, heed.randn(3)))

--## heed.autograd.detect_anomaly
heed.set_grad_enabled(true)
local x = heed.tensor({ 0 }, { requires_grad = true })
print(select(2, pcall(heed.autograd.detect_anomaly, function() x:sqrt():mul(0):backward() end)):match "the gradient.*")

--## heed.optim.SGD
heed.set_grad_enabled(true)
local x = nn.Parameter(heed.tensor { 4 })
local optimiser = heed.optim.SGD({ x }, { lr = 0.1, momentum = 0.9 })
for _ = 1, 100 do
  optimiser:zero_grad()
  x:square():sum():backward()
  optimiser:step()
end
print(x:detach():abs():lt(0.1))

--## heed.optim.Adam
heed.set_grad_enabled(true)
local x = nn.Parameter(heed.tensor { 4 })
local optimiser = heed.optim.Adam({ x }, { lr = 0.1 })
x:square():sum():backward()
optimiser:step()
print(x)

--## heed.optim.AdamW
heed.set_grad_enabled(true)
local m = nn.Linear(2, 1)
local optimiser = heed.optim.AdamW(m:parameters(), { lr = 1e-2, weight_decay = 0.1 })
for _ = 1, 200 do
  local loss = F.mse_loss(m(heed.ones(1, 2)), heed.ones(1, 1))
  optimiser:zero_grad()
  loss:backward()
  optimiser:step()
end
print(m(heed.ones(1, 2)):detach():round { decimals = 1 })

--## heed.optim.RMSprop
heed.set_grad_enabled(true)
local x = nn.Parameter(heed.tensor { 4 })
local optimiser = heed.optim.RMSprop { x }
x:square():sum():backward()
optimiser:step()
print(x)

--## Optimizer:step
heed.set_grad_enabled(true)
local x = nn.Parameter(heed.tensor { 4 })
local optimiser = heed.optim.SGD({ x }, 0.5)
local loss = optimiser:step(function()
  local loss = x:square():sum()
  loss:backward()
  return loss
end)
print(loss:item(), x)

--## Optimizer:zero_grad
heed.set_grad_enabled(true)
local x = nn.Parameter(heed.tensor { 4 })
local optimiser = heed.optim.SGD { x }
x:square():sum():backward()
print(x.grad)
optimiser:zero_grad()
print(x.grad)

--## Optimizer:add_param_group
local optimiser = heed.optim.SGD(nn.Linear(2, 2):parameters(), 0.1)
optimiser:add_param_group { params = nn.Linear(2, 2):parameters(), lr = 0.01 }
print(optimiser.param_groups[1].lr, optimiser.param_groups[2].lr)

--## Optimizer:state_dict, Optimizer:load_state_dict
heed.set_grad_enabled(true)
local x = nn.Parameter(heed.tensor { 4 })
local first, second = heed.optim.AdamW { x }, heed.optim.AdamW { x }
x:square():sum():backward()
first:step()
second:load_state_dict(first:state_dict()) -- goes on where the first one is
print(second:state_dict().state[1].exp_avg)

--## heed.optim.lr_scheduler.StepLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.StepLR(optimiser, { step_size = 2, gamma = 0.5 })
for _ = 1, 5 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.MultiStepLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.MultiStepLR(optimiser, { milestones = { 1, 3 }, gamma = 0.5 })
for _ = 1, 5 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.ConstantLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.ConstantLR(optimiser, { factor = 0.5, total_iters = 2 })
for _ = 1, 4 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.LinearLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.LinearLR(optimiser, { start_factor = 0.25, total_iters = 3 }) -- a warm-up
for _ = 1, 5 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.ExponentialLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
for _ = 1, 4 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.PolynomialLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.PolynomialLR(optimiser, { total_iters = 4, power = 1 })
for _ = 1, 5 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.LambdaLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.LambdaLR(optimiser, function(step) return 1 / (step + 1) end)
for _ = 1, 4 do io.write(("%.3f "):format(optimiser.param_groups[1].lr)) optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.MultiplicativeLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.MultiplicativeLR(optimiser, function() return 0.5 end)
for _ = 1, 4 do io.write(optimiser.param_groups[1].lr, " ") optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.CosineAnnealingLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.CosineAnnealingLR(optimiser, { T_max = 4 })
for _ = 1, 5 do io.write(("%.3f "):format(optimiser.param_groups[1].lr)) optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.CosineAnnealingWarmRestarts
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, { T_0 = 2, T_mult = 2 })
for _ = 1, 7 do io.write(("%.3f "):format(optimiser.param_groups[1].lr)) optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.OneCycleLR
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), { lr = 1, momentum = 0.9 })
local schedule = heed.optim.lr_scheduler.OneCycleLR(optimiser, { max_lr = 1, total_steps = 6 })
for _ = 1, 5 do io.write(("%.3f "):format(optimiser.param_groups[1].lr)) optimiser:step() schedule:step() end

--## heed.optim.lr_scheduler.ReduceLROnPlateau
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.ReduceLROnPlateau(optimiser, { patience = 1, factor = 0.5 })
for _, loss in ipairs { 3, 2, 2, 2, 2 } do schedule:step(loss) io.write(optimiser.param_groups[1].lr, " ") end

--## heed.optim.lr_scheduler.SequentialLR
local schedules = heed.optim.lr_scheduler
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = schedules.SequentialLR(optimiser, { milestones = { 2 }, schedulers = {
  schedules.LinearLR(optimiser, { start_factor = 0.5, total_iters = 2 }),
  schedules.CosineAnnealingLR(optimiser, { T_max = 2 }) } })
for _ = 1, 5 do io.write(("%.3f "):format(optimiser.param_groups[1].lr)) optimiser:step() schedule:step() end

--## Scheduler:step, Scheduler:get_last_lr
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local schedule = heed.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
optimiser:step()
schedule:step()
print(schedule:get_last_lr()[1])

--## Scheduler:state_dict, Scheduler:load_state_dict
local optimiser = heed.optim.SGD(nn.Linear(1, 1):parameters(), 1)
local first = heed.optim.lr_scheduler.StepLR(optimiser, 2)
optimiser:step()
first:step()
local second = heed.optim.lr_scheduler.StepLR(optimiser, 2)
second:load_state_dict(first:state_dict())
print(second.last_epoch)
