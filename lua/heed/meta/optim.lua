---@meta _
-- heed.optim: optimisers, schedules of learning rates; and limits on gradients in nn.utils. Names, options, defaults and
-- numbers are PyTorch's. Options go by position, in this order, or by name in one table.

-- ---- Optimisers ----

---Optimisers, which change parameters by their gradients.
---
---    local optimiser = heed.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0.1})
---    optimiser:zero_grad()
---    loss:backward()
---    optimiser:step()
---@class heed.optim
---@field lr_scheduler heed.optim.lr_scheduler schedules of learning rates
local optim = {}

---What an optimiser changes: an iterator (m:parameters(), or m:named_parameters(), with names for messages), a tensor, a
---list of tensors or of {name, tensor}, or a list of groups with options of their own.
---@alias heed.Learning fun(): heed.Tensor|heed.Tensor[]|heed.Tensor|heed.ParameterGroup[]|heed.ParameterGroup

---Parameters and their options. Options may be changed at any time; params may not.
---@class heed.ParameterGroup
---@field params fun(): heed.Tensor|heed.Tensor[]|heed.Tensor the parameters
---@field lr? number the learning rate
---@field name? string for messages
---@field initial_lr? number set by schedules
---@field [string] any the optimiser's other options

---The state of an optimiser: tensors and numbers by parameter, counted from 1 over all groups, and the options.
---@class heed.OptimizerState
---@field state table<integer, table<string, heed.Tensor|integer>> by the number of the parameter
---@field param_groups heed.ParameterGroup[] params are numbers

---@class heed.Optimizer
---@field param_groups heed.ParameterGroup[] parameters and their options
---@field defaults table<string, any> the options of groups that do not have their own; read-only
local Optimizer = {}

---One step: changes all parameters that have a gradient, or, on an error, none. A limit or a cancellation stops it only
---before it begins. Parameters without a gradient stay as they are; if none has one, nothing happens.
---@param closure? fun(): any called first, such as a function that computes the loss and its gradients
---@return any loss what the closure returns
function Optimizer:step(closure) end

---Removes the gradients of all parameters, so that x.grad is nil; with set_to_none = false they become zeros.
---@param set_to_none? boolean|{ set_to_none: boolean? } true by default
function Optimizer:zero_grad(set_to_none) end

---Adds parameters, such as those of layers that were frozen until now.
---@param group heed.ParameterGroup params and options of their own
function Optimizer:add_param_group(group) end

---What load_state_dict continues from, bit for bit. The tensors are the optimiser's own, not copies.
---@return heed.OptimizerState
function Optimizer:state_dict() end

---Loads a copy of a state. One of another model or optimiser is an error that lists what differs; nothing is changed.
---@param state heed.OptimizerState what state_dict returned
function Optimizer:load_state_dict(state) end

---@class heed.SGDOptions
---@field lr? number 1e-3 by default
---@field momentum? number 0 by default
---@field dampening? number of the gradient in the momentum; 0 by default
---@field weight_decay? number 0 by default
---@field nesterov? boolean false by default
---@field maximize? boolean goes up instead of down; false by default

---Gradient descent, with momentum if it is given.
---@param parameters heed.Learning such as m:parameters()
---@param lr? number|heed.SGDOptions
---@param momentum? number
---@param dampening? number
---@param weight_decay? number
---@param nesterov? boolean
---@param maximize? boolean
---@return heed.Optimizer
---@nodiscard
function optim.SGD(parameters, lr, momentum, dampening, weight_decay, nesterov, maximize) end

---@class heed.AdamWOptions
---@field lr? number 1e-3 by default
---@field betas? number[] of the averages of gradients and of their squares; {0.9, 0.999} by default
---@field eps? number 1e-8 by default
---@field weight_decay? number 0.01 by default
---@field amsgrad? boolean divides by the largest average of squares so far; false by default
---@field maximize? boolean goes up instead of down; false by default

---@class heed.AdamOptions: heed.AdamWOptions
---@field weight_decay? number 0 by default
---@field decoupled_weight_decay? boolean shrinks the parameters themselves, as AdamW; false by default

