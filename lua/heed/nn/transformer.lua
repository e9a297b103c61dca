--- nn.Transformer: an encoder and a decoder, as PyTorch makes them. Masks are PyTorch's: true hides a key.

local core = require "heed.core"
local decoder = require "heed.nn.decoder"
local E = require "heed.nn.entries"
local encoder = require "heed.nn.encoder"
local init = require "heed.nn.initializers"
local Module = require "heed.nn.module"
local options = core.modules.options

local Transformer = Module.class "Transformer"

local NAMES = {
  "d_model", "nhead", "num_encoder_layers", "num_decoder_layers", "dim_feedforward", "dropout", "activation",
  "layer_norm_eps", "batch_first", "norm_first", "bias",
}

function Transformer:init(...)
  E.check_self(self, "init")
  local d, heads, encoders, decoders, hidden, dropout, activation, eps, batch_first, norm_first, bias =
    options("Transformer", NAMES, 1, ...)
  d, heads = E.size(d, 512, "Transformer", "d_model"), E.size(heads, 8, "Transformer", "nhead")
  encoders = E.size(encoders, 6, "Transformer", "num_encoder_layers")
  decoders = E.size(decoders, 6, "Transformer", "num_decoder_layers")
  local layer = {
    d_model = d, nhead = heads, dim_feedforward = hidden, dropout = dropout, activation = activation,
    layer_norm_eps = eps, batch_first = batch_first, norm_first = norm_first, bias = bias,
  }
  local function norm() return core.nn.LayerNorm(d, { eps = eps, bias = bias }) end
  self.encoder = encoder.TransformerEncoder(encoder.TransformerEncoderLayer(layer), encoders, norm())
  self.decoder = decoder.TransformerDecoder(decoder.TransformerDecoderLayer(layer), decoders, norm())
  self.d_model, self.nhead, self.batch_first = d, heads, E.boolean(batch_first, false, "Transformer", "batch_first")
  for parameter in self:parameters() do
    E.check_cancel "Transformer"
    if parameter.ndim > 1 and not core.modules.placeholder(parameter) then init.xavier_uniform_(parameter) end
  end
end

local FORWARD = {
  "src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask",
  "src_is_causal", "tgt_is_causal", "memory_is_causal",
}

function Transformer:forward(src, tgt, ...)
  E.check_self(self, "forward")
  local src_mask, tgt_mask, memory_mask, src_padding, tgt_padding, memory_padding, src_causal, tgt_causal,
    memory_causal = options("Transformer", FORWARD, 4, self, src, tgt, ...)
  E.check_tensor(src, "Transformer", "src")
  E.check_tensor(tgt, "Transformer", "tgt")
  local memory = self.encoder(src, { mask = src_mask, src_key_padding_mask = src_padding, is_causal = src_causal })
  return (self.decoder(tgt, memory, {
    tgt_mask = tgt_mask, memory_mask = memory_mask, tgt_key_padding_mask = tgt_padding,
    memory_key_padding_mask = memory_padding, tgt_is_causal = tgt_causal, memory_is_causal = memory_causal,
  }))
end

E.with_frames(Transformer, "forward")

--- A causal mask to add to the scores, [n, n]: -inf above the diagonal. Called on the class or on a module.
Transformer.generate_square_subsequent_mask = core.frame(function(self, n)
  if type(self) == "number" then n = self end
  n = E.size(n, nil, "generate_square_subsequent_mask", "sz")
  return core.full({ n, n }, -math.huge):triu(1)
end)

return Transformer
