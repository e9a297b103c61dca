--- nn.TransformerEncoderLayer and nn.TransformerEncoder. Masks are PyTorch's: true hides a key.

local core = require "heed.core"
local E = require "heed.nn.entries"
local layers = require "heed.nn.transformer_parts"
local Module = require "heed.nn.module"
local ModuleList = require "heed.nn.module_list"
local options = core.modules.options

-- ---- One layer ----------------------------------------------------------------------------------

local Layer = Module.class "TransformerEncoderLayer"

function Layer:init(...)
  E.check_self(self, "init")
  layers.add_parts(self, "TransformerEncoderLayer", { "self_attn" }, ...)
end

local FORWARD = { "src_mask", "src_key_padding_mask", "is_causal", "lengths" }

function Layer:forward(src, ...)
  E.check_self(self, "forward")
  local mask, padding, is_causal, lengths = options("TransformerEncoderLayer", FORWARD, 3, self, src, ...)
  E.check_tensor(src, "TransformerEncoderLayer", "src")
  return layers.run(self, src, {
    { "self_attn", nil, { attn_mask = mask, key_padding_mask = padding, is_causal = is_causal, lengths = lengths } },
  })
end

-- ---- A stack of layers --------------------------------------------------------------------------

local Encoder = Module.class "TransformerEncoder"

--- enable_nested_tensor and mask_check are accepted for PyTorch's sake: they choose a faster way of computing the same.
local NAMES = { "encoder_layer", "num_layers", "norm", "enable_nested_tensor", "mask_check" }

function Encoder:init(...)
  E.check_self(self, "init")
  local layer, count, norm = options("TransformerEncoder", NAMES, 1, ...)
  self.layers = ModuleList(layers.copies(layer, count, "TransformerEncoder", "encoder_layer"))
  self.num_layers = count
  if norm ~= nil then
    E.check_module(norm, "TransformerEncoder", "norm")
    self.norm = norm
  end
end

local STACK_FORWARD = { "mask", "src_key_padding_mask", "is_causal", "lengths" }

function Encoder:forward(src, ...)
  E.check_self(self, "forward")
  local mask, padding, is_causal, lengths = options("TransformerEncoder", STACK_FORWARD, 3, self, src, ...)
  E.check_tensor(src, "TransformerEncoder", "src")
  local x = src
  for _, layer in core.ipairs(self.layers) do
    E.check_cancel "TransformerEncoder"
    x = layer(x, { src_mask = mask, src_key_padding_mask = padding, is_causal = is_causal, lengths = lengths })
  end
  if self.norm then x = self.norm(x) end
  return x
end

return {
  TransformerEncoderLayer = E.with_frames(Layer, "forward"), TransformerEncoder = E.with_frames(Encoder, "forward"),
}
