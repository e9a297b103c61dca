---@meta _
-- heed.nn: PyTorch's attention and transformers, written in Lua. Options go by position, in this order, or by name in one
-- table. Shape legend: b batch, n tokens, l queries, s keys, e embed_dim, h heads.

---@class heed.nn
---@field Transformer heed.TransformerClass PyTorch's encoder and decoder
local nn = {}

-- ---- PyTorch's attention ----

---@class heed.TorchAttentionOptions
---@field embed_dim? integer the size of a token
---@field num_heads? integer a divisor of embed_dim
---@field dropout? number 0 by default
---@field bias? boolean true by default
---@field add_bias_kv? boolean adds a learned key and value, bias_k and bias_v; false by default
---@field add_zero_attn? boolean adds a key and value of zeros; false by default
---@field kdim? integer the last size of key; embed_dim by default
---@field vdim? integer the last size of value; embed_dim by default
---@field batch_first? boolean whether tensors are [b, n, e] instead of [n, b, e]; false by default

---The masks are PyTorch's: true HIDES a key, the opposite of heed's other masks.
---@class heed.TorchAttentionForward
---@field key_padding_mask? heed.Tensor [b, s], bool, true where a key is hidden, or float32, added to the scores
---@field need_weights? boolean return the weights, too; true by default. false is faster
---@field attn_mask? heed.Tensor|heed.Mask a mask value, or [l, s] or [b · h, l, s], bool, true where a key is hidden, or float32, added to the scores
---@field average_attn_weights? boolean the weights are the average of the heads; true by default
---@field is_causal? boolean query i sees keys 1 to i; without effect if there is an attn_mask, which should say the same
---@field lengths? heed.Indices [b]: query [total, e] has the tokens of b sequences, one after another, and there is no padding. Not together with need_weights, whose default is false then; attn_mask broadcasts to [h, total, s]
---@field key_lengths? heed.Indices [b]: those of key and value; lengths by default

---`y, weights = m(query, key, value, options)`: weights [b, l, s], or [b, h, l, s] without averaging, after dropout. A query
---that sees no key gives zeros; PyTorch's gives nan.
---@class heed.MultiheadAttention: heed.Module, heed.Surgery
---@field embed_dim integer the size of a token
---@field num_heads integer the number of heads
---@field head_dim integer the size of a head
---@field kdim integer the last size of key
---@field vdim integer the last size of value
---@field dropout number of the attention weights
---@field batch_first boolean as given to the constructor
---@field add_zero_attn boolean as given to the constructor
---@field in_proj_weight? heed.Tensor [3 e, e], if kdim and vdim are embed_dim
---@field q_proj_weight? heed.Tensor [e, e], otherwise, with the next two
---@field k_proj_weight? heed.Tensor [e, kdim]
---@field v_proj_weight? heed.Tensor [e, vdim]
---@field in_proj_bias? heed.Tensor [3 e]
---@field bias_k? heed.Tensor [1, 1, e]
---@field bias_v? heed.Tensor [1, 1, e]
---@field out_proj heed.Linear from the joined heads to the result
---@overload fun(query: heed.Tensor, key: heed.Tensor, value: heed.Tensor, options?: heed.TorchAttentionForward): heed.Tensor, heed.Tensor?

---PyTorch's attention module, with its parameters and state dict; it computes with heed's fused attention. (For the
---module of the notebooks, and for caches, windows or grouped queries, see MultiHeadAttention, with a capital H.)
---@param embed_dim integer|heed.TorchAttentionOptions the size of a token
---@param num_heads? integer|heed.TorchAttentionOptions a divisor of embed_dim
---@param dropout? number|heed.TorchAttentionOptions
---@param bias? boolean
---@param add_bias_kv? boolean
---@param add_zero_attn? boolean
---@param kdim? integer
---@param vdim? integer
---@param batch_first? boolean
---@return heed.MultiheadAttention
---@nodiscard
function nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first) end

-- ---- Transformers ----

