--- What the layers of nn.TransformerEncoder and nn.TransformerDecoder share: attention, then a feed-forward part, each
--- with a residual connection and a norm.

local core = require "heed.core"
local E = require "heed.nn.entries"
local F = require "heed.nn.functional"
local MultiheadAttention = require "heed.nn.multihead"
local nn, options = core.nn, core.modules.options

local parts = {}

local NAMES = {
  "d_model", "nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps", "batch_first", "norm_first", "bias",
}

--- A function or module: 'relu', 'gelu', or what is given.
local function read_activation(activation, class)
  if activation == nil or activation == "relu" then return F.relu end
  if activation == "gelu" then return F.gelu end
  if type(activation) ~= "function" and not E.is_module(activation) then
    E.reject(class, "activation", activation, "'relu', 'gelu', a function or a module")
  end
  return activation
end

--- Adds the parts of a layer to `layer`, of the class `class`, with attention modules of these names. The order is
--- PyTorch's, for the random numbers and the state dict.
function parts.add_parts(layer, class, attentions, ...)
  local d, heads, hidden, dropout, activation, eps, batch_first, norm_first, bias = options(class, NAMES, 1, ...)
  d = E.size(d, nil, class, "d_model")
  heads = E.size(heads, nil, class, "nhead")
  if d % heads ~= 0 then
    E.fail("%s: d_model is %d and nhead is %d; d_model must be a multiple of nhead", class, d, heads)
  end
  hidden = E.size(hidden, 2048, class, "dim_feedforward")
  dropout = E.number(dropout, 0.1, class, "dropout", E.is_probability, E.PROBABILITY)
  activation = read_activation(activation, class)
  eps = E.number(eps, 1e-5, class, "layer_norm_eps")
  batch_first = E.boolean(batch_first, false, class, "batch_first")
  norm_first = E.boolean(norm_first, false, class, "norm_first")
  bias = E.boolean(bias, true, class, "bias")

  for _, name in ipairs(attentions) do
    layer[name] = MultiheadAttention(d, heads, { dropout = dropout, bias = bias, batch_first = batch_first })
  end
  layer.linear1 = nn.Linear(d, hidden, bias)
  layer.dropout = nn.Dropout(dropout)
  layer.linear2 = nn.Linear(hidden, d, bias)
  layer.norm_first = norm_first
  for i = 1, #attentions + 1 do layer["norm" .. i] = nn.LayerNorm(d, { eps = eps, bias = bias }) end
  for i = 1, #attentions + 1 do layer["dropout" .. i] = nn.Dropout(dropout) end
  layer.activation = activation
end

--- x + block(x), normalized before or after. A module's further results are dropped.
local function residual(layer, i, x, block)
  local norm, dropout = layer["norm" .. i], layer["dropout" .. i]
  if layer.norm_first then return x + (dropout((block((norm(x)))))) end
  return (norm(x + (dropout((block(x))))))
end

--- The forward pass of a layer. attentions: {name, memory (nil: x itself), options} in order.
function parts.run(layer, x, attentions)
  for i, attention in ipairs(attentions) do
    local name, memory, given = attention[1], attention[2], attention[3]
    given.need_weights = false
    x = residual(layer, i, x, function(y)
      local keys = memory or y
      return (layer[name](y, keys, keys, given))
    end)
  end
  return residual(layer, #attentions + 1, x, function(y)
    return (layer.linear2((layer.dropout((layer.activation((layer.linear1(y))))))))
  end)
end

--- `count` copies of a layer, in a list.
function parts.copies(layer, count, class, argument)
  E.check_module(layer, class, argument)
  count = E.size(count, nil, class, "num_layers")
  local list = {}
  for i = 1, count do
    E.check_cancel(class)
    list[i] = layer:clone()
  end
  return list
end

return parts