---Adam. The weight decay is added to the gradient. Source: arXiv:1412.6980.
---@param parameters heed.Learning such as m:parameters()
---@param lr? number|heed.AdamOptions
---@param betas? number[]
---@param eps? number
---@param weight_decay? number
---@param amsgrad? boolean
---@param maximize? boolean
---@param decoupled_weight_decay? boolean
---@return heed.Optimizer
---@nodiscard
function optim.Adam(parameters, lr, betas, eps, weight_decay, amsgrad, maximize, decoupled_weight_decay) end

---Adam with a weight decay that shrinks the parameters themselves, by default 0.01. Source: arXiv:1711.05101.
---@param parameters heed.Learning such as m:parameters()
---@param lr? number|heed.AdamWOptions
---@param betas? number[]
---@param eps? number
---@param weight_decay? number
---@param amsgrad? boolean
---@param maximize? boolean
---@return heed.Optimizer
---@nodiscard
function optim.AdamW(parameters, lr, betas, eps, weight_decay, amsgrad, maximize) end

---@class heed.RMSpropOptions
---@field lr? number 1e-2 by default
---@field alpha? number of the average of squares; 0.99 by default
---@field eps? number 1e-8 by default
---@field weight_decay? number 0 by default
---@field momentum? number 0 by default
---@field centered? boolean divides by the standard deviation; false by default
---@field maximize? boolean goes up instead of down; false by default

---Divides gradients by an average of their magnitude.
---@param parameters heed.Learning such as m:parameters()
---@param lr? number|heed.RMSpropOptions
---@param alpha? number
---@param eps? number
---@param weight_decay? number
---@param momentum? number
---@param centered? boolean
---@param maximize? boolean
---@return heed.Optimizer
---@nodiscard
function optim.RMSprop(parameters, lr, alpha, eps, weight_decay, momentum, centered, maximize) end

-- ---- Schedules ----

---Schedules: each sets the learning rate of all groups when it is made and after each step.
---
---    local schedule = heed.optim.lr_scheduler.CosineAnnealingLR(optimiser, {T_max = 1000})
---    optimiser:step()
---    schedule:step()
---@class heed.optim.lr_scheduler
local schedules = {}

optim.lr_scheduler = schedules

---@class heed.Scheduler
---@field optimizer heed.Optimizer read-only
---@field last_epoch integer the number of steps so far; read-only
---@field base_lrs number[] the rates at the beginning; read-only
local Scheduler = {}

---Sets the rates of the next step, or, on an error, changes nothing. ReduceLROnPlateau takes a measure, such as the loss;
---CosineAnnealingWarmRestarts may take a number of steps to go to, also a fraction.
---@param metrics_or_epoch? number|heed.Tensor for the two schedules that take one
function Scheduler:step(metrics_or_epoch) end

---The rates of the groups.
---@return number[]
function Scheduler:get_last_lr() end

---Numbers that load_state_dict continues from; the rates themselves are in the state of the optimiser. Functions are not
---part of it.
---@return table<string, any>
function Scheduler:state_dict() end

---Continues from what state_dict returned.
---@param state table<string, any> what state_dict returned
function Scheduler:load_state_dict(state) end

---The last option of all schedules but ReduceLROnPlateau: goes on after that many steps less one; -1 by default, for a
---new training.
---@class heed.ScheduleOptions
---@field last_epoch? integer -1 by default: a new training

---@class heed.StepLROptions: heed.ScheduleOptions
---@field step_size integer steps between two changes
---@field gamma? number 0.1 by default

---Multiplies the rates by gamma after every step_size steps.
---@param optimizer heed.Optimizer whose rates it sets
---@param step_size integer|heed.StepLROptions steps between two changes
---@param gamma? number
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.StepLR(optimizer, step_size, gamma, last_epoch) end

---@class heed.MultiStepLROptions: heed.ScheduleOptions
---@field milestones integer[] numbers of steps
---@field gamma? number 0.1 by default

---Multiplies the rates by gamma at each milestone.
---@param optimizer heed.Optimizer whose rates it sets
---@param milestones integer[]|heed.MultiStepLROptions
---@param gamma? number
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.MultiStepLR(optimizer, milestones, gamma, last_epoch) end