---@class heed.TransformerLayerOptions
---@field d_model? integer the size of a token
---@field nhead? integer heads of attention
---@field dim_feedforward? integer 2048 by default
---@field dropout? number 0.1 by default
---@field activation? "relu"|"gelu"|heed.Module|fun(x: heed.Tensor): heed.Tensor "relu" by default
---@field layer_norm_eps? number 1e-5 by default
---@field batch_first? boolean whether tensors are [b, n, d_model] instead of [n, b, d_model]; false by default
---@field norm_first? boolean whether each part normalizes its input instead of the sum after it; false by default
---@field bias? boolean true by default

---Masks as of MultiheadAttention: true hides a key.
---@class heed.EncoderLayerForward
---@field src_mask? heed.Tensor [n, n] or [b · h, n, n]
---@field src_key_padding_mask? heed.Tensor [b, n]
---@field is_causal? boolean a token sees itself and the tokens before it
---@field lengths? heed.Indices [b]: src [total, d_model] has the tokens of b sequences, one after another

---@class heed.TransformerEncoderLayer: heed.Module
---@field self_attn heed.MultiheadAttention attention to the layer's own tokens
---@field linear1 heed.Linear into the feed-forward part
---@field dropout heed.Dropout inside of it
---@field linear2 heed.Linear out of it
---@field norm1 heed.LayerNorm of the attention
---@field norm2 heed.LayerNorm of the next part
---@field dropout1 heed.Dropout of the attention
---@field dropout2 heed.Dropout of the next part
---@field norm_first boolean as given to the constructor
---@field activation heed.Module|fun(x: heed.Tensor): heed.Tensor of the feed-forward part
---@overload fun(src: heed.Tensor, options?: heed.EncoderLayerForward): heed.Tensor

---A layer of an encoder: self-attention and a feed-forward part, each with a residual connection and a norm.
---@param d_model integer|heed.TransformerLayerOptions the size of a token
---@param nhead? integer heads of attention
---@param dim_feedforward? integer|heed.TransformerLayerOptions
---@param dropout? number|heed.TransformerLayerOptions
---@param activation? string|function|heed.Module
---@param layer_norm_eps? number
---@param batch_first? boolean
---@param norm_first? boolean
---@param bias? boolean
---@return heed.TransformerEncoderLayer
---@nodiscard
function nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                                    norm_first, bias) end

---@class heed.EncoderForward
---@field mask? heed.Tensor [n, n] or [b · h, n, n]
---@field src_key_padding_mask? heed.Tensor [b, n]
---@field is_causal? boolean a token sees itself and the tokens before it
---@field lengths? heed.Indices [b]: src [total, d_model] has the tokens of b sequences, one after another

---@class heed.TransformerEncoder: heed.Module
---@field layers heed.ModuleList the copies
---@field num_layers integer how many
---@field norm? heed.Module applied to the result
---@overload fun(src: heed.Tensor, options?: heed.EncoderForward): heed.Tensor

---num_layers copies of a layer, one after another. The result at padding is unspecified.
---@param encoder_layer heed.Module the layer to copy
---@param num_layers integer how many copies
---@param norm? heed.Module|{ norm: heed.Module } applied to the result
---@param enable_nested_tensor? boolean ignored
---@param mask_check? boolean ignored
---@return heed.TransformerEncoder
---@nodiscard
function nn.TransformerEncoder(encoder_layer, num_layers, norm, enable_nested_tensor, mask_check) end

---Masks as of MultiheadAttention: true hides a key.
---@class heed.DecoderForward
---@field tgt_mask? heed.Tensor [l, l] or [b · h, l, l]
---@field memory_mask? heed.Tensor [l, s] or [b · h, l, s]
---@field tgt_key_padding_mask? heed.Tensor [b, l]
---@field memory_key_padding_mask? heed.Tensor [b, s]
---@field tgt_is_causal? boolean a token sees itself and the tokens before it
---@field memory_is_causal? boolean query i sees tokens 1 to i of memory

