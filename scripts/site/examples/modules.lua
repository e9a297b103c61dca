-- Modules and layers. See ../examples.lua.

--## nn.Parameter
local Scale = nn.Module.class "Scale"
function Scale:init(n) self.weight = nn.Parameter(heed.ones(n)) end
function Scale:forward(x) return x * self.weight end
for name, p in Scale(3):named_parameters() do print(name, p) end

--## nn.is_module
print(nn.is_module(nn.ReLU()), nn.is_module(heed.ones(2)))

--## Module
local m = nn.Linear(2, 3)
print(m(heed.ones(2))) -- m(x) runs its hooks, too; m:forward(x) does not
print(m.training, m.weight.shape)

--## Module:forward
local m = nn.Linear(2, 3)
print(m:forward(heed.ones(4, 2)).shape)

--## Module:named_parameters
local m = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
for name, p in m:named_parameters() do print(name, p.shape) end

--## Module:parameters
local count = 0
for p in nn.Linear(2, 3):parameters() do count = count + p:numel() end
print(count)

--## Module:named_buffers
for name, t in nn.BatchNorm1d(2):named_buffers() do print(name, t) end

--## Module:buffers
print(#nn.BatchNorm1d(2):buffers())

--## Module:named_children
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
for name, part in mha:named_children() do print(name, part:class_name()) end

--## Module:children
for part in nn.Sequential(nn.Linear(2, 3), nn.ReLU()):children() do print(part) end

--## Module:named_modules
for name, part in nn.Sequential(nn.Residual(nn.Linear(2, 2))):named_modules() do print(name, part:class_name()) end

--## Module:modules
print(#nn.Sequential(nn.Linear(2, 3), nn.ReLU()):modules()) -- the module itself, too

--## Module:iter
for i, part in nn.Sequential(nn.Linear(2, 3), nn.ReLU()):iter() do print(i, part) end

--## Module:state_dict
local state = nn.Linear(2, 1):state_dict()
print(state.weight, #state)

--## Module:load_state_dict
local m = nn.Linear(2, 1)
m:load_state_dict { weight = heed.ones(1, 2), bias = heed.zeros(1) }
print(m(heed.tensor { 3, 4 }))
print(m:load_state_dict({ weight = heed.zeros(1, 2) }, { strict = false }).missing_keys[1])

--## Module:to
local m = nn.Linear(2, 3):to "bfloat16" -- half the memory; still float32 arithmetic
print(m.weight.dtype, m(heed.ones(2)).dtype)

--## Module:float, Module:half, Module:bfloat16
local m = nn.Linear(2, 3)
print(m:half().weight.dtype, m:bfloat16().weight.dtype, m:float().weight.dtype)

--## Module:clone
local m = nn.Linear(2, 2)
local copy = m:clone()
copy.weight:fill_(0)
print(copy.weight:equal(m.weight))

--## Module:get_submodule
local m = nn.Sequential(nn.Residual(nn.Linear(2, 2)))
print(m:get_submodule "0.module")

--## Module:get_parameter
print(nn.Sequential(nn.Linear(2, 2)):get_parameter("0.bias").shape)

--## Module:get_buffer
print(nn.BatchNorm1d(2):get_buffer "running_mean")

--## Module:register_forward_pre_hook
local m = nn.Linear(2, 2)
m:register_forward_pre_hook(function(_, x) return x * 0 end)
print(m(heed.ones(2)):equal(m.bias))

--## Module:register_forward_hook
local m = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
m[1]:register_forward_hook(function(_, _, output) print("linear gives", output.shape) end)
m(heed.ones(2))

--## Module:hook_names
for _, name in ipairs(nn.MultiHeadAttention(4, 4, 8, 0.0, 2):hook_names()) do print(name) end

--## Module:add_hook
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
local handle = mha:add_hook("hook_pattern", function(pattern, hook) print(hook.name, pattern.shape) end)
mha(heed.rand(1, 3, 4))
handle:remove()

--## Module:on_weights
local m = nn.Sequential(nn.MultiHeadAttention(4, 4, 8, 0.0, 2))
m:on_weights(function(weights) print(weights.shape) end) -- of every attention module inside
m(heed.rand(1, 3, 4))

--## Module:run_with_hooks
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
local function even(pattern) return heed.full_like(pattern, 1 / pattern.shape[-1]) end
print(mha:run_with_hooks(heed.rand(1, 3, 4), { hook_pattern = even }).shape)

--## Module:run_with_cache
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
local y, cache = mha:run_with_cache(heed.rand(1, 3, 4))
print(y.shape, cache.hook_pattern.shape)

--## Module:train, Module:eval
local m = nn.Dropout(0.5)
print(m:train()(heed.ones(4)))
print(m:eval()(heed.ones(4)))

--## Module:requires_grad_
local m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
m[1]:requires_grad_(false) -- frozen
for name, p in m:named_parameters() do print(name, p.requires_grad) end

--## Module:zero_grad
heed.set_grad_enabled(true)
local m = nn.Linear(2, 1)
m(heed.ones(2)):backward()
print(m.weight.grad)
m:zero_grad()
print(m.weight.grad)

--## Module:apply
local m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
m:apply(function(part)
  if part:class_name() == "Linear" then nn.init.zeros_(part.weight) end
end)
print(m[1].weight)

--## Module:class_name
print(nn.Linear(2, 3):class_name())

--## Module:extra_repr
print(nn.Linear(2, 3):extra_repr())

--## nn.Module.class
local Twice = nn.Module.class "Twice"
function Twice:init(size) self.linear = nn.Linear(size, size) end
function Twice:forward(x) return self.linear(self.linear(x)) end
print(Twice(3))
print(Twice(3)(heed.ones(3)).shape)

--## Module:init
local Small = nn.Module.class("Small", nn.Module)
function Small:init(size) self.norm = nn.LayerNorm(size) end
local Larger = nn.Module.class("Larger", Small)
function Larger:init(size)
  Small.init(self, size) -- first what it is derived from
  self.linear = nn.Linear(size, size)
end
print(Larger(2))

--## Module:register_buffer
local Shift = nn.Module.class "Shift"
function Shift:init() self:register_buffer("offset", heed.tensor { 1, 2 }) end
function Shift:forward(x) return x + self.offset end
print(Shift()(heed.zeros(2)), #Shift():state_dict())

--## Module:add_module
local m = nn.Module.class "Empty"()
m:add_module("first", nn.ReLU())
print(m)

--## Module:register_parameter
local m = nn.Module.class "Empty"()
m:register_parameter("scale", heed.ones(2))
print(m.scale, m.scale.is_parameter)

--## Module:point
local Layer = nn.Module.class "Layer"
Layer.points = { "hook_mid" }
function Layer:forward(x) return self:point("hook_mid", x * 2) + 1 end
print(Layer():run_with_hooks(heed.ones(2), { hook_mid = function(x) return x * 100 end }))

--## ActivationCache:get
local _, cache = nn.MultiHeadAttention(4, 4, 8, 0.0, 2):run_with_cache(heed.rand(1, 3, 4))
print(cache:get("pattern").shape, cache["hook_pattern"].shape)

--## ActivationCache:stack
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 3, n_head = 2 }
local _, cache = model:run_with_cache { 1, 2, 3 }
print(cache:stack("resid_post").shape) -- [layers, …]

--## ActivationCache:names
local _, cache = nn.MultiHeadAttention(4, 4, 8, 0.0, 2):run_with_cache(heed.rand(1, 3, 4))
print(table.concat(cache:names(), " "))

--## nn.Linear
local m = nn.Linear(3, 2)
print(m)
print(m(heed.ones(4, 3)).shape, m.weight.shape, m.bias)

--## Linear:steps
local m, x = nn.Linear(64, 64), heed.rand(64, 64)
local steps = m:steps(x, { ms = 2 })
for _ in steps do end -- a frame of a game between two slices
print(steps.result:equal(m(x)))

--## nn.Dropout
local m = nn.Dropout(0.5)
print(m(heed.ones(6)))
print(m:eval()(heed.ones(6)))

--## nn.Embedding
local embedding = nn.Embedding(10, 3) -- 10 ids, vectors of size 3
print(embedding { 1, 10, 1 })

--## nn.LayerNorm
print(nn.LayerNorm(3)(heed.tensor { { 1, 2, 3 }, { 10, 0, -10 } }))

--## nn.RMSNorm
print(nn.RMSNorm(2)(heed.tensor { 3, 4 }))

--## nn.BatchNorm1d
local m = nn.BatchNorm1d(2)
print(m(heed.tensor { { 1, 10 }, { 3, 30 } }))
print(m.running_mean)

--## nn.GELU
print(nn.GELU()(heed.tensor { -1, 0, 1 }))

--## nn.SiLU
print(nn.SiLU()(heed.tensor { -1, 0, 1 }))

--## nn.ReLU
print(nn.ReLU()(heed.tensor { -1, 0, 1 }))

--## nn.Tanh
print(nn.Tanh()(heed.tensor { -1, 0, 1 }))

--## nn.Sigmoid
print(nn.Sigmoid()(heed.tensor { -1, 0, 1 }))

--## nn.LogSigmoid
print(nn.LogSigmoid()(heed.tensor { -1, 0, 1 }))

--## nn.Softmax
print(nn.Softmax(-1)(heed.tensor { { 1, 2 }, { 0, 0 } }))

--## nn.LogSoftmax
print(nn.LogSoftmax(-1)(heed.tensor { 1, 2 }))

--## nn.Softplus
print(nn.Softplus()(heed.tensor { -1, 0, 30 }))

--## nn.LeakyReLU
print(nn.LeakyReLU(0.1)(heed.tensor { -1, 0, 1 }))

--## nn.ELU
print(nn.ELU()(heed.tensor { -1, 0, 1 }))

--## nn.GLU
print(nn.GLU()(heed.tensor { 10, 20, 0, 100 }))

--## nn.SwiGLU
local m = nn.SwiGLU(4, 8)
print(m)
print(m(heed.ones(4)).shape)

--## nn.Identity
print(nn.Identity()(heed.tensor { 1, 2 }))

--## nn.Flatten
print(nn.Flatten()(heed.zeros(5, 2, 3)).shape)

--## nn.Unflatten
print(nn.Unflatten(2, { 2, 3 })(heed.zeros(5, 6)).shape)

--## nn.Sequential
local m = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
print(m)
print(m(heed.ones(4, 2)).shape, m[1])

--## nn.ModuleList
local layers = nn.ModuleList { nn.Linear(2, 2), nn.Linear(2, 2) }
local x = heed.ones(2)
for _, layer in heed.ipairs(layers) do x = layer(x) end
print(x, #layers)

--## nn.Residual
local m = nn.Residual(nn.Linear(2, 2)) -- x + linear(x)
print(m)
print((m(heed.ones(2)) - m.module(heed.ones(2))):round())

--## nn.ModuleDict
local d = nn.ModuleDict { { "first", nn.Linear(2, 3) }, { "second", nn.ReLU() } }
print(d)
print(d.second)

--## ModuleDict:update
local d = nn.ModuleDict { a = nn.ReLU() }
print(d:update { b = nn.GELU() })

--## ModuleDict:keys, ModuleDict:values
local d = nn.ModuleDict { a = nn.ReLU(), b = nn.GELU() }
print(table.concat(d:keys(), " "), d:values()[2])

--## ModuleDict:items
for name, m in nn.ModuleDict({ a = nn.ReLU(), b = nn.GELU() }):items() do print(name, m) end

--## ModuleDict:pop
local d = nn.ModuleDict { a = nn.ReLU(), b = nn.GELU() }
print(d:pop "a", #d)

--## ModuleDict:clear
local d = nn.ModuleDict { a = nn.ReLU() }
d:clear()
print(#d)

--## nn.ParameterList
print(nn.ParameterList { heed.ones(2), heed.zeros(3) })

--## ParameterList:append
print(#nn.ParameterList({ heed.ones(2) }):append(heed.zeros(3)))

--## ParameterList:extend
print(#nn.ParameterList({ heed.ones(2) }):extend { heed.zeros(3), heed.zeros(4) })

--## nn.ParameterDict
local d = nn.ParameterDict { scale = heed.ones(2) }
print(d.scale)

--## ModuleList:append, ModuleList:extend
local layers = nn.ModuleList { nn.ReLU() }
layers:append(nn.GELU()):extend { nn.Tanh(), nn.SiLU() }
print(layers)

--## ModuleList:insert
print(nn.ModuleList({ nn.ReLU() }):insert(1, nn.Linear(2, 2)))

--## ModuleList:pop
local layers = nn.ModuleList { nn.ReLU(), nn.GELU() }
print(layers:pop(), #layers)

--## nn.TransformerEncoderLayer
local layer = nn.TransformerEncoderLayer { d_model = 8, nhead = 2, dim_feedforward = 16, batch_first = true }
print(layer:eval()(heed.rand(1, 5, 8)).shape)

--## nn.TransformerEncoder
local layer = nn.TransformerEncoderLayer { d_model = 8, nhead = 2, dim_feedforward = 16, batch_first = true }
local encoder = nn.TransformerEncoder(layer, 3)
print(#encoder.layers, encoder:eval()(heed.rand(1, 5, 8)).shape)

--## nn.TransformerDecoderLayer
local layer = nn.TransformerDecoderLayer { d_model = 8, nhead = 2, dim_feedforward = 16, batch_first = true }
local tgt, memory = heed.rand(1, 3, 8), heed.rand(1, 5, 8)
print(layer:eval()(tgt, memory, { tgt_is_causal = true }).shape)

--## nn.TransformerDecoder
local layer = nn.TransformerDecoderLayer { d_model = 8, nhead = 2, dim_feedforward = 16, batch_first = true }
print(nn.TransformerDecoder(layer, 2):eval()(heed.rand(1, 3, 8), heed.rand(1, 5, 8)).shape)

--## nn.Transformer
local m = nn.Transformer { d_model = 8, nhead = 2, num_encoder_layers = 1, num_decoder_layers = 1, dim_feedforward = 16,
  batch_first = true }
print(m:eval()(heed.rand(1, 5, 8), heed.rand(1, 3, 8), { tgt_is_causal = true }).shape) -- source, target

--## nn.Transformer.generate_square_subsequent_mask
print(nn.Transformer.generate_square_subsequent_mask(3))