---@class heed.ConstantLROptions: heed.ScheduleOptions
---@field factor? number above 0, at most 1; 1/3 by default
---@field total_iters? integer 5 by default

---Multiplies the rates by factor for the first total_iters steps.
---@param optimizer heed.Optimizer whose rates it sets
---@param factor? number|heed.ConstantLROptions
---@param total_iters? integer
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.ConstantLR(optimizer, factor, total_iters, last_epoch) end

---@class heed.LinearLROptions: heed.ScheduleOptions
---@field start_factor? number above 0, at most 1; 1/3 by default
---@field end_factor? number from 0 to 1; 1 by default
---@field total_iters? integer 5 by default

---Goes from rate · start_factor to rate · end_factor in total_iters steps: a warm-up.
---@param optimizer heed.Optimizer whose rates it sets
---@param start_factor? number|heed.LinearLROptions
---@param end_factor? number
---@param total_iters? integer
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.LinearLR(optimizer, start_factor, end_factor, total_iters, last_epoch) end

---@class heed.ExponentialLROptions: heed.ScheduleOptions
---@field gamma number the factor of a step

---Multiplies the rates by gamma after every step.
---@param optimizer heed.Optimizer whose rates it sets
---@param gamma number|heed.ExponentialLROptions the factor of a step
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.ExponentialLR(optimizer, gamma, last_epoch) end

---@class heed.PolynomialLROptions: heed.ScheduleOptions
---@field total_iters? integer 5 by default
---@field power? number 1 by default

---Goes to 0 in total_iters steps: rate · (1 - step / total_iters) ^ power.
---@param optimizer heed.Optimizer whose rates it sets
---@param total_iters? integer|heed.PolynomialLROptions
---@param power? number
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.PolynomialLR(optimizer, total_iters, power, last_epoch) end

---@class heed.LambdaLROptions: heed.ScheduleOptions
---@field lr_lambda fun(step: integer): number | (fun(step: integer): number)[]

---The first rate times a function of the number of steps, which begins with 0. A list has a function for each group.
---@param optimizer heed.Optimizer whose rates it sets
---@param lr_lambda fun(step: integer): number | (fun(step: integer): number)[] | heed.LambdaLROptions
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.LambdaLR(optimizer, lr_lambda, last_epoch) end

---Multiplies the rates by a function of the number of steps, which begins with 1.
---@param optimizer heed.Optimizer whose rates it sets
---@param lr_lambda fun(step: integer): number | (fun(step: integer): number)[] | heed.LambdaLROptions
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.MultiplicativeLR(optimizer, lr_lambda, last_epoch) end

---@class heed.CosineAnnealingLROptions: heed.ScheduleOptions
---@field T_max integer steps down to eta_min
---@field eta_min? number 0 by default

---Goes to eta_min along half a cosine, in T_max steps, and back. Source: arXiv:1608.03983.
---@param optimizer heed.Optimizer whose rates it sets
---@param T_max integer|heed.CosineAnnealingLROptions steps down to eta_min
---@param eta_min? number
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.CosineAnnealingLR(optimizer, T_max, eta_min, last_epoch) end

---@class heed.WarmRestartsOptions: heed.ScheduleOptions
---@field T_0 integer steps before the first restart
---@field T_mult? integer 1 by default
---@field eta_min? number 0 by default

---Goes to eta_min along half a cosine in T_0 steps, then starts again, each time T_mult times as long.
---@param optimizer heed.Optimizer whose rates it sets
---@param T_0 integer|heed.WarmRestartsOptions steps before the first restart
---@param T_mult? integer
---@param eta_min? number
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.CosineAnnealingWarmRestarts(optimizer, T_0, T_mult, eta_min, last_epoch) end

---@class heed.OneCycleLROptions: heed.ScheduleOptions
---@field max_lr number|number[] for all groups, or for each
---@field total_steps? integer or epochs and steps_per_epoch
---@field epochs? integer passes through the data
---@field steps_per_epoch? integer batches of a pass
---@field pct_start? number the share of the steps in which the rate grows; 0.3 by default
---@field anneal_strategy? "cos"|"linear" "cos" by default
---@field cycle_momentum? boolean changes momentum, or the first of betas, the other way; true by default
---@field base_momentum? number|number[] the lowest; 0.85 by default
---@field max_momentum? number|number[] the highest; 0.95 by default
---@field div_factor? number the first rate is max_lr / div_factor; 25 by default
---@field final_div_factor? number the last is the first / final_div_factor; 1e4 by default
---@field three_phase? boolean goes down as long as up, and then to the last rate; false by default

