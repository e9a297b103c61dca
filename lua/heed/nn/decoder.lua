--- nn.TransformerDecoderLayer and nn.TransformerDecoder. Masks are PyTorch's: true hides a key.

local core = require "heed.core"
local E = require "heed.nn.entries"
local layers = require "heed.nn.transformer_parts"
local Module = require "heed.nn.module"
local ModuleList = require "heed.nn.module_list"
local options = core.modules.options

local FORWARD = {
  "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "tgt_is_causal", "memory_is_causal",
}

-- ---- One layer ----------------------------------------------------------------------------------

local Layer = Module.class "TransformerDecoderLayer"

function Layer:init(...)
  E.check_self(self, "init")
  layers.add_parts(self, "TransformerDecoderLayer", { "self_attn", "multihead_attn" }, ...)
end

local function check_inputs(tgt, memory, class)
  E.check_tensor(tgt, class, "tgt")
  E.check_tensor(memory, class, "memory")
end

function Layer:forward(tgt, memory, ...)
  E.check_self(self, "forward")
  local class = "TransformerDecoderLayer"
  local tgt_mask, memory_mask, tgt_padding, memory_padding, tgt_causal, memory_causal =
    options(class, FORWARD, 4, self, tgt, memory, ...)
  check_inputs(tgt, memory, class)
  return layers.run(self, tgt, {
    { "self_attn", nil, { attn_mask = tgt_mask, key_padding_mask = tgt_padding, is_causal = tgt_causal } },
    { "multihead_attn", memory,
      { attn_mask = memory_mask, key_padding_mask = memory_padding, is_causal = memory_causal } },
  })
end

-- ---- A stack of layers --------------------------------------------------------------------------

local Decoder = Module.class "TransformerDecoder"

function Decoder:init(...)
  E.check_self(self, "init")
  local layer, count, norm = options("TransformerDecoder", { "decoder_layer", "num_layers", "norm" }, 1, ...)
  self.layers = ModuleList(layers.copies(layer, count, "TransformerDecoder", "decoder_layer"))
  self.num_layers = count
  if norm ~= nil then
    E.check_module(norm, "TransformerDecoder", "norm")
    self.norm = norm
  end
end

function Decoder:forward(tgt, memory, ...)
  E.check_self(self, "forward")
  local values = { options("TransformerDecoder", FORWARD, 4, self, tgt, memory, ...) }
  check_inputs(tgt, memory, "TransformerDecoder")
  local given = {}
  for i, name in ipairs(FORWARD) do given[name] = values[i] end
  local x = tgt
  for _, layer in core.ipairs(self.layers) do
    E.check_cancel "TransformerDecoder"
    x = layer(x, memory, given)
  end
  if self.norm then x = self.norm(x) end
  return x
end

return {
  TransformerDecoderLayer = E.with_frames(Layer, "forward"), TransformerDecoder = E.with_frames(Decoder, "forward"),
}