---@class heed.TransformerDecoderLayer: heed.Module
---@field self_attn heed.MultiheadAttention attention to the layer's own tokens
---@field multihead_attn heed.MultiheadAttention attention to the encoder's result
---@field linear1 heed.Linear into the feed-forward part
---@field dropout heed.Dropout inside of it
---@field linear2 heed.Linear out of it
---@field norm1 heed.LayerNorm of the attention
---@field norm2 heed.LayerNorm of the next part
---@field norm3 heed.LayerNorm of the feed-forward part
---@field dropout1 heed.Dropout of the attention
---@field dropout2 heed.Dropout of the next part
---@field dropout3 heed.Dropout of the feed-forward part
---@field norm_first boolean as given to the constructor
---@field activation heed.Module|fun(x: heed.Tensor): heed.Tensor of the feed-forward part
---@overload fun(tgt: heed.Tensor, memory: heed.Tensor, options?: heed.DecoderForward): heed.Tensor

---A layer of a decoder: self-attention, attention to the encoder's result, and a feed-forward part. Pass tgt_mask or
---tgt_is_causal for causal attention, which is not the default.
---@param d_model integer|heed.TransformerLayerOptions the size of a token
---@param nhead? integer heads of attention
---@param dim_feedforward? integer|heed.TransformerLayerOptions
---@param dropout? number|heed.TransformerLayerOptions
---@param activation? string|function|heed.Module
---@param layer_norm_eps? number
---@param batch_first? boolean
---@param norm_first? boolean
---@param bias? boolean
---@return heed.TransformerDecoderLayer
---@nodiscard
function nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                                    norm_first, bias) end

---@class heed.TransformerDecoder: heed.Module
---@field layers heed.ModuleList the copies
---@field num_layers integer how many
---@field norm? heed.Module applied to the result
---@overload fun(tgt: heed.Tensor, memory: heed.Tensor, options?: heed.DecoderForward): heed.Tensor

---num_layers copies of a layer, one after another.
---@param decoder_layer heed.Module the layer to copy
---@param num_layers integer how many copies
---@param norm? heed.Module|{ norm: heed.Module } applied to the result
---@return heed.TransformerDecoder
---@nodiscard
function nn.TransformerDecoder(decoder_layer, num_layers, norm) end

---@class heed.TransformerOptions: heed.TransformerLayerOptions
---@field num_encoder_layers? integer 6 by default
---@field num_decoder_layers? integer 6 by default

---@class heed.TransformerForward: heed.DecoderForward
---@field src_mask? heed.Tensor [n, n] or [b · h, n, n]
---@field src_key_padding_mask? heed.Tensor [b, n]
---@field src_is_causal? boolean a token sees itself and the tokens before it

---An encoder and a decoder. d_model is 512 and nhead 8 by default.
---@class heed.Transformer: heed.Module
---@field encoder heed.TransformerEncoder or the one that was given
---@field decoder heed.TransformerDecoder or the one that was given
---@field d_model integer the size of a token
---@field nhead integer heads of attention
---@field batch_first boolean as given to the constructor
---@overload fun(src: heed.Tensor, tgt: heed.Tensor, options?: heed.TransformerForward): heed.Tensor

---@class heed.TransformerClass: heed.ModuleClass
---@overload fun(options?: heed.TransformerOptions): heed.Transformer
---@overload fun(d_model: integer, nhead: integer, num_encoder_layers?: integer, num_decoder_layers?: integer, dim_feedforward?: integer, dropout?: number, activation?: string|function|heed.Module, layer_norm_eps?: number, batch_first?: boolean, norm_first?: boolean, bias?: boolean): heed.Transformer
local Transformer = {}

---A causal mask to add to the scores [sz, sz]: 0, and -inf above the diagonal.
---@param sz integer the number of tokens
---@return heed.Tensor
---@nodiscard
function Transformer.generate_square_subsequent_mask(sz) end