---Goes up to max_lr and down to almost nothing. Source: arXiv:1708.07120.
---@param optimizer heed.Optimizer whose rates it sets
---@param max_lr number|number[]|heed.OneCycleLROptions
---@param total_steps? integer|heed.OneCycleLROptions
---@param ... any the other options
---@return heed.Scheduler
---@nodiscard
function schedules.OneCycleLR(optimizer, max_lr, total_steps, ...) end

---@class heed.PlateauOptions
---@field mode? "min"|"max" whether smaller or larger measures are better; "min" by default
---@field factor? number of the rate; below 1, 0.1 by default
---@field patience? integer steps without an improvement that are allowed; 10 by default
---@field threshold? number by how much an improvement must be better; 1e-4 by default
---@field threshold_mode? "rel"|"abs" whether it is relative; "rel" by default
---@field cooldown? integer steps after a change in which nothing counts; 0 by default
---@field min_lr? number|number[] for all groups, or for each; 0 by default
---@field eps? number smaller changes are not made; 1e-8 by default

---Multiplies the rates by factor when a measure has not improved for more than patience steps: schedule:step(loss).
---@param optimizer heed.Optimizer whose rates it sets
---@param mode? "min"|"max"|heed.PlateauOptions
---@param factor? number
---@param patience? integer
---@param threshold? number
---@param threshold_mode? "rel"|"abs"
---@param cooldown? integer
---@param min_lr? number|number[]
---@param eps? number
---@return heed.Scheduler
---@nodiscard
function schedules.ReduceLROnPlateau(optimizer, mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps) end

---@class heed.SequentialLROptions: heed.ScheduleOptions
---@field schedulers heed.Scheduler[] one after the other
---@field milestones integer[] the number of steps at which each but the first begins

---One schedule after the other, such as a warm-up and then a cosine.
---@param optimizer heed.Optimizer whose rates it sets
---@param schedulers heed.Scheduler[]|heed.SequentialLROptions one after the other
---@param milestones? integer[]
---@param last_epoch? integer -1 by default: a new training
---@return heed.Scheduler
---@nodiscard
function schedules.SequentialLR(optimizer, schedulers, milestones, last_epoch) end

-- ---- Limits on gradients ----

---@class heed.nn.utils
local utils = {}

---@class heed.ClipNormOptions
---@field max_norm number the largest norm that is left
---@field norm_type? number|"inf" the order of the norm, above 0; 2 by default
---@field error_if_nonfinite? boolean false by default

---Scales the gradients of the parameters down, in place, so that their norm together is at most max_norm. Returns the
---norm before, as a tensor without dimensions. A norm that is not finite is an error with error_if_nonfinite.
---@param parameters fun(): heed.Tensor|heed.Tensor[]|heed.Tensor such as m:parameters()
---@param max_norm number|heed.ClipNormOptions the largest norm that is left
---@param norm_type? number|"inf"|{ norm_type: number|"inf"?, error_if_nonfinite: boolean? } 2 by default
---@param error_if_nonfinite? boolean false by default
---@return heed.Tensor
function utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite) end

---Limits the elements of the gradients of the parameters to -clip_value … clip_value, in place.
---@param parameters fun(): heed.Tensor|heed.Tensor[]|heed.Tensor such as m:parameters()
---@param clip_value number|{ clip_value: number } above 0
function utils.clip_grad_value_(parameters, clip_value) end

---The norm of all elements of the tensors together, such as of gradients, as a tensor without dimensions.
---@param tensors heed.Tensor[]|heed.Tensor|fun(): heed.Tensor such as the gradients of parameters
---@param norm_type? number|"inf"|{ norm_type: number|"inf"?, error_if_nonfinite: boolean? } 2 by default
---@param error_if_nonfinite? boolean false by default
---@return heed.Tensor
---@nodiscard
function utils.get_total_norm(tensors, norm_type, error_if_nonfinite) end
